"""What the tests of models that their orchestrators hold share: such models, and a stream that is driven by hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio

from crucible_bridge.channel import open_channel
from crucible_bridge.codec.orchestrator import answer_to_v1, question_from_v1, start_to_v1
from crucible_bridge.errors import BridgeError, Code
from crucible_bridge.status import from_rpc_error
from crucible_bridge.types import (
    Answer,
    EvaluateRequest,
    EvaluationState,
    HeldStart,
    OrchestratorCall,
    Question,
    SampledSequence,
    SampleQuestion,
)
from crucible_bridge.v1 import evaluation_pb2 as pb
from crucible_bridge.v1 import evaluation_pb2_grpc, orchestrator_pb2
from tests.robustness.harness import until
from tests.service.evaluation_kit import asked as evaluations_to_run

__all__ = ["Line", "Shouter", "Stream", "asked", "ended_with", "line_to", "opened", "shout", "stands", "start_of"]

SAMPLES = frozenset({OrchestratorCall.SAMPLE})


def asked(**fields: Any) -> EvaluateRequest:
    """Evaluation `e` of two samples by `accuracy`, of the model "policy"; but for what is given."""
    return evaluations_to_run(**{"model": "orchestrator:policy", **fields})


def shout(question: Question) -> Answer:
    """What a model says that answers text in upper case."""
    assert isinstance(question, SampleQuestion)
    assert isinstance(question.prompt, str)
    return (SampledSequence(text=question.prompt.upper(), tokens=(1, 2)),) * question.num_samples


class Shouter:
    """A model that lives with its caller, and answers in upper case, once so many calls of it were open at once."""

    def __init__(self, crowd: int = 1) -> None:
        self.prompts: list[Any] = []
        self.now = self.peak = 0
        self._crowd, self._crowded = crowd, asyncio.Event()

    async def sample(self, prompt: Any, params: Any, num_samples: int) -> list[SampledSequence]:
        self.prompts.append(prompt)
        self.now += 1
        self.peak = max(self.peak, self.now)
        if self.now >= self._crowd:
            self._crowded.set()
        await self._crowded.wait()
        await asyncio.sleep(0)
        self.now -= 1
        return [SampledSequence(text=prompt.upper(), tokens=(1,))] * num_samples


def start_of(
    request: EvaluateRequest, *, window: int = 8, calls: frozenset[OrchestratorCall] = SAMPLES
) -> pb.EvaluateWithOrchestratorModelRequest:
    """The first frame."""
    start = start_to_v1(HeldStart(request=request, window=window, calls=calls))
    return pb.EvaluateWithOrchestratorModelRequest(start=start)


class Stream:
    """One stream, frame by frame. Made by `opened`."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.withdrawn: list[int] = []
        """Ids that were, in order."""

    async def send(self, message: pb.EvaluateWithOrchestratorModelRequest) -> None:
        """Send a frame."""
        await self.call.write(message)

    async def answer(self, number: int, answer: Answer) -> None:
        """Answer a question."""
        await self.send(pb.EvaluateWithOrchestratorModelRequest(answer=answer_to_v1(number, answer)))

    async def raw_answer(self, message: orchestrator_pb2.OrchestratorAnswer) -> None:
        """Answer with this message."""
        await self.send(pb.EvaluateWithOrchestratorModelRequest(answer=message))

    async def read(self) -> pb.EvaluateWithOrchestratorModelResponse | None:
        """The next frame; None at the end.

        Raises:
            BridgeError: the call ended with an error.
        """
        try:
            message = await self.call.read()
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        return None if message is grpc.aio.EOF else message  # pyright: ignore[reportAttributeAccessIssue]

    async def accepted(self) -> pb.OrchestratorAccepted:
        """The first frame."""
        frame = await self.read()
        assert frame is not None
        assert frame.WhichOneof("frame") == "accepted"
        return frame.accepted

    async def question(self) -> tuple[int, Question]:
        """The next question, and its id; withdrawals before it are noted."""
        while True:
            frame = await self.read()
            assert frame is not None
            if frame.WhichOneof("frame") == "withdrawn":
                self.withdrawn.append(frame.withdrawn)
                continue
            assert frame.WhichOneof("frame") == "question", frame
            return frame.question.id, question_from_v1(frame.question)

    async def ended(self) -> pb.OrchestratorEnded:
        """The last frame, which must come without another question, and then OK."""
        while True:
            frame = await self.read()
            assert frame is not None
            if frame.WhichOneof("frame") == "ended":
                assert await self.read() is None
                assert await self.call.code() is grpc.StatusCode.OK
                return frame.ended
            assert frame.WhichOneof("frame") == "withdrawn", frame
            self.withdrawn.append(frame.withdrawn)

    async def answer_all(self, answer: Callable[[Question], Answer]) -> pb.OrchestratorEnded:
        """Answer every question until the end."""
        while True:
            frame = await self.read()
            assert frame is not None
            match frame.WhichOneof("frame"):
                case "question":
                    await self.answer(frame.question.id, answer(question_from_v1(frame.question)))
                case "ended":
                    return frame.ended

    async def error(self) -> BridgeError:
        """What the call ends with."""
        try:
            while await self.read() is not None:
                pass
        except BridgeError as error:
            return error
        raise AssertionError("the call ended well")


@contextlib.asynccontextmanager
async def opened(address: str, start: pb.EvaluateWithOrchestratorModelRequest | None = None) -> AsyncIterator[Stream]:
    """A stream, on a connection of its own, with its first frame sent; leaving the block ends it."""
    async with open_channel(address) as channel:
        # Any: the generated stubs are typed for blocking channels first.
        stub: Any = evaluation_pb2_grpc.EvaluationServiceStub(channel)
        stream = Stream(stub.EvaluateWithOrchestratorModel())
        if start is not None:
            await stream.send(start)
        yield stream
        stream.call.cancel()


class Line:
    """Connections to a worker that can be cut, all at once, and lead to another one then."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.address = ""
        self.up = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        writers = {writer}
        self._tasks.add(task)
        self._open |= writers
        try:
            # Cancelled at the end: Python 3.11 logs a stream's task that says so.
            with contextlib.suppress(OSError, asyncio.CancelledError):  # the worker may have been killed
                if self.up:
                    await self._connected(reader, writer, writers)
        finally:
            self._tasks.discard(task)
            self._open -= writers
            for each in writers:
                each.transport.abort()

    async def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, writers: set[asyncio.StreamWriter]
    ) -> None:
        host, _, port = self.worker.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writers.add(far_writer)
        self._open.add(far_writer)
        async with asyncio.TaskGroup() as group:
            group.create_task(_carry(reader, far_writer))
            group.create_task(_carry(far_reader, writer))

    async def aclose(self) -> None:
        """End every connection, also one that is only being made."""
        await asyncio.sleep(0)  # what was accepted begins
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


@contextlib.asynccontextmanager
async def line_to(worker: str) -> AsyncIterator[Line]:
    """A line to a worker."""
    line = Line(worker)
    async with await asyncio.start_server(line.serve, "127.0.0.1", 0) as server:
        line.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield line
        server.close()
        await line.aclose()


def ended_with(error: BridgeError, code: Code, reason: str, evaluation_id: str = "e") -> None:
    """An error must be this one, and name the evaluation."""
    assert (error.code, error.reason, error.metadata.get("evaluation_id", "")) == (code, reason, evaluation_id)


async def stands(bridge: Any, state: EvaluationState, evaluation_id: str = "e") -> None:
    """Wait until an evaluation is in a state."""

    async def there() -> bool:
        return (await bridge.evaluation.get_evaluation(evaluation_id)).state is state

    await until(there)
