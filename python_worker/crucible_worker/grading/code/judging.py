"""How one test of one program is run and judged. The verdict is made here, from the output of the sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crucible_bridge.reasons import Reason
from crucible_bridge.types import CodeLimits, OutputComparison, StdioTest
from crucible_worker.grading.code.assertions import AssertedCall, Plain, Proxied
from crucible_worker.grading.code.compare import LINES, Allowed, difference, equals, equals_json
from crucible_worker.grading.code.inside.wire import SIZED, asking, most_bytes
from crucible_worker.grading.code.sandbox import LARGE_BYTES, SandboxChannel, SandboxLimits, SandboxSlot
from crucible_worker.util.error_reporter import shortages

__all__ = ["CaseResult", "Expected", "run_test"]

_MEBIBYTE = 1024 * 1024
_TESTS_BYTES = 4 * _MEBIBYTE  # of a call that tests make, if no returned value can be larger
_LARGE_TOKENS_BYTES = 4096  # of output whose numbers are compared by value, a microsecond or more each
_MAX_SHOWN = 300
_ATTEMPTS = 2  # if the machine ends a sandbox, for example when it is short of memory
_TESTS_MEMORY_MB = 512  # at least: a small limit of the program does not apply to its tests

_ANSWER_FIELDS = {
    **dict.fromkeys(("raised", "message", "opaque"), str),
    **dict.fromkeys(("lineage", "arguments", "nodes", "items", "gives"), list),
    **dict.fromkeys(("method", "callable", "done", "missing"), bool),
    "object": int,
}
"""What an answer may contain in addition to a value and the changed arguments, with the types."""
_OF_COMPILER = ("RecursionError", "MemoryError")
_NO_ANSWER = "the program wrote something that is not an answer"
_TOO_LONG = "took longer than {:,} ms"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The result of one test."""

    passed: bool | None
    """None if it cannot be known."""
    reason: str = ""
    """Why the test was not passed."""
    problem: str = ""
    """The reason of the item's problem if there is no verdict; empty if the item is UNDECIDED."""
    timed_out: bool = False
    """The test exceeded its time."""
    too_deep: bool = False
    """The program did not load: Python's compiler ran out of levels or memory."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A call and its expected JSON value."""

    call: AssertedCall
    """The call."""
    in_solution: bool = False
    """Whether the function may be a method of the program's class `Solution`."""
    or_element: bool = False
    """Whether the only element of its value, a list, is right as well."""
    comparison: OutputComparison = LINES
    """Its tolerance."""


Ready = Plain | Proxied | StdioTest | Expected
"""A test, read."""

PASSED = CaseResult(passed=True)


class _Fails(Exception):
    """The program fails; the text says how."""


class _TooDeep(_Fails):
    """The program does not load, as `CaseResult.too_deep` says."""


class _OutOfMemory(Exception):
    """The tests exceed their memory, by themselves or by what the program returned."""


@dataclasses.dataclass(slots=True)
class _ComputeTurn:
    """Which side computes now, the program or its tests."""

    of_tests: bool = False
    """The tests compute, and do not wait for the program."""


async def run_test(place: SandboxSlot, program: str, test: Ready, limits: CodeLimits) -> CaseResult:
    """Run a program against one test.

    Args:
        place: where it runs.
        program: its source.
        test: what it must do.
        limits: of its resources.

    Raises:
        FailedPrecondition: no sandbox starts here (reason NO_SANDBOX).
        ResourceExhausted: the system has no room at the moment.
    """
    for _ in range(_ATTEMPTS):
        with shortages():
            await place.restore()
            await place.prepare(tests=isinstance(test, Proxied))
            finding = await _attempt(place, program, test, limits)
        if finding.passed or not place.lost:
            return finding
    return CaseResult(
        passed=None, problem=Reason.SANDBOX_LOST, reason="the sandbox ended before the program did, twice"
    )


async def _attempt(place: SandboxSlot, program: str, test: Ready, limits: CodeLimits) -> CaseResult:
    turn = _ComputeTurn()
    match test:
        case Plain(calls=calls):
            judged = _calls(place, program, calls, limits, equals)
        case Expected(call=call, in_solution=solution):
            judged = _calls(place, program, (call,), limits, _same_json(test), solution=solution)
        case StdioTest():
            judged = _script(place, program, test, limits)
        case Proxied():
            judged = _proxied(place, program, test, limits, turn)
    try:
        async with asyncio.timeout(limits.timeout_ms / 1000):
            return await judged
    except TimeoutError:
        place.condemn()
        if turn.of_tests and isinstance(test, Proxied) and await _hang(place, test, limits):
            return CaseResult(passed=None, reason=f"the tests take longer than {limits.timeout_ms:,} ms by themselves")
        return CaseResult(passed=False, reason=_TOO_LONG.format(limits.timeout_ms), timed_out=True)
    except _OutOfMemory as error:
        if isinstance(test, Proxied) and await _hang(place, test, limits):
            return CaseResult(passed=None, reason="the tests take more memory than they have, by themselves")
        return CaseResult(passed=False, reason=str(error))
    except _Fails as failed:
        return CaseResult(passed=False, reason=str(failed), too_deep=isinstance(failed, _TooDeep))


async def _calls(
    place: SandboxSlot,
    program: str,
    calls: Sequence[AssertedCall],
    limits: CodeLimits,
    same: Callable[[Any, Any], bool],
    *,
    solution: bool = False,
) -> CaseResult:
    async with place.running("program", _bounds(limits)) as channel:
        talk = _Talk(place, channel, limits)
        talk.begin(program, given_names=solution)
        for call in calls:
            talk.ask(asking(call.function, call.arguments, call.named, solution=solution))
        await talk.loaded()
        for call in calls:
            answer = await talk.answer()
            if "value" not in answer:
                raise _Fails(f"line {call.line} of the tests: {_without_value(call.function, answer)}")
            if not await _compared(channel, same, answer["value"], call.expected):
                raise _Fails(f"line {call.line} of the tests: {call.function} returned another value")
    return PASSED


def _same_json(test: Expected) -> Callable[[Any, Any], bool]:
    allowed = None if test.comparison == LINES else Allowed(test.comparison)

    def same(written: Any, expected: Any) -> bool:
        if equals_json(written, expected, allowed):
            return True
        return test.or_element and equals_json(written, expected[0], allowed)

    return same


async def _compared(channel: SandboxChannel, same: Callable[[Any, Any], bool], written: Any, expected: Any) -> bool:
    try:
        return await asyncio.to_thread(same, written, expected) if channel.large else same(written, expected)
    except (ValueError, ArithmeticError, RecursionError):
        return False  # never written by the interpreter of an honest program


async def _proxied(
    place: SandboxSlot, program: str, test: Proxied, limits: CodeLimits, turn: _ComputeTurn
) -> CaseResult:
    async with (
        place.running("program", _bounds(limits)) as to_program,
        place.running("tests", _tests_bounds(limits)) as to_tests,
    ):
        talk = _Talk(place, to_program, limits)
        talk.begin(program)
        nonce = secrets.token_hex(8)
        to_tests.send({"nonce": nonce, **_order(test), "rehearse": False})
        asked, most = 0, max(_TESTS_BYTES, most_bytes({}, limits.output_bytes))
        while True:
            turn.of_tests = True
            try:
                told = await _received(to_tests, most)
            except ValueError:
                reason = f"the tests make a call of more than {most:,} bytes"
                return CaseResult(passed=None, problem=Reason.NOT_PASSABLE, reason=reason)
            turn.of_tests = False
            if told is None or told.get("nonce") != nonce:
                return CaseResult(
                    passed=None, problem=Reason.TESTS_FAILED, reason="the tests ended before they had finished"
                )
            if "call" not in told:
                return _verdict(told, asked)
            # Not before: a failure without any program is not the program's fault.
            if not asked:
                await talk.loaded()
            asked += 1
            talk.ask(told["call"])
            answer = await talk.answer()
            try:
                to_tests.send(answer)
            except (ValueError, RecursionError):  # 1e999, or more levels than it came with
                raise _Fails(_NO_ANSWER) from None


async def _hang(place: SandboxSlot, test: Proxied, limits: CodeLimits) -> bool:
    """Whether tests take too much time or memory without any program, with unknown values in its place."""
    await place.restore()
    await place.prepare(tests=True)
    nonce = secrets.token_hex(8)
    try:
        async with (
            asyncio.timeout(limits.timeout_ms / 1000),
            place.running("tests", _tests_bounds(limits)) as to_tests,
        ):
            to_tests.send({"nonce": nonce, **_order(test), "rehearse": True})
            told = await _received(to_tests, _TESTS_BYTES)
    except TimeoutError:
        place.condemn()
        return True
    return told is not None and told.get("failed") == "MemoryError"


def _order(test: Proxied) -> Mapping[str, Any]:
    return {"names": dict(test.classes), "helpers": sorted(test.helpers), "sources": list(test.sources)}


def _verdict(told: Mapping[str, Any], asked: int) -> CaseResult:
    if "unpassable" in told:
        return CaseResult(passed=None, problem=Reason.NOT_PASSABLE, reason=told["unpassable"])
    if "bad" in told:
        return CaseResult(passed=None, problem=Reason.BAD_TESTS, reason=told["bad"])
    if "failed" in told:
        where = f"line {told['line']} of the tests: " if told["line"] else ""
        what = told["failed"] if told["failed"] != "Failed" else ""
        reason = where + ": ".join(part for part in (what, told["message"]) if part)
        if told["failed"] == "MemoryError" and told["own"]:
            raise _OutOfMemory(reason)
        if not asked:
            reason = f"the tests fail before they use anything of the program: {reason}"
            return CaseResult(passed=None, problem=Reason.BAD_TESTS, reason=reason)
        return CaseResult(passed=False, reason=reason)
    if not asked:
        reason = "the tests use nothing of the program: do they call check?"
        return CaseResult(passed=None, problem=Reason.BAD_TESTS, reason=reason)
    return PASSED


async def _script(place: SandboxSlot, program: str, test: StdioTest, limits: CodeLimits) -> CaseResult:
    ours, theirs = socket.socketpair()
    with ours, theirs, os.fdopen(os.memfd_create("stdin"), "w+b") as stdin:
        stdin.write(test.stdin.encode("utf-8", "surrogatepass"))
        stdin.seek(0)
        async with place.running("script", _bounds(limits), (stdin.fileno(), theirs.fileno())) as channel:
            theirs.close()
            talk = _Talk(place, channel, limits)
            talk.begin(program)
            output = await _all_of(ours, limits.output_bytes)
            # A program that ends itself has reported nothing, and may have done everything right.
            with contextlib.suppress(_Ended):
                await talk.loaded(ended=_Ended)
    if (left := await place.program_left()) is None or left.code != 0:
        raise _Fails("the program did not end" if left is None else f"the program {left.told}")
    large = len(output) + len(test.stdout) >= (LARGE_BYTES if test.comparison == LINES else _LARGE_TOKENS_BYTES)
    compared = (output, test.stdout, test.comparison)
    where = await asyncio.to_thread(difference, *compared) if large else difference(*compared)
    if where is None:
        return PASSED
    raise _Fails(f"wrote something else on {where}")


class _Ended(_Fails):
    """The program ended without a report."""


class _Talk:
    """Messages to a program and its answers. The answers are not to be trusted: the program can write anything."""

    def __init__(self, place: SandboxSlot, channel: SandboxChannel, limits: CodeLimits) -> None:
        self._place, self._channel, self._limits = place, channel, limits
        self._nonce = secrets.token_hex(8)

    def begin(self, program: str, *, given_names: bool = False) -> None:
        """Let the program be loaded, with the names that LeetCode gives or without them."""
        order = {"source": program, "max_bytes": self._limits.output_bytes, "given_names": given_names}
        self._channel.send({"nonce": self._nonce, **order})

    def ask(self, asked: Mapping[str, Any]) -> None:
        """Send a request that `asking` writes, or that tests make."""
        self._channel.send(asked)

    async def loaded(self, *, ended: type[_Fails] = _Fails) -> None:
        """Wait until the program is loaded.

        Raises:
            _Fails: it is not.
        """
        answer = await self._answer(ended)
        if "raised" in answer:
            fails = _TooDeep if answer["raised"] in _OF_COMPILER else _Fails
            raise fails(f"the program raised {_exception(answer)}")
        if "loaded" not in answer:
            raise _Fails(_NO_ANSWER)

    async def answer(self) -> Mapping[str, Any]:
        """The answer to the next open request: a value, or texts that say why there is none.

        Raises:
            _Fails: there is no answer.
        """
        answer = await self._answer(_Fails)
        told = {key: answer[key] for key, kind in _ANSWER_FIELDS.items() if type(answer.get(key)) is kind}
        return told | {key: answer[key] for key in ("value", "changed") if key in answer}

    async def _answer(self, ended: type[_Fails]) -> Mapping[str, Any]:
        limit = self._limits.output_bytes
        too_much = f"the program wrote more than {limit:,} bytes"
        try:
            answer = await _received(self._channel, most_bytes(dict.fromkeys(SIZED), limit))
        except ValueError:
            raise _Fails(too_much) from None
        if answer is not None and self._channel.size > most_bytes(answer, limit):
            raise _Fails(too_much)
        if answer is None:
            left = await self._place.program_left()
            raise ended("the program ended its sandbox" if left is None else f"the program {left.told}")
        if answer.get("nonce") != self._nonce:
            raise _Fails(_NO_ANSWER)
        return answer


async def _received(channel: SandboxChannel, max_bytes: int) -> Mapping[str, Any] | None:
    message = await channel.receive(max_bytes)
    return message if isinstance(message, dict) else None


async def _all_of(end: socket.socket, max_bytes: int) -> bytes:
    end.setblocking(False)
    parts: list[bytes] = []
    left = max_bytes
    while part := await asyncio.get_running_loop().sock_recv(end, 65_536):
        left -= len(part)
        if left < 0:
            raise _Fails(f"the program wrote more than {max_bytes:,} bytes")
        parts.append(part)
    return b"".join(parts)


def _without_value(function: str, answer: Mapping[str, Any]) -> str:
    if "raised" in answer:
        return f"{function} raised {_exception(answer)}"
    if answer.get("missing"):
        return f"the program does not define {function}"
    if "opaque" in answer:
        return f"{function} returned {answer['opaque'][:_MAX_SHOWN]}, which is not a plain value"
    return f"{function} returned more than is allowed to pass"


def _exception(answer: Mapping[str, Any]) -> str:
    said = [answer[key] for key in ("raised", "message") if isinstance(answer.get(key), str) and answer[key]]
    return ": ".join(said)[:_MAX_SHOWN]


def _tests_bounds(limits: CodeLimits) -> SandboxLimits:
    return _bounds(dataclasses.replace(limits, memory_mb=max(limits.memory_mb, _TESTS_MEMORY_MB)))


def _bounds(limits: CodeLimits) -> SandboxLimits:
    # Threads of a program may use several cores; wall-clock time is what counts.
    cores = os.cpu_count() or 1
    seconds = cores * math.ceil(limits.timeout_ms / 1000) + 1
    return SandboxLimits(memory_bytes=limits.memory_mb * _MEBIBYTE, cpu_seconds=seconds)
