"""Columns of any data set become records: found by name, converted, and refused with what there is."""

import json
import types

import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import RowReader
from crucible_worker.datasets.hub.reader import find_columns, record_of
from crucible_worker.datasets.jsonl import line_of, parsed_line
from tests.tables import rows

LETTERS = types.SimpleNamespace(names=["A", "B"])
"""As the library's type of classes tells their names."""

CHAT = {"role": "user", "content": "a"}


def record(columns, features, row):
    """The record of a row."""
    return record_of(row, find_columns(columns, features))


@rows(
    ("columns", "row", "expected"),
    [
        ({"input": "q"}, {"q": "a"}, {"input": "a"}),
        ({"input": "q", "target": "t"}, {"q": "a", "t": 4}, {"input": "a", "target": 4}),
        ({"input": "q", "target": "t"}, {"q": "a", "t": 0.5}, {"input": "a", "target": 0.5}),
        ({"input": "q", "target": "t"}, {"q": "a", "t": True}, {"input": "a", "target": True}),
        ({"input": "q", "target": "t"}, {"q": "a", "t": ["x", 2]}, {"input": "a", "target": ["x", 2]}),
        ({"input": "q", "targets": "t"}, {"q": "a", "t": "x"}, {"input": "a", "targets": "x"}),
        ({"input": "q", "id": "n"}, {"q": "a", "n": 7}, {"input": "a", "id": 7}),
        ({"input": "q", "choices": "c"}, {"q": "a", "c": ["x", 1]}, {"input": "a", "choices": ["x", 1]}),
        ({"input": "q", "metadata.k": "m"}, {"q": "a", "m": [1]}, {"input": "a", "metadata": {"k": [1]}}),
        ({"input": "q", "metadata.k": "m"}, {"q": "a", "m": None}, {"input": "a"}),
        ({}, {"input": "a", "target": "b", "other": "c"}, {"input": "a", "target": "b"}),
        ({"input": "q.x.y"}, {"q": {"x": {"y": "a"}}}, {"input": "a"}),
        ({"input": "q.x"}, {"q.x": "a"}, {"input": "a"}),
        (
            {"input": "q"},
            {"q": [{"role": "user", "content": "a", "name": None}]},
            {"input": [{"role": "user", "content": "a"}]},
        ),
        ({"input": "q"}, {"q": [CHAT], "tools": [{"name": "add"}]}, {"input": [CHAT], "tools": [{"name": "add"}]}),
        ({"input": "q"}, {"q": [CHAT], "tools": []}, {"input": [CHAT]}),
        ({"input": "q"}, {"q": "a", "tools": [{"name": "add"}]}, {"input": "a"}),
        (
            {"input": "q", "metadata.tools": "tools"},
            {"q": [CHAT], "tools": [1]},
            {"input": [CHAT], "metadata": {"tools": [1]}},
        ),
    ],
)
def test_a_row_becomes_a_record(columns, row, expected):
    """Numbers stay numbers, lists are lists, fields and dots are told apart by what there is."""
    assert record(columns, row, row) == expected


ARC = {"q": None, "c": {"text": None, "label": None}, "t": LETTERS}
"""Columns as those of ARC."""


@rows(
    ("columns", "row", "targets", "labels"),
    [
        ({"choices": "c.text", "target": "t"}, {"c": {"text": ["x", "y"], "label": ["1", "2"]}, "t": 1}, ("B",), "12"),
        ({"choices": "c", "target": "t"}, {"c": {"text": ["x", "y"], "label": ["A", "B"]}, "t": 1}, ("B",), "AB"),
        (
            {"choices": "c.text", "labels": "c.label", "index": "t"},
            {"c": {"text": ["x", "y"], "label": ["1", "2"]}, "t": 1},
            ("2",),
            "12",
        ),
        ({"choices": "c.label", "index": "t"}, {"c": {"text": ["x", "y"], "label": ["B", "A"]}, "t": 0}, ("A",), "AB"),
    ],
)
def test_choices_come_with_their_labels(columns, row, targets, labels):
    """Those next to them are used without being named, and a column of indices keeps its numbers."""
    columns = {"input": "q", **columns}
    reader = RowReader({key: key for key in columns}, field="dataset.hub", cure="")
    raw = json.dumps(record(columns, ARC, {"q": "a", **row})).encode()

    sample = line_of(1, raw, reader).sample

    assert sample is not None
    assert (sample.targets, sample.choice_labels) == (targets, tuple(labels))


@pytest.mark.parametrize(("value", "named"), [(1, "B"), (-1, None), ([0, 1], ["A", "B"])])
def test_classes_are_their_names(value, named):
    """A number that stands for a class is not told as a number; one that stands for none is null."""
    features = {"q": None, "t": types.SimpleNamespace(feature=LETTERS) if isinstance(value, list) else LETTERS}

    assert record({"input": "q", "target": "t"}, features, {"q": "a", "t": value}) == {"input": "a", "target": named}


@rows(
    ("columns", "field", "told"),
    [
        ({"input": "x"}, 'dataset.hub.columns["input"]', "q, t.u, t.v"),
        ({"input": "q", "target": "t.w"}, 'dataset.hub.columns["target"]', "q, t.u, t.v"),
        ({"input": "q.r"}, 'dataset.hub.columns["input"]', "q, t.u, t.v"),
        ({"target": "q"}, "dataset.hub.columns", "names no column for the input"),
        ({}, "dataset.hub.columns", "names no column for the input"),
    ],
)
def test_a_column_that_is_not_there_is_named(columns, field, told):
    """With those that there are, fields included."""
    with pytest.raises(InvalidField, match=told) as caught:
        find_columns(columns, {"q": None, "t": {"u": None, "v": None}})

    assert caught.value.field == field


def test_columns_of_both_kinds_of_targets_are_not_chosen_between():
    """Without names, a data set that has both leaves it open which is meant."""
    with pytest.raises(InvalidField, match="target or targets"):
        find_columns({}, {"input": None, "target": None, "targets": None})


@rows("value", [None, 3, {"a": "b"}, []])
def test_an_input_that_is_none_is_a_malformed_record(value):
    """It is said as of any file."""
    raw = json.dumps(record({"input": "q"}, {"q": None}, {"q": value})).encode()

    assert parsed_line(raw) == {"input": value}
    assert line_of(3, raw, RowReader({}, field="dataset.hub", cure="")).problem.startswith('has an "input"')
