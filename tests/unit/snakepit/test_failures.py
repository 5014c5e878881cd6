"""How errors of tools are told."""

from __future__ import annotations

import builtins
import json

import pytest

from crucible_bridge.errors import BridgeError, Code, FailedPrecondition, InvalidField, NotFound, ResourceExhausted
from crucible_worker.snakepit.tools import (
    MAX_FACT_BYTES,
    MAX_MESSAGE_BYTES,
    TYPES_BY_CODE,
    TYPES_BY_REASON,
    ToolCall,
    failure_as_json,
    python_error,
)
from tests.tables import rows

KNOWN = {
    "AttributeError",
    "FileNotFoundError",
    "ImportError",
    "IndexError",
    "KeyError",
    "NotImplementedError",
    "PermissionError",
    "RuntimeError",
    "TypeError",
    "ValueError",
    "ZeroDivisionError",
}
"""What Snakepit 0.13 makes structs of."""
CALL = ToolCall(correlation_id="c-1", session_id="s-1")


@rows("code", Code)
def test_every_code_is_an_exception_that_snakepit_knows(code: Code):
    """The type is one of Python's own, by a name that Snakepit has a struct for."""
    told = json.loads(failure_as_json(BridgeError("no", code=code), CALL, "evaluate"))

    assert told["type"] == TYPES_BY_CODE[code].__name__
    assert told["type"] in KNOWN
    assert told["context"]["code"] == code


@rows("reason", TYPES_BY_REASON)
def test_some_reasons_say_more(reason: str):
    """A reason may have a type of its own."""
    told = json.loads(failure_as_json(FailedPrecondition("no", reason=reason), CALL, "evaluate"))

    assert told["type"] == TYPES_BY_REASON[reason].__name__
    assert told["type"] in KNOWN


def test_the_context_has_what_programs_compare():
    """Reason, field, whether and when to ask again, and further facts stand in the context."""
    error = ResourceExhausted("is full", field="items", retry_after=1.5, metadata={"evaluation_id": "e", "reason": "x"})

    assert json.loads(failure_as_json(error, CALL, "evaluate")) == {
        "type": "RuntimeError",
        "message": "items is full",
        "context": {
            "tool_name": "evaluate",
            "session_id": "s-1",
            "correlation_id": "c-1",
            "evaluation_id": "e",
            "reason": "RESOURCE_EXHAUSTED",
            "code": "RESOURCE_EXHAUSTED",
            "field": "items",
            "retryable": True,
            "retry_after_ms": 1500,
        },
    }


def test_a_bug_is_told_by_its_id_alone(capsys: pytest.CaptureFixture[str]):
    """Of what was not foreseen only an id is told, by which the log has it."""
    told = json.loads(failure_as_json(ZeroDivisionError("secret"), CALL, "evaluate"))
    error_id = told["context"]["error_id"]

    assert told["type"] == "RuntimeError"
    assert told["message"] == f"internal error {error_id}"
    assert error_id in capsys.readouterr().out


def test_errors_are_short_ascii():
    """However long and odd an error is, what is told of it is bounded, and ASCII."""
    error = InvalidField("é" * 5_000, "\u2028" * 5_000)
    text = failure_as_json(error, ToolCall(session_id="s" * 5_000), "t" * 5_000)
    told = json.loads(text)

    assert text.isascii()
    assert len(told["message"].encode()) <= MAX_MESSAGE_BYTES
    assert all(len(fact.encode()) <= MAX_FACT_BYTES for fact in told["context"].values() if isinstance(fact, str))


def test_an_exception_of_pythons_has_the_reason_in_its_text():
    """Where Snakepit's own server reads class and text, the text begins with the reason."""
    error = python_error(NotFound("there is none", reason="UNKNOWN_TOOL"))

    assert isinstance(error, KeyError)
    assert (type(error).__name__, str(error)) == ("KeyError", "UNKNOWN_TOOL: there is none")
    assert all(hasattr(builtins, name) for name in KNOWN)
