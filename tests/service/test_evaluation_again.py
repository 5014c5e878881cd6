"""An evaluation in which too much failed is FAILED, can be read, and is begun again by the same call."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.codec.events import event_to_record
from crucible_bridge.codec.plans import plan_from_record, plan_to_record
from crucible_bridge.events import EventKind
from crucible_bridge.types import (
    Dataset,
    EmbeddedModel,
    EvaluateRequest,
    Evaluation,
    EvaluationState,
    GateMetric,
    GatePolicy,
    GateVerdict,
    Limits,
    Sample,
    Verdict,
)
from crucible_worker.engine.preparation import Sources
from crucible_worker.evaluations import Evaluations
from crucible_worker.history import rules
from crucible_worker.journal.schema import JOURNAL_FILE
from crucible_worker.testing import ScriptedBackend, ScriptedModel
from crucible_worker.util.limits import WorkerLimits
from tests.robustness.harness import until
from tests.service.evaluation_kit import (
    accuracy,
    asked,
    by_evaluator,
    failing,
    kinds_of,
    log_of,
    numbered,
    rig,
    samples_of,
    state_of,
)
from tests.service.plans_kit import plan, planned
from tests.tables import rows

START, EXCEPTION, RESUME = EventKind.EVALUATION_START, EventKind.EVALUATION_EXCEPTION, EventKind.EVALUATION_RESUME
COMPLETE, STOP = EventKind.EVALUATION_COMPLETE, EventKind.EVALUATION_STOP
SAMPLE = EventKind.SAMPLE_COMPLETE
TOO_MANY = (EvaluationState.FAILED, "TOO_MANY_UNSCORED")
DONE = (EvaluationState.COMPLETED, None)


@dataclasses.dataclass
class Broken:
    """A fault of the calls with these prompts, until `mended`."""

    texts: tuple[str, ...]
    retryable: bool = True
    mended: bool = False
    seen: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    """Calls so far, with their texts."""

    def __call__(self, call):
        self.seen.append((call.method, call.text))
        if self.texts and call.method != "sample":
            return None
        return None if self.mended else failing(*self.texts, retryable=self.retryable)(call)


def wanted(**fields: Any) -> EvaluateRequest:
    """An evaluation whose limits are the worker's, but for what is given."""
    return asked(**{"limits": Limits(), **fields})


def broken(count: int, *, retryable: bool = True) -> Broken:
    """Of the first so many of `numbered`."""
    return Broken(tuple(f"q{index}" for index in range(count)), retryable)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed calls are made again without a pause."""
    monkeypatch.setattr("crucible_worker.inference.retries.BACKOFF_SECONDS", 0.0)


@rows(
    ("errors", "limits", "failed"),
    [
        (2, Limits(), False),
        (3, Limits(), True),
        (3, Limits(max_unscored_share=0.1), False),
        (3, Limits(max_unscored=3), False),
        (40, Limits(max_unscored_share=1.0), False),
        (1, Limits(max_unscored=0), True),
    ],
)
async def test_a_share_of_errors_above_5_percent_fails_unless_limits_name_another_bound(errors, limits, failed):
    """Of 40 samples, 2 may end with an error; bounds of the request take the place of this one."""
    async with rig(ScriptedModel(fault=broken(errors, retryable=False))) as r:
        evaluation = await r.evaluation.evaluate(wanted(dataset=numbered(40), limits=limits))

    assert state_of(evaluation) == (TOO_MANY if failed else DONE)
    assert evaluation.results[0].n_errors == errors


async def test_undecided_samples_alone_fail_no_evaluation():
    """Samples that no grader can decide are no fault of a backend, however many."""
    unclear = [Sample(id=f"u{index}", input="a", targets=("",)) for index in range(4)]
    async with rig() as r:
        evaluation = await r.evaluation.evaluate(wanted(evaluators=[accuracy(grader="numeric")], dataset=unclear))

    assert state_of(evaluation) == DONE
    assert evaluation.results[0].n_scored == 0


async def test_what_was_measured_stays_readable():
    """Its samples and the metrics of its evaluators are there; as those of the evaluation it has what is complete."""
    async with rig(ScriptedModel(fault=broken(3))) as r:
        evaluation = await r.evaluation.evaluate(wanted(evaluators=["accuracy", "perplexity"], dataset=numbered(10)))
        found = await samples_of(r.worker.bridge, evaluator="accuracy")

    assert state_of(evaluation) == TOO_MANY
    assert evaluation.problem.message.startswith("accuracy: 3 of 10 samples ended with an error")
    assert evaluation.results[0].metrics.values["accuracy"] == 1.0
    assert "accuracy" not in evaluation.metrics.values
    assert evaluation.metrics.values.keys() == evaluation.results[1].metrics.values.keys()
    assert [sample.verdict for sample in found] == [Verdict.ERROR] * 3 + [Verdict.CORRECT] * 7


async def test_the_same_call_runs_what_failed_again_and_nothing_else():
    """The new attempt makes the failed calls alone, and its result is that of an evaluation without a fault."""
    fault = broken(3)
    async with rig(ScriptedModel(fault=fault)) as r:
        failed = await r.evaluation.evaluate(wanted(dataset=numbered(10)))
        assert state_of(failed) == TOO_MANY
        assert failed.problem.retryable
        fault.mended = True
        fault.seen.clear()
        again = await r.evaluation.evaluate(wanted(dataset=numbered(10)))
        calls = sorted(fault.seen)
        events = await log_of(r.worker.bridge, "e")
        kinds = await kinds_of(r.worker.bridge)
        undisturbed = await r.evaluation.evaluate(wanted(evaluation_id="other", dataset=numbered(10)))

    assert calls == [("sample", "q0"), ("sample", "q1"), ("sample", "q2")]
    assert state_of(again) == DONE
    assert (again.attempt, again.done, again.total, again.problem) == (2, 10, 10, None)
    assert again.metrics == undisturbed.metrics
    assert [kind for kind in kinds if kind in (START, EXCEPTION, RESUME, COMPLETE, STOP)] == [
        *(START, EXCEPTION),
        *(RESUME, COMPLETE, STOP),
    ]
    assert kinds.count(SAMPLE) == 13
    assert [kind for kind in by_evaluator(events)["accuracy"] if kind is not SAMPLE] == [
        *(EventKind.EVALUATOR_START, EventKind.EVALUATOR_EXCEPTION),
        *(EventKind.EVALUATOR_START, EventKind.EVALUATOR_COMPLETE),
    ]


async def test_an_evaluator_that_finished_is_not_run_again():
    """Beside one that failed, its result stands, and none of its calls is made again."""
    fault = broken(3)
    request = wanted(evaluators=["accuracy", "perplexity"], dataset=numbered(10))
    async with rig(ScriptedModel(fault=fault)) as r:
        failed = await r.evaluation.evaluate(request)
        fault.mended = True
        fault.seen.clear()
        again = await r.evaluation.evaluate(request)

    assert {method for method, _ in fault.seen} == {"sample"}
    assert state_of(again) == DONE
    assert again.results[1] == failed.results[1]


async def test_one_that_no_attempt_can_mend_is_returned_unchanged():
    """Final errors beside scores: the same call makes no call of the model."""
    async with rig(ScriptedModel(fault=broken(3, retryable=False))) as r:
        failed = await r.evaluation.evaluate(wanted(dataset=numbered(10)))
        before = r.model.calls
        again = await r.evaluation.evaluate(wanted(dataset=numbered(10)))

    assert not failed.problem.retryable
    assert (again, r.model.calls) == (failed, before)


async def test_without_a_scored_sample_every_one_is_run_again():
    """Errors that are final for their attempt are not for the evaluation: a key was wrong, say."""
    fault = Broken((), retryable=False)
    async with rig(ScriptedModel(fault=fault)) as r:
        failed = await r.evaluation.evaluate(wanted(dataset=numbered(4)))
        fault.mended = True
        again = await r.evaluation.evaluate(wanted(dataset=numbered(4)))

    assert (state_of(failed), failed.problem.retryable) == (TOO_MANY, False)
    assert (state_of(again), again.results[0].n_scored) == (DONE, 4)


async def test_calls_that_wait_get_the_end_of_the_attempt_they_wait_for():
    """Several calls for one evaluation that fails: one attempt, and each of them is answered FAILED."""
    fault = broken(3)
    async with rig(ScriptedModel(fault=fault, latency=0.05)) as r:
        request = wanted(dataset=numbered(10), limits=Limits(concurrency=1))
        await r.evaluation.start_evaluation(request)
        found = await asyncio.gather(*(r.evaluation.evaluate(request) for _ in range(3)))

    assert [(state_of(one), one.attempt) for one in found] == [(TOO_MANY, 1)] * 3


async def test_its_numbers_can_be_compared_and_gated():
    """Over the samples with a score in both; the gate counts those that are lost, and does not pass."""
    policy = GatePolicy(metrics=(GateMetric(key="accuracy", max_drop=0.1),))
    async with rig() as r:
        await r.evaluation.evaluate(wanted(evaluation_id="base", dataset=numbered(40)))
        r.model.fault = broken(10)
        assert state_of(await r.evaluation.evaluate(wanted(evaluation_id="lost", dataset=numbered(40)))) == TOO_MANY
        (pair,) = (await r.evaluation.compare_evaluations(["base", "lost"])).comparisons
        gate = await r.evaluation.gate("base", "lost", policy)

    assert (pair.problem, pair.n_matched) == (None, 30)
    assert gate.verdict is GateVerdict.BLOCK


async def test_its_log_file_is_that_of_the_last_attempt(tmp_path: Path):
    """The folder of logs has one file of it, which is written again."""
    fault = broken(3)

    def status() -> list[str]:
        logs = [zipfile.ZipFile(file) for file in tmp_path.glob("*.eval")]
        return [json.loads(log.read("header.json"))["status"] for log in logs]

    async with rig(ScriptedModel(fault=fault), log_dir=tmp_path) as r:
        await r.evaluation.evaluate(wanted(dataset=numbered(10)))
        await until(lambda: status() == ["error"], 60.0)
        fault.mended = True
        await r.evaluation.evaluate(wanted(dataset=numbered(10)))
        await until(lambda: status() == ["success"], 60.0)


async def test_one_whose_deadline_is_used_up_is_returned_unchanged():
    """Another attempt would be cancelled at once, and lose what is measured."""
    async with rig(ScriptedModel(fault=broken(3))) as r:
        request = wanted(dataset=numbered(10), limits=Limits(deadline_ms=3_600_000))
        failed = await r.evaluation.evaluate(request)
        with sqlite3.connect(r.worker.state_dir / JOURNAL_FILE) as journal:
            journal.execute("UPDATE evaluations SET active_ns = 3600000000000")
        again = await r.evaluation.evaluate(request)

    assert failed.problem.retryable
    assert state_of(again) == TOO_MANY
    assert again.attempt == failed.attempt == 1


async def test_one_of_other_rules_is_returned_unchanged(monkeypatch: pytest.MonkeyPatch):
    """Its numbers stand: no attempt of this release adds to them."""
    async with rig(ScriptedModel(fault=broken(3))) as r:
        failed = await r.evaluation.evaluate(wanted(dataset=numbered(10)))
        monkeypatch.setattr(rules, "RULES_VERSION", rules.RULES_VERSION + 1)
        again = await r.evaluation.evaluate(wanted(dataset=numbered(10)))

    assert failed.problem.retryable
    assert again == failed


async def test_a_followed_step_begins_again_by_a_call_alone(tmp_path: Path):
    """What follows a run looks at its steps again and again: by it alone, an evaluation that failed stays as it is."""
    sources = Sources(
        backends={EmbeddedModel: ScriptedBackend({"m": ScriptedModel(fault=broken(1))})}, data_roots=(), builtins={}
    )
    evaluations = await Evaluations.open(tmp_path, event_to_record, sources=sources, limits=WorkerLimits())
    try:
        plans = evaluations.plans(plan_to_record, plan_from_record)
        part = planned(accuracy(), dataset=Dataset.of(numbered(10)), limits=Limits())
        await plans.register(plan(eval_every=1, evaluations=(part,), infrequent_evaluations=()))

        async def notified(again: bool) -> Evaluation:
            ((evaluation, _),) = await plans.notify("p", 1, EmbeddedModel("m"), last=False, again=again)
            return evaluation

        async def ended() -> bool:
            return (await notified(again=False)).state.terminal

        await until(ended, 60.0)
        assert state_of(await notified(again=False)) == TOO_MANY
        assert (await notified(again=False)).attempt == 1
        assert (await notified(again=True)).attempt == 2
    finally:
        await evaluations.aclose()
