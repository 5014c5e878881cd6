"""Journals that are copied, restored or set back: no subscriber misses events, none takes one log for another."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from crucible_bridge.errors import FailedPrecondition, OutOfRange
from crucible_bridge.events import Event
from crucible_worker.journal.copies import read_marks
from crucible_worker.journal.schema import JOURNAL_FILE
from crucible_worker.testing import RunningWorker, ScriptedModel, run_worker
from tests.robustness.evidence import log_of, request
from tests.robustness.harness import workshop

MODELS = {"m": ScriptedModel()}


async def _log_id(state_dir: Path) -> str:
    """Of the log that a worker there has."""
    async with run_worker(MODELS, state_dir=state_dir) as worker:
        return (await worker.bridge.worker.get_info()).log_id


async def _evaluate(state_dir: Path, evaluation_id: str, samples: int) -> tuple[str, int]:
    """Evaluate; the log's identity and its last sequence."""
    async with run_worker(MODELS, state_dir=state_dir) as worker:
        await worker.bridge.evaluation.evaluate(request(evaluation_id, samples=samples))
        info = await worker.bridge.worker.get_info()
        return info.log_id, info.last_sequence


def _copy_file(source: Path, target: Path) -> None:
    """`cp`: into the file that is there."""
    target.mkdir(exist_ok=True)
    shutil.copyfile(source / JOURNAL_FILE, target / JOURNAL_FILE)


def _copy_all(source: Path, target: Path) -> None:
    """`cp -a SOURCE/. TARGET/`: into the files that are there."""
    target.mkdir(exist_ok=True)
    subprocess.run(["cp", "-a", f"{source}/.", f"{target}/"], check=True)


def _replace_all(source: Path, target: Path) -> None:
    """`rm -r TARGET`, then `cp -a SOURCE TARGET`."""
    if target.exists():
        shutil.rmtree(target)
    subprocess.run(["cp", "-a", source, target], check=True)


def _back_up(source: Path, target: Path) -> None:
    """SQLite's own backup, into the file that is there."""
    target.mkdir(exist_ok=True)
    with (
        contextlib.closing(sqlite3.connect(source / JOURNAL_FILE)) as journal,
        contextlib.closing(sqlite3.connect(target / JOURNAL_FILE)) as copy,
    ):
        journal.backup(copy)


def _vacuum_into(source: Path, target: Path) -> None:
    """`VACUUM INTO`, into a new file."""
    target.mkdir(exist_ok=True)
    (target / JOURNAL_FILE).unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(source / JOURNAL_FILE)) as journal:
        journal.execute("VACUUM INTO ?", (str(target / JOURNAL_FILE),))


COPIES = [_copy_file, _copy_all, _replace_all, _back_up, _vacuum_into]


def _named(copy: Callable[[Path, Path], None]) -> str:
    return copy.__name__.lstrip("_")


@pytest.mark.parametrize("copy", [_copy_all, _back_up], ids=_named)
@pytest.mark.parametrize("back", COPIES, ids=_named)
async def test_a_restored_backup_has_a_new_log(tmp_path, copy, back):
    """However the backup was made and restored: who resumes gets OTHER_LOG, and reads every event of the new log."""
    live, backup = tmp_path / "live", tmp_path / "backup"
    log_id, kept = await _evaluate(live, "kept", 2)
    copy(live, backup)
    assert await _evaluate(live, "lost", 3) > (log_id, kept)
    back(backup, live)

    async with run_worker(MODELS, state_dir=live) as worker:
        assert (await worker.bridge.worker.get_info()).log_id != log_id
        await worker.bridge.evaluation.evaluate(request("after", samples=10))
        with pytest.raises(FailedPrecondition) as caught:
            await _resume(worker, kept, log_id)
        assert caught.value.reason == "OTHER_LOG"
        log = await log_of(worker.bridge)
        assert [event.sequence for event in log] == list(range(1, len(log) + 1))
        assert {event.evaluation_id for event in log} == {"kept", "after"}
        assert [each.evaluation_id for each in (await worker.bridge.evaluation.list_evaluations()).items] == [
            *("after", "kept"),
        ]
        now = (await worker.bridge.worker.get_info()).log_id
    assert await _log_id(live) == now


async def _resume(worker: RunningWorker, after: int, log_id: str) -> list[Event]:
    async with worker.bridge.telemetry.subscribe(after, log_id, until_now=True) as stream:
        return [event async for event in stream]


@pytest.mark.parametrize("copy", COPIES, ids=_named)
async def test_a_copy_has_a_log_of_its_own_and_the_original_keeps_its(tmp_path, copy):
    """Two workers on the same past and different futures: their logs are two."""
    log_id, _ = await _evaluate(tmp_path / "one", "past", 2)
    copy(tmp_path / "one", tmp_path / "other")
    other, _ = await _evaluate(tmp_path / "other", "future", 2)
    assert other != log_id
    assert (await _evaluate(tmp_path / "one", "another future", 2))[0] == log_id
    assert await _log_id(tmp_path / "other") == other


async def test_a_copy_made_beside_a_running_worker_has_a_log_of_its_own(tmp_path):
    """A backup that was made while events were written, and is started as it is."""
    async with workshop(tmp_path, {"m": {"latency": 0.01}}) as shop:
        worker = await shop.start()
        await worker.bridge.evaluation.start_evaluation(request("one"))
        log_id = (await worker.bridge.worker.get_info()).log_id
        _back_up(shop.state_dir, tmp_path / "copy")
        assert await _log_id(tmp_path / "copy") != log_id
        assert (await worker.bridge.worker.get_info()).log_id == log_id


async def test_kills_moves_and_other_workers_are_no_copies(tmp_path):
    """SIGKILL amid commits, several workers, a renamed directory, VACUUM: the log stays what it is."""
    async with workshop(tmp_path, {"m": {"latency": 0.005}}) as shop:
        log_ids = set()
        for number in range(4):
            first, second = await shop.start_several(2)
            await first.bridge.evaluation.start_evaluation(request(f"one-{number}"))
            await second.bridge.evaluation.start_evaluation(request(f"other-{number}"))
            log_ids |= {(await each.bridge.worker.get_info()).log_id for each in (first, second)}
            first.kill()
            second.kill()
    with contextlib.closing(sqlite3.connect(shop.state_dir / JOURNAL_FILE)) as journal:
        journal.execute("VACUUM")
    moved = shop.state_dir.rename(tmp_path / "moved")
    log_ids.add(await _log_id(moved))
    assert len(log_ids) == 1


async def test_a_journal_set_back_beneath_a_worker_gets_a_new_log(tmp_path):
    """SQLite's restore into the open journal: streams end, the next event is of a new log."""
    state_dir = tmp_path / "state"
    log_id, _ = await _evaluate(state_dir, "kept", 2)
    _back_up(state_dir, tmp_path / "backup")
    async with run_worker(MODELS, state_dir=state_dir) as worker:
        await worker.bridge.evaluation.evaluate(request("lost", samples=3))
        stream = worker.bridge.telemetry.subscribe()
        await anext(stream)
        _back_up(tmp_path / "backup", state_dir)
        await worker.bridge.evaluation.evaluate(request("after", samples=10))
        assert (await worker.bridge.worker.get_info()).log_id != log_id
        with pytest.raises((FailedPrecondition, OutOfRange)) as caught:
            async for _ in stream:
                pass
        # The latter if the stream looks before the first event of the new log.
        assert caught.value.reason in ("OTHER_LOG", "BEYOND_LOG")
        assert {event.evaluation_id for event in await log_of(worker.bridge)} == {"kept", "after"}


async def test_a_mark_that_is_removed_asks_for_a_new_log(tmp_path):
    """What an operator does after a snapshot of the file system was restored, which leaves no trace."""
    log_id, _ = await _evaluate(tmp_path, "one", 2)
    for path in read_marks(tmp_path):
        path.unlink()
    assert await _log_id(tmp_path) != log_id
