"""Test doubles: models that answer what a test says, and keep what they were asked."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from crucible_bridge.types import ChatMessage, Datum, ModelInput, SampledSequence, SamplingParams
from crucible_worker.backends.base import Capability, Model, Tokenizer
from crucible_worker.evaluators.base import SampleContext


@dataclasses.dataclass
class Letters(Tokenizer):
    """A tokenizer whose tokens are code points; without a chat template, and without a space before an answer."""

    bos_token_id: int | None = None
    eos_token_id: int | None = 0
    has_chat_template: bool = False
    target_delimiter: str | None = ""

    async def encode(self, text: str) -> Sequence[int]:
        return [ord(character) for character in text]

    async def encode_continuation(self, text: str) -> Sequence[int]:
        return await self.encode(text)

    async def encode_chat(self, messages: Sequence[ChatMessage], *, generation_prompt: bool) -> Sequence[int]:
        text = "".join(f"<{message.role}>{message.content}</>" for message in messages)
        return await self.encode(text + ("<assistant>" if generation_prompt else ""))


@dataclasses.dataclass
class Sampling(Model):
    """Answers in turn, and gives log-probabilities."""

    answers: Sequence[str] = ("46",)
    logprobs: Sequence[float | None] = ()
    stop_reason: str = "stop"
    asked: list[tuple[list[int], SamplingParams]] = dataclasses.field(default_factory=list)
    measured: list[list[int]] = dataclasses.field(default_factory=list)

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> Sequence[SampledSequence]:
        self.asked.append((prompt.tokens().tolist(), params))
        return [
            SampledSequence(text=text, tokens=(1,) * len(text), stop_reason=self.stop_reason) for text in self.answers
        ]

    async def compute_logprobs(self, prompt: ModelInput) -> Sequence[float | None]:
        self.measured.append(prompt.tokens().tolist())
        return self.logprobs


@dataclasses.dataclass
class Training(Model):
    """Gives the same log-probabilities for every datum."""

    logprobs: Sequence[float]
    data: list[Datum] = dataclasses.field(default_factory=list)

    async def forward(self, data: Sequence[Datum]) -> Sequence[np.ndarray]:
        self.data.extend(data)
        return [np.array(self.logprobs, np.float32) for _ in data]


@dataclasses.dataclass
class Double(Model):
    """A model of two sides."""

    sampling: Sampling | None = None  # pyright: ignore[reportIncompatibleMethodOverride] (a side by itself)
    training: Training | None = None  # pyright: ignore[reportIncompatibleMethodOverride] (likewise)
    tokenizer: Tokenizer | None = dataclasses.field(default_factory=Letters)
    fingerprint: str = "double"

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset().union(*(side.capabilities for side in (self.sampling, self.training) if side is not None))


def _by_side(question: Capability) -> Callable[..., Any]:
    def ask(double: Double, *arguments: Any, **options: Any) -> Any:
        for side in (double.sampling, double.training):
            if side is not None and question in side.capabilities:
                return getattr(side, question)(*arguments, **options)
        return getattr(Model, question)(double, *arguments, **options)

    return ask


for _question in Capability:
    setattr(Double, _question, _by_side(_question))


def context(model: Double, *, repeat: int = 0, seed: int = 7) -> SampleContext:
    """What an evaluator has at hand, with this model."""
    return SampleContext(model=model, repeat=repeat, seed=seed)
