"""Which differences between two texts do not count."""

from __future__ import annotations

import dataclasses
import re
import unicodedata

__all__ = ["MAX_COMBINING_MARKS", "Normalization", "Unnormalizable", "without_punctuation"]

MAX_COMBINING_MARKS = 30
"""Combining marks in a row that NFKC may have to sort: UAX #15's stream-safe format. Sorting them is quadratic."""

_WHITESPACE = re.compile(r"\s+")
# The underscore is punctuation too, although regular expressions treat it as a letter.
_PUNCTUATION = re.compile(r"[^\w\s]|_")
_SIGNS = "-\u2013\uff0d"  # signs that Unicode classes as punctuation; U+2212 is not


class Unnormalizable(ValueError):
    """A text has more combining marks in a row than are sorted."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Normalization:
    """Steps for both response and target before they are compared: nfkc, case, punctuation, white space."""

    strip: bool = True
    """Ignore white space at both ends."""
    collapse_whitespace: bool = False
    """Treat a run of white space as one space."""
    fold_case: bool = False
    """Ignore case, by Unicode case folding: "STRASSE" equals "straße"."""
    strip_punctuation: bool = False
    """Drop punctuation (Unicode's classes P), except between two digits ("1,460.5", "3/4"), a point or a sign that
    starts a number or a name (".5", "-5", "-x", "-$5"), the sign of an exponent ("1e-5", "x^-1"), and a percent sign
    after a digit. A text of only punctuation keeps it."""
    nfkc: bool = False
    """Compare by Unicode NFKC: full-width digits, ligatures and composed letters equal their plain forms."""

    def __call__(self, text: str) -> str:
        """Normalise a text, in linear time.

        Raises:
            Unnormalizable: more than `MAX_COMBINING_MARKS` combining marks follow each other and `nfkc` is on.
        """
        if self.nfkc and not text.isascii():
            _check_marks(text)
            text = unicodedata.normalize("NFKC", text)
        if self.fold_case:
            text = text.casefold()
        if self.strip_punctuation:
            text = without_punctuation(text)
        if self.collapse_whitespace:
            text = _WHITESPACE.sub(" ", text)
        return text.strip() if self.strip else text


def without_punctuation(text: str) -> str:
    """Drop punctuation as `Normalization.strip_punctuation` describes. Linear."""
    stripped = _PUNCTUATION.sub(lambda mark: mark[0] if _counts(text, mark.start()) else "", text)
    return stripped if stripped.strip() else text


def _counts(text: str, index: int) -> bool:
    """Whether the character at an index, outside of words, is kept: no punctuation, or punctuation with a meaning."""
    character = text[index]
    if not unicodedata.category(character).startswith("P"):
        return True
    before, behind = text[max(0, index - 1) : index], text[index + 1 : index + 2]
    if before.isdigit() and (behind.isdigit() or character == "%"):
        return True
    starts = not before or before.isspace() or before in "([{=<>+*/,^"
    if character in _SIGNS:
        return (starts and _signed(behind)) or (_in_exponent(text, index) and behind.isdigit())
    return starts and character == "." and behind.isdigit()


def _signed(character: str) -> bool:
    """Whether a text that starts with this character can have a sign."""
    return character.isalnum() or character == "." or (character != "" and unicodedata.category(character) == "Sc")


def _in_exponent(text: str, index: int) -> bool:
    """Whether the "e" of a number is before an index."""
    return index >= 2 and text[index - 1] in "eE" and text[index - 2].isdigit()


def _check_marks(text: str) -> None:
    run = 0
    for character in text:
        run = run + 1 if unicodedata.combining(character) else 0
        if run > MAX_COMBINING_MARKS:
            raise Unnormalizable(f"more than {MAX_COMBINING_MARKS} combining marks follow each other")
