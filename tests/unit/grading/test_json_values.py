"""JSON as an answer: where the first difference is, and hostile texts."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import ExactComparison, Verdict
from crucible_worker.grading.base import Grade
from crucible_worker.grading.json_values import BadJson, difference, json_of, read_json
from crucible_worker.grading.text import ExactMatch
from tests.tables import rows

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1_000, 1_000) | st.sampled_from((0.5, -2.0, 1e300)) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
SIZE = 900_000


def _grade(response: str, target: str) -> Grade:
    return ExactMatch(compare=ExactComparison.JSON).grade_now(response, [target])


@rows(
    ("response", "target", "reason"),
    [
        ('{"a": {"b": [1, 3]}}', '{"a": {"b": [1, 2]}}', "$.a.b[1] is 3, not 2"),
        ('{"a": {"c": 1}}', '{"a": {"b": 1}}', "$.a.b is missing"),
        ('{"a": 1, "odd key": 2}', '{"a": 1}', '$["odd key"] is not in the target'),
        ("[1, 2, 3]", "[1, 2]", "$ has 3 elements, not 2"),
        ('{"a": "1"}', '{"a": 1}', "$.a is a text, not a number"),
        ('{"a": "x"}', '{"a": "y"}', '$.a is "x", not "y"'),
        ('{"a": 1, "a": 1}', '{"a": 1}', 'the response has the key "a" twice'),
        ('{"a": Infinity}', '{"a": 1}', "the response has Infinity, which JSON has not"),
        ("none", '{"a": 1}', "the response has no JSON"),
        ('{"a": [', '{"a": 1}', "the response has JSON that does not end, or is wrong at character 7"),
    ],
)
def test_the_reason_names_the_first_difference(response: str, target: str, reason: str) -> None:
    """A wrong value is told apart by its path, and a response without a value by what it has."""
    assert _grade(response, target).reason == reason


@given(value=VALUES)
def test_a_value_equals_itself_in_other_spellings(value: object) -> None:
    """Indented, sorted, escaped and wrapped in prose a value stays the same, unless it is no object or array."""
    target = read_json(json.dumps(value))
    spelled = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)

    assert difference(target, read_json(spelled), str) == ""
    if isinstance(value, dict):
        assert difference(target, json_of(f"So:\n{spelled}\nDone.", objects_only=True), str) == ""


@given(value=VALUES, other=VALUES)
def test_values_differ_as_python_has_it(value: object, other: object) -> None:
    """Two values are equal if Python's are, with true and false apart from numbers."""
    same = value == other and _types(value) == _types(other)
    target, answer = read_json(json.dumps(value)), read_json(json.dumps(other))

    found = difference(target, answer, lambda text: text)

    if not (isinstance(other, dict) and {"answer", "finalanswer"} & {key.casefold() for key in other}):
        assert (found == "") is same


def _types(value: object) -> object:
    match value:
        case bool() | None | str():
            return type(value)
        case list():
            return [_types(item) for item in value]
        case dict():
            return {key: _types(item) for key, item in value.items()}
        case _:
            return float


@pytest.mark.parametrize(
    "unit",
    ["[", '{"a":', "{ ", "[1,", "[x ", "[1 {x ", '{"a":2}', "[[1,", '{"', "\\{", "```json ", "[1" + ",1" * 200, "[ "],
)
def test_hostile_texts_cost_their_length(unit: str) -> None:
    """A response of brackets is judged in linear time, and is wrong."""
    begin = time.process_time()
    grades = [_grade(unit * (SIZE // len(unit)), target) for target in ("[1]", '{"a": 1}')]

    assert [grade.verdict for grade in grades] == [Verdict.INCORRECT] * 2
    assert time.process_time() - begin < 5


def test_nothing_is_computed() -> None:
    """Digits and exponents without end cost their length, and a target beyond a bound is undecided."""
    begin = time.process_time()
    assert _grade(f'{{"a": {"9" * SIZE}}}', '{"a": 1}').verdict is Verdict.INCORRECT
    assert _grade(f'{{"a": 1e{"9" * SIZE}}}', '{"a": 1}').verdict is Verdict.INCORRECT
    assert _grade("1", "[" * 5_000 + "]" * 5_000).reason.endswith("is nested too deep")
    assert time.process_time() - begin < 2

    with pytest.raises(BadJson, match="not JSON"):
        read_json("{1: 2}")
