"""Long tests are read by another process, with what they ask unchanged."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from crucible_bridge.types.code_tests import BadTests
from crucible_worker.grading.code import reading
from crucible_worker.grading.code.assertions import read_assertions
from crucible_worker.grading.code.reading import read_apart
from tests.processes import children_of

MANY_KINDS = "assert f(1, key=[2]) == {'a': (1, 2.5, {3, 4}, b'x'), None: [True, -1, 1j, 0xffffffffffffffffffff]}\n"


@pytest.mark.parametrize(
    ("source", "prefix"),
    [
        (
            "assert f(1, key=[2]) == {'a': (1, 2.5, {3, 4}, b'x'), None: [True, -1, 1j, 0xffffffffffffffffffff]}\n" * 3,
            "",
        ),
        ("assert f('\\ud800\\u00e9') == float\n", "def helper(x):\n    return x\n\ndef f(x):\n"),
        ("assert C().f(1) > 0\n" * 1_000, ""),
    ],
)
async def test_what_tests_ask_is_the_same(source: str, prefix: str) -> None:
    """Calls with their values, or sources with the names that they take."""
    assert await read_apart(source, prefix) == read_assertions(source, prefix)


@pytest.mark.parametrize(("source", "says"), [("assert f(", "not Python"), ("x = 1", "nothing")])
async def test_what_is_no_test_is_refused(source: str, says: str) -> None:
    """With the same reason."""
    with pytest.raises(BadTests, match=says):
        await read_apart(source, "")


async def test_a_process_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves nothing."""
    before = children_of(os.getpid())
    monkeypatch.setattr(reading, "READ_SECONDS", 0)

    with pytest.raises(BadTests, match="longer"):
        await read_apart("assert f(1) == 1\n" * 10_000, "")

    assert children_of(os.getpid()) == before


async def test_it_ends_with_its_parent() -> None:
    """A worker that is killed leaves no process; here another one is its parent."""
    arguments = ("-P", "-m", reading._MODULE, f"--parent={os.getpid() + 1}", "--socket=0")
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=asyncio.subprocess.PIPE)

    assert await process.wait() == 1
