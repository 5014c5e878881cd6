"""Files of pairs: what a record is, and what is said of a line that is none."""

import io
import json
from typing import Any

import pytest

from crucible_bridge.types import GradeItem
from crucible_worker.cli.pairs import PairLine, read_pairs
from crucible_worker.datasets.jsonl import MAX_LINE_BYTES
from tests.tables import rows


def _read(*lines: Any) -> list[PairLine]:
    texts = (line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    return list(read_pairs(io.BytesIO(b"".join(text + b"\n" for text in texts))))


def test_a_record_is_an_item():
    """A pred is an answer, a response all that was said; a gold is a text or several; other keys are left alone."""
    lines = _read(
        {"id": "a", "gold": "1/2", "pred": "0.5", "label": True},
        {"id": 7, "gold": ["1", "one"], "response": "so \\boxed{1}"},
    )

    assert lines == [
        PairLine(number=1, id="a", item=GradeItem(answer="0.5", targets=("1/2",))),
        PairLine(number=2, id=7, item=GradeItem(response="so \\boxed{1}", targets=("1", "one"))),
    ]


def test_a_record_without_an_id_has_its_lines_number():
    """Lines that are empty are counted, and otherwise nothing."""
    lines = _read(b"", {"gold": "1", "pred": "1"}, b"  ", {"gold": "1", "pred": ""})

    assert [(line.number, line.id) for line in lines] == [(2, 2), (4, 4)]


def test_a_byte_order_mark_is_no_part_of_the_first_record():
    """Files of some editors begin with one."""
    (line,) = _read(b'\xef\xbb\xbf{"gold": "1", "pred": "1"}')

    assert line.item is not None


@rows(
    ("said", "text", "replaced"),
    [
        (b"\xff5", "\ufffd5", 1),
        (b"\\ud8005\\udc00", "\ufffd5\ufffd", 2),
        (b"\\ud83d\\ude00", "\U0001f600", 0),
        ("\ufffd".encode(), "\ufffd", 0),
    ],
)
def test_what_is_not_utf_8_in_what_a_model_said_is_replaced(said: bytes, text: str, replaced: int):
    """The record is graded as any other, and its item says how much was replaced."""
    pred, response = _read(b'{"gold": "5", "pred": "%b"}' % said, b'{"gold": "5", "response": "%b"}' % said)

    assert pred.item == GradeItem(answer=text, targets=("5",), replaced=replaced)
    assert response.item == GradeItem(response=text, targets=("5",), replaced=replaced)


@rows(
    ("line", "problem"),
    [
        (b"1/2", "is not JSON: Extra data at character 2"),
        (b"[1]", "is a list, not an object"),
        (b'{"gold": "\xff", "pred": "1"}', 'has a "gold" that is not UTF-8'),
        (b'{"gold": "1", "pred": "1", "id": "\xff"}', 'has an "id" that is not UTF-8'),
        (b'{"gold": "1", "gold": "2", "pred": "1"}', "has the key 'gold' twice"),
        (b'{"gold": ["1", "\\ud800"], "pred": "1"}', 'has a "gold" that is not UTF-8'),
        ({"pred": "1"}, 'has no "gold"'),
        ({"gold": "1"}, 'has neither "pred" nor "response"'),
        ({"gold": "1", "pred": "1", "response": "1"}, 'has both "pred" and "response"'),
        ({"gold": 1, "pred": "1"}, 'has a "gold" that is a number, not text'),
        ({"gold": ["1", None], "pred": "1"}, 'has a "gold" that holds null, not text'),
        ({"gold": [], "pred": "1"}, 'has a "gold" that is an empty list'),
        ({"gold": "1", "pred": None}, 'has a "pred" that is null, not text'),
        ({"gold": "A", "pred": "A", "choices": "red"}, 'has "choices" that is text, not a list of texts'),
        ({"gold": "A", "pred": "A", "choices": [None]}, 'has "choices" that holds null or NaN, not text'),
        (
            {"gold": "A", "pred": "A", "choices": ["red", "blue"], "labels": ["1"]},
            'has 1 labels in "labels" for 2 choices',
        ),
        (
            {"gold": 2, "pred": "A", "choices": ["red", "blue"]},
            'has "gold" that is 2, the index of a choice, and there are 2 choices, from 0; if it is a label, name the '
            "column of the labels with labels=COLUMN",
        ),
        ({"gold": "1", "response": ["1"]}, 'has a "response" that is a list, not text'),
        ({"gold": "1", "pred": "1", "id": 1.5}, 'has an "id" that is a number, neither text nor a whole number'),
        ({"gold": "1", "pred": "1", "id": True}, 'has an "id" that is a boolean, neither text nor a whole number'),
        pytest.param(
            b"x" * MAX_LINE_BYTES,
            f"is longer than {MAX_LINE_BYTES:,} bytes: one object a line is needed",
            id="too long",
        ),
    ],
)
def test_a_line_that_is_no_record_says_why(line: Any, problem: str):
    """It has no item and no id; the lines around it are what they are."""
    good = {"gold": "1", "pred": "1"}

    before, bad, after = _read(good, line, good)

    assert bad == PairLine(number=2, problem=problem)
    assert (before.number, after.number) == (1, 3)
    assert before.item == after.item == GradeItem(answer="1", targets=("1",))


@rows(
    ("fields", "targets", "labels"),
    [
        ({"gold": "B"}, ("B",), ()),
        ({"gold": 1}, ("B",), ()),
        ({"gold": ["A", "blue"]}, ("A", "blue"), ()),
        ({"gold": "2", "labels": ["1", "2"]}, ("2",), ("1", "2")),
        ({"gold": 1, "labels": ["x", "y"]}, ("y",), ("x", "y")),
        ({"gold": "2", "choices": {"text": ["red", "blue"], "label": ["1", "2"]}}, ("2",), ("1", "2")),
    ],
)
def test_choices_are_read_as_those_of_a_sample(fields: Any, targets: Any, labels: Any):
    """A list of texts, or texts with labels; a gold that is a number is an index."""
    (line,) = _read({"pred": "B", "choices": ["red", "blue"], **fields})

    assert line.item == GradeItem(answer="B", targets=targets)
    assert (line.choices.texts, line.choices.labels) == (("red", "blue"), labels)
    assert _read({"gold": "1", "pred": "1", "choices": []})[0].choices.texts == ()
