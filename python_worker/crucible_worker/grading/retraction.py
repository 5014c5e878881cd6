r"""Answers that a response takes back: `<answer>41</answer> is wrong`, `\boxed{41}`, "no, that is incorrect".

Nothing is understood: the text directly after the answer must say explicitly that it is wrong. A question ("is
that wrong?") or a condition ("that is wrong if x < 0") takes nothing back. Of boxes only numbers and formulas can be
taken back: "Option \boxed{C} is incorrect" may be the answer to the question.
"""

from __future__ import annotations

import dataclasses
import re

from crucible_worker.grading.json_answer import json_answer
from crucible_worker.grading.phrase import has_words
from crucible_worker.grading.rejection import MAX_RULED_OUT, retraction_at

__all__ = ["MAX_RETRACTED_CHARS", "Unretracted", "is_taken_back", "without_retracted"]

MAX_RETRACTED_CHARS = 10_000
"""Characters of an object, or of a box or tag with its content; a longer one is not examined."""

_TAG = r"(?:final[_ -]?answer|answer|solution)"
_CLOSING = re.compile(rf"</ ?{_TAG} ?>|\[/(?-i:ANSWER)\]|<\|end_of_(?:box|answer|solution)\|>|\}}", re.IGNORECASE)
_OPENING = re.compile(rf"< ?{_TAG} ?>|\[(?-i:ANSWER)\]|<\|begin_of_(?:box|answer|solution)\|>", re.IGNORECASE)
_BRACE = re.compile(r"(?<!\\)[{}]")
_BOX = re.compile(r"\\?(?:boxed|fbox)\s{0,4}\Z")
_MAX_BOX = 12
_LETTER = re.compile(r"(?:\\text\w{0,2}\{)?\s?\(?[A-Za-z]\)?\s?\}?")


@dataclasses.dataclass(frozen=True, slots=True)
class Unretracted:
    """A response without the answers that it takes back."""

    text: str
    """The rest of the response."""
    retracted: frozenset[str]
    """The answers that were taken back."""
    steps: int
    """Characters that were examined."""


def without_retracted(text: str) -> Unretracted:
    """Leave out the last answers in tags, boxes and JSON objects that are taken back. Linear."""
    ends = [
        (closing.end(), said.end())
        for closing in _CLOSING.finditer(text)
        if (said := retraction_at(text, closing.end())) is not None
    ]
    retracted: set[str] = set()
    steps, kept = 2 * len(text), len(text)
    for end, behind in reversed(ends[-MAX_RULED_OUT:]):
        if behind > kept:  # it was in a part that is left out
            continue
        begin = max(0, end - MAX_RETRACTED_CHARS)
        steps += end - begin
        found = _object_or_box(text, begin, end) if text[end - 1] == "}" else _tagged(text, begin, end)
        if found is not None:
            start, answer = found
            retracted.add(answer)
            text, kept = f"{text[:start]} {text[behind:]}", start
    return Unretracted(text, frozenset(retracted), steps)


def is_taken_back(said: str, answer: str) -> bool:
    """Whether a text that begins with an answer takes it back; words never are: "No. That is wrong" means no."""
    at = said.find(answer)
    if at < 0 or retraction_at(said, at + len(answer)) is None:
        return False
    return not has_words(answer) or any(map(str.isdigit, answer))


def _tagged(text: str, begin: int, end: int) -> tuple[int, str] | None:
    """The start of the pair of tags with a given end, and its content."""
    openings = list(_OPENING.finditer(text, begin, end))
    if not openings:
        return None
    opening = openings[-1]
    close = max(text.rfind("<", opening.end(), end), text.rfind("[", opening.end(), end))
    return opening.start(), text[opening.end() : close].strip()


def _object_or_box(text: str, begin: int, end: int) -> tuple[int, str] | None:
    """The start of the object or box with a given end, and the answer in it; None if it is neither."""
    depth = 0
    for brace in reversed(list(_BRACE.finditer(text, begin, end))):
        depth += 1 if brace[0] == "}" else -1
        if depth == 0:
            break
    else:
        return None
    start, content = brace.start(), text[brace.end() : end - 1].strip()
    if box := _BOX.search(text, max(0, start - _MAX_BOX), start):
        return None if _LETTER.fullmatch(content) or has_words(content) else (box.start(), content)
    answer, _ = json_answer(text[start:end])
    return None if answer is None else (start, answer)
