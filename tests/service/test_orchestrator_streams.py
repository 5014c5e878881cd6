"""EvaluateWithOrchestratorModel frame by frame: what is accepted, what is ignored, and what a lost stream leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from crucible_bridge.channel import open_channel
from crucible_bridge.codec import array_to_v1
from crucible_bridge.errors import BackendError, BridgeError, Code, Unavailable
from crucible_bridge.events import EventKind
from crucible_bridge.types import (
    EvaluationState,
    Limits,
    OrchestratorCall,
    Problem,
    SampledSequence,
    SampleQuestion,
    SamplingParams,
    Verdict,
)
from crucible_bridge.v1 import evaluation_pb2 as pb
from crucible_bridge.v1 import evaluation_pb2_grpc, orchestrator_pb2
from crucible_worker.backends.base import MAX_TEXT_BYTES
from crucible_worker.rpc.evaluation import evaluate_held
from crucible_worker.rpc.offload import Offload
from crucible_worker.testing import run_worker
from crucible_worker.util.limits import WorkerLimits
from tests.robustness.harness import until
from tests.service.evaluation_kit import kinds_of, numbered, rig, samples_of, state_of
from tests.service.orchestrator_kit import Stream, asked, ended_with, opened, shout, stands, start_of
from tests.service.server_kit import stands as stands_as
from tests.tables import rows

COMPLETED = pb.EVALUATION_STATE_COMPLETED


async def test_a_stream_from_accepted_to_ended():
    """First accepted with the window that holds, then questions by ids from 1, then ended, then OK."""
    async with rig() as it, opened(it.worker.address, start_of(asked(), window=5)) as stream:
        accepted = await stream.accepted()
        (one, first), (two, _) = await stream.question(), await stream.question()
        assert isinstance(first, SampleQuestion)
        assert (first.prompt, first.num_samples, first.sampling.max_tokens, first.plain) == ("a", 1, 8, False)
        await stream.answer(two, (SampledSequence(text="B", tokens=()),))
        await stream.answer(one, (SampledSequence(text="A", tokens=()),))
        ended = await stream.ended()
    assert (accepted.evaluation.evaluation_id, accepted.existed, accepted.window) == ("e", False, 5)
    assert (one, two) == (1, 2)
    assert (ended.evaluation.state, ended.ignored_answers) == (COMPLETED, 0)
    assert ended.evaluation.metrics.values["accuracy"] == 1.0


async def test_an_id_is_made_where_none_is_given():
    """Accepted tells it, so that the caller can go on."""
    async with rig() as it, opened(it.worker.address, start_of(asked(evaluation_id=""))) as stream:
        accepted = await stream.accepted()
        ended = await stream.answer_all(shout)
    assert accepted.evaluation.evaluation_id
    assert ended.evaluation.evaluation_id == accepted.evaluation.evaluation_id


async def test_what_was_not_asked_is_ignored_and_counted():
    """Answers to unknown and to answered ids change nothing, and are told at the end."""
    async with rig() as it, opened(it.worker.address, start_of(asked())) as stream:
        await stream.accepted()
        one, _ = await stream.question()
        two, _ = await stream.question()
        await stream.answer(77, (SampledSequence(text="never asked", tokens=()),))
        await stream.answer(one, (SampledSequence(text="A", tokens=()),))
        await stream.answer(one, (SampledSequence(text="too late", tokens=()),))
        await stream.answer(two, (SampledSequence(text="B", tokens=()),))
        ended = await stream.ended()
        outputs = [sample.output for sample in await samples_of(it.worker.bridge)]
    assert ended.ignored_answers == 2
    assert outputs == ["A", "B"]


LOGPROBS = array_to_v1(np.array([-1.0]))
TOO_LONG = orchestrator_pb2.AnsweredSequence(text=b"\xff" * (MAX_TEXT_BYTES // 3 + 1), stop_reason="stop")


@rows(
    "answer",
    [
        {},
        {"logprobs": LOGPROBS},
        {"forward": orchestrator_pb2.AnsweredForward(logprobs=[LOGPROBS])},
        {"sample": orchestrator_pb2.AnsweredSample()},
        {"sample": orchestrator_pb2.AnsweredSample(sequences=[orchestrator_pb2.AnsweredSequence(text=b"A")])},
        {"sample": orchestrator_pb2.AnsweredSample(sequences=[TOO_LONG])},
    ],
    ids=["nothing", "logprobs", "forward", "no sequence", "no stop reason", "too long once it is text"],
)
async def test_a_wrong_answer_costs_its_sample_alone(answer: Any):
    """What cannot be read, or does not fit the question, is BACKEND_ANSWER, not asked again; the others stand."""
    async with rig() as it, opened(it.worker.address, start_of(asked())) as stream:
        await stream.accepted()
        one, _ = await stream.question()
        await stream.raw_answer(orchestrator_pb2.OrchestratorAnswer(id=one, **answer))
        two, _ = await stream.question()
        await stream.answer(two, (SampledSequence(text="B", tokens=()),))
        ended = await stream.ended()
        wrong, right = await samples_of(it.worker.bridge)
    assert ended.evaluation.state == COMPLETED
    assert wrong.problem is not None
    assert (wrong.problem.reason, wrong.problem.retryable, wrong.attempts) == ("BACKEND_ANSWER", False, 1)
    assert right.verdict is Verdict.CORRECT


async def test_a_retryable_problem_is_asked_again_by_a_new_id():
    """The worker's budget of retries holds here as anywhere; a final problem ends the sample."""
    async with rig() as it, opened(it.worker.address, start_of(asked())) as stream:
        await stream.accepted()
        (one, first), (two, _) = await stream.question(), await stream.question()
        await stream.answer(two, Problem(reason="NEVER", message="no"))
        await stream.answer(one, Problem(reason="BUSY", message="soon", retryable=True))
        three, again = await stream.question()
        await stream.answer(three, shout(again))
        await stream.ended()
        samples = await samples_of(it.worker.bridge)
    assert (three, again) == (3, first)
    assert [sample.attempts for sample in samples] == [2, 1]
    assert [sample.problem and sample.problem.reason for sample in samples] == [None, "NEVER"]


async def test_the_window_is_never_exceeded():
    """Until an answer comes no further question does, however many samples there are; the smaller window holds."""
    async with rig(max_orchestrator_window=4) as it:
        start = start_of(asked(dataset=numbered(40), limits=Limits(concurrency=64)), window=100)
        async with opened(it.worker.address, start) as stream:
            assert (await stream.accepted()).window == 4
            held = [await stream.question() for _ in range(4)]
            seen = 4
            while seen < 40:
                further = asyncio.create_task(stream.question())
                await it.worker.bridge.worker.get_info()  # a round trip: a question too many would be here by now
                assert not further.done()
                number, question = held.pop()
                await stream.answer(number, shout(question))
                held.append(await further)
                seen += 1
            for number, question in held:
                await stream.answer(number, shout(question))
            assert (await stream.ended()).evaluation.done == 40


async def test_a_slow_reader_holds_up_its_own_evaluation_alone():
    """Nothing piles up in the worker for a caller that does not read, and others are served meanwhile."""
    async with rig(max_orchestrator_window=8) as it:
        start = start_of(asked(dataset=numbered(30)), window=8)
        async with opened(it.worker.address, start) as slow:
            await slow.accepted()
            other = asked(evaluation_id="other", dataset=numbered(30))
            async with opened(it.worker.address, start_of(other)) as quick:
                await quick.accepted()
                assert (await quick.answer_all(shout)).evaluation.done == 30
            assert (await it.evaluation.get_evaluation("e")).done == 0
            assert (await slow.answer_all(shout)).evaluation.done == 30


async def test_a_lost_stream_interrupts_and_a_new_one_goes_on():
    """What was answered and written down is final; the rest, and only that, is asked on the new stream."""
    request = asked(dataset=numbered(6), limits=Limits(concurrency=3))
    async with rig() as it:
        bridge = it.worker.bridge
        async with opened(it.worker.address, start_of(request)) as lost:
            await lost.accepted()
            (one, first), (two, second) = await lost.question(), await lost.question()
            await lost.answer(one, shout(first))
            await lost.answer(two, shout(second))
            await it.recorder.wait_for(
                lambda event: event.kind is EventKind.SAMPLE_COMPLETE and event.metadata["sample_id"] == "s1"
            )
        await stands(bridge, EvaluationState.INTERRUPTED)
        async with opened(it.worker.address, start_of(request)) as stream:
            accepted = await stream.accepted()
            prompts: list[Any] = []

            def note(question: Any) -> Any:
                prompts.append(question.prompt)
                return shout(question)

            ended = await stream.answer_all(note)
        kinds = await kinds_of(bridge)
    assert (accepted.existed, accepted.evaluation.done, accepted.evaluation.attempt) == (True, 2, 2)
    assert sorted(prompts) == ["q2", "q3", "q4", "q5"]
    assert ended.evaluation.metrics.values["accuracy"] == 1.0
    assert kinds.count(EventKind.EVALUATION_INTERRUPT) == kinds.count(EventKind.EVALUATION_RESUME) == 1
    assert kinds.count(EventKind.SAMPLE_COMPLETE) == 6


async def test_who_closes_its_sending_side_has_left():
    """Without a way to answer there is nothing to wait for: CALLER_LEFT, and the evaluation can go on."""
    async with rig() as it:
        async with opened(it.worker.address, start_of(asked())) as stream:
            await stream.accepted()
            await stream.question()
            await stream.call.done_writing()
            ended_with(await stream.error(), Code.CANCELLED, "CALLER_LEFT")
        evaluation = await it.evaluation.get_evaluation("e")
    assert evaluation.state is EvaluationState.INTERRUPTED


async def test_a_new_stream_takes_the_place_of_an_old_one():
    """The old one is told, whether anybody reads there or not; nothing is lost, and nothing asked of two at once."""
    async with rig() as it, opened(it.worker.address, start_of(asked())) as old:
        await old.accepted()
        number, question = await old.question()
        await old.question()
        await old.answer(number, shout(question))
        await it.told(EventKind.SAMPLE_COMPLETE)
        async with opened(it.worker.address, start_of(asked())) as new:
            assert (await new.accepted()).existed
            ended_with(await old.error(), Code.ABORTED, "TAKEN_OVER")
            only, _ = await new.question()
            await new.answer(only, (SampledSequence(text="B", tokens=()),))
            ended = await new.ended()
    assert (only, ended.evaluation.done, ended.evaluation.attempt) == (1, 2, 2)


async def test_an_evaluation_that_is_held_at_another_worker_stays_there(tmp_path):
    """ABORTED, to be tried again: once that worker has let go, this one goes on."""
    async with rig(state_dir=tmp_path) as here, run_worker({}, state_dir=tmp_path) as there:
        async with opened(here.worker.address, start_of(asked())) as stream:
            await stream.accepted()
            async with opened(there.address, start_of(asked())) as second:
                error = await second.error()
            ended_with(error, Code.ABORTED, "HELD_ELSEWHERE")
            assert error.retryable
            assert error.retry_after
        await stands(here.worker.bridge, EvaluationState.INTERRUPTED)
        async with opened(there.address, start_of(asked())) as second:
            assert (await second.accepted()).existed
            assert (await second.answer_all(shout)).evaluation.state == COMPLETED


async def test_another_model_is_not_gone_on_with():
    """Going on with the same name and other calls is MODEL_CHANGED: the numbers would come about differently."""
    async with rig() as it:
        async with opened(it.worker.address, start_of(asked())) as stream:
            await stream.accepted()
        await stands(it.worker.bridge, EvaluationState.INTERRUPTED)
        both = frozenset({OrchestratorCall.SAMPLE, OrchestratorCall.FORWARD})
        async with opened(it.worker.address, start_of(asked(), calls=both)) as stream:
            error = await stream.error()
    assert (error.code, error.reason) == (Code.FAILED_PRECONDITION, "MODEL_CHANGED")


async def test_a_drain_ends_the_stream_and_interrupts(tmp_path):
    """UNAVAILABLE with the evaluation's id, as for any call that waits; the next worker goes on."""
    async with rig(state_dir=tmp_path) as it, opened(it.worker.address, start_of(asked())) as stream:
        await stream.accepted()
        number, question = await stream.question()
        await stream.answer(number, shout(question))
        await it.told(EventKind.SAMPLE_COMPLETE)
        report = await it.worker.bridge.worker.drain()
        ended_with(await stream.error(), Code.UNAVAILABLE, "DRAINING")
    assert report.interrupted == ("e",)
    async with rig(state_dir=tmp_path) as it, opened(it.worker.address, start_of(asked())) as stream:
        assert (await stream.accepted()).evaluation.done == 1
        assert (await stream.answer_all(shout)).evaluation.state == COMPLETED


async def test_an_evaluation_that_waits_for_its_turn_is_accepted_and_asks_later():
    """Accepted says QUEUED; whoever leaves meanwhile leaves nothing behind that runs."""
    async with rig(max_running_evaluations=1) as it, opened(it.worker.address, start_of(asked())) as first:
        await first.accepted()
        number, question = await first.question()
        async with opened(it.worker.address, start_of(asked(evaluation_id="leaves"))) as leaves:
            assert (await leaves.accepted()).evaluation.state == pb.EVALUATION_STATE_QUEUED
        await stands(it.worker.bridge, EvaluationState.INTERRUPTED, "leaves")
        async with opened(it.worker.address, start_of(asked(evaluation_id="waits"))) as waits:
            await waits.accepted()
            await first.answer(number, shout(question))
            await first.answer_all(shout)
            assert (await waits.answer_all(shout)).evaluation.state == COMPLETED


async def test_an_interrupt_of_a_call_that_is_being_accepted_leaves_no_owner():
    """A caller that leaves while its data set is read has its evaluation interrupted, not run for nobody."""
    async with rig() as it:
        for number in range(10):
            request = asked(evaluation_id=f"e{number}", dataset=numbered(200))
            async with opened(it.worker.address, start_of(request)):
                await asyncio.sleep(0.002 * number)
        info = it.worker.bridge.worker

        async def all_interrupted() -> bool:
            # A call that was just received is not counted yet: the worker may be idle before an evaluation stands.
            load = await info.get_info()
            states = [state_of(evaluation) for evaluation in (await it.evaluation.list_evaluations()).items]
            return (load.running, load.queued) == (0, 0) and set(states) <= {(EvaluationState.INTERRUPTED, None)}

        await until(all_interrupted)


async def test_the_calls_own_deadline_is_the_callers_leaving():
    """The deadline of gRPC ends the stream with the evaluation's id, and the evaluation is interrupted."""
    async with rig() as it, open_channel(it.worker.address) as channel:
        stub: Any = evaluation_pb2_grpc.EvaluationServiceStub(channel)
        stream = Stream(stub.EvaluateWithOrchestratorModel(timeout=1.5))
        await stream.send(start_of(asked()))
        await stream.accepted()
        ended_with(await stream.error(), Code.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED")
        await stands(it.worker.bridge, EvaluationState.INTERRUPTED)


class HeldByNobody:
    """Stands in for the engine: hands out the model, and ends when it is told to."""

    def __init__(self) -> None:
        self.model: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()
        self.evaluation, self.existed = stands_as("e"), False

    async def connect_caller(self, request: Any, caller: Any) -> Any:
        self.model.set_result(caller.model)
        return self

    def leave(self, error: BridgeError | None = None) -> None:
        pass

    async def ended(self) -> Any:
        await self.over.wait()
        return self.evaluation


async def test_a_question_that_no_message_can_hold_fails_alone():
    """Text that is no Unicode is a problem of its question; the stream goes on."""
    engine: Any = HeldByNobody()

    async def requests() -> AsyncIterator[Any]:
        yield start_of(asked())
        await engine.over.wait()

    stream = evaluate_held(engine, WorkerLimits(), Offload(), requests())
    assert (await anext(stream)).WhichOneof("frame") == "accepted"
    following = asyncio.create_task(anext(stream))
    model, params = await engine.model, SamplingParams(max_tokens=1)
    with pytest.raises(BackendError) as caught:
        await model.sample_text("\ud800", params)
    asking = asyncio.create_task(model.sample_text("b", params))
    assert (await following).question.sample.text == "b"
    engine.over.set()
    assert (await anext(stream)).WhichOneof("frame") == "ended"
    with pytest.raises(Unavailable):
        await asking
    assert (caught.value.reason, caught.value.retryable) == ("INVALID_FIELD", False)
    await stream.aclose()
