"""Requests that are refused before anything ran, in the words of who typed them: by flag, with the roots searched."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

from crucible_bridge.errors import (
    AlreadyExists,
    BridgeError,
    FailedPrecondition,
    InvalidField,
    NotFound,
    PermissionDenied,
)
from crucible_worker.config import Settings

__all__ = ["Refused", "refusing"]

_REFUSALS = (InvalidField, NotFound, PermissionDenied, FailedPrecondition, AlreadyExists)

_FLAGS = {
    "model": "--model",
    "dataset.limit": "--samples",
    "dataset": "--data",
    "option": "--option",
    "sampling.max_tokens": "--max-tokens",
    "sampling.temperature": "--temperature",
    "sampling.seed": "--seed",
    "sampling.stop": "--stop",
    "limits.max_unscored": "--max-unscored",
    "suite": "--suite",
    "evaluation_id": "--id",
}
"""By the beginning of a field's path; the first that fits."""

_REASON_FLAGS = {
    "UNKNOWN_EMBEDDED_MODEL": "--model",
    "MODEL_NOT_FOUND": "--model",
    "MODEL_REFUSED": "--model",
    "NO_ADAPTER_CONFIG": "--model",
    "ADAPTER_REFUSED": "--model",
    "DEVICE_NOT_FOUND": "--model",
    "PATH_OUT_OF_ROOT": "--model",
}
"""Of errors that name no field."""

_OF_NO_SUITE = ("model", "evaluation_id")
"""Fields that a suite's file does not have."""

_EVALUATOR = re.compile(r"evaluators\[(\d+)\](?:\.options(?:\[\"(?P<key>[^\"]*)\"\](?P<within>.*))?)?", re.DOTALL)


class Refused(Exception):
    """The request cannot be run; the text names what was typed."""

    def __init__(self, error: BridgeError, text: str) -> None:
        super().__init__(text)
        self.error = error
        """What refused it."""


@contextlib.contextmanager
def refusing(settings: Settings, evaluators: Sequence[str], path: str = "") -> Iterator[None]:
    """Turn what refuses the request into Refused; other errors, such as a full disk, pass.

    Args:
        settings: whose roots are searched.
        evaluators: as typed, "[NAME=]KIND".
        path: where a suite's file has the request, "evaluations[1]"; empty where flags have it.

    Raises:
        Refused: something in the request is wrong, or not there.
    """
    try:
        yield
    except _REFUSALS as error:
        flag = _flag(error, evaluators) if not path else _place(error, path)
        text = error.message if not flag else f"{flag} {error.message}" if error.field else f"{flag}: {error.message}"
        raise Refused(error, text + _searched(error, settings)) from error


def _flag(error: BridgeError, evaluators: Sequence[str]) -> str:
    if found := _EVALUATOR.match(error.field):
        typed = evaluators[int(found[1])]
        label = typed.partition("=")[0]
        if found["key"]:
            return f"--option {label}.{found['key']}{found['within']}"
        return "--evaluator" if error.field.endswith(".kind") else f"--evaluator {typed}"
    for beginning, flag in _FLAGS.items():
        if re.match(rf"{re.escape(beginning)}(?!\w)", error.field):
            return flag
    # A field that has no flag is told as it is.
    return error.field or _REASON_FLAGS.get(error.reason, "")


def _place(error: BridgeError, path: str) -> str:
    field = error.field.partition(".")[0]
    if field in _OF_NO_SUITE or error.reason in _REASON_FLAGS:
        return _flag(error, ())
    # A data set's source is one text in a file.
    return f"{path}.{field if field == 'dataset' else error.field}" if field else path


def _searched(error: BridgeError, settings: Settings) -> str:
    if error.reason in ("NO_SUCH_FILE", "OUTSIDE_ROOT"):
        return f"; data roots: {', '.join(map(str, settings.data_roots))}"
    if error.reason == "NOT_CACHED" and not settings.hub_network:
        return "; with --hub-network it does"
    if error.reason in ("MODEL_NOT_FOUND", "PATH_OUT_OF_ROOT"):
        return f"; model roots: {', '.join(map(str, settings.model_roots))}"
    return ""
