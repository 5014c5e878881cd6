"""Decisions without parsing: two answers have the same text, or are two integers; which choice an answer is.

Two answers with the same text are equal, except those without a value, such as `1/0`. So anything that could remove the
value is left to the parser: a denominator other than positive integers, their roots, pi, letters and products
of these; a negative exponent or one of 0; functions with poles; infinity in a sum; words for nothing.
"""

from __future__ import annotations

import dataclasses
import re
import string
from collections.abc import Iterator, Mapping, Sequence

from crucible_bridge.types import Grade, GradeItem, MathPolicy, Verdict
from crucible_worker.grading.base import exceeds
from crucible_worker.grading.choice import choices_that_are, names_of

__all__ = ["MAX_CHARS", "METHOD", "ChoiceQuestion", "has_value", "literally"]

# Questions with choices: which choice an answer is, by its letter, its text, or a value that is equal to it.

_METHOD = "choice"


@dataclasses.dataclass(frozen=True, slots=True)
class ChoiceQuestion:
    """The choices of the question."""

    choices: Sequence[str]
    """Their texts."""
    expected: frozenset[int]
    """The right ones, by index."""
    names: Mapping[str, int]
    """Their letters and their labels."""

    @classmethod
    def of(cls, targets: Sequence[str], choices: Sequence[str], labels: Sequence[str] = ()) -> ChoiceQuestion | None:
        """The question whose right choices are the targets; None if a target is none of the choices, or two of them."""
        if not choices or exceeds(choices):
            return None
        named = [choices_that_are(target, choices, labels) for target in targets]
        if not named or any(len(places) != 1 for places in named):
            return None
        return cls(choices, frozenset[int]().union(*named), names_of(len(choices), labels))

    def items(self, answer: str) -> list[GradeItem]:
        """An answer next to each letter or label of a choice, and then next to the text of each."""
        return [GradeItem(answer=answer, targets=(target,)) for target in (*self.names, *self.choices)]

    def grade(self, found: Grade, grades: Sequence[Grade]) -> Grade:
        """The grade of an answer from the grades of `items`."""
        places, count = tuple(self.names.values()), len(self.names)
        by_letter = frozenset(places[place] for place in _right(grades[:count]))
        by_text = frozenset(_right(grades[count:]))
        if len(by_text) > 1:
            # 5 is both 5 km and 5 cm if units may be missing: the choice with the same text is meant.
            by_text = by_text & choices_that_are(found.extracted, self.choices) or by_text
        named = by_letter & by_text or by_letter | by_text
        duration = found.duration_ns + sum(grade.duration_ns for grade in grades)
        found = dataclasses.replace(found, method=_METHOD, reason="", duration_ns=duration)
        if named and (named <= self.expected or not named & self.expected):
            return _scored(found, right=named <= self.expected)
        if named:
            letters = ", ".join(string.ascii_uppercase[place] for place in sorted(named))
            return _undecided(found, f"the answer is several of the choices: {letters}")
        for grade in grades:
            if grade.verdict is Verdict.ERROR:
                return grade
        undecided = next((grade for grade in grades if grade.verdict is Verdict.UNDECIDED), None)
        if undecided is not None:
            return _undecided(found, undecided.reason)
        return dataclasses.replace(_scored(found, right=False), reason="the answer is none of the choices")


def _right(grades: Sequence[Grade]) -> Iterator[int]:
    return (place for place, grade in enumerate(grades) if grade.verdict is Verdict.CORRECT)


def _scored(found: Grade, *, right: bool) -> Grade:
    verdict = Verdict.CORRECT if right else Verdict.INCORRECT
    return dataclasses.replace(found, verdict=verdict, score=float(right))


def _undecided(found: Grade, reason: str) -> Grade:
    return dataclasses.replace(found, verdict=Verdict.UNDECIDED, score=None, reason=reason)


METHOD = "literal"
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
