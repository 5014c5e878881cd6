r"""Where in a text the answer is, when there is more: in boxes, behind a marker, in the last formula."""

from __future__ import annotations

import dataclasses
import itertools
import re

from crucible_worker.grading.extract import extract
from crucible_worker.grading.numbers import last_numbers

__all__ = ["MAX_BOXES", "as_list", "boxed", "choice", "has_words", "last_number", "marked", "with_decimal_point"]

MAX_BOXES = 32
"""Boxes that are one answer together: the last ones of a text."""

_BRACE = re.compile(r"(?P<box>\\\\?(?:boxed|fbox) ?\{)|\\[{}]|[{}]")
_DECIMAL_COMMA = re.compile(r"[^0-9,]*+(?:0(?=,)|[0-9]++(?=,(?![0-9]{3}(?![0-9])))),([0-9]++)[^0-9,]*+")
_THOUSANDS = re.compile(r"\$?-?[1-9][0-9]{0,2}(?:,[0-9]{3})+\$?")
_CHOICE = re.compile(
    r"(?:\\\w+\{ ?\(?(?P<marked>[A-J])(?:\)|[.:]) ?\}|(?:\\\w+\{)?\(?(?P<plain>[A-J])(?:\)\}?|\}?[.:])(?=\\ |\s|~))"
    r"(?>(?:\\ |\s|~)*)(?=[\w\\$(-])"
)
_WORD = re.compile(r"(?<![\\\w])[^\W\d_]{2,}+(?!\w)")
_MAX_BETWEEN = 60
_MARKUP = re.compile(r"\\(?:text|mathrm|textrm|quad|qquad|[()\[\],;:! ])|[${}\s]|\\n")
# Between the boxes of one answer: nothing, or what ends with a comma or "and" and may go on with a name: `, y = `.
_BETWEEN = re.compile(r"\s*(?:[^.]*(?:[,;&]|\b(?:and|or)\b))?\s*(?:[A-Za-z]{1,2}(?:_\w+)?\s*=\s*)?")


def boxed(text: str) -> str | None:
    r"""What is in the last `\boxed{}`, or in the last ones where they follow each other as a list; None without one."""
    if "boxed" not in text and "fbox" not in text:
        return None
    inner: list[str] = []
    following: int | None = None
    for box in reversed(_boxes(text)):
        if following is not None and not _joined(text[box.end : following]):
            break
        inner.append(text[box.inside : box.end - 1])
        following = box.start
        if len(inner) == MAX_BOXES:
            break
    if not inner:
        return None
    return inner[0] if len(inner) == 1 else ", ".join(reversed(inner))


@dataclasses.dataclass(frozen=True, slots=True)
class _Box:
    start: int
    inside: int
    end: int


def _boxes(text: str) -> list[_Box]:
    """Boxes that are in no other one. Where none is closed, the last one reaches to the end of its line."""
    boxes: list[_Box] = []
    opened: list[re.Match[str]] = []
    for match in _BRACE.finditer(text):
        if match[0] == "}" and opened:
            opening = opened.pop()
            if opening["box"]:
                while boxes and boxes[-1].start > opening.start():
                    boxes.pop()
                boxes.append(_Box(opening.start(), opening.end(), match.end()))
        elif match[0].endswith("{") and match[0] != "\\{":
            opened.append(match)
    unclosed = [opening for opening in opened if opening["box"]]
    if boxes or not unclosed:
        return boxes
    line_end = text.find("\n", unclosed[-1].end())
    return [_Box(unclosed[-1].start(), unclosed[-1].end(), (len(text) if line_end < 0 else line_end) + 1)]


def _joined(between: str) -> bool:
    if len(between) > _MAX_BETWEEN:
        return False
    return _BETWEEN.fullmatch(_MARKUP.sub(" ", between)) is not None


def marked(text: str, *, numbers: bool = True) -> str | None:
    """What a text in words says is the answer: behind a marker, in the last formula, or the last number.

    Without `numbers` only what is behind a marker counts: a target in words is not a number that it mentions.
    """
    extraction = extract(text)
    if not numbers:
        return extraction.answer if extraction.how == "marker" else None
    if extraction.answer != text and extraction.how:
        return extraction.answer
    return None


def has_words(text: str) -> bool:
    """Whether this is a sentence, however short: two words at least."""
    return len(list(itertools.islice(_WORD.finditer(text), 2))) == 2


def last_number(text: str) -> str | None:
    """The last number of a text."""
    numbers = last_numbers(text, 1)
    return numbers[-1].text if numbers else None


def with_decimal_point(text: str, *, decimals: int) -> str | None:
    """A text whose only numeral has a decimal comma, which cannot divide thousands, with a point instead; else None.

    It has at least so many decimals: 1,2 may well be a list.
    """
    match = _DECIMAL_COMMA.fullmatch(text)
    return text.replace(",", ".") if match is not None and len(match[1]) >= decimals else None


def as_list(text: str) -> str | None:
    """A numeral with thousands as the list that it may be, too: 70,110; None for other texts."""
    return text.replace(",", ", ") if _THOUSANDS.fullmatch(text) else None


def choice(text: str) -> tuple[str, str] | None:
    """The letter of a choice and its text, where both are there: "(B) 12", "B. 12"."""
    match = _CHOICE.match(text)
    return (match["marked"] or match["plain"], text[match.end() :]) if match is not None else None
