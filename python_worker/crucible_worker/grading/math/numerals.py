r"""Numerals: decimals, thousands, repeating decimals, scientific notation, bases, number words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

from crucible_worker.grading.math.lexer import TooLarge, Unreadable
from crucible_worker.grading.math.tree import Based, Node, Number, Power, Product

__all__ = [
    "MAX_DIGITS",
    "MAX_EXPONENT",
    "MULTIPLES",
    "NUMBER_WORDS",
    "POWERS_OF_TEN",
    "based",
    "number_of",
    "number_of_words",
]

MAX_DIGITS = 1_000
"""Digits of a numeral."""
MAX_EXPONENT = 1_000
"""Powers of ten that are multiplied out; 1e5000 stays a product."""

_MAX_EXPONENT_DIGITS = 12

POWERS_OF_TEN: Mapping[str, int] = {
    "hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12, "quadrillion": 15, "lakh": 5, "crore": 7,
    "hundreds": 2, "thousands": 3, "millions": 6, "billions": 9, "trillions": 12,
}  # fmt: skip
"""Powers of ten by their names."""

_BELOW_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_ORDINALS = (
    "half halves",
    "third thirds",
    "quarter quarters fourth fourths",
    "fifth fifths",
    "sixth sixths",
    "seventh sevenths",
    "eighth eighths",
    "ninth ninths",
    "tenth tenths",
)
_SMALL: Mapping[str, int] = {name: value for value, name in enumerate(_BELOW_TWENTY.split())} | {
    "twenty": 20,
    "thirty": 30,
    "forty": 40,
    "fifty": 50,
    "sixty": 60,
    "seventy": 70,
    "eighty": 80,
    "ninety": 90,
}
_PARTS: Mapping[str, int] = {name: value for value, names in enumerate(_ORDINALS, start=2) for name in names.split()}
_SMALL_INTEGERS = {str(value): Number(Fraction(value)) for value in range(1_000)}
_GROUPS: Mapping[str, Fraction] = {"dozen": Fraction(12), "dozens": Fraction(12)}
MULTIPLES: Mapping[str, int] = {
    **{name: 10**power for name, power in POWERS_OF_TEN.items()},
    **{name: int(size) for name, size in _GROUPS.items()},
}
"""Factors of the value before such a word: 5 dozen is 60."""
NUMBER_WORDS = frozenset({*_SMALL, *(name + "s" for name in _SMALL), *_PARTS, "twenties", "thirties", "pair", "pairs"})
"""Words that are numbers themselves, or counts of something: not units."""
_PLAIN = re.compile(r"([0-9]*+)(?>(?:\.([0-9]*+))?)(?>(?:[eE]([+-]?[0-9]++))?)")
_REPEATING = re.compile(
    r"([0-9]*+)\.([0-9]*+)(?:\\(?:overline|bar) ?\{? ?([0-9]++)|\(([0-9]++)\)|((?:\\dot.*)))", re.DOTALL
)
_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}\{,\}[0-9]{3}(?![0-9])")
_DIGIT = re.compile(r"[0-9]++")


def number_of(text: str) -> Node:
    """The value of a numeral of the tokenizer.

    Raises:
        TooLarge: it has more than `MAX_DIGITS` digits.
    """
    small = _SMALL_INTEGERS.get(text)
    if small is not None:
        return small
    if text.isdigit():
        digits = text.lstrip("0")
        if len(digits) > MAX_DIGITS:
            raise TooLarge(f"a number of more than {MAX_DIGITS:,} digits")
        return Number(Fraction(int(digits or "0")))
    if "\\" in text or "(" in text or text.endswith("."):
        if repeating := _REPEATING.match(text):
            whole, fixed, *blocks = repeating.groups(default="")
            if dotted := blocks[2]:
                return _dotted(whole, fixed, dotted)
            return _repeating(whole, fixed, blocks[0] or blocks[1])
        if text.endswith(("...", "dots")):
            return _truncated(text)
    if text.count("{,}") == 1 and not _THOUSANDS.match(text):
        text = text.replace("{,}", ".")  # a decimal comma
    if text.count(".") > 1:
        text = text.replace(".", "")  # between thousands
    digits = re.sub(r"[^0-9.eE+-]", "", text)
    match = _PLAIN.fullmatch(digits)
    if match is None:
        raise Unreadable("not a number")
    return _decimal(match[1], match[2], match[3])


def _decimal(whole: str, decimals: str | None, exponent: str | None) -> Node:
    behind = (decimals or "").rstrip("0")  # 5.000 is a decimal, of one digit
    written = (whole + behind).lstrip("0")
    if len(written) > MAX_DIGITS or len(behind) > MAX_DIGITS:
        raise TooLarge(f"a number of more than {MAX_DIGITS:,} digits")
    value = Fraction(int(written or "0"), 10 ** len(behind))
    number = Number(value, decimals is not None)
    if exponent is None:
        return number
    if len(exponent) > _MAX_EXPONENT_DIGITS:
        raise TooLarge(f"an exponent of more than {_MAX_EXPONENT_DIGITS} digits")
    power = int(exponent)
    if abs(power) > MAX_EXPONENT:
        return Product((number, Power(Number(Fraction(10)), Number(Fraction(power)))))
    return Number(value * Fraction(10) ** power, number.decimal or power < 0)


def _repeating(whole: str, fixed: str, block: str) -> Number:
    if len(whole) + len(fixed) + len(block) > MAX_DIGITS:
        raise TooLarge(f"a number of more than {MAX_DIGITS:,} digits")
    scale = 10 ** len(fixed)
    tail = Fraction(int(block), (10 ** len(block) - 1) * scale)
    return Number(Fraction(int(whole + fixed or "0"), scale) + tail)


def _dotted(whole: str, fixed: str, dotted: str) -> Number:
    r"""0.\dot{1}4285\dot{7}: from the first dot to the last one."""
    block = "".join(_DIGIT.findall(dotted))
    if dotted.count("\\dot") == 1 and len(block) > 1:
        raise Unreadable("digits after a repeating one")
    return _repeating(whole, fixed, block)


def _truncated(text: str) -> Number:
    """0.333...: what the last digits repeat; without a repetition, only the written digits."""
    whole, _, rest = text.partition(".")
    decimals = _DIGIT.match(rest)
    digits = decimals[0] if decimals else ""
    if len(whole) + len(digits) > MAX_DIGITS:
        raise TooLarge(f"a number of more than {MAX_DIGITS:,} digits")
    for size in range(1, min(len(digits) // 2, 12) + 1):
        times = 3 if size == 1 else 2
        if digits.endswith(digits[-size:] * times):
            return _repeating(whole, digits[:-size], digits[-size:])
    return Number(Fraction(int(whole + digits or "0"), 10 ** len(digits)), True)


def based(digits: str, base: int) -> Based:
    """A numeral with its base, whole or with a point.

    Raises:
        TooLarge: it has more than `MAX_DIGITS` digits.
        Unreadable: a digit is not one of the base, or the base is invalid.
    """
    digits = digits.lower()
    if not 2 <= base <= 36:
        raise Unreadable("not a base")
    if len(digits) > MAX_DIGITS:
        raise TooLarge(f"a number of more than {MAX_DIGITS:,} digits")
    for digit in digits.replace(".", "", 1):
        if not digit.isascii() or not digit.isalnum() or int(digit, 36) >= base:
            raise Unreadable(f"{digit} is not a digit of base {base}")
    return Based(digits, base)


def number_of_words(words: Sequence[str]) -> Number | None:
    """The value of number words, all of them: "one hundred and five", "two thirds", "a dozen"; None if they are not."""
    if not words:
        return None
    size = Fraction(1, _PARTS[words[-1]]) if words[-1] in _PARTS else _GROUPS.get(words[-1])
    if size is not None and len(words) >= 2:
        count = 1 if words[0] in ("a", "an") and len(words) == 2 else _whole(words[:-1])
        return None if count is None else Number(count * size)
    count = _whole(words)
    return None if count is None else Number(Fraction(count))


def _whole(words: Sequence[str]) -> int | None:
    """The value of whole number words; None if they are not, or do not fit together ("five six")."""
    total = group = 0
    room = last = 10**18  # the next number must be smaller
    for word in words:
        value = _SMALL.get(word)
        if value is not None:
            if value >= room or (value == 0 and len(words) > 1):
                return None
            group += value
            room = 10 if value >= 20 else 1
        elif word == "hundred" and group < 100:
            group, room = 100 * (group or 1), 100
        elif word in POWERS_OF_TEN and 1_000 <= 10 ** POWERS_OF_TEN[word] < last:
            last = 10 ** POWERS_OF_TEN[word]
            total, group, room = total + (group or 1) * last, 0, 1_000
        elif word != "and" or not (total or group):
            return None
    return total + group if words[-1] != "and" else None
