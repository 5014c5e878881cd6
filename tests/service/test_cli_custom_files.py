"""Evaluators and graders of a user's own file, run by the command line; and a worker that no call makes read one."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import EvaluatorSpec, Sample, SamplingParams
from crucible_worker.cli import app
from crucible_worker.testing import ScriptedModel, run_worker
from tests.distributions import EVALUATOR_PACKAGE

BREVITY = f"{EVALUATOR_PACKAGE / 'brevity.py'}:Brevity"
NEAR = f"{EVALUATOR_PACKAGE.with_name('own_files') / 'near.py'}:near"
EVALUATE = ("evaluate", "--model", "embedded:arithmetic@600", "--data", "builtin:arithmetic", "--samples", "4")


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_evaluate_runs_an_evaluator_and_a_grader_of_files() -> None:
    """Both in one evaluation; options stand under the kind of the class, and those of the grader."""
    result = _run(
        *EVALUATE,
        *("--evaluator", f"short={BREVITY}", "--option", "short.max_words=1", "--evaluator", "accuracy"),
        *("--grader", NEAR, "--option", "accuracy.grader_options.within=1000", "--max-tokens", "4", "--json"),
    )

    assert result.exit_code == 0, result.output
    metrics = json.loads(result.stdout)["metrics"]
    assert (metrics["short/brevity"], metrics["accuracy"]) == (1.0, 1.0)


def test_models_are_compared_by_an_own_evaluator() -> None:
    """Its scores have the goal that the class declares."""
    result = _run(
        *EVALUATE, "--model", "embedded:arithmetic@180", "--evaluator", BREVITY, "--max-tokens", "4", "--json"
    )

    assert result.exit_code == 0, result.output
    (compared,) = json.loads(result.stdout)["comparisons"]
    assert compared["evaluator"] == "brevity"
    assert compared["problem"] is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--evaluator", "nowhere.py:It"), "--evaluator 'nowhere.py:It': there is no file 'nowhere.py'"),
        (("--evaluator", "accuracy", "--grader", "nowhere.py:it"), "--grader 'nowhere.py:it': there is no file"),
        (("--evaluator", BREVITY, "--option", "brevity.max_words=0"), "--option brevity.max_words is 0, at least 1"),
        (("--evaluator", "nll", "--grader", "math"), "--grader is of no use here"),
    ],
)
def test_what_is_wrong_is_said_at_its_flag(arguments: tuple[str, ...], says: str) -> None:
    """Before anything ran, with exit status 2."""
    result = _run(*EVALUATE, *arguments)

    assert result.exit_code == 2
    assert says in result.stderr


def test_grade_judges_by_a_function_of_a_file(tmp_path: Path) -> None:
    """With its options as rules; a grader by name likewise."""
    pairs, graded = tmp_path / "pairs.jsonl", tmp_path / "graded.jsonl"
    pairs.write_text('{"gold": "5", "pred": "6"}\n{"gold": ["9", "Five"], "response": "so five 5"}\n')
    files = ("--input", str(pairs), "--output", str(graded))

    verdicts = []
    for rest in (("--grader", NEAR), ("--grader", NEAR, "--policy", "within=0"), ("--grader", "contains")):
        result = _run("grade", *files, *rest)
        assert result.exit_code == 0, result.output
        verdicts.append([json.loads(line)["verdict"] for line in graded.read_text().splitlines()])

    assert verdicts == [["correct", "error"], ["incorrect", "error"], ["incorrect", "incorrect"]]
    assert _run("grade", *files, "--grader", "contains", "--policy", "fold_case=true").exit_code == 0
    assert [json.loads(line)["verdict"] for line in graded.read_text().splitlines()] == ["incorrect", "correct"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--grader", "nope"), "--grader is 'nope', known are: exact_match"),
        (("--grader", NEAR, "--policy", "within=-1"), "--policy within is -1, at least 0 is needed"),
        (("--grader", NEAR, "--policy", "wihtin=1"), "--policy wihtin is unknown; did you mean within?"),
        (("--grader", "f1", "--code"), "--grader is for answers; --code grades programs without it"),
        (("--grader", "math", "--code"), "--grader is for answers, and --code grades programs"),
        (("--grader", "f1", "--processes", "2"), "--processes are for mathematics and programs"),
        (("--grader", "rubric", "--policy", "judge=local:x"), "--grader 'rubric' queries a model"),
    ],
)
def test_grade_says_what_is_wrong_at_its_flag(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    """Before anything is graded."""
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"gold": "5", "pred": "6"}\n')

    result = _run("grade", "--input", str(pairs), "--output", str(tmp_path / "graded.jsonl"), *arguments)

    assert result.exit_code == 2
    assert says in result.stderr
    assert not (tmp_path / "graded.jsonl").exists()


async def test_no_call_makes_a_worker_read_a_file(tmp_path: Path) -> None:
    """A path is a kind or a grader that is unknown, and what is in the file does not run."""
    marker = tmp_path / "it-ran"
    (tmp_path / "mine.py").write_text(f"open({str(marker)!r}, 'w').close()\ndef it(response, targets): return True\n")
    path = f"{tmp_path / 'mine.py'}:it"
    specs = [EvaluatorSpec(kind=path), EvaluatorSpec(kind="accuracy", options={"grader": path})]
    reasons: list[str] = []

    async with run_worker({"m": ScriptedModel(answer=lambda prompt: "1")}) as worker:
        for spec in specs:
            with pytest.raises(InvalidField) as caught:
                await worker.bridge.evaluation.evaluate(
                    model="embedded:m",
                    evaluators=[spec],
                    dataset=[Sample(input="a", targets=("1",))],
                    sampling=SamplingParams(max_tokens=1),
                )
            reasons.append(caught.value.reason)

    assert reasons == ["UNKNOWN_EVALUATOR", "UNKNOWN_GRADER"]
    assert not marker.exists()
