"""Tasks of a worker that meet an error which its code does not expect."""

from __future__ import annotations

import asyncio
import errno
import itertools

import pytest
import structlog

from crucible_worker.util import tasks
from crucible_worker.util.tasks import Background


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin again at once."""
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.0)


@pytest.mark.usefixtures("without_pauses")
async def test_a_task_that_fails_begins_again_and_is_listed() -> None:
    """The log has one line for equal failures, with their error id; tasks that never failed are not listed."""
    tries = itertools.count(1)
    kept = Background()

    async def fails_twice() -> None:
        if next(tries) <= 2:
            raise OSError(errno.EMFILE, "Too many open files")

    async def works() -> None:
        pass

    with structlog.testing.capture_logs() as lines:
        await asyncio.gather(kept.keep("retention", fails_twice), kept.keep("grading", works))
    (failed,) = kept.failed
    assert (failed.name, failed.failures) == ("retention", 2)
    assert failed.last_failure_unix_ns > 0
    assert [(line["event"], line["task"], line["error_id"]) for line in lines] == [
        ("background_task_failed", "retention", failed.error_id)
    ]


async def test_a_task_that_is_cancelled_ends() -> None:
    """A worker that stops waits for no task, and none is a failure."""
    kept = Background()

    async def runs_on() -> None:
        await asyncio.Event().wait()

    task = kept.keep("retention", runs_on)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert kept.failed == ()


@pytest.mark.usefixtures("without_pauses")
async def test_workers_do_not_see_each_others_tasks() -> None:
    """Each lists its own."""
    one, other = Background(), Background()

    async def fails_once() -> None:
        if not one.failed:
            raise ValueError("unforeseen")

    await one.keep("retention", fails_once)
    assert [failed.name for failed in one.failed] == ["retention"]
    assert other.failed == ()


async def test_pauses_grow_to_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails for long costs little."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def fails() -> None:
        if len(pauses) < 9:
            raise ValueError("unforeseen")

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await Background().keep("retention", fails)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
