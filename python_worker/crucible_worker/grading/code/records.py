"""Tests of calls, and those of APPS and similar data sets, for the sandbox; see `crucible_bridge.types.code_tests`."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.types import CallTest, InputOutputTests, OutputComparison, StdioTest
from crucible_bridge.types.code_tests import COMPARISON_KEYS, KEYS, BadTests
from crucible_worker.grading.code.assertions import AssertedCall
from crucible_worker.grading.code.inside.wire import NotPlain, encode
from crucible_worker.grading.code.judging import Expected
from crucible_worker.util.parsing import uncollected

__all__ = ["read_call", "read_input_output"]

# An integer that was a key, as JSON writes it; few enough digits for Python to read.
_INTEGER_KEY = re.compile(r"0|-?[1-9][0-9]{0,17}")


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
    _check_comparison(test.comparison, test.function)
    return Expected(call=_call_of(test.function, arguments, value), comparison=test.comparison)


def _check_comparison(comparison: OutputComparison, function: str) -> None:
    """Refuse what has no meaning for values.

    Raises:
        BadTests: tokens are to be compared.
    """
    if comparison.by_token:
        raise BadTests(f"by_token is for output, and the tests compare the value of {function}")


def _call_of(function: str, arguments: Sequence[Any], value: Any) -> AssertedCall:
    """A call with JSON values, and its expected value.

    Raises:
        BadTests: the arguments have too many levels.
    """
    try:
        written = [encode(argument) for argument in arguments]
    except NotPlain as error:
        raise BadTests(f"the arguments of {function} cannot be passed: {error}") from None
    return AssertedCall(function=function, arguments=written, named={"d": []}, expected=value, line=1)


def read_input_output(test: InputOutputTests, most: int) -> Sequence[StdioTest | Expected]:
    """The tests of an object, in its order; at most the first `most`.

    Raises:
        BadTests: it is not JSON, or has another form; the text says where.
    """
    try:
        with uncollected(len(test.json)):
            record = json.loads(test.json)
    except (ValueError, RecursionError) as error:
        raise BadTests(f"input_output is not JSON: {error}") from None
    inputs, outputs = _pairs(record)
    function = record.get("fn_name")
    if function is None:
        return [
            StdioTest(
                stdin=_text(given, f"inputs[{at}]"), stdout=_text(put, f"outputs[{at}]"), comparison=test.comparison
            )
            for at, (given, put) in enumerate(itertools.islice(zip(inputs, outputs), most))
        ]
    if not isinstance(function, str) or not function.strip():
        raise BadTests("input_output has a fn_name that is not a name")
    _check_comparison(test.comparison, function)
    or_element = all(isinstance(value, list) and len(value) == 1 for value in outputs)
    return [
        Expected(
            call=_call_of(function, _arguments(given, f"inputs[{at}]"), value),
            in_solution=True,
            or_element=or_element,
            comparison=test.comparison,
        )
        for at, (given, value) in enumerate(itertools.islice(zip(inputs, outputs), most))
    ]


def _pairs(record: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    form = "input_output is not an object of inputs, outputs and, for calls, fn_name"
    if not isinstance(record, dict) or not {"inputs", "outputs"} <= record.keys():
        raise BadTests(form)
    if unknown := sorted(record.keys() - KEYS):
        beside = ", which stands next to it" if unknown[0] in COMPARISON_KEYS else ""
        raise BadTests(f"{form}: it has {unknown[0]:.60}{beside}")
    inputs, outputs = record["inputs"], record["outputs"]
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise BadTests("input_output has inputs or outputs that are not arrays")
    if len(inputs) != len(outputs):
        raise BadTests(f"input_output has {len(inputs):,} inputs and {len(outputs):,} outputs")
    if not inputs:
        raise BadTests("input_output has no inputs")
    return inputs, outputs


def _text(given: Any, where: str) -> str:
    """Standard input or output: a text, or its lines."""
    if isinstance(given, str):
        return given
    if isinstance(given, list) and all(isinstance(line, str) for line in given):
        return "\n".join(given)
    raise BadTests(f"input_output has {where} that is neither a text nor an array of lines")


def _arguments(given: Any, where: str) -> Sequence[Any]:
    if not isinstance(given, list):
        raise BadTests(f"input_output has {where} that is not an array of arguments")
    return [_keyed(argument) if isinstance(argument, dict) else argument for argument in given]


def _keyed(argument: Mapping[str, Any]) -> Mapping[Any, Any]:
    if argument and all(map(_INTEGER_KEY.fullmatch, argument)):
        return {int(key): value for key, value in argument.items()}
    return argument
