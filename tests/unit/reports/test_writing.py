"""Writing reports: what is read for them, in which formats, and how large they may be."""

import dataclasses
import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from crucible_bridge.errors import FailedPrecondition, NotFound, ResourceExhausted
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    CompareRequest,
    Evaluation,
    EvaluationComparison,
    EvaluationState,
    EvaluatorInfo,
    Metrics,
    PairedComparison,
    ReportFormat,
    SampleResult,
    Verdict,
)
from crucible_worker.reports.plain_json import json_bytes
from crucible_worker.reports.writing import ReportRequest, write_report
from crucible_worker.util.shown_paths import ShownPaths
from tests.tables import rows
from tests.unit.reports.evaluations_made import INFOS, ended, sampled


class _Source:
    """Evaluations with their samples, in pages of two."""

    def __init__(self, held: Sequence[tuple[Evaluation, Sequence[SampleResult]]]) -> None:
        self.held = {evaluation.evaluation_id: (evaluation, list(results)) for evaluation, results in held}
        self.compared: list[CompareRequest] = []
        self.refusal: Exception | None = None

    async def get(self, evaluation_id: str) -> Evaluation:
        if evaluation_id not in self.held:
            raise NotFound("no", reason=Reason.UNKNOWN_EVALUATION)
        return self.held[evaluation_id][0]

    async def of_run(self, run_id: str) -> Sequence[Evaluation]:
        return [evaluation for evaluation, _ in self.held.values() if evaluation.request.run_id == run_id]

    async def samples(
        self,
        evaluation_id: str,
        *,
        verdicts: Sequence[Verdict] = (),
        page_size: int,
        page_token: str = "",
        records: bool = True,
    ) -> tuple[Sequence[SampleResult], str]:
        start = int(page_token or 0)
        found = [one for one in self.held[evaluation_id][1] if not verdicts or one.verdict in verdicts]
        page = found[start : start + 2]
        shown = page if records else [dataclasses.replace(one, sample=None) for one in page]
        return shown, str(start + 2) if start + 2 < len(found) else ""

    async def compare(self, request: CompareRequest) -> EvaluationComparison:
        self.compared.append(request)
        if self.refusal is not None:
            raise self.refusal
        found = tuple(self.held[one][0] for one in request.evaluation_ids)
        metrics = Metrics({"mean": 0.9, "difference": 0.4, "difference_ci_low": -1.0, "difference_ci_high": 1.0})
        pairs = tuple(
            PairedComparison(
                baseline_id=request.evaluation_ids[0], evaluation_id=one, evaluator="right", metrics=metrics
            )
            for one in request.evaluation_ids[1:]
        )
        return EvaluationComparison(evaluations=found, comparisons=pairs, series=())

    async def infos(self, kinds: Iterable[str]) -> Mapping[str, EvaluatorInfo]:
        return {kind: INFOS[kind] for kind in kinds if kind in INFOS}


def _source() -> _Source:
    wrong = sampled("1+1", verdict=Verdict.INCORRECT, score=0.0, output="3", extracted="3")
    error = sampled("2+2", verdict=Verdict.ERROR, score=None)
    values = {"right": 0.5, "right_stderr": 0.1}
    return _Source(
        [
            (ended("b", {**values, "right": 0.9}, step=20), [sampled(), sampled("1+1"), sampled("2+2")]),
            (ended("a", values, step=10), [sampled(), wrong, error]),
        ]
    )


async def _written(source: _Source, report_format: ReportFormat = ReportFormat.HTML, **changes: Any) -> str:
    max_bytes = changes.pop("max_bytes", None)
    request = ReportRequest(report_format=report_format, **changes)
    return await write_report(source, request, version="1.2.3", paths=ShownPaths(), max_bytes=max_bytes)


def _block(page: str, name: str = "data") -> Any:
    found = re.search(f'<script type="application/json" id="{name}">(.*?)</script>', page, re.DOTALL)
    assert found is not None, name
    return json.loads(found[1])


async def test_html_of_a_run_has_everything() -> None:
    """The run with what is best and tied, each evaluation with its spread and samples, and their comparison."""
    source = _source()
    page = await _written(source, run_id="run-1")
    data = _block(page)

    assert (data["door"], data["title"], data["home"]) == ("file", "Run run-1", "#/run/run-1")
    assert data["about"] == {"version": "1.2.3"}
    (series,) = data["runs"]["run-1"]["series"]
    assert (series["best"], series["tied"]) == ("b", ["a"])
    assert list(data["evaluations"]) == ["a", "b"]  # by step
    assert data["evaluations"]["a"]["distributions"]["right"]["verdicts"] == {"correct": 1, "incorrect": 1, "error": 1}
    assert [one["id"] for one in data["compare"]["evaluations"]] == ["a", "b"]
    assert data["samples"]["a"] == {"block": "samples-0", "total": 3, "shown": 3, "left_out": None}
    assert [one["sample_id"] for one in _block(page, "samples-0")] == ["12+34", "1+1", "2+2"]
    assert _block(page, "samples-1")[0]["input"] == "12+34="


@rows(
    ("asked", "home", "title"),
    [
        ({"evaluation_ids": ["a"]}, "#/evaluation/a", "Evaluation a"),
        ({"evaluation_ids": ["b", "a"]}, "#/compare/b%2Ca", "2 evaluations"),
        ({"evaluation_ids": ["b", "b"]}, "#/evaluation/b", "Evaluation b"),
        ({"run_id": "run-1"}, "#/run/run-1", "Run run-1"),
        ({"run_id": "run-1", "title": "Night <1>"}, "#/run/run-1", "Night <1>"),
        ({"metrics": Metrics({"x": 1.0}), "title": "a/b"}, "#/evaluation/a%2Fb", "a/b"),
    ],
)
async def test_a_report_begins_with_what_was_asked_for(asked: Mapping[str, Any], home: str, title: str) -> None:
    """One evaluation, a comparison, or a run; by its own title if it has one."""
    page = await _written(_source(), **asked)
    data = _block(page)

    assert (data["home"], data["title"]) == (home, title)
    assert (f'<span class="quiet">{html.escape(title)} · report of ' in page) == ("title" in asked)


async def test_evaluations_that_cannot_be_compared_are_reported_all_the_same() -> None:
    """Of other data sets, or too many: the page has no comparison, and nothing is tied."""
    source = _source()
    source.refusal = ResourceExhausted("too many", reason=Reason.TOO_MANY_SAMPLES)
    data = _block(await _written(source, evaluation_ids=["a", "b"]))

    assert (data["compare"], data["home"]) == (None, "#/")
    assert data["runs"]["run-1"]["series"][0]["tied"] == []


async def test_another_failure_of_a_comparison_is_one_of_the_report() -> None:
    """What is not known to be harmless is not hidden."""
    source = _source()
    source.refusal = FailedPrecondition("broken", reason=Reason.NO_DATA_ROOT)

    with pytest.raises(FailedPrecondition, match="broken"):
        await _written(source, evaluation_ids=["a", "b"])


async def test_only_what_has_ended_on_one_data_set_is_compared() -> None:
    """The worker would refuse the rest."""
    source = _source()
    running = dataclasses.replace(ended("c", {}), results=(), state=EvaluationState.RUNNING)
    source.held["c"] = (running, [])
    source.held["d"] = (ended("d", {}, dataset_fingerprint="other"), [])
    await _written(source, evaluation_ids=["c", "a", "d", "b"])

    assert ("a", "b") in [request.evaluation_ids for request in source.compared]
    assert not {one for request in source.compared for one in request.evaluation_ids} & {"c", "d"}


async def test_samples_are_bounded_over_all_evaluations() -> None:
    """The page says what it leaves out."""
    page = await _written(_source(), evaluation_ids=["a", "b"], max_samples=2)
    held = _block(page)["samples"]

    assert [one["sample_id"] for one in _block(page, "samples-0")] == ["1+1", "2+2"]
    assert [(one["shown"], one["total"]) for one in held.values()] == [(2, 3), (0, 3)]
    assert "at most 2 samples" in held["b"]["left_out"]


async def test_a_report_fits_its_message() -> None:
    """Samples go until it does; a report that is too large without any is an error that says so."""
    source = _source()
    for _, results in source.held.values():
        results[:] = [dataclasses.replace(result, output="½" * 5_000) for result in results]
    bare = await _written(source, run_id="run-1", max_samples=0)
    bound = json_bytes(bare) + 45_000  # of which a sample takes more than 30,000
    smaller = await _written(source, run_id="run-1", max_bytes=bound)

    assert json_bytes(bare) + 30_000 < json_bytes(smaller) <= bound
    assert [one["sample_id"] for one in _block(smaller, "samples-0")] == ["2+2"]
    assert "bytes of samples" in _block(smaller)["samples"]["b"]["left_out"]
    with pytest.raises(ResourceExhausted, match="fewer evaluations") as refused:
        await _written(source, run_id="run-1", max_bytes=10_000)
    assert refused.value.reason == Reason.ANSWER_TOO_LARGE


@rows("report_format", [ReportFormat.MARKDOWN, ReportFormat.JSON])
async def test_the_other_formats_are_bounded_too(report_format: ReportFormat) -> None:
    """They have nothing to leave out."""
    text = await _written(_source(), report_format, run_id="run-1")

    assert await _written(_source(), report_format, run_id="run-1", max_bytes=json_bytes(text)) == text
    with pytest.raises(ResourceExhausted):
        await _written(_source(), report_format, run_id="run-1", max_bytes=json_bytes(text) - 1)


async def test_plain_results_are_reported_in_every_format() -> None:
    """Numbers that no worker has an evaluation of, and why one of them is missing."""
    metrics = Metrics.of({"accuracy": 0.5, "loss": float("nan")})
    markdown, written, page = [
        await _written(_source(), report_format, metrics=metrics, title="Mine")
        for report_format in (ReportFormat.MARKDOWN, ReportFormat.JSON, ReportFormat.HTML)
    ]

    assert markdown.startswith("# Mine\n\n## Metrics\n\n| metric | value |")
    assert "| accuracy | 0.5 |" in markdown
    assert "| loss | is nan, not finite |" in markdown
    assert json.loads(written) == {
        "title": "Mine",
        "metrics": {"accuracy": 0.5},
        "undefined": {"loss": "is nan, not finite"},
        "evaluations": [],
    }
    found = _block(page)["evaluations"]["Mine"]
    assert (found["metrics"], found["headline"], found["state"]) == ({"accuracy": 0.5}, ["accuracy"], "completed")


async def test_a_run_is_in_order_in_every_format() -> None:
    """By step, whatever order the worker lists it in."""
    report = json.loads(await _written(_source(), ReportFormat.JSON, run_id="run-1"))

    assert [one["evaluation_id"] for one in report["evaluations"]] == ["a", "b"]
    assert [one["sample_id"] for one in report["evaluations"][0]["failures"]] == ["2+2"]


async def test_a_run_without_evaluations_is_not_there() -> None:
    """An empty report would look like a run in which nothing was found."""
    with pytest.raises(NotFound, match="'nosuch'") as refused:
        await _written(_source(), run_id="nosuch")
    assert refused.value.reason == Reason.UNKNOWN_RUN


async def test_several_evaluations_are_compared_in_every_format() -> None:
    """Markdown and JSON say the difference as `compare` does; what is not compared is named."""
    source = _source()
    source.held["c"] = (ended("c", {"right": 0.1}, step=30, dataset_fingerprint="other"), [])
    markdown = await _written(source, ReportFormat.MARKDOWN, evaluation_ids=("a", "b", "c"))
    data = json.loads(await _written(source, ReportFormat.JSON, evaluation_ids=("a", "b", "c")))

    assert "| a | b | right | mean 0.9, difference +0.4 (95 %: -1 to 1), 0 better and 0 worse of 0 sam" in markdown
    assert "Not compared: c" in markdown
    (difference,) = data["comparison"]["differences"]
    assert (difference["baseline_id"], difference["evaluation_id"]) == ("a", "b")
    assert difference["metrics"]["difference"] == 0.4
    assert data["not_compared"] == ["c"]

    source.refusal = FailedPrecondition("no", reason=Reason.TOO_MANY_SAMPLES)
    refused = json.loads(await _written(source, ReportFormat.JSON, evaluation_ids=("a", "b")))
    assert (refused["comparison"], refused["not_compared"]) == (None, ["a", "b"])
    assert "## Comparison" not in await _written(source, ReportFormat.MARKDOWN, evaluation_ids=("a",))
