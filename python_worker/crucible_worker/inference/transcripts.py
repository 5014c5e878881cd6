"""The prompts of one sample to its models, and their answers, recorded at the calls themselves.

Evaluators do nothing for it: every call through the gate is recorded. The text of a prompt in tokens is the one that
the model's tokenizer got before, or that its chat template made; if none fits, the prompt is recorded as tokens.
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
    message_text,
)
from crucible_worker.journal.contents import prompt_bytes, reply_bytes, text_bytes
from crucible_worker.util.reasoning import opening_of_prompt, parted

__all__ = ["MAX_COMPARED_TOKENS", "MAX_TEXTS", "CallListener", "Transcript"]

MAX_TEXTS = 16
"""Tokenized texts of a sample that are remembered, to find the one that became a prompt."""
MAX_COMPARED_TOKENS = 8_192
"""Tokens compared at both ends of a longer prompt: a sample's texts of equal length differ there."""


_Call: TypeAlias = tuple[str, SamplePrompt, int | None, Sequence[SampledSequence]]
"""A model's name, its prompt, the prompt's tokens, and its answers."""


class Transcript:
    """The calls of one sample, as far as there is room; used in one event loop."""

    __slots__ = ("_calls", "_dropped_calls", "_first_tokens", "_left_out", "_most", "prompt", "size")

    def __init__(self, most: int) -> None:
        """Start empty; at most `most` bytes of text are recorded."""
        self.prompt: SamplePrompt | None = None
        """The first prompt to the evaluated model; None before its first call."""
        self.size = 0
        """Bytes of text that are recorded."""
        self._left_out = self._dropped_calls = 0  # bytes of text for which there was no room, and calls
        self._first_tokens: int | None = None
        self._calls: list[_Call] = []
        self._most = most

    @property
    def left_out(self) -> int:
        """Bytes of turns that were left out for lack of room."""
        return self._left_out if len(self._calls) + self._dropped_calls > 1 else 0

    @property
    def held(self) -> int:
        """Bytes of text that are recorded, including the first prompt if there was no room for its call."""
        return self.size + (0 if self._calls else prompt_bytes(self.prompt))

    def turns(self, given: Sequence[Turn] = ()) -> tuple[Turn, ...]:
        """The turns of this sample, if there are more than one question and its answer.

        Args:
            given: turns of the evaluated model, if the evaluator reports them; then only those of further models are
                added, and before them the prompt, if the given turns begin with an answer.
        """
        if not given and len(self._calls) < 2:
            return ()
        calls = [call for call in self._calls if call[0]] if given else self._calls
        asked: list[Turn] = []
        if given and given[0].role == "assistant" and self.prompt is not None:
            asked = _turns_of(("", self.prompt, self._first_tokens, ()))
        return (*asked, *given, *chain.from_iterable(map(_turns_of, calls)))

    def _record(self, model: str, prompt: SamplePrompt, tokens: int | None, answers: Sequence[SampledSequence]) -> None:
        size = prompt_bytes(prompt)
        for answer in answers:
            size += text_bytes(answer.text)
            if answer.reasoning or answer.refusal or answer.tool_calls or answer.unparsed_tool_calls:
                size += reply_bytes(answer)
        if not model and self._first_tokens is None:
            self._first_tokens = tokens
        if self.size + size > self._most:
            self._left_out += size
            self._dropped_calls += 1
            return
        self.size += size
        self._calls.append((model, prompt, tokens, answers))


class CallListener:
    """Receives the calls of one model for one sample: the evaluated model, or a further one by its name."""

    __slots__ = ("_encoded", "_model", "_transcript")

    def __init__(self, transcript: Transcript, model: str = "") -> None:
        self._transcript, self._model = transcript, model
        self._encoded: list[tuple[str | Conversation, Sequence[int]]] = []

    def encoded(self, text: str | Conversation, tokens: Sequence[int]) -> None:
        """A text was tokenized; for a conversation, its rendered text if that is known."""
        if len(self._encoded) < MAX_TEXTS:
            self._encoded.append((text, tokens))

    def asked(self, prompt: ModelInput | str | Conversation) -> SamplePrompt:
        """The model is called with a prompt; returns the form in which it is recorded."""
        found = self._text_of(prompt) if isinstance(prompt, ModelInput) else prompt
        if self._transcript.prompt is None and not self._model:
            self._transcript.prompt = found
        return found

    def answered(
        self, prompt: SamplePrompt, given: ModelInput | str | Conversation, answers: Sequence[SampledSequence]
    ) -> None:
        """The model has answered a prompt."""
        told = answers[0].prompt_tokens if answers else None
        count = _length(given) if isinstance(given, ModelInput) else told
        self._transcript._record(self._model, prompt, count, answers)

    def _text_of(self, prompt: ModelInput) -> SamplePrompt:
        first = prompt.chunks[0] if prompt.chunks else None
        if len(prompt.chunks) != 1 or not isinstance(first, TokensChunk):
            return TokenPrompt(_length(prompt))
        count = len(first.tokens)
        best, text = 0, None
        # A prompt for generation is as long as its text; measured sequences continue it, or are a window of it.
        for known, tokens in self._encoded:
            common = min(len(tokens), count)
            if common > best and _equal(first.tokens, tokens, common):
                best, text = common, known
        return TokenPrompt(count) if text is None else text


def _equal(tokens: np.ndarray, others: Sequence[int], count: int) -> bool:
    """Whether the first `count` tokens of both are equal."""
    if count <= 2 * MAX_COMPARED_TOKENS:
        whole = len(others) == len(tokens) == count
        return tokens.tolist() == list(others) if whole else tokens[:count].tolist() == list(others[:count])
    return all(
        tokens[part].tolist() == list(others[part])
        for part in (slice(0, MAX_COMPARED_TOKENS), slice(count - MAX_COMPARED_TOKENS, count))
    )


def _length(prompt: ModelInput) -> int:
    """Tokens of a prompt; an image without a known number of tokens counts as none."""
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
    turns = [Turn(role=message.role, text=message_text(message), model=model) for message in asked]
    if turns:
        # The tokens of the whole prompt are counted with its last turn.
        turns[-1] = dataclasses.replace(turns[-1], tokens=prompt_tokens)
    opening = opening_of_prompt(prompt) if isinstance(prompt, str) else ""
    return turns + [_turn_of(model, answer, opening) for answer in answers]


def _turn_of(model: str, answer: SampledSequence, opening: str) -> Turn:
    written = parted(answer.text, opening="" if answer.reasoning else opening).reasoning
    return Turn(
        role="assistant",
        text=answer.text,
        tokens=answer.output_tokens,
        model=model,
        reasoning="\n\n".join(filter(None, (answer.reasoning, written))),
        refusal=answer.refusal,
        tool_calls=answer.tool_calls,
        unparsed_tool_calls=answer.unparsed_tool_calls,
    )
