"""Memory does not grow with what is in a data set."""

from __future__ import annotations

import json

from crucible_bridge.types import SamplingParams
from crucible_worker.journal.copies import read_marks
from tests.processes import status_of
from tests.robustness.harness import LOCK_FILES, WorkerProcess, workshop

SAMPLES, SAMPLE_BYTES = 3_000, 50_000
"""A data set of 150 MB."""
MAX_GROWTH = 48 * 1024 * 1024
"""Bytes that a worker may grow by while it evaluates that: what waits to be written, pages of the journal and so on."""


def _peak(worker: WorkerProcess) -> int:
    """The most resident memory that it has had, in bytes."""
    return status_of(worker.pid, "VmHWM")


async def _evaluate(worker: WorkerProcess, path: str) -> int:
    evaluation = await worker.bridge.evaluation.evaluate(
        model="embedded:m", evaluators=["accuracy"], dataset=f"jsonl:{path}", sampling=SamplingParams(max_tokens=8)
    )
    assert evaluation.metrics.values["accuracy"] == 1.0
    return evaluation.done


async def test_samples_of_a_file_are_not_held_in_memory(tmp_path):
    """They are read back one at a time, whatever their size; no file of theirs has a name."""
    filling = "x" * SAMPLE_BYTES
    for name, count in (("large.jsonl", SAMPLES), ("small.jsonl", 100)):
        with (tmp_path / name).open("w") as file:
            for index in range(count):
                record = {"input": f"q{index}", "target": f"Q{index}", "metadata": {"filling": filling}}
                file.write(json.dumps(record) + "\n")
    async with workshop(tmp_path, {"m": {}}, data_roots=(tmp_path,)) as shop:
        worker = await shop.start()
        await _evaluate(worker, "small.jsonl")  # what is imported and kept at the first time
        before = _peak(worker)
        assert await _evaluate(worker, "large.jsonl") == SAMPLES
        assert _peak(worker) - before < MAX_GROWTH
        kept = {path.name for path in shop.state_dir.iterdir()}
        mark = next(iter(read_marks(shop.state_dir))).name
    own = {"journal.sqlite3", "journal.sqlite3-wal", "journal.sqlite3-shm", mark, *LOCK_FILES}
    assert kept <= own
