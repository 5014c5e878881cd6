r"""Numerals in the notation of other countries, `1.234,5` or `1'234.5`, if only one number can be meant."""

# ruff: noqa: RUF001 - this module is about signs that look like others.

from __future__ import annotations

import re

__all__ = ["with_points"]

_BLANK = r"(?:[ ~\u00a0\u2009\u202f]|\\[,; ])"
# Groups of three by points, blanks or apostrophes, and decimals after a comma. A possible list does not match:
# three decimals may be a separate number, as in 1.234,567, unless there are two groups.
_NUMERAL = re.compile(
    rf"""
    (?<![0-9.,'’:/])
    (?: (?P<points> [1-9][0-9]{{0,2}} (?:\.[0-9]{{3}})+ ) (?:,|\{{,\}}) (?P<decimals> [0-9]+ )
      | (?P<blanks> [1-9][0-9]{{0,2}} (?:{_BLANK}[0-9]{{3}})+ ) (?:,|\{{,\}}) (?P<places> [0-9]+ )
      | (?P<marks> [1-9][0-9]{{0,2}} (?:['’][0-9]{{3}})+ ) (?:[.](?P<rest> [0-9]+ ))?
      | (?P<groups> [1-9][0-9]{{0,2}} (?:\.[0-9]{{3}}){{2,}} )
    )
    (?![0-9.'’:/]|,[0-9])
    """,
    re.VERBOSE,
)
# Lakhs and crores, in groups of two digits: only after the rupee sign, as elsewhere they are lists.
_LAKHS = re.compile(r"(?<=₹)(\s?)([1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3})(?![0-9,])")
_DIVIDED = frozenset("()[]")
_NO_DIGIT = re.compile(r"[^0-9]")


def with_points(text: str) -> str:
    """A text with a point before decimals, and without marks between groups."""
    if _DIVIDED.isdisjoint(text) and "\\{" not in text:  # in brackets a comma divides
        text = _NUMERAL.sub(_plain, text)
    return _LAKHS.sub(lambda found: found[1] + found[2].replace(",", ""), text)


def _plain(found: re.Match[str]) -> str:
    groups = found["points"] or found["blanks"] or found["marks"] or found["groups"]
    decimals = found["decimals"] or found["places"] or found["rest"] or ""
    whole = _NO_DIGIT.sub("", groups)
    if not found["rest"] and len(decimals) == 3 and len(whole) < 7:
        return found[0]
    return f"{whole}.{decimals}" if decimals else whole
