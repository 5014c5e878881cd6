r"""The position of an answer in a longer text: in boxes, after a marker, in the last formula."""

from __future__ import annotations

import functools
import itertools
import re

from crucible_worker.grading import enclosed as enclosed_answers
from crucible_worker.grading.enclosed import json_answer, without_retracted
from crucible_worker.grading.extract import Extraction, extract
from crucible_worker.grading.math.units import is_unit
from crucible_worker.grading.numbers import last_numerals
from crucible_worker.grading.qualification import is_retracted, rejected

__all__ = ["as_list", "boxed", "choice", "enclosed", "has_words", "last_amount", "marked", "with_decimal_point"]

# In brackets a comma divides: (2,5) is a pair.
_NO_BRACKET = r"(?<![(\[])(?<![(\[]\s)(?<!\\\{)(?<!\\\{\s)"
_DECIMAL_COMMA = re.compile(rf"[^0-9,]*+{_NO_BRACKET}(?:0(?=,)|[0-9]++(?=,(?![0-9]{{3}}(?![0-9])))),([0-9]++)[^0-9,]*+")
_THOUSANDS = re.compile(r"\$?-?[1-9][0-9]{0,2}(?:,[0-9]{3})+\$?")
_CHOICE = re.compile(
    r"(?:\\\w+\{ ?\(?(?P<marked>[A-J])(?:\)|[.:]) ?\}|(?:\\\w+\{)?\(?(?P<plain>[A-J])(?:\)\}?|\}?[.:])(?=\\ |\s|~))"
    r"(?>(?:\\ |\s|~)*)(?=[\w\\$(-])"
)
# A choice after its text: `12 \text{ (B)}`, `12 \text{ (choice B)}`, and `12 (B)` of a numeral.
_NAMED = r"(?:[Cc]hoice|[Oo]ption)\s\(?(?P<{}>[A-J])\)?"
_CHOICE_AFTER = re.compile(
    r"(?:\\q?quad|\\[ ,;:!]|[\s~,])*\\text(?:bf|rm|it)?\{\s?"
    rf"(?:\((?P<marked>[A-J])\)|\(?{_NAMED.format('named')}\)?)\s?\}}\.?\Z"
    rf"|(?<=[0-9])(?:\s|\\ |~|\\q?quad)+\((?:(?P<plain>[A-J])|{_NAMED.format('called')})\)\.?\Z"
)
_EXTRACTED_LATELY = 4
_CHOICE_ENDS = (")", "}", ").", "}.")
_MAX_CHOICE_AFTER = 40
_NOUNS = ("hoice", "ption")
# Not the text of a choice: a single sign, or a bound of something that follows.
_UNFINISHED = re.compile(r"\A\W+\Z|(?<![A-Za-z])(?:than|least|most|of|from)[\s}]{0,4}\Z", re.IGNORECASE)
_MAX_AFTER_LETTER = 4  # characters from the bracket of that choice to the end
_NUMERAL = re.compile(r"-?[0-9][0-9.,/]*+")
_UNIT_AFTER = re.compile(r"(?: |~|\\[ ,;])?(?:\\(?:text|mathrm)\{[ ~]{0,3})?(?P<unit>[A-Za-z]{2,20})(?![A-Za-z])")
# The further words of a unit.
_MORE_OF_UNIT = re.compile(r"\}?\s?(?:[\^/*\u00b2\u00b3]|\\cdot|(?:per|an|a|squared|cubed|each|and)(?![A-Za-z]))")
_WORD = re.compile(r"(?<![\\\w])[^\W\d_]{2,}+(?!\w)")


def boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{}`, or of the last ones that are joined; None without one."""
    if "boxed" not in text and "fbox" not in text:
        return None
    if is_retracted(text):
        text = without_retracted(text).text
    return enclosed_answers.boxed(text)[0]


def enclosed(text: str) -> str | None:
    """The content of answer tags or of a JSON object's answer, empty if there is none; None for other texts."""
    if not ("<" in text or "{" in text) or "answer" not in text.casefold():
        return None
    answer, _ = json_answer(text)
    if answer is not None:
        return answer
    extraction = _extracted_lately(text)
    return extraction.answer if extraction.how == "tag" else None


def marked(text: str, *, numbers: bool = True) -> str | None:
    """The answer in a text of words: after a marker, in the last formula, or the last number.

    Without `numbers` only the text after a marker counts: a target in words is not a number that it mentions.
    """
    extraction = _extracted_lately(text)
    if not numbers:
        return extraction.answer if extraction.how == "marker" else None
    if extraction.answer != text and extraction.how:
        return extraction.answer
    return None


@functools.lru_cache(maxsize=_EXTRACTED_LATELY)
def _extracted_lately(text: str) -> Extraction:
    """The answer in a text; the last few are cached, as one decision needs them again."""
    return extract(text)


def has_words(text: str) -> bool:
    """Whether this is a sentence, however short: two words at least."""
    return len(list(itertools.islice(_WORD.finditer(text), 2))) == 2


def last_amount(text: str) -> str | None:
    """The last number of a text, with the unit after it: "5 kilometers" of "she walked 5 kilometers home".

    A unit of several words is left out, "5 miles per hour": the unit is then missing, not wrong.
    """
    numbers = last_numerals(text, 1)
    if not numbers:
        return None
    unit = _UNIT_AFTER.match(text, numbers[0].start + len(numbers[0].text))
    if unit is None or unit["unit"] == "percent" or not is_unit(unit["unit"]) or _MORE_OF_UNIT.match(text, unit.end()):
        return numbers[0].text
    return f"{numbers[0].text} {unit['unit']}"


def with_decimal_point(text: str, *, decimals: int) -> str | None:
    """A text whose only numeral has a decimal comma, which cannot divide thousands, with a point instead; or None.

    It has at least so many decimals: 1,2 may well be a list.
    """
    match = _DECIMAL_COMMA.fullmatch(text)
    return text.replace(",", ".") if match is not None and len(match[1]) >= decimals else None


def as_list(text: str) -> str | None:
    """A numeral with thousands as the list that it may also be: 70,110, but not 1,000; None for other texts."""
    return text.replace(",", ", ") if ",0" not in text and _THOUSANDS.fullmatch(text) else None


def choice(text: str) -> tuple[str, str] | None:
    """The letter of a choice and its text, if both are there: "(B) 12", "B. 12", "12 (B)"."""
    if (match := _CHOICE.match(text)) is not None:
        return match["marked"] or match["plain"], text[match.end() :]
    if not text.endswith(_CHOICE_ENDS):
        return None
    if ")" not in text[-_MAX_AFTER_LETTER:] and not any(noun in text[-_MAX_CHOICE_AFTER:] for noun in _NOUNS):
        return None
    match = _CHOICE_AFTER.search(text, max(0, len(text) - _MAX_CHOICE_AFTER))
    value = text[: match.start()] if match is not None else ""
    if (
        match is None
        or not value
        or not (match["marked"] or match["named"] or _NUMERAL.fullmatch(value))
        or _UNFINISHED.search(value)
        or rejected(value.replace("}", " ") + " ", "")
    ):
        return None
    return match["marked"] or match["named"] or match["plain"] or match["called"], value
