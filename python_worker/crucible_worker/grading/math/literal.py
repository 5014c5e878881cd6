"""Decisions without parsing: two answers have the same text, or are two integers.

Two answers with the same text are equal, except those without a value, such as `1/0`. So anything that could remove the
value is left to the parser: a denominator other than positive integers, their roots, pi, letters and products
of these; a negative exponent or one of 0; functions with poles; infinity in a sum; words for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from crucible_bridge.types import MathPolicy, Verdict

__all__ = ["LITERAL", "MAX_CHARS", "has_value", "literally"]


LITERAL = "literal"
"""The method of these verdicts."""
MAX_CHARS = 300
"""Characters of a text that is searched; longer ones may be beyond the parser's budgets."""

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,30}")
_PLAIN = re.compile(r"[0-9]{1,30}(?:\.[0-9]{1,30})?")
# Each alternative begins with a character and reads a bounded number of them: fast, and linear.
_DOUBT = re.compile(
    r"""
    / (?! \s?[1-9][0-9]{0,9}(?!\s?[0-9(\\{]) | \s?\{[1-9][0-9]{0,9}\} | \s?[a-z]{1,12}(?!\s?[(\\{_^0-9a-z]) )
    | : (?! \s?[1-9][0-9]{0,9}(?!\s?[0-9(\\{]) )
    | frac (?! \s?\{(?:[^{}]|\{[^{}]{1,40}\}){1,60}\} (?: [1-9] | \{(?=[1-9\\a-z])
        (?:[1-9][0-9]{0,9})? (?: \s?(?:[a-z]|\\pi|\\sqrt(?:\{[1-9][0-9]{0,9}\}|[1-9])) ){0,6} \} )
        | \s?[0-9][1-9](?![0-9]) )
    | \\over | \\div | colon | boxed
    | \^\s{0,3}\{?\s{0,3}(?!\\circ)[-0+(\\]          # an exponent that may be zero or negative
    | \^ (?<=[)\]}]\^) \s{0,3}\{?\s{0,3}[a-zA-Z]     # or of what may be zero
    | 0(?:\.0{0,9})?\}?\s{0,3}\^ (?<![1-9.]0\^)
    | _ (?<=[0-9}\s]_)                               # a base, which may be none, or have other digits
    | \\infty (?! \s{0,3}[),\]] | \s?\\(?:right|cup|cap) | \Z )
    | \\infty (?<! [(\[,]\\infty) (?<! [(\[,]\s\\infty) (?<! [(\[,]-\\infty) (?<! [(\[,]\s-\\infty) (?<! \A\\infty )
    | inf(?!ty) | nan | none | null | undef | indeterm | not\ exist | dne
    | log | ln | lg | tan | cot | sec | csc | arc | mod | binom | choose | lim | sum | int | prod | gamma | zeta
    | ! (?<!\\!)
    """,
    re.VERBOSE,
)
_FOREIGN = re.compile(r"[^\x00-\x7fπ√°]")
_UNOPENED = re.compile(r"[^({\[]{0,300}[)}\]]")
_SUBSTANCE = re.compile(r"[0-9]|[^\W\d_]")


def literally(targets: Sequence[str], answer: str, policy: MathPolicy) -> Verdict | None:
    """CORRECT for an answer written like a target that has a value, INCORRECT for different integers, or None."""
    integer = _INTEGER.fullmatch(answer) is not None
    for target in targets:
        if answer == target and (integer or (not policy.require_reduced and has_value(target))):
            return Verdict.CORRECT
    # A target that is rounded may equal another integer.
    if integer and not policy.rounding_digits and all(map(_INTEGER.fullmatch, targets)):
        return Verdict.INCORRECT
    return None


def has_value(text: str) -> bool:
    """Whether nothing in this could leave it without a value; False only means that something could."""
    if _PLAIN.fullmatch(text):
        return True
    return (
        len(text) <= MAX_CHARS
        and _DOUBT.search(text.lower()) is None
        and _SUBSTANCE.search(text) is not None
        and (text.isascii() or _FOREIGN.search(text) is None)
        and _balanced(text)
    )


def _balanced(text: str) -> bool:
    """Whether brackets are balanced, and none closes before one opens; an interval may mix ( and ]."""
    if text.count("{") != text.count("}") or _UNOPENED.match(text):
        return False
    return text.count("(") + text.count("[") == text.count(")") + text.count("]")
