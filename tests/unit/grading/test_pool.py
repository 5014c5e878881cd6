"""The pool of grading processes, with real children: order, turns, and what becomes of items that harm their child."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from crucible_bridge.errors import Unavailable
from crucible_worker.grading import children
from crucible_worker.grading import pool as pool_module
from crucible_worker.grading.children import MEMORY_BYTES
from crucible_worker.grading.pool import (
    CLOCK_FACTOR,
    HEAVY_BYTES,
    MAX_CHILDREN,
    MIN_CHILDREN,
    SLOW_SECONDS,
    STUCK_SECONDS,
    TURN_BYTES,
    TURN_ITEMS,
    GradingPool,
    default_children,
)
from tests.processes import grading_children
from tests.tables import rows
from tests.unit.grading import pool_work

FOR_EVER = 60.0
"""Seconds of work that no child will get to the end of."""


@contextlib.asynccontextmanager
async def running_pool(children: int = 2) -> AsyncIterator[GradingPool]:
    """A pool whose children know no mathematics."""
    pool = GradingPool(children, modules=())
    try:
        await pool.start()
        yield pool
    finally:
        await pool.aclose()


class Unpickled:
    """Fails the test where it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Call a function in place of making an object."""
        return pytest.fail, ("a child's pickle was read",)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only their processor time ends children: by the clock a busy machine would end those that do nothing wrong."""
    monkeypatch.setattr(pool_module, "CLOCK_FACTOR", 10_000)


@pytest.fixture
async def pool(unhurried: None) -> AsyncIterator[GradingPool]:
    """A pool of two children, of which no one is ended by the clock."""
    async with running_pool() as made:
        yield made


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what other processes do."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def kill_a_child() -> None:
    """SIGKILL one of the children; those of a pool that broke may end by themselves meanwhile."""
    for child in grading_children(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
            return
    raise AssertionError("there is no child")


@pytest.mark.parametrize("count", [0, 1, TURN_ITEMS - 1, TURN_ITEMS, TURN_ITEMS + 1, 1_000])
async def test_every_item_is_answered_in_order(pool, count):
    """Answers stand in the order of the items, however many turns they take."""
    answers = await pool.map(pool_work.double, range(count))

    assert [answer.value for answer in answers] == [2 * number for number in range(count)]
    assert all(answer.duration_ns > 0 and not answer.lost and not answer.error for answer in answers)


async def test_items_of_one_call_are_shared_among_children(pool):
    """A call with many items uses every child at once."""
    workers = {answer.value for answer in await pool.map(pool_work.pid_after_work, range(100))}

    assert workers == set(grading_children(os.getpid()))
    assert len(workers) == 2


async def test_a_long_call_does_not_hold_up_a_short_one(pool):
    """Children are given back after a turn, so a call of one item ends long before one of many that began earlier."""
    long = asyncio.create_task(pool.map(pool_work.sleep, [0.005] * 4_000))  # 10 s
    await asyncio.sleep(0.02)

    await pool.map(pool_work.double, [1])

    assert not long.done()
    long.cancel()


@pytest.mark.parametrize("size", [HEAVY_BYTES, HEAVY_BYTES + 1, TURN_BYTES])
async def test_large_items_are_answered_like_others(pool, size):
    """However items share turns, each has its answer in its place."""
    items = ["x" * size if number % 3 else "x" * number for number in range(60)]

    answers = await pool.map(pool_work.length, items, len)

    assert [answer.value for answer in answers] == [len(item) for item in items]


async def test_heavy_items_never_hold_every_child(pool):
    """While heavy items are worked at, one child is free for what is light, of the same call and of others."""
    heavy = asyncio.create_task(pool.map(pool_work.sleep, [0.4] * 8, lambda item: HEAVY_BYTES + 1))
    await asyncio.sleep(0.01)
    calls = 0
    while not heavy.done():
        (answer,) = await pool.map(pool_work.double, [21])
        assert answer.value == 42
        calls += 1
        await asyncio.sleep(0)

    # A call that waits for a child gets one when a heavy item has ended: there would be no more of them than of those.
    assert calls > 2 * 8


async def test_an_item_without_end_costs_only_itself(pool):
    """Beside one that must be killed, the others of its turn have their answers."""
    items = [0.0] * 10 + [FOR_EVER] + [0.0] * 10

    answers = await pool.map(pool_work.spin, items)

    assert [answer.lost for answer in answers] == [""] * 10 + ["timeout"] + [""] * 10
    assert answers[10].duration_ns == SLOW_SECONDS * 1e9


async def test_an_item_that_waits_for_ever_is_ended_by_the_clock():
    """It takes no processor time, so nothing else would end it; the clock does after `CLOCK_FACTOR` times as long."""
    async with running_pool() as pool:
        started = time.monotonic()

        (answer,) = await pool.map(pool_work.sleep, [FOR_EVER])

    assert answer.lost == "stalled"
    assert time.monotonic() - started >= CLOCK_FACTOR * (STUCK_SECONDS + SLOW_SECONDS)


async def test_time_without_a_processor_is_not_counted(pool):
    """An item that takes longer than its time by the clock, and less of the processor's, has its value."""
    waits, times = 3 * SLOW_SECONDS, [SLOW_SECONDS / 10, SLOW_SECONDS / 2]

    assert (await pool.run(pool_work.sleep, waits)).value == waits
    assert [answer.value for answer in await pool.map(pool_work.spin, times)] == times


async def test_a_child_that_is_stopped_meanwhile_ends_its_item(pool, tmp_path):
    """Whatever keeps a child from running for longer than its processor time costs no value."""
    told = tmp_path / "child"
    work = asyncio.create_task(pool.run(pool_work.spin_and_tell, (SLOW_SECONDS / 2, str(told))))
    await until(lambda: told.exists() and bool(told.read_text()))
    child = int(told.read_text())
    os.kill(child, signal.SIGSTOP)
    await asyncio.sleep(2 * SLOW_SECONDS)
    assert not work.done()
    os.kill(child, signal.SIGCONT)

    answer = await work

    assert answer.value == SLOW_SECONDS / 2
    assert SLOW_SECONDS / 2 * 1e9 <= answer.duration_ns < SLOW_SECONDS * 1e9


async def test_an_item_that_kills_its_child_costs_only_itself(pool):
    """A child that dies over an item is replaced, and the item given up the second time."""
    answers = await pool.map(pool_work.die_at, [0, 1, 13, 2])

    assert [answer.lost for answer in answers] == ["", "", "died", ""]


async def test_work_in_c_that_hears_no_signal_handler_is_killed(pool):
    """What never comes back to the interpreter ends in time."""
    answer = await pool.run(pool_work.hang_in_c, None)

    assert answer.lost == "timeout"
    assert answer.duration_ns == SLOW_SECONDS * 1e9


async def test_a_child_killed_at_work_loses_nothing(pool, tmp_path):
    """An item whose child is killed from outside is done by another child."""
    answers = await pool.map(pool_work.die_once, [str(tmp_path / "once")])

    assert [answer.value for answer in answers] == [True]


NO_ANSWERS = {
    "nothing": b"",
    "no msgpack": b"no answer",
    "a pickle": pickle.dumps([Unpickled()]),
    "another type": msgspec.msgpack.encode([["text", 0, "", "", ""]]),
    "none": msgspec.msgpack.encode([]),
    "too many": msgspec.msgpack.encode([[None, 0, "", "", ""]] * 2),
}


@rows("body", NO_ANSWERS.values(), ids=NO_ANSWERS)
async def test_a_child_that_sends_no_answer_is_given_up(pool, body):
    """Its item is lost as if it had died; nothing that it sends is unpickled, and the others are answered."""
    answer = await pool.run(pool_work.speak_for_itself, body)

    assert answer.lost == "died"
    assert [other.value for other in await pool.map(pool_work.double, [1, 2])] == [2, 4]


async def test_a_bug_is_told_with_its_place(pool):
    """What the function raises is the item's error, with a trace; nothing is lost."""
    (answer,) = await pool.map(pool_work.fail, ["item"])

    assert answer.error == "LookupError: no item"
    assert "pool_work.py" in answer.trace
    assert not answer.lost


async def test_memory_is_bounded(pool):
    """An item that needs more than a child may have is told so, and the child works on."""
    too_much = MEMORY_BYTES // 2**20 + 1

    answers = await pool.map(pool_work.hog, [1, too_much, 1])

    assert [answer.lost for answer in answers] == ["", "memory", ""]


async def test_a_slow_task_is_tried_once_whatever_runs_beside_it(pool, tmp_path):
    """Others cannot keep it from its processor time, so a second try would end as the first did."""
    log = tmp_path / "log"
    beside = asyncio.create_task(pool.map(pool_work.sleep, [0.01] * 60))

    answer = await pool.run(pool_work.spin_and_tell, (FOR_EVER, str(log)))

    assert answer.lost == "timeout"
    first = log.read_text()
    await beside
    assert log.read_text() == first


async def test_slow_tasks_never_hold_every_child(unhurried):
    """However many slow tasks there are, other work goes on."""
    async with running_pool() as pool:
        slow = [asyncio.create_task(pool.run(pool_work.sleep, FOR_EVER)) for _ in range(3)]
        await asyncio.sleep(0.02)

        await pool.map(pool_work.double, range(1_000))

        assert not any(task.done() for task in slow)
    for task in slow:
        with pytest.raises(Unavailable):
            await task


async def test_a_cancelled_call_begins_nothing_more(pool, tmp_path):
    """What a cancelled call has not begun is never begun, and its children serve the next."""
    log = tmp_path / "log"
    call = asyncio.create_task(pool.map(pool_work.write_line, [str(log)] * 500))
    await until(log.exists)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await pool._tasks.ended()  # what had begun is done
    begun = log.read_text().count("\n")
    await pool.map(pool_work.double, range(1_000))

    assert begun < 500
    assert log.read_text().count("\n") == begun


async def test_a_pool_whose_idle_child_is_killed_works_on():
    """A child killed from outside while it had nothing to do costs no answer, and health hears of it."""
    async with running_pool() as pool:
        warmth: list[bool] = []
        pool.on_warm_change = warmth.append
        for _ in range(3):
            kill_a_child()
            assert await pool.map(pool_work.double, range(100))
        answers = await pool.map(pool_work.double, range(100))

        assert [answer.value for answer in answers] == [2 * number for number in range(100)]
        assert pool.warm
        assert warmth == [False, True] * (len(warmth) // 2)


async def test_a_pool_whose_children_are_all_killed_works_on(pool):
    """Nothing is lost where every child is killed at once, at work."""
    call = asyncio.create_task(pool.map(pool_work.sleep, [0.01] * 60))
    await asyncio.sleep(0.05)
    for _ in range(pool.children):
        kill_a_child()

    assert [answer.value for answer in await call] == [0.01] * 60


async def test_a_pool_starts_by_itself():
    """The first call starts a pool that nobody has started."""
    pool = GradingPool(2, modules=())
    assert not pool.warm
    try:
        (answer,) = await pool.map(pool_work.double, [21])
        assert answer.value == 42
        assert pool.warm
    finally:
        await pool.aclose()


async def test_a_pool_that_cannot_start_says_why():
    """A module that is missing in the children is named, and the pool can be closed."""
    pool = GradingPool(2, modules=("no_such_module_anywhere",))
    with pytest.raises(Unavailable, match="no_such_module_anywhere") as caught:
        await pool.start()
    assert caught.value.reason == "GRADING_POOL"
    assert not pool.warm
    with pytest.raises(Unavailable, match="no_such_module_anywhere"):
        await pool.map(pool_work.double, [1])
    await pool.aclose()
    assert not grading_children(os.getpid())


async def test_a_start_that_is_cancelled_leaves_a_pool_to_close():
    """Whoever waits for the start may go away at any time; closing ends what was started."""
    pool = GradingPool(2, modules=())
    start = asyncio.create_task(pool.start())
    await asyncio.sleep(0)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start

    await pool.aclose()

    assert not grading_children(os.getpid())


async def test_a_start_is_cut_short_by_closing():
    """A pool that is closed while it starts is closed at once, and whoever waited for the start is told."""
    pool = GradingPool(2, modules=())
    start = asyncio.create_task(pool.start())
    await asyncio.sleep(0)

    await pool.aclose()

    with pytest.raises(Unavailable) as caught:
        await start
    assert caught.value.reason == "GRADING_CLOSED"
    assert not grading_children(os.getpid())


async def test_closing_leaves_nothing():
    """No child, no thread of the pool's, no descriptor; closing again does nothing."""
    async with running_pool():
        pass  # the fork server, which stays, is there from now on
    threads, descriptors = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))
    async with running_pool() as pool:
        await pool.map(pool_work.double, range(1_000))
        assert grading_children(os.getpid())
    await pool.aclose()
    await asyncio.sleep(0)  # transports close in the next round of the loop

    assert not grading_children(os.getpid())
    assert len(os.listdir("/proc/self/fd")) == descriptors
    # The loop's own threads, which serve whatever is to be waited for.
    left = {thread for thread in set(threading.enumerate()) - threads if not thread.name.startswith("asyncio_")}
    assert not left


async def test_closing_ends_what_is_at_work(unhurried):
    """Calls in flight are told that the pool is closed, quickly, and later ones too."""
    async with running_pool() as pool:
        slow = asyncio.create_task(pool.run(pool_work.sleep, FOR_EVER))
        call = asyncio.create_task(pool.map(pool_work.sleep, [0.01] * 1_000))
        await asyncio.sleep(0.05)

        await pool.aclose()

        for task in (slow, call):
            with pytest.raises(Unavailable) as caught:
                await task
            assert caught.value.reason == "GRADING_CLOSED"
        with pytest.raises(Unavailable):
            await pool.start()
    assert not grading_children(os.getpid())


async def test_children_are_bound(pool):
    """A child leaves no core file, ignores SIGINT, ends at SIGTERM, is the first to go where memory is short."""
    (answer,) = await pool.map(pool_work.limits, [None])

    limits = answer.value
    assert limits["core"] == "0"
    assert limits["oom"] == "1000"
    assert (limits["sigint"], limits["sigterm"]) == (str(signal.SIG_IGN), str(signal.SIG_DFL))
    assert MEMORY_BYTES < int(limits["address_space"]) < MEMORY_BYTES + 2**30


async def test_children_do_not_run_the_program_again(pool):
    """The program that the worker was started by is not imported by its children."""
    (answer,) = await pool.map(pool_work.main_file, [None])

    assert answer.value == str(Path(children.__file__).with_name("pool_host.py"))


@pytest.mark.parametrize("count", [MIN_CHILDREN - 1, MAX_CHILDREN + 1])
def test_the_number_of_children_is_bounded(count):
    """One child could be held by a slow task, and nobody needs hundreds."""
    with pytest.raises(ValueError, match=f"is {count}, not {MIN_CHILDREN} to {MAX_CHILDREN}"):
        GradingPool(count)


@pytest.mark.parametrize(("cores", "children"), [(1, 2), (2, 2), (3, 3), (64, 4)])
def test_default_children(monkeypatch, cores, children):
    """By default there is a child for each core, but at least two and at most four."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))

    assert default_children() == children
