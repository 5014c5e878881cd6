r"""The answer in a JSON object at the end of a response: `{"reasoning": "...", "answer": 42}`, fenced or not.

The object is the last thing in the response, and its key is `answer` or `final_answer`, with any capitals and joints
("finalAnswer", "Final Answer"); of both the final one counts. Values are text, a number, true or false, or a list of
these. An object whose answer is null, empty or a placeholder has no answer: no other part of it counts. The same is
true of an object that is the whole response without such a key, `{"wrong": 42}`, unless its only key is a word for an
answer: `{"result": 42}`. LaTeX with single backslashes is read as it was meant.
"""

from __future__ import annotations

import json
import re
from typing import Any

from crucible_worker.grading.joined import MAX_BETWEEN, MAX_JOINED, link, written
from crucible_worker.grading.phrase import is_placeholder

__all__ = ["json_answer", "may_end_with_object"]

_FENCE = re.compile(r"\s*+(?:```|~~~)\s*+\Z")
_FENCES = re.compile(r"(?:```|~~~)(?:json)?")
_BRACE = re.compile(r"[{}]")
_KEY = re.compile(r'"\s?(?:final)?[_ -]?answer\s?"\s*+:', re.IGNORECASE)
_JOINTS = str.maketrans("", "", "_- ")
_KEYS = ("finalanswer", "answer")
# Keys of an answer in an object without other keys.
_OTHER_KEYS = frozenset(
    ("answers", "finalanswers", "finalresult", "finalvalue", "output", "result", "solution", "solutions", "value")
)
# Text that may precede an object which is otherwise the whole response.
_BEFORE = re.compile(r'\s*+(?:(?:```|~~~)\w{0,10}\s*+)?(?=\{\s*+")')
# JSON escapes that begin a LaTeX command here; and escapes that JSON does not have.
_COMMAND = re.compile(
    r"(?<!\\)((?:\\\\)*)\\(?=(?:b(?:ar|egin|eta|inom|oxed|mod)|f(?:box|orall|rac)|n(?:abla|eq|icefrac|otin)"
    r"|r(?:angle|ho|ight)|t(?:ext(?:bf|it|rm)?|frac|heta|imes|riangle))(?![a-z])|[^\"\\/bfnrtu])"
)
_MAX_FENCE = 20


def json_answer(text: str) -> tuple[str | None, int]:
    """The answer of an object at the end of a text, empty if it has none; None if there is no such object.

    Objects that follow each other are one answer, as `crucible_worker.grading.joined` says, and so are those of an
    array. Also returns the work done. Linear.
    """
    end = _without_fence(text)
    before = _BEFORE.match(end)
    first = before.end() if before else -1
    array = end.endswith("]")
    if array:
        end = end[:-1].rstrip()
    if not end.endswith("}"):
        return None, 0
    answers: list[str] = []
    links: list[str] = []
    last = later = len(end)
    depth = marks = 0
    for brace in _BRACE.finditer(end[::-1]):
        marks += 1
        if depth == 0:
            behind = len(end) - brace.start()
            how = link(_FENCES.sub(" ", end[behind:later])) if later - behind <= MAX_BETWEEN else None
            if answers and (how is None or brace[0] == "{" or len(answers) == MAX_JOINED):
                break
            links.append(how or "")
            last = behind
        depth += 1 if brace[0] == "}" else -1
        if depth == 0:
            begin = len(end) - brace.end()
            answer = _answer_of(end[begin:last], whole=begin == first)
            if answer is None or (answers and not answer):
                break
            later = begin
            answers.append(answer)
            if not answer:
                break
    if not answers or (array and not end[:later].rstrip().endswith("[")):
        return None, len(end) + marks
    return written(answers[::-1], links[1 : len(answers)][::-1]), len(end) - later + marks


def may_end_with_object(text: str) -> bool:
    """Whether an object may be the last thing in a text: most texts end differently."""
    if '"' not in text:
        return False
    end = text.rstrip()
    return end.endswith(("}", "`", "~")) or (end.endswith("]") and end[:-1].rstrip().endswith("}"))


def _without_fence(text: str) -> str:
    end = text.rstrip()
    if end.endswith(("```", "~~~")) and (
        fence := _FENCE.search(end, len(end) - _MAX_FENCE if len(end) > _MAX_FENCE else 0)
    ):
        return end[: fence.start()].rstrip()
    return end


def _answer_of(written: str, *, whole: bool) -> str | None:
    """The answer of an object, empty if it has none; None if it is not an object, or has no key of an answer.

    For an object that is the whole response, the answer may be empty, but is not None.
    """
    if not whole and not _KEY.search(written):
        return None
    found = _parsed(written)
    if found is None:
        return None
    by_key = {key.translate(_JOINTS).casefold(): value for key, value in found}
    for key in (*_KEYS, *(_OTHER_KEYS & by_key.keys() if len(found) == 1 else ())):
        if key in by_key:
            answer = _text(by_key[key])
            return "" if is_placeholder(answer) else answer
    return "" if whole else None


def _parsed(written: str) -> list[tuple[str, Any]] | None:
    """The keys and values of an object, numbers as written; None if it is not an object."""
    for text in (_COMMAND.sub(r"\1\\\\", written), written):
        try:
            found = json.loads(text, strict=False, parse_int=_Number, parse_float=_Number, object_pairs_hook=_Pairs)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, _Pairs):
            return found
    return None


class _Number(str):
    """A number as written."""

    __slots__ = ()


class _Pairs(list[tuple[str, Any]]):
    """An object: not a list."""


def _text(value: object) -> str:
    match value:
        case bool():
            return str(value)
        case str():
            return value.strip()
        case _Pairs():
            return ""
        case list():
            parts = [_text(part) for part in value]
            return ", ".join(parts) if all(parts) else ""
        case _:
            return ""
