r"""Tests as data sets and files write them: text or JSON.

    "assert f(1) == 2"                                          assertions
    {"assertions": "assert f(1) == 2"}                          the same
    {"stdin": "2 3\n", "stdout": "5\n"}                           a program's input and output
    {"function": "f", "arguments": [1], "expected": 2}          a call and its value
    {"inputs": ["2 3\n"], "outputs": ["5\n"]}                   tests in APPS's form, see `input_output`
    {"input_output": "{\"inputs\": ...}"}                        the same, as an object or as JSON in a text
    {"prefix": "def f(x):\n"}                                    no test: what is put before the program

A test of a program's output may have `by_token`, `absolute_tolerance` and `relative_tolerance`, see `OutputComparison`.

A text that is a JSON object is read as that: a data set's targets are texts, and APPS has its tests in such a text.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from crucible_bridge.types import Assertions, CallTest, CodeTest, InputOutputTests, OutputComparison, StdioTest
from crucible_worker.grading.code.assertions import BadTests
from crucible_worker.grading.code.input_output import KEYS

_FORMS = (
    "assertions; stdin and stdout; function, arguments and expected; inputs, outputs and fn_name; input_output; "
    "prefix; and next to outputs by_token, absolute_tolerance and relative_tolerance"
)
"""Keys of tests, in words: each part is a test."""

_COMPARISON = tuple(field.name for field in dataclasses.fields(OutputComparison))

__all__ = ["compared", "read_tests"]


def read_tests(records: Iterable[Any]) -> tuple[str, tuple[CodeTest, ...]]:
    """The prefix and the tests of records: texts or objects, also as JSON in a text; the last prefix counts.

    Raises:
        BadTests: one of them is neither a test nor a prefix, or there is no test.
    """
    prefix, tests = "", []
    for given in records:
        record = (_object(given) or given) if isinstance(given, str) else given
        if isinstance(record, dict) and record.keys() == {"prefix"}:
            prefix = _text(record, "prefix")
        else:
            tests.append(_test(record))
    if not tests:
        raise BadTests("there is no test")
    return prefix, tuple(tests)


def compared(tests: Iterable[CodeTest], comparison: OutputComparison) -> tuple[CodeTest, ...]:
    """The tests, with a comparison added if they have none."""
    return tuple(
        dataclasses.replace(test, comparison=comparison)
        if isinstance(test, StdioTest | InputOutputTests) and test.comparison == OutputComparison()
        else test
        for test in tests
    )


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
    keys = record.keys() - _COMPARISON
    if "stdout" in keys and keys <= {"stdin", "stdout"}:
        stdin = _text(record, "stdin") if "stdin" in keys else ""
        return StdioTest(stdin=stdin, stdout=_text(record, "stdout"), comparison=comparison)
    if {"inputs", "outputs"} <= keys <= KEYS:
        return InputOutputTests(
            json=json.dumps({key: record[key] for key in record if key in keys}), comparison=comparison
        )
    if keys == {"input_output"}:
        given = record["input_output"]
        return InputOutputTests(json=given if isinstance(given, str) else json.dumps(given), comparison=comparison)
    keys = record.keys()
    if keys == {"assertions"}:
        return _test(_text(record, "assertions"))
    if {"function", "expected"} <= keys <= {"function", "arguments", "expected"}:
        arguments, expected = record.get("arguments", []), record["expected"]
        return CallTest(
            function=_text(record, "function"),
            arguments_json=json.dumps(arguments),
            expected_json=json.dumps(expected),
        )
    raise BadTests(f"a test has the keys {', '.join(sorted(map(str, keys)))[:100] or 'of none'}; known are: {_FORMS}")


def _comparison(record: Mapping[str, Any]) -> OutputComparison:
    given = {key: record[key] for key in _COMPARISON if key in record}
    for key, value in given.items():
        if isinstance(value, bool) is not (key == "by_token") or not isinstance(value, int | float):
            needed = "true or false" if key == "by_token" else "a number"
            raise BadTests(f"a test has the {key} {value!r:.60}, must be {needed}")
        if not (math.isfinite(value) and value >= 0):
            raise BadTests(f"a test has the {key} {value}, must be finite and at least 0")
    return OutputComparison(**given)


def _text(record: Mapping[str, Any], key: str) -> str:
    value = record[key]
    if not isinstance(value, str):
        raise BadTests(f"a test has the {key} {value!r:.60}, must be text")
    return value
