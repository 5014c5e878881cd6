"""`crucible-worker demo` from its start to its files, on the embedded checkpoints."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from crucible_worker.cli.demo import WorkerFailed, worker_process

PROMISED_SECONDS = 60.0
"""What the demo takes at most once everything is installed."""


def _demo(*arguments: str, cwd: Path | None = None, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "crucible_worker", "demo", *arguments]
    variables = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd, env=variables)


def test_json_is_exactly_one_object(tmp_path: Path):
    """A machine reads every checkpoint's metrics in one object; accuracy rises, and the files are there."""
    done = _demo("--json", "--samples=40", f"--output={tmp_path}", CRUCIBLE_HOST="0.0.0.0")

    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert set(report) == {"evaluations", "events", "report", "html"}
    evaluations = report["evaluations"]
    assert [set(evaluation) for evaluation in evaluations] == [{"step", "metrics", "sample_count", "n_unscored"}] * 4
    assert {(evaluation["sample_count"], evaluation["n_unscored"]) for evaluation in evaluations} == {(40, 0)}
    assert [evaluation["step"] for evaluation in evaluations] == sorted(
        evaluation["step"] for evaluation in evaluations
    )
    first, last = evaluations[0]["metrics"], evaluations[-1]["metrics"]
    assert first["accuracy"] < last["accuracy"]
    assert first["nll"] > last["nll"]
    assert "accuracy" in Path(report["report"]).read_text()
    assert "demo-step-600" in Path(report["html"]).read_text(encoding="utf-8")
    _check_events(tmp_path / "events.jsonl", report)


def _check_events(path: Path, report: dict[str, Any]) -> None:
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(events) == report["events"]
    sequences = [event["sequence"] for event in events]
    assert sequences == sorted(set(sequences))
    assert {event["evaluation_id"] for event in events} == {
        f"demo-step-{evaluation['step']}" for evaluation in report["evaluations"]
    }
    names = [tuple(event["name"]) for event in events]
    assert names.count(("crucible_kitchen", "evaluation", "complete")) == 4
    assert names.count(("crucible_bridge", "evaluation", "sample")) == 4 * 2 * 40


def test_people_get_lines_and_a_table(tmp_path: Path):
    """Without a terminal there are plain lines on the way, then the table and where the files are."""
    done = _demo("--samples=10", f"--output={tmp_path}")

    assert done.returncode == 0, done.stderr
    assert done.stderr.count("completed") == 4
    assert "held out of training" in done.stdout
    assert f"report: {tmp_path / 'report.html'} (open it in a browser), {tmp_path / 'report.md'}" in done.stdout
    assert f"worker's log: {tmp_path / 'worker.log'}" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("next: crucible-worker evaluate ")
    assert "\x1b" not in done.stdout + done.stderr


def test_the_demo_keeps_its_promise(tmp_path: Path):
    """As a newcomer types it, with all its samples, it is done within a minute."""
    started = time.monotonic()

    done = _demo(cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < PROMISED_SECONDS


def test_an_output_that_cannot_be_written_to_is_said(tmp_path: Path):
    """Where the files cannot go, the demo fails with one line of why and no traceback."""
    (tmp_path / "file").write_text("")

    done = _demo(f"--output={tmp_path / 'file'}")

    assert done.returncode == 1
    assert "File exists" in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_worker_that_cannot_start_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The end of its log comes with the failure, at once and not after the time for a start."""
    monkeypatch.setattr(sys, "executable", "/bin/false")

    with pytest.raises(WorkerFailed, match="the worker ended with 1 at its start"):
        async with worker_process(tmp_path / "worker.log"):
            raise AssertionError("never ready")


async def test_a_worker_whose_driver_fails_is_ended(tmp_path: Path):
    """An error of whoever drives the worker is raised as it is, and leaves no process behind."""
    with pytest.raises(ZeroDivisionError):
        async with worker_process(tmp_path / "worker.log"):
            raise ZeroDivisionError

    assert '"event": "drained"' in (tmp_path / "worker.log").read_text()
