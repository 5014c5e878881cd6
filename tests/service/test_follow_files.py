"""Checkpoints of real trainers, in processes that write, rename and delete them while they are looked at and held."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crucible_worker.planning.follow.checkpoints import CheckpointScanner, FollowedCheckpoint, Naming, look
from crucible_worker.planning.follow.holding import Vanished, changed, hold, left, release
from tests import needs
from tests.service import follow_process
from tests.unit.planning.follow.checkpoint_files import age, safetensors, write

PROJECT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0
ROUNDS = 8
"""In which a process that holds is killed."""


@contextlib.contextmanager
def _process(action: str, *folders: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.service.follow_process", action, *map(str, folders)]
    process = subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _continue(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _contents(folder: Path, step: int) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in follow_process.files(step)}


def test_a_checkpoint_is_whole_when_its_last_byte_is_written(tmp_path: Path):
    """And not before, however slowly it is written; then within seconds."""
    lookout = CheckpointScanner(tmp_path, Naming())
    with _process("slow", tmp_path) as trainer:
        pieces = 0
        while _line(trainer) == "writing":
            assert lookout.look().whole == ()
            pieces += 1
            _continue(trainer)
        assert pieces == follow_process.PIECES

        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (whole := lookout.look().whole):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    held = hold(whole[0], tmp_path / ".crucible", max_copy_bytes=0, naming=Naming())
    assert _contents(held.path, 1) == follow_process.files(1)


def _followed(directory: Path, trainer: subprocess.Popen[str]) -> tuple[dict[str, FollowedCheckpoint], list[str]]:
    """Hold each checkpoint that is seen until the trainer has ended: those that were held, and why others were not."""
    lookout = CheckpointScanner(directory, Naming())
    held: dict[str, FollowedCheckpoint] = {}
    vanished: list[str] = []
    running = True
    while running:
        running = trainer.poll() is None
        for checkpoint in lookout.look().whole:
            if checkpoint.name in held:
                continue
            try:
                hold(checkpoint, directory / ".crucible", max_copy_bytes=0, naming=Naming())
                held[checkpoint.name] = checkpoint
            except Vanished as error:
                vanished.append(error.reason)
    return held, vanished


def test_what_a_trainer_deletes_meanwhile_is_held_whole_or_not_at_all(tmp_path: Path):
    """It deletes checkpoints as fast as it writes them; what is held of them is never a part."""
    with _process("rotate", tmp_path) as trainer:
        held, vanished = _followed(tmp_path, trainer)

    last = {
        f"checkpoint-{step}" for step in range(follow_process.ROTATED - follow_process.KEPT, follow_process.ROTATED)
    }
    assert last <= set(held)
    assert all(vanished)
    assert left(tmp_path / ".crucible") == tuple(sorted(held))
    for name, checkpoint in held.items():
        assert _contents(tmp_path / ".crucible" / name, checkpoint.step) == follow_process.files(checkpoint.step)


@pytest.mark.parametrize("links", [True, False], ids=["links", "copy"])
def test_a_process_that_is_killed_leaves_all_of_a_checkpoint_or_a_part_that_is_named_so(links: bool, tmp_path: Path):
    """Whatever instant it is killed at; the next process holds it as if nothing had happened."""
    size = 1_000 if links else 10_000_000
    # Links cannot be made on another file system.
    folder = tmp_path / ".crucible" if links else _other_file_system(tmp_path)
    files = follow_process.files(1) | {"model.safetensors": safetensors(size=size)}
    checkpoint_folder = write(tmp_path / "checkpoint-1", files)
    (checkpoint,) = look(tmp_path, Naming()).whole
    try:
        for _ in range(ROUNDS):
            with _process("hold_and_release", tmp_path, folder) as process:
                assert _line(process) == "holding"
                time.sleep(random.uniform(0, 0.1))
            assert left(folder) in ((), ("checkpoint-1",))

            held = hold(checkpoint, folder, max_copy_bytes=1 << 30, naming=Naming())
            assert held.how == ("links" if links else "copy")
            assert {name: (held.path / name).read_bytes() for name in files} == files
            assert changed(held.path, held.identity) == ""
            assert os.listdir(folder) == ["checkpoint-1"]
        assert {name: (checkpoint_folder / name).read_bytes() for name in files} == files
    finally:
        if not links:
            shutil.rmtree(folder, ignore_errors=True)


def _other_file_system(near: Path) -> Path:
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == near.stat().st_dev:
        pytest.skip(needs.ANOTHER_FILE_SYSTEM)
    return Path(tempfile.mkdtemp(dir=shared))


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user can reach, as temporary folders of tests are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("writable", [True, False], ids=["writable", "read-only"])
def test_a_user_without_rights_holds_by_a_copy(writable: bool, public: Path):
    """Linux refuses hard links to the files of others, and a run may be mounted to be read alone."""
    run = public / "run"
    write(run / "checkpoint-1", follow_process.files(1))
    run.chmod(0o777 if writable else 0o555)
    age(run)

    with _process("hold_as_nobody", run) as process:
        how, where, why = (_line(process) for _ in range(3))

    run.chmod(0o755)
    links_are_protected = Path("/proc/sys/fs/protected_hardlinks").read_text().strip() == "1" and os.geteuid() == 0
    if writable and not links_are_protected:
        assert (how, why) == ("links", "")
    else:
        assert how == "copy"
        assert "not permitted" in why if writable else "Permission denied" in why
        assert where == ("run/.crucible/checkpoint-1" if writable else "copies/checkpoint-1")
        assert _contents(public / where, 1) == follow_process.files(1)
    release(run / ".crucible", "checkpoint-1")
    release(public / "copies", "checkpoint-1")
