"""The folder of the forkserver's socket: gone with its process, or at the next start after a kill."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crucible_worker.grading.pool_folder import PREFIX

_SCRIPT = """
import asyncio, sys
from crucible_worker.grading.pool import GradingPool

async def main():
    pool = GradingPool(2, modules=())
    await pool.start()
    print("started", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await pool.aclose()

asyncio.run(main())
"""


@contextmanager
def started(temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """A process with a pool, whose temporary files are in a folder."""
    with subprocess.Popen(
        [sys.executable, "-c", _SCRIPT],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> int:
    """Tell it to end, and wait for that."""
    assert process.stdin is not None
    process.stdin.close()
    return process.wait(20)


def test_nothing_is_left_by_a_process_that_ends(tmp_path: Path) -> None:
    """While it lives its socket is in a folder that nobody else can look into; then neither is there."""
    with started(tmp_path) as process:
        (folder,) = tmp_path.iterdir()
        assert folder.name.startswith(PREFIX)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert [path.is_socket() for path in folder.iterdir()] == [True]
        assert ended(process) == 0

    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_leaves_is_removed_at_the_next_start(tmp_path: Path) -> None:
    """Its folder, and that of nobody who lives, nor what only has such a name, or holds other things than sockets."""
    (tmp_path / f"{PREFIX}file").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path)
    (tmp_path / f"{PREFIX}foreign" / "data").mkdir(parents=True)
    others = set(tmp_path.iterdir())
    with started(tmp_path) as living:
        (kept,) = set(tmp_path.iterdir()) - others
        with started(tmp_path) as killed:
            killed.send_signal(signal.SIGKILL)
            killed.wait(20)
        assert len(set(tmp_path.iterdir()) - others) == 2

        with started(tmp_path) as process:
            after = set(tmp_path.iterdir()) - others
            assert kept in after
            assert len(after) == 2
            assert list(kept.iterdir())
            assert ended(process) == 0
        assert ended(living) == 0

    assert set(tmp_path.iterdir()) == others
    assert (tmp_path / f"{PREFIX}foreign" / "data").is_dir()
