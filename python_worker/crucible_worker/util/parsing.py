"""Reading and writing large foreign JSON in a thread, so that the worker's other calls continue.

Python's parser and its writer let no other thread run, and a line of a data set may contain millions of values.
"""

from __future__ import annotations

import contextlib
import gc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

__all__ = ["LARGE_BYTES", "aside_if_large", "parts_of", "uncollected", "written"]

LARGE_BYTES = 256 * 1024
"""Text from here on is worth it."""
_RUN = 10_000
"""Values that are written at once: about a millisecond."""


T = TypeVar("T")


async def aside_if_large(size: int, function: Callable[[], T]) -> T:
    """Work on foreign text: in a thread if it is large, so that the worker's other calls continue.

    Args:
        size: bytes or characters of the text.
        function: the work.
    """
    if size < LARGE_BYTES:
        return function()
    import asyncio  # 25 ms that a child process without an event loop need not spend

    return await asyncio.to_thread(function)


def parts_of(text: bytes) -> int:
    """Lists, objects and texts of JSON, keys included, before it is parsed; brackets within a text count as well.

    The parser lets no other thread run while it makes them, and each needs fifty bytes or more.
    """
    return text.count(b"[") + text.count(b"{") + (text.count(b'"') - text.count(b'\\"')) // 2


@contextlib.contextmanager
def uncollected(size: int) -> Iterator[None]:
    """Pause the garbage collector of this process meanwhile, if the text is large.

    A parser makes millions of lists and lets no other thread run. The collector would look through all of them again
    and again: 10 MB of lists stopped the worker for 1.0 to 1.8 s with it, for 0.2 to 0.3 s without.

    Args:
        size: bytes of the text.
    """
    if size < LARGE_BYTES or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def written(value: Any, size: int) -> str:
    """JSON as `json.dumps(value, ensure_ascii=False)` writes it; if large, in steps between which other threads run.

    Written at once, a list of three million numbers stopped the worker for 0.5 s.

    Args:
        value: a result of `json.loads`.
        size: bytes of the text that it was read from.
    """
    return "".join(_pieces(value)) if size >= LARGE_BYTES else _dumps(value)


def _pieces(value: Any) -> Iterator[str]:
    open_: list[tuple[Iterator[tuple[str, Any]], str]] = [(_members([value]), "")]
    while open_:
        members, end = open_[-1]
        for text, container in members:
            yield text
            if container is not None:
                open_.append((_entries(container), "}") if isinstance(container, dict) else (_members(container), "]"))
                yield "{" if isinstance(container, dict) else "["
                break
        else:
            open_.pop()
            yield end


def _members(values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Texts of a list's members, each with the list or object that follows it, or None."""
    between = ""
    for start in range(0, len(values), _RUN):
        run = values[start : start + _RUN]
        if any(isinstance(value, list | dict) for value in run):
            yield from _one_by_one((("", value) for value in run), between)
        else:
            yield between + _dumps(run)[1:-1], None
        between = ", "


def _entries(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return _one_by_one(((f"{_dumps(key)}: ", value) for key, value in values.items()), "")


def _one_by_one(values: Iterable[tuple[str, Any]], between: str) -> Iterator[tuple[str, Any]]:
    for name, value in values:
        if isinstance(value, list | dict):
            yield between + name, value
        else:
            yield between + name + _dumps(value), None
        between = ", "


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
