"""The checkpoints that ship as package data: `arithmetic@180` is in checkpoints/arithmetic/180."""

from __future__ import annotations

import functools
from pathlib import Path

from crucible_bridge.errors import NotFound
from crucible_bridge.reasons import Reason

__all__ = ["names", "path"]

_CHECKPOINTS = Path(__file__).parent / "checkpoints"


@functools.cache
def names() -> tuple[str, ...]:
    """Every embedded model as "<model>@<step>": by model, then by step."""
    found = ((directory.parent.name, int(directory.name)) for directory in _CHECKPOINTS.glob("*/*"))
    return tuple(f"{model}@{step}" for model, step in sorted(found))


def path(name: str) -> Path:
    """The directory of an embedded model.

    Args:
        name: "<model>@<step>", one of `names()`.

    Raises:
        NotFound: no model of that name ships with the worker.
    """
    if name not in names():
        raise NotFound(
            f"there is no embedded model {name!r}; there are {', '.join(names())}", reason=Reason.UNKNOWN_EMBEDDED_MODEL
        )
    model, _, step = name.partition("@")
    return _CHECKPOINTS / model / step
