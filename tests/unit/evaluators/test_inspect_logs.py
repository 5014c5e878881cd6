"""Logs of tasks that are kept: which, where, how much, and what is said where none is."""

from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path

import pytest

from crucible_worker.evaluators.inspect import files as module
from crucible_worker.evaluators.inspect.files import LogKeeper
from tests.tables import rows


def _folder(state_dir: Path, evaluation: str = "1-2") -> Path:
    return state_dir / "kept" / evaluation / "0"


def _log(folder: Path, name: str = "a.eval", *, size: int = 0, age: float = 0.0) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("header.json", "x" * size)
    os.utime(path, (1_000 - age, 1_000 - age))
    return path


def test_the_newest_log_is_kept_and_named(tmp_path: Path) -> None:
    """By its path below the state directory, for its owner's eyes; that of an earlier attempt makes room for it."""
    task = tmp_path / "task"
    state_dir = tmp_path / "state"
    for text in (b"first", b"second"):
        _log(task, "old.eval", age=10)
        with _log(task).open("ab") as file:
            file.write(text)
        keeper = LogKeeper(_folder(state_dir), "gsm8k", "a")
        keeper.keep(task)
        path = state_dir / keeper.told["log"]
        assert path.read_bytes().endswith(text)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.name.startswith("gsm8k-")
        assert list(path.parent.iterdir()) == [path]
    assert stat.S_IMODE(_folder(state_dir).stat().st_mode) == 0o700


@rows("label", ["..", "a.b", "x" * 300, "é\ud800 ;", "", "a\0b"])
def test_a_name_leads_nowhere_else(tmp_path: Path, label: str) -> None:
    """Two samples of one task have a log each, whatever they and it are called."""
    folder = _folder(tmp_path / "state", f"{len(label)}-{sum(map(ord, label))}")
    for sample_id in ("../x", "y", "\ud800"):
        _log(tmp_path / "task")
        keeper = LogKeeper(folder, label, sample_id)
        keeper.keep(tmp_path / "task")
        assert (tmp_path / "state" / keeper.told["log"]).parent == folder

    assert len(list(folder.iterdir())) == 3


@rows(("more", "kept"), [(0, True), (1, False)])
def test_a_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int, kept: bool) -> None:
    """At the bound it is kept, one byte above it the result says why not."""
    size = _log(tmp_path / "task", size=1_000).stat().st_size
    monkeypatch.setattr(module, "MAX_LOG_BYTES", size - more)

    keeper = LogKeeper(_folder(tmp_path / "state"), "t", "a")
    keeper.keep(tmp_path / "task")

    assert ("log" in keeper.told) is kept
    assert kept or f"at most {size - 1:,}" in keeper.told["log_not_kept"]


@rows(("more", "kept"), [(0, True), (1, False)])
def test_all_logs_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int, kept: bool) -> None:
    """Those of every evaluation of the state directory count."""
    state_dir = tmp_path / str(more)
    first = LogKeeper(_folder(state_dir, "1-1"), "t", "a")
    size = _log(tmp_path / "task").stat().st_size
    first.keep(tmp_path / "task")
    monkeypatch.setattr(module, "MAX_LOGS_BYTES", 2 * size - more)

    _log(tmp_path / "task")
    second = LogKeeper(_folder(state_dir, "2-2"), "t", "a")
    second.keep(tmp_path / "task")

    assert (state_dir / first.told["log"]).exists()
    assert ("log" in second.told) is kept


def test_half_a_log_is_not_kept(tmp_path: Path) -> None:
    """As a killed process may leave it."""
    path = _log(tmp_path / "task", size=1_000)
    path.write_bytes(path.read_bytes()[:-30])

    keeper = LogKeeper(_folder(tmp_path), "t", "a")
    keeper.keep(tmp_path / "task")

    assert keeper.told == {"log_not_kept": "was not written to its end"}
    assert not (tmp_path / "kept").exists()


def test_links_and_pipes_are_no_logs(tmp_path: Path) -> None:
    """What a task puts in place of its log is neither followed nor waited for."""
    task, secret = tmp_path / "task", tmp_path / "secret.zip"
    _log(tmp_path, "secret.zip")
    task.mkdir()
    (task / "link.eval").symlink_to(secret)
    os.mkfifo(task / "pipe.eval")
    (task / "folder.eval").mkdir()
    (task / "other.json").write_text("{}")

    for folder in (task, tmp_path / "missing"):
        keeper = LogKeeper(_folder(tmp_path), "t", "a")
        keeper.keep(folder)
        assert keeper.told == {"log_not_kept": "the task ended before it wrote one"}
    assert secret.exists()


def test_a_disk_that_takes_nothing_is_told(tmp_path: Path) -> None:
    """The task's result stands."""
    (tmp_path / "kept").write_text("a file where a folder is to be")
    _log(tmp_path / "task")

    keeper = LogKeeper(_folder(tmp_path), "t", "a")
    keeper.keep(tmp_path / "task")

    assert keeper.told["log_not_kept"].startswith("FileExistsError")
