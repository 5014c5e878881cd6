"""How long a call may wait."""

import asyncio
import time
from typing import Any

import pytest

from crucible_bridge.channel import open_channel
from crucible_bridge.errors import Code
from crucible_bridge.v1 import evaluation_pb2, evaluation_pb2_grpc, types_pb2
from crucible_worker.testing import ScriptedModel, run_worker
from tests.service.server_kit import error_of, evaluate_request, serving, settings_for

pytestmark = pytest.mark.core


@pytest.mark.parametrize("seconds", [0.15, 0.6])
async def test_a_waiting_call_is_answered_before_its_deadline(tmp_path, seconds):
    """The answer names the evaluation and leaves before gRPC's own deadline, at which nobody would hear it."""
    async with serving(settings_for(tmp_path)) as rig:
        stub = rig.evaluation
        await rig.channel.channel_ready()

        error = await error_of(stub.Evaluate(evaluate_request("mine"), timeout=seconds))

        # The client's own DEADLINE_EXCEEDED has neither reason nor metadata: this one is the worker's.
        assert (error.code, error.reason) == (Code.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED")
        assert error.metadata == {"evaluation_id": "mine"}
        assert error.retryable


async def test_an_evaluation_without_an_id_is_named_by_the_answer(tmp_path):
    """A caller that gave no id can still find what it started: what the engine binds, the answer tells."""
    async with serving(settings_for(tmp_path)) as rig:
        stub = rig.evaluation

        error = await error_of(stub.Evaluate(evaluate_request(""), timeout=0.5))

        assert error.metadata == {"evaluation_id": "made-here"}


async def test_a_stream_ends_before_its_deadline(tmp_path):
    """A watch with a deadline is told that it is over, after all that came before."""
    async with serving(settings_for(tmp_path)) as rig:
        stub = rig.evaluation
        batches = aiter(stub.WatchEvaluation(evaluation_pb2.WatchEvaluationRequest(evaluation_id="e1"), timeout=0.5))

        first = await anext(batches)
        error = await error_of(anext(batches))

        assert first.through_sequence == 1
        assert (error.code, error.metadata) == (Code.DEADLINE_EXCEEDED, {"evaluation_id": "e1"})


async def test_a_call_without_a_deadline_waits(tmp_path):
    """Nothing but its caller, a drain or its end ends a call that has no deadline."""
    async with serving(settings_for(tmp_path)) as rig:
        stub = rig.evaluation
        asyncio.get_running_loop().call_later(0.3, rig.evaluations.gate.set)
        started = time.monotonic()

        answer = await stub.Evaluate(evaluate_request("e1"))

        assert answer.evaluation.evaluation_id == "e1"
        assert time.monotonic() - started >= 0.3


async def test_a_timeout_inside_of_a_service_is_not_the_deadline(tmp_path):
    """Only the call's own timer makes DEADLINE_EXCEEDED; a TimeoutError from within is a bug like any other."""
    async with serving(settings_for(tmp_path)) as rig:
        stub = rig.evaluation
        rig.evaluations.raises = TimeoutError("from within")

        error = await error_of(stub.GetEvaluation(evaluation_pb2.GetEvaluationRequest(evaluation_id="e1"), timeout=30))

        assert error.code is Code.INTERNAL


async def test_an_evaluation_outlives_the_call_that_waits_for_it():
    """The call's deadline ends the call alone: the evaluation goes on, and whoever asks again gets its result."""
    async with run_worker({"m": ScriptedModel(latency=3.0)}) as running, open_channel(running.address) as channel:
        stub: Any = evaluation_pb2_grpc.EvaluationServiceStub(channel)
        sample = evaluation_pb2.Sample(text="1+1=", targets=["2"])
        request = evaluation_pb2.EvaluateRequest(
            evaluation_id="mine",
            model=types_pb2.ModelRef(embedded="m"),
            evaluators=[evaluation_pb2.EvaluatorSpec(kind="nll")],
            dataset=evaluation_pb2.Dataset(inline=evaluation_pb2.InlineDataset(samples=[sample])),
        )

        error = await error_of(stub.Evaluate(request, timeout=2.0))
        answer = await stub.Evaluate(request)

        assert (error.code, error.metadata) == (Code.DEADLINE_EXCEEDED, {"evaluation_id": "mine"})
        assert answer.evaluation.state == evaluation_pb2.EVALUATION_STATE_COMPLETED
        assert answer.evaluation.attempt == 1
