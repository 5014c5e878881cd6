"""JSON from a server, in one piece or as a stream, parsed without trust: the request bounds the cost of its answer.

Bytes and values are bounded before parsing. Both bounds grow with the tokens that an answer may list, up to 64 MiB:
250,000 tokens of a prompt fit. Parsing JSON holds the interpreter's lock from the first byte to the last, so another
process parses an answer that may take long, see `reading`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from crucible_worker.backends.openai.failures import garbage, repeated

__all__ = [
    "APART_BYTES",
    "MAX_ANSWER_BYTES",
    "InvalidAnswer",
    "InvalidStream",
    "apart",
    "is_stream",
    "joined",
    "max_bytes",
    "max_parts",
    "parse",
    "read_document",
    "takes_long",
]

# Answers that arrive as a stream of events although none was requested: joined to the one document that they are.
#
#     data: {"choices": [{"index": 0, "delta": {"content": "4"}}]}
#
#     data: {"choices": [{"index": 0, "delta": {"content": "6"}, "finish_reason": "stop"}]}
#
#     data: [DONE]
#
# is the answer "46".

_BEGINS = (b"data:", b"event:", b"id:", b"retry:", b":")
_DONE = "[DONE]"
_JOINED = frozenset({"content", "text", "reasoning_content", "reasoning", "thinking", "refusal", "arguments"})
"""Texts that arrive in pieces."""
_MAX_CHOICES = 2
"""Only one is read; a second one shows that there are too many."""


class InvalidStream(ValueError):
    """Raised for a stream that is no answer; the message says what was received."""


def is_stream(content: bytes) -> bool:
    """Whether an answer is a stream of events."""
    return content[:64].lstrip().startswith(_BEGINS)


def joined(content: bytes) -> dict[str, Any]:
    """The document whose pieces are the events of a stream; an error among them is the document.

    Raises:
        InvalidStream: an event is not a JSON object, or the stream ends before the answer does.
        RecursionError: an event is nested too deeply.
    """
    whole: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    ended = False
    for data in _events(content):
        if ended := data == _DONE:
            break
        try:
            event = json.loads(data)
        except ValueError:
            raise InvalidStream(f"a stream of events with one that is not JSON: {data[:300]}") from None
        if not isinstance(event, dict):
            raise InvalidStream(f"a stream of events with one that is {type(event).__name__}")
        if event.get("error") or event.get("object") == "error":
            return {"error": event.get("error") or event}
        pieces = event.pop("choices", None)
        whole.update({key: value for key, value in event.items() if value is not None or key not in whole})
        for piece in pieces if isinstance(pieces, list) else ():
            if not isinstance(piece, dict):
                raise InvalidStream(f"a stream of events with a choice that is {type(piece).__name__}")
            index = piece.get("index", 0)
            if isinstance(index, int) and (index in choices or len(choices) < _MAX_CHOICES):
                _add_choice(choices.setdefault(index, {}), piece)
    if not ended and not any(choice.get("finish_reason") for choice in choices.values()):
        raise InvalidStream("a stream of events that ends before the answer does")
    return {**whole, "choices": [_whole(choice) for _, choice in sorted(choices.items())]}


def _events(content: bytes) -> Iterator[str]:
    """The data of each event."""
    lines: list[str] = []
    # Not `splitlines`: a text in JSON may hold further separators of lines.
    for line in content.replace(b"\r\n", b"\n").replace(b"\r", b"\n").decode("utf-8", "replace").split("\n"):
        if line.startswith("data:"):
            lines.append(line[5:].removeprefix(" "))
        elif not line and lines:
            yield "\n".join(lines)
            lines = []
    if lines:
        yield "\n".join(lines)


def _add_choice(whole: dict[str, Any], piece: dict[str, Any]) -> None:
    """Add a piece of a choice. Some servers send the message so far next to each piece of it, or once at the end."""
    if piece.get("delta"):
        piece = {name: value for name, value in piece.items() if name != "message"}
    elif piece.get("message"):
        whole.pop("message", None)
    _add(whole, piece)


def _add(whole: dict[str, Any], piece: dict[str, Any]) -> None:
    """Add a piece of an object: texts and lists as lists of pieces, which `_whole` joins."""
    for name, value in piece.items():
        key = "message" if name == "delta" else name
        before = whole.get(key)
        if value is None:
            whole.setdefault(key, None)
        elif key == "tool_calls" and isinstance(value, list):
            _add_calls(whole, value)
        elif isinstance(value, dict):
            if not isinstance(before, dict):
                before = whole[key] = {}
            _add(before, value)
        elif isinstance(value, list) or (isinstance(value, str) and key in _JOINED):
            if not isinstance(before, _Pieces):
                before = whole[key] = _Pieces()
            before.append(value)
        else:
            whole[key] = value


def _add_calls(message: dict[str, Any], calls: list[Any]) -> None:
    known = message.get("tool_calls")
    if not isinstance(known, dict):
        known = message["tool_calls"] = {}
    for place, call in enumerate(calls):
        if isinstance(call, dict):
            index = call.get("index", place)
            _add(known.setdefault(index if isinstance(index, int) else place, {}), call)


class _Pieces(list[Any]):
    """Pieces of a text or a list."""


def _whole(value: Any, key: str = "") -> Any:
    """An object of pieces, joined."""
    if isinstance(value, _Pieces):
        if all(isinstance(piece, str) for piece in value):
            return "".join(value)
        items: list[Any] = []
        for piece in value:
            items.extend(piece if isinstance(piece, list) else [piece])
        return items
    if key == "tool_calls" and isinstance(value, dict):
        return [_whole(call) for _, call in sorted(value.items())]
    if isinstance(value, dict):
        return {name: _whole(inner, name) for name, inner in value.items()}
    return value


MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Most bytes of any answer."""

APART_BYTES = 256 * 1024
"""A thread parses longer answers."""

QUICK_BYTES = 2 * 1024 * 1024
QUICK_PARTS = 1 << 17
"""A separate process parses an answer that exceeds one of them; 131,072 new keys take about 0.04 s of CPU."""

_FREE_BYTES = 4 * 1024 * 1024
_BYTES_A_TOKEN = 512
_FREE_PARTS = 1 << 18
_PARTS_A_TOKEN = 24

_T = TypeVar("_T")


def max_bytes(tokens: int) -> int:
    """Most bytes of an answer that lists so many tokens."""
    return min(MAX_ANSWER_BYTES, _FREE_BYTES + tokens * _BYTES_A_TOKEN)


def max_parts(tokens: int) -> int:
    """Most brackets, braces and colons in an answer that lists so many tokens; those within texts count, too."""
    return _FREE_PARTS + min(tokens * _PARTS_A_TOKEN, MAX_ANSWER_BYTES)


def takes_long(content: bytes) -> bool:
    """Whether parsing an answer may hold the interpreter's lock for longer than other calls can wait."""
    return len(content) > QUICK_BYTES or _parts(content) > QUICK_PARTS


class InvalidAnswer(ValueError):
    """Raised for an invalid answer; the message says what was received."""


def parse(content: bytes, tokens: int) -> dict[str, Any]:
    """Parse an answer that may list so many tokens: a JSON object, or a stream of events with the pieces of one.

    Raises:
        InvalidAnswer: it is neither, or has more parts than such an answer can have.
    """
    if _parts(content) > max_parts(tokens):
        raise InvalidAnswer(f"more than {max_parts(tokens):,} lists, objects and keys")
    try:
        document = joined(content) if is_stream(content) else _decoded(content)
    except InvalidStream as error:
        raise InvalidAnswer(repeated(str(error).encode("utf-8", "replace"), None)) from None
    except (ValueError, RecursionError):
        said = f": {repeated(content, None)}" if content.strip() else ""
        raise InvalidAnswer(f"{len(content):,} bytes that are not JSON{said}") from None
    if not isinstance(document, dict):
        raise InvalidAnswer(f"JSON of type {type(document).__name__}, not an object: {repeated(content, None)}")
    return document


def _decoded(content: bytes) -> Any:
    """As `json.loads`, in less than half of its time.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    try:
        return msgspec.json.decode(content)
    except ValueError:
        # Also for what Python reads besides JSON: NaN, numbers beyond float64, lone surrogates, other encodings.
        return json.loads(content)


def read_document(content: bytes, tokens: int, server: str) -> dict[str, Any]:
    """As `parse`; errors name the server.

    Raises:
        BackendError: as `parse` (BACKEND_ANSWER).
    """
    try:
        return parse(content, tokens)
    except InvalidAnswer as error:
        raise garbage(server, str(error)) from None


def _parts(content: bytes) -> int:
    # These cost time and memory: a list takes thirty times the bytes of its text, a new key ten times.
    return sum(map(content.count, (b"[", b"{", b":")))


async def apart(size: int, function: Callable[..., _T], *arguments: Any) -> _T:
    """Call a function that parses `size` bytes: in a thread if they are many."""
    if size <= APART_BYTES:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)
