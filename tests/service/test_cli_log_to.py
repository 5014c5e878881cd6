"""`--log-to` of `evaluate`: the metrics are there when the command ends, and a logger that is refused is named."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from crucible_bridge.types import LoggedMetrics
from crucible_worker.testing import run_worker
from tests import commands

COMMAND = (
    *("evaluate", "--model", "embedded:arithmetic@600"),
    *("--data", "builtin:arithmetic", "--evaluator", "nll", "--samples", "2"),
)


def evaluated(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command, in a process of its own."""
    return commands.run(*COMMAND, *arguments)


async def test_evaluate_ends_when_its_metrics_are_logged(tmp_path: Path):
    """The row has the step; what other experiments of the journal wait for is left to their workers."""
    state = tmp_path / "state"
    state.mkdir()
    in_the_way = state / "experiments"
    in_the_way.write_text("no folder")
    async with run_worker({}, state_dir=state) as worker:
        await worker.bridge.experiments.open_experiment("other", log_to=["jsonl"])
        await worker.bridge.experiments.log_metrics("other", [LoggedMetrics(values={"loss": 1.0})])
    in_the_way.unlink()

    done = evaluated(
        "--log-to", f"jsonl:{tmp_path / 'logged'}", "--state-dir", state, "--run-id", "run-7", "--step", "7"
    )

    assert done.returncode == 0, done.stderr
    assert "logger_behind" not in done.stderr
    (line,) = (tmp_path / "logged").rglob("metrics.jsonl")
    (row,) = map(json.loads, line.read_text().splitlines())
    assert (row["step"], row["_family"]) == (7, "nll")
    assert row["nll"] > 0
    assert not in_the_way.exists()


def test_a_logger_that_is_not_there_is_refused(tmp_path: Path):
    """Before anything runs, with the option by its name."""
    done = evaluated("--log-to", "neptune", "--state-dir", tmp_path / "state")

    assert done.returncode == 2
    assert "--log-to is 'neptune'. Neptune's service ended on 2026-03-05" in done.stderr
    assert not (tmp_path / "state").exists()
