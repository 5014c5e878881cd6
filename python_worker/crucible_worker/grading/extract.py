r"""The answer in a response, found from its end.

The first of these kinds that a response has, and the last one of that kind:

1. `json`: the answer in a JSON object at the end of the response; see `crucible_worker.grading.enclosed`.
2. `tag`: the text between `<answer>` and `</answer>`; see `crucible_worker.grading.enclosed`. A box in it or after it
   counts instead (`box`), as does an answer after a marker in it. If the content has several lines with words, the
   answer is found as in a response.
3. `box`: the content of `\boxed{...}` or `\fbox{...}`; see `crucible_worker.grading.enclosed`.
4. `marker`: the text after "the answer is", "final answer:", "answer:" (also in some other languages, and within
   `\text{}` or HTML, see below), "A:" at the start of a line, or "####" on the last line;
   see `crucible_worker.grading.phrase` for where it ends.
5. `sentence`: a statement of the last paragraph: the right choice, that there is no solution, Yes or No as its first
   word; see `crucible_worker.grading.phrase`.
6. `math`: the last formula between `$`, `$$`, `\(` and `\)`, `\[` and `\]`, see `crucible_worker.grading.formulas`; or
   a last line without words.
7. `sentence`: the end of the last sentence: a time, an amount with its unit, a name.
8. `whole`: the response itself, if it is one short line of at most four words.
9. `number`: the last number, as `crucible_worker.grading.numbers` reads it, or the formula in plain text that it is
   in, see `crucible_worker.grading.formulas`.

An answer that the response takes back (`<answer>41</answer> is wrong`) does not count, as
`crucible_worker.grading.enclosed` says.

Placeholders of the form that a prompt asks for (`<answer>...</answer>`, `\boxed{your answer}`, `Answer: $Answer`) are
no answers, nor are formulas and numbers that the text rules out ("it is not 5").

Reasoning is not part of the answer, see `crucible_worker.util.reasoning`: text in `<think>...</think>`, text before a
`</think>` that was not opened in the response; a block that is never closed reaches to the end.

Every stage scans the response at most once, and only if the previous one found nothing. Boxes are searched among the
last `enclosed.MAX_BRACES` braces, all else in the last `MAX_TAIL_CHARS` characters: earlier answers are not found.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence, Set

from crucible_worker.grading import enclosed
from crucible_worker.grading.base import MAX_TEXT_BYTES, exceeds
from crucible_worker.grading.enclosed import (
    Tagged,
    alone,
    is_taken_back,
    joined_tags,
    json_answer,
    last_tagged,
    may_end_with_object,
    may_hold_box,
    may_hold_tag,
    without_retracted,
)
from crucible_worker.grading.formulas import chosen, formulas_around, last_formulas, listed_below
from crucible_worker.grading.numbers import Numeral, is_negated, last_numerals, with_changing_words
from crucible_worker.grading.phrase import (
    MAX_WHOLE_CHARS,
    ending,
    has_words,
    is_placeholder,
    judges,
    of_rows,
    phrase,
    says_something,
    stated,
    undelimited,
    with_commas_for_rows,
    with_rows_in_one_line,
    without_bold,
    words,
)
from crucible_worker.grading.qualification import (
    MAX_JOINED,
    MAX_RULED_OUT,
    before_condition,
    is_retracted,
    number_ruled_out,
    numbers_joined,
    ruled_out_in_line,
    tied_number,
    together,
    with_conjunctions,
    written,
)
from crucible_worker.util.reasoning import reasoning_spans

__all__ = ["MAX_BEFORE", "MAX_STEPS_PER_CHARACTER", "MAX_TAIL_CHARS", "Extraction", "extract", "has_box", "spoken"]

# Answers after markers: "the answer is 42", "Answer: 42", "#### 42", in about 20 languages.
#
# The last marker with an answer counts. Markers of one kind that follow each other with only their answers between
# them, "Answer: 8" over "Answer: 4", are one answer together, as `crucible_worker.grading.qualification` says; after
# more reasoning, or after a full stop, a marker corrects the one before it. Markup that begins before a marker and ends
# after its answer belongs to neither.

# Markup around a marker, which continues after it: `\text{The answer is } (D)`, `<b>Answer:</b> 7`.
#
# The text after a marker loses the brace that closes the marker's `\text{}`. It ends at the end of the mathematics
# around the marker, or before a tag of HTML or a special token of a model. Work is bounded, except for one pass over
# the text.

MAX_BEFORE = 200
"""Characters before a marker, on its line, in which markup is sought."""

_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:rm|bf|it|sf)|mbox|operatorname|underline)\s?\{[^{}]*\Z")
_TOKEN = re.compile(r"\\.|[{}]")
_OPENS = re.compile(r"\\[(\[]|(?<!\\)\$\$?")
_CLOSES = {"\\(": "\\)", "\\[": "\\]", "$": "$", "$$": "$$"}
_HTML = r"</?(?:b|strong|em|i|u|p|span|div|h[1-6]|code|font|center)>"
_OPENING_HTML = re.compile(rf"(?:[\s*_`:]{{0,8}}{_HTML})+[\s:]{{0,8}}", re.IGNORECASE)
_END = re.compile(rf"{_HTML}|<br ?/?>|<\|", re.IGNORECASE)
_SPECIAL = re.compile(
    r"(?:<\|(?!end_of_(?:box|answer|solution)\|)[A-Za-z_.-]{1,40}\|>|<\uff5c[^<>]{1,40}\uff5c>|</s>|<eos>|<end_of_turn>|\s)+\Z"
)
_MAX_SPECIAL = 200


def _unwrapped(before: str, rest: str) -> str:
    """The text after a marker, without the markup around the marker.

    Args:
        before: the text before the marker; its end is examined.
        rest: the text after it.
    """
    _, end_of_line, line = before[-MAX_BEFORE:].rpartition("\n")
    if "\\" not in line and "$" not in line and "<" not in rest:
        return rest
    if html := _OPENING_HTML.match(rest):
        rest = rest[html.end() :]
    if _TEXT.search(line):
        rest = _without_closing_brace(rest)
    # Whether a truncated line begins within mathematics is unknown.
    if (end_of_line or len(before) < MAX_BEFORE) and (closing := _open_mathematics(line)):
        inside, closed, behind = rest.partition(closing)
        if closed:
            rest = inside if inside.strip(" \t.:~\\") else behind
    end = _END.search(rest)
    return rest[: end.start()] if end else rest


def _without_special_tokens(text: str) -> str:
    """A response without the special tokens of a model at its end: `42<|im_end|>`."""
    if not text.rstrip().endswith(">"):
        return text
    cut = max(0, len(text) - _MAX_SPECIAL)
    match = _SPECIAL.search(text[cut:])
    return text[: cut + match.start()] if match else text


def _without_closing_brace(rest: str) -> str:
    depth = 0
    for token in _TOKEN.finditer(rest.partition("\n")[0]):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth < 0:
            return rest[: token.start()] + " " + rest[token.end() :]
    return rest


def _open_mathematics(line: str) -> str:
    """The delimiter that closes the mathematics at the end of a line; empty if there is none."""
    closing = ""
    at = 0
    while True:
        if closing:
            end = line.find(closing, at)
            if end < 0:
                return closing
            at, closing = end + len(closing), ""
            continue
        opening = _OPENS.search(line, at)
        if opening is None:
            return ""
        at, closing = opening.end(), _CLOSES[opening[0]]


# "Answer" in the languages of multilingual test sets: "Antwort: 7".
_WORDS = (
    *("answer", "answers", "réponse", "respuesta", "resposta", "risposta", "antwort", "antwoord", "svar", "odpowiedź"),
    *("ответ", "ответом", "відповідь", "cevap", "jawaban", "jibu", "đáp án", "đáp số", "ìdáhùn", "idahun"),
    *("答案", "答え", "答", "回答", "解答", "正解", "答复", "답", "답변", "정답", "उत्तर", "উত্তর", "సమాధానం", "คำตอบ"),
    *("الإجابة", "إجابة", "الجواب", "جواب"),
)
_LAST_LETTERS = "".join(sorted({word[-1] for word in _WORDS}))  # checked first: most characters are not among them
# This and the next read a reversed text: the first match is the last one of the text.
_MARKER = re.compile(
    rf"####|:(?-i:A)(?=[\s*]|\Z)|(?=[{_LAST_LETTERS}])(?:{'|'.join(word[::-1] for word in _WORDS)})", re.IGNORECASE
)
# The same for a text with only the English word: one character of eight may end a marker.
_ENGLISH_MARKER = re.compile(r"[#:rRsS](?:(?<=#)###|(?<=:)A(?=[\s*]|\Z)|(?i:(?<=r)ewsna|(?<=s)rewsna))")
_OTHER_WORDS = tuple(word for word in _WORDS if not word.startswith("answer"))
_OTHER_ASCII_WORDS = tuple(filter(str.isascii, _OTHER_WORDS))
# What must follow such a word, read forwards: at most some characters.
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
# A line that is only "Final answer", with the answer below it.
_HEADING = re.compile(r"[*_` ]{0,4}\n")
_BEFORE_HEADING = re.compile(r"[#*_`> ]*(?:(?:the |my )?final )?", re.IGNORECASE)
_MAX_LEAD = 24
# Text before a marker that belongs to it: decoration, a bullet or number, "my final".
_LEAD = re.compile(
    r"(?:(?:[-\s*_`>#\u2022]|\(?[a-z0-9][.)]\s|(?<!\w)(?:the|my|final|correct)(?!\w)){1,12})?\Z", re.IGNORECASE
)
_JOINT = re.compile(r"(?:[,;]?\s{0,2}(?P<word>and|or)|(?P<comma>[,;\uff0c\u3001\uff1b]))\Z")
# Other text that may precede a marker on its line; in "step answer: 5" the answer is another one.
_BEFORE_LEAD = re.compile(r"(?<!\w)(?:so|thus|hence|therefore|then)[\s,:]{0,3}\Z", re.IGNORECASE)
_WORD_BEFORE = re.compile(r"\w[^\S\n]{0,3}\Z")
_WRONG = ("wrong", "incorrect")
# An answer that its sentence, or the next one, replaces: "41. Wait, no, 42."
_VALUE = r"(?:\\?\$)?[-+\u2212]?[0-9][0-9.,/]{0,30}%?|\$[^$\n]{1,60}\$"
_REPLACED = re.compile(
    rf"[\s*:]{{0,4}}(?:{_VALUE})[\s.,;(\u2026\u2013\u2014-]{{1,6}}"
    r"(?:(?:wait|no|hmm|oops|sorry|actually|correction|scratch\sthat|or\srather|I\smean(?:t)?|make\sthat)\b"
    r"[\s,.:;!\u2026\u2013\u2014-]{1,4}){1,4}"
    r"(?:(?:it|that|this|the\sanswer)(?:['\u2019]s|\s(?:is|was|should\sbe|must\sbe|would\sbe))\s|should\sbe\s)?"
    rf"(?P<value>{_VALUE})[.!)*\s]{{0,6}}\Z",
    re.IGNORECASE,
)
_MAX_REPLACED = 200
_LETTERS = 4  # letters of a marker, with which another one of its kind must begin
_NEAR = 200  # characters at the end of a text that are searched first: most markers are there
_MAX_MARK = max(map(len, _WORDS)) + 1  # characters that the search for a marker reads from its match on
# The end of the last line of most responses with a marker: the marker and a numeral, without markup to close.
_AT_END = re.compile(
    r"(?:(?P<sign>A:|####)|(?P<word>[Aa]nswer)(?: is(?=[: ]):?|:)(?:\*\*)?) ?"
    r"(?P<numeral>[-+]?[0-9]++(?>(?:[.,/][0-9]++)*)%?)\.?"
)


def _has_marker(text: str) -> bool:
    """Whether there is a marker, also one without an answer."""
    return next(_marks(text), None) is not None


def _numeral_at_end(text: str) -> str:
    """The numeral after a marker if they are the last line of a text, and no earlier marker is of the same kind."""
    end = text.rstrip()
    line = end.rfind("\n") + 1
    word = end.rfind("nswer", line) - 1
    start = word if word >= line else line
    said = _AT_END.fullmatch(end, start)
    if said is None or (said["sign"] and start > line):
        return ""
    begins = (said["sign"] or said["word"])[:_LETTERS].lower()
    return "" if begins in end[:start].lower() else said["numeral"]


def _last_marked(text: str) -> tuple[str, int]:
    """The answer of the last marker that has one, or of the last ones together; and the work done."""
    size = later = len(text)
    marks = 0
    for start, begin, marks in _marks(text):
        if begin > later:
            continue
        said = _unwrapped(text[max(0, start - MAX_BEFORE) : start], text[begin:later])
        replaced = _REPLACED.match(said) if len(said) <= _MAX_REPLACED else None
        answer = phrase(replaced["value"]) if replaced else _answer(text, begin, said)
        if answer:
            joined = _with_those_before(text, answer, start, begin)
            return joined, 2 * (size - start) + marks
        later = start
    return "", 2 * size + marks


def _answer(text: str, begin: int, said: str) -> str:
    """The answer at the start of the text after a marker; empty if there is none, or the text takes it back."""
    answer = (_LINE_BREAK.search(said) and listed_below(said)) or phrase(said)
    # "Answer: correct" is an answer, "the answer is correct" is not.
    judged = text[begin - 1] not in ":=\uff1a\n#" and judges(answer)
    if not says_something(answer) or is_placeholder(answer) or judged or is_taken_back(said, answer):
        return ""
    # "Answer: 41 is wrong", but "Answer: wrong".
    return "" if answer in _WRONG and any(map(str.isdigit, said[: said.find(answer)])) else answer


def _with_those_before(text: str, last: str, start: int, begin: int) -> str:
    """The answer of a marker with those of the markers before it that it is joined to."""
    answers, links = [last], list[str]()
    for _ in range(MAX_JOINED - 1):
        floor = max(0, start - MAX_WHOLE_CHARS)
        if text[start : min(begin, start + _LETTERS)].lower() not in text[floor:start].lower():
            break
        lead = _lead(text, start)
        marks = _marks(text[floor:lead])
        mark = next(marks, None)
        if mark is None:
            break
        earlier, behind = floor + mark[0], floor + mark[1]
        value, how = _joint(text[behind:lead])
        answer = phrase(value) if "\n" not in value and not has_words(value) else ""
        alike = _kind(text, earlier, behind) == _kind(text, start, begin)
        if (
            not answer
            or not alike
            or _is_described(text, earlier)
            or value.endswith((".", "?", "!"))
            or not together(answer, answers[-1], how or ",")
        ):
            break
        answers.append(answer)
        links.append(how)
        start, begin = earlier, behind
    return written(answers[::-1], links[::-1]) if links else last


def _lead(text: str, start: int) -> int:
    """The start of the text before a marker that belongs to it."""
    before = text[max(0, start - _MAX_LEAD) : start]
    lead = _LEAD.search(before)
    return start - len(before) + lead.start() if lead else start


def _is_described(text: str, start: int) -> bool:
    """Whether other words belong to a marker: "step answer: 5"."""
    before = text[max(0, start - _MAX_LEAD) : _lead(text, start)]
    return _WORD_BEFORE.search(before) is not None and not _BEFORE_LEAD.search(before)


def _kind(text: str, start: int, begin: int) -> str:
    """The letters of a marker with the text that belongs to it: "thefinalansweris"."""
    return re.sub(r"[\W_]", "", text[_lead(text, start) : begin].lower()) or text[start]


def _joint(between: str) -> tuple[str, str]:
    """The answer of a marker up to the next one, and the joint between them: "and", "or", a comma or nothing."""
    value = between.strip()
    joint = _JOINT.search(value[-8:])
    if joint is None:
        return value, ""
    return value[: len(value) - len(joint[0])].rstrip(), joint["word"] or ","


def _marks(text: str) -> Iterator[tuple[int, int, int]]:
    """The start of each marker, from the last one on, the start of its answer, and how many were examined so far."""
    size = len(text)
    last_line = -1
    for marks, mark in enumerate(_found_in(text), 1):
        start = size - mark.end()
        if last_line < 0 and text[start] == "#":
            last_line = _last_lines(text)
        begin = _marked(text, start, size - mark.start(), last_line)
        if begin is not None:
            yield start, begin, marks


def _found_in(text: str) -> Iterator[re.Match[str]]:
    """Candidates for markers in a reversed text; those near the text's end are found before the rest is searched."""
    reverse, at = text[::-1], 0
    if len(text) > _NEAR:
        # A match that begins here is read completely, so that it is the same as in the whole text.
        sure = _NEAR - _MAX_MARK
        for mark in _marker_in(text[-_NEAR:]).finditer(reverse, 0, _NEAR):
            if mark.start() >= sure:
                break
            at = mark.end()
            yield mark
        at = max(at, sure)
    yield from _marker_in(text).finditer(reverse, at)


def _last_lines(text: str) -> int:
    """The start of the last line, or of the last lines if each begins with the sign of an answer."""
    start = text.rstrip().rfind("\n") + 1
    for _ in range(MAX_JOINED if text.startswith("####", start) else 0):
        above = text[: max(0, start - 1)].rstrip()
        line = above.rfind("\n") + 1
        if not text.startswith("#### ", line) or start - line > MAX_WHOLE_CHARS:
            break
        start = line
    return start


def _marker_in(text: str) -> re.Pattern[str]:
    """The expression that finds the markers of a text."""
    lowered = text.lower()
    words = _OTHER_ASCII_WORDS if text.isascii() else _OTHER_WORDS
    for word in words:
        if word in lowered:
            return _MARKER
    return _ENGLISH_MARKER


def _marked(text: str, start: int, end: int, last_line: int) -> int | None:
    """The start of the answer of a marker; None if it is not a marker."""
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


# The stages of the search.

MAX_TAIL_CHARS = 100_000
"""Without a box, an answer is sought in so many characters at the end, not counting final white space."""

MAX_STEPS_PER_CHARACTER = 20
"""`Extraction.steps` is never more than this for each character of the response, plus 16."""
MAX_WHOLE_WORDS = 4
"""A response of one line that has more words is a sentence, not an answer."""

_BLANK = re.compile(r"\s")
_MAX_CUT = 1_000  # characters of a word that is skipped at the start of the tail
_ITEM = re.compile(r"\s*(?:[-*+\u2022]\s+)?")
# A sign of implication at the start of a line of mathematics, which is not part of it.
_SIGN = re.compile(r"\A(?:=>|[\u21d2\u2234\u2192\u27f9]|\\(?:implies|(?:Long)?[Rr]ightarrow|therefore)(?![A-Za-z]))\s*")
# A line that announces a list and begins it: "Solutions: 2" over "3".
_LABEL = re.compile(
    r"(?:(?:the|all|its|real|possible)\s){0,3}(?:solutions|roots|zeros|values)(?:\sare)?:\s*+(?P<value>\S.*)",
    re.IGNORECASE,
)
_SO = re.compile(r"(?<=[\w)}\]$])[,;]?\s(?:so|hence|therefore|thus)[,:]?\s", re.IGNORECASE)
_MAX_LINES_CHARS = 2 * MAX_JOINED * MAX_WHOLE_CHARS
# Where `str.splitlines` divides.
_LINE_BREAK = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# After a unit or a number.
_EXPONENT = re.compile(
    r"(?<=[A-Za-z0-9])(?:\$|\\\()(\^\s?(?:\{\s?(?:-?[0-9]|\\circ|\\prime|st|nd|rd|th)\s?\}|[0-9]|\\circ))\s?(?:\$|\\\))"
)
_DECORATION = " \t\r\f\v*_`"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """The answer in a response."""

    answer: str = ""
    """The answer as written, without white space around it; empty if there is none."""
    how: str = ""
    """"json", "tag", "box", "marker", "sentence", "math", "whole" or "number"; empty if there is none."""
    reason: str = ""
    """Why there is none, if that is not obvious: the response is too long, or only reasoning."""
    steps: int = dataclasses.field(default=0, compare=False, repr=False)
    """Characters and marks that were examined, for tests of linearity; see `MAX_STEPS_PER_CHARACTER`."""


def extract(text: str) -> Extraction:
    """Find the answer of a response. Never raises; linear, and at most `MAX_TEXT_BYTES` are examined.

    Args:
        text: the response; lone surrogates count as characters.
    """
    if exceeds((text,)):
        return Extraction(reason=f"the response is longer than {MAX_TEXT_BYTES:,} bytes")
    said = _without_special_tokens(spoken(text))
    if (seen := _at_once(said)) is not None:
        answer, how = seen
        return Extraction(answer=answer, how=how, steps=len(text))
    said = with_conjunctions(with_rows_in_one_line(_with_exponents_in_text(said)))
    if not said or said.isspace():
        return Extraction(reason="the response is only reasoning" if text.strip() else "", steps=len(text))
    found = _extracted(said, len(text))
    if not _may_be_taken_back(said, found):
        return found
    kept = without_retracted(said)
    steps = found.steps + kept.steps
    if kept.retracted:
        found = _extracted(kept.text, 0)
        steps += found.steps
    if found.answer in kept.retracted:
        return Extraction(reason="the response takes its answer back", steps=steps)
    return dataclasses.replace(found, steps=steps)


def _at_once(said: str) -> tuple[str, str] | None:
    """The answer of a response of a usual form, and how it was found: no other text can be the answer or retract it.

    It is the only box, or without boxes a numeral after a marker on the last line. The full search would find
    the same.
    """
    if (box := alone(said)) is not None:
        answer, end = box
        if may_end_with_object(said) or may_hold_tag(said) or is_retracted(said[end:]):
            return None
        return None if " " in answer and with_conjunctions(answer) != answer else (answer, "box")
    if '"' in said or len(said) > MAX_TAIL_CHARS or may_hold_box(said):
        return None
    if not (answer := _numeral_at_end(said)) or may_hold_tag(said):
        return None
    return None if "\\" in said and with_rows_in_one_line(said) != said else (answer, "marker")


def _may_be_taken_back(said: str, found: Extraction) -> bool:
    """Whether the text after an answer may take it back, or an earlier object may be no answer as it is taken back."""
    if found.how not in ("box", "tag"):
        return 'nswer"' in said and is_retracted(said)
    at = said.rfind(found.answer)
    return is_retracted(said[at + len(found.answer) :] if at >= 0 else said)


def _extracted(said: str, steps: int) -> Extraction:
    """The answer in a response without its reasoning, after so many steps."""
    answer, looked = json_answer(_tail(said)) if '"' in said else (None, 0)
    if answer is not None:
        found = _in_content(answer, "json") if answer else Extraction(reason="the JSON object gives no answer")
        return dataclasses.replace(found, steps=steps + found.steps + looked)
    tagged, tags = last_tagged(said)
    steps += looked + tags
    return _found(said, _STAGES, steps) if tagged is None else _between(said, tagged, steps)


def _found(said: str, stages: Sequence[tuple[str, Callable[[str], tuple[str, int]]]], steps: int = 0) -> Extraction:
    """The result of the first stage that finds anything, after so many steps before."""
    tail = ""
    for how, stage in stages:
        if how in _IN_TAIL:
            tail = tail or _tail(said)
        answer, looked = stage(tail if how in _IN_TAIL else said)
        steps += looked
        if answer:
            return Extraction(answer=answer, how=how, steps=steps)
    return Extraction(steps=steps)


def _between(said: str, tagged: Tagged, before: int) -> Extraction:
    """The answer of a tag: a box in it or after it, or the answer in its content; for joined tags, those of all."""
    joined = joined_tags(tagged)
    box, steps = _box(said[tagged.end if len(joined) > 1 else tagged.start :])
    if box:
        return Extraction(answer=box, how="box", steps=before + steps)
    found = [_of_tag(each) for each in joined]
    steps += before + sum(each.steps for each in found)
    if len(found) == 1 or not all(each.answer for each in found):
        return dataclasses.replace(found[-1], steps=steps)
    answers = [
        f"{tag.name} = {each.answer}" if tag.name and "=" not in each.answer else each.answer
        for tag, each in zip(joined, found, strict=True)
    ]
    return Extraction(answer=written(answers, [tag.link for tag in joined[1:]]), how="tag", steps=steps)


def _of_tag(tagged: Tagged) -> Extraction:
    answer, looked = json_answer(tagged.content)
    found = _in_content(tagged.content if answer is None else answer, "tag")
    return dataclasses.replace(found, steps=found.steps + looked)


def _in_content(content: str, how: str) -> Extraction:
    """The answer in a content: a box, the answer after a marker in it, or all of it if it is one line.

    In several lines with words, the answer is sought as in a response.
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


def _with_exponents_in_text(text: str) -> str:
    """A text with its exponents in plain text, so that they are not formulas: `18 cm^2` for `18 cm$^2$`."""
    return _EXPONENT.sub(r"\1 ", text) if "$^" in text or "\\(^" in text else text


def spoken(text: str) -> str:
    """A response without its reasoning."""
    spans = reasoning_spans(text)
    if not spans:
        return text
    starts = [*(start for start, _ in spans), len(text)]
    ends = [0, *(end for _, end in spans)]
    pieces = [text[end:start] for end, start in zip(ends, starts, strict=True)]
    # Nothing stands before reasoning that the output begins with, nor after reasoning that ends it.
    first, last = int(not spans[0][0]), len(pieces) - (spans[-1][1] == len(text))
    return "\n".join(pieces[first:last])


def _tail(said: str) -> str:
    """The end of a response, from the beginning of a word if there is one."""
    said = said.rstrip()
    if len(said) <= MAX_TAIL_CHARS:
        return said
    tail = said[-MAX_TAIL_CHARS:]
    if said[-MAX_TAIL_CHARS - 1].isspace():
        return tail
    blank = _BLANK.search(tail, 0, _MAX_CUT)
    # A number that is cut off is dropped.
    return tail[blank.start() :] if blank else tail.lstrip("0123456789.,/")


def has_box(text: str) -> bool:
    """Whether a text without its reasoning has a complete box that is not empty, as `extract` finds it."""
    return enclosed.has_box(spoken(text))


def _box(text: str) -> tuple[str, int]:
    answer, steps = enclosed.boxed(text)
    return answer or "", steps


def _math(text: str) -> tuple[str, int]:
    answer, steps = last_formulas(text)
    if answer:
        return answer, steps
    lines, introduced, looked = _formula_lines(text)
    return (of_rows(lines, introduced=introduced) if lines else ""), steps + looked


def _formula_lines(text: str) -> tuple[list[str], bool, int]:
    """The last lines without words; whether they are preceded by nothing or by a colon; and the work done."""
    end = text.rstrip()[-_MAX_LINES_CHARS:]
    above, lines, dashed = end.splitlines(), collections.deque[str](), collections.deque[bool]()
    while above and len(lines) < MAX_JOINED:
        line = _SIGN.sub("", without_bold(_ITEM.sub("", above[-1], count=1)).strip(_DECORATION))
        if line:
            if len(line) > MAX_WHOLE_CHARS or enclosed.opens_box(line) or has_words(line) or not says_something(line):
                break
            lines.appendleft(line.rstrip("."))
            dashed.appendleft(above[-1].lstrip().startswith("- "))
        above.pop()
    if dashed.count(True) == 1:  # a list has several bullets: this is a minus
        at = dashed.index(True)
        lines[at] = f"-{lines[at]}"
    if lines and above and (label := _LABEL.fullmatch(above[-1].strip(_DECORATION))):
        value = label["value"].strip(_DECORATION)
        if len(value) <= MAX_WHOLE_CHARS and not has_words(value) and says_something(value):
            return [value, *lines], True, len(end)
    return list(lines), not above or above[-1].rstrip().endswith(":"), len(end)


def _whole(text: str) -> tuple[str, int]:
    line = text.strip()
    if len(line) > MAX_WHOLE_CHARS or "\n" in line or enclosed.opens_box(line) or words(line) > MAX_WHOLE_WORDS:
        return "", 0
    if _has_marker(line):
        return "", 2 * len(line)  # the marker search has examined it, and found no answer: "the answer is not 5"
    answer = phrase(_concluded(line))
    if not says_something(answer) or judges(answer):
        return "", 2 * len(line)
    numbers = last_numerals(answer, 1)
    denied = bool(numbers) and ruled_out_in_line(answer, numbers[0].start, numbers[0].start + len(numbers[0].text))
    return ("" if denied or is_taken_back(line, answer) else answer), 3 * len(line)


def _concluded(line: str) -> str:
    """The conclusion of a line without other words: "x = 5" of "x + 2 = 7, so x = 5"; otherwise the whole line."""
    *_, end = (0, *(end.end() for end in _SO.finditer(line)))
    return line[end:] if any(map(str.isdigit, line[end:])) and not has_words(line[end:]) else line


def _number(text: str) -> tuple[str, int]:
    """The formula with the last number that is not ruled out, and the formulas that it is joined to.

    An earlier occurrence of a number that is ruled out is not the answer either.
    """
    wrong: set[str] = set()
    text = before_condition(with_commas_for_rows(text))
    numbers = last_numerals(text, MAX_RULED_OUT + 1)
    for at, number in reversed(list(enumerate(numbers))):
        end = number.start + len(number.text)
        if number_ruled_out(text, number.start, end):
            wrong.add(number.text)
        elif number.text not in wrong:
            answer = _around(text, numbers[: at + 1], wrong)
            if answer:
                return answer, len(text)
            wrong.add(number.text)
    return "", len(text)


def _around(text: str, numbers: Sequence[Numeral], wrong: Set[str]) -> str:
    """The formula with the last of some numbers, or the number with those that it is joined to."""
    number = numbers[-1]
    if formulas := [formula for formula in formulas_around(text, number) if formula.content not in wrong]:
        return chosen(text, formulas)[0]
    if tied := tied_number(text, number):
        return tied
    answer = numbers_joined(text, numbers)
    if answer != number.text:
        return answer
    return ("-" if is_negated(text, number.start) else "") + with_changing_words(text, number)


_STAGES = (
    *(("box", _box), ("marker", _last_marked), ("sentence", stated), ("math", _math), ("sentence", ending)),
    *(("whole", _whole), ("number", _number)),
)
_IN_TAIL = frozenset({"marker", "sentence", "math", "number"})
