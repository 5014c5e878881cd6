"""Reports: what they say, and that nothing from outside breaks out of them."""

import dataclasses
import json
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import (
    Dataset,
    EmbeddedModel,
    EvaluateRequest,
    Evaluation,
    EvaluationState,
    EvaluatorRendering,
    EvaluatorResult,
    EvaluatorSpec,
    FewShot,
    Limits,
    Metrics,
    ModelUsage,
    Problem,
    Prompt,
    SampleResult,
    SamplingParams,
    ServerEngine,
    Usage,
    Verdict,
)
from crucible_worker.reports import render_json, render_markdown
from crucible_worker.reports.as_markdown import MAX_CELL_CHARS
from crucible_worker.reports.facts import MAX_FAILURES
from tests.tables import rows

SPEC = EvaluatorSpec(kind="accuracy", name="strict", options={"grader": "numeric"})
METRICS = Metrics({"strict/accuracy": 0.75}, {"strict/accuracy_stderr": "only one sample was scored"})


def _evaluation(step: int | None = 400, **changes: Any) -> Evaluation:
    request = EvaluateRequest(
        run_id="run-1",
        step=step,
        model=EmbeddedModel("arithmetic@400"),
        evaluators=(SPEC,),
        dataset=Dataset.of("builtin:arithmetic"),
        sampling=SamplingParams(max_tokens=4),
        limits=Limits(concurrency=8),
        labels={"team": "a|b"},
    )
    problem = Problem(reason="TOO_MANY_UNSCORED", message="3 of 8 samples are unscored")
    result = EvaluatorResult(
        evaluator=SPEC,
        metrics=METRICS,
        n=8,
        n_scored=5,
        n_unscored=3,
        n_errors=2,
        n_truncated=4,
        n_truncated_reasoning=1,
        problem=problem,
    )
    fields: dict[str, Any] = {
        "evaluation_id": f"e-{step}",
        "state": EvaluationState.COMPLETED,
        "request": request,
        "metrics": METRICS,
        "results": (result,),
        "done": 8,
        "total": 8,
    }
    return Evaluation(**{**fields, **changes})


def _failure(output: str = "no idea", **changes: Any) -> SampleResult:
    return SampleResult(evaluator="strict", sample_id="12+34", verdict=Verdict.INCORRECT, output=output, **changes)


def _cells(markdown: str) -> list[list[str]]:
    rows = [line for line in markdown.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def test_reports_say_how_models_were_asked() -> None:
    """The prompt of the data set, and what each evaluator's renderer came to, with that of its judge."""
    rendering = EvaluatorRendering(evaluator="strict", renderer="chat_template", others={"judge": "raw"})
    evaluation = _evaluation(rendering=(rendering,))
    few_shot = FewShot(source="jsonl:train.jsonl", count=5)
    prompt = Prompt(system="Be brief.", template="{input}", few_shot=few_shot)
    dataset = dataclasses.replace(evaluation.request.dataset, prompt=prompt)
    evaluation = dataclasses.replace(evaluation, request=dataclasses.replace(evaluation.request, dataset=dataset))

    cells = _cells(render_markdown([evaluation], {}))
    (found,) = json.loads(render_json([evaluation], {}))["evaluations"]

    words = "prompt with system message and template and 5 examples of jsonl:train.jsonl by seed 0"
    assert ["data set", f"builtin:arithmetic, {words}"] in cells
    assert ["renderer of strict", "chat_template, judge: raw"] in cells
    assert found["prompt"]["few_shot"] == {"source": "jsonl:train.jsonl", "count": 5, "seed": 0}
    assert found["rendering"] == [{"evaluator": "strict", "renderer": "chat_template", "others": {"judge": "raw"}}]


def test_markdown_says_what_was_found() -> None:
    """Metrics, undefined keys with their reasons, counts, problems and limits are all there."""
    cells = _cells(render_markdown([_evaluation(problem=Problem(reason="DRAINED", message="it was told to"))], {}))

    assert ["strict/accuracy", "0.75"] in cells
    assert ["strict/accuracy_stderr", "only one sample was scored"] in cells
    problem = "TOO_MANY_UNSCORED: 3 of 8 samples are unscored"
    assert ["strict", "accuracy", "8", "5", "3", "2", "4", "1", problem] in cells
    assert ["concurrency", "8"] in cells
    assert ["model", "embedded:arithmetic@400"] in cells
    assert ["step", "400"] in cells


USAGE = Usage(
    prompt_tokens=1234,
    reasoning_tokens=5,
    output_tokens=60,
    calls=9,
    unreported_calls=1,
    cost=0.125,
    judges=(ModelUsage(model="openai:lab/j", usage=Usage(prompt_tokens=7, output_tokens=2, calls=1)),),
)


def test_a_reference_is_no_judge() -> None:
    """What an evaluator names as its reference is called that, however the option writes it."""
    evaluation = _evaluation(results=(), usage=USAGE)
    spec = EvaluatorSpec(kind="preference", options={"reference": "openai:lab/j"})
    compared = dataclasses.replace(evaluation, request=dataclasses.replace(evaluation.request, evaluators=(spec,)))
    assert "openai:lab/j (reference)" in render_markdown([compared], {})
    assert "(judge)" not in render_markdown([compared], {})
    assert "openai:lab/j (judge)" in render_markdown([evaluation], {})


def test_markdown_says_what_it_took() -> None:
    """A row for each evaluator and model; what is not known is a dash, which is not 0; the engine is a fact."""
    engine = ServerEngine(name="vllm", version="0.9.1", fingerprint="fp|1")
    one = dataclasses.replace(_evaluation().results[0], usage=USAGE)
    other = dataclasses.replace(one, evaluator=EvaluatorSpec(kind="nll"), usage=None)
    cells = _cells(render_markdown([_evaluation(results=(one, other), usage=USAGE, engine=engine)], {}))

    for label in ("strict", "all"):
        assert [label, "embedded:arithmetic@400", "1,234", "-", "5", "60", "9", "1", "0.125"] in cells
        assert [label, "openai:lab/j (judge)", "7", "-", "-", "2", "1", "0", "-"] in cells
    assert not [row for row in cells if row[0] == "nll" and row[1].startswith("embedded:")]
    assert ["engine", "vllm 0.9.1 fp\\|1"] in cells


def test_json_says_what_it_took() -> None:
    """Under the names of the contract, with null for what is not known; null as a whole where nothing was queried."""
    one = dataclasses.replace(_evaluation().results[0], usage=USAGE)
    shown = _failure(usage=Usage(output_tokens=3, calls=1, unreported_calls=1))
    evaluation = _evaluation(results=(one,), usage=USAGE, engine=ServerEngine(name="vllm"))
    report = json.loads(render_json([evaluation], {"e-400": [shown]}))["evaluations"][0]

    numbers = ("prompt_tokens", "cached_prompt_tokens", "reasoning_tokens", "output_tokens", "calls")
    assert [report["usage"][name] for name in (*numbers, "unreported_calls", "cost")] == [
        1234,
        None,
        5,
        60,
        9,
        1,
        0.125,
    ]
    assert report["usage"]["judges"][0]["model"] == "openai:lab/j"
    assert report["usage"]["judges"][0]["usage"]["prompt_tokens"] == 7
    assert report["evaluators"][0]["usage"] == report["usage"]
    assert [report["failures"][0]["usage"][name] for name in numbers] == [None, None, None, 3, 1]
    assert {key: report["engine"][key] for key in ("name", "version", "fingerprint")} == {
        "name": "vllm",
        "version": "",
        "fingerprint": "",
    }
    plain = json.loads(render_json([_evaluation()], {}))["evaluations"][0]
    assert (plain["usage"], plain["engine"]) == (None, None)


def test_a_problem_is_told() -> None:
    """Why an evaluation failed stands in its report."""
    report = render_markdown([_evaluation(problem=Problem(reason="STALLED", message="nothing came"))], {})

    assert "STALLED: nothing came" in report


def test_several_steps_share_a_table() -> None:
    """Each metric has a row and each step a column; what a step lacks is a dash."""
    later = _evaluation(800, metrics=Metrics({"strict/accuracy": 0.9, "nll": 1.23456789}))

    cells = _cells(render_markdown([_evaluation(), later], {}))

    assert cells[0] == ["metric", "step 400", "step 800"]
    assert cells[2] == ["strict/accuracy", "0.75", "0.9"]
    assert ["nll", "-", "1.23457"] in cells


@pytest.mark.parametrize("steps", [(400, 400), (None, 400), (None, None)])
def test_columns_are_ids_where_steps_do_not_tell(steps: tuple[int | None, int | None]) -> None:
    """Two evaluations of one step, or of none, are told apart by their ids."""
    one, other = (_evaluation(step, evaluation_id=name) for step, name in zip(steps, "ab"))

    assert _cells(render_markdown([one, other], {}))[0] == ["metric", "a", "b"]


def test_a_failed_sample_says_whether_it_was_cut() -> None:
    """An answer that ended at max_tokens is told from one that the model ended."""
    cells = _cells(render_markdown([_evaluation()], {"e-400": [_failure(stop_reason="length")]}))

    assert ["strict", "12+34", "0", "incorrect", "-", "-", "length", "-", "no idea", "-"] in cells


@pytest.mark.parametrize("count", [MAX_FAILURES - 1, MAX_FAILURES, MAX_FAILURES + 1])
def test_failures_are_shown_up_to_the_limit(count: int) -> None:
    """A few failed samples are shown, of the evaluation that they belong to."""
    failures = {"e-400": [_failure(repeat=index) for index in range(count)], "other": [_failure("not this one")]}

    markdown = render_markdown([_evaluation()], failures)
    report = json.loads(render_json([_evaluation()], failures))

    assert sum("no idea" in cells for cells in _cells(markdown)) == min(count, MAX_FAILURES)
    assert "not this one" not in markdown
    assert len(report["evaluations"][0]["failures"]) == min(count, MAX_FAILURES)


@rows(
    ("hostile", "never"),
    [
        ("a|b", "a|b"),
        ("a\n# b\r\nc\u2028d", "\n# b"),
        ("<script>alert(1)</script>", "<"),
        ("&lt;b&gt;", "&lt;"),
        ("`code`", " `"),
        ("![x](javascript:y)", "!["),
        ("see https://evil.example", "https://"),
        ("see www.evil.example", "www."),
        ("@everyone", "@everyone"),
        ("*bold* _it_ ~~gone~~", " _it"),
        ("\u202eevil", "\u202e"),
        ("\x1b[31mred", "\x1b"),
        ("\ud800", "\ud800"),
    ],
)
def test_markdown_from_outside_is_shown_as_it_is(hostile: str, never: str) -> None:
    """Pipes, line ends, HTML, links and controls in a model's output or in labels neither break nor do anything."""
    evaluation = _evaluation(evaluation_id=hostile)
    plain = render_markdown([_evaluation(evaluation_id="x")], {"x": [_failure("x", extracted="x")]})

    report = render_markdown([evaluation], {hostile: [_failure(hostile, extracted=hostile)]})

    assert never not in report
    assert len(report.splitlines()) == len(plain.splitlines())
    assert [len(row) for row in _cells(report)] == [len(row) for row in _cells(plain)]


@given(st.text(max_size=60))
def test_no_text_breaks_a_table(text: str) -> None:
    """Whatever a model says, a row has its cells and a report its lines."""
    report = render_markdown([_evaluation()], {"e-400": [_failure(text)]})

    row = report.rstrip("\n").splitlines()[-1]
    # A pipe divides cells unless a backslash stands before it; every other backslash comes in pairs.
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 11
    report.encode("utf-8")


@pytest.mark.parametrize("size", [MAX_CELL_CHARS - 1, MAX_CELL_CHARS, MAX_CELL_CHARS + 1])
def test_long_texts_are_cut(size: int) -> None:
    """A table stays readable, and what is cut says so."""
    report = render_markdown([_evaluation()], {"e-400": [_failure("y" * size)]})

    assert ("y" * (MAX_CELL_CHARS - 1) + "…" in report) is (size > MAX_CELL_CHARS)
    assert ("y" * MAX_CELL_CHARS in report) is (size == MAX_CELL_CHARS)


def test_json_says_what_was_found() -> None:
    """One object with the evaluations in order; metrics are numbers, undefined keys have reasons."""
    report = json.loads(render_json([_evaluation(), _evaluation(800)], {}))

    first, second = report["evaluations"]
    assert (first["step"], second["step"]) == (400, 800)
    assert first["metrics"] == {"strict/accuracy": 0.75}
    assert first["undefined"] == {"strict/accuracy_stderr": "only one sample was scored"}
    assert first["evaluators"][0]["n_unscored"] == 3
    assert first["evaluators"][0]["n_truncated"] == 4
    assert first["evaluators"][0]["problem"]["reason"] == "TOO_MANY_UNSCORED"
    assert first["evaluators"][0]["options"] == {"grader": "numeric"}
    assert first["sampling"]["max_tokens"] == 4
    assert first["limits"]["concurrency"] == 8
    assert first["labels"] == {"team": "a|b"}


@given(st.text(st.characters(), max_size=60))
def test_json_is_ascii_and_strict(text: str) -> None:
    """Any output is escaped, halves of surrogate pairs are replaced, and what comes back is the text."""
    report = render_json([_evaluation()], {"e-400": [_failure(text)]})

    assert report.isascii()
    said = json.loads(report)["evaluations"][0]["failures"][0]["output"]
    assert said == re.sub("[\ud800-\udfff]", "\ufffd", text)
    said.encode("utf-8")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_json_never_holds_a_bare_nan(value: float) -> None:
    """A number that is not finite is null: no strict reader refuses the report."""
    failure = _failure(score=value)

    report = render_json([_evaluation()], {"e-400": [failure]})

    assert json.loads(report, parse_constant=pytest.fail)["evaluations"][0]["failures"][0]["score"] is None
