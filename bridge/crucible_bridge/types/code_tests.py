r"""Tests as data sets and files write them: text or JSON.

    "assert f(1) == 2"                                          assertions
    {"assertions": "assert f(1) == 2"}                          the same
    {"stdin": "2 3\n", "stdout": "5\n"}                           a program's input and output
    {"function": "f", "arguments": [1], "expected": 2}          a call and its value
    {"inputs": ["2 3\n"], "outputs": ["5\n"]}                   tests in the form of APPS, see below
    {"input_output": "{\"inputs\": ...}"}                        the same, as an object or as JSON in a text
    {"prefix": "def f(x):\n"}                                    no test: what is put before the program

A test of output or of calls may have `absolute_tolerance` and `relative_tolerance`, and one of output `by_token`, see
`OutputComparison`.

A text that is a JSON object is read as that: a data set's targets are texts, and APPS has its tests in such a text.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from crucible_bridge.types import Assertions, CallTest, CodeTest, InputOutputTests, OutputComparison, StdioTest

__all__ = ["COMPARISON_KEYS", "KEYS", "BadTests", "compared", "read_tests"]

_FORMS = (
    "assertions; stdin and stdout; function, arguments and expected; inputs, outputs and fn_name; input_output; "
    "prefix; next to outputs and values absolute_tolerance and relative_tolerance; and next to outputs by_token"
)
"""Keys of tests, in words: each part is a test."""

COMPARISON_KEYS = tuple(field.name for field in dataclasses.fields(OutputComparison))
"""What a test may have next to outputs and values."""

# Tests in JSON: calls, and the column `input_output` of APPS, TACO and similar data sets.
#
#     {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}                     standard input and output
#     {"inputs": [["1 2"], ["3 4"]], "outputs": [["3"], ["7"]]}                       the same, in lines
#     {"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [3, 7]}               calls and their values
#     {"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [[3], [7]]}           the same, in lists of one
#
# Data sets write the value of a call alone or as a list of it. If every output is a list of one element, both readings
# are possible: both are right, as in the test program of APPS. JSON has no dict with integer keys: an argument becomes
# one if all its keys are integers.

KEYS = frozenset({"inputs", "outputs", "fn_name"})
"""What such an object has; `fn_name` may be absent or null."""


class BadTests(Exception):
    """Tests that are usable for no program; the text says why."""


def read_tests(records: Iterable[Any]) -> tuple[str, tuple[CodeTest, ...]]:
    """The prefix and the tests of records: texts or objects, also as JSON in a text; the last prefix counts.

    Raises:
        BadTests: one of them is neither a test nor a prefix, or there is no test.
    """
    prefix, tests = "", []
    for given in records:
        record = (_object(given) or given) if isinstance(given, str) else given
        if isinstance(record, dict) and record.keys() == {"prefix"}:
            prefix = _text_of(record, "prefix")
        else:
            tests.append(_test(record))
    if not tests:
        raise BadTests("there is no test")
    return prefix, tuple(tests)


def compared(tests: Iterable[CodeTest], comparison: OutputComparison) -> tuple[CodeTest, ...]:
    """The tests, with a comparison added if they have none: all of it to tests of output, its tolerance to calls."""
    tolerance = dataclasses.replace(comparison, by_token=False)
    return tuple(
        test
        if isinstance(test, Assertions) or test.comparison != OutputComparison()
        else dataclasses.replace(test, comparison=tolerance if comparison.by_token and _calls(test) else comparison)
        for test in tests
    )


def _calls(test: StdioTest | CallTest | InputOutputTests) -> bool:
    """Whether a test compares values of calls."""
    if isinstance(test, InputOutputTests) and '"fn_name"' in test.json:
        return isinstance(record := _object(test.json), dict) and record.get("fn_name") is not None
    return isinstance(test, CallTest)


def _object(text: str) -> Mapping[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None  # Python may begin so, too
    return record if isinstance(record, dict) else None


def _test(record: Any) -> CodeTest:
    if isinstance(record, str):
        if not record.strip():
            raise BadTests("a test is blank")
        return Assertions(record)
    if not isinstance(record, dict):
        raise BadTests(f"a test is {type(record).__name__}, neither text nor an object")
    comparison = _comparison(record)
    keys = record.keys() - COMPARISON_KEYS
    if "stdout" in keys and keys <= {"stdin", "stdout"}:
        stdin = _text_of(record, "stdin") if "stdin" in keys else ""
        return StdioTest(stdin=stdin, stdout=_text_of(record, "stdout"), comparison=comparison)
    if {"inputs", "outputs"} <= keys <= KEYS:
        return InputOutputTests(
            json=json.dumps({key: record[key] for key in record if key in keys}), comparison=comparison
        )
    if keys == {"input_output"}:
        given = record["input_output"]
        return InputOutputTests(json=given if isinstance(given, str) else json.dumps(given), comparison=comparison)
    if {"function", "expected"} <= keys <= {"function", "arguments", "expected"}:
        arguments, expected = record.get("arguments", []), record["expected"]
        return CallTest(
            function=_text_of(record, "function"),
            arguments_json=json.dumps(arguments),
            expected_json=json.dumps(expected),
            comparison=comparison,
        )
    if keys == {"assertions"} and (extra := sorted(record.keys() - keys)):
        raise BadTests(f"a test has {extra[0]} next to assertions, which compare values themselves")
    if keys == {"assertions"}:
        return _test(_text_of(record, "assertions"))
    named = ", ".join(sorted(map(str, record)))[:100]
    raise BadTests(f"a test has the keys {named or 'of none'}; known are: {_FORMS}")


def _comparison(record: Mapping[str, Any]) -> OutputComparison:
    given = {key: record[key] for key in COMPARISON_KEYS if key in record}
    for key, value in given.items():
        if isinstance(value, bool) is not (key == "by_token") or not isinstance(value, int | float):
            needed = "true or false" if key == "by_token" else "a number"
            raise BadTests(f"a test has the {key} {value!r:.60}, must be {needed}")
        if not (math.isfinite(value) and value >= 0):
            raise BadTests(f"a test has the {key} {value}, must be finite and at least 0")
    return OutputComparison(**given)


def _text_of(record: Mapping[str, Any], key: str) -> str:
    value = record[key]
    if not isinstance(value, str):
        raise BadTests(f"a test has the {key} {value!r:.60}, must be text")
    return value
