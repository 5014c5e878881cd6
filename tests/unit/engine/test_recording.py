"""What an attempt records is whole in the journal, and goes in chunks with the last evaluation that needs it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from crucible_bridge.types import EvaluationState, Problem, Sample, SampleResult, Verdict
from crucible_worker.engine import recording
from crucible_worker.engine.recording import MAX_FRAMES, FinishedSample, Recorded, Recorder
from crucible_worker.history import lifecycle, retention
from crucible_worker.history.retention import Retention
from crucible_worker.journal import JournalUnavailable
from crucible_worker.journal.contents import kernel_of
from crucible_worker.journal.queries import read_samples
from crucible_worker.journal.records import SampleKey
from crucible_worker.util.limits import WorkerLimits
from tests.unit.journal.journals import claim

SAMPLES = 10
KEEP = Retention(max_events=0, evaluation_seconds=1.0, interrupted_seconds=0.0, plan_seconds=0.0)


def result_at(position, prompt: Callable[[str], str] = str):
    """The result of a sample, with what is to be recorded of it."""
    sample = Sample(id=str(position), input=f"input {position}")
    result = SampleResult(evaluator="nll", sample_id=sample.id, verdict=Verdict.MEASURED, score=1.0)
    recorded = Recorded(sample, kernel_of(sample), prompt(str(sample.input)), (), 0, 0)
    return FinishedSample(SampleKey(position, 0, 0), result, 1, recorded=recorded)


async def record(journal, row, prompt: Callable[[str], str] = str):
    """Commit ten samples of an evaluation with their records; `prompt` makes a prompt of an input."""
    recorder = Recorder(row, SAMPLES, WorkerLimits())
    kept = [result_at(position, prompt) for position in range(SAMPLES)]
    await journal.submit(lambda transaction: recording.commit_samples(transaction, row, kept, 0, recorder))


async def count(journal, table):
    """Rows of a table."""
    return await journal.read(lambda connection: connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])


async def test_retention_removes_records_with_the_last_evaluation(journal, locks, monkeypatch):
    """Chunk by chunk: samples, then contents that no other evaluation has, then the evaluation itself."""
    monkeypatch.setattr(retention, "CHUNK", 4)
    for evaluation_id in ("first", "second"):
        claimed = await claim(journal, locks, evaluation_id)
        await record(journal, claimed.row)
        problem, row = Problem(reason="X", message="x"), claimed.row
        await journal.submit(
            lambda t, row=row, problem=problem: lifecycle.end(t, locks, row, EvaluationState.FAILED, problem, 0)
        )
    assert (await count(journal, "contents"), await count(journal, "sample_records")) == (SAMPLES, 2 * SAMPLES)

    left = []
    for evaluation_id in ("first", "second"):
        await journal.submit(
            lambda t, name=evaluation_id: t.execute(
                "UPDATE evaluations SET ended_ns = ? WHERE evaluation_id = ?", (time.time_ns() - 10**11, name)
            )
        )
        chunks = 1
        while await journal.submit(lambda transaction: retention.trim(transaction, locks, KEEP)):
            chunks += 1
            assert chunks < 50
        left.append((await count(journal, "contents"), await count(journal, "sample_records"), chunks > 3))
    assert left == [(SAMPLES, SAMPLES, True), (0, 0, True)]
    assert await count(journal, "prompt_frames") == await count(journal, "recorded_datasets") == 0


async def test_prompts_that_differ_have_few_frames(journal, locks):
    """Where every prompt stands in another frame, the first ones are kept as such, the others themselves."""
    claimed = await claim(journal, locks)
    await record(journal, claimed.row, lambda text: f"{hash(text)} {text}")
    assert await count(journal, "prompt_frames") == MAX_FRAMES


async def test_what_is_undone_is_written_again(journal, locks):
    """Results that are committed after others were undone have their own contents and frames in the journal."""
    row = (await claim(journal, locks)).row
    recorder = Recorder(row, SAMPLES, WorkerLimits())

    def commit(transaction, positions):
        kept = [result_at(position, "Q: {}".format) for position in positions]
        recording.commit_samples(transaction, row, kept, 0, recorder)

    def undone(transaction):
        commit(transaction, [0, 1])
        raise journal.errors[0]("database or disk is full")

    with pytest.raises(JournalUnavailable):
        await journal.submit(undone)
    await journal.submit(lambda transaction: commit(transaction, [1, 2]))
    page, _ = await journal.read(lambda connection: read_samples(connection, row.number, page_size=SAMPLES))
    found = [(result.sample.input, result.prompt) for result in page]
    assert found == [("input 1", "Q: input 1"), ("input 2", "Q: input 2")]
    assert await count(journal, "recorded_datasets") == await count(journal, "recorded_evaluations") == 1
