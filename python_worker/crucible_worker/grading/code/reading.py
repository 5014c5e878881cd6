"""Reads long tests in a separate process: for a megabyte, Python's parser blocks the interpreter for 3 s.

Run as a program, it receives tests and returns what `read_assertions` reads in them, as JSON.
For a prefix alone, it returns whether Python's compiler can process it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

from crucible_bridge.types.code_tests import BadTests
from crucible_worker.children.process import Unanswered, answer_once, ask_once, bare_environment
from crucible_worker.grading.code.assertions import AssertedCall, Plain, Proxied, read_assertions, with_body
from crucible_worker.grading.code.inside.wire import NotPlain, decode, encode

__all__ = ["READ_SECONDS", "check_prefix", "read_apart"]

READ_SECONDS = 30
"""Limit of a process that reads tests, in processor time and in wall-clock time; a megabyte takes some 5 s."""
_MEMORY_BYTES = 4 << 30  # a megabyte of statements takes half a GiB

_MODULE = "crucible_worker.grading.code.reading"


async def read_apart(source: str, prefix: str) -> Plain | Proxied:
    """Like `read_assertions`, without blocking the worker.

    Raises:
        BadTests: as for `read_assertions`; or they take too long, or too much memory.
    """
    return await asyncio.to_thread(_read_answer, await _asked("tests", source, prefix))


async def check_prefix(prefix: str) -> None:
    """Check whether Python can compile a prefix, with a body added if it ends in the head of a function.

    Raises:
        BadTests: the compiler runs out of levels or memory, whatever program follows.
    """
    if told := json.loads(await _asked("prefix", prefix))["bad"]:
        raise BadTests(told)


async def _asked(what: str, *texts: str) -> bytes:
    try:
        async with asyncio.timeout(READ_SECONDS):
            return await ask_once(_MODULE, json.dumps(texts).encode("ascii"), environment=bare_environment())
    except TimeoutError:
        raise BadTests(f"the {what} take longer than {READ_SECONDS} s to be read") from None
    except Unanswered:
        raise BadTests(f"the {what} take too much time or memory to be read") from None


def _read_answer(said: bytes) -> Plain | Proxied:
    answer: dict[str, Any] = json.loads(said)
    if "bad" in answer:
        raise BadTests(answer["bad"])
    if "calls" in answer:
        calls = [AssertedCall(**{**call, "expected": decode(call["expected"])}) for call in answer["calls"]]
        return Plain(calls=tuple(calls))
    return Proxied(sources=answer["sources"], classes=answer["classes"], helpers=frozenset(answer["helpers"]))


def _answer(source: str, prefix: str) -> dict[str, Any]:
    try:
        read = read_assertions(source, prefix)
        if isinstance(read, Proxied):
            return {"sources": list(read.sources), "classes": dict(read.classes), "helpers": sorted(read.helpers)}
        fields = [{**_fields(call), "expected": encode(call.expected)} for call in read.calls]
        return {"calls": fields}
    except NotPlain as error:
        return {"bad": f"a value that the tests expect cannot be passed: {error}"}
    except BadTests as error:
        return {"bad": str(error)}


def _compiled(prefix: str) -> dict[str, str]:
    for text in (prefix, with_body(prefix)):
        try:
            compile(text, "<prefix>", "exec")
            break
        except (SyntaxError, ValueError):
            continue  # what follows may complete it
        except (RecursionError, MemoryError) as error:
            return {"bad": f"Python cannot compile the prefix: {type(error).__name__}: {error}"}
    return {"bad": ""}


def _fields(call: AssertedCall) -> dict[str, Any]:
    return {field.name: getattr(call, field.name) for field in dataclasses.fields(call)}


def _written_answer(order: bytes) -> bytes:
    texts = json.loads(order)
    return json.dumps(_compiled(*texts) if len(texts) == 1 else _answer(*texts)).encode("ascii")


if __name__ == "__main__":
    answer_once(_MODULE, _written_answer, cpu_seconds=READ_SECONDS, memory_bytes=_MEMORY_BYTES)
