"""Writing a report: what is read for it, and how large it may be."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from crucible_bridge.errors import NotFound, ResourceExhausted
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    MAX_COMPARED_EVALUATIONS,
    CompareRequest,
    Evaluation,
    EvaluationComparison,
    Metrics,
    ReportFormat,
    SampleResult,
    Verdict,
)
from crucible_worker.reports.as_html import render_html, sample_block
from crucible_worker.reports.as_json import render_json
from crucible_worker.reports.as_markdown import render_markdown
from crucible_worker.reports.chosen_samples import MAX_SAMPLES, ChosenSamples, SampleChoice
from crucible_worker.reports.comparisons import MOST_COMPARED, compare_as_data, compared_if_possible
from crucible_worker.reports.distributions import ResultDistributions
from crucible_worker.reports.facts import MAX_FAILURES
from crucible_worker.reports.inline_json import json_bytes
from crucible_worker.reports.metric_keys import Infos
from crucible_worker.reports.plain import replace_surrogates
from crucible_worker.reports.source import ReportSource, sample_pages
from crucible_worker.reports.summaries import (
    evaluation_as_data,
    index_as_data,
    results_as_data,
    run_as_data,
    tie_requests,
)

__all__ = ["ReportRequest", "write_report"]

_LEFT_OUT_BYTES = 1_000
"""What the page says of one evaluation's samples, at most."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """What is reported: evaluations, a run, or metrics by themselves."""

    report_format: ReportFormat
    """How."""
    evaluation_ids: Sequence[str] = ()
    """These, in this order."""
    run_id: str | None = None
    """In their place: all of this run, by step."""
    metrics: Metrics | None = None
    """In the place of both: results that no worker has."""
    title: str = ""
    """What the report is called; if empty, what it reports."""
    max_samples: int = MAX_SAMPLES
    """Samples in HTML, of all evaluations together."""


async def write_report(
    source: ReportSource, request: ReportRequest, *, version: str, max_bytes: int | None = None
) -> str:
    """Write a report.

    Args:
        source: what is reported is read from it.
        request: what, and how.
        version: of the program, which HTML names.
        max_bytes: of the report, see `inline_json.json_bytes`: HTML has fewer samples then. No bound if None.

    Raises:
        BridgeError: an evaluation is not there, or cannot be read.
        NotFound: the run has no evaluation (reason UNKNOWN_RUN).
        ResourceExhausted: the report is larger than it may be (reason ANSWER_TOO_LARGE).
    """
    evaluations = await _evaluations(source, request)
    if request.report_format is ReportFormat.HTML:
        text = await _html(source, request, evaluations, version, max_bytes)
    else:
        failures = {one.evaluation_id: await _failures(source, one.evaluation_id) for one in evaluations}
        text = await asyncio.to_thread(_text, request, evaluations, failures)
    if max_bytes is not None and (size := await asyncio.to_thread(json_bytes, text)) > max_bytes:
        raise ResourceExhausted(
            f"the report takes {size:,} bytes, a message at most {max_bytes:,}: report fewer evaluations in one call",
            reason=Reason.ANSWER_TOO_LARGE,
        )
    return text


async def _evaluations(source: ReportSource, request: ReportRequest) -> Sequence[Evaluation]:
    if request.run_id is None:
        return [await source.get(evaluation_id) for evaluation_id in dict.fromkeys(request.evaluation_ids)]
    found = await source.of_run(request.run_id)
    if not found:
        raise NotFound(f"is {request.run_id!r}, which has no evaluation", reason=Reason.UNKNOWN_RUN, field="run_id")
    return sorted(found, key=lambda one: (one.request.step is not None, one.request.step or 0, one.created_unix_ns))


async def _failures(source: ReportSource, evaluation_id: str) -> Sequence[SampleResult]:
    unscored = (Verdict.UNDECIDED, Verdict.ERROR)
    found, _ = await source.samples(evaluation_id, verdicts=unscored, page_size=MAX_FAILURES)
    return found


def _text(
    request: ReportRequest, evaluations: Sequence[Evaluation], failures: Mapping[str, Sequence[SampleResult]]
) -> str:
    render = render_json if request.report_format is ReportFormat.JSON else render_markdown
    return render(evaluations, failures, title=request.title, metrics=request.metrics)


async def _html(
    source: ReportSource,
    request: ReportRequest,
    evaluations: Sequence[Evaluation],
    version: str,
    max_bytes: int | None,
) -> str:
    infos = await source.infos({spec.kind for one in evaluations for spec in one.request.evaluators})
    choice = SampleChoice(request.max_samples)
    spreads = {evaluation.evaluation_id: ResultDistributions() for evaluation in evaluations}
    for evaluation_id, spread in spreads.items():
        choice.begin(evaluation_id)
        async for page in sample_pages(source, evaluation_id, records=False):
            await asyncio.to_thread(_count, choice, spread, evaluation_id, page)
    pages = await _pages(source, request, evaluations, infos, spreads)
    chosen = await asyncio.to_thread(choice.chosen)
    left = None
    if max_bytes is not None:
        without = await asyncio.to_thread(lambda: json_bytes(_rendered(pages, ChosenSamples(chosen), version)))
        left = max(0, max_bytes - without - _LEFT_OUT_BYTES * len(evaluations))
    kept = ChosenSamples(chosen, left)
    for evaluation_id in spreads:
        async for page in sample_pages(source, evaluation_id, records=True):
            await asyncio.to_thread(_keep, kept, evaluation_id, page)
    return await asyncio.to_thread(_rendered, pages, kept, version)


def _count(choice: SampleChoice, spread: ResultDistributions, evaluation_id: str, page: Sequence[SampleResult]) -> None:
    for result in page:
        choice.add(evaluation_id, result)
        spread.add(result)


def _keep(kept: ChosenSamples, evaluation_id: str, page: Sequence[SampleResult]) -> None:
    for result in page:
        kept.add(evaluation_id, result)


class _Pages(NamedTuple):
    """What a page shows, besides samples."""

    title: str
    named: str
    home: str
    data: Mapping[str, Any]
    evaluation_ids: Sequence[str]


async def _pages(
    source: ReportSource,
    request: ReportRequest,
    evaluations: Sequence[Evaluation],
    infos: Infos,
    spreads: Mapping[str, ResultDistributions],
) -> _Pages:
    of_runs: dict[str, list[Evaluation]] = {}
    for evaluation in evaluations:
        if evaluation.request.run_id:
            of_runs.setdefault(evaluation.request.run_id, []).append(evaluation)
    runs = {run_id: await _run(source, run_id, found, infos) for run_id, found in of_runs.items()}
    compared = await _compare(source, evaluations)
    newest_first = sorted(evaluations, key=lambda one: -one.created_unix_ns)
    data = await asyncio.to_thread(
        lambda: {
            "index": index_as_data(newest_first, infos),
            "runs": runs,
            "evaluations": {
                one.evaluation_id: evaluation_as_data(one, infos, spreads[one.evaluation_id]) for one in evaluations
            },
            "compare": None if compared is None else compare_as_data(compared, infos),
        }
    )
    ids = [evaluation.evaluation_id for evaluation in evaluations]
    title = request.title or _title(request, ids)
    if request.metrics is not None:
        results = results_as_data(title, request.metrics)
        data = {**data, "evaluations": {title: results}, "index": {"runs": [], "evaluations": [results], "more": False}}
        return _Pages(title, request.title, _address("evaluation", title), data, ())
    return _Pages(title, request.title, _home(request, ids, data), data, ids)


async def _run(source: ReportSource, run_id: str, evaluations: Sequence[Evaluation], infos: Infos) -> Mapping[str, Any]:
    answers = [await compared_if_possible(source.compare, request) for request in tie_requests(evaluations, infos)]
    pairs = [pair for answer in answers if answer is not None for pair in answer.comparisons]
    return await asyncio.to_thread(run_as_data, run_id, evaluations, infos, pairs)


async def _compare(source: ReportSource, evaluations: Sequence[Evaluation]) -> EvaluationComparison | None:
    """Those of the first data set that have ended, with the first of them."""
    ended = [one for one in evaluations if one.state.terminal and one.dataset_fingerprint]
    ids = [one.evaluation_id for one in ended if one.dataset_fingerprint == ended[0].dataset_fingerprint]
    ids = list(dict.fromkeys(ids))[:MAX_COMPARED_EVALUATIONS]
    return (
        None if len(ids) < 2 else await compared_if_possible(source.compare, CompareRequest(evaluation_ids=tuple(ids)))
    )


def _title(request: ReportRequest, ids: Sequence[str]) -> str:
    if request.run_id is not None:
        return f"Run {request.run_id}"
    if request.metrics is not None:
        return "Results"
    return f"Evaluation {ids[0]}" if len(ids) == 1 else f"{len(ids):,} evaluations"


def _home(request: ReportRequest, ids: Sequence[str], data: Mapping[str, Any]) -> str:
    """The address that a reader sees first."""
    if len(ids) == 1:
        return _address("evaluation", ids[0])
    if request.run_id is not None:
        return _address("run", request.run_id)
    compare = data["compare"]
    held = [] if compare is None else [one["id"] for one in compare["evaluations"]]
    listed = ",".join(map(_listed_id, ids))
    return _address("compare", listed) if held == list(ids) and len(ids) <= MOST_COMPARED else "#/"


def _listed_id(one: str) -> str:
    """An id in a list with commas between the ids."""
    return one.replace("%", "%25").replace(",", "%2C")


def _address(page: str, part: str) -> str:
    return f"#/{page}/{quote(replace_surrogates(part), safe='')}"


def _rendered(pages: _Pages, kept: ChosenSamples, version: str) -> str:
    now = datetime.datetime.now(datetime.UTC)
    samples = {
        one: {
            "block": sample_block(place),
            "total": kept.total(one),
            "shown": kept.shown(one),
            "left_out": kept.left_out(one),
        }
        for place, one in enumerate(pages.evaluation_ids)
    }
    title = replace_surrogates(pages.title)
    data = {
        "door": "file",
        "most_compared": MOST_COMPARED,
        "created": now.timestamp(),
        "title": title,
        "home": pages.home,
        **pages.data,
        "samples": samples,
        "about": {"version": version},
    }
    written = f"report of {now:%Y-%m-%d %H:%M} UTC, crucible-bridge {version}"
    # What a page is called changes with the page that is looked at; the report's own title stays.
    subtitle = " · ".join(filter(None, (replace_surrogates(pages.named), written)))
    return render_html(title, subtitle, data, [kept.block(one) for one in pages.evaluation_ids])
