r"""Pairs to grade from JSON lines: one object per line, UTF-8.

    {"id": "a", "gold": "1/2", "pred": "0.5"}
    {"id": 7, "gold": ["1/2", "0.5"], "response": "... so the answer is \\boxed{\\frac12}"}

`gold` is a right answer, or several of which any is right; for programs a test, or several that must all pass, see
`crucible_worker.grading.code.records`. `pred` is an answer alone, `response` a model's whole response.
An id is text or a whole number and is returned unchanged; a record without one has the number of its line. Empty lines
do not count.

    {"gold": "B", "response": "It is (B).", "choices": ["Rome", "Paris"]}
    {"gold": "2", "response": "2", "choices": {"text": ["Rome", "Paris"], "label": ["1", "2"]}}

`choices`, with `labels` where the record has them, are those of the question, as a sample has them: a gold that is a
number is then the index of a choice. Only some graders read them. Other keys are not read, as files of pairs have
prompts, labels, weights and more.

A response may be any bytes: one that is not UTF-8, or half a surrogate pair, becomes U+FFFD, and the item has the
number of them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from crucible_bridge.types import CodeItem, GradeItem
from crucible_bridge.types.code_tests import BadTests, read_tests
from crucible_bridge.types.row_choices import MalformedRow, RowChoices
from crucible_worker.datasets.jsonl import MalformedLine, bounded_lines, kind_of, parsed_line

__all__ = ["PairLine", "read_pairs"]

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PairLine:
    """A line of a file of pairs."""

    number: int
    """From 1."""
    id: str | int | None = None
    """The record's id, or the line's number; None if the line is not a record."""
    item: GradeItem | CodeItem | None = None
    """The item to grade; None if the line is not a record."""
    problem: str = ""
    """What is wrong with it, as a continuation of "line 17 "."""
    choices: RowChoices = RowChoices()
    """The choices of the question, if the record has some, with their labels."""

    @property
    def chars(self) -> int:
        """The length of the response."""
        match self.item:
            case None:
                return 0
            case CodeItem(response=response):
                return len(response)
            case item:
                return len(item.text)


def read_pairs(file: BinaryIO, *, code: bool = False) -> Iterator[PairLine]:
    """Every line that is not empty, in order; a line that is not a pair has its problem. `code`: pairs of programs.

    Raises:
        MalformedLine: a line does not end within `jsonl.MAX_SKIPPED_BYTES`.
    """
    for number, raw in enumerate(bounded_lines(file), start=1):
        if raw is not None and not raw.strip():
            continue
        try:
            record = parsed_line(raw, any_bytes=True)
            item, choices = (_program(record), _choices(record)) if code else _item(record)
            yield PairLine(number=number, id=_id(record, number), item=item, choices=choices)
        except (MalformedLine, MalformedRow) as error:
            yield PairLine(number=number, problem=str(error))


def _id(record: Mapping[str, Any], number: int) -> str | int:
    given = record.get("id", number)
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise MalformedLine(f'has an "id" that is {kind_of(given)}, neither text nor a whole number')
    if isinstance(given, str) and _SURROGATE.search(given):
        raise MalformedLine('has an "id" that is not UTF-8')
    return given


def _choices(record: Mapping[str, Any]) -> RowChoices:
    if record.get("choices") is None:
        return RowChoices()
    choices = RowChoices.of(record["choices"], "choices", record.get("labels"), "labels")
    if any(_SURROGATE.search(text) for text in (*choices.texts, *choices.labels)):
        raise MalformedLine('has "choices" that are not UTF-8')
    return choices


def _item(record: Mapping[str, Any]) -> tuple[GradeItem, RowChoices]:
    key, text, replaced = _response_of(record)
    choices = _choices(record)
    if choices.texts:
        targets, labels = choices.targets(_golds(record), "gold")
        record, choices = {**record, "gold": list(targets)}, RowChoices(choices.texts, labels)
    targets = _targets(record)
    if key == "pred":
        return GradeItem(answer=text, targets=targets, replaced=replaced), choices
    return GradeItem(response=text, targets=targets, replaced=replaced), choices


def _program(record: Mapping[str, Any]) -> CodeItem:
    _, text, replaced = _response_of(record)
    if "gold" not in record:
        raise MalformedLine('has no "gold"')
    gold = record["gold"]
    try:
        prefix, tests = read_tests(gold if isinstance(gold, list) else [gold])
    except BadTests as error:
        raise MalformedLine(f'has a "gold": {error}') from None
    return CodeItem(response=text, prefix=prefix, tests=tests, replaced=replaced)


def _response_of(record: Mapping[str, Any]) -> tuple[str, str, int]:
    """The key, the text, and the number of U+FFFD in it that replace bytes that were not UTF-8."""
    given = [key for key in ("pred", "response") if key in record]
    if len(given) != 1:
        raise MalformedLine(f'has {"both" if given else "neither"} "pred" {"and" if given else "nor"} "response"')
    said = record[given[0]]
    if not isinstance(said, str):
        raise MalformedLine(f'has a "{given[0]}" that is {kind_of(said)}, not text')
    return given[0], *_SURROGATE.subn("\ufffd", said)


def _golds(record: Mapping[str, Any]) -> list[Any]:
    if "gold" not in record:
        raise MalformedLine('has no "gold"')
    gold = record["gold"]
    return gold if isinstance(gold, list) else [gold]


def _targets(record: Mapping[str, Any]) -> tuple[str, ...]:
    targets = _golds(record)
    gold = record["gold"]
    for target in targets:
        if not isinstance(target, str):
            raise MalformedLine(f'has a "gold" that {"holds" if targets is gold else "is"} {kind_of(target)}, not text')
        if _SURROGATE.search(target):
            raise MalformedLine('has a "gold" that is not UTF-8')
    if not targets:
        raise MalformedLine('has a "gold" that is an empty list')
    return tuple(targets)
