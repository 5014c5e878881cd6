"""Dates, times of day, and spans of time: the same day, minute or duration, however it is written."""

from __future__ import annotations

import calendar
import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

from crucible_worker.grading.math.outcome import MathOutcome, Scope, different, equal
from crucible_worker.grading.math.text import words_of
from crucible_worker.grading.math.tree import Node, Number, Product, Quantity, Sum

__all__ = ["MAX_MOMENT_CHARS", "compare_durations", "compare_moments", "other_clock"]

# Spans of time in several units, `2 hours 30 minutes`, and in one of them, `2.5 hours`.

_SECONDS: Mapping[str, Number] = {
    unit: Number(Fraction(seconds))
    for unit, seconds in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
}


def compare_durations(target: Node, answer: Node, scope: Scope) -> MathOutcome | None:
    """Compare two spans of time, at least one of which has several units; None if they are not such spans.

    A span in one unit must use a unit of the other: 150 minutes are not 2.5 hours unless units are converted.
    """
    parts, others = _parts(target), _parts(answer)
    if not parts or not others or max(len(parts), len(others)) == 1:
        return None
    for one, two in ((parts, others), (others, parts)):
        if len(one) == 1 and one[0].unit not in {part.unit for part in two}:
            return None
    return scope.compare(_in_seconds(parts), _in_seconds(others), scope)


def _parts(node: Node) -> tuple[Quantity, ...]:
    terms = node.terms if isinstance(node, Sum) else (node,)
    parts = tuple(term for term in terms if isinstance(term, Quantity) and term.unit in _SECONDS)
    return parts if len(parts) == len(terms) else ()


def _in_seconds(parts: tuple[Quantity, ...]) -> Node:
    products = tuple(Product((_SECONDS[part.unit], part.value)) for part in parts)
    return products[0] if len(products) == 1 else Sum(products)


# Dates and times of day.


MAX_MOMENT_CHARS = 80
"""Characters of a text that is a date or a time; longer ones contain more."""

_MONTHS = {
    name: number
    for number in range(1, 13)
    for name in (calendar.month_name[number].casefold(), calendar.month_abbr[number].casefold())
} | {"sept": 9}
_WEEKDAYS = {
    name: number
    for number in range(7)
    for name in (calendar.day_name[number].casefold(), calendar.day_abbr[number].casefold())
}
# Every date and time has one of these, most answers have none. Each begins with one of a few characters, not digits,
# so that all others are skipped at once.
_HINT = re.compile(
    r"[-/.:月 aApPnNmMjJfFsSoOdD]"
    r"(?:(?<=[0-9][-/.:月])|(?<=[0-9] )(?:in the|o'clock)|(?:(?<=[0-9][aApP])|(?<=[0-9]\s[aApP]))\.?\s?[mM]"
    r"|(?<=[nN])(?:oon|ov|OV)|(?<=[mM])(?:id(?:day|night)|ar|ay|AR|AY)"
    r"|(?<=[jJ])(?:an|un|ul|AN|UN|UL)|(?<=[fF])(?:eb|EB)|(?<=[aA])(?:pr|ug|PR|UG)"
    r"|(?<=[sS])(?:ep|EP)|(?<=[oO])(?:ct|CT)|(?<=[dD])(?:ec|EC))"
)
_FILLERS = frozenset({"the", "of", "on", "at", "in", "day", "date"})
_DAY = re.compile(r"(0?[1-9]|[12][0-9]|3[01])(?:st|nd|rd|th)?")
_YEAR = re.compile(r"[12][0-9]{3}")
_YEAR_FIRST = re.compile(r"([12][0-9]{3})(?:([-/.])([0-9]{1,2})\2([0-9]{1,2})|年([0-9]{1,2})月([0-9]{1,2})[日号])")
_YEAR_LAST = re.compile(r"([0-9]{1,2})([-/.])([0-9]{1,2})\2([12][0-9]{3})")
_MONTH_AND_DAY = re.compile(r"([0-9]{1,2})月([0-9]{1,2})[日号]")
_TIME = re.compile(
    r"(?:at )?([0-9]{1,2})(?:([:.h])([0-5][0-9]))?(?::([0-5][0-9]))?"
    r"(?: ?(?:([ap])\.? ?m|(noon|midnight))| o'clock| ?(hours|hrs|h))?\.?"
    r"(?: in the (morning|afternoon|evening))?"
)
_CLOCK = re.compile(r"\$?([01]?[0-9]|2[0-4]):([0-5][0-9])\$?\.?")
_HALVES = {"a": 0, "p": 12, "morning": 0, "afternoon": 12, "evening": 12}
_NOON, _MIDNIGHT = 12 * 3_600, 0
_NAMED = {"noon": _NOON, "midday": _NOON, "midnight": _MIDNIGHT, "at noon": _NOON, "at midnight": _MIDNIGHT}


@dataclasses.dataclass(frozen=True, slots=True)
class _Date:
    year: int | None
    month: int
    day: int | None
    weekday: int | None = None


def compare_moments(target: str, answer: str) -> MathOutcome | None:
    """Compare two dates, or two times of day; None if one of them is neither, or ambiguous."""
    if max(len(target), len(answer)) > MAX_MOMENT_CHARS:
        return None
    if _HINT.search(target) is None or _HINT.search(answer) is None:
        return None
    expected, said = words_of(target), words_of(answer)
    time, time_said = _time(expected), _time(said)
    if time is not None and time_said is not None:
        return equal("text") if time == time_said else different("text", "another time")
    date, date_said = _date(expected), _date(said)
    if date is None or date_said is None:
        return None
    same_weekday = None in (date.weekday, date_said.weekday) or date.weekday == date_said.weekday
    same = same_weekday and dataclasses.replace(date, weekday=None) == dataclasses.replace(date_said, weekday=None)
    return equal("text") if same else different("text", "another date")


def other_clock(target: str, answer: str) -> MathOutcome | None:
    """Whether two texts like 8:40 and 2:10 are two times of day, not equal ratios; None if they may be ratios.

    A ratio is not written with a zero before it, 08:40, and a target is a ratio in lowest terms.
    """
    expected, said = _CLOCK.fullmatch(target), _CLOCK.fullmatch(answer)
    if expected is None or said is None:
        return None
    (hour, minute), (hour_said, minute_said) = (tuple(map(int, found.groups())) for found in (expected, said))
    if (hour, minute) == (hour_said, minute_said):
        return equal("text")
    padded = any(found[1].startswith("0") and len(found[1]) == 2 for found in (expected, said))
    return different("text", "another time") if padded or math.gcd(hour, minute) > 1 else None


def _time(words: str) -> int | None:
    """Seconds since midnight; None if it is not a time, or ambiguous: 2:30."""
    if words in _NAMED:
        return _NAMED[words]
    found = _TIME.fullmatch(words)
    if found is None:
        return None
    written, mark, minutes, seconds, half, name, hours, part = found.groups()
    hour = int(written)
    if name:
        return _NAMED[name] if hour == 12 and minutes in (None, "00") else None
    if half and part:
        return None
    if half or part:
        if not 1 <= hour <= 12 or hours:
            return None
        hour = hour % 12 + _HALVES[half or part]
    elif mark != ":" or hour > 23 or not (hour == 0 or (len(written) == 2 and (hour < 10 or hour > 12))):
        return None  # without "am" or "pm" only 0:30, 02:30 and 14:30 are unambiguous
    return hour * 3_600 + int(minutes or 0) * 60 + int(seconds or 0)


def _date(words: str) -> _Date | None:
    """A date; None if it is not a date, or ambiguous: 3/4/2020."""
    if found := _YEAR_FIRST.fullmatch(words):
        year, _, month, day, *others = found.groups()
        return _checked(int(year), int(month or others[0]), int(day or others[1]))
    if found := _YEAR_LAST.fullmatch(words):
        first, second, year = int(found[1]), int(found[3]), int(found[4])
        if first <= 12 and second <= 12 and first != second:
            return None
        return _checked(year, min(first, second), max(first, second))
    if found := _MONTH_AND_DAY.fullmatch(words):
        return _checked(None, int(found[1]), int(found[2]))
    parts = [word.strip(".,") for word in words.split()]
    parts = [part for part in parts if part and part not in _FILLERS]
    weekdays = [_WEEKDAYS[part] for part in parts if part in _WEEKDAYS]
    if len(weekdays) > 1:
        return None
    return _in_words([part for part in parts if part not in _WEEKDAYS], weekdays[0] if weekdays else None)


def _in_words(parts: Sequence[str], weekday: int | None) -> _Date | None:
    """March 5, 5th of March 2020, 2020 March 5, March 2020."""
    months = [_MONTHS[part] for part in parts if part in _MONTHS]
    rest = [part for part in parts if part not in _MONTHS]
    years = [int(part) for part in rest if _YEAR.fullmatch(part)]
    days = [int(found[1]) for part in rest if (found := _DAY.fullmatch(part))]
    if len(months) != 1 or len(years) > 1 or len(days) > 1 or len(years) + len(days) != len(rest) or not rest:
        return None
    return _checked(years[0] if years else None, months[0], days[0] if days else None, weekday)


def _checked(year: int | None, month: int, day: int | None, weekday: int | None = None) -> _Date | None:
    if not 1 <= month <= 12:
        return None
    # Without its year, February may have 29 days.
    if day is not None and not 1 <= day <= calendar.monthrange(year or 2000, month)[1]:
        return None
    return _Date(year, month, day, weekday)
