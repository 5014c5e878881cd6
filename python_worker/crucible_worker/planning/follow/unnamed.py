"""Folders with a model whose names are those of no checkpoint: `iter-100-hf` needs the pattern `iter-{step}-hf`."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from crucible_worker.backends.local.paths import ADAPTER_CONFIG
from crucible_worker.planning.follow.names import STEP, Naming, candidates

__all__ = ["unnamed", "unnamed_line"]

_CONFIGS = ("config.json", ADAPTER_CONFIG)
"""A folder with one of these files has a model, or an adapter."""
_NUMBER = re.compile("[0-9]+")


def unnamed(directory: Path, naming: Naming) -> list[str]:
    """Names of folders that have a model, but not the name of a checkpoint; in order.

    None if the directory cannot be read. Reads folders: call it in a thread.
    """
    try:
        taken = {each.path for each in candidates(directory, naming) if each.expected}
        with os.scandir(directory) as entries:
            others = [each for each in entries if each.is_dir() and each.path not in taken]
    except OSError:
        return []
    return sorted(each.name for each in others if each.name[0] != "." and _has_model(each.path))


def unnamed_line(names: list[str]) -> str:
    """What to say of such folders: how many there are, and a pattern by which they may be checkpoints."""
    shown = names[0].encode("utf-8", "replace").decode()
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    numbers = len(_NUMBER.findall(shown))
    pattern = _NUMBER.sub(STEP, shown) if numbers == 1 and "{" not in shown and "}" not in shown else f"ckpt-{STEP}"
    return (
        f"{shown}{more}: with a model, but not with the name of a checkpoint; "
        f"say how checkpoints are named, as in --name-pattern {shlex.quote(pattern)}"
    )


def _has_model(path: str) -> bool:
    return any(os.path.exists(os.path.join(path, name)) for name in _CONFIGS)
