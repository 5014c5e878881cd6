"""Notations that have rules of their own: dates and times, chemical formulas, vectors as sums of unit vectors."""

# ruff: noqa: RUF001 - this module is about signs that look like others.

from __future__ import annotations

import calendar
import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

from crucible_worker.grading.math.identity import MathOutcome, Scope, different, equal
from crucible_worker.grading.math.text import words_of
from crucible_worker.grading.math.tokens import spelled
from crucible_worker.grading.math.tree import (
    ONE,
    ZERO,
    Collection,
    Constant,
    Matrix,
    Node,
    Number,
    Product,
    Quantity,
    Sum,
    Symbol,
    added,
    multiplied,
    walk,
)

__all__ = [
    "MAX_FORMULA_CHARS",
    "MAX_MOMENT_CHARS",
    "MAX_NODES",
    "compare_durations",
    "compare_formulas",
    "compare_moments",
    "has_number_inside",
    "in_components",
    "other_capitals",
    "other_clock",
]

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


# Dates and times of day: the same day or minute, however it is written.


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


# Chemical formulas and reactions: `H2O`, `H_2O` and `\ce{H2O}` are the same.
#
# A formula is compared as written: its elements in their order, with their numbers, and its charge. The atoms of a
# species are not added up: `CH3CH2OH` is not `C2H6O`.

MAX_FORMULA_CHARS = 500
"""Characters of a text with formulas or a reaction."""

_ELEMENTS = spelled(
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr Nb Mo"
    " Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au Hg"
    " Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og"
)
_SPECIES = re.compile(r"[A-Ze](?:(?<=[A-Z])|\s?\^\s?\{?[+-])")
# Commands and small letters that formulas do not have; most mathematics has one of them.
_MATHEMATICS = re.compile(
    r"\\(?!ce|mathrm|text|rm|mathsf|displaystyle|long|right|left|up|down|to(?![A-Za-z])|cdot|bullet|[^A-Za-z])"
    r"|(?<![\\A-Za-z_({])(?!and\b|e\s?\^?\s?\{?[+-])[a-z]"
)
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]{1,4}")
_MARKUP = re.compile(r"\\(?:ce|mathrm|text|textrm|rm|mathsf|displaystyle|left|right)(?![A-Za-z])|\\[()\[\],;:! ]|[${}]")
# Spaces that document converters leave between the parts of a formula; an empty group before an isotope's numbers.
_LOOSE = re.compile(r"(?<=[A-Za-z0-9}]) {1,3}(?=\\(?:mathrm|text)\s?\{~?[A-Z])|\{ ?\}(?= ?[_^])")
_SIGNS = (
    (re.compile(r"\\xrightarrow\s?(?:\[[^\[\]{}]{0,40}\]\s?)?\{(?:[^{}]|\{[^{}]{0,20}\}){0,60}\}"), " -> "),
    (re.compile(r"\s?(?:\\(?:up|down)arrow(?![A-Za-z])|[↑↓])"), ""),
    (re.compile(r"\\(?:long)?rightarrow|\\to(?![A-Za-z])|\\longrightarrow|-{1,3}>|[→⟶]|=(?!>)"), " -> "),
    (re.compile(r"\\rightleftharpoons|\\leftrightarrow|<=>|<->|[⇌⇄]"), " <-> "),
    (re.compile(r"\s?(?:\\cdot(?![A-Za-z])|\\bullet(?![A-Za-z])|[·•∙⋅*])\s?"), "."),
    (re.compile("[−–]"), "-"),
)
_EVIDENCE = re.compile(
    r"\\ce(?![A-Za-z])|->|→|⟶|⇌|\\to(?![A-Za-z])|rightarrow|rightleftharpoons|\^\s?\{?[0-9]?[+-]|[⁺⁻]"
)
# Signs of a formula, not a product: a number between two elements, as H2O is not 2HO, or an index of two letters, Br_2.
_NUMBER_INSIDE = re.compile(
    r"[A-Z](?:(?<![A-Za-z\\].)[a-z]?(?:[A-Z][a-z]?){0,3}[0-9]{1,3}[A-Z(]|(?<!\\.)[a-z]_\{?[0-9])"
)
_HEAVY = re.compile(r"\{ ?\} ?[_^]")
_DIVIDER = re.compile(r"\s*(?:[,;]|\band\b)\s*")
_ARROW = re.compile(r"\s(<?->)\s")
_COEFFICIENT = re.compile(r"([0-9]{1,6}(?:/[0-9]{1,3})?)?\s?")
_PART = re.compile(r"([A-Z][a-z]?|[()\[\]]|\.[0-9]{0,3})(?:_?([0-9]{1,4})|_([a-z]))?")
_ISOTOPE = re.compile(r"(?:_(?P<low>-?[0-9]{1,3})\s?)?\^(?P<mass>[0-9]{1,3})\s?(?:_(?P<number>-?[0-9]{1,3})\s?)?")
_ELECTRON = re.compile(r"e(?=\s?\^\s?[+-]|-)")
_CHARGE = re.compile(r"\^\s?(?:([+-])([0-9]{1,2})|([0-9]{0,2})([+-]))")
_BARE_CHARGE = re.compile(r"([+-])(?=\s*$|\s+\+|\s*\((?:aq|s|l|g)\))")
_LARGE_CHARGES = frozenset("12")  # for ions of several elements: NH4+ has one charge
_STATE = re.compile(r"\s?\(\s?(aq|s|l|g)\s?\)")
_PLUS = re.compile(r"\s*\+\s*")


# Symbols of elements that are words: NO is No.
_WORDS = frozenset({"no", "he", "in", "as", "at", "be", "am", "pa"})


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class _Species:
    coefficient: str
    formula: str
    charge: str
    state: str


def has_number_inside(text: str) -> bool:
    """Whether a text would be a product of letters with a number among them, like formulas in plain text."""
    return _NUMBER_INSIDE.search(text, 0, MAX_FORMULA_CHARS) is not None


def other_capitals(target: str, answer: str) -> bool:
    """Whether two texts differ only in capitals, and at least one is a formula: CO is not Co."""
    folded = target.casefold()
    return target != answer and folded == answer.casefold() and folded not in _WORDS


def compare_formulas(target: str, answer: str, *, ordered: bool) -> MathOutcome | None:
    """Compare two formulas, reactions or lists of them; None if one is not a formula, or might be mathematics."""
    if max(len(target), len(answer)) > MAX_FORMULA_CHARS or _SPECIES.search(target) is None:
        return None
    if any("\\xrightarrow" not in text and _MATHEMATICS.search(text) for text in (target, answer)):
        return None
    expected = _read(target)
    said = None if expected is None else _read(answer)
    if expected is None or said is None:
        return None
    if not ordered:
        expected, said = sorted(expected), sorted(said)
    if len(expected) == len(said) and all(map(_same, expected, said)):
        return equal("text")
    marks = (_EVIDENCE, _HEAVY, _NUMBER_INSIDE)
    evident = other_capitals(target, answer) or any(mark.search(text) for mark in marks for text in (target, answer))
    return different("text", "another formula") if evident else None


_Item = tuple[tuple[tuple[_Species, ...], ...], str]


def _read(text: str) -> list[_Item] | None:
    """Formulas and reactions, each as its sides and its arrow."""
    text = _LOOSE.sub("", text)
    text = _RAISED.sub(lambda found: "^" + found[0].translate(_SUPERSCRIPTS), text.translate(_SUBSCRIPTS))
    for sign, plain in _SIGNS:
        text = sign.sub(plain, text)
    text = _MARKUP.sub(lambda found: " " if found[0] in ("\\,", "\\;", "\\ ", "\\:") else "", text).replace("~", " ")
    items: list[_Item] = []
    for item in _DIVIDER.split(text.strip(" .")):
        parts = _ARROW.split(item)
        sides = [_side(side.strip()) for side in parts[::2]]
        if len(sides) > 2 or any(side is None for side in sides):
            return None
        items.append((tuple(side for side in sides if side is not None), parts[1] if len(parts) > 1 else ""))
    return items


def _side(text: str) -> tuple[_Species, ...] | None:
    """Species with plus signs between them, in canonical order; None if they are not species."""
    found: list[_Species] = []
    at = 0
    while True:
        species = _species(text, at)
        if species is None:
            return None
        one, at = species
        found.append(one)
        if at == len(text):
            return tuple(sorted(found))
        plus = _PLUS.match(text, at)
        if plus is None:
            return None
        at = plus.end()


def _species(text: str, at: int) -> tuple[_Species, int] | None:
    coefficient = _COEFFICIENT.match(text, at)
    assert coefficient is not None
    at = start = coefficient.end()
    formula: list[str] = []
    elements = counted = False
    if isotope := _ISOTOPE.match(text, at):
        formula.append(f"^{isotope['mass']}_{isotope['low'] or isotope['number'] or ''}")
        at = start = isotope.end()
    if electron := _ELECTRON.match(text, at):
        formula.append("e")
        elements, at = True, electron.end()
    while not _STATE.match(text, at) and (part := _PART.match(text, at)):
        name, count, letter = part.groups()
        if name[0].isalpha():
            if name not in _ELEMENTS:
                return None
            elements = True
        counted = count is not None and text[part.start(2) - 1] != "_" and (not formula or count in _LARGE_CHARGES)
        formula.append(name + (f"_{letter}" if letter else "" if count in (None, "1") else count))
        at = part.end()
    if not elements or at == start:
        return None
    charge = ""
    if raised := _CHARGE.match(text, at):
        size, sign = raised[2] or raised[3] or "", raised[1] or raised[4]
        charge, at = sign + ("" if size == "1" else size), raised.end()
    elif (bare := _BARE_CHARGE.match(text, at)) and not counted:
        charge, at = bare[1], bare.end()  # in Fe3+ and VO2+ it is unknown whether the digit counts atoms
    state = _STATE.match(text, at)
    if state is not None:
        at = state.end()
    written = _Species(coefficient[1] or "1", "".join(formula), charge, state[1] if state else "")
    return written, at


def _same(expected: _Item, said: _Item) -> bool:
    """Whether two formulas or reactions are the same; the states of matter may be missing on one side."""
    if expected[1] != said[1] or [*map(len, expected[0])] != [*map(len, said[0])]:
        return False
    pairs = [pair for sides in zip(expected[0], said[0]) for pair in zip(*sides)]
    return all(_same_species(one, other) for one, other in pairs)


def _same_species(one: _Species, other: _Species) -> bool:
    if one.state and other.state and one.state != other.state:
        return False
    return dataclasses.replace(one, state="") == dataclasses.replace(other, state="")


# Vectors as sums of unit vectors, `2\hat{i} + 3\hat{j}`, and as components, `(2, 3)`.

MAX_NODES = 400
"""Nodes of a sum of unit vectors that is split."""

_MARKED_UNITS = (
    (Symbol("hat i"), Symbol("hat j"), Symbol("hat k")),
    (Symbol("hat x"), Symbol("hat y"), Symbol("hat z")),
)
# Unmarked letters are unit vectors if j is among them: i alone is the imaginary unit.
_PLAIN_UNITS = (Constant("i"), Symbol("j"), Symbol("k"))


def in_components(target: Node, answer: Node) -> tuple[Node, Node] | None:
    """Both as components, if one of them is a sum of unit vectors; otherwise None."""
    for one, other, reverse in ((target, answer, False), (answer, target, True)):
        if not isinstance(one, Sum | Product | Symbol):
            continue
        size = _dimension(other)
        components = _components(one, size) if size in (2, 3) else None
        if components is not None:
            vector = Collection(other.kind if isinstance(other, Collection) else "tuple", components)
            return (other, vector) if reverse else (vector, other)
    return None


def _dimension(node: Node) -> int:
    """How many components a vector has; 0 if it is not a vector."""
    match node:
        case Collection("tuple" | "bracket", items):
            return len(items)
        case Matrix(rows) if len(rows) == 1 or len(rows[0]) == 1:
            return max(len(rows), len(rows[0]))
        case _:
            return 0


def _components(node: Node, size: int) -> tuple[Node, ...] | None:
    parts = walk(node)
    if len(parts) > MAX_NODES:
        return None
    for basis in (*_MARKED_UNITS, _PLAIN_UNITS):
        if not any(unit in parts for unit in basis):
            continue
        if basis is _PLAIN_UNITS and not (Symbol("j") in parts and (Constant("i") in parts or Symbol("k") in parts)):
            continue
        coefficients = _coefficients(node, basis)
        if coefficients is None or any(coefficients[unit] for unit in basis[size:]):
            return None
        return tuple(added(coefficients[unit] or [ZERO]) for unit in basis[:size])
    return None


def _coefficients(node: Node, basis: Sequence[Node]) -> Mapping[Node, list[Node]] | None:
    """The factors of each unit vector, as terms; None if a part has no unit vector, or more than one."""
    if node in basis:
        return {unit: [ONE] if unit == node else [] for unit in basis}
    if isinstance(node, Sum):
        found: dict[Node, list[Node]] = {unit: [] for unit in basis}
        for term in node.terms:
            coefficients = _coefficients(term, basis)
            if coefficients is None:
                return None
            for unit in basis:
                found[unit] += coefficients[unit]
        return found
    if isinstance(node, Product):
        vectors = [factor for factor in node.factors if any(unit in walk(factor) for unit in basis)]
        coefficients = _coefficients(vectors[0], basis) if len(vectors) == 1 else None
        if coefficients is None:
            return None
        scalars = [factor for factor in node.factors if factor is not vectors[0]]
        return {unit: [multiplied([*scalars, term]) for term in terms] for unit, terms in coefficients.items()}
    return None
