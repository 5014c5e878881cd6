r"""Units in italics, `757 g`, `5 N m` and `5 mV`: letters after a number and a blank, at the end of an answer.

They may be products as well, of 757 and g. They are units only if the target is a bare number, which no answer gives as
a multiple of an unknown, or has a unit in upright type. Without a blank, `5m`, they stay a product.
"""

from __future__ import annotations

import re

from crucible_worker.grading.math.reading import ParsedText
from crucible_worker.grading.math.tree import Quantity, Relation, Sum
from crucible_worker.grading.math.units import LETTER_UNITS, PREFIXED_UNITS, UNIT_ABBREVIATIONS, UPRIGHT_ABBREVIATIONS
from crucible_worker.grading.math.walk import arithmetic, free_symbols, nodes_of

__all__ = ["in_upright_type", "is_bare_number", "is_measured"]

_MAX_CHARS = 80
"""Characters at the end of an answer in which its unit is sought."""

# Also other words: ordinals, a time of day.
_NO_UNITS = frozenset({"in", "st", "nd", "rd", "th", "sq", "deg", "pts", "pm"})
_OHM = "\\Omega"
_UNIT = r"(?:[A-Za-z]{1,4}|\\Omega(?![A-Za-z]))(?:\^(?:-?[1-9]|\{ ?-?[1-9] ?\}))?"
_TIMES = r"(?: ?(?:\*|\\cdot(?![A-Za-z])|\u00b7) ?|[ ~]|\\[ ,])"
_UNITS = rf"{_UNIT}(?:{_TIMES}{_UNIT}){{0,3}}"
_RATE = rf"{_UNITS}(?: ?/ ?(?:{_UNIT}|\( ?{_UNITS} ?\)))?"
# A blank after a command only ends its name: in `12\pi m` it is unknown whether a blank is meant.
_BLANK = r"(?:(?<=[0-9})])\$?[ ~]{1,4}|(?<=[0-9A-Za-z})])\$?\\[ ,;:][ ~]{0,4})"
_ENDING = re.compile(rf"{_BLANK}\$?(?P<unit>{_RATE})(?P<rest>[ $.]{{0,4}})\Z")
# The possible end of a unit, which most answers do not have: a letter, its power, or the bracket after it.
_LAST = re.compile(r"[A-Za-z)][0-9^{} -]{0,6}[ $.]{0,4}\Z")
_MAX_LAST_CHARS = 12
_NAME = re.compile(r"[A-Za-z]+|\\Omega|\\cdot")


def in_upright_type(answer: str) -> str | None:
    r"""An answer with the unit at its end in upright type, `757\text{ g}`; None if it ends differently."""
    if (" " not in answer and "~" not in answer and "\\" not in answer) or not _LAST.search(answer[-_MAX_LAST_CHARS:]):
        return None
    tail = answer[-_MAX_CHARS:]
    found = _ENDING.search(tail)
    if found is None or not all(map(_is_unit, _NAME.findall(found["unit"]))):
        return None
    unit = found["unit"].replace(_OHM, "ohm")
    return f"{answer[: len(answer) - len(tail) + found.start()]}\\text{{ {unit}}}{found['rest'].replace('.', '')}"


def _is_unit(name: str) -> bool:
    if name in (_OHM, "\\cdot"):
        return True
    if name in LETTER_UNITS or name in PREFIXED_UNITS or name in UPRIGHT_ABBREVIATIONS:
        return name not in _NO_UNITS
    return name in UNIT_ABBREVIATIONS and name not in _NO_UNITS


def is_bare_number(reading: ParsedText) -> bool:
    """Whether a text is a number, without a unit or a variable."""
    return bool(reading.nodes) and all(
        arithmetic(node) and not free_symbols(node) and not any(isinstance(part, Quantity) for part in nodes_of(node))
        for node in reading.nodes
    )


def is_measured(reading: ParsedText) -> bool:
    """Whether a text is one value with a unit; in `3 + 2 m` the letter belongs only to the last term."""
    match reading.nodes:
        case (Quantity(value),) | (Relation((_, Quantity(value))),):
            return not isinstance(value, Sum) and arithmetic(value) and not free_symbols(value)
        case _:
            return False
