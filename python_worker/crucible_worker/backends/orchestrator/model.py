"""A model that stays with its orchestrator: every call is a question, and every answer is checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Answer,
    ArgmaxQuestion,
    Conversation,
    Datum,
    Forwarded,
    ForwardQuestion,
    LikeliestTokens,
    LogprobsQuestion,
    ModelInput,
    OrchestratorCall,
    Question,
    SampledSequence,
    SampleQuestion,
    SamplingParams,
)
from crucible_worker.backends.base import MAX_TEXT_BYTES, UNKNOWN_TOKEN, Capability, Model, exceeds
from crucible_worker.backends.orchestrator.session import CallerSession

__all__ = ["RemoteOrchestratorModel"]

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
        """Request continuations of text or a conversation, which the orchestrator renders; errors as of `sample`."""
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
