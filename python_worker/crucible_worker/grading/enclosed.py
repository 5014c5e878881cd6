r"""Answers in a form that a prompt asked for: in a box, between tags, in a JSON object.

Each form is read from the end of a text on. Placeholders of a form (`\boxed{...}`, `<answer>your answer</answer>`) are
no answers, and answers that the response takes back can be left out.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from crucible_worker.grading.phrase import MAX_WHOLE_CHARS, has_words, is_placeholder
from crucible_worker.grading.qualification import (
    MAX_BETWEEN,
    MAX_JOINED,
    MAX_RULED_OUT,
    link,
    name_before,
    retraction_at,
    with_conjunctions,
    written,
)
from crucible_worker.grading.scope import MAX_MENTIONS, mention

__all__ = [
    "MAX_BRACES",
    "MAX_RETRACTED_CHARS",
    "Tagged",
    "Unretracted",
    "alone",
    "boxed",
    "has_box",
    "is_taken_back",
    "joined_tags",
    "json_answer",
    "last_tagged",
    "may_end_with_object",
    "may_hold_box",
    "may_hold_tag",
    "opens_box",
    "without_retracted",
]


# The answer in a JSON object at the end of a response: `{"reasoning": "...", "answer": 42}`, fenced or not.
#
# The object is the last thing in the response, and its key is `answer` or `final_answer`, with any capitals and joints
# ("finalAnswer", "Final Answer"); of both the final one counts. Values are text, a number, true or false, or a list of
# these. An object whose answer is null, empty or a placeholder has no answer: no other part of it counts. The same is
# true of an object that is the whole response without such a key, `{"wrong": 42}`, unless its only key is a word for an
# answer: `{"result": 42}`. LaTeX with single backslashes is read as it was meant.

_FENCE = re.compile(r"\s*+(?:```|~~~)\s*+\Z")
_FENCES = re.compile(r"(?:```|~~~)(?:json)?")
_OBJECT_BRACE = re.compile(r"[{}]")
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

    Objects that follow each other are one answer, as `crucible_worker.grading.qualification` says, and so are those of
    an array. Also returns the work done. Linear.
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
    for brace in _OBJECT_BRACE.finditer(end[::-1]):
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


# The answer between tags: `<answer>42</answer>`, as recipes of reinforcement learning request it.
#
# Tags are `answer`, `final_answer` and `solution` in angle brackets, in either case, `[ANSWER]` in brackets, and the
# special tokens `<|begin_of_box|>` and `<|end_of_box|>`. The last complete pair with an answer counts; of nested pairs
# the inner one counts. Pairs that only show the form have none: `<answer>...</answer>`, `<answer>your answer</answer>`,
# `<answer> and </answer>`, and a pair in quotation marks that more words follow. Pairs of one tag in one sentence are
# one answer, as `crucible_worker.grading.qualification` says. If no pair is complete, what follows the last opening tag
# is the answer, as in a response that was truncated or ended by a stop string; so is a short line before a closing tag
# whose opening tag was in the prompt.

_TAG = re.compile(
    r"<(?P<close>/?) ?(?P<name>answer|final[_ -]?answer|solution) ?>|\[(?P<end>/?)(?-i:ANSWER)\]"
    r"|<\|(?:begin|(?P<last>end))_of_(?P<of>box|answer|solution)\|>",
    re.IGNORECASE,
)
# The beginning of every tag, in either case: "<<3*4=12>>", "x <y" and HTML have many brackets that begin no tag.
_TAG_BEGINS = re.compile("<[/|]? ?[abefsABEFS\u017f][nieoNIEO\u0130\u0131]")
_QUOTES = "`'\"\u201c\u2018"
_WORD = re.compile(r"[^\W\d_]")
# Text after a tag that is only mentioned: "<answer> tags", "<answer>, then".
_MENTIONED = re.compile(
    r"\s?(?:[`'\"\u201d\u2019,;]|(?:and|or|tags?|blocks?|elements?|sections?|format)\b)", re.IGNORECASE
)


@dataclasses.dataclass(frozen=True, slots=True)
class Tagged:
    """An answer between tags."""

    start: int
    """The start of its content."""
    end: int
    """The end of its closing tag."""
    content: str
    """Its content, without white space around it."""
    name: str = ""
    """The name that the text before it gives it: `x` of `x = <answer>5</answer>`."""
    tag: str = ""
    """Its tag."""
    before: Tagged | None = None
    """The previous answer of the same sentence and tag, if both form one answer."""
    link: str = ""
    """The joint between the two."""


def last_tagged(text: str) -> tuple[Tagged | None, int]:
    """The last answer between tags with those it is joined to, if there is one; and how many tags there are. Linear."""
    if not may_hold_tag(text):
        return None, 0
    found: Tagged | None = None
    opened: re.Match[str] | None = None
    marks = 0
    for tag in _TAG.finditer(text):
        marks += 1
        if not (tag["close"] or tag["end"] or tag["last"]):
            opened = tag
        elif opened is None:
            if marks == 1 and tag.start() <= MAX_WHOLE_CHARS:
                found = _pair(text, 0, 0, tag)
        elif _name(opened) == _name(tag):
            pair = _pair(text, opened.start(), opened.end(), tag)
            found = _joined(text, found, pair, opened.start()) if pair else found
            opened = None
    if found is None and opened is not None and not _MENTIONED.match(text, opened.end()):
        content = text[opened.end() :].strip()
        found = Tagged(opened.end(), len(text), content) if content and not is_placeholder(content) else None
    return found, marks


def may_hold_tag(text: str) -> bool:
    """Whether a text may have a tag: most texts have none."""
    return ("<" in text and _TAG_BEGINS.search(text) is not None) or "ANSWER]" in text


def _pair(text: str, before: int, start: int, close: re.Match[str]) -> Tagged | None:
    """A pair with an answer; None if it only shows the form."""
    content = text[start : close.start()].strip()
    if not content or is_placeholder(content):
        return None
    shown = content.strip(_QUOTES + " ").casefold() in ("and", "or") or (before and text[before - 1] in _QUOTES)
    if shown and _WORD.search(text, close.end()):
        return None
    return Tagged(start, close.end(), content, name_before(text, before), _name(close))


def _joined(text: str, earlier: Tagged | None, pair: Tagged, start: int) -> Tagged:
    """A pair with a given start, and the previous pair if only a joint is between them."""
    if earlier is None or earlier.tag != pair.tag:
        return pair
    how = link(text[earlier.end : start])
    return pair if how is None else dataclasses.replace(pair, before=earlier, link=how)


def joined_tags(last: Tagged) -> list[Tagged]:
    """The answers that form one answer together, in their order."""
    tags = [last]
    while tags[-1].before is not None and len(tags) < MAX_JOINED:
        tags.append(tags[-1].before)
    return tags[::-1]


def _name(tag: re.Match[str]) -> str:
    written = f"|{tag['of']}|" if tag["of"] else tag["name"] or "[answer]"
    return re.sub(r"[_ -]", "", written).casefold()


# Boxes around answers, `\boxed{...}` and `\fbox{...}`, from the end of a text on.
#
# A box may lack its braces (`\boxed 5`), or its closing brace if the text was truncated: then its content is the rest
# of its line. Of nested boxes the inner one counts. A box that is empty or only a placeholder (`\boxed{...}`,
# `\boxed{your answer}`) does not count. Boxes that are joined are one answer, as
# `crucible_worker.grading.qualification` says.
# One pass from the end, over at most `MAX_BRACES` braces.

MAX_BRACES = 50_000
"""Braces, and boxes without them, that a search for a box examines from the end of a text."""

# This reads a reversed text, so that the first match is the last one of the text. Runs are possessive, and each comes
# after a character that is not of the run: no character is read repeatedly.
# In a string literal, the backslash may be missing, or form a control character with the letter after it.
# It begins with a set of characters, because that makes the search faster.
_BRACE_OR_COMMAND = re.compile(
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
    steps, seen, open_box, mentions = 0, False, "", 0
    boxes = _boxes(text)
    for box in boxes:
        steps, seen = box.steps, True
        if not box.answer or is_placeholder(box.answer):
            continue
        if mention(text, box.start) >= 0:
            mentions += 1
            if mentions == MAX_MENTIONS:
                break
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
    """The last box of a text, if it is plain, not a placeholder, and not only mentioned."""
    box = _PLAIN_BOX.match(text, max(0, command - 1)) if len(text) - command <= MAX_BRACES else None
    return None if box is None or is_placeholder(box[1].strip()) or mention(text, box.start()) >= 0 else box


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
    for mark in itertools.islice(_BRACE_OR_COMMAND.finditer(text[::-1]), MAX_BRACES):
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


# Answers that a response takes back: `<answer>41</answer> is wrong`, `\boxed{41}`, "no, that is incorrect".
#
# Nothing is understood: the text directly after the answer must say explicitly that it is wrong. A question ("is that
# wrong?") or a condition ("that is wrong if x < 0") takes nothing back. Of boxes only numbers and formulas can be taken
# back: "Option \boxed{C} is incorrect" may be the answer to the question.

MAX_RETRACTED_CHARS = 10_000
"""Characters of an object, or of a box or tag with its content; a longer one is not examined."""

_TAG_NAME = r"(?:final[_ -]?answer|answer|solution)"
_CLOSING_MARK = re.compile(
    rf"</ ?{_TAG_NAME} ?>|\[/(?-i:ANSWER)\]|<\|end_of_(?:box|answer|solution)\|>|\}}", re.IGNORECASE
)
_OPENING_TAG = re.compile(rf"< ?{_TAG_NAME} ?>|\[(?-i:ANSWER)\]|<\|begin_of_(?:box|answer|solution)\|>", re.IGNORECASE)
_UNESCAPED_BRACE = re.compile(r"(?<!\\)[{}]")
_BOX_COMMAND = re.compile(r"\\?(?:boxed|fbox)\s{0,4}\Z")
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
        for closing in _CLOSING_MARK.finditer(text)
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
    openings = list(_OPENING_TAG.finditer(text, begin, end))
    if not openings:
        return None
    opening = openings[-1]
    close = max(text.rfind("<", opening.end(), end), text.rfind("[", opening.end(), end))
    return opening.start(), text[opening.end() : close].strip()


def _object_or_box(text: str, begin: int, end: int) -> tuple[int, str] | None:
    """The start of the object or box with a given end, and the answer in it; None if it is neither."""
    depth = 0
    for brace in reversed(list(_UNESCAPED_BRACE.finditer(text, begin, end))):
        depth += 1 if brace[0] == "}" else -1
        if depth == 0:
            break
    else:
        return None
    start, content = brace.start(), text[brace.end() : end - 1].strip()
    if box := _BOX_COMMAND.search(text, max(0, start - _MAX_BOX), start):
        return None if _LETTER.fullmatch(content) or has_words(content) else (box.start(), content)
    answer, _ = json_answer(text[start:end])
    return None if answer is None else (start, answer)
