"""How many evaluations run at once, wait, and are refused; and what ends those that wait."""

import asyncio

from crucible_bridge.errors import Code
from crucible_bridge.events import EventKind
from crucible_bridge.types import EvaluationState, Limits
from crucible_worker.engine import admission
from crucible_worker.engine.admission import QUEUE_RETRY_SECONDS
from tests.service.evaluation_kit import HeldModel, asked, held_loading, kinds_of, log_of, refused, rig, state_of

QUEUED, RUNNING = EvaluationState.QUEUED, EvaluationState.RUNNING


async def test_evaluations_beyond_those_that_run_wait_and_run_later():
    """max_running_evaluations run; the next is QUEUED, told by its START, and runs when one has ended."""
    async with rig(HeldModel(), max_running_evaluations=1) as r:
        await r.evaluation.start_evaluation(asked(evaluation_id="first"))
        await r.model.asked.wait()
        second = await r.evaluation.start_evaluation(asked(evaluation_id="second"))

        info = await r.worker.bridge.worker.get_info()
        assert (second.evaluation.state, second.existed) == (QUEUED, False)
        assert (await r.evaluation.get_evaluation("first")).state is RUNNING
        assert (await r.evaluation.get_evaluation("second")).state is QUEUED
        assert (info.running, info.queued) == (1, 1)
        assert await kinds_of(r.worker.bridge, "second") == [EventKind.EVALUATION_START]
        assert r.model.counts["sample"] == 2

        r.model.let_go.set()
        assert (await r.ended("second")).state is EvaluationState.COMPLETED
        assert (await r.ended("first")).state is EvaluationState.COMPLETED


async def test_full_queue_refuses():
    """max_queued_evaluations wait; the next is RESOURCE_EXHAUSTED, with when to come again, and leaves no trace."""
    async with rig(HeldModel(), max_running_evaluations=1, max_queued_evaluations=1) as r:
        for name in ("runs", "waits"):
            await r.evaluation.start_evaluation(asked(evaluation_id=name))

        error = await refused(
            r.evaluation.start_evaluation(asked(evaluation_id="third")), Code.RESOURCE_EXHAUSTED, "QUEUE_FULL"
        )
        least, most = QUEUE_RETRY_SECONDS
        assert error.retryable
        assert least <= (error.retry_after or 0.0) <= most
        await refused(r.evaluation.get_evaluation("third"), Code.NOT_FOUND, "UNKNOWN_EVALUATION", field="evaluation_id")
        assert len(await log_of(r.worker.bridge, kinds=[EventKind.EVALUATION_START])) == 2
        # Those that are there already are answered all the same.
        assert (await r.evaluation.start_evaluation(asked(evaluation_id="waits"))).existed

        await r.evaluation.cancel_evaluation("waits")
        assert not (await r.evaluation.start_evaluation(asked(evaluation_id="third"))).existed


async def test_a_full_queue_refuses_before_it_reads_the_request():
    """What a request asks for costs nothing while there is no room, so its mistakes are not found either."""
    async with rig(HeldModel(), max_running_evaluations=1, max_queued_evaluations=1) as r:
        wrong = asked(evaluation_id="third", evaluators=["none_such"])
        await refused(
            r.evaluation.start_evaluation(wrong), Code.INVALID_ARGUMENT, "UNKNOWN_EVALUATOR", "evaluators[0].kind"
        )
        for name in ("runs", "waits"):
            await r.evaluation.start_evaluation(asked(evaluation_id=name))

        await refused(r.evaluation.start_evaluation(wrong), Code.RESOURCE_EXHAUSTED, "QUEUE_FULL")


async def test_queue_is_bounded_for_requests_of_one_moment():
    """The bound holds where many come at once: what is being checked counts as well."""
    async with rig(HeldModel(), max_running_evaluations=1, max_queued_evaluations=2) as r:
        calls = [r.evaluation.start_evaluation(asked(evaluation_id=f"e{index}")) for index in range(12)]
        answers = await asyncio.gather(*calls, return_exceptions=True)

        accepted = [answer for answer in answers if not isinstance(answer, Exception)]
        reasons = {getattr(answer, "reason", None) for answer in answers if isinstance(answer, Exception)}
        assert len(accepted) == 3
        assert reasons == {"QUEUE_FULL"}
        assert len(await log_of(r.worker.bridge, kinds=[EventKind.EVALUATION_START])) == 3


async def test_queued_evaluation_can_be_cancelled():
    """A cancel ends one that waits at once, without a model call; the others are untouched."""
    async with rig(HeldModel(), max_running_evaluations=1) as r:
        await r.evaluation.start_evaluation(asked(evaluation_id="runs"))
        await r.model.asked.wait()
        await r.evaluation.start_evaluation(asked(evaluation_id="waits"))

        cancelled = await r.evaluation.cancel_evaluation("waits")

        assert state_of(cancelled) == (EvaluationState.CANCELLED, "CANCELLED")
        assert await kinds_of(r.worker.bridge, "waits") == [EventKind.EVALUATION_START, EventKind.EVALUATION_STOP]
        assert (await r.evaluation.get_evaluation("runs")).state is RUNNING
        assert r.model.counts["sample"] == 2


async def test_deadline_ends_one_that_waits():
    """deadline_ms counts from receipt: an evaluation that never had its turn is cancelled by it."""
    async with rig(HeldModel(), max_running_evaluations=1) as r:
        await r.evaluation.start_evaluation(asked(evaluation_id="runs"))
        await r.model.asked.wait()

        waited = await r.evaluation.evaluate(asked(evaluation_id="waits", limits=Limits(deadline_ms=50)))

        assert state_of(waited) == (EvaluationState.CANCELLED, "DEADLINE_EXCEEDED")
        assert waited.done == 0


async def test_a_deadline_does_not_wait_for_what_others_prepare(monkeypatch):
    """deadline_ms ends a call that waits until another one has found its data set and model; nothing of it is left."""
    monkeypatch.setattr(admission, "CLAIM_SECONDS", 600.0)
    with held_loading(monkeypatch) as (begun, let_go):
        async with rig() as r:
            first = asyncio.create_task(r.evaluation.evaluate(asked(evaluation_id="first")))
            await asyncio.to_thread(begun.wait)

            second = r.evaluation.evaluate(asked(evaluation_id="second", limits=Limits(deadline_ms=50)))
            await refused(second, Code.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", field="limits.deadline_ms")
            let_go.set()
            assert (await first).state is EvaluationState.COMPLETED
            await refused(r.evaluation.get_evaluation("second"), Code.NOT_FOUND, "UNKNOWN_EVALUATION", "evaluation_id")


async def test_waiting_for_a_turn_is_no_stall():
    """stall_timeout_ms does not run while an evaluation waits for its turn."""
    async with rig(HeldModel(), max_running_evaluations=1) as r:
        await r.evaluation.start_evaluation(asked(evaluation_id="runs"))
        await r.model.asked.wait()
        await r.evaluation.start_evaluation(asked(evaluation_id="waits", limits=Limits(stall_timeout_ms=20)))
        await r.evaluation.evaluate(asked(evaluation_id="clock", limits=Limits(deadline_ms=150)))

        assert (await r.evaluation.get_evaluation("waits")).state is QUEUED
        await r.evaluation.cancel_evaluation("runs")
        assert state_of(await r.ended("waits")) == (EvaluationState.FAILED, "STALLED")


async def test_cancel_of_an_ended_evaluation_changes_nothing():
    """A cancel that comes too late gets the evaluation as it ended; no event is written."""
    async with rig() as r:
        ended = await r.evaluation.evaluate(asked())
        log = await log_of(r.worker.bridge)

        assert await r.evaluation.cancel_evaluation("e", "too late") == ended
        assert await log_of(r.worker.bridge) == log


async def test_first_cancel_counts():
    """Cancels that come together end it once, with the reason of one of them."""
    async with rig(HeldModel()) as r:
        await r.evaluation.start_evaluation(asked())
        await r.model.asked.wait()

        answers = await asyncio.gather(*(r.evaluation.cancel_evaluation("e", f"reason {index}") for index in range(5)))

        assert all(answer == answers[0] for answer in answers)
        assert answers[0].problem is not None
        assert answers[0].problem.message.startswith("reason ")
        assert (await kinds_of(r.worker.bridge)).count(EventKind.EVALUATION_STOP) == 1
