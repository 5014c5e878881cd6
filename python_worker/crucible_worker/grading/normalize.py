"""Which differences between two texts do not count."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

__all__ = ["MAX_COMBINING_MARKS", "NORMALIZATION_SCHEMA", "Normalization", "Unnormalizable"]

MAX_COMBINING_MARKS = 30
"""Combining marks in a row that NFKC is asked to sort: UAX #15's stream-safe format. Sorting them is quadratic."""

_WHITESPACE = re.compile(r"\s+")

NORMALIZATION_SCHEMA: Mapping[str, Any] = {
    "strip": {"type": "boolean", "default": True, "description": "Ignore white space around."},
    "collapse_whitespace": {
        "type": "boolean",
        "default": False,
        "description": "Take a run of white space for a space.",
    },
    "fold_case": {"type": "boolean", "default": False, "description": "Ignore case, by Unicode case folding."},
    "nfkc": {
        "type": "boolean",
        "default": False,
        "description": "Compare by Unicode NFKC: full-width digits, ligatures and composed letters equal their like.",
    },
}
"""Properties of a JSON schema: the fields of `Normalization`."""


class Unnormalizable(ValueError):
    """A text has more combining marks in a row than are sorted."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Normalization:
    """What is done to response and target alike before they are compared, in this order: nfkc, case, white space."""

    strip: bool = True
    """Drop white space around."""
    collapse_whitespace: bool = False
    """Make a run of white space one space."""
    fold_case: bool = False
    """Fold case as Unicode does: "STRASSE" equals "straße"."""
    nfkc: bool = False
    """Compose and unify compatible characters."""

    def __call__(self, text: str) -> str:
        """Normalise a text, in linear time.

        Raises:
            Unnormalizable: more than `MAX_COMBINING_MARKS` combining marks follow each other where `nfkc` is on.
        """
        if self.nfkc and not text.isascii():
            _check_marks(text)
            text = unicodedata.normalize("NFKC", text)
        if self.fold_case:
            text = text.casefold()
        if self.collapse_whitespace:
            text = _WHITESPACE.sub(" ", text)
        return text.strip() if self.strip else text


def _check_marks(text: str) -> None:
    run = 0
    for character in text:
        run = run + 1 if unicodedata.combining(character) else 0
        if run > MAX_COMBINING_MARKS:
            raise Unnormalizable(f"more than {MAX_COMBINING_MARKS} combining marks follow each other")
