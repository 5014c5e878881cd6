"""Evaluators as spans: each begins before its first sample, and ends by itself, once over all attempts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from crucible_bridge.errors import BackendError
from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import EvaluationState, EvaluatorSpec, Limits, SamplingParams, Verdict
from crucible_bridge.v1 import events_pb2
from crucible_worker.engine import evaluator_progress
from crucible_worker.journal import JournalUnavailable
from crucible_worker.testing import STALL, ScriptedModel
from tests.service.evaluation_kit import (
    HeldModel,
    Rig,
    accuracy,
    asked,
    by_evaluator,
    failing,
    log_of,
    nll,
    numbered,
    rig,
    verdicts_of,
)
from tests.tables import rows

BEGIN, SAMPLE = EventKind.EVALUATOR_START, EventKind.SAMPLE_COMPLETE
END, FAILED = EventKind.EVALUATOR_COMPLETE, EventKind.EVALUATOR_EXCEPTION
ONE_BY_ONE = Limits(concurrency=1)
FIRST_KINDS = frozenset(range(1, 13))
"""Numbers of the kinds in the catalogue of the first clients, which end their streams at any other."""


def judged(name: str) -> EvaluatorSpec:
    """An evaluator that asks another model about each answer."""
    options = {"judge": "embedded:m", "criteria": [{"name": "good", "description": "it is good"}]}
    return EvaluatorSpec(kind="rubric", name=name, options=options)


async def end_of(r: Rig, label: str) -> Event:
    """Wait for the end of an evaluator."""
    return await r.recorder.wait_for(lambda event: event.evaluator == label and event.kind in (END, FAILED))


async def labels_of(r: Rig) -> list[str]:
    """The evaluators whose samples were done one after another, each as often as it took over."""
    done = [event.evaluator for event in await log_of(r.worker.bridge, kinds=[SAMPLE])]
    return [label for label, _ in itertools.groupby(done)]


@pytest.mark.parametrize("evaluators", [(accuracy(), nll()), (nll(), accuracy())], ids=["long first", "short first"])
async def test_a_short_evaluator_does_not_wait_for_a_long_one(evaluators: Sequence[EvaluatorSpec]):
    """Its end comes while the other one has not one answer yet, whichever is named first."""
    async with rig(HeldModel()) as r:
        await r.evaluation.start_evaluation(asked(evaluators=evaluators, dataset=numbered(40), limits=ONE_BY_ONE))
        end = await end_of(r, "nll")
        before = [event for event in r.recorder.events if event.evaluator == "accuracy"]
        assert {event.kind for event in before} <= {BEGIN}
        r.model.let_go.set()
        evaluation = await r.ended("e")

    assert end.kind is END
    assert end.measurements["n"] == 40
    assert end.measurements["nll"] == evaluation.metrics.values["nll"]
    assert [result.evaluator.label for result in evaluation.results] == [spec.label for spec in evaluators]


@rows(
    ("evaluators", "order"),
    [
        ([accuracy("b"), accuracy("a")], ["b", "a"]),
        ([accuracy("thrice", samples_per_prompt=3), accuracy("once")], ["once", "thrice"]),
        ([judged("judged"), accuracy("graded")], ["graded", "judged"]),
        ([accuracy("answered", samples_per_prompt=1), nll("measured")], ["measured", "answered"]),
    ],
)
async def test_evaluators_are_worked_on_one_after_another(evaluators: list[EvaluatorSpec], order: list[str]):
    """Those whose samples take the fewest steps first, in the order given where they take as many."""
    async with rig() as r:
        await r.evaluation.evaluate(asked(evaluators=evaluators, dataset=numbered(3), limits=ONE_BY_ONE))
        assert await labels_of(r) == order


async def test_the_order_changes_no_result():
    """Evaluators that run together find, to the last bit, what each finds alone."""
    request: dict[str, Any] = {
        "dataset": numbered(30),
        "sampling": SamplingParams(max_tokens=8, temperature=1.0, seed=3),
    }
    specs = [accuracy("thrice", samples_per_prompt=3), nll(), accuracy("once")]
    async with rig() as r:
        together = await r.evaluation.evaluate(asked(evaluators=specs, **request))
        alone = [
            await r.evaluation.evaluate(asked(evaluation_id=spec.label, evaluators=[spec], **request)) for spec in specs
        ]

    assert together.metrics.values == {key: one.metrics.values[key] for one in alone for key in one.metrics.values}
    assert [result.metrics for result in together.results] == [one.results[0].metrics for one in alone]


async def test_an_end_has_the_duration_of_its_evaluator():
    """From its own start to its own end: at least what its samples took one after another, at most the whole."""
    seconds, count = 0.01, 10
    async with rig(ScriptedModel(latency=seconds)) as r:
        evaluation = await r.evaluation.evaluate(
            asked(evaluators=[nll(), accuracy()], dataset=numbered(count), limits=ONE_BY_ONE)
        )
        ends = [await end_of(r, label) for label in ("nll", "accuracy")]

    assert all(end.duration_ns >= 0.9 * count * seconds * 1e9 for end in ends)
    assert all(end.duration_ns <= evaluation.duration_ns for end in ends)


@pytest.mark.parametrize("fault", ["no client", "too many unscored"])
async def test_a_failed_evaluator_ends_at_once_while_the_others_go_on(fault: str):
    """EVALUATOR_EXCEPTION does not wait for the evaluation's end."""
    broken = nll(client="training") if fault == "no client" else nll()
    model = HeldModel(trained=fault != "no client")
    model.fault = lambda call: BackendError("down", reason="DOWN") if call.method != "sample" else None
    async with rig(model) as r:
        await r.evaluation.start_evaluation(asked(evaluators=[accuracy(), broken], limits=Limits(max_unscored=0)))
        end = await end_of(r, "nll")
        assert r.recorder.of(END) == []
        r.model.let_go.set()
        evaluation = await r.ended("e")
        kinds = by_evaluator(await log_of(r.worker.bridge))

    assert end.problem is not None
    assert end.problem.reason == ("MISSING_CLIENT" if fault == "no client" else "TOO_MANY_UNSCORED")
    assert end.duration_ns > 0
    ended = EvaluationState.COMPLETED if fault == "no client" else EvaluationState.FAILED
    assert (evaluation.state, evaluation.results[1].problem) == (ended, end.problem)
    assert kinds["accuracy"] == [BEGIN, SAMPLE, SAMPLE, END]
    assert kinds["nll"] == [BEGIN, *([] if fault == "no client" else [SAMPLE, SAMPLE]), FAILED]


async def test_what_has_ended_stands_for_the_next_attempt(tmp_path: Path):
    """Its events are not told again, its errors not run again, and its result is the one that was told."""
    request = asked(evaluators=[accuracy(), nll()], dataset=numbered(4))

    def fault(call: Any) -> Any:
        if call.method == "sample":
            return STALL
        return (
            BackendError("down", reason="DOWN", retryable=True, retry_after=0.0) if call.text.startswith("q0") else None
        )

    async with rig(ScriptedModel(fault=fault), state_dir=tmp_path) as r:
        await r.evaluation.start_evaluation(request)
        told = await end_of(r, "nll")
    async with rig(rest := ScriptedModel(), state_dir=tmp_path) as r:
        evaluation = await r.evaluation.evaluate(request)
        resumed = await r.told(EventKind.EVALUATION_RESUME)
        events = await log_of(r.worker.bridge)
        verdicts = await verdicts_of(r.worker.bridge)

    assert told.measurements["n_errors"] == 1
    assert by_evaluator(events)["nll"] == [BEGIN, *[SAMPLE] * 4, END]
    assert by_evaluator(events)["accuracy"] == [BEGIN, *[SAMPLE] * 4, END]
    assert (resumed.measurements, rest.calls) == ({"total": 8.0, "done": 4.0}, 4)
    assert (evaluation.done, evaluation.total, verdicts.count(Verdict.ERROR)) == (8, 8, 1)
    assert evaluation.results[1].n_errors == 1
    assert evaluation.results[1].unscored_by_reason == {"DOWN": 1}
    assert [result.n_correct for result in evaluation.results] == [4, None]
    assert evaluation.metrics.values["nll"] == told.measurements["nll"]


async def test_a_duration_counts_all_attempts(tmp_path: Path):
    """An evaluator that was interrupted took what it took before, too; the time without an owner costs it nothing."""
    request = asked(dataset=numbered(4), limits=ONE_BY_ONE)
    held = ScriptedModel(latency=0.05, fault=lambda call: STALL if call.text == "q2" else None)
    async with rig(held, state_dir=tmp_path) as r:
        await r.evaluation.start_evaluation(request)
        await r.recorder.wait_for(lambda event: event.metadata.get("sample_id") == "s1")
    async with rig(state_dir=tmp_path) as r:
        evaluation = await r.evaluation.evaluate(request)
        (end,) = [event for event in await log_of(r.worker.bridge) if event.kind is END]

    assert evaluation.attempt == 2
    assert 0.9 * 2 * 0.05 * 1e9 <= end.duration_ns <= evaluation.duration_ns


async def test_an_evaluator_whose_samples_are_done_ends_in_the_next_attempt(monkeypatch: pytest.MonkeyPatch):
    """Its worker was lost between its last sample and its end: nothing is run again, and the end is one event."""
    troubles = [JournalUnavailable("the disk is full")]

    def troubled(*arguments: Any) -> None:
        if troubles:
            raise troubles.pop()
        end(*arguments)

    end = evaluator_progress.end
    monkeypatch.setattr(evaluator_progress, "end", troubled)
    async with rig() as r:
        await r.evaluation.start_evaluation(asked())
        await r.told(EventKind.EVALUATION_INTERRUPT)
        calls = r.model.calls
        evaluation = await r.evaluation.evaluate(asked())
        kinds = by_evaluator(await log_of(r.worker.bridge))

    assert (evaluation.state, evaluation.attempt, r.model.calls) == (EvaluationState.COMPLETED, 2, calls)
    assert kinds["accuracy"] == [BEGIN, SAMPLE, SAMPLE, END]


@pytest.mark.parametrize(
    ("method", "request_bytes"),
    [
        # What the first clients send for subscribe(until_now=True) and watch_evaluation("e").
        ("/crucible_bridge.v1.TelemetryService/Subscribe", bytes.fromhex("2001")),
        ("/crucible_bridge.v1.EvaluationService/WatchEvaluation", bytes.fromhex("0a0165")),
    ],
)
async def test_the_first_clients_get_no_kind_that_they_do_not_know(method: str, request_bytes: bytes):
    """Kinds that joined later are left out of what they did not ask for, and the position passes them."""
    async with rig(ScriptedModel(fault=failing("q0", "q0Q0"))) as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=[accuracy(), nll()], dataset=numbered(2)))
        log = await log_of(r.worker.bridge)
        async with grpc.aio.insecure_channel(r.worker.address) as channel:
            call = channel.unary_stream(method, None, None)(request_bytes)
            batches = [events_pb2.EventBatch.FromString(reply) async for reply in call]

    told = [event for batch in batches for event in batch.events]
    assert {event.kind for event in told} <= FIRST_KINDS
    assert [event.sequence for event in told] == [event.sequence for event in log if event.kind is not BEGIN]
    assert len(log) == len(told) + 2
    assert batches[-1].through_sequence == evaluation.last_sequence
