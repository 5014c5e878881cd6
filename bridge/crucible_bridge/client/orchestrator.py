"""The orchestrator of a client-held model, graders or environments: the client of EvaluateWithOrchestratorModel.

    -> start {request, window, calls}
    <- accepted {evaluation, existed, window}
    <- question {id, ...}       -> answer {id, ...}, at any time, in any order
    <- withdrawn id             that answer is no longer needed
    <- closed episode           nothing further is asked of that episode
    <- ended {evaluation}

When the stream breaks, the evaluation is interrupted. The same start on a new stream resumes it. Questions are sent
again, except those of recorded samples, so an answer without a stream is dropped.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import operator
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crucible_bridge.arrays import as_array, floats
from crucible_bridge.channel import MAX_MESSAGE_BYTES
from crucible_bridge.client.caller_parts import CallerParts, EnvironmentFactory, GraderFunction, warn_of_unused
from crucible_bridge.client.calling import UsersThreads, problem_in
from crucible_bridge.client.calls import Calls
from crucible_bridge.client.exchange import Exchange
from crucible_bridge.client.patience import Patience
from crucible_bridge.codec import orchestrator as codec
from crucible_bridge.errors import BackendError, BridgeError, InvalidField
from crucible_bridge.problems import problem_of
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Answer,
    ArgmaxQuestion,
    EnvironmentQuestion,
    EvaluateRequest,
    Evaluation,
    Forwarded,
    ForwardQuestion,
    GradeQuestion,
    HeldStart,
    LikeliestTokens,
    LogprobsQuestion,
    ModelQuestion,
    OrchestratorCall,
    Question,
    SampleQuestion,
)
from crucible_bridge.v1 import evaluation_pb2 as pb
from crucible_bridge.v1 import orchestrator_pb2

__all__ = [
    "DEFAULT_WINDOW",
    "Answerer",
    "Orchestrator",
    "evaluate_here",
]

DEFAULT_WINDOW = 32
"""Calls of the model at once, if the caller does not set it."""

_METHODS = {
    OrchestratorCall.SAMPLE: "sample",
    OrchestratorCall.LOGPROBS: "compute_logprobs",
    OrchestratorCall.FORWARD: "forward",
    OrchestratorCall.ARGMAX: "compute_argmax",
}
_log = logging.getLogger(__name__)


async def evaluate_here(
    calls: Calls,
    method: Any,
    request: EvaluateRequest,
    model: object | None,
    *,
    graders: Mapping[str, GraderFunction],
    environments: Mapping[str, EnvironmentFactory],
    window: int,
    patience: float,
) -> Evaluation:
    """Run an evaluation on parts of this process; see `EvaluationClient.evaluate_with_orchestrator_model`."""
    if window < 1:
        raise InvalidField("window", f"is {window}, must be at least 1")
    if model is None and not graders and not environments:
        message = (
            "is not of this process, and neither is a grader or an environment: name them in graders or environments, "
            "or call evaluate in place of this"
        )
        raise InvalidField("model", message)
    # The id is made here, so that it is known when the very first stream breaks.
    request = dataclasses.replace(request, evaluation_id=request.evaluation_id or uuid.uuid4().hex)
    answerer = Answerer(model, window)
    parts = CallerParts(graders, environments, window)
    warn_of_unused(parts, request.evaluators)
    try:
        start = HeldStart(
            request=request,
            window=window,
            calls=answerer.calls,
            graders=parts.graders,
            environments=parts.environments,
        )
        return await Orchestrator(calls, method, start, answerer, parts).run(patience)
    finally:
        answerer.close()
        parts.close()


class Answerer:
    """A client-held model: any object that has one of four methods, as coroutines or plain methods.

    - `sample(prompt, params, num_samples)`: SampledSequences for a text, a Conversation or a ModelInput. If a
      text is to be continued without a chat template, `plain=True` is passed too.
    - `compute_logprobs(model_input)`: a value for each token, nats; the first one is ignored (usually None).
    - `forward(data)`: for each Datum an array of log-probabilities of its `target_tokens`, nats.
    - `compute_argmax(model_input)`: for each token the id of the one that is the likeliest in its place, given the
      tokens before it; the first one is ignored (usually None). -1 if it is another one, and its id is not known.

    A BridgeError that one raises becomes the problem of its question, which is sent again if the error is retryable. So
    are OSErrors, such as lost connections and time-outs; any other exception is final. Plain methods run in threads.
    """

    def __init__(self, model: object | None, threads: int) -> None:
        """Query this model, from at most so many threads at once; None if the model is the worker's."""
        self.calls = frozenset(call for call, name in _METHODS.items() if callable(getattr(model, name, None)))
        """The calls that it supports."""
        if not self.calls and model is not None:
            *names, last = _METHODS.values()
            raise InvalidField("model", f"is a {type(model).__name__}, without {', '.join(names)} or {last}")
        self._model, self._threads = model, UsersThreads(threads)

    async def answer(self, question: ModelQuestion) -> Answer:
        """Query the model; a failure is an answer as well."""
        try:
            return await self._answer(question)
        except Exception as error:
            return problem_in("the orchestrator's model", error)

    def close(self) -> None:
        """Release the threads; calls in them may still end."""
        self._threads.close()

    async def _answer(self, question: ModelQuestion) -> Answer:
        match question:
            case SampleQuestion():
                asked = (question.prompt, question.sampling, question.num_samples)
                return tuple(await self._call("sample", *asked, **({"plain": True} if question.plain else {})))
            case LogprobsQuestion():
                values = await self._call("compute_logprobs", question.sequence)
                return np.array(values[1:], np.float64)
            case ForwardQuestion():
                arrays: Sequence[Any] = await self._call("forward", question.data)
                return Forwarded(tuple(floats(as_array(array, field="logprobs"), "logprobs") for array in arrays))
            case ArgmaxQuestion():
                tokens = await self._call("compute_argmax", question.sequence)
                return LikeliestTokens(np.array([operator.index(token) for token in tokens[1:]], np.int64))

    async def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        return await self._threads.call(getattr(self._model, name), *arguments, **named)


class Orchestrator:
    """Answers the questions of one evaluation, over one stream after another, until it has ended."""

    def __init__(self, calls: Calls, method: Any, start: HeldStart, answerer: Answerer, parts: CallerParts) -> None:
        """See `run`.

        Args:
            calls: of the client.
            method: of the stub.
            start: the first message of every stream; its request has an evaluation_id.
            answerer: the model.
            parts: graders and environments.
        """
        self._calls, self._method, self._answerer, self._parts = calls, method, answerer, parts
        self._first = pb.EvaluateWithOrchestratorModelRequest(start=codec.start_to_v1(start))
        self._accepted = False

    async def run(self, patience: float) -> Evaluation:
        """Stay until the evaluation has ended.

        Args:
            patience: seconds to keep trying when the stream breaks or cannot be opened, until it is accepted again.

        Raises:
            BridgeError: the evaluation is refused, taken over, or the worker did not come back in time.
        """
        left = Patience(patience)
        while True:
            self._accepted = False
            try:
                return await self._stay()
            except BridgeError as error:
                if not error.retryable:
                    raise
                if self._accepted:
                    left.restart()
                await left.wait(error)

    async def _stay(self) -> Evaluation:
        """One stream, from its start to its end."""
        answering: dict[int, asyncio.Task[None]] = {}
        closing: set[asyncio.Task[None]] = set()
        async with self._calls.exchange(self._method) as stream:
            await stream.write(self._first)
            try:
                async for frame in stream.frames():
                    match frame.WhichOneof("frame"):
                        case "accepted":
                            self._accepted = True
                        case "question":
                            task = asyncio.create_task(self._answer(stream, frame.question, answering))
                            answering[frame.question.id] = task
                        case "withdrawn":
                            if (task := answering.pop(frame.withdrawn, None)) is not None:
                                task.cancel()
                        case "closed":
                            task = asyncio.create_task(self._close_episode(frame.closed))
                            closing.add(task)
                            task.add_done_callback(closing.discard)
                        case "ended":
                            return codec.ended_from_v1(frame.ended).evaluation
                        case _:
                            _log.debug("a frame that this version does not know")
            finally:
                for task in answering.values():
                    task.cancel()
                # Episodes belong to their stream: those that it leaves open begin again on the next one.
                await asyncio.gather(*closing, *map(self._close_episode, self._parts.open_episodes))
        raise BackendError("the stream ended before the evaluation", reason=Reason.STREAM_ENDED)

    async def _answer_of(self, question: Question) -> Answer:
        """What this process answers; a failure is an answer as well."""
        match question:
            case GradeQuestion(grader=name):
                try:
                    return await self._parts.grade(question)
                except Exception as error:
                    return problem_in(f"the caller's grader {name!r}", error)
            case EnvironmentQuestion(environment=name):
                try:
                    return await self._parts.follow(question)
                except Exception as error:
                    return problem_in(f"the caller's environment {name!r}", error)
            case _:
                return await self._answerer.answer(question)

    async def _close_episode(self, episode: int) -> None:
        try:
            await self._parts.close_episode(episode)
        except Exception as error:
            # The episode is over: the worker expects no answer.
            _log.warning("an environment could not be closed", exc_info=error)

    async def _answer(
        self, stream: Exchange, asked: orchestrator_pb2.OrchestratorQuestion, answering: dict[int, asyncio.Task[None]]
    ) -> None:
        try:
            answer = await self._answer_of(codec.question_from_v1(asked))
            message = codec.answer_to_v1(asked.id, answer)
        except InvalidField as error:
            # A question that this version cannot read, or an answer that no message can carry.
            message = codec.answer_to_v1(asked.id, problem_of(error))
        frame = pb.EvaluateWithOrchestratorModelRequest(answer=message)
        if (size := frame.ByteSize()) > MAX_MESSAGE_BYTES:
            # It would break the stream, and so would the answer to the same question on the next one.
            error = BackendError(f"the answer has {size:,} bytes", reason=Reason.ANSWER_TOO_LARGE, retryable=False)
            frame = pb.EvaluateWithOrchestratorModelRequest(answer=codec.answer_to_v1(asked.id, problem_of(error)))
        # Removed first, so that a withdrawal does not stop a message half-way.
        answering.pop(asked.id, None)
        await stream.write(frame)
