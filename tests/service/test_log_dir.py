"""`--log-dir` of `evaluate`: the file is there when the command ends, and a folder that fails costs a warning."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

COMMAND = (
    *(sys.executable, "-m", "crucible_worker", "evaluate", "--model", "embedded:arithmetic@600"),
    *("--data", "builtin:arithmetic", "--evaluator", "accuracy", "--option", "accuracy.grader=numeric"),
    *("--max-tokens", "8", "--samples", "4"),
)


def evaluated(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command, in a process of its own."""
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_evaluate_ends_when_its_log_is_written(tmp_path: Path):
    """The folder is created; its file has every sample of the evaluation."""
    folder = tmp_path / "new" / "logs"

    done = evaluated("--log-dir", folder, "--state-dir", tmp_path / "state", "--id", "nightly/320")

    assert done.returncode == 0, done.stderr
    (log,) = folder.iterdir()
    assert "_arithmetic_nightly-320_" in log.name
    with zipfile.ZipFile(log) as archive:
        header = json.loads(archive.read("header.json"))
        assert (header["status"], header["eval"]["eval_id"]) == ("success", "nightly/320")
        assert sum(name.startswith("samples/") for name in archive.namelist()) == 4

    again = evaluated("--log-dir", folder, "--state-dir", tmp_path / "state", "--id", "nightly/320")

    # It has ended: it is shown again, and no second file is written.
    assert again.returncode == 0, again.stderr
    assert list(folder.iterdir()) == [log]


def test_a_log_that_cannot_be_written_is_a_warning(tmp_path: Path):
    """The evaluation succeeds, and stderr has the folder and the reason."""
    (tmp_path / "taken").write_text("a file")
    folder = tmp_path / "taken" / "logs"

    done = evaluated("--log-dir", folder)

    assert done.returncode == 0, done.stderr
    assert "log_file_not_written" in done.stderr
    assert str(folder) in done.stderr


def test_the_folder_is_a_setting(tmp_path: Path):
    """A file of settings names it, relative to itself."""
    (tmp_path / "worker.toml").write_text('log_dir = "logs"\n')

    done = evaluated("--config", tmp_path / "worker.toml")

    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "logs").glob("*.eval"))) == 1
