"""Files and folders that callers name by a path, below folders that the operator has named.

A path is user input: it may contain `..`, be absolute, or meet symbolic links. None of them leads out of the folders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["LeadsOut", "find_below"]


class LeadsOut(Exception):
    """A path leads out of the folders below which it has to lie."""


def find_below(roots: Sequence[Path], path: str, is_it: Callable[[Path], bool]) -> Path | None:
    """The real path of a file or folder below the first root that has it; None if no root has it.

    Args:
        roots: folders.
        path: relative to any of them; without a zero byte.
        is_it: whether a real path has the wanted type: `Path.is_file`, `Path.is_dir`.

    Raises:
        LeadsOut: it leads out of a root, and no other root has it. Nothing outside is examined: the answer must not
            reveal what exists there.
    """
    leads_out = False
    for root in roots:
        try:
            real_root = root.resolve()
            found = (real_root / path).resolve()
            if not found.is_relative_to(real_root):
                leads_out = True
            elif is_it(found):
                return found
        except (OSError, RuntimeError):  # a name that is too long, or a loop of links: this root does not have it
            continue
    if leads_out:
        raise LeadsOut
    return None
