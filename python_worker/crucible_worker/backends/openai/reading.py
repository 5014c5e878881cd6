"""Parses long answers in a separate process: for 64 MiB, the JSON decoder holds the interpreter's lock for up to 6 s.

Run as a program, it receives an answer and sends back what the worker needs: a line with the document, its long lists
empty, then lines of their items, each short enough to be parsed at once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from crucible_worker.backends.openai.answers import REASONING_KEYS, as_texts
from crucible_worker.backends.openai.documents import InvalidAnswer, parse
from crucible_worker.backends.openai.failures import garbage
from crucible_worker.children.process import Unanswered, answer_once, ask_once, bare_environment

__all__ = ["READ_SECONDS", "read_apart"]

READ_SECONDS = 60
"""Limits of a process that parses an answer, in processor time and in elapsed time; 64 MiB take some 5 s."""
_MEMORY_BYTES = 4 << 30
_MODULE = "crucible_worker.backends.openai.reading"

_ITEM_CHARS = 64 * 1024
"""Most characters about one token."""
_SPARE_ITEMS = 1024
"""A list may have this many more items than the answer has tokens."""

# What is read: objects by their fields, lists by the shape of their items; `_ANY` is any key. All else is left out. Of
# two shapes the second one is that of a list, or of its only item.
_ANY = ""
_SCALAR = None
_PROMPT_LOGPROBS = [{_ANY: {"logprob": _SCALAR, "rank": _SCALAR}}]
_LOGPROBS = {
    "tokens": [_SCALAR],
    "token_logprobs": [_SCALAR],
    "content": [{"token": _SCALAR, "logprob": _SCALAR, "top_logprobs": [{"token": _SCALAR, "logprob": _SCALAR}]}],
    "top_logprobs": [{_ANY: _SCALAR}],
}
_PARTS = [
    {
        "type": _SCALAR,
        "text": _SCALAR,
        "thinking": (_SCALAR, [{"text": _SCALAR}]),
        "reasoning": _SCALAR,
        "refusal": _SCALAR,
    }
]
_TEXT = (_SCALAR, _PARTS)
"""A text, or a list of its parts."""
_APART = {
    **dict.fromkeys(REASONING_KEYS, _SCALAR),
    "refusal": _SCALAR,
    "tool_calls": (_SCALAR, [{"id": _SCALAR, "function": {"name": _SCALAR, "arguments": _SCALAR}}]),
}
"""What `as_texts` makes, and a refusal."""
_CHOICE = {
    "text": _TEXT,
    **_APART,
    "message": {"content": _TEXT, **_APART},
    "finish_reason": _SCALAR,
    "token_ids": [_SCALAR],
    "logprobs": _LOGPROBS,
    "prompt_logprobs": _PROMPT_LOGPROBS,
}
_DOCUMENT = {
    "usage": {
        "prompt_tokens": _SCALAR,
        "completion_tokens": _SCALAR,
        "prompt_tokens_details": {"cached_tokens": _SCALAR},
        "prompt_cache_hit_tokens": _SCALAR,
        "completion_tokens_details": {"reasoning_tokens": _SCALAR},
    },
    "model": _SCALAR,
    "system_fingerprint": _SCALAR,
    "prompt_logprobs": _PROMPT_LOGPROBS,
    "object": _SCALAR,
    "error": {"message": _SCALAR, "code": _SCALAR, "type": _SCALAR, "status": _SCALAR, "param": _SCALAR},
}
_Path = tuple[str | int, ...]


async def read_apart(content: bytes, tokens: int, server: str) -> dict[str, Any]:
    """As `read_document`, without blocking the rest of the worker; fields that no code reads are left out.

    Raises:
        BackendError: likewise; or it takes too long, too much memory, or has too much text for one token
            (BACKEND_ANSWER).
    """
    order = b"%d\n%b" % (tokens, content)
    try:
        async with asyncio.timeout(READ_SECONDS):
            said = await ask_once(_MODULE, order, environment=bare_environment())
    except (TimeoutError, Unanswered):
        raise garbage(server, f"{len(content):,} bytes that take too much time or memory to be read") from None
    return await asyncio.to_thread(_together, said, server)


def _together(said: bytes, server: str) -> dict[str, Any]:
    # Line by line: other threads run between two of them.
    lines = iter(said.decode("utf-8", "surrogatepass").split("\n"))
    first = json.loads(next(lines))
    if "nonsense" in first:
        raise garbage(server, first["nonsense"])
    document = first["document"]
    for line in lines:
        path, items = json.loads(line)
        place = document
        for step in path:
            place = place[step]
        place.extend(items)
    return document


def _answer(order: bytes) -> Iterator[str]:
    tokens, _, content = order.partition(b"\n")
    try:
        lists: list[tuple[_Path, list[str]]] = []
        document = _read_part(parse(content, int(tokens)), int(tokens), lists)
    except InvalidAnswer as error:
        yield _written({"nonsense": str(error)})
        return
    yield _written({"document": document})
    for path, items in lists:
        for packed in _packed(items):
            yield f"[{_written(path)},[{packed}]]"


def _read_part(document: dict[str, Any], tokens: int, lists: list[tuple[_Path, list[str]]]) -> dict[str, Any]:
    """The parts that are read; `lists` gets the items of the lists, as JSON."""
    most = tokens + _SPARE_ITEMS

    def part(value: Any, shape: Any, path: _Path) -> Any:
        if isinstance(value, dict) and isinstance(shape, dict):
            return {key: part(value[key], inner, (*path, key)) for key, inner in shape.items() if key in value}
        if isinstance(value, list) and isinstance(shape, list):
            if len(value) > most:
                raise InvalidAnswer(f"a list of {path[-1]} of more than {most:,} items")
            lists.append((path, [_item(_reduced(item, shape[0]), path) for item in value]))
            return []
        return _reduced(value, shape if isinstance(shape, tuple) else _SCALAR)

    found = part(document, _DOCUMENT, ())
    if "choices" in document:
        choices = document["choices"]
        if isinstance(choices, list):  # only one is read; a second one shows that there are too many
            choices = [part(_flat(choice), _CHOICE, ("choices", index)) for index, choice in enumerate(choices[:2])]
        found["choices"] = choices if isinstance(choices, list) else _reduced(choices, _SCALAR)
    return found


def _flat(choice: Any) -> Any:
    """A choice whose reasoning is text, and its calls of tools."""
    if not isinstance(choice, dict):
        return choice
    message = choice.get("message")
    further = {"message": {**message, **as_texts(message)}} if isinstance(message, dict) else {}
    return {**choice, **as_texts(choice), **further}


def _reduced(value: Any, shape: Any) -> Any:
    """The parts of a value that its shape names; an unexpected list or object becomes an empty one."""
    if isinstance(shape, tuple):
        scalar, several = shape
        shape = several if isinstance(value, list) else several[0] if isinstance(value, dict) else scalar
    if isinstance(value, dict) and isinstance(shape, dict):
        if _ANY in shape:
            return {key: _reduced(inner, shape[_ANY]) for key, inner in value.items()}
        return {key: _reduced(value[key], inner) for key, inner in shape.items() if key in value}
    if isinstance(value, list) and isinstance(shape, list):
        return [_reduced(item, shape[0]) for item in value]
    return type(value)() if isinstance(value, dict | list) else value


def _item(item: Any, path: _Path) -> str:
    text = _written(item)
    if len(text) > _ITEM_CHARS:
        raise InvalidAnswer(f"{path[-1]} with more than {_ITEM_CHARS:,} characters for one token")
    return text


def _packed(items: list[str]) -> Iterator[str]:
    start = size = 0
    for index, item in enumerate(items):
        size += len(item)
        if size > _ITEM_CHARS:
            yield ",".join(items[start : index + 1])
            start, size = index + 1, 0
    if start < len(items):
        yield ",".join(items[start:])


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _serialized_answer(order: bytes) -> bytes:
    return "\n".join(_answer(order)).encode("utf-8", "surrogatepass")


if __name__ == "__main__":
    answer_once(_MODULE, _serialized_answer, cpu_seconds=READ_SECONDS, memory_bytes=_MEMORY_BYTES)
