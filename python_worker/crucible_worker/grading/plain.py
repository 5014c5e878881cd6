r"""Mathematics in plain text, without delimiters: `x = 2` and `x = 3` of "the solutions are x = 2 and x = 3.".

A formula of a sentence is a run of numbers, letters that are not a word, signs, brackets, names of functions and
commands of LaTeX. Blanks do not end it next to a sign or within brackets. A single number is not a formula, nor is one
with a unit after it or a computation before it: in `5 + 3 = 8` the last value counts.

Work is bounded: at most `MAX_BEFORE` characters before a number and `MAX_BEHIND` after it are read, on its line.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

from crucible_worker.grading.formulas import Formula
from crucible_worker.grading.math.units import LETTER_UNITS, UNITS
from crucible_worker.grading.numbers import UNSIGNED, Numeral

__all__ = ["MAX_BEFORE", "MAX_BEHIND", "formulas_around"]

MAX_BEFORE = 400
"""Characters before a number in which its formula, and those that are joined to it, may begin."""
MAX_BEHIND = 200
"""Characters after a number in which they may end."""

_VALUE = rf"(?>(?:\\?\$)?){UNSIGNED}(?>(?: ?\\?%)?)"
_FUNCTION = r"(?:(?:arc)?(?:sin|cos|tan|cot)h?|sqrt|cbrt|log|ln|exp|pi|mod)(?![^\W\d_])"
_TOKEN = re.compile(
    rf"(?P<arrow>[-=]++>)|(?P<tag></?[A-Za-z_]\w{{1,30}}/?>)|(?P<number>{_VALUE})|(?P<function>{_FUNCTION})|(?P<letters>[^\W\d_]++)"
    r"|(?P<command>\\(?:[A-Za-z]++|[,;:! {}|]))|(?P<opens>[(\[{])|(?P<closes>[)\]}])"
    r"|(?P<sign>[-+*/^_=\u00b1\u2213\u00d7\u00f7\u00b7\u22c5\u2212\u221a\u221b\u2208\u2209\u222a\u2229\u2260\u2264\u2265]"
    r"|<(?!<)(?<!<<)|>(?!>)(?<!>>)|\|(?=\S)|(?<=\S)\||(?<=[0-9]):(?=[0-9]))"
    r"|(?P<mark>(?<=[^\W_)\]}])!|(?<=[A-Za-z'])'|[\u2032\u00b0\u03c0\u221e\u2205\u00b2\u00b3\u00b9\u2070-\u208e])"
    r"|(?P<blank>[ \t\xa0]++)|(?P<comma>[,;])|(?P<other>.)",
    re.DOTALL,
)
_NO_MATHEMATICS = frozenset({"arrow", "tag", "other"})
_UNIT_PART = r"[^\W\d_]{1,12}(?:\^-?[1-9](?![0-9])|[\u00b2\u00b3])?"
_UNIT = re.compile(rf"(?P<blank>\s?){_UNIT_PART}(?:\s?[/*\u00b7]\s?{_UNIT_PART}){{0,2}}(?![\w^(])")
_UNIT_NAME = re.compile(r"[^\W\d_]+")
_POWER = re.compile(r"[\^\u00b2\u00b3]")
_EXCLAIMED = re.compile(r"[$.,%]")  # an exclamation mark after 3.50, $15 or 15% is not a factorial
_SYMBOL = re.compile(r"[A-Za-z\u0370-\u03ff]")
# Letters after a number that are not factors: of ordinals, times of day and counts.
_NO_FACTORS = re.compile(r"st|nd|rd|th|am|pm|pcs?|pts|ish|yo|ies|s", re.IGNORECASE)
_FACTORS = re.compile(r"[a-zA-Z]{2,3}")
# Letters that are a product if a sign is next to them: xy, abc, pq.
_PRODUCT = re.compile(r"[a-d]{2,3}|mn|[p-t]{2,3}|[u-z]{2,3}")
_MAX_COEFFICIENT = 2  # digits: 4m is a product, 400m is a length
_ARTICLES = frozenset({"a", "A", "I"})
_SIGN_AFTER = re.compile(r"\s?[+*/^=<>\u2260\u2264\u2265\u00b1]|-|\s[-\u2212]\s")
_MIXED = re.compile(r"(?<![0-9.,])[0-9]{1,3} [0-9]{1,2}/[0-9]{1,3}")
_MAX_MIXED = 8
_SUBSCRIPT = re.compile(r"_[0-9]+\Z")
_MAX_SUBSCRIPT = 4
_TIMES = re.compile(r"[xX]\s?[$(0-9]")
_MULTIPLIED = re.compile(r"[0-9)%]\s?\Z")
_EDGE = " \t\xa0=*/_,;\u00b7\u22c5\u00d7\u00f7"
_OPEN_END = _EDGE + "+-<>^:\u2212\u00b1\u2264\u2265\u2260\\"
_DASH = re.compile(r"[-+\u2212:]\s+")
_NUMBER = re.compile(rf"[-+\u2212]?{_VALUE}(?:/{_VALUE})?")
_NO_LETTERS = re.compile(rf"(?>(?:{_FUNCTION}|(?<=[0-9%)])\s?[xX](?=\s?[$(0-9])|[^A-Za-z\u0370-\u03bf\u03c1-\u03ff])*)")
_END_OF_CLAUSE = re.compile(r"[\s*_`)]{0,8}(?:[.,;:!?]|\Z)")
_JOINT = re.compile(r"[\s*_`]{0,4}(?:[,;]\s?)?(?:(?:and|or)\s)?(?<=\s)[\s*_`]{0,4}|,")
# A word before a number and one after it, or the end of the line: it is in no formula and no list, like most numbers.
_WORD_BEFORE = re.compile(rf"(?:(?<!\S)(?!(?:and|or|{_FUNCTION})\s)[A-Za-z]{{2,}} |>>)(?>(?:\\?\$)?)\Z")
_WORD_AFTER = re.compile(
    rf"[.?]?[^\S\n]*(?:\n|\Z)| (?!(?:and|or|{_FUNCTION})(?![A-Za-z]))[A-Za-z]{{2,}}"
    r"(?=[ .,;?\n]|\Z)(?! ?[-+*/^=<>\u2260\u2264\u2265\u00b1\u2212])"
)
_MAX_WORD = 24


@dataclasses.dataclass(slots=True)
class _FormulaCandidate:
    """A candidate for a formula, while it is read."""

    start: int
    end: int
    kind: str
    """The end of its last token."""
    brackets: list[int] = dataclasses.field(default_factory=list)
    """The starts of its open brackets."""


def formulas_around(text: str, number: Numeral) -> Sequence[Formula]:
    """The formulas of a line up to a number in it; none if the number stands alone, or in a list of numbers.

    Numbers before it are included, because `crucible_worker.grading.joined` decides what is joined.
    """
    if _stands_alone(text, number):
        return []
    begin = max(text.rfind("\n", 0, number.start) + 1, number.start - MAX_BEFORE)
    last_digit = number.start + len(number.text) - 1
    end = text.find("\n", last_digit)
    end = min(len(text) if end < 0 else end, last_digit + MAX_BEHIND)
    formulas: list[Formula] = []
    held = -1
    for start, stop in _runs(text[begin:end]):
        formula = _trimmed(text, begin + start, begin + stop)
        if formula is None:
            continue
        if held >= 0 and not _is_joined(text, formulas[-1], formula, end):
            break
        formulas.append(formula)
        if begin + start <= last_digit < begin + stop:
            held = len(formulas) - 1
    if held < 0 or not _is_number(formulas[held].content) or held < len(formulas) - 1:
        return formulas
    before = formulas[held - 1] if held else None
    joined = before and not _is_number(before.content) and _is_joined(text, before, formulas[held], end)
    return formulas if joined else []


def _stands_alone(text: str, number: Numeral) -> bool:
    """Whether there are words on both sides of a number, or its line ends: then it is in no formula."""
    return (
        number.text[0].isdigit()
        and number.text.count("/") <= 1
        and _WORD_BEFORE.search(text, max(0, number.start - _MAX_WORD), number.start) is not None
        and _WORD_AFTER.match(text, number.start + len(number.text)) is not None
    )


def _is_joined(text: str, before: Formula, formula: Formula, end: int) -> bool:
    """Whether only a comma, "and" or "or" is between two formulas, and the clause ends after them."""
    joint = _JOINT.fullmatch(text, before.end, formula.start)
    return joint is not None and _END_OF_CLAUSE.match(text, formula.end, end) is not None


def _is_number(content: str) -> bool:
    return _NUMBER.fullmatch(content) is not None


def _trimmed(text: str, start: int, end: int) -> Formula | None:
    """A run without foreign text at its edges; for a computation, its value; None if nothing is left."""
    content = text[start:end]
    sides, equals, value = content.rpartition("=")
    if equals and _is_number(value.strip(_EDGE)) and _NO_LETTERS.fullmatch(sides):
        start += len(sides) + 1
        content = value
    bare = content.lstrip(_EDGE)
    if dash := _DASH.match(bare):
        bare = bare[dash.end() :]
    start += len(content) - len(bare)
    bare = bare.rstrip(_OPEN_END)
    if not any(map(str.isalnum, bare)):
        return None
    return Formula(start, start + len(bare), bare, 0)


def _runs(line: str) -> Iterator[tuple[int, int]]:
    """Where runs of mathematics begin and end; a bracket that is not closed, or was not opened, ends one."""
    run: _FormulaCandidate | None = None
    for kind, start, end in _tokens(line):
        if kind == "comma" and run is not None and run.brackets:
            run.kind, run.end = kind, end
            continue
        inner = run is not None and (kind != "closes" or run.brackets) and _goes_on(line, run, kind, start, end)
        if kind in ("word", "comma") or not inner:
            if run is not None:
                yield from _closed(run)
            run = None
        if kind in ("word", "comma") or (kind == "closes" and run is None):
            continue
        if run is None:
            run = _FormulaCandidate(start, end, kind)
        run.kind, run.end = kind, end
        if kind == "opens":
            run.brackets.append(start)
        elif kind == "closes":
            run.brackets.pop()
    if run is not None:
        yield from _closed(run)


def _closed(run: _FormulaCandidate) -> Iterator[tuple[int, int]]:
    """A run, or its parts between the brackets that are still open."""
    start = run.start
    for bracket in run.brackets:
        if bracket > start:
            yield start, bracket
        start = bracket + 1
    if run.end > start:
        yield start, run.end


def _goes_on(line: str, run: _FormulaCandidate, kind: str, start: int, end: int) -> bool:
    """Whether a token belongs to the run before it."""
    if run.kind == "power":
        return kind in ("sign", "closes")
    if run.end == start or kind in ("sign", "closes", "power"):
        return True
    if run.kind in ("sign", "function", "opens", "command", "comma") or kind == "function":
        return True
    if kind == "opens":
        return run.kind in ("number", "closes", "mark")
    if run.kind == "number" and kind == "number":
        return _SUBSCRIPT.search(line, max(run.start, run.end - _MAX_SUBSCRIPT), run.end) is not None  # log_2 5
    return run.kind == "number" and kind == "letter" and line[start] not in LETTER_UNITS


def _tokens(line: str) -> Iterator[tuple[str, int, int]]:
    """The tokens of a line: kind, start and end."""
    at, before = 0, ""
    while at < len(line):
        token = _TOKEN.match(line, at)
        assert token is not None
        kind, end = token.lastgroup or "", token.end()
        if kind == "number" and (mixed := _MIXED.match(line, at, at + _MAX_MIXED)):
            end = mixed.end()
        elif kind == "letters":
            kind = _kind_of(line, at, end, before)
        elif kind == "mark" and line[at] == "!" and _EXCLAIMED.search(before):
            kind = "word"
        if kind != "blank":
            yield ("word" if kind in _NO_MATHEMATICS else kind), at, end
        before = line[at:end]
        at = end
        if kind == "number" and (unit := _UNIT.match(line, at)) and _is_unit(unit, before):
            at = unit.end()
            yield ("power" if _POWER.search(unit[0]) else "word"), unit.start(), at
            before = ""


def _is_unit(unit: re.Match[str], number: str) -> bool:
    """Whether the letters after a number are its unit; a letter directly after a short number is a factor of it."""
    names = _UNIT_NAME.findall(unit[0])
    if not unit["blank"] and len(names) == len(names[0]) == 1 and sum(map(str.isdigit, number)) <= _MAX_COEFFICIENT:
        return False
    return all(name in UNITS or name in LETTER_UNITS for name in names)


def _kind_of(line: str, start: int, end: int, before: str) -> str:
    """Whether letters are a word, a symbol, a product of symbols, or the sign of a product, as in 3 x 4.

    Args:
        line: the line with the letters.
        start: their start.
        end: their end.
        before: the token before them; a blank if there is one.
    """
    letters = line[start:end]
    if before in ("'", "\u2019") or not all(map(_SYMBOL.match, letters)):
        return "word"
    behind_number = before[-1:].isdigit()
    if len(letters) > 1:
        if behind_number and _FACTORS.fullmatch(letters) and letters not in UNITS:
            return "word" if _NO_FACTORS.fullmatch(letters) else "letter"
        signed = before in ("+", "*", "/", "^", "=") or _SIGN_AFTER.match(line, end)
        return "letter" if signed and _PRODUCT.fullmatch(letters) else "word"
    if _TIMES.match(line, start) and _MULTIPLIED.search(line, max(0, start - 2), start):
        return "sign"
    if letters in _ARTICLES and not (before and before[-1] in "0123456789)^*/+-=([{"):
        return "letter" if _SIGN_AFTER.match(line, end) else "word"
    return "letter"
