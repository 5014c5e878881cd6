"""What one sample asked its models, and what they said, noted at the calls themselves.

No evaluator does anything for it: whatever passes the gate is heard. The text of a prompt in tokens is the one that the
model's tokenizer was given before, or that its chat template made; where none fits, it was tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import chain
from typing import TypeAlias

import numpy as np

from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    ModelInput,
    SampledSequence,
    SamplePrompt,
    TokenPrompt,
    TokensChunk,
    Turn,
)
from crucible_worker.runs.journal.contents import prompt_bytes, text_bytes

__all__ = ["MAX_COMPARED_TOKENS", "MAX_TEXTS", "Ear", "Transcript"]

MAX_TEXTS = 16
"""Texts that a sample had made into tokens, of which the one is found that became a prompt."""
MAX_COMPARED_TOKENS = 8_192
"""Of longer prompts so many tokens at both ends are compared: a sample's texts of one length differ there."""


_Call: TypeAlias = tuple[str, SamplePrompt, int | None, Sequence[SampledSequence]]
"""A model's name, its prompt with the tokens of that, and its answers."""


class Transcript:
    """The calls of one sample, as far as there is room; of one event loop."""

    __slots__ = ("_calls", "_first_tokens", "_left_out", "_most", "_unheard", "prompt", "size")

    def __init__(self, most: int) -> None:
        """Hear nothing yet; so many bytes of text are held at most."""
        self.prompt: SamplePrompt | None = None
        """What the model that is evaluated got first; None before it was called."""
        self.size = 0
        """Bytes of text that are held."""
        self._left_out = self._unheard = 0  # bytes of text for which there was no room, and calls
        self._first_tokens: int | None = None
        self._calls: list[_Call] = []
        self._most = most

    @property
    def left_out(self) -> int:
        """Bytes of turns for which there was no room."""
        return self._left_out if len(self._calls) + self._unheard > 1 else 0

    @property
    def held(self) -> int:
        """Bytes of text that are held, those of a prompt included for whose call there was no room."""
        return self.size + (0 if self._calls else prompt_bytes(self.prompt))

    def ear(self, model: str = "") -> Ear:
        """What listens to one model: the one that is evaluated, or a further one by its name."""
        return Ear(self, model)

    def turns(self, given: Sequence[Turn] = ()) -> tuple[Turn, ...]:
        """The turns of this sample, where there are more than one question and its answer.

        Args:
            given: turns of the evaluated model, as the evaluator tells them; then only those of further models are
                added, and the prompt where they begin with what was said to it.
        """
        if not given and len(self._calls) < 2:
            return ()
        calls = [call for call in self._calls if call[0]] if given else self._calls
        asked: list[Turn] = []
        if given and given[0].role == "assistant" and self.prompt is not None:
            asked = _turns_of(("", self.prompt, self._first_tokens, ()))
        return (*asked, *given, *chain.from_iterable(map(_turns_of, calls)))

    def _keep(self, model: str, prompt: SamplePrompt, tokens: int | None, answers: Sequence[SampledSequence]) -> None:
        size = prompt_bytes(prompt)
        for answer in answers:
            size += text_bytes(answer.text)
        if not model and self._first_tokens is None:
            self._first_tokens = tokens
        if self.size + size > self._most:
            self._left_out += size
            self._unheard += 1
            return
        self.size += size
        self._calls.append((model, prompt, tokens, answers))


class Ear:
    """Hears the calls of one model for one sample."""

    __slots__ = ("_encoded", "_model", "_transcript")

    def __init__(self, transcript: Transcript, model: str) -> None:
        self._transcript, self._model = transcript, model
        self._encoded: list[tuple[str | Conversation, Sequence[int]]] = []

    def encoded(self, text: str | Conversation, tokens: Sequence[int]) -> None:
        """A text was made into tokens: of a conversation, the text that a template made of it, where that is known."""
        if len(self._encoded) < MAX_TEXTS:
            self._encoded.append((text, tokens))

    def asked(self, prompt: ModelInput | str | Conversation) -> SamplePrompt:
        """The model is called with a prompt; in the form in which it is recorded."""
        found = self._text_of(prompt) if isinstance(prompt, ModelInput) else prompt
        if self._transcript.prompt is None and not self._model:
            self._transcript.prompt = found
        return found

    def answered(
        self, prompt: SamplePrompt, given: ModelInput | str | Conversation, answers: Sequence[SampledSequence]
    ) -> None:
        """It has answered a prompt that it was asked."""
        told = answers[0].prompt_tokens if answers else None
        count = _length(given) if isinstance(given, ModelInput) else told
        self._transcript._keep(self._model, prompt, count, answers)

    def _text_of(self, prompt: ModelInput) -> SamplePrompt:
        first = prompt.chunks[0] if prompt.chunks else None
        if len(prompt.chunks) != 1 or not isinstance(first, TokensChunk):
            return TokenPrompt(_length(prompt))
        count = len(first.tokens)
        best, text = 0, None
        # Prompts are as long as their text; what is measured goes on from it, or is a window of it.
        for known, tokens in self._encoded:
            common = min(len(tokens), count)
            if common > best and _equal(first.tokens, tokens, common):
                best, text = common, known
        return TokenPrompt(count) if text is None else text


def _equal(tokens: np.ndarray, others: Sequence[int], count: int) -> bool:
    """Whether two begin with the same tokens, so many."""
    if count <= 2 * MAX_COMPARED_TOKENS:
        whole = len(others) == len(tokens) == count
        return tokens.tolist() == list(others) if whole else tokens[:count].tolist() == list(others[:count])
    return all(
        tokens[part].tolist() == list(others[part])
        for part in (slice(0, MAX_COMPARED_TOKENS), slice(count - MAX_COMPARED_TOKENS, count))
    )


def _length(prompt: ModelInput) -> int:
    """Tokens of a prompt; an image that does not say how many it takes counts as none."""
    count = 0
    for chunk in prompt.chunks:
        count += len(chunk.tokens) if isinstance(chunk, TokensChunk) else chunk.expected_tokens or 0
    return count


def _turns_of(call: _Call) -> list[Turn]:
    model, prompt, prompt_tokens, answers = call
    match prompt:
        case Conversation(messages):
            asked = list(messages)
        case str(text):
            asked = [ChatMessage("user", text)]
        case TokenPrompt():
            asked = [ChatMessage("user", "")]
    turns = [Turn(role=message.role, text=message.content, model=model) for message in asked]
    if turns:
        # All that the model saw is counted with the last of it.
        turns[-1] = dataclasses.replace(turns[-1], tokens=prompt_tokens)
    said = [Turn(role="assistant", text=answer.text, tokens=answer.output_tokens, model=model) for answer in answers]
    return turns + said
