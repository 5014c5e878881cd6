r"""Units with a prefix, written out: `\mu\text{m}`, with either micro sign, is a micrometer."""

from __future__ import annotations

import re

from crucible_worker.grading.math.units import SI_PREFIXES, SI_UNITS, UNITS

__all__ = ["written_out_units"]

_SYMBOL = r"(\\Omega|mol|Pa|Hz|eV|Sv|Bq|[mgsLlAVFCHWJNTKSΩ\u2126])(?![A-Za-z])"
_UPRIGHT = r"\\(?:text|mathrm|textrm|mbox|rm)\s?\{(?:\\[,;: ]|[ ~]){0,3}"
_SPACES = r"(?:\\[,;:! ]|[ ~]){1,4}"
# The micro sign is not a letter, and a mu in or before upright type is a prefix. In italics it is one only in
# `5 \mu m`: a friction times a force or a weight is not a quantity. The letter of Unicode is one after any blank.
_MICRO = re.compile(
    rf"µ ?({_UPRIGHT}|){_SYMBOL}|\$?(?:\\mu(?![A-Za-z])|μ)\$? ?({_UPRIGHT}){_SYMBOL}"
    rf"|({_UPRIGHT})\$?(?:\\mu(?![A-Za-z])|μ)\$? ?{_SYMBOL}"
)
_ITALIC = re.compile(
    rf"(?<=[0-9}}])({_SPACES})(?:(?:\\mu(?![A-Za-z])|μ) ?(?=[msLFCAV](?![A-Za-z])|mol|Pa|Hz|eV|Sv|Bq)|μ){_SYMBOL}"
    r"(?=[\s.,;$)]{0,3}\Z)"
)
_PREFIXED = re.compile(rf"({_UPRIGHT})(?!pH)([pnmcdkMGT]){_SYMBOL}")
_OHM = re.compile(rf"{_UPRIGHT}([mkMG]) ?\}} ?(?:\\Omega(?![A-Za-z])|[Ω\u2126])")
_METRE = re.compile(r"(?<=[a-z])(met|lit)re(?=s?\b)")


def written_out_units(text: str) -> str:
    """A text in which units with a prefix are words, `5 micrometer`."""
    foreign = not text.isascii()
    if foreign or "\\mu" in text:
        text = _MICRO.sub(_micro, text)
        text = _ITALIC.sub(lambda found: f" micro{SI_UNITS[found[2]]}", text)
    if foreign or "\\Omega" in text:
        text = _OHM.sub(lambda found: f"\\text{{ {SI_PREFIXES[found[1]]}ohm}}", text)
    if foreign or "\\" in text:
        text = _PREFIXED.sub(_prefixed, text)
    return _METRE.sub(lambda found: found[1] + "er", text) if "tre" in text else text


def _prefixed(found: re.Match[str]) -> str:
    if UNITS.get(spelling := found[2] + found[3], spelling) != spelling:
        return found[0]  # the parser knows its name
    return f"{found[1]} {SI_PREFIXES[found[2]]}{SI_UNITS[found[3]]}"


def _micro(found: re.Match[str]) -> str:
    opening, symbol = next((found[at], found[at + 1]) for at in (1, 3, 5) if found[at + 1])
    return f"{opening} micro{SI_UNITS[symbol]}"
