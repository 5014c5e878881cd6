"""Foreign code on a loop and a thread of its own: what it raises, what it holds up, and how it ends."""

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from crucible_bridge.errors import InvalidField
from crucible_worker.evaluators.environments.threaded_loop import ForeignFailure, ThreadedLoop
from tests.tables import rows

QUICK = {"cleanup_seconds": 0.05, "settle_seconds": 0.05}
"""Whoever blocks is given up after a moment."""


def _unwarned(event: str, fields: dict[str, Any]) -> None:
    """Of what nothing is expected."""


@contextlib.asynccontextmanager
async def _own(cleanup: Any = None, **seconds: float) -> AsyncIterator[ThreadedLoop]:
    own = ThreadedLoop(_unwarned, **seconds)
    try:
        yield own
    finally:
        own.close(cleanup)
    await own.wait_closed()


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "environment"]


async def test_functions_and_coroutines_run_on_one_thread_which_ends() -> None:
    """Not on that of the caller; nothing is left of it."""

    async def where(*, also: str) -> Any:
        await asyncio.sleep(0)
        return threading.current_thread(), asyncio.get_running_loop(), also

    async with _own() as own:
        thread, loop, also = await own.call(where, also="x")
        assert await own.call(threading.current_thread) is thread
        assert thread is not threading.current_thread()
        assert loop is not asyncio.get_running_loop()
        assert also == "x"

    thread.join(5)
    assert not thread.is_alive()
    assert loop.is_closed()


class Panic(BaseException):
    """What a library that is not written in Python may raise."""


@rows(
    ("error", "kind", "message"),
    [
        (ValueError("no luck"), "ValueError", "ValueError: no luck"),
        (Panic("at the disco"), "Panic", "Panic: at the disco"),
        (SystemExit(3), "SystemExit", "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt", "KeyboardInterrupt: "),
        (asyncio.CancelledError(), "CancelledError", "was cancelled by what it waited for"),
        (InvalidField("input", "is no sum"), "INVALID_FIELD", "is no sum"),
        (ForeignFailure("BAD_ENVIRONMENT", "odd"), "BAD_ENVIRONMENT", "odd"),
    ],
)
async def test_whatever_is_raised_is_a_failure_with_a_kind(error: BaseException, kind: str, message: str) -> None:
    """Also what would end a thread, or look like a cancellation; the loop goes on."""

    async def raises() -> None:
        raise error

    async with _own() as own:
        with pytest.raises(ForeignFailure) as caught:
            await own.call(raises)
        assert (caught.value.kind, caught.value.message) == (kind, message)
        assert await own.call(lambda: 1) == 1


async def test_a_task_that_exits_ends_nothing_but_itself() -> None:
    """The loop goes on for whoever waits for it, and for what there is to clean up."""
    cleaned = threading.Event()

    async def exits() -> None:
        raise SystemExit(3)

    async def waits() -> None:
        await asyncio.create_task(exits())

    async with _own(cleaned.set) as own:
        with pytest.raises(ForeignFailure) as caught:
            await own.call(waits)
        assert caught.value.kind == "SystemExit"
        assert await own.call(lambda: 1) == 1

    assert cleaned.is_set()


async def test_a_loop_that_is_stopped_goes_on() -> None:
    """Nobody but its group ends it."""

    async def stops() -> int:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
        return 1

    async with _own() as own:
        assert await own.call(stops) == 1


async def test_a_call_that_is_cancelled_is_cancelled_there() -> None:
    """And cleaning up comes behind it."""
    begun, seen = asyncio.Event(), list[str]()
    home = asyncio.get_running_loop()

    async def waits() -> None:
        home.call_soon_threadsafe(begun.set)
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    async def cleanup() -> None:
        seen.append("cleaned up")

    async with _own(cleanup) as own:
        task = asyncio.create_task(own.call(waits))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert seen == ["cancelled", "cleaned up"]


async def test_a_thread_that_blocks_holds_up_nobody() -> None:
    """Not the caller's loop, and no other thread."""
    free = threading.Event()

    async with _own() as blocked, _own() as other:
        task = asyncio.create_task(blocked.call(free.wait))
        assert await other.call(lambda: 1) == 1
        assert not task.done()
        free.set()
        assert await task is True


async def test_a_loop_in_python_is_broken() -> None:
    """When it was given up and had its time: the thread cleans up and ends."""
    begun = threading.Event()
    cleaned = threading.Event()

    def turns() -> None:
        begun.set()
        while True:
            pass

    own = ThreadedLoop(_unwarned, **QUICK)
    task = asyncio.create_task(own.call(turns))
    await asyncio.to_thread(begun.wait)
    (thread,) = _threads()
    task.cancel()
    own.close(cleaned.set)

    await asyncio.to_thread(thread.join, 20)
    assert not thread.is_alive()
    assert cleaned.is_set()


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_thread_that_does_not_end_is_told_of(elsewhere: bool) -> None:
    """Also one that waits for a thread which it has handed its work to; nobody waits for it for ever."""
    free, warned = threading.Event(), list[str]()
    own = ThreadedLoop(lambda event, fields: warned.append(event), **QUICK)
    begun = threading.Event()

    def blocks() -> None:
        begun.set()
        free.wait()

    task = asyncio.create_task(own.call(functools.partial(asyncio.to_thread, blocks) if elsewhere else blocks))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    own.close(None)
    ended = await own.wait_closed()
    free.set()
    for thread in _threads():
        await asyncio.to_thread(thread.join, 20)

    assert not ended
    assert warned == ["environment_stuck"]


@pytest.mark.parametrize("error", [None, ValueError("no luck")])
async def test_cleaning_up_may_fail_or_never_end(error: Exception | None) -> None:
    """The thread ends all the same, and so does whoever waits for it."""

    async def cleanup() -> None:
        if error is not None:
            raise error
        await asyncio.Event().wait()

    async with _own(cleanup, **QUICK) as own:
        thread = await own.call(threading.current_thread)

    await asyncio.to_thread(thread.join, 20)
    assert not thread.is_alive()
