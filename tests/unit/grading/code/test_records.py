"""Tests as data sets and files have them."""

import dataclasses
import json
from typing import Any

import pytest

from crucible_bridge.types import Assertions, CallTest, InputOutputTests, OutputComparison, StdioTest
from crucible_bridge.types.code_tests import compared, read_tests
from crucible_worker.grading.code.assertions import BadTests
from crucible_worker.grading.code.judging import Expected
from crucible_worker.grading.code.records import read_call, read_input_output
from tests.tables import rows

CALL = CallTest(function="f", arguments_json="[1]", expected_json="[2, null]")


def test_every_kind_of_test_is_read():
    """Text is assertions, an object is told by its keys, and a prefix is no test."""
    prefix, tests = read_tests(
        [
            "assert f(1)",
            {"assertions": "assert f(2)"},
            {"stdin": "1\n", "stdout": "2\n"},
            {"stdout": ""},
            {"function": "f", "arguments": [1], "expected": [2, None]},
            {"function": "f", "expected": None},
            {"stdout": "1", "by_token": True, "absolute_tolerance": 1, "relative_tolerance": 0.5},
            {"inputs": ["1"], "outputs": ["2"], "by_token": True},
            {"input_output": '{"inputs": []}'},
            {"input_output": {"inputs": []}},
            {"prefix": "def f(x):\n"},
        ]
    )

    assert prefix == "def f(x):\n"
    assert tests == (
        Assertions("assert f(1)"),
        Assertions("assert f(2)"),
        StdioTest(stdin="1\n", stdout="2\n"),
        StdioTest(stdout=""),
        CALL,
        CallTest(function="f", expected_json="null"),
        StdioTest(stdout="1", comparison=OutputComparison(by_token=True, absolute_tolerance=1, relative_tolerance=0.5)),
        InputOutputTests(
            json=json.dumps({"inputs": ["1"], "outputs": ["2"]}), comparison=OutputComparison(by_token=True)
        ),
        InputOutputTests(json='{"inputs": []}'),
        InputOutputTests(json='{"inputs": []}'),
    )


def test_a_comparison_is_for_tests_that_have_none() -> None:
    """Its tolerance is for values of calls, too; assertions compare by themselves."""
    own, given = OutputComparison(by_token=True), OutputComparison(absolute_tolerance=0.5)
    tests = (
        StdioTest(stdout="1"),
        StdioTest(stdout="1", comparison=own),
        InputOutputTests(json="{}"),
        CALL,
        Assertions("f(1)"),
    )

    assert compared(tests, given) == (
        StdioTest(stdout="1", comparison=given),
        StdioTest(stdout="1", comparison=own),
        InputOutputTests(json="{}", comparison=given),
        dataclasses.replace(CALL, comparison=given),
        Assertions("f(1)"),
    )


def test_tokens_are_compared_of_output_alone() -> None:
    """The rest of a comparison for all tests is for calls, too."""
    given, rest = OutputComparison(by_token=True, relative_tolerance=0.5), OutputComparison(relative_tolerance=0.5)
    output, null, called = '{"inputs": []}', '{"fn_name": null}', '{"fn_name": "f"}'
    tests = (InputOutputTests(json=output), InputOutputTests(json=null), InputOutputTests(json=called), CALL)

    assert compared(tests, given) == tuple(
        dataclasses.replace(test, comparison=own) for test, own in zip(tests, (given, given, rest, rest))
    )


def test_a_call_may_have_a_tolerance() -> None:
    """It is of the value, alone or with fn_name."""
    close = OutputComparison(absolute_tolerance=0.5)
    record = {"fn_name": "f", "inputs": [[1]], "outputs": [1.5]}

    assert read_tests([{"function": "f", "arguments": [1], "expected": [2, None], "absolute_tolerance": 0.5}])[1] == (
        dataclasses.replace(CALL, comparison=close),
    )
    (tests,) = read_tests([{**record, "absolute_tolerance": 0.5}])[1]
    assert isinstance(tests, InputOutputTests)
    (test,) = read_input_output(tests, 9)
    assert isinstance(test, Expected)
    assert test.comparison == read_call(dataclasses.replace(CALL, comparison=close)).comparison == close


def test_values_have_no_tokens() -> None:
    """A key that would be ignored is refused."""
    tokens = OutputComparison(by_token=True)
    with pytest.raises(BadTests, match="by_token is for output, and the tests compare the value of f"):
        read_call(dataclasses.replace(CALL, comparison=tokens))
    with pytest.raises(BadTests, match="by_token"):
        read_input_output(
            InputOutputTests(json='{"fn_name": "f", "inputs": [[1]], "outputs": [1]}', comparison=tokens), 9
        )


def test_a_text_may_be_json():
    """One that is an object; Python that only begins like one stays Python."""
    target = json.dumps({"function": "f", "arguments": [1], "expected": [2, None]})

    assert read_tests([target]) == ("", (CALL,))
    assert read_tests(["{1: 2}[f(1)]"]) == ("", (Assertions("{1: 2}[f(1)]"),))


@rows(
    ("records", "says"),
    [
        ([], "no test"),
        ([{"prefix": "x"}], "no test"),
        ([{}], "of none"),
        ([{"stdout": "", "by_tokens": True}], "the keys by_tokens, stdout; known are: assertions; stdin and stdout"),
        ([{"stdout": "", "absolute_tolerance": "1"}], "the absolute_tolerance '1', must be a number"),
        ([{"stdin": "1"}], "stdin"),
        ([{"stdin": 1, "stdout": ""}], "stdin"),
        ([{"stdout": None}], "stdout"),
        ([{"stdout": "", "by_token": 1}], "by_token"),
        ([{"stdout": "", "absolute_tolerance": True}], "absolute_tolerance"),
        ([{"stdout": "", "absolute_tolerance": "1"}], "absolute_tolerance"),
        ([{"stdout": "", "relative_tolerance": -1}], "relative_tolerance"),
        ([{"stdout": "", "relative_tolerance": float("inf")}], "relative_tolerance"),
        ([{"assertions": "x", "by_token": True}], "has by_token next to assertions"),
        ([{"assertions": "x", "absolute_tolerance": 1}], "absolute_tolerance"),
        ([{"function": "f", "expected": 1, "tolerance": 1}], "keys expected, function, tolerance; known are"),
        ([{"prefix": "x", "absolute_tolerance": 1}, "x"], "the keys absolute_tolerance, prefix"),
        ([{"inputs": []}], "inputs"),
        ([{"function": "f"}], "function"),
        ([{"function": "f", "expected": 1, "other": 2}], "other"),
        ([{"prefix": 1}, "x"], "prefix"),
        ([5], "int"),
        ([" \n"], "blank"),
        ([{"assertions": ""}], "blank"),
    ],
)
def test_what_is_no_test_is_refused(records: list[Any], says: str):
    """And said what is wrong."""
    with pytest.raises(BadTests, match=says):
        read_tests(records)
