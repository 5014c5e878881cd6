"""What makes a value a quantity: units, currencies, degrees, ordinals, powers of ten; and numbers in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from crucible_worker.grading.math.lexer import Cursor, TooLarge, Unreadable
from crucible_worker.grading.math.tokens import (
    LETTER_UNITS,
    MAX_UNIT_WORDS,
    NO_COUNTED_WORDS,
    NO_NOUNS,
    UNITS,
    powered,
    singular,
)
from crucible_worker.grading.math.tree import (
    MINUS_ONE,
    Based,
    Constant,
    FunctionCall,
    Node,
    Number,
    Power,
    Product,
    Quantity,
    Sum,
)

__all__ = [
    "MAX_DIGITS",
    "MAX_UNIT_PARTS",
    "MULTIPLES",
    "NUMBER_WORDS",
    "POWERS_OF_TEN",
    "based",
    "degrees",
    "may_be_unit",
    "number_of_words",
    "operated",
    "ordinal",
    "scaled",
    "unit_of",
]

# Number words, and numerals with a base.

MAX_DIGITS = 1_000
"""Digits of a numeral."""

POWERS_OF_TEN: Mapping[str, int] = {
    "hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12, "quadrillion": 15, "lakh": 5, "crore": 7,
    "lakhs": 5, "crores": 7, "hundreds": 2, "thousands": 3, "millions": 6, "billions": 9, "trillions": 12,
}  # fmt: skip
"""Powers of ten by their names."""

_BELOW_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_FRACTION_WORDS = (
    "half halves",
    "third thirds",
    "quarter quarters fourth fourths",
    "fifth fifths",
    "sixth sixths",
    "seventh sevenths",
    "eighth eighths",
    "ninth ninths",
    "tenth tenths",
    "eleventh elevenths",
    "twelfth twelfths",
    *(f"{name}th {name}ths" for name in _BELOW_TWENTY.split()[13:]),
)
_FURTHER_PARTS = {
    "twentieth": 20, "thirtieth": 30, "fortieth": 40, "fiftieth": 50, "sixtieth": 60, "hundredth": 100,
    "thousandth": 1_000, "millionth": 10**6, "billionth": 10**9,
}  # fmt: skip
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
_PARTS: Mapping[str, int] = {
    **{name: value for value, names in enumerate(_FRACTION_WORDS, start=2) for name in names.split()},
    **{name + end: value for name, value in _FURTHER_PARTS.items() for end in ("", "s")},
}
_MAX_OF_SINGULAR = 10  # "three fourth" is 3/4, "thirty fourth" and "two hundredth" are ordinals
_GROUPS: Mapping[str, Fraction] = {"dozen": Fraction(12), "dozens": Fraction(12), "grand": Fraction(1_000)}
MULTIPLES: Mapping[str, int] = {
    **{name: 10**power for name, power in POWERS_OF_TEN.items()},
    **{name: int(size) for name, size in _GROUPS.items()},
}
"""Factors of the value before such a word: 5 dozen is 60."""
NUMBER_WORDS = frozenset({*_SMALL, *(name + "s" for name in _SMALL), *_PARTS, "twenties", "thirties", "pair", "pairs"})
"""Words that are numbers themselves, or counts of something: not units."""


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
        if count is None or (count != 1 and _is_ordinal(words[-1], count)):
            return None
        return Number(count * size)
    count = _whole(words)
    return None if count is None else Number(Fraction(count))


def _is_ordinal(part: str, count: int) -> bool:
    """Whether the name of a part after a count is an ordinal: the fourth of "thirty fourth"."""
    return part in _PARTS and part[-1] != "s" and max(count, _PARTS[part]) > _MAX_OF_SINGULAR


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


# Units, currencies, degrees, ordinals and powers of ten in words.


MAX_UNIT_PARTS = 8
"""Words, signs and powers of one unit."""

_SCALES = {"c": "celsius", "f": "fahrenheit", "celsius": "celsius", "fahrenheit": "fahrenheit"}
_ORDINAL_ENDINGS = frozenset({"st", "nd", "rd", "th"})
_PREFIXES = {"square": 2, "cubic": 3}
_SUFFIXES = {"squared": 2, "cubed": 3}
_BELOW = frozenset({"below", "under"})
_ZERO = frozenset({"zero", "0"})
_LEVELS = frozenset({"", "freezing", "sea"})
_OPERATORS = frozenset({*_SUFFIXES, "factorial"})
_NO_NOUNS = NO_COUNTED_WORDS | NUMBER_WORDS | {"gross", "score", "scores"} | (MULTIPLES.keys() - {"grand"})
_ITEM_ENDS = frozenset({"end", ",", "and", "relation", "}", ")", "]", "set}", ".", "-", "+", "*", "number"})
_AMOUNTS = frozenset({"number", "currency"})


def may_be_unit(cursor: Cursor) -> bool:
    """Whether the next token may begin a unit."""
    kind, value = cursor.kinds[cursor.at], cursor.values[cursor.at]
    if kind == "frac":
        return _end_of_fraction(cursor) > 0
    if kind == "upright":
        return value in LETTER_UNITS or len(value) > 1
    return kind != "name" or value.lower() in UNITS


def unit_of(cursor: Cursor, node: Node) -> Node | None:
    """A value with the unit that follows it; None if no unit follows."""
    kind, value = cursor.kinds[cursor.at], cursor.values[cursor.at]
    if kind == "currency":
        cursor.at += 1
        return Quantity(node, value)
    if kind == "frac":
        return _quantity(node, _fraction(cursor)) if _end_of_fraction(cursor) else None
    known = may_be_unit(cursor)
    if kind == "word":
        if value.lower() in MULTIPLES and (multiple := scaled(cursor, node)) is not None:
            return multiple
        if value.lower() in _PARTS and (fraction := _parts(cursor, node)) is not None:
            return fraction
        if value.lower() in _BELOW and cursor.values[cursor.at + 1].lower() in _ZERO:
            return _below_zero(cursor, node)
        if value in _ORDINAL_ENDINGS and isinstance(node, Number):
            cursor.at += 1
            return Quantity(node, "ordinal")
        if value == "per" and cursor.values[cursor.at + 1] == "cent":
            cursor.at += 2
            return Quantity(node, "percent")
        if value == "base":
            return _based(cursor, node)
        known = value in UNITS or value.lower() in UNITS or (value == "per" and isinstance(node, Quantity))
    if known:
        before = cursor.at
        unit = _unit(cursor)
        if cursor.kinds[cursor.at] != "word" or not _is_numeric(node):
            return _quantity(node, unit)
        cursor.at = before  # "65 children tickets"
    return _counted(cursor, node) if kind == "word" and _is_numeric(node) else None


def operated(cursor: Cursor, node: Node) -> Node | None:
    """An operand with the word after it applied: "x squared", "5 factorial"; None if it is no such word."""
    word = cursor.values[cursor.at].lower()
    if cursor.kinds[cursor.at] != "word" or isinstance(node, Quantity) or word not in _OPERATORS:
        return None
    cursor.at += 1
    power = _SUFFIXES.get(word)
    return FunctionCall("factorial", (node,)) if power is None else Power(node, Number(Fraction(power)))


def _unit(cursor: Cursor) -> str:
    r"""A unit: `square cm`, `\text{m}/\text{s}^2`, `miles per hour`."""
    kinds, values = cursor.kinds, cursor.values
    above: list[str] = []
    below: list[str] = []
    side, prefix, bracket = above, 1, False
    for _ in range(MAX_UNIT_PARTS):
        kind, value = kinds[cursor.at], values[cursor.at]
        name = _unit_name(cursor, kind, value, bool(above))
        if kind == "letter" and prefix != 1:
            name = LETTER_UNITS.get(value, "")
        if value == "per" or (kind == "/" and _unit_name(cursor, kinds[cursor.at + 1], values[cursor.at + 1], True)):
            side = below
            cursor.at += 1
        elif kind == "/" and _end_of_group(cursor, cursor.at + 1, "(", ")"):
            side, bracket = below, True
            cursor.at += 2
        elif kind == ")" and bracket:
            cursor.at += 1
            break
        elif kind == "*" and _unit_name(cursor, kinds[cursor.at + 1], values[cursor.at + 1], False):
            cursor.at += 1
        elif name in _PREFIXES:
            prefix = _PREFIXES[name]
            cursor.at += 1
        elif name in _SUFFIXES and side:
            side[-1] = powered(side[-1], _SUFFIXES[name])
            cursor.at += 1
        elif name:
            cursor.at += 1
            if kinds[cursor.at] == "." and kinds[cursor.at + 1] == "word":
                cursor.at += 1
            power = prefix * _unit_power(cursor)
            (below if power < 0 else side).append(powered(name, abs(power)))
            prefix = 1
        else:
            break
    if prefix != 1:
        above.append("square" if prefix == 2 else "cubic")
    return " per ".join(filter(None, (" ".join(above), " ".join(below)))) if above else "per " + " ".join(below)


def _fraction(cursor: Cursor) -> str:
    r"""A unit that is written as a fraction: `\frac{\text{m}}{\text{s}^2}`."""
    parts: list[str] = []
    for _ in range(2):
        cursor.at += 2  # the command and a brace, or two braces
        parts.append(_unit(cursor))
    cursor.at += 1
    return " per ".join(parts)


def _end_of_fraction(cursor: Cursor) -> int:
    """The end of a fraction of units at this position; 0 if it has anything else in it."""
    at = cursor.at + 1
    for _ in range(2):
        end = _end_of_group(cursor, at)
        if not end:
            return 0
        at = end
    return at


def _end_of_group(cursor: Cursor, at: int, opening: str = "{", closing: str = "}") -> int:
    """The end of a group that has only units and their powers; 0 for any other group."""
    kinds, values = cursor.kinds, cursor.values
    if kinds[at] != opening:
        return 0
    start = at = at + 1
    while kinds[at] != closing and at < start + 4 * MAX_UNIT_PARTS:
        if kinds[at] == "^":
            group = kinds[at + 1] == "{"
            minus = kinds[at + 1 + group] == "-"
            at += 1 + group + minus
            if kinds[at] != "number" or not values[at].isdigit() or (group and kinds[at + 1] != "}"):
                return 0
            at += group
        elif kinds[at] != "*" and not _unit_name(cursor, kinds[at], values[at], False):
            return 0
        at += 1
    return at + 1 if kinds[at] == closing and at > start else 0


def _unit_name(cursor: Cursor, kind: str, value: str, after_unit: bool) -> str:
    """A unit's name; empty if it is not a unit. In plain text a letter is one only after a slash: `km/h`."""
    if kind in ("word", "name") or (kind == "upright" and len(value) > 1):
        return UNITS.get(value) or UNITS.get(value.lower(), "")
    if kind == "upright" or (kind == "letter" and after_unit and cursor.kinds[cursor.at] == "/"):
        return LETTER_UNITS.get(value, "")
    if kind == "letter" and after_unit and cursor.kinds[cursor.at - 1] == "/":
        return LETTER_UNITS.get(value, "")
    return ""


def _unit_power(cursor: Cursor) -> int:
    """The power of a unit; 1 if none is written."""
    kinds, values = cursor.kinds, cursor.values
    if kinds[cursor.at] != "^":
        return 1
    at = cursor.at + 1
    group = kinds[at] == "{"
    at += group
    minus = kinds[at] == "-"
    at += minus
    if kinds[at] != "number" or not values[at].isdigit() or len(values[at]) > 2 or (group and kinds[at + 1] != "}"):
        cursor.fail("the power of a unit is not an integer")
    cursor.at = at + 1 + group
    return -int(values[at]) if minus else int(values[at])


def _counted(cursor: Cursor, node: Node) -> Node | None:
    """A number of counted things that are in no table: `17 red apples`."""
    if isinstance(node, Quantity) and node.unit == "ordinal":
        return None  # "5th prime"
    words: list[str] = []
    at = cursor.at
    while cursor.kinds[at] in ("word", "letter", "upright"):
        word = cursor.values[at].lower()
        if words and word == "x" and cursor.kinds[at + 1] in _AMOUNTS:
            break  # a sign: "5 apples x $2"
        if len(words) == MAX_UNIT_WORDS or word in _NO_NOUNS or (cursor.kinds[at] != "word" and word != "a"):
            return None
        words.append(word)
        at += 1
    times = cursor.kinds[at] == "letter"
    if not times and (
        cursor.kinds[at] not in _ITEM_ENDS or (cursor.kinds[at] == "number" and not isinstance(node, Quantity))
    ):
        return None
    if words[-1] in NO_NOUNS or any(map(_is_below_a_level, words, (*words[1:], ""))):
        return None
    cursor.at = at
    return _quantity(node, " ".join((*words[:-1], singular(words[-1]))))


def _is_below_a_level(word: str, following: str) -> bool:
    """Whether these words change the sign of a value: "12 below", "12 feet below sea level"; not "below the x-axis"."""
    return word in _BELOW and following in _LEVELS


def scaled(cursor: Cursor, node: Node) -> Node | None:
    """A value before the name of a power of ten, `2.5 million`; None without one: `2 grand pianos`."""
    name = cursor.values[cursor.at].lower()
    multiple = MULTIPLES.get(name)
    if multiple is None or (name == "grand" and cursor.kinds[cursor.at + 1] not in _ITEM_ENDS):
        return None
    cursor.at += 1
    factor = Number(Fraction(multiple))
    if isinstance(node, Number):
        value = node.value * factor.value
        if abs(value) >= 10**MAX_DIGITS:
            raise TooLarge(f"a number of more than {MAX_DIGITS:,} digits")
        return Number(value, node.decimal and value.denominator > 1)
    if isinstance(node, Quantity):
        inner = node.value
        return Quantity(
            Number(inner.value * factor.value) if isinstance(inner, Number) else Product((inner, factor)), node.unit
        )
    return Product((node, factor))


def _parts(cursor: Cursor, node: Node) -> Node | None:
    """A whole number of parts: `3 sixteenths` is 3/16; None if no part is meant."""
    part = cursor.values[cursor.at].lower()
    if not isinstance(node, Number) or node.value.denominator != 1 or (part[-1] != "s" and node.value != 1):
        return None
    cursor.at += 1
    return Number(node.value / _PARTS[part])


def _below_zero(cursor: Cursor, node: Node) -> Node:
    """A value before "below zero", with a unit or without: the one with the other sign."""
    cursor.at += 2
    value = node.value if isinstance(node, Quantity) else node
    value = Number(-value.value, value.decimal) if isinstance(value, Number) else Product((MINUS_ONE, value))
    return Quantity(value, node.unit) if isinstance(node, Quantity) else value


def _based(cursor: Cursor, node: Node) -> Node | None:
    """A numeral before "base" and a number."""
    cursor.at += 1
    base = cursor.values[cursor.at]
    named = number_of_words((base.lower(),))
    size = int(named.value) if named else int(base) if base.isdecimal() and len(base) < 3 else 0
    if not isinstance(node, Number) or node.value.denominator != 1:
        cursor.fail("a base after something that is not a numeral")
    cursor.at += 1
    return based(str(node.value), size)


def degrees(cursor: Cursor, node: Node) -> Node:
    """A value before a degree sign, and the scale of temperature if it is one."""
    scale = _SCALES.get(cursor.values[cursor.at].lower())
    if scale and cursor.kinds[cursor.at] in ("letter", "upright", "word"):
        cursor.at += 1
        return Quantity(node, "degree " + scale)
    return Quantity(node, "degree")


def ordinal(cursor: Cursor, node: Node) -> Node | None:
    r"""A number before `{th}`, or n, the `^` was passed; None if there is no ordinal."""
    group = cursor.kinds[cursor.at] == "{"
    at = cursor.at + group
    value, size = cursor.values[at], 1
    if cursor.kinds[at] == cursor.kinds[at + 1] == "letter":
        value, size = value + cursor.values[at + 1], 2
    if not isinstance(node, Number) and (not group or value != "th"):
        return None  # x^n dx
    if value not in _ORDINAL_ENDINGS or (group and cursor.kinds[at + size] != "}"):
        return None
    cursor.at = at + size + group
    return Quantity(node, "ordinal")


def _quantity(node: Node, unit: str) -> Quantity:
    r"""A value with a unit, or with one more: `\$5 per hour`; "15th day" is not an amount."""
    if isinstance(node, Quantity):
        return node if node.unit == "ordinal" else Quantity(node.value, f"{node.unit} {unit}")
    return Quantity(node, unit)


def _is_numeric(node: Node) -> bool:
    """Whether only numbers occur in a value."""
    if isinstance(node, Number):
        return True
    if isinstance(node, Quantity):
        return True
    if isinstance(node, Product):
        return all(isinstance(factor, Number | Power | Constant) and _is_numeric(factor) for factor in node.factors)
    if isinstance(node, Sum):
        return all(isinstance(term, Number | Product) and _is_numeric(term) for term in node.terms)
    return isinstance(node, Constant) or (isinstance(node, Power) and isinstance(node.base, Number | Constant))
