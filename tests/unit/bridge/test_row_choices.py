"""What an answer of a row means next to choices and their labels, in the shapes of well-known data sets."""

from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Dataset, InlineDataset, MalformedRow, RowReader, Sample
from crucible_bridge.types.row_choices import text_of
from tests.tables import rows

BLOOD = ["B", "A", "O", "AB"]
ARC = {"input": "question", "choices": "choices.text", "labels": "choices.label", "target": "answerKey"}
CITIES = ["Rome", "Paris", "Oslo", "Bern"]


def read(columns: dict[str, str], *given: dict[str, Any], typed: bool = True) -> list[Sample]:
    """The samples of rows."""
    reader = RowReader(columns, field="dataset.file", cure="name the columns", typed=typed)
    return [reader.sample(row) for row in given]


@rows(
    ("columns", "row", "targets", "labels"),
    [
        # MMLU: an integer.
        ({}, {"question": "q", "choices": CITIES, "answer": 1}, ("B",), ""),
        ({}, {"question": "q", "choices": BLOOD, "answer": 0}, ("A",), "ABCD"),
        ({}, {"question": "q", "choices": BLOOD, "answer": 2}, ("C",), ""),
        ({}, {"question": "q", "choices": ["a", "(b)"], "answer": 0}, ("A",), ""),
        ({}, {"question": "q", "choices": ["b", "a."], "answer": 0}, ("A",), "AB"),
        ({}, {"question": "q", "choices": ["A", "B", "C"], "answer": 2}, ("C",), ""),
        ({}, {"question": "q", "choices": [1, 2, 3], "answer": 2}, ("C",), ""),
        ({}, {"question": "q", "choices": CITIES, "answer": [0, 2]}, ("A", "C"), ""),
        # pandas has no integers next to missing values.
        ({}, {"question": "q", "choices": CITIES, "answer": 1.0}, ("B",), ""),
        ({}, {"question": "q", "choices": ["0.5", "1.5"], "answer": 1.5}, ("1.5",), ""),
        # ARC: labels with the choices, as letters and as numbers.
        (ARC, {"question": "q", "choices": {"text": CITIES, "label": list("ABCD")}, "answerKey": "B"}, ("B",), "ABCD"),
        (ARC, {"question": "q", "choices": {"text": CITIES, "label": list("1234")}, "answerKey": "2"}, ("2",), "1234"),
        (ARC, {"question": "q", "choices": {"text": CITIES, "label": [1, 2, 3, 4]}, "answerKey": 2}, ("2",), "1234"),
        (ARC, {"question": "q", "choices": {"text": CITIES, "label": list("ABCD")}, "answerKey": 2}, ("C",), "ABCD"),
        ({}, {"question": "q", "choices": {"text": BLOOD, "label": list("ABCD")}, "answer": "A"}, ("A",), "ABCD"),
        (
            {"input": "question", "choices": "choices.text", "target": "answerKey"},
            {"question": "q", "choices": {"text": CITIES, "label": list("1234")}, "answerKey": "2"},
            ("2",),
            "1234",
        ),
        # CommonsenseQA.
        (
            {"input": "question", "choices": "choices", "target": "answerKey"},
            {"question": "q", "choices": {"label": list("ABCDE"), "text": list("vwxyz")}, "answerKey": "E"},
            ("E",),
            "ABCDE",
        ),
        # HellaSwag: an index as text.
        (
            {"input": "ctx", "choices": "endings", "index": "label"},
            {"ctx": "q", "endings": CITIES, "label": "3"},
            ("D",),
            "",
        ),
        (
            {"input": "ctx", "choices": "endings", "target": "label"},
            {"ctx": "q", "endings": CITIES, "label": "3"},
            ("3",),
            "",
        ),
        # PIQA.
        (
            {"input": "goal", "choices": "sol", "target": "label"},
            {"goal": "q", "sol": ["x", "y"], "label": 1},
            ("B",),
            "",
        ),
        # BoolQ.
        ({}, {"question": "q", "answer": True}, ("true",), ""),
        ({}, {"question": "q", "choices": ["False", "True"], "answer": True}, ("True",), ""),
        ({}, {"question": "q", "choices": ["no", "yes"], "answer": True}, ("true",), ""),
        ({}, {"question": "q", "choices": ["True", "true"], "answer": True}, ("true",), ""),
        # A number without choices is itself.
        ({}, {"question": "q", "answer": 2}, ("2",), ""),
        ({}, {"question": "q", "choices": [str(n) for n in range(30)], "answer": 29}, ("29",), ""),
    ],
)
def test_an_answer_next_to_choices(columns: dict[str, str], row: dict[str, Any], targets: Any, labels: str) -> None:
    """A label, an index from 0, or a text; an index keeps its meaning where its letter is another choice."""
    (sample,) = read(columns, row)

    assert (sample.targets, sample.choice_labels) == (targets, tuple(labels))


@rows(
    ("row", "says"),
    [
        ({"choices": CITIES, "answer": 4}, 'has "answer" that is 4, the index of a choice, and there are 4 choices'),
        ({"choices": CITIES, "answer": -1}, 'has "answer" that is -1, the index of a choice'),
        ({"choices": CITIES, "answer": 4.0}, 'has "answer" that is 4, the index of a choice'),
        ({"choices": CITIES, "answer": float("nan")}, 'has "answer" that is nan, not a finite number'),
        ({"choices": CITIES, "answer": None}, 'has "answer" that holds null or NaN, not text'),
        ({"choices": {"text": CITIES, "label": ["A"]}, "answer": 0}, 'has 1 labels in "choices.label" for 4 choices'),
        ({"choices": {"text": ["x", "y"], "label": ["A", "A"]}, "answer": 0}, "has the label 'A' twice"),
        ({"choices": {"text": CITIES, "label": "ABCD"}, "answer": 0}, 'has "choices.label" that is text, not a list'),
    ],
)
def test_an_answer_that_means_no_choice_is_malformed(row: dict[str, Any], says: str) -> None:
    """With the column, the value and how many choices there are."""
    with pytest.raises(MalformedRow, match=says.replace("(", r"\(")):
        read({}, {"question": "q", **row})


@rows("value", ["", "x", "-1", 1.5, True, None, "4", 4])
def test_a_column_of_indices_has_nothing_else(value: Any) -> None:
    """What is no index of a choice is malformed, whatever its type."""
    with pytest.raises(MalformedRow, match=r'has "label" that is .*index of a choice'):
        read({"input": "q", "choices": "c", "index": "label"}, {"q": "a", "c": CITIES, "label": value})


def test_csv_does_not_tell_an_index_from_a_text() -> None:
    """A cell with two readings is malformed, and the error names both and the cure; one reading is that one."""
    row = {"question": "q", "choices": ["1", "2", "3"], "answer": "1"}
    with pytest.raises(MalformedRow, match="the text of choice 0, or the index of choice 1: name the column"):
        read({}, row, typed=False)

    assert read({}, row)[0].targets == ("1",)
    assert read({}, row | {"answer": "3"}, typed=False)[0].targets == ("3",)
    assert read({}, row | {"choices": ["0", "1"]}, typed=False)[0].targets == ("1",)
    mapped = {"input": "question", "choices": "choices", "index": "answer"}
    assert read(mapped, row, typed=False)[0].targets == ("B",)


@rows(
    ("columns", "says"),
    [
        ({"input": "q", "labels": "l"}, 'has "labels" without "choices"'),
        ({"input": "q", "index": "l"}, 'has "index" without "choices"'),
        ({"input": "q", "choices": "c", "index": "l", "target": "t"}, 'has both "target" and "index"'),
    ],
)
def test_a_mapping_that_cannot_be_meant_is_refused(columns: dict[str, str], says: str) -> None:
    """Labels and indices belong to choices, and only one column has the answer."""
    text = "&".join(f"{key}={column}" for key, column in columns.items())
    with pytest.raises(InvalidField, match=says):
        Dataset.of(f"jsonl:a.jsonl?{text}")


@rows(
    ("value", "text"),
    [
        (42.0, "42"),
        (1e5, "100000"),
        (0.1, "0.1"),
        (-0.0, "0"),
        (-3.0, "-3"),
        (1e22, "1e+22"),
        (1e16, "1e+16"),
        (1e15, "1" + 15 * "0"),
        (2.0**53 - 1, "9007199254740991"),
        (10**30, "1" + 30 * "0"),
        (1e-7, "1e-07"),
        (True, "true"),
        (42, "42"),
        ("42.0", "42.0"),
    ],
)
def test_a_number_has_one_text(value: Any, text: str) -> None:
    """A whole float is its integer as long as its digits are known."""
    assert text_of(value, "answer") == text


def test_columns_of_pandas_are_what_their_integers_were() -> None:
    """A column of integers with a missing value is one of floats: answers, ids and indices are read as integers."""
    dataset = Dataset.of(
        [
            {"question": "a", "answer": np.float64(42.0), "id": 1.0, "note": float("nan")},
            {"question": "b", "answer": 0.5, "id": 2.0, "choices": None},
            {"question": "c", "answer": 1.0, "id": 3.0, "choices": np.array(["x", "y"])},
        ]
    )

    assert isinstance(dataset.source, InlineDataset)
    assert [sample.targets for sample in dataset.source.samples] == [("42",), ("0.5",), ("B",)]
    assert [sample.id for sample in dataset.source.samples] == ["1", "2", "3"]
    assert dataset.source.samples[0].metadata == {}


def test_an_id_that_is_a_fraction_is_malformed() -> None:
    """Only whole floats are integers."""
    with pytest.raises(MalformedRow, match='has an "id" that is a number, not text'):
        read({}, {"input": "a", "id": 1.5})
