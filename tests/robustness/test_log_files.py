"""The folder of Inspect logs: one file for each evaluation, whatever happens to workers and to the folder."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from pathlib import Path

import pytest

from crucible_bridge.client.evaluation import request_of
from crucible_bridge.types import EvaluateRequest, EvaluationState, Limits, Sample, SamplingParams
from crucible_worker.journal.schema import JOURNAL_FILE
from crucible_worker.testing import ScriptedModel, run_worker
from tests.robustness.harness import until, workshop

WAIT_SECONDS = 120.0
"""For a file to appear on a machine that has other things to do; a bound, not an expectation."""


def request_for(evaluation_id: str, samples: int) -> EvaluateRequest:
    """An evaluation of so many samples."""
    return request_of(
        evaluation_id=evaluation_id,
        model="embedded:m",
        evaluators=["accuracy"],
        dataset=[Sample(id=f"s{number}", input="ab", targets=("AB",)) for number in range(samples)],
        sampling=SamplingParams(max_tokens=8),
        limits=Limits(concurrency=64),
    )


def logs_of(folder: Path) -> list[Path]:
    """The complete files."""
    return sorted(folder.glob("*.eval")) if folder.is_dir() else []


def parts_of(folder: Path) -> list[Path]:
    """The incomplete ones."""
    return sorted(folder.glob(".*.part")) if folder.is_dir() else []


def samples_of(log: Path) -> int:
    """How many samples a log has; every member is whole."""
    with zipfile.ZipFile(log) as archive:
        assert archive.testzip() is None
        assert json.loads(archive.read("header.json"))["status"] == "success"
        return sum(name.startswith("samples/") for name in archive.namelist())


def rows_of(state_dir: Path) -> list[tuple[str, bool, bool]]:
    """What the journal says of the files: the folder, whether it is written, whether there is a problem."""
    with sqlite3.connect(state_dir / JOURNAL_FILE) as journal:
        rows = journal.execute("SELECT folder, file, problem FROM log_files ORDER BY number").fetchall()
    journal.close()
    return [(Path(folder).name, file is not None, problem is not None) for folder, file, problem in rows]


async def test_a_worker_that_is_killed_in_the_middle_of_a_file_leaves_it_to_the_next(tmp_path: Path) -> None:
    """SIGKILL while a file is written: the next worker writes it whole, once, and removes what the first one left."""
    folder = tmp_path / "logs"
    async with workshop(tmp_path, {"m": {}}, log_dir=folder) as shop:
        first = await shop.start()
        await first.bridge.evaluation.evaluate(request_for("e", 3_000))
        await until(lambda: parts_of(folder), WAIT_SECONDS)
        first.kill()
        assert logs_of(folder) == []
        (left,) = {part.name for part in parts_of(folder) if ".eval." in part.name}

        await shop.start()
        await until(lambda: logs_of(folder), WAIT_SECONDS)
        (log,) = logs_of(folder)
        assert samples_of(log) == 3_000
        await until(lambda: rows_of(shop.state_dir) == [("logs", True, False)], WAIT_SECONDS)
        assert not (folder / left).exists()

        shop.survivor.kill()
        log.unlink()
        third = await shop.start()
        await third.bridge.evaluation.evaluate(request_for("other", 1))
        await until(lambda: logs_of(folder), WAIT_SECONDS)
        # What was written once is not written again: its user has removed it.
        assert [samples_of(each) for each in logs_of(folder)] == [1]


async def test_an_evaluation_that_a_second_worker_ends_has_one_file(tmp_path: Path) -> None:
    """Its first worker is killed before the end; the one that resumes it writes all samples, of both attempts."""
    folder = tmp_path / "logs"
    async with workshop(tmp_path, {"m": {"latency": 0.02}}, log_dir=folder) as shop:
        first = await shop.start()
        await first.bridge.evaluation.start_evaluation(request_for("e", 600))

        async def some_are_done() -> bool:
            return (await first.bridge.evaluation.get_evaluation("e")).done > 100

        await until(some_are_done, WAIT_SECONDS)
        first.kill()
        assert logs_of(folder) == []

        second = await shop.start()
        ended = await second.bridge.evaluation.evaluate(request_for("e", 600))
        assert (ended.state, ended.attempt) == (EvaluationState.COMPLETED, 2)
        await until(lambda: logs_of(folder), WAIT_SECONDS)
        assert [samples_of(log) for log in logs_of(folder)] == [600]


async def test_workers_that_share_everything_write_each_file_once(tmp_path: Path) -> None:
    """Workers of one pool have the same journal and folder: there are as many files as evaluations."""
    folder = tmp_path / "logs"
    model = ScriptedModel()
    async with (
        run_worker({"m": model}, state_dir=tmp_path, log_dir=folder) as one,
        run_worker({"m": model}, state_dir=tmp_path, log_dir=folder) as other,
    ):
        for number in range(4):
            await (one, other)[number % 2].bridge.evaluation.evaluate(request_for(f"e{number}", 5))
        await until(lambda: len(logs_of(folder)) == 4, WAIT_SECONDS)
        await until(lambda: rows_of(tmp_path) == [("logs", True, False)] * 4, WAIT_SECONDS)

    assert [samples_of(log) for log in logs_of(folder)] == [5] * 4
    assert parts_of(folder) == []


async def test_journals_that_share_a_folder_replace_nothing_there(tmp_path: Path) -> None:
    """Evaluations of one id in two journals have two files."""
    folder = tmp_path / "logs"
    for journal in ("a", "b"):
        async with run_worker({"m": ScriptedModel()}, state_dir=tmp_path / journal, log_dir=folder) as worker:
            await worker.bridge.evaluation.evaluate(request_for("e", 2))
            count = 1 + (journal == "b")
            await until(lambda count=count: len(logs_of(folder)) == count, WAIT_SECONDS)

    assert [samples_of(log) for log in logs_of(folder)] == [2, 2]


async def test_a_folder_that_cannot_be_written_to_fails_no_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The evaluation stands, a warning is logged, the journal has the reason; a later worker writes the file."""
    folder = tmp_path / "taken" / "logs"
    folder.parent.write_text("a file")
    async with run_worker({"m": ScriptedModel()}, state_dir=tmp_path, log_dir=folder) as worker:
        ended = await worker.bridge.evaluation.evaluate(request_for("e", 2))
        await until(lambda: rows_of(tmp_path) == [("logs", False, True)], WAIT_SECONDS)
    assert ended.state is EvaluationState.COMPLETED
    written = capsys.readouterr()
    assert "log_file_not_written" in written.out + written.err

    folder.parent.unlink()
    async with run_worker({}, state_dir=tmp_path, log_dir=folder):
        await until(lambda: logs_of(folder), WAIT_SECONDS)
        await until(lambda: rows_of(tmp_path) == [("logs", True, False)], WAIT_SECONDS)
    assert [samples_of(log) for log in logs_of(folder)] == [2]
