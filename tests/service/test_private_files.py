"""What a worker leaves on disk is for its user alone, whatever the umask is, and from its first moment."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import crucible_bridge
from crucible_bridge.types import BuiltinDataset, Dataset, EmbeddedModel, EvaluateRequest, EvaluatorSpec
from crucible_worker.journal.schema import JOURNAL_FILE
from tests.service.processes_kit import WAIT_SECONDS, wait_until

MODEL = ["--model=embedded:arithmetic@320", "--data=builtin:arithmetic", "--samples=4", "--max-tokens=4"]

REQUEST = EvaluateRequest(
    evaluation_id="one",
    run_id="r",
    model=EmbeddedModel("arithmetic@320"),
    evaluators=(EvaluatorSpec(kind="nll"),),
    dataset=Dataset(source=BuiltinDataset("arithmetic"), limit=4),
)


def _modes(folder: Path) -> dict[str, str]:
    """The permissions of everything below a folder, and of itself, by path."""
    paths = [folder, *folder.rglob("*")]
    return {str(path.relative_to(folder)): f"{stat.S_IMODE(path.lstat().st_mode):04o}" for path in paths}


def _wide(modes: dict[str, str]) -> dict[str, str]:
    """What others may read, write or enter."""
    return {name: mode for name, mode in modes.items() if int(mode, 8) & 0o077}


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "crucible_worker", *arguments]


@pytest.mark.parametrize("umask", [0o000, 0o022])
async def test_a_worker_makes_private_files_alone(tmp_path: Path, umask: int) -> None:
    """State directory, journal, locks and kept logs; while the worker runs, and once it has ended."""
    state, logs, ready = tmp_path / "state", tmp_path / "logs", tmp_path / "ready"
    options = ["--port=0", f"--state-dir={state}", f"--ready-file={ready}", f"--log-dir={logs}", "--log-to=jsonl"]
    with subprocess.Popen(
        _command("serve", *options, "--log-level=error", "--grading-processes=0", "--device=cpu"), umask=umask
    ) as worker:
        try:
            wait_until(lambda: ready.exists() or worker.poll() is not None, "the worker serves")
            ready_mode = stat.S_IMODE(ready.stat().st_mode)
            async with crucible_bridge.connect(ready.read_text()) as bridge:
                await bridge.evaluation.evaluate(REQUEST, timeout=WAIT_SECONDS)
            wait_until(lambda: list(logs.glob("*.eval")) and list(state.rglob("*.jsonl")), "the files are written")
            running = _modes(state)
        finally:
            worker.terminate()
    ended = _modes(state)

    # Others read where the worker listens, and the logs in a folder that the operator named.
    assert {ready_mode, *(stat.S_IMODE(log.stat().st_mode) for log in logs.glob("*.eval"))} == {0o666 & ~umask}
    assert {JOURNAL_FILE, f"{JOURNAL_FILE}-wal", f"{JOURNAL_FILE}-shm", "owners.lock", "prepare.lock"} <= running.keys()
    assert len(ended) > 8
    # A logger writes its files by the umask, in a folder that others cannot enter.
    inside = {name for name in (*running, *ended) if name.endswith((".jsonl", "config.json", ".run_id"))}
    assert _wide({name: mode for name, mode in {**running, **ended}.items() if name not in inside}) == {}


def test_a_journal_of_a_wider_mode_is_narrowed_at_the_start(tmp_path: Path) -> None:
    """A restored backup, or a journal of a folder that was copied: its owner alone may read it, and the log says so."""
    state = tmp_path / "state"
    evaluate = _command("evaluate", *MODEL, "--evaluator=nll", f"--state-dir={state}")
    subprocess.run([*evaluate, "--id=one"], check=True, timeout=WAIT_SECONDS, capture_output=True)
    restored = tmp_path / "restored"
    shutil.copytree(state, restored)
    restored.chmod(0o755)
    for file in restored.glob("*"):
        file.chmod(0o644)
    # What a killed worker of another mode left next to it.
    for end in ("-wal", "-shm"):
        (restored / f"{JOURNAL_FILE}{end}").touch(mode=0o644)
        os.chmod(restored / f"{JOURNAL_FILE}{end}", 0o644)

    evaluate[-1] = f"--state-dir={restored}"
    again = subprocess.run(
        [*evaluate, "--id=two"], check=True, timeout=WAIT_SECONDS, capture_output=True, text=True, umask=0
    )

    assert _wide({name: mode for name, mode in _modes(restored).items() if name != "."}) == {}
    assert stat.S_IMODE(restored.stat().st_mode) == 0o755, "the folder of the operator stays as it was"
    assert "made_private" in again.stderr
    assert JOURNAL_FILE in again.stderr
