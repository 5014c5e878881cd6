"""EvaluateWithOrchestratorModel: frames that are refused, first ones and later ones."""

from __future__ import annotations

import dataclasses
from typing import Any

from crucible_bridge.channel import open_channel
from crucible_bridge.errors import Code
from crucible_bridge.types import (
    EvaluationState,
    OrchestratorModel,
)
from crucible_bridge.v1 import evaluation_pb2 as pb
from crucible_bridge.v1 import orchestrator_pb2
from tests.service.evaluation_kit import rig
from tests.service.orchestrator_kit import Stream, asked, ended_with, opened, start_of
from tests.tables import rows


@rows(
    ("frame", "field"),
    [
        (pb.EvaluateWithOrchestratorModelRequest(), "start"),
        (
            pb.EvaluateWithOrchestratorModelRequest(answer=orchestrator_pb2.OrchestratorAnswer(id=1)),
            "start",
        ),
        (start_of(dataclasses.replace(asked(), model=OrchestratorModel(""))), "model.orchestrator.name"),
        (start_of(asked(), window=0), "start.window"),
        (start_of(asked(), calls=frozenset()), "start.calls"),
    ],
)
async def test_a_wrong_first_frame_is_refused(frame: pb.EvaluateWithOrchestratorModelRequest, field: str):
    """The first frame holds a start that can be read, or the call ends with its field; nothing was started."""
    async with rig() as it, opened(it.worker.address, frame) as stream:
        error = await stream.error()
        assert (await it.evaluation.list_evaluations()).items == ()
    assert (error.code, error.field) == (Code.INVALID_ARGUMENT, field)


async def test_a_stream_without_a_frame_is_refused():
    """Who has nothing to say starts nothing."""
    async with rig() as it, opened(it.worker.address) as stream:
        await stream.call.done_writing()
        error = await stream.error()
    assert (error.code, error.field) == (Code.INVALID_ARGUMENT, "start")


async def test_a_frame_out_of_order_ends_the_stream():
    """A second start, or a frame of nothing, is the caller's error; its evaluation is interrupted."""
    for frame in (start_of(asked()), pb.EvaluateWithOrchestratorModelRequest()):
        async with rig() as it, opened(it.worker.address, start_of(asked())) as stream:
            await stream.accepted()
            await stream.send(frame)
            error = await stream.error()
            ended_with(error, Code.INVALID_ARGUMENT, "INVALID_FIELD")
            evaluation = await it.evaluation.get_evaluation("e")
        assert error.field == "answer"
        assert evaluation.state is EvaluationState.INTERRUPTED


async def test_bytes_that_are_no_frame_end_the_stream():
    """What is no message is refused as MALFORMED_MESSAGE, at the start and later."""
    path = "/crucible_bridge.v1.EvaluationService/EvaluateWithOrchestratorModel"
    start = start_of(asked()).SerializeToString()
    for frames in ([b"\xff\xff"], [start, b"\xff\xff"]):
        async with rig() as it, open_channel(it.worker.address) as channel:
            method: Any = channel.stream_stream
            stream = Stream(method(path)())
            for frame in frames:
                await stream.call.write(frame)
            error = await stream.error()
        assert (error.code, error.reason) == (Code.INVALID_ARGUMENT, "MALFORMED_MESSAGE")
