"""A trainer that knows nothing of a worker, as a process: `python -m tests.robustness.fake_trainer DIR COUNT SECONDS`.

It saves checkpoint 1 to COUNT, one after so many seconds. By its number a checkpoint is written in one go, slowly and
piece by piece, or never to its end; and it is deleted soon, or stays. What a trainer deletes is renamed first, as some
do, or goes file by file.
"""

import shutil
import sys
import time
from pathlib import Path

from tests.service.follow_kit import save, weights

NEVER_WHOLE, SLOW, DELETED_AT_ONCE, DELETED_LATER = 7, 5, 11, 4
"""Checkpoints whose number these divide."""
KEPT = 1
"""Checkpoints that a trainer keeps, of those that it deletes in the end."""


def is_never_whole(step: int) -> bool:
    """Whether its weights lack the end."""
    return step % NEVER_WHOLE == 0


def may_vanish(step: int) -> bool:
    """Whether it may be deleted before anybody has seen it."""
    return step % DELETED_AT_ONCE == 0


def main(folder: Path, count: int, seconds: float) -> None:
    """Save and delete them."""
    later: list[Path] = []
    for step in range(1, count + 1):
        path = folder / f"checkpoint-{step}"
        if is_never_whole(step) or step % SLOW == 0:
            _write_in_pieces(path, step, seconds)
        else:
            save(folder, step)
        if may_vanish(step):
            shutil.rmtree(path)
        elif step % DELETED_LATER == 0 and not is_never_whole(step):
            later.append(path)
        if len(later) > KEPT:
            _delete(later.pop(0))
        time.sleep(seconds)


def _write_in_pieces(path: Path, step: int, seconds: float) -> None:
    content = weights(step)
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    with (path / "model.safetensors").open("wb", buffering=0) as file:
        third = len(content) // 3
        for start in (0, third, 2 * third):
            if start and is_never_whole(step):
                return
            file.write(content[start : start + third] if start < 2 * third else content[start:])
            time.sleep(seconds)


def _delete(path: Path) -> None:
    # The checkpoint has been there for several others: it was held, or the worker was dead for all that time.
    shutil.rmtree(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
