"""Reads long tests in a process of its own: Python's parser holds the interpreter for 3 s over a megabyte.

Run as a program, it reads tests from its standard input and writes what they ask to its standard output, as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import resource
import sys
from typing import Any

from crucible_worker.grading.code.assertions import BadTests, Call, Plain, Proxied, read_assertions
from crucible_worker.grading.code.inside.values import NotPlain, decode, encode
from crucible_worker.lifetime import die_with

__all__ = ["READ_SECONDS", "read_apart"]

READ_SECONDS = 30
"""For a process to read tests, in processor time and in wall-clock time; a megabyte takes some 5 s."""
_MEMORY_BYTES = 4 << 30  # a megabyte of statements takes half of one

_COMMAND = (sys.executable, "-P", "-m", "crucible_worker.grading.code.reading")


async def read_apart(source: str, prefix: str) -> Plain | Proxied:
    """As `read_assertions`, without holding up whatever else the worker does.

    Raises:
        BadTests: as that; or they take too long, or too much memory.
    """
    order = json.dumps([source, prefix]).encode("ascii")
    process = await asyncio.create_subprocess_exec(
        *_COMMAND,
        str(os.getpid()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: os.environ[name] for name in ("PYTHONPATH", "LD_LIBRARY_PATH") if name in os.environ},
    )
    try:
        async with asyncio.timeout(READ_SECONDS):
            said, _ = await process.communicate(order)
    except TimeoutError:
        raise BadTests(f"the tests take longer than {READ_SECONDS} s to be read") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        raise BadTests("the tests take too much time or memory to be read")
    return await asyncio.to_thread(_read_answer, said)


def _read_answer(said: bytes) -> Plain | Proxied:
    answer: dict[str, Any] = json.loads(said)
    if "bad" in answer:
        raise BadTests(answer["bad"])
    if "calls" in answer:
        calls = [Call(**{**call, "expected": decode(call["expected"])}) for call in answer["calls"]]
        return Plain(calls=tuple(calls))
    return Proxied(sources=answer["sources"], classes=answer["classes"])


def _answer(source: str, prefix: str) -> dict[str, Any]:
    try:
        read = read_assertions(source, prefix)
        if isinstance(read, Proxied):
            return {"sources": list(read.sources), "classes": dict(read.classes)}
        fields = [{**_fields(call), "expected": encode(call.expected)} for call in read.calls]
        return {"calls": fields}
    except NotPlain as error:
        return {"bad": f"a value that the tests expect cannot be passed: {error}"}
    except BadTests as error:
        return {"bad": str(error)}


def _fields(call: Call) -> dict[str, Any]:
    return {field.name: getattr(call, field.name) for field in dataclasses.fields(call)}


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_CPU, (READ_SECONDS, READ_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    json.dump(_answer(*json.load(sys.stdin)), sys.stdout)
