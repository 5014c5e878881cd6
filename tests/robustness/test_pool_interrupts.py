"""Ctrl-C in a terminal reaches every process of the worker: those that grade leave it to the worker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LOADS = """
import asyncio
from crucible_worker.grading.pool import GradingPool

async def main():
    pool = GradingPool(2, modules=("interrupted_while_loaded",))
    await pool.start()
    print("loaded")
    await pool.aclose()

asyncio.run(main())
"""
INTERRUPTED = """
import os, pathlib, signal
os.kill(os.getpid(), signal.SIGINT)
pathlib.Path("survived").write_text("")
"""


def test_ctrl_c_while_the_mathematics_is_loaded_is_left_to_the_worker(tmp_path: Path):
    """The fork server loads on, and says nothing: Ctrl-C in the first second of a worker shows no traceback."""
    (tmp_path / "interrupted_while_loaded.py").write_text(INTERRUPTED)

    ended = subprocess.run(
        [sys.executable, "-c", LOADS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (ended.stdout, ended.stderr) == ("loaded\n", "")
    assert (tmp_path / "survived").exists()
