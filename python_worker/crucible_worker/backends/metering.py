"""What calls of a model took: counted from what was sent and answered, or as a service reports it.

A meter is one sample's, or one batch's. A model whose service reports what an answer took passes that on, see
`Model.metered`; the calls of every other model are counted by the code that makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from crucible_bridge.types import Datum, ModelInput, SampledSequence, TokensChunk, Usage

__all__ = ["Charged", "Meter", "known_sum", "length_of"]

Charged = Callable[[int | None, int | None, int | None], None]
"""Called with the prompt tokens, output tokens and cached prompt tokens of a call; None is what was not reported."""


def known_sum(counts: Iterable[int | None]) -> int | None:
    """The sum; None if one of them is not known."""
    listed = list(counts)
    known = [count for count in listed if count is not None]
    return sum(known) if len(known) == len(listed) else None


class Meter:
    """Adds up what calls took, until it is closed; None is what was not reported.

    It has the numbers of a Usage under the same names: every sample has a meter, and only some need a Usage.
    """

    cost: ClassVar[None] = None
    judges: ClassVar[tuple[()]] = ()
    __slots__ = (
        "_charged",
        "_closed",
        "cached_prompt_tokens",
        "calls",
        "output_tokens",
        "prompt_tokens",
        "reasoning_tokens",
        "unreported_calls",
    )

    def __init__(self, charged: Charged | None = None) -> None:
        """Begin with no calls; `charged` is called with each one that was answered, also after the meter was closed."""
        self._charged = charged
        self._closed = False
        self.calls = self.unreported_calls = 0
        self.prompt_tokens: int | None = None
        self.cached_prompt_tokens: int | None = None
        self.reasoning_tokens: int | None = None
        self.output_tokens: int | None = None

    def add(
        self,
        prompt_tokens: int | None,
        output_tokens: int | None,
        cached_prompt_tokens: int | None = None,
        reasoning_tokens: int | None = None,
    ) -> None:
        """Add a call that was answered."""
        if self._charged is not None:
            self._charged(prompt_tokens, output_tokens, cached_prompt_tokens)
        if self._closed:
            return
        self.calls += 1
        if prompt_tokens is None or output_tokens is None:
            self.unreported_calls += 1
        if prompt_tokens is not None:
            self.prompt_tokens = prompt_tokens + (self.prompt_tokens or 0)
        if output_tokens is not None:
            self.output_tokens = output_tokens + (self.output_tokens or 0)
        if cached_prompt_tokens is not None:
            self.cached_prompt_tokens = cached_prompt_tokens + (self.cached_prompt_tokens or 0)
        if reasoning_tokens is not None:
            self.reasoning_tokens = reasoning_tokens + (self.reasoning_tokens or 0)

    def close(self) -> None:
        """Count nothing any more: what is answered after a sample's end is no part of its record."""
        self._closed = True

    def sampled(self, prompt: ModelInput | None, answers: Sequence[SampledSequence]) -> None:
        """Add a call for continuations of tokens, or of words if None; the prompt counts once for all of them."""
        read = cached = reasoning = None
        output: int | None = 0
        for answer in answers:
            told = answer.output_tokens
            output = None if told is None or output is None else output + told
            if answer.reasoning_tokens is not None:
                reasoning = answer.reasoning_tokens + (reasoning or 0)
        if answers:
            read, cached = answers[0].prompt_tokens, answers[0].cached_prompt_tokens
        if read is None and prompt is not None:
            read = length_of(prompt)
        self.add(read, output, cached, reasoning)

    def read(self, prompts: Iterable[ModelInput], *, further: int = 0) -> None:
        """Add a call that measures tokens, and so many further ones, and generates none."""
        total: int | None = further
        for prompt in prompts:
            length = length_of(prompt)
            total = None if length is None or total is None else total + length
        self.add(total, 0)

    def forwarded(self, data: Sequence[Datum]) -> None:
        """Add a call for a forward pass."""
        self.read(datum.model_input for datum in data)

    @property
    def usage(self) -> Usage | None:
        """What all of them took, without a cost; None where no call was answered."""
        if not self.calls:
            return None
        return Usage(
            prompt_tokens=self.prompt_tokens,
            cached_prompt_tokens=self.cached_prompt_tokens,
            reasoning_tokens=self.reasoning_tokens,
            output_tokens=self.output_tokens,
            calls=self.calls,
            unreported_calls=self.unreported_calls,
        )


def length_of(prompt: ModelInput) -> int | None:
    """Tokens of a prompt; None where an image does not say how many it takes."""
    total = 0
    for chunk in prompt.chunks:
        length = len(chunk.tokens) if isinstance(chunk, TokensChunk) else chunk.expected_tokens
        if length is None:
            return None
        total += length
    return total
