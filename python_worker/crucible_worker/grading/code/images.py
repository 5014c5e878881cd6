"""Images of the sandbox: folders of packages that programs and their tests may import, in addition to Python's own."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["CodeImage", "read_images"]


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CodeImage:
    """A folder of packages under a name."""

    name: str
    """Its name in requests: letters, digits, ".", "_" and "-"."""
    directory: Path
    """The folder that `pip install --target` has filled."""

    def check(self) -> None:
        """Refuse an image that cannot work.

        Raises:
            ValueError: the name is not valid, or the directory is not a folder.
        """
        if not _NAME.fullmatch(self.name):
            raise ValueError(f'the name {self.name!r:.80} has something other than letters, digits, ".", "_" and "-"')
        if not self.directory.is_dir():
            raise ValueError(f"{self.name}: {self.directory} is not a folder")


def read_images(value: Any, base: Path) -> tuple[CodeImage, ...]:
    """Read images from a TOML table, from a sequence of texts "NAME=DIR", or from such texts separated as in PATH.

    Args:
        value: what the operator gave.
        base: folder that paths are relative to.

    Raises:
        ValueError: the value cannot be used; the message says what is expected.
    """
    images: dict[str, CodeImage] = {}
    for name, directory in _pairs(value):
        if not name or not isinstance(directory, str) or not directory:
            raise ValueError("NAME=DIR")
        if name in images:
            raise ValueError(f"one folder for each name: {name} is given twice")
        images[name] = CodeImage(name=name, directory=base / Path(directory).expanduser())
    return tuple(images.values())


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
        return
    parts = [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError("a list of NAME=DIR")
    for part in parts:
        name, _, directory = part.partition("=") if isinstance(part, str) else ("", "", "")
        yield name, directory
