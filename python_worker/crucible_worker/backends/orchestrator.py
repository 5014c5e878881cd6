"""What stays with the caller of an evaluation: models, graders, environments. Every answer to a question is checked.

Questions go over the stream on which the caller requested the evaluation.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import hashlib
import itertools
import json
from collections.abc import AsyncGenerator, Sequence
from typing import NoReturn

import numpy as np

from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField, Unavailable
from crucible_bridge.problems import shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Answer,
    AnsweredEnvironment,
    AnsweredGrade,
    ArgmaxQuestion,
    BackendInfo,
    Conversation,
    Datum,
    EnvironmentQuestion,
    Forwarded,
    ForwardQuestion,
    GradeQuestion,
    LikeliestTokens,
    LogprobsQuestion,
    ModelInput,
    ModelRef,
    OrchestratorCall,
    OrchestratorModel,
    Problem,
    Question,
    SampledSequence,
    SampleQuestion,
    SamplingParams,
)
from crucible_worker.backends.base import (
    MAX_MESSAGES,
    MAX_TEXT_BYTES,
    UNKNOWN_TOKEN,
    Backend,
    Capability,
    Model,
    exceeds,
)

__all__ = [
    "MAX_REASON_BYTES",
    "Caller",
    "CallerSession",
    "ClosedEpisode",
    "OrchestratorBackend",
    "PendingQuestion",
    "RemoteOrchestratorModel",
    "Withdrawn",
    "chosen",
]

# The backend of models that stay with their orchestrator: it is used only by calls that cannot reach such a model.


class OrchestratorBackend(Backend):
    """Refuses to open a model of an orchestrator: only a call from the orchestrator itself can use it."""

    opens = (OrchestratorModel,)

    def info(self) -> BackendInfo:
        """Its name; every worker can use it."""
        return BackendInfo(name="orchestrator")

    async def open(self, model: ModelRef) -> NoReturn:
        """Refuse.

        Raises:
            FailedPrecondition: names the call that reaches such a model (HELD_BY_ORCHESTRATOR).
        """
        raise FailedPrecondition(
            "stays with its orchestrator: only EvaluationService.EvaluateWithOrchestratorModel can use it",
            reason=Reason.HELD_BY_ORCHESTRATOR,
            field="model",
        )


# Questions to an orchestrator that has a model, graders or environments, and its answers, in any order.
#
# The window bounds how many questions are open at once. A question is open from when it is handed out until its answer
# comes or it is withdrawn. Withdrawals go out before further questions, so that the other end sees the same bound; so
# do the ends of episodes.

MAX_REASON_BYTES = 64
"""Longest reason of an orchestrator for having no answer; the rest is truncated."""


@dataclasses.dataclass(frozen=True, slots=True)
class PendingQuestion:
    """A question, to be answered by its id."""

    id: int
    question: Question


@dataclasses.dataclass(frozen=True, slots=True)
class Withdrawn:
    """A question that was handed out and no longer needs an answer."""

    id: int


@dataclasses.dataclass(frozen=True, slots=True)
class ClosedEpisode:
    """An episode of which nothing further is asked."""

    id: int


class CallerSession:
    """One connection of an orchestrator; belongs to one event loop."""

    def __init__(self, window: int) -> None:
        """Have at most so many questions open at once."""
        self.ignored = 0
        """Answers to questions that are not open."""
        self.closed = False
        """Whether the orchestrator has disconnected."""
        self._slots = asyncio.Semaphore(window)
        self._ids, self._episodes = itertools.count(1), itertools.count(1)
        self._open: dict[int, asyncio.Future[Answer | None]] = {}
        self._unsent: dict[int, Question] = {}
        self._notices: collections.deque[Withdrawn | ClosedEpisode] = collections.deque()
        self._news = asyncio.Event()

    async def ask(self, question: Question) -> Answer:
        """Send a question once the window has room, and return its answer; a cancelled call withdraws it.

        Raises:
            Unavailable: the orchestrator has disconnected.
        """
        async with self._slots:
            if self.closed:
                raise _disconnected()
            number = next(self._ids)
            future = self._open[number] = asyncio.get_running_loop().create_future()
            self._unsent[number] = question
            self._news.set()
            try:
                answer = await future
            finally:
                # Still open: it has no answer, and its caller no longer needs one.
                if self._open.pop(number, None) is not None and self._unsent.pop(number, None) is None:
                    self._notify(Withdrawn(number))
        if answer is None:
            raise _disconnected()
        return answer

    async def answered(self, question: Question, unanswered: str) -> Answer:
        """Like `ask`, but a problem is an error; `unanswered` is its message if the problem has none.

        Raises:
            BackendError: the orchestrator could not answer.
            Unavailable: it has disconnected.
        """
        answer = await self.ask(question)
        if isinstance(answer, Problem):
            raise BackendError(
                answer.message or unanswered,
                reason=shorten(answer.reason, MAX_REASON_BYTES) or None,
                retryable=answer.retryable,
            )
        return answer

    def answer(self, number: int, answer: Answer) -> None:
        """Accept the answer to the question of this id; an answer to one that is not open is counted and ignored."""
        if number in self._unsent or number not in self._open:
            self.ignored += 1
            return
        future = self._open.pop(number)
        if not future.done():  # the caller was cancelled just now
            future.set_result(answer)

    def new_episode(self) -> int:
        """A number for an episode, from 1, that no other one here has."""
        return next(self._episodes)

    def close_episode(self, number: int) -> None:
        """Tell the other end that nothing further is asked of an episode; needs no answer."""
        if not self.closed:
            self._notify(ClosedEpisode(number))

    def _notify(self, notice: Withdrawn | ClosedEpisode) -> None:
        self._notices.append(notice)
        self._news.set()

    async def frames(self) -> AsyncGenerator[PendingQuestion | Withdrawn | ClosedEpisode, None]:
        """The messages to send, until this is closed."""
        while not self.closed:
            if self._notices:
                yield self._notices.popleft()
            elif self._unsent:
                number = next(iter(self._unsent))
                yield PendingQuestion(number, self._unsent.pop(number))
            else:
                self._news.clear()
                await self._news.wait()

    def close(self) -> None:
        """End the session: open questions fail. Idempotent."""
        self.closed = True
        for future in self._open.values():
            if not future.done():
                future.set_result(None)
        self._open.clear()
        self._unsent.clear()
        self._notices.clear()
        self._news.set()


def _disconnected() -> Unavailable:
    return Unavailable("the caller has disconnected", reason=Reason.CALLER_LEFT)


_CAPABILITIES = {
    OrchestratorCall.SAMPLE: (Capability.SAMPLE, Capability.SAMPLE_TEXT, Capability.LOGPROBS),
    OrchestratorCall.LOGPROBS: (Capability.SAMPLE, Capability.SAMPLE_TEXT, Capability.LOGPROBS),
    OrchestratorCall.FORWARD: (Capability.FORWARD,),
    OrchestratorCall.ARGMAX: (Capability.ARGMAX,),
}
"""One of the first two calls is enough: if a sample needs the missing one, only that sample fails."""


class RemoteOrchestratorModel(Model):
    """The model at the other end of a session."""

    def __init__(self, name: str, calls: frozenset[OrchestratorCall], session: CallerSession) -> None:
        """Send questions to a session.

        Args:
            name: as the orchestrator calls it.
            calls: those that it supports.
            session: the connection to the orchestrator.
        """
        self._name, self._calls, self._session = name, calls, session
        identity = ("orchestrator", name, sorted(calls))
        self.fingerprint = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
        """SHA-256 of its name and the calls that it supports: the worker knows nothing else of it."""
        self._capabilities = frozenset(capability for call in calls for capability in _CAPABILITIES[call])

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The calls that its orchestrator declares as supported."""
        return self._capabilities

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> tuple[SampledSequence, ...]:
        """Request continuations of tokens.

        Raises:
            FailedPrecondition: the model does not sample (MISSING_CLIENT).
            BackendError: there is no valid answer.
        """
        return await self._sample(SampleQuestion(prompt=prompt, sampling=params, num_samples=num_samples))

    async def sample_text(
        self, input: str | Conversation, params: SamplingParams, num_samples: int = 1, *, plain: bool = False
    ) -> tuple[SampledSequence, ...]:
        """Request continuations of text or a conversation, which the orchestrator renders; errors as of `sample`.

        Raises:
            InvalidField: the conversation has tools, for which its question has no answer with calls.
        """
        if isinstance(input, Conversation) and input.tools:
            problem = "is given, and models that stay with their orchestrator take no tools"
            raise InvalidField("conversation.tools", problem)
        return await self._sample(SampleQuestion(prompt=input, sampling=params, num_samples=num_samples, plain=plain))

    async def compute_logprobs(self, prompt: ModelInput) -> tuple[float | None, ...]:
        """Log-probability of every token of a prompt given those before it, nats; the first is None.

        Raises:
            InvalidField: the prompt is empty, or holds an image.
            FailedPrecondition: the model gives none (MISSING_CLIENT).
            BackendError: there is no valid answer.
        """
        count = _tokens(prompt)
        answer = await self._ask(LogprobsQuestion(sequence=prompt), OrchestratorCall.LOGPROBS)
        if not isinstance(answer, np.ndarray):
            raise _nonsense("a question for log-probabilities got an answer of another kind")
        if answer.shape != (count - 1,):
            raise _nonsense(f"{count:,} tokens have log-probabilities of shape {answer.shape}, not {(count - 1,)}")
        return (None, *answer.tolist())

    async def compute_argmax(self, prompt: ModelInput) -> tuple[int | None, ...]:
        """Likeliest token at every position of a prompt given those before it; the first is None.

        `UNKNOWN_TOKEN` where the orchestrator knows only that it is not the prompt's token.

        Raises:
            InvalidField: the prompt is empty, or holds an image.
            FailedPrecondition: the model does not report them (MISSING_CLIENT).
            BackendError: there is no valid answer.
        """
        count = _tokens(prompt)
        answer = await self._ask(ArgmaxQuestion(sequence=prompt), OrchestratorCall.ARGMAX)
        if not isinstance(answer, LikeliestTokens):
            raise _nonsense("a question for likeliest tokens got an answer of another kind")
        if answer.tokens.shape != (count - 1,):
            raise _nonsense(f"{count:,} tokens have likeliest ones of shape {answer.tokens.shape}, not {(count - 1,)}")
        if answer.tokens.size and (least := int(answer.tokens.min())) < UNKNOWN_TOKEN:
            raise _nonsense(f"{least} is no token id, and not {UNKNOWN_TOKEN}, which stands for an unknown one")
        return (None, *answer.tokens.tolist())

    async def forward(self, data: Sequence[Datum]) -> tuple[np.ndarray, ...]:
        """Log-probabilities of each datum's `target_tokens`, nats.

        Raises:
            InvalidField: a datum has no `target_tokens`.
            FailedPrecondition: the model makes no forward passes (MISSING_CLIENT).
            BackendError: there is no valid answer.
        """
        asked = tuple(_targets_alone(datum, index) for index, datum in enumerate(data))
        answer = await self._ask(ForwardQuestion(data=asked), OrchestratorCall.FORWARD)
        if not isinstance(answer, Forwarded) or len(answer.logprobs) != len(asked):
            raise _nonsense(f"a forward pass of {len(asked):,} data got an answer of another kind")
        for datum, array in zip(asked, answer.logprobs, strict=True):
            shape = np.shape(datum.loss_fn_inputs["target_tokens"])
            if array.shape != shape:
                raise _nonsense(f"a forward pass of targets of shape {shape} was answered with {array.shape}")
        return answer.logprobs

    async def _sample(self, question: SampleQuestion) -> tuple[SampledSequence, ...]:
        answer = await self._ask(question, OrchestratorCall.SAMPLE)
        if not isinstance(answer, tuple):
            raise _nonsense("a question for continuations got an answer of another kind")
        if len(answer) != question.num_samples:
            raise _nonsense(f"{question.num_samples:,} continuations were requested, the answer has {len(answer):,}")
        if any(exceeds(one.text) for one in answer):
            raise _nonsense(f"a continuation is longer than {MAX_TEXT_BYTES:,} bytes")
        return answer

    async def _ask(self, question: Question, call: OrchestratorCall) -> Answer:
        if call not in self._calls:
            raise FailedPrecondition(
                f"the orchestrator's model does not support {call}", reason=Reason.MISSING_CLIENT, field="model"
            )
        return await self._session.answered(question, "the orchestrator's model could not answer")


def _tokens(prompt: ModelInput) -> int:
    try:
        count = prompt.tokens().size
    except InvalidField as error:  # an image; the error has only the path within the input
        raise InvalidField(error.field.replace("model_input", "prompt", 1), error.message) from None
    if count == 0:
        raise InvalidField("prompt", "is empty: a model needs at least one token")
    return count


def _targets_alone(datum: Datum, index: int) -> Datum:
    targets = datum.loss_fn_inputs.get("target_tokens")
    if targets is None:
        raise InvalidField(f'data[{index}].loss_fn_inputs["target_tokens"]', "is missing")
    return Datum(model_input=datum.model_input, loss_fn_inputs={"target_tokens": targets})


def _nonsense(message: str) -> BackendError:
    return BackendError(message, reason=Reason.BACKEND_ANSWER, retryable=False)


# What one caller holds, at the other end of a session: a model, graders, environments.


class Caller:
    """A caller that is connected."""

    def __init__(
        self,
        session: CallerSession,
        *,
        model: RemoteOrchestratorModel | None = None,
        graders: Sequence[str] = (),
        environments: Sequence[str] = (),
    ) -> None:
        """Send questions to a session.

        Args:
            session: the connection.
            model: the caller's model; None if the model is the worker's.
            graders: names of its graders.
            environments: names of its environments.
        """
        self.model: Model | None = model
        """Its model; None if the evaluated model is the worker's."""
        self.graders = tuple(graders)
        """Names of its graders."""
        self.environments = tuple(environments)
        """Names of its environments."""
        self._session = session

    @property
    def gone(self) -> bool:
        """Whether it has disconnected."""
        return self._session.closed

    async def grade(self, question: GradeQuestion) -> AnsweredGrade:
        """Ask for a grade.

        Raises:
            BackendError: there is no valid answer.
            Unavailable: the caller has disconnected.
        """
        answer = await self._ask(question)
        if not isinstance(answer, AnsweredGrade):
            raise _nonsense("a question for a grade got an answer of another kind")
        if exceeds(answer.extracted):
            raise _nonsense(f"what was extracted is longer than {MAX_TEXT_BYTES:,} bytes")
        return answer

    async def follow(self, question: EnvironmentQuestion) -> AnsweredEnvironment:
        """Ask an environment; errors as of `grade`."""
        answer = await self._ask(question)
        if not isinstance(answer, AnsweredEnvironment):
            raise _nonsense("a question to an environment got an answer of another kind")
        if isinstance(answer.observation, str):
            texts: Sequence[str] = (answer.observation,)
        elif isinstance(answer.observation, Conversation):
            if (count := len(answer.observation.messages)) > MAX_MESSAGES:
                raise _nonsense(f"an observation has {count:,} messages, at most {MAX_MESSAGES:,} are possible")
            texts = [message.content for message in answer.observation.messages]
        else:
            texts = ()
        if any(map(exceeds, texts)):
            raise _nonsense(f"a text of an observation is longer than {MAX_TEXT_BYTES:,} bytes")
        return answer

    def new_episode(self) -> int:
        """A number for an episode, which no other one on this stream has."""
        return self._session.new_episode()

    def close_episode(self, number: int) -> None:
        """Tell it that nothing further is asked of an episode; does not wait."""
        self._session.close_episode(number)

    async def _ask(self, question: Question) -> Answer:
        return await self._session.answered(question, "the caller could not answer")


def chosen(name: str, held: Sequence[str]) -> str | None:
    """Which of the names that a caller holds an option means: an empty one is the only one; None if it is none."""
    if not name:
        return held[0] if len(held) == 1 else None
    return name if name in held else None
