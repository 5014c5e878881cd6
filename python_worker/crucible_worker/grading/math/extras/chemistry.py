r"""Chemical formulas and reactions: `H2O`, `H_2O` and `\ce{H2O}` are the same.

A formula is compared as written: its elements in their order, with their numbers, and its charge. The atoms of a
species are not added up: `CH3CH2OH` is not `C2H6O`.
"""

# ruff: noqa: RUF001 - this module is about signs that look like others.

from __future__ import annotations

import dataclasses
import re

from crucible_worker.grading.math.outcome import MathOutcome, different, equal
from crucible_worker.grading.math.tokens import spelled

__all__ = ["MAX_FORMULA_CHARS", "compare_formulas", "has_number_inside", "other_capitals"]

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
