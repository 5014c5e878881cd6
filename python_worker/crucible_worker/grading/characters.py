"""One spelling for characters that are written in several ways: the step before graders compare texts.

    digits of every script     "१५" is "15", "٤٢" is "42"; so are the Arabic decimal point, thousands and percent signs
    dashes                     the hyphens, dashes and minus signs of Unicode are "-"
    letters                    composed: an "e" and a combining acute accent are "é"

ASCII text stays as it is. A raised digit is an exponent, and stays one.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["DASHES", "MAX_COMBINING_MARKS", "has_many_marks", "plain", "with_plain_digits"]

DASHES = "\u02d7\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2796\ufe58\ufe63\uff0d"
"""What is read as a minus sign, besides the one of ASCII."""
MAX_COMBINING_MARKS = 30
"""Combining marks in a row that are sorted: UAX #15's stream-safe format. Sorting them is quadratic."""

_OTHER_DIGIT = re.compile(r"[^\D0-9]")
_OF_ARABIC = str.maketrans({"\u066a": "%", "\u066b": ".", "\u066c": ","})
_DASH = re.compile(f"[{DASHES}]")
# Combining marks are none of these; most texts have no such run, and are not examined further.
_MAY_BE_MARKS = re.compile(rf"[^\w\s\x00-\u02ff]{{{MAX_COMBINING_MARKS}}}")


def plain(text: str) -> str:
    """A text in the one spelling. Linear time."""
    return text if text.isascii() else _DASH.sub("-", with_plain_digits(text))


def with_plain_digits(text: str) -> str:
    """The same, except for dashes: one that stands between words is no sign. Linear time."""
    if text.isascii():
        return text
    if not has_many_marks(text):
        text = unicodedata.normalize("NFC", text)
    if not _OTHER_DIGIT.search(text):
        return text
    return _OTHER_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), text).translate(_OF_ARABIC)


def has_many_marks(text: str) -> bool:
    """Whether more than `MAX_COMBINING_MARKS` combining marks follow each other."""
    if not _MAY_BE_MARKS.search(text):
        return False
    run = 0
    for character in text:
        run = run + 1 if unicodedata.combining(character) else 0
        if run > MAX_COMBINING_MARKS:
            return True
    return False
