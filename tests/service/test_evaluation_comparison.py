"""Evaluations beside each other: matched by sample, with uncertainty, improvements and regressions."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import BackendError, BridgeError, Code
from crucible_bridge.types import Dataset, EvaluatorSpec, Goal, Limits, RankBy, Sample, SamplingParams
from crucible_worker.analysis import comparison
from crucible_worker.testing import Call, ScriptedModel, run_worker
from tests.service.evaluation_kit import SHOUT, HeldModel, asked, refused, rig
from tests.tables import rows

pytestmark = pytest.mark.core

SAMPLES = tuple(Sample(id=f"s{index}", input=f"question {index}", targets=("YES",)) for index in range(12))


def _answers(wrong: Set[int], broken: Set[int] = frozenset()) -> ScriptedModel:
    def index(prompt: str) -> int:
        return int("".join(filter(str.isdigit, prompt)))

    def fault(call: Call) -> BridgeError | None:
        lost = index(call.text) in broken
        return BackendError("this one is lost", reason="LOST", retryable=False) if lost else None

    return ScriptedModel(answer=lambda prompt: "no" if index(prompt) in wrong else "YES", fault=fault)


@pytest.fixture
async def compared():
    """A worker with three checkpoints: the second gains 4 and loses 1, the third cannot answer one."""
    models = {
        "a": _answers({0, 1, 2, 3, 4}),
        "b": _answers({4, 11}),
        "c": _answers(set(), broken={7}),
        "untrained": ScriptedModel(trained=False),
    }
    async with run_worker(models=models) as worker:
        evaluation = worker.bridge.evaluation
        for step, name in enumerate("abc"):
            await evaluation.evaluate(
                evaluation_id=name,
                run_id="run",
                step=10 * step,
                model=f"embedded:{name}",
                evaluators=["accuracy"],
                dataset=Dataset.of(SAMPLES),
                sampling=SamplingParams(max_tokens=8),
                labels={"adapter": name},
                limits=Limits(max_unscored=1),
            )
        await evaluation.evaluate(
            evaluation_id="elsewhere",
            run_id="other",
            model="embedded:a",
            evaluators=["accuracy"],
            dataset=Dataset.of(SAMPLES[:3]),
            sampling=SamplingParams(max_tokens=8),
        )
        yield evaluation


async def test_differences_are_matched_by_sample(compared):
    """What one gains and loses against the baseline is told by sample, with the exact test and an interval."""
    found = await compared.compare_evaluations(["a", "b"])

    (pair,) = found.comparisons
    assert (pair.baseline_id, pair.evaluation_id, pair.evaluator) == ("a", "b", "accuracy")
    assert (pair.n_matched, pair.n_improved, pair.n_regressed) == (12, 4, 1)
    assert [change.sample_id for change in pair.improvements] == ["s0", "s1", "s2", "s3"]
    assert [(change.sample_id, change.baseline_score, change.score) for change in pair.regressions] == [
        ("s11", 1.0, 0.0)
    ]
    assert pair.metrics.values["difference"] == pytest.approx(3 / 12)
    assert pair.metrics.values["mcnemar_p"] == pytest.approx(2 * (1 + 5) / 32)
    assert pair.metrics.values["difference_ci_low"] < 0.25 < pair.metrics.values["difference_ci_high"]


async def test_what_has_no_score_is_left_out_and_counted(compared):
    """A sample without a score in one of the two does not count as wrong there."""
    (pair,) = (await compared.compare_evaluations(["a", "c"])).comparisons

    assert (pair.n_matched, pair.n_baseline_only, pair.n_evaluation_only) == (11, 1, 0)
    assert pair.metrics.values["mean"] == 1.0


async def test_a_run_is_a_series_with_its_best(compared):
    """A run's completed evaluations come by step; the best of a metric bears model and labels."""
    found = await compared.compare_evaluations(
        run_id="run", rank_by=RankBy(metric="accuracy_strict", goal=Goal.HIGHER), evaluator="accuracy"
    )

    assert [evaluation.evaluation_id for evaluation in found.evaluations] == ["a", "b", "c"]
    series = {one.key: [(point.step, point.value) for point in one.points] for one in found.series}
    assert series["accuracy"] == [(0, pytest.approx(7 / 12)), (10, pytest.approx(10 / 12)), (20, 1.0)]
    assert found.best_evaluation_id == "c"
    best = found.evaluations[2]
    assert best.request.labels == {"adapter": "c"}
    assert [pair.evaluation_id for pair in found.comparisons] == ["b", "c"]


async def test_less_is_better_where_the_goal_says_so(compared):
    """The best of a metric that is to be low is the lowest; one that nobody defines has no best."""
    lowest = await compared.compare_evaluations(
        ["a", "b"], rank_by=RankBy(metric="accuracy", goal=Goal.LOWER), baseline_id="b", max_listed=1
    )
    nobodys = await compared.compare_evaluations(["a", "b"], rank_by=RankBy(metric="nll", goal=Goal.LOWER))

    assert lowest.best_evaluation_id == "a"
    assert lowest.comparisons[0].baseline_id == "b"
    assert (lowest.comparisons[0].n_regressed, len(lowest.comparisons[0].regressions)) == (4, 1)
    assert nobodys.best_evaluation_id == ""


async def test_each_evaluator_has_its_first_evaluation_for_a_baseline(compared):
    """Where some of a run were evaluated by one evaluator and some by another, as a plan does it, all are compared."""
    for step in (1, 11):
        await compared.evaluate(
            run_id="run", step=step, model="embedded:a", evaluators=["nll"], dataset=Dataset.of(SAMPLES)
        )
    found = await compared.compare_evaluations(run_id="run")
    losses = await compared.compare_evaluations(run_id="run", evaluator="nll")

    nlls = [evaluation.evaluation_id for evaluation in found.evaluations if evaluation.request.step in (1, 11)]
    pairs = [(pair.evaluator, pair.baseline_id, pair.evaluation_id) for pair in found.comparisons]
    assert pairs == [("accuracy", "a", "b"), ("accuracy", "a", "c"), ("nll", *nlls)]
    assert losses.comparisons == found.comparisons[2:]


async def test_losses_improve_by_falling():
    """An evaluator whose scores are losses counts a lower score as an improvement."""
    models = {
        "high": ScriptedModel(logprob=lambda position, token: -2.0),
        "low": ScriptedModel(logprob=lambda position, token: -1.0),
    }
    async with run_worker(models=models) as worker:
        for name in ("high", "low"):
            await worker.bridge.evaluation.evaluate(
                evaluation_id=name, model=f"embedded:{name}", evaluators=["nll"], dataset=Dataset.of(SAMPLES[:4])
            )
        (pair,) = (await worker.bridge.evaluation.compare_evaluations(["high", "low"])).comparisons

    assert (pair.n_improved, pair.n_regressed) == (4, 0)
    assert pair.metrics.values["difference"] == pytest.approx(-1.0)


async def test_other_options_are_another_evaluator():
    """Evaluators of one name whose options differ are not compared: a problem says so."""
    async with run_worker(models={"m": _answers(set())}) as worker:
        for name, grader in (("x", "exact_match"), ("y", "contains")):
            await worker.bridge.evaluation.evaluate(
                evaluation_id=name,
                model="embedded:m",
                evaluators=[EvaluatorSpec(kind="accuracy", options={"grader": grader})],
                dataset=Dataset.of(SAMPLES[:2]),
                sampling=SamplingParams(max_tokens=8),
            )
        (pair,) = (await worker.bridge.evaluation.compare_evaluations(["x", "y"])).comparisons

    assert pair.problem is not None
    assert pair.problem.reason == "EVALUATORS_DIFFER"
    assert not pair.metrics.values


@pytest.mark.parametrize(
    "spec",
    [
        EvaluatorSpec(kind="comparison", options={"judge": "embedded:j"}),
        EvaluatorSpec(kind="accuracy", options={"grader": "rubric", "grader_options": {"judge": "embedded:j"}}),
    ],
    ids=lambda spec: spec.kind,
)
async def test_another_judge_is_another_measure(spec: EvaluatorSpec, tmp_path: Path):
    """What bears its name may have other weights by then: scores of both are not set beside each other."""
    said = '{"correct": {"reason": "r", "score": 1}}' if spec.kind == "accuracy" else "A"
    for name, weights in (("x", "old"), ("y", "old"), ("z", "new")):
        models = {"m": _answers(set()), "j": ScriptedModel(answer=lambda prompt: said, fingerprint=weights)}
        async with run_worker(models=models, state_dir=tmp_path) as worker:
            await worker.bridge.evaluation.evaluate(
                evaluation_id=name,
                model="embedded:m",
                evaluators=[spec, "nll"],
                dataset=Dataset.of(SAMPLES[:2]),
                sampling=SamplingParams(max_tokens=8),
            )
    async with run_worker(models={}, state_dir=tmp_path) as worker:
        found = await worker.bridge.evaluation.compare_evaluations(["x", "y", "z"], evaluator=spec.label)

    problems = [pair.problem and pair.problem.message for pair in found.comparisons]
    assert problems == [None, "its judge has other weights in 'z' than in the baseline"]


async def test_a_default_is_the_same_whether_it_is_spelt_out_or_not():
    """Options that come to the same are compared."""
    async with run_worker(models={"m": _answers(set())}) as worker:
        for name, options in (("x", {}), ("y", {"thinking": "remove", "grader_options": {"strip": True}})):
            await worker.bridge.evaluation.evaluate(
                evaluation_id=name,
                model="embedded:m",
                evaluators=[EvaluatorSpec(kind="accuracy", options=options)],
                dataset=Dataset.of(SAMPLES[:2]),
                sampling=SamplingParams(max_tokens=8),
            )
        (pair,) = (await worker.bridge.evaluation.compare_evaluations(["x", "y"])).comparisons

    assert (pair.problem, pair.n_matched) == (None, 2)


async def test_an_evaluator_that_failed_has_no_numbers(compared):
    """A problem says in which evaluation, and the metrics are empty."""
    for name in ("c", "untrained"):
        await compared.evaluate(
            evaluation_id=f"of {name}",
            model=f"embedded:{name}",
            evaluators=["accuracy", EvaluatorSpec(kind="nll", options={"client": "training"})],
            dataset=Dataset.of(SAMPLES),
            sampling=SamplingParams(max_tokens=8),
            limits=Limits(max_unscored=1),
        )
    pairs = (await compared.compare_evaluations(["of c", "of untrained"], evaluator="nll")).comparisons

    assert len(pairs) == 1
    assert pairs[0].problem is not None
    assert pairs[0].problem.reason == "EVALUATOR_FAILED"
    assert pairs[0].problem.message.startswith("it failed in 'of untrained': MISSING_CLIENT: ")
    assert (pairs[0].n_matched, pairs[0].metrics.values) == (0, {})


async def test_what_has_not_ended_is_not_compared():
    """An evaluation at work is FAILED_PRECONDITION until it has ended."""
    async with rig(HeldModel()) as r:
        for name in "ab":
            await r.evaluation.start_evaluation(asked(evaluation_id=name))
        await refused(r.evaluation.compare_evaluations(["a", "b"]), Code.FAILED_PRECONDITION, "NOT_ENDED")

        r.model.let_go.set()
        for name in "ab":
            await r.ended(name)
        assert len((await r.evaluation.compare_evaluations(["a", "b"])).comparisons) == 1


async def test_one_comparison_is_read_at_a_time(compared, monkeypatch):
    """However many are asked for at once, they take one of the journal's readers; the others are for other calls."""
    at_once: list[int] = []
    reading = 0
    plain = comparison.compare_in

    def counted(*arguments: Any) -> Any:
        nonlocal reading
        reading += 1
        at_once.append(reading)
        try:
            return plain(*arguments)
        finally:
            reading -= 1

    monkeypatch.setattr(comparison, "compare_in", counted)
    found = await asyncio.gather(*(compared.compare_evaluations(["a", "b", "c"]) for _ in range(20)))

    assert at_once == [1] * 20
    assert all(each == found[0] for each in found)


async def test_more_results_than_the_limit_are_refused():
    """Results of all evaluations together count; as many as the limit are taken."""
    for limit, taken in ((4, True), (3, False)):
        async with rig(max_compared_samples=limit) as r:
            for name in "ab":
                await r.evaluation.evaluate(asked(evaluation_id=name))
            call = r.evaluation.compare_evaluations(["a", "b"])
            if taken:
                assert (await call).comparisons[0].n_matched == len(SHOUT)
            else:
                await refused(call, Code.RESOURCE_EXHAUSTED, "TOO_MANY_SAMPLES")


@rows(
    ("arguments", "code", "said"),
    [
        ({}, Code.INVALID_ARGUMENT, "evaluation_ids"),
        ({"evaluation_ids": ["a"], "run_id": "run"}, Code.INVALID_ARGUMENT, "evaluation_ids"),
        ({"evaluation_ids": ["a", "a"]}, Code.INVALID_ARGUMENT, "evaluation_ids[1]"),
        ({"evaluation_ids": ["a", ""]}, Code.INVALID_ARGUMENT, "evaluation_ids[1]"),
        ({"evaluation_ids": [str(n) for n in range(101)]}, Code.INVALID_ARGUMENT, "evaluation_ids"),
        ({"evaluation_ids": ["a", "nobody"]}, Code.NOT_FOUND, "evaluation_ids[1]"),
        ({"evaluation_ids": ["a", "elsewhere"]}, Code.FAILED_PRECONDITION, "2 data sets"),
        ({"run_id": "nobody"}, Code.NOT_FOUND, "run_id"),
        ({"run_id": "run", "dataset_fingerprint": "0"}, Code.NOT_FOUND, "data set"),
        ({"evaluation_ids": ["a"], "dataset_fingerprint": "0"}, Code.INVALID_ARGUMENT, "dataset_fingerprint"),
        ({"evaluation_ids": ["a", "b"], "baseline_id": "c"}, Code.INVALID_ARGUMENT, "baseline_id"),
        ({"evaluation_ids": ["a", "b"], "evaluator": "nll"}, Code.INVALID_ARGUMENT, "evaluator"),
        ({"evaluation_ids": ["a", "b"], "confidence": 0.4}, Code.INVALID_ARGUMENT, "confidence"),
        ({"evaluation_ids": ["a", "b"], "confidence": float("nan")}, Code.INVALID_ARGUMENT, "confidence"),
        ({"evaluation_ids": ["a", "b"], "max_listed": -1}, Code.INVALID_ARGUMENT, "max_listed"),
        ({"evaluation_ids": ["a", "b"], "max_listed": 1_001}, Code.INVALID_ARGUMENT, "max_listed"),
        (
            {"evaluation_ids": ["a"], "rank_by": RankBy(metric="", goal=Goal.LOWER)},
            Code.INVALID_ARGUMENT,
            "rank_by.metric",
        ),
    ],
)
async def test_bad_requests_name_the_field(compared, arguments, code, said):
    """What cannot be compared is refused with the field, or with what differs."""
    with pytest.raises(BridgeError) as refused:
        await compared.compare_evaluations(**arguments)
    assert refused.value.code is code
    assert said in str(refused.value)
