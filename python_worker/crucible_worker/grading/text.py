"""Graders that compare texts: exact match, as text, number or list, and whether one contains the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import ExactComparison
from crucible_worker.declared_options import Flat, values_of
from crucible_worker.grading.base import Grade
from crucible_worker.grading.decimals import canonical_decimal
from crucible_worker.grading.direct import DirectGrader, right, undecided, wrong
from crucible_worker.grading.listed import Element, read_list
from crucible_worker.grading.normalize import Normalization, Unnormalizable
from crucible_worker.grading.tokens import tokens_of

__all__ = ["Contains", "ExactMatch", "exact_match_of"]

_EXACT = "exact"
_SHOWN = 60  # characters of a target in a reason


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExactMatch(DirectGrader):
    """The whole response equals a target, as a text, a number or a list.

    As numbers, in the spelling of `crucible_worker.grading.decimals`, their values are compared, without a tolerance.
    As lists, in that of `crucible_worker.grading.listed`, elements are compared: two numbers by value, anything else as
    normalised text. A target that is not a number, or not a list, is UNDECIDED; such a response is wrong.
    """

    normalization: Annotated[Normalization, Flat()] = Normalization()
    """Differences that do not count; by default white space at the ends. In lists it applies to each element."""
    compare: ExactComparison = ExactComparison.TEXT
    """What response and target are compared as: 5 equals 5.0 as numbers, [1, 2] equals [1,2] as lists."""
    ordered_lists: bool = False
    """For lists: the order of elements counts, and how often each occurs; within an inner list both always do."""

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """Compare the whole texts. Choices are ignored."""
        judge = self._as_text if self.compare is ExactComparison.TEXT else self._as_value
        try:
            return judge(response, targets)
        except Unnormalizable as error:
            return undecided(str(error), method=_EXACT)

    def _as_text(self, response: str, targets: Sequence[str]) -> Grade:
        answer = self.normalization(response)
        equal = any(self.normalization(target) == answer for target in targets)
        return right(answer, _EXACT) if equal else wrong(answer, _EXACT)

    def _as_value(self, response: str, targets: Sequence[str]) -> Grade:
        wanted = [self._value(target) for target in targets]
        if None in wanted:
            target = targets[wanted.index(None)]
            short = target if len(target) <= _SHOWN else target[:_SHOWN] + "..."
            return undecided(f"the target {short!r} is not a {self.compare}", method=_EXACT)
        shown, answer = response.strip(), self._value(response)
        if answer is None:
            return wrong(shown, _EXACT, f"the response is not a {self.compare}")
        return right(shown, _EXACT) if answer in wanted else wrong(shown, _EXACT)

    def _value(self, text: str) -> object:
        """A text as a number or list; None if it is not one."""
        if self.compare is ExactComparison.NUMBER:
            return canonical_decimal(self.normalization(text))
        if (elements := read_list(text)) is None:
            return None
        values = tuple(map(self._element, elements))
        return values if self.ordered_lists else frozenset(values)

    def _element(self, element: Element) -> object:
        if isinstance(element, tuple):
            bracket, *parts = element
            return (bracket, *map(self._element, parts))
        text = self.normalization(element)
        number = canonical_decimal(text)
        return ("text", text) if number is None else ("number", number)


def exact_match_of(options: Mapping[str, Any]) -> ExactMatch:
    """Make one from options that passed its schema.

    Raises:
        InvalidField: `ordered_lists` is given, but no lists are compared.
    """
    if options["ordered_lists"] and options["compare"] != ExactComparison.LIST.value:
        raise InvalidField('["ordered_lists"]', 'is for compare: "list"')
    return ExactMatch(**values_of(ExactMatch, options))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Contains(DirectGrader):
    """The response contains a target as whole words and numbers.

    "46" is in "it is 46.", not in "146". `crucible_worker.grading.tokens` defines words and numbers.
    White space between them does not count. A response that names several answers contains each of them: this grader
    suits targets that do not occur by chance.
    """

    # White space never counts between tokens.
    normalization: Annotated[Normalization, Flat(("fold_case", "nfkc", "strip_punctuation"))] = Normalization()
    """Further differences that do not count."""

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """Search for each target. Choices are ignored."""
        try:
            held = tokens_of(self.normalization(response))
            for target in targets:
                if tokens_of(self.normalization(target)) in held:
                    return right(target, "contains")
        except Unnormalizable as error:
            return undecided(str(error), method="contains")
        return wrong("", "contains")
