"""What the endpoint of OpenAI's API answers: completions, messages, log-probabilities and errors as JSON."""

from __future__ import annotations

import dataclasses
import math
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from crucible_bridge.errors import BackendError, BridgeError, Code, Unauthenticated
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import ModelInput, SampledItem, SampledSequence, SequenceLogprobs
from crucible_worker.backends.base import Tokenizer
from crucible_worker.backends.distributions import NO_TOKEN
from crucible_worker.web.openai_bodies import OpenAICall

__all__ = ["OpenAIResult", "TokenTexts", "error_of_openai", "ids_of", "reply_of", "size_of", "stream_of", "tokens_in"]

IMPOSSIBLE = -9999.0
"""The log-probability of a token that the model considers impossible: JSON has no infinity."""

_HEAD_BYTES, _ROW_BYTES = 200, 60
"""Of a choice without its text, and of a token with its log-probability, about."""

_STATUS: Mapping[Code, int] = {
    Code.INVALID_ARGUMENT: 400,
    Code.FAILED_PRECONDITION: 400,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 400,
    Code.UNAUTHENTICATED: 401,
    Code.PERMISSION_DENIED: 403,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.CANCELLED: 499,
    Code.UNAVAILABLE: 503,
    Code.DEADLINE_EXCEEDED: 504,
}
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES: Mapping[str, str] = {
    Reason.PROMPT_TOO_LONG: "context_length_exceeded",
    Reason.UNKNOWN_MODEL: "model_not_found",
    Reason.NO_BACKEND: "model_not_found",
    Reason.WRONG_TOKEN: "invalid_api_key",
    Reason.MISSING_TOKEN: "invalid_api_key",
    Reason.TOO_MANY_CALLS: "rate_limit_exceeded",
}
"""What OpenAI calls a reason; others keep their names."""


def error_of_openai(
    error: BridgeError, status: int | None = None, *, chat: bool = False
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """An error as a status, a body and headers.

    Args:
        error: the error.
        status: the status; that of its code if None.
        chat: whether the request has messages in place of a prompt.
    """
    if status is None:
        status = _STATUS.get(error.code, 500)
        if status == 429 and not error.retryable:
            status = 400
        elif error.reason == Reason.NO_BACKEND:
            status = 404
        elif status == 503 and isinstance(error, BackendError) and not error.retryable:
            status = 502
    headers = {} if error.retry_after is None else {"retry-after": str(math.ceil(error.retry_after))}
    if isinstance(error, Unauthenticated):
        headers["www-authenticate"] = "Bearer"
    field = _parameter(error.field, chat=chat)
    body = {
        "message": shorten(f"{field} {error.message}" if field else error.message, MAX_PROBLEM_BYTES),
        "type": _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error"),
        "param": field or None,
        "code": _CODES.get(error.reason, error.reason),
    }
    return status, {"error": body}, headers


def _parameter(field: str, *, chat: bool) -> str:
    """The parameter of OpenAI's API that a field of the worker's request was made from."""
    if field.startswith("items["):
        field = field.partition("].")[2] or "prompt"
    if field.startswith("sampling."):
        return field.removeprefix("sampling.")
    if chat and field.startswith("prompt"):
        return "messages"
    return {"num_samples": "n", "top_k": "logprobs"}.get(field, field)


class TokenTexts:
    """The text of each token of an answer, read once."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}

    async def read(self, tokenizer: Tokenizer | None, tokens: set[int]) -> None:
        """Find the text of tokens; those of a model whose tokenizer is not at hand are called by their ids."""
        ids = sorted(tokens)
        texts: Sequence[str] = [f"token_id:{token}" for token in ids]
        if tokenizer is not None and ids:
            try:
                texts = await tokenizer.detokenize([[token] for token in ids], skip_special_tokens=False)
            except BridgeError as error:
                if error.reason != Reason.NO_TOKENIZER:
                    raise
        self._texts = dict(zip(ids, texts))

    def __getitem__(self, token: int) -> str:
        """The text of a token that was read."""
        return self._texts[int(token)]


@dataclasses.dataclass(slots=True)
class _Row:
    """A token with its log-probability, None for the first one of a prompt, and the likeliest ones in its place."""

    token: int
    logprob: float | None
    likeliest: Sequence[tuple[int, float]] = ()


def _finite(value: float) -> float:
    return float(value) if math.isfinite(value) else IMPOSSIBLE


def _pairs(tokens: np.ndarray | None, logprobs: np.ndarray | None, row: int) -> Sequence[tuple[int, float]]:
    if tokens is None or logprobs is None:
        return ()
    found = zip(tokens[row].tolist(), logprobs[row].tolist())
    return [(token, _finite(value)) for token, value in found if token != NO_TOKEN]


def _rows_of_prompt(tokens: Sequence[int], measured: SequenceLogprobs) -> list[_Row]:
    assert measured.logprobs is not None
    rows = [_Row(token, None) for token in tokens[: measured.first]]
    for index, token in enumerate(tokens[measured.first :]):
        tops = _pairs(measured.top_tokens, measured.top_logprobs, index)
        rows.append(_Row(token, _finite(measured.logprobs[index]), tops))
    return rows


def _rows_of_sequence(sequence: SampledSequence) -> list[_Row]:
    given = sequence.logprobs or ()
    return [
        _Row(token, _finite(value), _pairs(sequence.top_tokens, sequence.top_logprobs, index))
        for index, (token, value) in enumerate(zip(sequence.tokens, given))
    ]


def _completion_logprobs(rows: Sequence[_Row], texts: TokenTexts, top: int) -> dict[str, Any]:
    pieces = [texts[row.token] for row in rows]
    offsets, at = [], 0
    for piece in pieces:
        offsets.append(at)
        at += len(piece)
    tops: list[dict[str, float] | None] = []
    for row in rows:
        if row.logprob is None:
            tops.append(None)
            continue
        found: dict[str, float] = {}
        for token, value in (*row.likeliest, (row.token, row.logprob)):
            found.setdefault(texts[token], value)  # the likeliest one of several tokens with one text
        tops.append(found)
    return {
        "tokens": pieces,
        "token_logprobs": [row.logprob for row in rows],
        "top_logprobs": tops if top else None,
        "text_offset": offsets,
    }


def _chat_logprobs(rows: Sequence[_Row], texts: TokenTexts) -> dict[str, Any]:
    def entry(token: int, value: float | None) -> dict[str, Any]:
        text = texts[token]
        # A token that is a part of a character has no text of its own, and so no bytes that are known.
        known = None if "\ufffd" in text else list(text.encode("utf-8", "replace"))
        return {"token": text, "logprob": value, "bytes": known}

    content = [
        {**entry(row.token, row.logprob), "top_logprobs": [entry(*one) for one in row.likeliest]} for row in rows
    ]
    return {"content": content, "refusal": None}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIResult:
    """What the models answered to a request, for each of its prompts."""

    items: Sequence[SampledItem | None]
    """The continuations; None if none were wanted."""
    measured: Sequence[SequenceLogprobs | None]
    """Log-probabilities of the prompts; None if they are not wanted."""
    prompt_tokens: Sequence[Sequence[int]]
    """The prompts' tokens, where the answer has them; else empty."""
    prompt_texts: Sequence[str]
    """The prompts' texts, if the answer repeats them."""
    fingerprint: str
    """Of the checkpoint."""
    texts: TokenTexts
    """The text of tokens."""


def tokens_in(answered: OpenAIResult) -> set[int]:
    """All tokens whose text an answer with log-probabilities has."""
    found: set[int] = set()
    for prompt, item, measured in zip(answered.prompt_tokens, answered.items, answered.measured):
        found.update(prompt)
        columns = [] if measured is None else [measured.top_tokens]
        for sequence in () if item is None else item.sequences:
            found.update(sequence.tokens)
            columns.append(sequence.top_tokens)
        for column in columns:
            if column is not None:
                found.update(np.unique(column).tolist())
    return found - {NO_TOKEN}


def _choices(call: OpenAICall, answered: OpenAIResult) -> Iterator[dict[str, Any]]:
    for place, item in enumerate(answered.items):
        measured = answered.measured[place]
        prompt = [] if measured is None else _rows_of_prompt(answered.prompt_tokens[place], measured)
        begin = answered.prompt_texts[place] if call.echo else ""
        sequences = [None] * call.count if item is None else item.sequences
        for repeat, sequence in enumerate(sequences):
            index = place * call.count + repeat
            rows = [*prompt, *(() if sequence is None else _rows_of_sequence(sequence))]
            reason = "length" if sequence is None else sequence.stop_reason or None
            logprobs: Any = None
            if call.logprobs is not None and call.chat:
                logprobs = _chat_logprobs(rows, answered.texts)
            elif call.logprobs is not None:
                logprobs = _completion_logprobs(rows, answered.texts, call.logprobs)
            text = begin + ("" if sequence is None else sequence.text)
            content = {"message": _said(sequence)} if call.chat and sequence is not None else {"text": text}
            yield {"index": index, **content, "logprobs": logprobs, "finish_reason": reason}


def _said(sequence: SampledSequence) -> dict[str, Any]:
    """The message of the assistant; a server's calls of tools are in it, as their texts are what was generated."""
    said: dict[str, Any] = {"role": "assistant", "content": sequence.text, "refusal": sequence.refusal or None}
    if sequence.tool_calls:
        said["tool_calls"] = [
            {
                "id": call.id or f"call_{index}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for index, call in enumerate(sequence.tool_calls)
        ]
    return said


def _usage(answered: OpenAIResult) -> dict[str, Any] | None:
    """Tokens of the request; None if a backend does not report them."""
    prompt: list[int | None] = []
    output: list[int | None] = []
    cached: list[int | None] = []
    reasoning: list[int | None] = []
    for tokens, item in zip(answered.prompt_tokens, answered.items):
        if item is None:
            prompt.append(len(tokens) or None)
            continue
        prompt.append(item.prompt_tokens)
        output += [sequence.output_tokens for sequence in item.sequences]
        cached += [sequence.cached_prompt_tokens for sequence in item.sequences[:1]]
        reasoning += [sequence.reasoning_tokens for sequence in item.sequences]
    read, made = _sum(prompt), _sum(output)
    if read is None or made is None:
        return None
    usage: dict[str, Any] = {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}
    if cached and (taken := _sum(cached)) is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": taken}
    if reasoning and (thought := _sum(reasoning)) is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": thought}
    return usage


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def size_of(call: OpenAICall, answered: OpenAIResult) -> int:
    """About how many bytes an answer has: many are written in a thread."""
    size = call.count * sum(map(len, answered.prompt_texts))
    for item, measured in zip(answered.items, answered.measured):
        sequences = () if item is None else item.sequences
        size += sum(_HEAD_BYTES + len(sequence.text) for sequence in sequences)
        if call.logprobs is not None:
            rows = 0 if measured is None or measured.logprobs is None else len(measured.logprobs) * call.count
            rows += sum(len(sequence.tokens) for sequence in sequences)
            size += rows * _ROW_BYTES * (1 + call.logprobs)
    return size


def _head(call: OpenAICall, answered: OpenAIResult, kind: str) -> dict[str, Any]:
    return {
        "id": f"{'chatcmpl' if call.chat else 'cmpl'}-{secrets.token_hex(12)}",
        "object": kind,
        "created": int(time.time()),
        "model": call.name,
        "system_fingerprint": answered.fingerprint,
    }


def reply_of(call: OpenAICall, answered: OpenAIResult) -> dict[str, Any]:
    """The answer as one object."""
    head = _head(call, answered, "chat.completion" if call.chat else "text_completion")
    usage = _usage(answered)
    return {**head, "choices": list(_choices(call, answered)), **({} if usage is None else {"usage": usage})}


def stream_of(call: OpenAICall, answered: OpenAIResult) -> Iterator[dict[str, Any]]:
    """The pieces of a stream: for each choice its text, then its end; at last the usage, if it is wanted and known."""
    head = _head(call, answered, "chat.completion.chunk" if call.chat else "text_completion")
    for choice in _choices(call, answered):
        end = {"index": choice["index"], "logprobs": None, "finish_reason": choice["finish_reason"]}
        if call.chat:
            calls = [{"index": index, **one} for index, one in enumerate(choice["message"].get("tool_calls", ()))]
            delta = {**choice.pop("message"), **({"tool_calls": calls} if calls else {})}
            pieces = [{**choice, "delta": delta, "finish_reason": None}, {**end, "delta": {}}]
        else:
            pieces = [{**choice, "finish_reason": None}, {**end, "text": ""}]
        yield from ({**head, "choices": [piece]} for piece in pieces)
    if call.stream_usage and (usage := _usage(answered)) is not None:
        yield {**head, "choices": [], "usage": usage}


def ids_of(prompt: object) -> Sequence[int]:
    """The token ids of a prompt in tokens; none of any other."""
    return prompt.tokens().tolist() if isinstance(prompt, ModelInput) else ()
