"""What callers name by a path, below folders that the operator has named.

A path is user input: it may hold `..`, be absolute, or meet symbolic links, and leads nowhere else by any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["LeadsOut", "find_below"]


class LeadsOut(Exception):
    """A path leads out of the folders below which it has to lie."""


def find_below(roots: Sequence[Path], path: str, is_it: Callable[[Path], bool]) -> Path | None:
    """The real path of what lies below one of the roots, the first that has it; None where none has.

    Args:
        roots: folders.
        path: relative to any of them; without a zero byte.
        is_it: whether a real path is what is looked for: `Path.is_file`, `Path.is_dir`.

    Raises:
        LeadsOut: it leads out of a root, and no other has it. Nothing outside is looked at: the answer must not tell
            what exists there.
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
        except (OSError, RuntimeError):  # a name that is too long, links that go round: this root has no such thing
            continue
    if leads_out:
        raise LeadsOut
    return None
