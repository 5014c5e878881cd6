"""A model in place of another one: every question passes one method, which a subclass defines."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import CoroutineType
from typing import Any

from crucible_bridge.types import Conversation, Datum, ModelInput, SamplingParams
from crucible_worker.backends.base import Capability, Model, Reading, Tokenizer
from crucible_worker.backends.distributions import Wanted

__all__ = ["WrappedModel"]


class WrappedModel(Model):
    """A model with the properties of another one.

    Every sample has one: its methods make no object but the arguments, and its attributes are read when they are
    needed.
    """

    __slots__ = ("_model",)

    def __init__(self, model: Model) -> None:
        """Wrap a model."""
        self._model = model

    @abc.abstractmethod
    async def _through(
        self,
        question: Capability,
        method: Callable[..., Awaitable[Any]],
        arguments: tuple[Any, ...],
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer a question.

        Args:
            question: which.
            method: the wrapped model's answer to it.
            arguments: what `method` takes by position; the first is the prompt or the data.
            options: what it takes by name.
        """

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The model's."""
        return self._model.capabilities

    @property
    def fingerprint(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        """The model's."""
        return self._model.fingerprint

    @property
    def evaluated_fingerprint(self) -> str:
        """The model's."""
        return self._model.evaluated_fingerprint

    @property
    def context_length(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        """The model's."""
        return self._model.context_length

    @property
    def tokenizer(self) -> Tokenizer | None:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        """The model's."""
        return self._model.tokenizer

    @property
    def renderer(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        """The model's."""
        return self._model.renderer

    @property
    def reading(self) -> Reading:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        """The model's."""
        return self._model.reading

    def sample(self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1) -> CoroutineType[Any, Any, Any]:
        """Through `_through`, as all that follow."""
        return self._through(_SAMPLE, self._model.sample, (prompt, params, num_samples))

    def sample_text(
        self, input: str | Conversation, params: SamplingParams, num_samples: int = 1, *, plain: bool = False
    ) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(
            Capability.SAMPLE_TEXT, self._model.sample_text, (input, params, num_samples), {"plain": plain}
        )

    def compute_logprobs(self, prompt: ModelInput) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(Capability.LOGPROBS, self._model.compute_logprobs, (prompt,))

    def probe_logprobs(self, prompt: ModelInput) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(Capability.PROBE, self._model.probe_logprobs, (prompt,))

    def compute_target_logprobs(
        self, prompt: ModelInput, targets: Sequence[tuple[int, int]]
    ) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(Capability.TARGETS, self._model.compute_target_logprobs, (prompt, targets))

    def compute_continuation_logprobs(
        self, prompt: ModelInput, continuations: Sequence[Sequence[int]]
    ) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(
            Capability.CONTINUATIONS, self._model.compute_continuation_logprobs, (prompt, continuations)
        )

    def compute_argmax(self, prompt: ModelInput) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(Capability.ARGMAX, self._model.compute_argmax, (prompt,))

    def compute_distributions(self, prompt: ModelInput, wanted: Wanted) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(Capability.DISTRIBUTIONS, self._model.compute_distributions, (prompt, wanted))

    def sample_with_top(
        self, input: ModelInput | str | Conversation, params: SamplingParams, num_samples: int, top: int
    ) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(Capability.SAMPLE_TOP, self._model.sample_with_top, (input, params, num_samples, top))

    def forward(self, data: Sequence[Datum]) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(Capability.FORWARD, self._model.forward, (data,))

    def forward_parts(self, data: Sequence[Datum]) -> CoroutineType[Any, Any, Any]:
        """See `Model`."""
        return self._through(Capability.PARTS, self._model.forward_parts, (data,))


_SAMPLE = Capability.SAMPLE  # a global name costs less than an attribute of an enumeration
