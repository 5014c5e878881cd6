"""The suites that ship with the worker: files to copy and to edit."""

from __future__ import annotations

import importlib.resources
from collections.abc import Sequence

__all__ = ["names", "text"]

_ENDING = ".toml"


def names() -> Sequence[str]:
    """The names of all suites, sorted."""
    files = (file.name for file in importlib.resources.files(__name__).iterdir())
    return sorted(name.removesuffix(_ENDING) for name in files if name.endswith(_ENDING))


def text(name: str) -> str:
    """The text of a suite's file, for `crucible_bridge.suites.parse_suite`.

    Raises:
        KeyError: there is no suite of this name.
    """
    if name not in names():
        raise KeyError(name)
    return importlib.resources.files(__name__).joinpath(name + _ENDING).read_text(encoding="utf-8")
