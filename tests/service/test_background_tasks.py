"""Each task of a worker that has no call fails once: it begins again, and GetInfo names it."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

import crucible_bridge
from crucible_worker.engine.admission import Admission
from crucible_worker.engine.resuming import Resuming
from crucible_worker.grading.pool import GradingPool
from crucible_worker.history import retention
from crucible_worker.history.lifecycle import Reaper
from crucible_worker.planning.follow_records import FollowRecords
from crucible_worker.server import worker as server
from crucible_worker.server.worker import GRADING, WORKER, Worker
from crucible_worker.util import tasks
from tests.robustness.harness import until
from tests.service.server_kit import settings_for

TASKS: dict[str, tuple[Any, str]] = {
    "follows": (FollowRecords, "open"),
    "grading": (GradingPool, "start"),
    "requests": (Admission, "apply_requests"),
    "resumptions": (Resuming, "run"),
    "retention": (retention, "keep_trimmed"),
    "warm-up": (server, "describe"),
}
"""What each of them calls first: where it is, and its name."""


@pytest.mark.parametrize("name", TASKS)
async def test_a_task_that_fails_once_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As with a process that has no descriptor left for a moment: nothing is NOT_SERVING for ever."""
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.01)
    holder, attribute = TASKS[name]
    original = getattr(holder, attribute)
    calls = 0

    def fails_once(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return original(*arguments, **named)

    monkeypatch.setattr(holder, attribute, fails_once)
    roots = tmp_path / "models"
    roots.mkdir()
    settings = settings_for(tmp_path / "state", model_roots=(roots,), grading_processes=2, resume_interrupted=True)
    async with Worker(settings) as worker, crucible_bridge.connect(worker.address) as bridge:
        await until(lambda: calls > 1)
        (failed,) = (await bridge.worker.get_info()).failed_tasks
        assert (failed.name, failed.failures) == (name, 1)
        for service in (WORKER, GRADING):
            await until(lambda service=service: bridge.worker.health(service))


async def test_what_is_looked_for_after_an_outage_of_the_journal_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look for evaluations without an owner, when the journal can be written again, fails once, too."""
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.01)
    async with Worker(settings_for(tmp_path)) as worker, crucible_bridge.connect(worker.address) as bridge:
        original, calls = Reaper.reap_all, 0

        async def fails_once(reaper: Reaper) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise OSError(errno.EMFILE, "Too many open files")
            await original(reaper)

        monkeypatch.setattr(Reaper, "reap_all", fails_once)
        evaluations = worker._parts.evaluations  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
        evaluations._writable_changed(True)  # pyright: ignore[reportPrivateUsage]
        await until(lambda: calls > 1)
        (failed,) = (await bridge.worker.get_info()).failed_tasks
        assert (failed.name, failed.failures) == ("interruptions", 1)
