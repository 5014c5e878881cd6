"""The formulas of a text, between delimiters or in plain text, and which of them is its answer.

Both are read from the end of a text on, with bounded work.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence

from crucible_worker.grading.math.tokens import LETTER_UNITS, UNITS
from crucible_worker.grading.numbers import UNSIGNED, Numeral
from crucible_worker.grading.phrase import MAX_WHOLE_CHARS, first_row, has_words, of_rows, phrase, result, side
from crucible_worker.grading.qualification import (
    MAX_CONDITION,
    MAX_JOINED,
    MAX_RULED_OUT,
    NAME,
    is_condition,
    is_said_of_extreme,
    kind_of,
    link,
    named,
    ruled_out_in_line,
    says_where,
    together,
    written,
)

__all__ = [
    "MAX_BEFORE",
    "MAX_BEHIND",
    "MAX_FORMULAS",
    "Formula",
    "chosen",
    "formulas_around",
    "last_formulas",
    "listed_below",
]


# Formulas between `$`, `$$`, `\(` and `\)`, `\[` and `\]`, from the end of a text on: which of them is its answer.
#
# It is the last one, with those that it is joined to, as `crucible_worker.grading.qualification` says; but a condition
# of a formula is not the answer ("5, attained at x = 2"), nor is a definition of its letters ("where k is ...").

MAX_FORMULAS = 2 * MAX_JOINED
"""Formulas at the end that are examined."""

_FEW_FORMULAS = 12  # usually enough
_DELIMITER = re.compile(r"[)\](\[]\\|\$\$?(?!\\)")
_NAME_OF = re.compile(rf"({NAME})\s*&?\s*=")
_NAME = re.compile(r"\\?[A-Za-z]+(?:_\w)?(?:\([a-z]\))?")
_IS = re.compile(
    r"\s?(?:(?:must|can|could|should|will|would|has to|have to) )?(?:be|is|are|was|were|equals?)"
    r"(?: (?:either|thus|therefore))?\s+",
    re.IGNORECASE,
)
_DIGIT = re.compile(r"[-+\u2212(\[{\\$]{0,3}[0-9]")
# Words before formulas that are premises of the sentence: "for $x = 1$, $y = 2$".
_LEADS_IN = re.compile(
    r"(?<!\w)(?:with|for|when|if|at|since|because|given|let|letting|using|substituting|setting|where|as|from|while)\s*\Z",
    re.IGNORECASE,
)
_COPULA = re.compile(
    r"(?:(?<!\w)(?:is|are|be|was|equals?|equal to|exactly|only|just)|[:=])"
    r"(?:\s+(?:therefore|thus|hence|then|also|always|indeed|simply|again)){0,2}[\s*_]*\Z",
    re.IGNORECASE,
)
_GIVES = re.compile(
    r"(?<!\w)(?:gets?|gives?|giving|obtain|find|have|has|yields?|becomes?|equals?|value|answer|result|leaves"
    r"|remainder(?:\s+of)?)\s+\Z",
    re.IGNORECASE,
)
_FUNCTION_VALUE = re.compile(r"[A-Za-z](?:_\w)?'{0,2}\([^()=]{1,20}\)\s*&?\s*=")
_VANISHES = re.compile(r"(?:[A-Za-z](?:_\w)?'{0,2}\([a-z]\)\s*=\s*)?0")
_MAX_LEAD = 20
# With one of these between two formulas, the later one is not a condition of the earlier.
_CONCLUDES = re.compile(
    r"[.?!](?:\s|\Z)|\n\s*\n|(?<!\w)(?:so|thus|hence|therefore|then|we|gives?|answer|result|implies|conclude)(?!\w)",
    re.IGNORECASE,
)
# A number in plain text that is joined to a formula next to it.
_PLAIN = r"(?:[A-Za-z]\s?=\s?)?[-+\u2212]?[0-9][0-9,]{0,20}(?<![,])(?:\.[0-9]{1,20})?(?:/[0-9]{1,9})?%?"
_JOINING = r"(?:,\s(?:and\s|or\s)?|;\s|\s(?:and|or)\s)"
_PLAIN_NUMBER = re.compile(rf"(?<![\w.,$\\^=+*/-]){_PLAIN}")
_PLAIN_BEFORE = re.compile(rf"(?<![\w.,$\\^=+*/-])(?<![=+*/^-]\s)(?P<item>{_PLAIN})(?P<joint>{_JOINING})\Z")
_PLAIN_AFTER = re.compile(
    rf"{_JOINING}(?P<item>{_PLAIN})(?=[.;!?]?\s*(?:\Z|\n)|[.;!?]\s|{_JOINING}(?:\$|\\[(\[]|[0-9]))"
)
_LISTS = re.compile(r"(?:\b(?:are|were|be|either)|:)\s+\Z", re.IGNORECASE)
_MAX_PLAIN = 60
_LISTED_NUMBER = re.compile(r"[-+\u2212]?[0-9][0-9,]{0,40}(?:\.[0-9]{1,40})?(?:/[0-9]{1,20})?")
_FENCE = re.compile(r"\$\$?|\\[()\[\]]|\A\s*(?:[-*+\u2022]|\(?[a-z0-9][.)])\s+")
_AROUND = " \t\r*_`,;.:"
_AND = re.compile(r"(?:and|or)\s+")
_MAX_LIST_CHARS = 2 * MAX_JOINED * MAX_WHOLE_CHARS
_MAX_CLAUSE = 8  # formulas that say what letters are
# Definitions of letters, which are not answers: "with $C$ an arbitrary constant", "($a$ and $b$ are integers)".
_DESCRIBED = re.compile(
    rf"(?:(?:,|,?\sand)\s\$?\\?{NAME}\$?){{0,4}},?\s(?:(?:is|are|being|denotes?|both)\s)?"
    r"(?:(?:an?|any|some|the|arbitrary|real|complex|positive|negative|non-?negative|non-?zero|fixed|free|given)\s){0,4}"
    r"(?:constants?(?:\sof\sintegration)?|integers?|reals?|parameters?|numbers?|natural)\b",
    re.IGNORECASE,
)
_COLON = re.compile(r":[\s*_]*\Z")
_ARE = re.compile(r"\b(?:are|were)\s+\Z", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, slots=True)
class Formula:
    """A formula of a text."""

    start: int
    """Where it begins, with its delimiter if it has one."""
    end: int
    """Where it ends, with its delimiter."""
    content: str
    """Its content."""
    steps: int = 0
    """Characters and marks that were examined until it was found."""


def last_formulas(text: str) -> tuple[str, int]:
    """The answer in the last formulas of a text, empty without one; and the work done."""
    answer, steps, certain = _answer_of(text, _FEW_FORMULAS)
    if not certain:
        answer, more, _ = _answer_of(text, MAX_FORMULAS)
        steps += more
    return answer, steps


def _answer_of(text: str, count: int) -> tuple[str, int, bool]:
    """The answer in so many last formulas, the work done, and whether earlier formulas cannot change it."""
    formulas = list(itertools.islice(_formulas(text), count))[::-1]
    steps, all_seen = (formulas[0].steps if formulas else 2 * len(text)), len(formulas) < count
    answer, certain = chosen(text, _with_plain(text, formulas))
    return answer, steps, certain or all_seen


def chosen(text: str, formulas: list[Formula]) -> tuple[str, bool]:
    """The answer in the last of some formulas, empty if there is none, and whether it does not depend on the first.

    Those that the text rules out are dropped from the list.
    """
    _drop_described(text, formulas)
    _drop_ruled_out(text, formulas)
    if not formulas:
        return "", False
    last = _last_of_answer(text, formulas)
    first = _first_joined(text, formulas, last)
    if first < last and ruled_out_in_line(text, formulas[first].start, formulas[last].end):  # "not $a$, $b$"
        del formulas[first:]
        if not formulas:
            return "", False
        last = _last_of_answer(text, formulas)
        first = _first_joined(text, formulas, last)
    if first == last:
        return _value_of_name(text, formulas[last]) or result(formulas[last].content), first > 0
    links = [_link(text, formulas, at) or "" for at in range(first, last)]
    return written([side(formula.content) for formula in formulas[first : last + 1]], links), first > 0


def _with_plain(text: str, formulas: Sequence[Formula]) -> list[Formula]:
    """Formulas with the numbers in plain text between and next to them that are joined to them."""
    found: list[Formula] = []
    for formula in formulas:
        found += _plain_before(text, found[-1].end if found else 0, formula)
        found.append(formula)
        while len(found) < 2 * MAX_FORMULAS and (
            behind := _PLAIN_AFTER.match(text, found[-1].end, found[-1].end + _MAX_PLAIN)
        ):
            found.append(Formula(*behind.span("item"), behind["item"], formula.steps))
    return found


def _plain_before(text: str, begin: int, formula: Formula) -> list[Formula]:
    """The numbers of a list that ends with a formula; with commas alone it must be announced."""
    found: list[Formula] = []
    start, in_words = formula.start, False
    while len(found) < MAX_JOINED and (before := _PLAIN_BEFORE.search(text, max(begin, start - _MAX_PLAIN), start)):
        found.append(Formula(*before.span("item"), before["item"], formula.steps))
        in_words = in_words or before["joint"].strip(" ,;").isalpha()
        start = before.start()
    announced = in_words or _LISTS.search(text, max(0, start - _MAX_LEAD), start)
    return found[::-1] if announced else []


def _drop_described(text: str, formulas: list[Formula]) -> None:
    """Drop the last formulas that are letters of one before them, if their sentence defines these letters."""
    at = len(formulas) - 1
    while at > 0 and _NAME.fullmatch(formulas[at].content) and _DESCRIBED.match(text, formulas[at].end):
        if _CONCLUDES.search(text, formulas[at - 1].end, formulas[at].start):
            return
        del formulas[at:]
        at -= 1


def _drop_ruled_out(text: str, formulas: list[Formula]) -> None:
    """Drop the last formulas as far as the text rules them out: "$5$ is not the answer"."""
    wrong: set[str] = set()
    while formulas and len(wrong) < MAX_RULED_OUT:
        last = formulas[-1]
        if ruled_out_in_line(text, last.start, last.end):
            wrong.add(last.content)
        elif last.content not in wrong:
            return
        formulas.pop()


def _value_of_name(text: str, formula: Formula) -> str:
    """The value that plain text gives a name: 5 of "the value of $x$ is 5."; empty without one."""
    if not _NAME.fullmatch(formula.content):
        return ""
    says = _IS.match(text, formula.end)
    value = phrase(text[says.end() : says.end() + MAX_WHOLE_CHARS]) if says else ""
    return value if _DIGIT.match(value) and not has_words(value) else ""


def listed_below(text: str) -> str:
    """The answer at the start of a text that is a list of formulas, each on a separate line; empty for any other."""
    written_lines = text[:_MAX_LIST_CHARS].splitlines()
    if len(written_lines) < 2:
        return ""
    if numbers := _numbers_below(text):
        return written(numbers, [""] * (len(numbers) - 1))
    lines: list[str] = []
    for line in written_lines:
        bare = _FENCE.sub("", line).strip(_AROUND)
        if not bare:
            continue
        if len(bare) > MAX_WHOLE_CHARS or has_words(bare):
            break
        if (bare == line.strip(_AROUND) and not named(bare)) or len(lines) == MAX_JOINED:
            return ""  # neither a formula nor an item
        lines.append(_AND.sub("", bare))
    if len(lines) < 2 or first_row(lines, introduced=True) > 0:
        return ""
    return of_rows(lines, introduced=True)


def _numbers_below(text: str) -> list[str]:
    """The numbers of a text that has only numbers, one per line, without empty lines; none for other texts."""
    if len(text) > _MAX_LIST_CHARS:
        return []
    lines = [line.strip(_AROUND) for line in text.strip().splitlines()]
    return lines if 1 < len(lines) <= MAX_JOINED and all(map(_LISTED_NUMBER.fullmatch, lines)) else []


def _link(text: str, formulas: Sequence[Formula], at: int) -> str | None:
    """The joint between a formula and the next one."""
    how = link(text[formulas[at].end : formulas[at + 1].start])
    return how if how is not None and together(formulas[at].content, formulas[at + 1].content, how) else None


def _first_joined(text: str, formulas: Sequence[Formula], last: int) -> int:
    """The first of the formulas that form one answer with a given one, which is the last."""
    first = _first_linked(text, formulas, last)
    if _LEADS_IN.search(text[max(0, formulas[first].start - _MAX_LEAD) : formulas[first].start]):
        # "for $x = 1$, $y = 2$": the answer begins after the last comma.
        commas = [at for at in range(first, last) if _link(text, formulas, at) == ","]
        return commas[-1] + 1 if commas else first
    if first == last:
        return _first_named(text, formulas, last)
    return first


def _first_linked(text: str, formulas: Sequence[Formula], last: int) -> int:
    """The first of the formulas that are joined to a given one."""
    first = last
    while first > 0 and last - first < MAX_JOINED - 1 and _link(text, formulas, first - 1) is not None:
        first -= 1
    return first


def _first_named(text: str, formulas: Sequence[Formula], last: int) -> int:
    """The first of formulas on successive lines, values or equations of several names, if they are announced.

    Values without a name are announced by a colon or a verb, or nothing precedes them.
    """
    first, of_names = last, named(formulas[last].content)
    if not of_names and kind_of(formulas[last].content) != "value":
        return last
    while first > 0 and last - first < MAX_JOINED - 1:
        before = formulas[first - 1].content
        if not (named(before) if of_names else kind_of(before) == "value"):
            break
        if link(text[formulas[first - 1].end : formulas[first].start]) != "":
            break
        first -= 1
    lead = text[formulas[first - 1].end if first else 0 : formulas[first].start]
    if of_names:
        return first if first == 0 or _COLON.search(lead) else last
    announced = _COLON.search(lead) or _ARE.search(lead) or (first == 0 and not lead.strip(_AROUND))
    return first if announced else last


def _last_of_answer(text: str, formulas: list[Formula]) -> int:
    """The last formula that is not a condition of an earlier one; a number in plain text is added to the list."""
    last = len(formulas) - 1
    for at in range(last - 1, max(-1, last - 1 - _MAX_CLAUSE), -1):
        between = text[formulas[at].end : formulas[at + 1].start]
        if _CONCLUDES.search(between):
            break
        if says_where(between) and ("," in between or _is_stated(text, formulas[at])):
            return at
    first = _first_linked(text, formulas, last)
    begin = formulas[first - 1].end if first else 0
    if plain := _plain_with_condition(text, begin, formulas[first]):
        formulas.insert(first, plain)
        return first
    return first - 1 if first > 0 and _has_condition(text, formulas, first - 1) else last


def _plain_with_condition(text: str, begin: int, condition: Formula) -> Formula | None:
    """The number in plain text that a formula is the condition of: "the minimum is 5, attained at $x = 2$"."""
    numbers = list(_PLAIN_NUMBER.finditer(text, max(begin, condition.start - MAX_CONDITION), condition.start))
    if not numbers or not is_condition(numbers[-1][0], text[numbers[-1].end() : condition.start], condition.content):
        return None
    number = Formula(*numbers[-1].span(), numbers[-1][0], condition.steps)
    return number if _is_stated(text, number) or is_said_of_extreme(text, number.start, number.end) else None


def _has_condition(text: str, formulas: Sequence[Formula], at: int) -> bool:
    """Whether the formula after another one is its condition, and the other one is a stated value."""
    between = text[formulas[at].end : formulas[at + 1].start]
    if not is_condition(formulas[at].content, between, formulas[at + 1].content):
        return False
    before = formulas[_first_joined(text, formulas, at)]
    if _is_stated(text, before):
        return True
    if _VANISHES.fullmatch(before.content):
        return False  # the zero of a function is the question itself
    if _NAME_OF.match(before.content) or _FUNCTION_VALUE.match(before.content):
        return True
    if _NAME.fullmatch(before.content) or kind_of(before.content) != "value":
        return False
    given = _GIVES.search(text, max(0, before.start - _MAX_LEAD), before.start) is not None
    return given or is_said_of_extreme(text, before.start, before.end)


def _is_stated(text: str, formula: Formula) -> bool:
    """Whether a formula is a stated value: "the minimum is $5$"."""
    return _COPULA.search(text[max(0, formula.start - _MAX_LEAD) : formula.start]) is not None


def _formulas(text: str) -> Iterator[Formula]:
    """The formulas from the last one on, empty ones left out."""
    size = len(text)
    ends, end, outer = "", 0, 0  # the closing delimiter whose opening one is sought, and where its formula ends
    marks = 0
    for mark in _DELIMITER.finditer(text[::-1]):
        marks += 1
        start, token = size - mark.end(), mark[0][::-1]
        behind = size - mark.start()
        if token in ("\\)", "\\]"):
            ends, end, outer = token, start, behind
            continue
        opens = ends == {"\\(": "\\)", "\\[": "\\]"}.get(token)
        if opens or (ends == token and _hugs(text, behind, end)):
            if content := text[behind:end].strip():
                yield Formula(start, outer, content, 2 * mark.end() + marks)
            ends = ""
        elif token.startswith("$") and ends in ("", "$", "$$"):
            ends, end, outer = token, start, behind


def _hugs(text: str, start: int, end: int) -> bool:
    """Whether the text between two dollars is math, not prose between prices: "$5 and $6" has a blank at one end.

    Math has blanks at both ends or at none, and no digit directly after it.
    """
    behind = text[end + 1 : end + 2]
    return text[start : start + 1].isspace() == text[end - 1 : end].isspace() and not behind.isdigit()


# Mathematics in plain text, without delimiters: `x = 2` and `x = 3` of "the solutions are x = 2 and x = 3.".
#
# A formula of a sentence is a run of numbers, letters that are not a word, signs, brackets, names of functions and
# commands of LaTeX. Blanks do not end it next to a sign or within brackets. A single number is not a formula, nor is
# one with a unit after it or a computation before it: in `5 + 3 = 8` the last value counts.
#
# Work is bounded: at most `MAX_BEFORE` characters before a number and `MAX_BEHIND` after it are read, on its line.

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

    Numbers before it are included, because `crucible_worker.grading.qualification` decides what is joined.
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
