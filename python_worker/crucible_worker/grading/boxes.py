r"""Boxes around answers, `\boxed{...}` and `\fbox{...}`, from the end of a text on.

A box may lack its braces (`\boxed 5`), or its closing brace if the text was truncated: then its content is the rest of
its line. Of nested boxes the inner one counts. A box that is empty or only a placeholder (`\boxed{...}`,
`\boxed{your answer}`) does not count. Boxes that are joined are one answer, as
`crucible_worker.grading.joined` says. One pass from the end, over at most `MAX_BRACES` braces.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from crucible_worker.grading.conjunctions import with_conjunctions
from crucible_worker.grading.joined import MAX_BETWEEN, MAX_JOINED, link, name_before, written
from crucible_worker.grading.phrase import is_placeholder

__all__ = ["MAX_BRACES", "alone", "boxed", "has_box", "may_hold_box", "opens_box"]

MAX_BRACES = 50_000
"""Braces, and boxes without them, that a search for a box examines from the end of a text."""

# This reads a reversed text, so that the first match is the last one of the text. Runs are possessive, and each comes
# after a character that is not of the run: no character is read repeatedly.
# In a string literal, the backslash may be missing, or form a control character with the letter after it.
# It begins with a set of characters, because that makes the search faster.
_BRACE = re.compile(
    r"[{}dx](?:(?<=\})(\\*+)|(?<=\{)(?:\s*+(?P<box>(?:dexob|xobf)(?:\\|(?![A-Za-z]))|dexo\x08|xob\x0c)|(\\*+))"
    r"|(?P<bare>(?<=d)exob|(?<=x)obf)\\)"
)
_BOX = re.compile(r"\s*+(?:\\(?:boxed|fbox)\b|(?:(?<![A-Za-z])(?:boxed|fbox)|\x08oxed|\x0cbox)\s*+\{)")
_UNBRACED_END = re.compile(r"\$|\\\)|\\\]|\n")


# The box that nearly all responses end with: of a few levels of braces inside, without escaped ones.
_PLAIN = r"[^{}\\]|\\[^{}]"
_IN_BRACES = rf"\{{(?>(?:{_PLAIN}|\{{(?>(?:{_PLAIN}|\{{(?>(?:{_PLAIN})*)\}})*)\}})*)\}}"
_PLAIN_BOX = re.compile(rf"\\boxed\s*+\{{((?>(?:{_PLAIN}|{_IN_BRACES})*))\}}")


class _Box(NamedTuple):
    start: int
    end: int
    answer: str
    closed: bool
    steps: int
    """The work done until it was found."""


def boxed(text: str) -> tuple[str | None, int]:
    """The content of the last box, or of the last ones that are joined; and the work done.

    Empty if every box is empty, None if there is no box.
    """
    command = _last_command(text, len(text))
    if command < 0:
        return None, len(text)
    if answer := _plain(text, command):
        return answer, len(text) - command
    steps, seen, open_box = 0, False, ""
    boxes = _boxes(text)
    for box in boxes:
        steps, seen = box.steps, True
        if not box.answer or is_placeholder(box.answer):
            continue
        if box.closed:
            return _with_those_before(text, box, boxes)
        open_box = open_box or box.answer
    return (open_box if seen else None), max(steps, len(text))


def _last_command(text: str, end: int) -> int:
    """About where the last command of a box begins before some place; -1 if there is none."""
    control = text.rfind("\x08oxed", 0, end) if "\x08" in text else -1
    return max(text.rfind("box", 0, end), control)


def _plain(text: str, command: int) -> str:
    """The content of the last box of a text, if it is plain and no box before is joined to it; otherwise empty."""
    box = _plain_box(text, command)
    return "" if box is None or _may_follow(text, box.start()) else box[1].strip()


def alone(text: str) -> tuple[str, int] | None:
    """The content of the last box of a text, and where the box ends; None unless it is plain and of one line.

    It is the only one, or a plain box precedes it that is not joined to it.
    """
    command = text.rfind("boxed")
    box = None if command < 0 or "\x08" in text or "\x0c" in text else _plain_box(text, command)
    answer = box[1].strip() if box else ""
    if not box or not answer or "\n" in answer:
        return None
    if text.find("box", command + 1) < 0 and text.rfind("box", 0, command) < 0:
        return answer, box.end()
    before = text.rfind("boxed", 0, command)
    if "fbox" in text or (before >= 0 and not _is_apart(text, before, box.start())):
        return None
    return answer, box.end()


def _is_apart(text: str, command: int, start: int) -> bool:
    """Whether the box at a command is plain, and is not joined to the next one."""
    box = _plain_box(text, command)
    if box is None or box.end() > start:
        return False
    if start - box.end() > MAX_BETWEEN:
        return True
    between = with_conjunctions(text[box.end() - 1 : start + 1])[1:-1]
    return "\\\\" not in between and "\\new" not in between and link(between) is None


def _plain_box(text: str, command: int) -> re.Match[str] | None:
    """The last box of a text, if it is plain and not a placeholder."""
    box = _PLAIN_BOX.match(text, max(0, command - 1)) if len(text) - command <= MAX_BRACES else None
    return None if box is None or is_placeholder(box[1].strip()) else box


def may_hold_box(text: str) -> bool:
    """Whether there may be a box in a text."""
    return _last_command(text, len(text)) >= 0


def has_box(text: str) -> bool:
    """Whether a text has a complete box that is not empty."""
    return may_hold_box(text) and any(box.closed and box.answer for box in _boxes(text))


def opens_box(text: str) -> bool:
    """Whether a text opens a box."""
    return _BOX.search(text) is not None


def _with_those_before(text: str, last: _Box, before: Iterator[_Box]) -> tuple[str, int]:
    """A box with those that it is joined to, as one answer; with their names if there are several."""
    joined, links = [last], []
    steps = last.steps
    for box in before if _may_follow(text, last.start) else ():
        steps = box.steps
        if box.end > joined[-1].start:  # it surrounds them
            continue
        how = link(text[box.end : joined[-1].start]) if box.answer and box.closed else None
        if how is None or len(joined) == MAX_JOINED:
            break
        joined.append(box)
        links.append(how)
    if len(joined) == 1:
        return last.answer, steps
    answers = [_named(text, box) for box in reversed(joined)]
    return written(answers, links[::-1]), steps


def _may_follow(text: str, start: int) -> bool:
    """Whether a box may end where another one begins, or a little before: most texts have one box, and end here."""
    if _last_command(text, start) < 0:
        return False
    window = text[max(0, start - MAX_BETWEEN) : start]
    if "boxed" in window or "fbox" in window:
        return True
    end = window.rfind("}")
    while end >= 0:
        if link(window[end + 1 :]) is not None:
            return True
        end = window.rfind("}", 0, end)
    return False


def _named(text: str, box: _Box) -> str:
    name = "" if "=" in box.answer else name_before(text, box.start)
    return f"{name} = {box.answer}" if name else box.answer


def _boxes(text: str) -> Iterator[_Box]:
    """The boxes from the last one on."""
    size = len(text)
    closing: list[int] = []  # positions of closing braces whose opening ones are still sought
    later = size  # where the next box starts
    marks = 0
    for mark in itertools.islice(_BRACE.finditer(text[::-1]), MAX_BRACES):
        marks += 1
        place = size - mark.start()  # the end of the brace, or of the command of a bare box
        end = place
        if mark["box"] and _BOX.match(text, place):
            # The inner box counts, and it was empty or never closed.
            answer, closed = "", bool(closing)
            end = closing.pop() + 1 if closing else place
        elif mark["box"]:
            closed = bool(closing)
            end = closing.pop() + 1 if closing else place
            answer = text[place : end - 1].strip() if closed else _to_line_end(text[place:later])
        elif mark["bare"]:
            answer, length = _unbraced(text[place:later])
            end, closed = place + length, True
        else:
            if len(mark[1] or mark[3] or "") % 2 == 0:
                if mark[0][0] == "}":
                    closing.append(place - 1)
                elif closing:
                    closing.pop()
            continue
        later = size - mark.end()
        yield _Box(later, end, answer, closed, mark.end() + marks)


def _to_line_end(rest: str) -> str:
    """The content of an unclosed box: the rest of its line, or of its math."""
    end = _UNBRACED_END.search(rest)
    return (rest[: end.start()] if end else rest).strip()


def _unbraced(rest: str) -> tuple[str, int]:
    r"""The content of `\boxed` without braces, and its end: the rest of its math, otherwise one word."""
    if rest[:1].isalpha():
        return "", 0  # a longer command
    end = _UNBRACED_END.search(rest)
    line = rest[: end.start()] if end else rest
    if end and end[0] != "\n":
        return " ".join(line.split()), len(line)
    words = line.split(maxsplit=1)
    if not words:
        return "", 0
    return words[0].rstrip(".,;}"), line.index(words[0]) + len(words[0].rstrip(".,;}"))
