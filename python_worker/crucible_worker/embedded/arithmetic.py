"""Two-digit addition: the problems that the embedded model learns, and those it never trains on.

A hash decides which problems are held out, so that the split is always the same, everywhere: the training script
leaves them out, and they are the built-in data set `arithmetic`.
"""

from __future__ import annotations

import functools
import hashlib

from crucible_bridge.types import Sample

__all__ = ["held_out", "training_problems"]

_OPERANDS = range(10, 100)
_HELD_OUT_SHARE = 10
"""One problem in so many is held out: 815 of 8,100."""


def held_out(limit: int | None = None) -> tuple[Sample, ...]:
    """The built-in data set `arithmetic`: 815 problems that no embedded checkpoint was trained on.

    They come in the order of their hashes, so that the first N are a random sample.

    Args:
        limit: at most so many; all if None.

    Returns:
        Samples such as `Sample(id="12+34", input="12+34=", targets=("46",))`. Ids never change.
    """
    return _split()[0][:limit]


def training_problems() -> tuple[tuple[str, str], ...]:
    """The problems to train on, as pairs such as ("12+34=", "46"), in the order of their hashes."""
    return _split()[1]


@functools.cache
def _split() -> tuple[tuple[Sample, ...], tuple[tuple[str, str], ...]]:
    hashed = sorted(
        (hashlib.sha256(f"{a}+{b}".encode()).digest(), f"{a}+{b}", str(a + b)) for a in _OPERANDS for b in _OPERANDS
    )
    samples = tuple(
        Sample(id=problem, input=f"{problem}=", targets=(answer,))
        for digest, problem, answer in hashed
        if _is_held_out(digest)
    )
    rest = tuple((f"{problem}=", answer) for digest, problem, answer in hashed if not _is_held_out(digest))
    return samples, rest


def _is_held_out(digest: bytes) -> bool:
    # The last bytes: the first ones decide the order, and the split must be independent of it.
    return int.from_bytes(digest[-8:], "big") % _HELD_OUT_SHARE == 0
