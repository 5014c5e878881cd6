r"""Tests as they stand in data sets and files: text or JSON.

    "assert f(1) == 2"                                          assertions
    {"assertions": "assert f(1) == 2"}                          the same
    {"stdin": "2 3\n", "stdout": "5\n"}                           a program's input and output
    {"function": "f", "arguments": [1], "expected": 2}          a call and its value
    {"prefix": "def f(x):\n"}                                    no test: what is put before the program

A data set's targets are texts: one that is a JSON object is read as that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from crucible_bridge.types import Assertions, CallTest, CodeTest, StdioTest
from crucible_worker.grading.code.assertions import BadTests

__all__ = ["read_targets", "read_tests"]


def read_targets(targets: Iterable[str]) -> tuple[str, tuple[CodeTest, ...]]:
    """The prefix and the tests that targets hold.

    Raises:
        BadTests: one of them is neither a test nor a prefix, or there is no test.
    """
    return read_tests(_object(target) or target for target in targets)


def read_tests(records: Iterable[Any]) -> tuple[str, tuple[CodeTest, ...]]:
    """The prefix and the tests that records hold, texts or objects; the last prefix counts.

    Raises:
        BadTests: one of them is neither a test nor a prefix, or there is no test.
    """
    prefix, tests = "", []
    for record in records:
        if isinstance(record, dict) and record.keys() == {"prefix"}:
            prefix = _text(record, "prefix")
        else:
            tests.append(_test(record))
    if not tests:
        raise BadTests("there is no test")
    return prefix, tuple(tests)


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
        raise BadTests(f"a test is a {type(record).__name__}, neither text nor an object")
    keys = record.keys()
    if keys == {"assertions"}:
        return _test(_text(record, "assertions"))
    if "stdout" in keys and keys <= {"stdin", "stdout"}:
        return StdioTest(stdin=_text(record, "stdin") if "stdin" in keys else "", stdout=_text(record, "stdout"))
    if {"function", "expected"} <= keys <= {"function", "arguments", "expected"}:
        arguments, expected = record.get("arguments", []), record["expected"]
        return CallTest(
            function=_text(record, "function"),
            arguments_json=json.dumps(arguments),
            expected_json=json.dumps(expected),
        )
    raise BadTests(f"a test has the keys {', '.join(sorted(map(str, keys)))[:100] or 'of none'}")


def _text(record: Mapping[str, Any], key: str) -> str:
    value = record[key]
    if not isinstance(value, str):
        raise BadTests(f"a test has a {key} that is a {type(value).__name__}, not text")
    return value
