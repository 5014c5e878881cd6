"""Numbers in a text, read exactly, and the grader that compares the last one.

A number is, in ASCII digits and never inside a word ("x46" has none, "46km" has 46):

    [sign] digits [. digits] [e [sign] digits] [%]          "-46", "3.14", ".5", "1e-3", "45%"
    [sign] digits, three digits, ... [. digits] [%]         "1,460,000.5": a comma only separates thousands
    number/number                                           "3/4"; a longer chain ("1/2/2024") is its last part

A sign ("+", or any dash of `crucible_worker.grading.characters`) counts if no word, digit or closing bracket is before
it: "10-46" ends in 46. LaTeX, mixed numbers and units are not read. The grader reads the digits of every script, and
"is - 5" and "minus 5" as the number below zero.

Values are rationals, never rounded through floats. Digits below 10^-1000 are cut off, with a bound of the error. A
value of 10^1000 or more is only known to be that large, so that "1e999999999" costs nothing.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, ClassVar, NamedTuple

from msgspec import Meta

from crucible_worker.grading.base import TOO_LONG, DirectGrader, Grade, right, undecided, wrong
from crucible_worker.grading.characters import DASHES, plain
from crucible_worker.grading.scope import declines, mention
from crucible_worker.grading.turns import first_turn

__all__ = [
    "MAX_MAGNITUDE",
    "UNSIGNED",
    "Flaw",
    "Numeral",
    "Numeric",
    "ParsedNumber",
    "canonical_decimal",
    "is_negated",
    "last_numbers",
    "last_numerals",
    "with_changing_words",
]


MAX_MAGNITUDE = 1_000
"""Values are exact between 10^-1000 and 10^1000."""

_FIRST_REACH = 200  # characters at the end of a text in which its last numbers are sought first
_MAX_EXPONENT_DIGITS = 18  # an exponent with more digits outweighs every mantissa that fits into a response
_FAR = 10**_MAX_EXPONENT_DIGITS

# Possessive, and each group of thousands is checked by itself: no character is examined more than a few times.
_DIGITS = r"(?:[0-9]{1,3}(?>(?:,[0-9]{3}(?![0-9]))+)|[0-9]++)"
UNSIGNED = rf"(?:{_DIGITS}(?>(?:\.[0-9]++)?)|\.[0-9]++)(?>(?:[eE][-+{DASHES}]?[0-9]++)?)"
"""The expression of a number without its sign."""
_NUMBER = re.compile(
    rf"(?>(?P<sign>(?<![\w)\]}}])[-+{DASHES}])?)(?<![A-Za-z_0-9])(?<![0-9]\.)"
    rf"(?P<parts>{UNSIGNED}(?>(?:/{UNSIGNED})*))(?>(?P<percent> ?\\?%)?)"
)
_PART = re.compile(r"(?P<whole>[0-9]*+)(?>(?:\.(?P<decimals>[0-9]++))?)(?>(?:[eE](?P<exponent>[-+]?[0-9]++))?)")


# A sign with a blank after it, or its word; not a difference, and not "plus or minus".
_MINUS_IN_WORDS = r"(?:^|(?<=[:,=])\s?|(?<!\bor)(?<=[A-Za-z]{2})\s)(?:minus|negative)"
_MINUS = re.compile(rf"(?:[A-Za-z]{{2}}\s[-\u2212]|{_MINUS_IN_WORDS})\s\Z", re.IGNORECASE)
_SAID_SIGNS = ("-", "minus", "negative")
# After other words a dash may be punctuation: "the answer - 5".
_SAID_TO_BE_NEGATIVE = re.compile(rf"(?:(?:\bis|\bequals?|=)\s?-|{_MINUS_IN_WORDS})\s\Z", re.IGNORECASE)
_MINUS_REACH = 16
_CHANGING = re.compile(
    r"(?:\s(?:degrees?|\u00b0[CF]?)(?:\s(?:Celsius|Fahrenheit|C|F))?)?\s(?:below|under)\szero\b"
    r"|\s(?:dozen|hundred|thousand|million|billion|trillion|grand(?!\s(?:piano|total|prize|slam|master|parent)))\b"
    r"|\s(?:thirds|fourths|fifths|sixths|sevenths|eighths|ninths|tenths|elevenths|twelfths|[a-z]{3,5}teenths"
    r"|(?:twent|thirt|fort|fift|sixt)ieths|hundredths|thousandths|millionths)\b",
    re.IGNORECASE,
)
_CHANGING_REACH = 40


class Flaw(enum.StrEnum):
    """The reason why a number has no value to compare."""

    HUGE = f"the number is 10^{MAX_MAGNITUDE:,} or more"
    ZERO_DENOMINATOR = "the number divides by 0"
    LONG_FRACTION = "the number is a fraction of numbers too long to divide"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ParsedNumber:
    """A number in a text."""

    text: str
    """Its spelling."""
    value: Fraction = Fraction(0)
    """Its value without the percent sign; meaningless if there is a flaw."""
    error: Fraction = Fraction(0)
    """Bound of the error: if 0, `value` is exact; otherwise the true value is closer to `value` than this."""
    percent: bool = False
    """Whether a percent sign follows."""
    flaw: Flaw | None = None
    """Why it has no value, if it has none."""


class Numeral(NamedTuple):
    """The spelling and position of a number: enough for most numbers."""

    text: str
    start: int


def last_numbers(text: str, count: int) -> Sequence[ParsedNumber]:
    """The last numbers of a text, at most `count`, in their order. Linear time."""
    return [_read(match) for match in _last_matches(text, count)]


def last_numerals(text: str, count: int) -> Sequence[Numeral]:
    """Like `last_numbers`, without values."""
    return [Numeral(match[0], match.start()) for match in _last_matches(text, count)]


def is_negated(text: str, start: int) -> bool:
    """Whether the text before a number that begins there makes it negative: "is - 5", "minus 5"."""
    return _MINUS.search(text[max(0, start - _MINUS_REACH) : start]) is not None


def with_changing_words(text: str, number: Numeral) -> str:
    """A number of a text with the words after it that change its value: "12 million", "7 degrees below zero"."""
    end = number.start + len(number.text)
    words = _CHANGING.match(text, end, end + _CHANGING_REACH)
    return number.text if words is None or number.text.endswith("%") else number.text + words[0]


def _last_matches(text: str, count: int) -> Sequence[re.Match[str]]:
    """The last numbers, sought from a blank near the end on; no number continues after a blank."""
    reach = _FIRST_REACH
    while True:
        start = max(0, text.rfind(" ", 0, max(0, len(text) - reach)))
        found = collections.deque(_NUMBER.finditer(text, start), maxlen=count)
        if start == 0 or len(found) == count:
            return found
        reach = 4 * (len(text) - start)


def _read(match: re.Match[str]) -> ParsedNumber:
    parts = match["parts"].split("/")
    number = _divide(_part(parts[0]), _part(parts[1])) if len(parts) == 2 else _part(parts[-1])
    # The sign of a chain belongs to its first part, which is dropped.
    negative = len(parts) <= 2 and match["sign"] not in (None, "", "+")
    return dataclasses.replace(
        number,
        text=match[0],
        value=-number.value if negative else number.value,
        percent=match["percent"] is not None,
    )


def _part(text: str) -> ParsedNumber:
    match = _PART.fullmatch(plain(text).replace(",", ""))
    assert match is not None, text
    decimals = match["decimals"] or ""
    written = (match["whole"] + decimals).lstrip("0")
    digits = written.rstrip("0")
    if not digits:
        return ParsedNumber(text=text)
    exponent = _exponent(match["exponent"] or "0") - len(decimals) + len(written) - len(digits)
    lead = len(digits) + exponent  # 10^(lead - 1) <= value < 10^lead
    if lead > MAX_MAGNITUDE:
        return ParsedNumber(text=text, flaw=Flaw.HUGE)
    if exponent >= -MAX_MAGNITUDE:
        return ParsedNumber(text=text, value=int(digits) * Fraction(10) ** exponent)
    kept = digits[: max(0, lead + MAX_MAGNITUDE)]
    smallest = Fraction(1, 10**MAX_MAGNITUDE)
    return ParsedNumber(text=text, value=int(kept or "0") * smallest, error=smallest)


def _exponent(text: str) -> int:
    digits = text.lstrip("+-").lstrip("0")
    size = int(digits or "0") if len(digits) <= _MAX_EXPONENT_DIGITS else _FAR
    return -size if text.startswith("-") else size


def _divide(numerator: ParsedNumber, denominator: ParsedNumber) -> ParsedNumber:
    if numerator.flaw or denominator.flaw or numerator.error or denominator.error:
        return ParsedNumber(text="", flaw=Flaw.LONG_FRACTION)
    if denominator.value == 0:
        return ParsedNumber(text="", flaw=Flaw.ZERO_DENOMINATOR)
    return ParsedNumber(text="", value=numerator.value / denominator.value)


# A text that is only a decimal number, compared without arithmetic.
#
#     [sign] digits [. digits] [e [sign] digits] [%]          "-46", "3.14", ".5", "1e-3", "45%"
#     [sign] digits, three digits, ... [. digits] [e ...] [%] "1,460,000.5"
#
# Digits are those of ASCII; "1_000", "nan", "inf", "0x10" and "3/4" are not decimals. A number is represented by its
# significant digits and its power of ten, both read from the text: neither a million digits nor an exponent of a
# million costs more than its length.

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


# The grader of numbers: the last one of a response, exactly, or within a tolerance.


def _numbers_said(text: str, count: int) -> Sequence[ParsedNumber]:
    """The last numbers of a text in its one spelling, below zero also if words or a separate sign say so."""
    text = plain(text)
    return [_said(match) for match in _last_matches(text, count)]


def _said(match: re.Match[str]) -> ParsedNumber:
    number, start = _read(match), match.start()
    before = "" if match["sign"] else match.string[max(0, start - _MINUS_REACH) : start]
    if not before.casefold().rstrip().endswith(_SAID_SIGNS) or not _SAID_TO_BE_NEGATIVE.search(before):
        return number
    return dataclasses.replace(number, text=f"-{number.text}", value=-number.value)


_METHOD = "number"
# So far below the exact range that no target reaches it, not even as a percentage.
_TARGET_BOUND = 10 ** (MAX_MAGNITUDE - 3)
_EXACT_BELOW = 10 ** (MAX_MAGNITUDE - 1)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Numeric(DirectGrader):
    """The last number of the response equals a target's, exactly or within a tolerance.

    `crucible_worker.grading.numbers` defines numbers. A number with a percent sign equals one without
    if it does so unchanged or divided by 100: 45% = 45 = 0.45. Tolerances are exact decimals, as they are
    written, and are added: |answer - target| <= absolute + relative * |target|. A target that does not have exactly one
    number, after its marker if it has one, is UNDECIDED; a response without any is wrong,
    and so is one that says that it has no answer, or only mentions the number.
    """

    extraction: ClassVar[str] = "number"

    relative_tolerance: Annotated[float, Meta(ge=0)] = 0
    """Accept a response within this share of the target's magnitude, added to the other."""
    absolute_tolerance: Annotated[float, Meta(ge=0)] = 0
    """Accept a response within this distance of the target, added to the other."""
    target_marker: str = ""
    """If a target has this marker, such as "####" in GSM8K, the text after the last one is the target."""

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """Compare the last number with each target. Choices are ignored."""
        wanted = []
        for target in targets:
            numbers = _numbers_said(target.rpartition(self.target_marker)[2] if self.target_marker else target, 2)
            if len(numbers) != 1:
                flaw = "has several numbers" if numbers else "is not a number"
                return undecided(f"the target {_short(target)} {flaw}", method=_METHOD)
            if numbers[0].flaw or numbers[0].error or abs(numbers[0].value) >= _TARGET_BOUND:
                return undecided(f"the target {_short(target)} is not a number that can be compared", method=_METHOD)
            wanted.append(numbers[0])
        response = first_turn(response)
        found = _numbers_said(response, 1)
        if not found:
            return wrong("", _METHOD, "there is no number in the response")
        answer = found[0]
        if answer.flaw is Flaw.LONG_FRACTION:
            return wrong(answer.text, TOO_LONG, answer.flaw)
        if answer.flaw is Flaw.HUGE and any(self._allowed(target.value) >= _EXACT_BELOW for target in wanted):
            return undecided(
                "the number is too large to compare with this tolerance", extracted=answer.text, method=_METHOD
            )
        if answer.flaw:
            return wrong(answer.text, _METHOD, answer.flaw)
        verdicts = [self._equal(answer, target) for target in wanted]
        if True in verdicts:
            if declines(response) or _is_only_mentioned(response):
                return wrong(answer.text, _METHOD, "the response does not say that it is the answer")
            return right(answer.text, _METHOD)
        if None in verdicts:
            return undecided("the number has too many digits to compare", extracted=answer.text, method=_METHOD)
        return wrong(answer.text, _METHOD)

    def _equal(self, answer: ParsedNumber, target: ParsedNumber) -> bool | None:
        """Whether they are equal; None if the answer's error leaves it open."""
        readings = [(answer.value, target.value)]
        if answer.percent and not target.percent:
            readings.append((answer.value / 100, target.value))
        elif target.percent and not answer.percent:
            readings.append((answer.value, target.value / 100))
        verdicts = [self._within(one, other, answer.error) for one, other in readings]
        return True if True in verdicts else None if None in verdicts else False

    def _within(self, answer: Fraction, target: Fraction, error: Fraction) -> bool | None:
        allowed = self._allowed(target)
        distance = abs(answer - target)
        if distance + error <= allowed:
            return True
        if not error:
            return False
        # The true distance differs from this one by less than the error.
        return False if distance - error >= allowed else None

    def _allowed(self, target: Fraction) -> Fraction:
        return Fraction(repr(self.absolute_tolerance)) + Fraction(repr(self.relative_tolerance)) * abs(target)


def _is_only_mentioned(text: str) -> bool:
    """Whether the last number of a text is denied, doubted or supposed, and is nowhere else."""
    last = last_numerals(text, 1)
    return bool(last) and text.count(last[0].text) == 1 and mention(text, last[0].start) >= 0


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")
