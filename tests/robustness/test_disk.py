"""A journal that cannot be written: evaluations are interrupted, the service says so, the process recovers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import resource
import sqlite3
import subprocess
from pathlib import Path

import pytest

from crucible_bridge.errors import BridgeError, Unavailable
from crucible_bridge.events import EventKind
from crucible_bridge.types import EvaluationState
from crucible_worker.journal.schema import BUSY_SECONDS, JOURNAL_FILE
from tests.robustness.evidence import bits, check_events, check_interrupted_run, log_of, request, samples_of
from tests.robustness.harness import WorkerProcess, until, workshop

SLOW = {"m": {"latency": 0.02}}
HANG_SECONDS = 60.0
"""For what must come true: a test that hangs fails."""
DISK_MIB = 16
"""Size of the disk that is filled: a journal with all that is done here fits."""


async def _running(worker: WorkerProcess, evaluation_id: str, concurrency: int = 32) -> None:
    """Start an evaluation, and wait for its first samples."""
    await worker.bridge.evaluation.start_evaluation(request(evaluation_id, concurrency=concurrency))

    async def some_done() -> bool:
        return (await worker.bridge.evaluation.get_evaluation(evaluation_id)).done > 20

    await until(some_done)


async def _not_serving(worker: WorkerProcess) -> bool:
    return not await worker.is_serving()


async def _refusal(worker: WorkerProcess, evaluation_id: str) -> BridgeError:
    with pytest.raises(Unavailable) as refused:
        await worker.bridge.evaluation.start_evaluation(request(evaluation_id))
    return refused.value


async def _check_interrupted(worker: WorkerProcess) -> None:
    """What holds once it was noticed that the journal cannot be written."""
    await until(lambda: _not_serving(worker))
    assert await worker.is_serving("")
    assert (await worker.bridge.worker.get_info()).worker_id

    async def interrupted() -> bool:
        return (await worker.bridge.evaluation.get_evaluation("full")).state is EvaluationState.INTERRUPTED

    await until(interrupted)


async def _check_while_full(worker: WorkerProcess) -> None:
    """What holds while nothing can be written."""
    await _check_interrupted(worker)
    for evaluation_id in ("full", "another"):
        error = await _refusal(worker, evaluation_id)
        assert (error.reason, error.retryable) == ("JOURNAL_UNWRITABLE", True)
        assert error.retry_after
    assert worker.alive


async def _first_refused(worker: WorkerProcess) -> str:
    """Start evaluations until one is refused, and return its id.

    On a full disk, the journal can still be written where it holds pages that are free again: a small transaction then
    fits in where a larger one did not.
    """
    numbers, refusals = itertools.count(), list[tuple[str, BridgeError]]()
    async with asyncio.timeout(HANG_SECONDS):
        while not refusals:
            evaluation_id = f"start {next(numbers)}"
            try:
                await worker.bridge.evaluation.start_evaluation(request(evaluation_id))
            except Unavailable as error:
                refusals.append((evaluation_id, error))
    ((evaluation_id, error),) = refusals
    assert (error.reason, error.retryable) == ("JOURNAL_UNWRITABLE", True)
    assert error.retry_after
    return evaluation_id


async def _check_after(worker: WorkerProcess, refused: str = "another") -> None:
    """What holds once there is room again; `refused` is the evaluation whose start was refused meanwhile."""
    await until(worker.is_serving)
    ended = await worker.bridge.evaluation.evaluate(request("full"))
    whole = await worker.bridge.evaluation.evaluate(request("whole"))
    log = await log_of(worker.bridge)
    check_events(log)
    check_interrupted_run(log, ended)
    assert ended.attempt == 2
    assert bits(ended.metrics) == bits(whole.metrics)
    assert await samples_of(worker.bridge, "full") == await samples_of(worker.bridge, "whole")
    # Nothing of what was refused is left: no event, and no lock that an owner would be refused for.
    assert not [event for event in log if event.evaluation_id == refused]
    assert (await worker.bridge.evaluation.evaluate(request(refused))).state is EvaluationState.COMPLETED


async def test_unwritable_journal_interrupts_and_recovers(tmp_path):
    """While no write succeeds the evaluation waits, NOT_SERVING is said, and everything else is answered."""
    async with workshop(tmp_path, SLOW) as shop:
        worker = await shop.start()
        await _running(worker, "full")
        with worker.unable_to_write():
            await _check_while_full(worker)
        await _check_after(worker)


async def test_claim_that_could_not_be_written_leaves_no_owner(tmp_path):
    """A StartEvaluation that is the first to find the disk full can be repeated once there is room."""
    async with workshop(tmp_path, SLOW) as shop:
        worker = await shop.start()
        await _running(worker, "drained", concurrency=1)
        worker.terminate()
        assert await worker.exit_code(6) == 0
        worker = await shop.start()
        for number, evaluation_id in enumerate(("drained", "new")):
            with worker.unable_to_write():
                error = await _refusal(worker, evaluation_id)
                assert error.reason == "JOURNAL_UNWRITABLE"
            await until(worker.is_serving)
            ended = await worker.bridge.evaluation.evaluate(request(evaluation_id))
            assert (ended.state, ended.attempt) == (EvaluationState.COMPLETED, 2 - number)


async def test_cancel_while_nothing_can_be_written_is_refused_and_can_be_repeated(tmp_path):
    """A cancel that cannot be written down is UNAVAILABLE, not lost: repeated, it ends the evaluation."""
    async with workshop(tmp_path, SLOW) as shop:
        worker = await shop.start()
        await _running(worker, "full", concurrency=1)
        with worker.unable_to_write():
            await until(lambda: _not_serving(worker))
            with pytest.raises(Unavailable) as refused:
                await worker.bridge.evaluation.cancel_evaluation("full")
            assert refused.value.reason == "JOURNAL_UNWRITABLE"
        await until(worker.is_serving)
        assert (await worker.bridge.evaluation.cancel_evaluation("full")).state is EvaluationState.CANCELLED
        kinds = [event.kind for event in await log_of(worker.bridge) if event.evaluation_id == "full"]
        assert kinds.count(EventKind.EVALUATION_INTERRUPT) == 1
        assert kinds[-1] is EventKind.EVALUATION_STOP


@contextlib.contextmanager
def _write_lock(state_dir: Path):
    """What a worker does to the others that is stopped in the middle of a transaction."""
    connection = sqlite3.connect(state_dir / JOURNAL_FILE, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


async def test_busy_journal_delays_and_interrupts_nothing(tmp_path):
    """A writer that others hold up for a while waits for them; meanwhile reads and other calls are answered."""
    async with workshop(tmp_path, SLOW) as shop:
        worker = await shop.start()
        await _running(worker, "held up")
        with _write_lock(shop.state_dir):
            done = (await worker.bridge.evaluation.get_evaluation("held up")).done
            await asyncio.sleep(BUSY_SECONDS / 5)
            assert (await worker.bridge.evaluation.get_evaluation("held up")).done == done
            assert await worker.is_serving()
        ended = await worker.bridge.evaluation.evaluate(request("held up"))
        assert (ended.state, ended.attempt) == (EvaluationState.COMPLETED, 1)


async def test_journal_that_others_never_give_back_is_unwritable(tmp_path):
    """Held up for longer than `BUSY_SECONDS`, the worker says so, interrupts, and goes on once it can write."""
    async with workshop(tmp_path, SLOW) as shop:
        worker = await shop.start()
        await _running(worker, "full")
        with _write_lock(shop.state_dir):
            await until(lambda: _not_serving(worker))
            assert (await _refusal(worker, "another")).reason == "JOURNAL_UNWRITABLE"
            assert await worker.is_serving("")
        await _check_after(worker)


async def test_journal_that_cannot_be_read_for_a_while_is_read_again(tmp_path):
    """Out of file descriptors, calls fail with UNAVAILABLE, retryable; later cancels are heard all the same."""
    async with workshop(tmp_path, {"m": {"latency": 0.2}}, grading_processes=2) as shop:
        owner, other = await shop.start_several(2)
        await _running(owner, "one", concurrency=1)
        # Processes that start without descriptors are another matter.
        await until(lambda: owner.is_serving("crucible_bridge.v1.GradingService"))
        with owner.limited(resource.RLIMIT_NOFILE, 3):
            # The first stream begins a reading thread, which needs a connection of its own.
            with pytest.raises(BridgeError) as refused:
                async with owner.bridge.evaluation.watch_evaluation("one") as events:
                    await anext(events)
            assert (refused.value.reason, refused.value.retryable) == ("JOURNAL_UNREADABLE", True)
            done = (await other.bridge.evaluation.get_evaluation("one")).done

            async def goes_on() -> bool:
                return (await other.bridge.evaluation.get_evaluation("one")).done > done + 5

            await until(goes_on)
        assert (await other.bridge.evaluation.cancel_evaluation("one")).state is EvaluationState.CANCELLED


@contextlib.contextmanager
def _small_disk(folder: Path):
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("no disk can be mounted (run as root, in Docker with --privileged)")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.core
async def test_full_disk_interrupts_and_recovers(tmp_path):
    """A disk without a free byte is an unwritable journal; where no small disk can be mounted, this is skipped."""
    with _small_disk(tmp_path / "disk") as disk:
        async with workshop(tmp_path, SLOW, state_dir=disk / "state") as shop:
            worker = await shop.start()
            await _running(worker, "full")
            filling = disk / "filling"
            with filling.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * 4096)
            await _check_interrupted(worker)
            refused = await _first_refused(worker)
            assert worker.alive
            filling.unlink()
            await _check_after(worker, refused)
