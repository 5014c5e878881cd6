"""Processes of the tests of following: trainers that know nothing of a follower, and a process that holds and releases.

python -m tests.service.follow_process slow DIRECTORY
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

from crucible_worker.planning.follow.checkpoints import Naming, look
from crucible_worker.planning.follow.holding import hold, release
from tests.unit.planning.follow.checkpoint_files import age, safetensors, write

PIECES = 20
"""Of a file that is written slowly."""
ROTATED = 40
"""Checkpoints of a trainer that keeps `KEPT` of them."""
KEPT = 2


def files(step: int) -> dict[str, bytes]:
    """Of the checkpoint of a step; each file shows the step."""
    note = b'{"step": %d}' % step
    return {"config.json": note, "tokenizer.json": note, "model.safetensors": safetensors(size=1_000 + step)}


def slow(directory: Path) -> None:
    """Write one checkpoint, the weights last and in pieces; say so before each piece and after the last."""
    folder = directory / "checkpoint-1"
    weights = files(1)["model.safetensors"]
    write(folder, {name: content for name, content in files(1).items() if name != "model.safetensors"})
    with (folder / "model.safetensors").open("wb") as file:
        for start in range(0, len(weights), len(weights) // PIECES + 1):
            print("writing", flush=True)
            sys.stdin.readline()
            file.write(weights[start : start + len(weights) // PIECES + 1])
            file.flush()
    print("written", flush=True)
    sys.stdin.readline()


def rotate(directory: Path) -> None:
    """Write checkpoints as fast as possible, each under a temporary name at first, and delete all but the last ones.

    They have old times, so that a follower considers them whole at once.
    """
    for step in range(ROTATED):
        temporary = write(directory / f"tmp-checkpoint-{step}", files(step))
        age(temporary)
        temporary.rename(directory / f"checkpoint-{step}")
        time.sleep(0.005 * (step % 4))  # the pace of training
        if step >= KEPT:
            shutil.rmtree(directory / f"checkpoint-{step - KEPT}")
    print("done", flush=True)


def hold_and_release(directory: Path, folder: Path) -> None:
    """Hold a checkpoint in a folder and release it, again and again, until this process is killed."""
    (checkpoint,) = look(directory, Naming()).whole
    print("holding", flush=True)
    while True:
        hold(checkpoint, folder, max_copy_bytes=1 << 30, naming=Naming())
        release(folder, checkpoint.name)


def hold_as_nobody(directory: Path) -> None:
    """Hold a checkpoint with no more rights than those of any user; copies go next to the directory."""
    if os.geteuid() == 0:
        os.setegid(65534)
        os.seteuid(65534)
    (checkpoint,) = look(directory, Naming()).whole
    copies = directory.with_name("copies")
    held = hold(checkpoint, directory / ".crucible", max_copy_bytes=1 << 30, naming=Naming(), copy_folder=copies)
    print(held.how, held.path.relative_to(directory.parent), held.why, sep="\n", flush=True)


if __name__ == "__main__":
    actions = {action.__name__: action for action in (slow, rotate, hold_and_release, hold_as_nobody)}
    actions[sys.argv[1]](*map(Path, sys.argv[2:]))
