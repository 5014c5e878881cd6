r"""The answer in a response, found from its end.

The first of these kinds that a response has, and the last one of that kind:

1. `json`: the answer in a JSON object at the end of the response; see `crucible_worker.grading.enclosed`.
2. `tag`: the text between `<answer>` and `</answer>`; see `crucible_worker.grading.enclosed`. A box in it or after it
   counts instead (`box`), as does an answer after a marker in it. If the content has several lines with words, the
   answer is found as in a response.
3. `box`: the content of `\boxed{...}` or `\fbox{...}`; see `crucible_worker.grading.enclosed`.
   A last line that is labelled as the answer ("**Answer: D**", "#### 5") counts before a box above it (`marker`).
4. `marker`: the text after "the answer is", "final answer:", "answer:" (also in some other languages, and within
   `\text{}` or HTML), "A:" at the start of a line, or "####" on the last line, or the text before "is the answer";
   see `crucible_worker.grading.marker`, and `crucible_worker.grading.phrase` for where it ends.
5. `sentence`: a statement of the last paragraph: the right choice, that there is no solution, Yes or No as its first
   word; see `crucible_worker.grading.statement`.
6. `math`: the last formula between `$`, `$$`, `\(` and `\)`, `\[` and `\]`, see `crucible_worker.grading.formulas`; or
   a last line without words.
7. `sentence`: the end of the last sentence: a time, an amount with its unit, a name.
8. `whole`: the response itself, if it is one short line of at most four words.
9. `number`: the last number, as `crucible_worker.grading.numbers` reads it, or the formula in plain text that it is
   in, see `crucible_worker.grading.formulas`.

An answer that the response only mentions ("I don't think the answer is 12") does not count, as
`crucible_worker.grading.scope` says; nor does a number if the response says that it has no answer.
An answer that the response takes back (`<answer>41</answer> is wrong`) does not count, as
`crucible_worker.grading.enclosed` says.

Placeholders of the form that a prompt asks for (`<answer>...</answer>`, `\boxed{your answer}`, `Answer: $Answer`) are
no answers, nor are formulas and numbers that the text rules out ("it is not 5").

Reasoning is not part of the answer, see `crucible_worker.util.reasoning`: text in `<think>...</think>`, text before a
`</think>` that was not opened in the response; a block that is never closed reaches to the end.

Reading stops at the turn of another speaker (`<|im_start|>user`), at the end of the text (`<|endoftext|>`), and at a
new question after an answer.

Every stage scans the response at most once, and only if the previous one found nothing. Boxes are searched among the
last `enclosed.MAX_BRACES` braces, all else in the last `MAX_TAIL_CHARS` characters: earlier answers are not found.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Callable, Sequence, Set

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
from crucible_worker.grading.marker import final_line, has_marker, last_marked, numeral_at_end, without_exclamation
from crucible_worker.grading.numbers import Numeral, is_negated, last_numerals, with_changing_words
from crucible_worker.grading.phrase import (
    MAX_WHOLE_CHARS,
    has_words,
    judges,
    of_rows,
    phrase,
    says_something,
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
    with_conjunctions,
    written,
)
from crucible_worker.grading.scope import declines, is_asked
from crucible_worker.grading.statement import ending, stated
from crucible_worker.grading.turns import first_turn
from crucible_worker.util.reasoning import reasoning_spans

__all__ = ["MAX_STEPS_PER_CHARACTER", "MAX_TAIL_CHARS", "Extraction", "extract", "has_box", "spoken"]

_SPECIAL = re.compile(
    r"(?:<\|(?!end_of_(?:box|answer|solution)\|)[A-Za-z_.-]{1,40}\|>|<\uff5c[^<>]{1,40}\uff5c>|</s>|<eos>"
    r"|<end_of_turn>|\s)+\Z"
)
_MAX_SPECIAL = 200
_MAX_LABEL = 40
# A question that a model asks itself after its answer.
_QUESTION = re.compile(
    r"\n[\s*_#]{0,8}+(?:Question|Q|Problem|User|Human|Instruction|Exercise|Task|Next question|New question|Frage"
    r"|Pregunta|Pergunta|Domanda|Вопрос|问题|問題|题目|질문|문제)[*_]{0,2}\s?(?P<number>[0-9]{1,3})?[*_.]{0,2}[:\uff1a]"
)


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
# "Total: 5 + 5 = 10", "Step 3: 5 + 5 = 10"; and "5 apples * $2 = $10".
_EQUATION_LABEL = re.compile(r"[^\W\d_][\w ().'\u2019-]{0,40}[:\uff1a]\s*(?=[^:\n]{1,120}=)")
_AMOUNT = r"[-+\u2212]?[$\u20ac\u00a3]?[0-9][0-9.,/]{0,20}%?(?:\s[^\W\d_]{1,20}){0,2}"
_COUNTED = re.compile(
    rf"(?:{_AMOUNT}\s?[-+*/x\u00d7\u00f7\u2212]\s?){{1,8}}{_AMOUNT}\s?=\s?(?P<result>{_AMOUNT})[.!]?", re.IGNORECASE
)
# What is said to be valid or correct, and is no answer: "the argument is valid" in place of "the answer is valid".
_JUDGED = re.compile(
    r"(?:.{0,80}\b(?:argument|syllogism|inference|proof|reasoning|statement|claim|proposition|assertion|sentence"
    r"|conclusion"
    r"|hypothesis|conjecture|theorem|formula|deduction|implication|verdict)s?\b.{0,80}(?:\b(?:is|are|was|were)|:)\s"
    r"|(?:hence|thus|therefore|so|conclusion|verdict)\s?:\s)",
    re.IGNORECASE,
)
# "There are 10 objects. Here is how they are counted:" over a list with numbers to the end of the response.
_LIST_BELOW = re.compile(r":[*_ ]{0,4}(?:\n{1,2}[ \t]{0,4}(?:[-*\u2022]|[0-9]{1,2}[.)])\s[^\n]{1,300}){2,20}\s*\Z")
_ACCOUNTS = re.compile(
    r"\b(?:breakdown|break(?:s|ing)?\s(?:\w{1,6}\s)?down|counted|here\sis\show|here['\u2019]s\show|made\sup|composed"
    r"|consists?|listed|as\sfollows)\b",
    re.IGNORECASE,
)
_MAX_ACCOUNT = 2_000
_DIGIT = re.compile(r"[0-9]")
_MAX_LINES_CHARS = 2 * MAX_JOINED * MAX_WHOLE_CHARS
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
    said = _without_special_tokens(_without_questions(spoken(text)))
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
        behind = said[end:]
        if may_end_with_object(said) or may_hold_tag(said) or is_retracted(behind) or final_line(behind):
            return None
        return None if " " in answer and with_conjunctions(answer) != answer else (answer, "box")
    if '"' in said or len(said) > MAX_TAIL_CHARS or may_hold_box(said):
        return None
    if not (answer := numeral_at_end(said)) or may_hold_tag(said):
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
        if answer and how == "box" and (line := _line_after_box(said, answer)):
            answer, how = line, "marker"
        if answer and how in _IN_PROSE and any(map(str.isdigit, answer)) and declines(said):
            return Extraction(reason="the response says that it has no answer", steps=steps)
        if answer:
            return Extraction(answer=answer, how=how, steps=steps)
    return Extraction(steps=steps)


def _line_after_box(said: str, box: str) -> str:
    """The answer of a last line that is labelled as the answer, if it is not in the box before it; otherwise empty."""
    line = final_line(said)
    return "" if not line or _is_part(line, box) or _is_part(box, line) else line


def _is_part(part: str, text: str) -> bool:
    """Whether a text has a part, and not only within a number or a word."""
    return part in text and re.search(rf"(?<![\w.]){re.escape(part)}(?!\w|[.,]\d)", text) is not None


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


def _without_special_tokens(text: str) -> str:
    """A response without the special tokens of a model at its end: `42<|im_end|>`."""
    if not text.rstrip().endswith(">"):
        return text
    cut = max(0, len(text) - _MAX_SPECIAL)
    match = _SPECIAL.search(text[cut:])
    return text[: cut + match.start()] if match else text


def _without_questions(text: str) -> str:
    """A response up to the next question that the model asks itself after an answer: "#### 18", "Question: ...".

    A question with a number counts only if no other one is before it: a response may answer several.
    """
    begin, numbered = 0, _QUESTION.match("\n" + text[:_MAX_LABEL]) is not None
    for question in _QUESTION.finditer(text):
        before = text[begin : question.start()]
        if not (numbered and question["number"]) and (last_marked(_tail(before))[0] or enclosed.has_box(before)):
            return text[: question.start()]
        begin, numbered = question.start(), True
    return text


def spoken(text: str) -> str:
    """A response without its reasoning, up to the turn of another speaker."""
    text = first_turn(text)
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
    if len(line) > MAX_WHOLE_CHARS or "\n" in line or enclosed.opens_box(line):
        return "", 0
    if has_marker(line):
        return "", 2 * len(line)  # the marker search has examined it, and found no answer: "the answer is not 5"
    if "?" in line[:-1]:
        return "", len(line)  # several sentences: "How many? 5"
    said = _concluded(line)
    if words(said) > MAX_WHOLE_WORDS or is_asked(line, 0, len(line.rstrip("?\uff1f")) - 1):
        return "", 2 * len(line)
    answer = phrase(said)
    if not says_something(answer) or (judges(answer) and not _JUDGED.match(line)):
        return "", 2 * len(line)
    numbers = last_numerals(answer, 1)
    at = line.rfind(numbers[0].text) if numbers else -1
    denied = at >= 0 and (
        ruled_out_in_line(answer, numbers[0].start, numbers[0].start + len(numbers[0].text))
        or is_asked(line, at, at + len(numbers[0].text))
    )
    if denied or is_taken_back(line, answer):
        return "", 3 * len(line)
    return without_exclamation(answer, line, line), 3 * len(line)


def _concluded(line: str) -> str:
    """The conclusion of a line, otherwise the whole line.

    It is "x = 5" of "x + 2 = 7, so x = 5", the computation after a label, "Total: 5 + 5 = 10", and the result of a
    computation with words, "5 apples * $2 = $10".
    """
    *_, end = (0, *(end.end() for end in _SO.finditer(line)))
    if any(map(str.isdigit, line[end:])) and not has_words(line[end:]):
        return line[end:]
    if "=" not in line:
        return line
    said = without_bold(line)
    if (label := _EQUATION_LABEL.match(said)) and not has_words(said[label.end() :]):
        return said[label.end() :]
    counted = _COUNTED.fullmatch(said)
    return counted["result"] if counted else line


def _number(text: str) -> tuple[str, int]:
    """The formula with the last number that is not ruled out, and the formulas that it is joined to.

    An earlier occurrence of a number that is ruled out is not the answer either.
    """
    wrong: set[str] = set()
    text = before_condition(with_commas_for_rows(_before_account(text)))
    numbers = last_numerals(text, MAX_RULED_OUT + 1)
    for at, number in reversed(list(enumerate(numbers))):
        end = number.start + len(number.text)
        if number_ruled_out(text, number.start, end) or is_asked(text, number.start, end):
            wrong.add(number.text)
        elif number.text not in wrong:
            answer = _around(text, numbers[: at + 1], wrong)
            if answer:
                return without_exclamation(answer, text, text), len(text)
            wrong.add(number.text)
    return "", len(text)


def _before_account(text: str) -> str:
    """A text without the list at its end that only says how a number before it is made up."""
    begin = max(0, len(text) - _MAX_ACCOUNT)
    below = _LIST_BELOW.search(text, begin)
    if below is None or "=" in below[0]:
        return text
    line = text.rfind("\n", begin, below.start()) + 1
    intro = max(text.rfind(stop, line, below.start()) for stop in (". ", "! "))
    announced = intro >= 0 and _ACCOUNTS.search(text, intro, below.start()) and _DIGIT.search(text, line, intro)
    return text[: intro + 1] if announced else text


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
    *(("box", _box), ("marker", last_marked), ("sentence", stated), ("math", _math), ("sentence", ending)),
    *(("whole", _whole), ("number", _number)),
)
_IN_TAIL = frozenset({"marker", "sentence", "math", "number"})
_IN_PROSE = frozenset({"sentence", "math", "whole", "number"})
"""What the author of a response may not have meant as the answer."""
