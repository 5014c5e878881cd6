"""Requests and their rows: their state while tokens are generated."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from crucible_worker.backends.local.arrays import floats_to_bytes, tokens_to_bytes
from crucible_worker.backends.local.host.decoding import decoded_answer
from crucible_worker.backends.local.host.loading import LoadedModel
from crucible_worker.backends.local.host.sampling import Choice, Chooser
from crucible_worker.util.reasoning import OPENING_TOKENS, opening_of_prompt, parted, turned

__all__ = ["Request", "TokenRow", "make_rows"]


@dataclasses.dataclass(slots=True)
class Request:
    """A request of the worker; it is answered when each of its parts has a result."""

    identity: int
    """Its id on the pipe."""
    results: list[Any]
    """One result per sample or scored sequence; None until it is known."""
    over: bool = False
    """Whether it was answered, failed or was aborted: its remaining work is dropped."""

    _missing: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self._missing = len(self.results)

    def take(self, index: int, result: Any) -> bool:
        """Store the result of a part; returns whether all parts have one now."""
        self.results[index] = result
        self._missing -= 1
        return self._missing == 0


class TokenRow:
    """One sample of one request, token by token."""

    def __init__(
        self,
        *,
        request: Request,
        index: int,
        prompt: Sequence[int],
        limit: int,
        stop: Sequence[str],
        stop_tokens: frozenset[int],
        opening: str,
        chooser: Chooser,
    ) -> None:
        self.request = request
        self.index = index
        self.prompt = prompt
        self.limit = limit
        self.chooser = chooser
        self.tokens: list[int] = []
        self._logprobs: list[float] = []
        self._tops: list[tuple[np.ndarray, np.ndarray]] = []
        self._stop = stop
        self._stop_tokens = stop_tokens
        self._opening = self._inside = opening
        # Where the present part of the output begins, reasoning or answer: the text of the tokens before it that
        # belongs to it already, and the index of the next token.
        self._carried, self._begin = "", 0
        # Every token except special ones has at least a byte of text: so many tokens contain any stop string that the
        # last token can have completed. Only they are decoded for each new token, not the whole text.
        self._tail = max((len(text.encode()) for text in stop), default=0) + 8

    @property
    def length(self) -> int:
        """Number of tokens so far, including the prompt."""
        return len(self.prompt) + len(self.tokens)

    @property
    def capacity(self) -> int:
        """Most tokens that it may get."""
        return len(self.prompt) + self.limit

    def accept(self, choice: Choice, loaded: LoadedModel) -> dict[str, Any] | None:
        """Append a token; returns the row's result if that was its last one.

        Returns:
            `text`, `tokens`, `logprobs`, `stop_reason`, `top_tokens` and `top_logprobs` (bytes, empty if they are not
            wanted), or None if the row continues.
        """
        self.tokens.append(choice.token)
        self._logprobs.append(choice.logprob)
        if choice.top is not None:
            self._tops.append(choice.top)
        if choice.token in self._stop_tokens or self._stopped(loaded):
            return self._result(loaded, "stop")
        return self._result(loaded, "length") if len(self.tokens) >= self.limit else None

    def _stopped(self, loaded: LoadedModel) -> bool:
        """Whether a stop string ends the answer: one within reasoning does not."""
        if not self._stop:
            return False
        begin = len(self.tokens) - self._tail
        if begin <= self._begin:
            tail = self._carried + _decode(loaded, self.tokens[self._begin :])
        else:
            tail = _decode(loaded, self.tokens[begin:])
        turn = turned(tail, self._inside)
        if not self._inside and any(stop in tail for stop in self._stop) and self._ended(loaded)[1]:
            return True
        if turn is not None:
            self._inside, self._carried, self._begin = turn.inside, tail[turn.end :], len(self.tokens)
            if not self._inside and any(stop in self._carried for stop in self._stop):
                return self._ended(loaded)[1]
        return False

    def _ended(self, loaded: LoadedModel) -> tuple[str, bool]:
        """The text up to the stop string that ends the answer, and whether there is one."""
        text = _decode(loaded, self.tokens)
        end = parted(text, opening=self._opening, stops=self._stop).end
        return text[:end], end < len(text)

    def _result(self, loaded: LoadedModel, reason: str) -> dict[str, Any]:
        text, stopped = self._ended(loaded)
        return {
            "text": text,
            "tokens": self.tokens,
            "logprobs": self._logprobs,
            "stop_reason": "stop" if stopped else reason,
            "top_tokens": tokens_to_bytes(np.array([tokens for tokens, _ in self._tops], np.int64)),
            "top_logprobs": floats_to_bytes(np.array([values for _, values in self._tops], np.float64)),
        }


def make_rows(request: Request, prompt: Sequence[int], message: dict[str, Any], loaded: LoadedModel) -> list[TokenRow]:
    """The rows of a request for samples: one per sample."""
    stop_tokens = loaded.stop_tokens | _special(message["stop"], loaded)
    opening = _opening(prompt, loaded) if message["stop"] else ""
    return [
        TokenRow(
            request=request,
            index=index,
            prompt=prompt,
            limit=message["max_tokens"],
            stop=message["stop"],
            stop_tokens=stop_tokens,
            opening=opening,
            chooser=Chooser(
                temperature=message["temperature"],
                top_p=message["top_p"],
                top_k=message["top_k"],
                seed=message["seed"],
                index=index,
                top=message["top"],
            ),
        )
        for index in range(len(request.results))
    ]


def _special(stop: Sequence[str], loaded: LoadedModel) -> frozenset[int]:
    """The special tokens that stop strings name: they have no text in an answer, so a text search would miss them.

    Those that mark reasoning have one.
    """
    if not stop or loaded.tokenizer is None:
        return frozenset()
    added = loaded.tokenizer.added_tokens_decoder
    named = (index for index, token in added.items() if token.special and token.content in stop)
    return frozenset(index for index in named if index not in loaded.marks)


def _opening(prompt: Sequence[int], loaded: LoadedModel) -> str:
    """The tag of reasoning with which a prompt ends."""
    if loaded.tokenizer is None:
        return ""
    end = loaded.tokenizer.decode(
        list(prompt[-OPENING_TOKENS:]), skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    return opening_of_prompt(end)


def _decode(loaded: LoadedModel, tokens: list[int]) -> str:
    if loaded.tokenizer is None:
        return ""
    return decoded_answer(loaded.tokenizer, loaded.marks, tokens)
