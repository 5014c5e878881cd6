"""The text of a model's fingerprint, which evaluations record: which kind of digest it has, and how two compare.

A checkpoint on disk has `full:` and 64 hexadecimal digits, SHA-256 of every byte of its files; or, if it is large,
`tensors:` and a digest of some bytes of each tensor. After a comma, `full:` may follow it once that is known. Any other
text, such as that of a server, is compared as it is. Fingerprints of several models are joined by `+`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

__all__ = ["FULL", "TENSORS", "is_full", "is_of_files", "map_digests", "model_part", "same"]

FULL = "full"
"""Kind of a digest of every byte."""
TENSORS = "tensors"
"""Kind of a digest of some bytes of each tensor, and of every byte of all else."""

_HEX = r"[0-9a-f]{64}"
_KNOWN = re.compile(rf"(?:{TENSORS}:{_HEX},)?(?:{TENSORS}|{FULL}):{_HEX}")
_EARLIER = re.compile(_HEX)
"""Earlier releases recorded no kind: it may be of every byte, or a sample of large files."""


def same(first: str, second: str) -> bool | None:
    """Whether two fingerprints are of the same models; None if their kinds of digests do not show it."""
    if first == second:
        return True
    ours, theirs = first.split("+"), second.split("+")
    if len(ours) != len(theirs):
        return False
    found = [_same(*pair) for pair in zip(ours, theirs)]
    return False if False in found else None if None in found else True


def model_part(fingerprint: str) -> str:
    """The evaluated model's part of the fingerprint of several models."""
    return fingerprint.partition("+")[0]


def is_full(fingerprint: str) -> bool:
    """Whether each digest of some bytes of a checkpoint has one of every byte with it."""
    return all(FULL in digests for part in fingerprint.split("+") if (digests := _digests(part)))


def is_of_files(fingerprint: str) -> bool:
    """Whether the fingerprint of one model has digests of the files of a checkpoint."""
    return bool(_digests(fingerprint))


def map_digests(fingerprint: str, change: Callable[[str], str]) -> str:
    """The fingerprint of something that is made of a model: each digest is changed, and keeps its kind.

    Args:
        fingerprint: of one model.
        change: from and to 64 hexadecimal digits.
    """
    digests = _digests(fingerprint)
    return _text({kind: change(digest) for kind, digest in digests.items()}) if digests else change(fingerprint)


def _same(first: str, second: str) -> bool | None:
    if first == second:
        return True
    ours, theirs = _digests(first), _digests(second)
    if ours and theirs:
        common = ours.keys() & theirs.keys()
        # Whether a checkpoint has a digest of some bytes follows from the sizes of its files.
        return bool(common) and all(ours[kind] == theirs[kind] for kind in common)
    for known, earlier in ((ours, second), (theirs, first)):
        if known and _EARLIER.fullmatch(earlier):
            # Of small checkpoints the digests are equal; another one need not mean other content.
            return True if known.get(FULL) == earlier else None
    return False


def _digests(part: str) -> Mapping[str, str]:
    """By kind, in order; none of a text that is no digest of a checkpoint."""
    if not _KNOWN.fullmatch(part):
        return {}
    return dict(each.split(":") for each in part.split(","))  # pyright: ignore[reportReturnType]


def _text(digests: Mapping[str, str]) -> str:
    return ",".join(f"{kind}:{digest}" for kind, digest in digests.items())
