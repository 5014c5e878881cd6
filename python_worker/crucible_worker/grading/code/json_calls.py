"""Calls that tests write as JSON: a function, its arguments and its value."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from crucible_bridge.types import CallTest
from crucible_worker.grading.code.assertions import BadTests, Call
from crucible_worker.grading.code.inside.values import NotPlain, encode
from crucible_worker.grading.code.judging import Expected

__all__ = ["call_of", "read_call"]


def read_call(test: CallTest) -> Expected:
    """The call of a test.

    Raises:
        BadTests: its arguments or its value are not JSON, or the arguments are not an array.
    """
    try:
        arguments, value = json.loads(test.arguments_json), json.loads(test.expected_json)
    except (ValueError, RecursionError) as error:
        raise BadTests(f"the call of {test.function} is not JSON: {error}") from None
    if not isinstance(arguments, list):
        raise BadTests(f"the arguments of {test.function} are not a JSON array")
    return Expected(call=call_of(test.function, arguments, value))


def call_of(function: str, arguments: Sequence[Any], value: Any) -> Call:
    """A call with JSON values, and its expected value.

    Raises:
        BadTests: the arguments have too many levels.
    """
    try:
        written = [encode(argument) for argument in arguments]
    except NotPlain as error:
        raise BadTests(f"the arguments of {function} cannot be passed: {error}") from None
    return Call(function=function, arguments=written, named={"d": []}, expected=value, line=1)
