"""Tests as APPS has them are read as tests of output or as calls."""

import json
from typing import Any

import pytest

from crucible_bridge.types import InputOutputTests, OutputComparison, StdioTest
from crucible_bridge.types.code_tests import BadTests
from crucible_worker.grading.code.judging import Expected
from crucible_worker.grading.code.records import read_input_output
from tests.tables import rows

CLOSE = OutputComparison(relative_tolerance=1e-6)


def read(record: Any) -> Any:
    """The tests of an object."""
    return read_input_output(InputOutputTests(json=json.dumps(record)), 9)


def calls(record: Any) -> list[tuple[Any, Any, bool]]:
    """Arguments, value and whether an element will do, of each call of an object."""
    found = read({"fn_name": "f", **record})
    assert all(isinstance(test, Expected) and test.in_solution and test.call.function == "f" for test in found)
    return [(test.call.arguments, test.call.expected, test.or_element) for test in found]


def test_inputs_are_standard_input_as_texts_or_lines() -> None:
    """Each with the comparison of all."""
    record = {"inputs": ["1\n", ["1", "2"]], "outputs": [["3", "4"], "5"], "fn_name": None}

    found = read_input_output(InputOutputTests(json=json.dumps(record), comparison=CLOSE), 9)

    assert found == [
        StdioTest(stdin="1\n", stdout="3\n4", comparison=CLOSE),
        StdioTest(stdin="1\n2", stdout="5", comparison=CLOSE),
    ]


def test_an_element_will_do_only_where_every_output_is_a_list_of_one() -> None:
    """Otherwise the data set says what it means by its other outputs."""
    assert calls({"inputs": [[1, 2], [3]], "outputs": [[3], [[4]]]}) == [([1, 2], [3], True), ([3], [[4]], True)]
    for outputs in ([[3], 4], [[3], []], [[3], [4, 5]], ["3", [4]], [{"a": 1}, [4]]):
        assert calls({"inputs": [[1], [2]], "outputs": outputs}) == [
            ([1], outputs[0], False),
            ([2], outputs[1], False),
        ]


def test_keys_that_are_all_integers_are_integers() -> None:
    """Of an argument; a value is compared by the texts of its keys. What JSON spells in no other way is an integer."""
    rows = [
        ({"1": "a", "-20": "b", "0": "c"}, {"d": [[1, "a"], [-20, "b"], [0, "c"]]}),
        ({"1": "a", "b": "c"}, {"d": [["1", "a"], ["b", "c"]]}),
        ({"01": 1}, {"d": [["01", 1]]}),
        ({"-0": 1}, {"d": [["-0", 1]]}),
        ({"1_0": 1}, {"d": [["1_0", 1]]}),
        ({"\u0661": 1}, {"d": [["\u0661", 1]]}),
        ({"9" * 5_000: 1}, {"d": [["9" * 5_000, 1]]}),
        ({}, {"d": []}),
    ]

    assert [calls({"inputs": [[given]], "outputs": [1]})[0][0] for given, _ in rows] == [[to] for _, to in rows]


def test_no_more_tests_are_read_than_are_wanted() -> None:
    """The first of them, whatever those that follow are."""
    for text in (
        '{"inputs": ["a", "b", 1], "outputs": ["", "", ""]}',
        '{"inputs": [[], [], 1], "outputs": [1, 1, 1], "fn_name": "f"}',
    ):
        assert len(read_input_output(InputOutputTests(json=text), 2)) == 2
        with pytest.raises(BadTests):
            read_input_output(InputOutputTests(json=text), 3)


@rows(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not an object"),
        ('{"inputs": []}', "not an object"),
        ('{"inputs": [], "outputs": [], "made_up": 1}', "not an object .* it has made_up$"),
        (
            '{"inputs": [], "outputs": [], "by_token": true}',
            "not an object .* it has by_token, which stands next to it",
        ),
        ('{"inputs": {}, "outputs": []}', "not arrays"),
        ('{"inputs": "1", "outputs": "1"}', "not arrays"),
        ('{"inputs": ["1", "2"], "outputs": ["1"]}', "2 inputs and 1 outputs"),
        ('{"inputs": [], "outputs": []}', "no inputs"),
        ('{"inputs": ["1", 1], "outputs": ["1", "1"]}', r"inputs\[1\]"),
        ('{"inputs": ["1"], "outputs": [[1]]}', r"outputs\[0\]"),
        ('{"inputs": [[1]], "outputs": [1], "fn_name": " "}', "fn_name"),
        ('{"inputs": [[1]], "outputs": [1], "fn_name": 1}', "fn_name"),
        ('{"inputs": [1], "outputs": [1], "fn_name": "f"}', r"inputs\[0\]"),
        ('{"inputs": [[' + "[" * 101 + "]" * 101 + ']], "outputs": [1], "fn_name": "f"}', "cannot be passed"),
    ],
)
def test_what_is_of_another_form_is_refused(text: str, says: str) -> None:
    """And said what is wrong, and where."""
    with pytest.raises(BadTests, match=says):
        read_input_output(InputOutputTests(json=text), 9)
