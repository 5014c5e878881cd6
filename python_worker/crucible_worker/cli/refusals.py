"""Errors of requests that are refused before anything ran, by the flags that were typed, with the roots searched."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence

from crucible_bridge.errors import (
    AlreadyExists,
    BridgeError,
    FailedPrecondition,
    InvalidField,
    NotFound,
    PermissionDenied,
)
from crucible_bridge.reasons import Reason
from crucible_worker.cli.options import RequestOptions, field_flags
from crucible_worker.config import Settings

__all__ = ["Refused", "in_flags", "refusing"]

_REFUSALS = (InvalidField, NotFound, PermissionDenied, FailedPrecondition, AlreadyExists)

_FLAGS = {**field_flags(RequestOptions), "model": "--model", "sample_id": "--sample"}
"""Flags by the beginning of a field's path; the first one that fits counts."""

_REASON_FLAGS: Mapping[str, str] = {
    Reason.UNKNOWN_EMBEDDED_MODEL: "--model",
    Reason.MODEL_NOT_FOUND: "--model",
    Reason.MODEL_REFUSED: "--model",
    Reason.PICKLED_WEIGHTS_REFUSED: "--model",
    Reason.NO_SAFETENSORS: "--model",
    Reason.NO_MODEL_CONFIG: "--model",
    Reason.NO_ADAPTER_CONFIG: "--model",
    Reason.BACKEND_KEY: "--model",
    Reason.ADAPTER_REFUSED: "--model",
    Reason.DEVICE_NOT_FOUND: "--model",
    Reason.PATH_OUT_OF_ROOT: "--model",
}
"""Flags for errors that name no field."""

_OF_NO_SUITE = ("model", "evaluation_id", "run_id", "step")
"""Fields that are not in a suite's file."""

_DEADLINE = re.compile(r"^deadline_ms, \d+, ")
"""Begins the message of a deadline; the option has seconds."""

_EVALUATOR = re.compile(r"evaluators\[(\d+)\](?:\.options(?:\[\"(?P<key>[^\"]*)\"\](?P<within>.*))?)?", re.DOTALL)


class Refused(Exception):
    """The request cannot be run; the text names what was typed."""

    def __init__(self, error: BridgeError, text: str) -> None:
        super().__init__(text)
        self.error = error
        """The error that refused it."""


@contextlib.contextmanager
def refusing(settings: Settings, evaluators: Sequence[str], path: str = "", *, model: str = "") -> Iterator[None]:
    """Convert errors that refuse the request to Refused; other errors, such as a full disk, pass.

    Args:
        settings: with the roots that are searched.
        evaluators: as typed, "[NAME=]KIND".
        path: the request's path in a suite's file, "evaluations[1]"; empty if flags make the request.
        model: the request's model as typed; empty if there is none yet.

    Raises:
        Refused: something in the request is wrong, or missing.
    """
    try:
        yield
    except _REFUSALS as error:
        raise Refused(error, in_flags(error, settings, evaluators, path, model=model)) from error


def in_flags(
    error: BridgeError, settings: Settings, evaluators: Sequence[str], path: str = "", *, model: str = ""
) -> str:
    """The text of an error with what was typed in place of the request's field; arguments as for `refusing`."""
    flag = _flag(error, evaluators) if not path else _place(error, path)
    if flag == "--model" and not error.field and model:
        # Of several models, the one meant.
        flag = f"--model {model}"
    message = _with_flags(error, evaluators)
    text = message if not flag else f"{flag} {message}" if error.field else f"{flag}: {message}"
    return text + _cure(error, settings)


def _flag(error: BridgeError, evaluators: Sequence[str]) -> str:
    return _flag_of(error.field, evaluators) or _REASON_FLAGS.get(error.reason, "")


def _flag_of(field: str, evaluators: Sequence[str]) -> str:
    """The flag that gives a field; a field that no flag gives keeps its name."""
    if (found := _EVALUATOR.match(field)) and (typed := _typed(field, evaluators)):
        label = typed.partition("=")[0]
        if found["key"]:
            return f"--option {label}.{found['key']}{found['within']}"
        return "--evaluator" if field.endswith(".kind") else f"--evaluator {typed}"
    for beginning, flag in _FLAGS.items():
        if re.match(rf"{re.escape(beginning)}(?!\w)", field):
            return flag
    return field


def _typed(field: str, evaluators: Sequence[str]) -> str:
    """The evaluator that a field belongs to, as typed; empty if none."""
    found = _EVALUATOR.match(field)
    return evaluators[int(found[1])] if found is not None and int(found[1]) < len(evaluators) else ""


def _place(error: BridgeError, path: str) -> str:
    field = error.field.partition(".")[0]
    if field in _OF_NO_SUITE or error.reason in _REASON_FLAGS:
        return _flag(error, ())
    # A data set's source is one text in a file; its prompt is a table.
    whole = field != "dataset" or error.field.startswith("dataset.prompt")
    return f"{path}.{error.field if whole else field}" if field else path


def _with_flags(error: BridgeError, evaluators: Sequence[str]) -> str:
    """The error's text with flags in place of the fields that it names."""
    message = error.message
    if error.field == "limits.deadline_ms":
        message = _DEADLINE.sub("", message)
    if differs := error.metadata.get("differs"):
        flags = ", ".join(dict.fromkeys(_flag_of(field, evaluators) for field in differs.split(", ")))
        message = message.replace(differs, flags)
    if evaluators and error.reason == Reason.EQUAL_KEYS:
        other, kind = _flag_of(error.metadata["other"], evaluators), _typed(error.field, evaluators)
        return (
            f"and {other} both yield the key {error.metadata['key']!r}: "
            f"give one a name, as in --evaluator second={kind.rpartition('=')[2]}"
        )
    return message


def _cure(error: BridgeError, settings: Settings) -> str:
    """What to do, or the roots that were searched; begins with a semicolon unless it is empty."""
    if error.reason in (Reason.NO_SUCH_FILE, Reason.OUTSIDE_ROOT):
        roots = f"; data roots: {', '.join(map(str, settings.data_roots))}"
        return f"{roots}; --data-root DIR names another" if error.reason == Reason.OUTSIDE_ROOT else roots
    if error.reason == Reason.NOT_CACHED and not settings.hub_network:
        return "; with --hub-network it does"
    if error.reason in (Reason.MODEL_NOT_FOUND, Reason.PATH_OUT_OF_ROOT):
        return f"; model roots: {', '.join(map(str, settings.model_roots))}"
    return ""
