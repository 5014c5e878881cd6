r"""Formulas between `$`, `$$`, `\(` and `\)`, `\[` and `\]`, from the end of a text on: which of them is its answer.

It is the last one, with those that it is joined to, as `crucible_worker.grading.joined` says; but a condition of
a formula is not the answer ("5, attained at x = 2"), nor is a definition of its letters ("where k is ...").
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence

from crucible_worker.grading.condition import MAX_CONDITION, is_condition, is_said_of_extreme, says_where
from crucible_worker.grading.joined import MAX_JOINED, NAME, kind_of, link, named, together, written
from crucible_worker.grading.phrase import MAX_WHOLE_CHARS, has_words, phrase
from crucible_worker.grading.rejection import MAX_RULED_OUT, ruled_out_in_line
from crucible_worker.grading.results import first_row, of_rows, result, side

__all__ = ["MAX_FORMULAS", "Formula", "chosen", "last_formulas", "listed_below", "with_exponents_in_text"]

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
_NUMBER = re.compile(r"[-+\u2212]?[0-9][0-9,]{0,40}(?:\.[0-9]{1,40})?(?:/[0-9]{1,20})?")
_FENCE = re.compile(r"\$\$?|\\[()\[\]]|\A\s*(?:[-*+\u2022]|\(?[a-z0-9][.)])\s+")
_AROUND = " \t\r*_`,;.:"
_AND = re.compile(r"(?:and|or)\s+")
_MAX_LIST_CHARS = 2 * MAX_JOINED * MAX_WHOLE_CHARS
# After a unit or a number.
_EXPONENT = re.compile(
    r"(?<=[A-Za-z0-9])(?:\$|\\\()(\^\s?(?:\{\s?(?:-?[0-9]|\\circ|\\prime|st|nd|rd|th)\s?\}|[0-9]|\\circ))\s?(?:\$|\\\))"
)
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


def with_exponents_in_text(text: str) -> str:
    """A text with its exponents in plain text, so that they are not formulas: `18 cm^2` for `18 cm$^2$`."""
    return _EXPONENT.sub(r"\1 ", text) if "$^" in text or "\\(^" in text else text


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
    return lines if 1 < len(lines) <= MAX_JOINED and all(map(_NUMBER.fullmatch, lines)) else []


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
