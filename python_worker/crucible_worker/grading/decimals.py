"""A text that is only a decimal number, compared without arithmetic.

    [sign] digits [. digits] [e [sign] digits] [%]          "-46", "3.14", ".5", "1e-3", "45%"
    [sign] digits, three digits, ... [. digits] [e ...] [%] "1,460,000.5"

Digits are those of ASCII; "1_000", "nan", "inf", "0x10" and "3/4" are not decimals. A number is represented by its
significant digits and its power of ten, both read from the text: neither a million digits nor an exponent of a million
costs more than its length.
"""

from __future__ import annotations

import re

__all__ = ["canonical_decimal"]

_MAX_EXPONENT_DIGITS = 18
"""Digits of a written exponent. A number with more of them does not count as a decimal."""

_DECIMAL = re.compile(
    r"(?P<sign>[-+\u2212]?)"
    r"(?P<whole>[0-9]{1,3}(?>(?:,[0-9]{3})+)|[0-9]*+)"
    r"(?>(?:\.(?P<decimals>[0-9]++))?)"
    r"(?>(?:[eE](?P<exponent>[-+\u2212]?[0-9]++))?)"
    r"(?>(?P<percent> ?\\?%)?)"
)


def canonical_decimal(text: str) -> str | None:
    """One spelling for each number: "15e-1" for "1.5", "+1.50" and "150%"; "0e0" for 0. None if it is not a decimal.

    Linear in the length of the text.
    """
    match = _DECIMAL.fullmatch(text)
    if match is None or not (match["whole"] or match["decimals"]):
        return None
    decimals = match["decimals"] or ""
    written = (match["whole"].replace(",", "") + decimals).lstrip("0")
    digits = written.rstrip("0")
    if not digits:
        return "0e0"
    shown = (match["exponent"] or "0").replace("\u2212", "-")
    exponent_digits = shown.lstrip("+-").lstrip("0") or "0"
    if len(exponent_digits) > _MAX_EXPONENT_DIGITS:
        return None
    exponent = -int(exponent_digits) if shown.startswith("-") else int(exponent_digits)
    exponent += len(written) - len(digits) - len(decimals) - (2 if match["percent"] else 0)
    sign = "" if match["sign"] in ("", "+") else "-"
    return f"{sign}{digits}e{exponent}"
