r"""The answer inside a response, found from its end.

The first of these that a response has, and of its kind the last:

1. `json`: the answer in a JSON object that the response ends with; see `crucible_worker.grading.json_answer`.
2. `tag`: what stands between `<answer>` and `</answer>`; see `crucible_worker.grading.tagged`. A box in it or behind it
   counts instead (`box`), as does what a marker in it says; of a content of several lines with words the answer is
   found as of a response.
3. `box`: what stands in `\boxed{...}` or `\fbox{...}`; see `crucible_worker.grading.boxes`.
4. `marker`: what follows "the answer is", "final answer:", "answer:" (also in some other languages, and within
   `\text{}` or HTML, see `crucible_worker.grading.wrapped`), "A:" at the start of a line, or "####" on the last line;
   see `crucible_worker.grading.phrase` for where it ends.
5. `sentence`: what the last paragraph states: which choice is right, that there is no solution, Yes or No as its first
   word; see `crucible_worker.grading.conclusion`.
6. `math`: the last formula between `$`, `$$`, `\(` and `\)`, `\[` and `\]`, see `crucible_worker.grading.formulas`; or
   a last line that holds no word.
7. `sentence`: what the last sentence ends with: a time, an amount with its unit, a name.
8. `whole`: the response itself, where it is one short line of at most four words.
9. `number`: the last number, as `crucible_worker.grading.numbers` reads it.

Placeholders of the form that a prompt asks for (`<answer>...</answer>`, `\boxed{your answer}`, `Answer: $Answer`) are
no answers, nor are formulas and numbers that the text rules out ("it is not 5").

What stands in `<think>...</think>` is not part of the answer, nor is what precedes a `</think>` that was not opened in
the response; a block that is never closed reaches to the end.

Every stage scans the response at most once, and only if the one before found nothing. Boxes are searched from the last
`boxes.MAX_BRACES` braces on, all else in the last `MAX_TAIL_CHARS` characters: an answer before those is not found.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence

from crucible_worker.grading import boxes
from crucible_worker.grading.conclusion import ending, stated
from crucible_worker.grading.condition import before_condition
from crucible_worker.grading.direct import MAX_TEXT_BYTES, exceeds
from crucible_worker.grading.formulas import last_formulas, listed_below
from crucible_worker.grading.joined import MAX_JOINED, numbers_joined
from crucible_worker.grading.json_answer import json_answer
from crucible_worker.grading.numbers import last_numerals
from crucible_worker.grading.phrase import (
    MAX_WHOLE_CHARS,
    has_words,
    is_placeholder,
    judges,
    phrase,
    says_something,
    undelimited,
    words,
)
from crucible_worker.grading.rejection import MAX_RULED_OUT, list_start, ruled_out_in_line
from crucible_worker.grading.results import of_rows, with_commas_for_rows, with_rows_in_one_line
from crucible_worker.grading.tagged import Tagged, last_tagged
from crucible_worker.grading.wrapped import MAX_BEFORE, unwrapped, without_special_tokens

__all__ = ["MAX_STEPS_PER_CHARACTER", "MAX_TAIL_CHARS", "Extraction", "extract", "has_box", "spoken"]

MAX_TAIL_CHARS = 100_000
"""Where there is no box, an answer is looked for in so many characters at the end, white space there left aside."""

MAX_STEPS_PER_CHARACTER = 20
"""`Extraction.steps` is never more than this for each character of the response, and 16 in all besides."""
MAX_WHOLE_WORDS = 4
"""A response of one line that has more words is a sentence, not an answer."""

_THINKING = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
# "Answer" in the languages of multilingual test sets, for one with prefixes of these: "Antwort: 7".
_WORDS = (
    *("answer", "answers", "réponse", "respuesta", "resposta", "risposta", "antwort", "antwoord", "svar", "odpowiedź"),
    *("ответ", "ответом", "відповідь", "cevap", "jawaban", "jibu", "đáp án", "đáp số", "ìdáhùn", "idahun"),
    *("答案", "答え", "答", "回答", "解答", "正解", "答复", "답", "답변", "정답", "उत्तर", "উত্তর", "సమాధానం", "คำตอบ"),
    *("الإجابة", "إجابة", "الجواب", "جواب"),
)
_LAST_LETTERS = "".join(sorted({word[-1] for word in _WORDS}))  # looked at first: most characters are none of them
# This and the next read a reversed text: the first match is the last one of the text.
_MARKER = re.compile(
    rf"####|:(?-i:A)(?=[\s*]|\Z)|(?=[{_LAST_LETTERS}])(?:{'|'.join(word[::-1] for word in _WORDS)})", re.IGNORECASE
)
# The same where the text holds no word but the English one: one character of eight may end a marker.
_ENGLISH_MARKER = re.compile(r"[#:rRsS](?:(?<=#)###|(?<=:)A(?=[\s*]|\Z)|(?i:(?<=r)ewsna|(?<=s)rewsna))")
_OTHER_WORDS = tuple(word for word in _WORDS if not word.startswith("answer"))
_OTHER_ASCII_WORDS = tuple(filter(str.isascii, _OTHER_WORDS))
# What must follow such a word, forwards: at most some characters are read.
_MARKED = re.compile(
    r"(?:\s?(?:finale?|correct[aeo]?|exact[ae]?|nihai|النهائية|الصحيحة|النهائي|الصحيح))?[*_`}\xa0 ]{0,4}"
    r"(?:</?\w{1,6}>){0,2}[*_`}\xa0 ]{0,4}"
    r"(?:[:=\uff1a\uff1d\u0983\u2192\u21d2]>?|[-\u2013\u2014](?=\s)"
    r"|(?:is|are|was|(?:would|should|will|must) be|equals)(?!\w)"
    r"|(?:est|es|ist|lautet|é|è|sind|som|är|är|равен|равно|является|будет|هي|هو)(?!\w)"
    r"|[应應]?[该該]?是|[选選]择?|为|為|等于|等於|는|은|は"
    r"|(?:to|of|for|auf) [^\n.:]{1,80}?(?::| (?:is|are|ist)\b))",
    re.IGNORECASE,
)
# A line that says no more than "Final answer", and the answer below it.
_HEADING = re.compile(r"[*_` ]{0,4}\n")
_BEFORE_HEADING = re.compile(r"[#*_`> ]*(?:(?:the |my )?final )?", re.IGNORECASE)
_BLANK = re.compile(r"\s")
_MAX_CUT = 1_000  # characters of a word that a tail may begin behind
_ITEM = re.compile(r"\s*(?:[-*+\u2022]\s+)?")
_MAX_LINES_CHARS = 2 * MAX_JOINED * MAX_WHOLE_CHARS
_DECORATION = " \t\r\f\v*_`"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """What was taken for the answer of a response."""

    answer: str = ""
    """As it is written there, white space around it dropped; empty where there is none."""
    how: str = ""
    """"json", "tag", "box", "marker", "sentence", "math", "whole" or "number"; empty where there is none."""
    reason: str = ""
    """Why there is none, where that is not plain: the response is too long, or nothing but thinking."""
    steps: int = dataclasses.field(default=0, compare=False, repr=False)
    """Characters and marks that were looked at, for tests of linearity; see `MAX_STEPS_PER_CHARACTER`."""


def extract(text: str) -> Extraction:
    """Find the answer of a response. Never raises; linear, and at most `MAX_TEXT_BYTES` are looked at.

    Args:
        text: the response; lone surrogates are characters like others.
    """
    if exceeds((text,)):
        return Extraction(reason=f"the response is longer than {MAX_TEXT_BYTES:,} bytes")
    said = with_rows_in_one_line(without_special_tokens(spoken(text)))
    if not said or said.isspace():
        return Extraction(reason="the response is nothing but thinking" if text.strip() else "", steps=len(text))
    answer, looked = json_answer(_tail(said))
    if answer is not None:
        found = _in_content(answer, "json") if answer else Extraction(reason="the JSON object gives no answer")
        return dataclasses.replace(found, steps=found.steps + looked + len(text))
    tagged, tags = last_tagged(said)
    steps = looked + len(text) + tags
    return _found(said, _STAGES, steps) if tagged is None else _between(said, tagged, steps)


def _found(said: str, stages: Sequence[tuple[str, Callable[[str], tuple[str, int]]]], steps: int = 0) -> Extraction:
    """What the first of some stages finds that finds anything, after so many steps before them."""
    tail = _tail(said)
    for how, stage in stages:
        answer, looked = stage(tail if how in _IN_TAIL else said)
        steps += looked
        if answer:
            return Extraction(answer=answer, how=how, steps=steps)
    return Extraction(steps=steps)


def _between(said: str, tagged: Tagged, before: int) -> Extraction:
    """The answer of a tag: a box in it or behind it, or what its content is."""
    box, steps = _box(said[tagged.start :])
    if box:
        return Extraction(answer=box, how="box", steps=before + steps)
    answer, looked = json_answer(tagged.content)
    found = _in_content(tagged.content if answer is None else answer, "tag")
    return dataclasses.replace(found, steps=before + found.steps + steps + looked)


def _in_content(content: str, how: str) -> Extraction:
    """What a content is that is meant as an answer: a box, what a marker in it says, or all of it where it is one line.

    Of more lines with words the answer is looked for as in a response.
    """
    found = _found(content, _STAGES[:2])
    if not found.answer and len(content) <= MAX_WHOLE_CHARS and not (has_words(content) and "\n" in content):
        answer = listed_below(content) or undelimited(content) or content
        return Extraction(answer=answer, how=how if content else "", steps=found.steps)
    if not found.answer:
        found = _found(content, _STAGES)
    if not found.answer:
        head, _, rest = content.partition("\n\n")
        content = undelimited(head) if rest and "\n" not in head and len(head) <= MAX_WHOLE_CHARS else content
    return dataclasses.replace(found, answer=found.answer or content, how=how)


def spoken(text: str) -> str:
    """A response without its thinking."""
    if "<" not in text:
        return text
    pieces: list[str] = []
    start, inside = 0, False
    for tag in _THINKING.finditer(text):
        if tag[1]:
            if not inside:
                # The block was opened in the prompt: what precedes is thinking too.
                pieces.clear()
            start, inside = tag.end(), False
        elif not inside:
            pieces.append(text[start : tag.start()])
            inside = True
    if not pieces and not inside:
        return text[start:]
    return "\n".join(pieces if inside else [*pieces, text[start:]])


def _tail(said: str) -> str:
    """The end of a response, from the beginning of a word where there is one."""
    said = said.rstrip()
    if len(said) <= MAX_TAIL_CHARS:
        return said
    tail = said[-MAX_TAIL_CHARS:]
    if said[-MAX_TAIL_CHARS - 1].isspace():
        return tail
    blank = _BLANK.search(tail, 0, _MAX_CUT)
    # Of a number that was cut nothing is left.
    return tail[blank.start() :] if blank else tail.lstrip("0123456789.,/")


def has_box(text: str) -> bool:
    """Whether a text, its thinking left aside, has a complete box that is not empty, as `extract` looks for it."""
    return boxes.has_box(spoken(text))


def _box(text: str) -> tuple[str, int]:
    answer, steps = boxes.boxed(text)
    return answer or "", steps


def _marker(text: str) -> tuple[str, int]:
    size = later = len(text)
    marks = 0
    for start, begin, marks in _marks(text):
        if begin > later:
            continue
        said = unwrapped(text[max(0, start - MAX_BEFORE) : start], text[begin:later])
        answer = listed_below(said) or phrase(said)
        # "Answer: correct" is an answer, "the answer is correct" is none.
        judged = text[begin - 1] not in ":=\uff1a\n#" and judges(answer)
        if says_something(answer) and not is_placeholder(answer) and not judged:
            return answer, 2 * (size - start) + marks
        later = start
    return "", 2 * size + marks


def _marks(text: str) -> Iterator[tuple[int, int, int]]:
    """Where each marker begins, from the last one on, where its answer begins, and how many were looked at so far."""
    size = len(text)
    last_line = text.rstrip().rfind("\n") + 1
    for marks, mark in enumerate(_marker_in(text).finditer(text[::-1]), 1):
        start = size - mark.end()
        begin = _marked(text, start, size - mark.start(), last_line)
        if begin is not None:
            yield start, begin, marks


def _marker_in(text: str) -> re.Pattern[str]:
    """The expression that finds the markers of a text."""
    lowered = text.lower()
    words = _OTHER_ASCII_WORDS if text.isascii() else _OTHER_WORDS
    return _MARKER if any(word in lowered for word in words) else _ENGLISH_MARKER


def _marked(text: str, start: int, end: int, last_line: int) -> int | None:
    """Where the answer of a marker begins; None where it is no marker."""
    if text[start] == "#":
        return end if start >= last_line else None  # elsewhere it is a heading
    line = text[max(0, start - 24) : start].rpartition("\n")
    if text[end - 1] == ":":
        return end if not line[2].strip(_DECORATION) else None
    if match := _MARKED.match(text, end):
        return match.end()
    heads = bool(line[1] or start <= 24) and _BEFORE_HEADING.fullmatch(line[2])
    heading = _HEADING.match(text, end) if heads else None
    return heading.end() if heading else None


def _math(text: str) -> tuple[str, int]:
    answer, steps = last_formulas(text)
    if answer:
        return answer, steps
    lines, introduced, looked = _formula_lines(text)
    return (of_rows(lines, introduced=introduced) if lines else ""), steps + looked


def _formula_lines(text: str) -> tuple[list[str], bool, int]:
    """The last lines, as far as they hold no words; whether nothing precedes or a colon does; and the work done."""
    end = text.rstrip()[-_MAX_LINES_CHARS:]
    above, lines = end.splitlines(), collections.deque[str]()
    while above and len(lines) < MAX_JOINED:
        line = _ITEM.sub("", above[-1], count=1).strip(_DECORATION)
        if line:
            if len(line) > MAX_WHOLE_CHARS or boxes.opens_box(line) or has_words(line) or not says_something(line):
                break
            lines.appendleft(line.rstrip("."))
        above.pop()
    return list(lines), not above or above[-1].rstrip().endswith(":"), len(end)


def _whole(text: str) -> tuple[str, int]:
    line = text.strip()
    if len(line) > MAX_WHOLE_CHARS or "\n" in line or boxes.opens_box(line) or words(line) > MAX_WHOLE_WORDS:
        return "", 0
    if next(_marks(line), None):
        return "", 2 * len(line)  # it was looked at as a marker, which gives none: "the answer is not 5"
    answer = phrase(line)
    if not says_something(answer) or judges(answer):
        return "", 2 * len(line)
    numbers = last_numerals(answer, 1)
    denied = bool(numbers) and ruled_out_in_line(answer, numbers[0].start, numbers[0].start + len(numbers[0].text))
    return ("" if denied else answer), 3 * len(line)


def _number(text: str) -> tuple[str, int]:
    """The last number that is not ruled out; what is ruled out is not the answer where it stands before, either."""
    wrong: set[str] = set()
    text = before_condition(with_commas_for_rows(text))
    numbers = last_numerals(text, MAX_RULED_OUT + 1)
    for at, number in reversed(list(enumerate(numbers))):
        end = number.start + len(number.text)
        if ruled_out_in_line(text, number.start, end) or ruled_out_in_line(text, list_start(text, number.start), end):
            wrong.add(number.text)
        elif number.text not in wrong:
            return numbers_joined(text, numbers[: at + 1]), len(text)
    return "", len(text)


_STAGES = (
    *(("box", _box), ("marker", _marker), ("sentence", stated), ("math", _math), ("sentence", ending)),
    *(("whole", _whole), ("number", _number)),
)
_IN_TAIL = frozenset({"marker", "sentence", "math", "number"})
