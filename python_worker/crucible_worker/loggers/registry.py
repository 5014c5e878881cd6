"""Every logger that `log_to` can name: built-in ones, and those of installed packages."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from crucible_bridge.errors import BridgeError, FailedPrecondition, InvalidField, PermissionDenied
from crucible_bridge.reasons import Reason
from crucible_bridge.types.spelling import read_spelling
from crucible_worker.loggers.base import Logger, LoggerSpec
from crucible_worker.util.entry_points import EntryPoints, error_text
from crucible_worker.util.options import Undeclarable, checked_options, schema_of, values_of

__all__ = ["BUILT_IN", "ENDED", "GROUP", "find", "kinds", "make", "read"]

GROUP = "crucible_worker.loggers"
"""Where loggers of packages are announced."""

BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "trackio": "crucible_worker.loggers.trackio:TrackioLogger",
        "jsonl": "crucible_worker.loggers.jsonl:JsonlLogger",
        "console": "crucible_worker.loggers.console:ConsoleLogger",
        "wandb": "crucible_worker.loggers.wandb:WandbLogger",
        "mlflow": "crucible_worker.loggers.mlflow:MlflowLogger",
        "tensorboardx": "crucible_worker.loggers.tensorboardx:TensorboardxLogger",
    }
)
"""Where the class of each built-in logger is; imported when it is named, without the tracker's library."""

ENDED: Mapping[str, str] = MappingProxyType({"neptune": "Neptune's service ended on 2026-03-05"})
"""Trackers that are asked for and exist no more, with the reason."""

_POINTS = EntryPoints(group=GROUP, what="logger", reason=Reason.BAD_LOGGER)
_TRUTHS = {"true": True, "false": False}
_MAX_TEXT = 4096
_MAX_SHOWN = 60


def kinds() -> Sequence[str]:
    """What `log_to` may name; imports nothing."""
    return list(dict.fromkeys((*BUILT_IN, *_POINTS.names())))


def read(text: str, field: str, *, by_operator: bool) -> LoggerSpec:
    """Read the name of a logger: KIND, KIND:TARGET, KIND?OPTION=VALUE&OPTION=VALUE, or all of them.

    It may import the module of an installed logger, so a worker calls it in a thread.

    Args:
        text: as it was given: "wandb:PROJECT?mode=offline". A "?" in the target is written %3F.
        field: what it was given as, for errors: "log_to[0]", "--log-to".
        by_operator: whether it is from the command line of the process that logs, and not from a request.

    Raises:
        InvalidField: there is no such logger (UNKNOWN_LOGGER), or an option is wrong.
        PermissionDenied: a request sets an option that is the operator's (LOGGER_OPTION).
        FailedPrecondition: its library is not installed (EXTRA_NOT_INSTALLED), or an installed logger cannot be used
            (BAD_LOGGER).
    """
    if len(text) > _MAX_TEXT:
        raise InvalidField(field, f"has {len(text):,} characters, at most {_MAX_TEXT:,} are read")
    name, given = read_spelling(text, field)
    kind, colon, target = name.partition(":")
    declared = find(kind, field)
    texts = dict(given)
    if colon:
        if declared.target is None:
            raise InvalidField(field, f"is {_shown(text)}, but {kind} takes nothing after a colon")
        if not target:
            raise InvalidField(field, f"is {_shown(text)}, with nothing after the colon: leave it out, or write more")
        if declared.target in texts:
            raise InvalidField(field, f"is {_shown(text)}, which sets {declared.target} twice")
        texts[declared.target] = target
    schema = _schema(kind, declared)
    properties: Mapping[str, Any] = schema["properties"]
    options = {key: _value(value, properties.get(key, {})) for key, value in texts.items()}
    checked_options(options, schema, field)
    if not by_operator and (reserved := sorted(declared.operator_options & options.keys())):
        message = f"sets {reserved[0]} of {kind}, which only the worker's own --log-to may set"
        raise PermissionDenied(message, reason=Reason.LOGGER_OPTION, field=field)
    _check_library(kind, declared, field)
    return LoggerSpec(kind=kind, options=options, text=text)


def find(kind: str, field: str = "log_to") -> type[Logger]:
    """The class of a kind.

    Raises:
        InvalidField: there is none (UNKNOWN_LOGGER).
        FailedPrecondition: an installed one cannot be used (BAD_LOGGER, EXTRA_NOT_INSTALLED).
    """
    if (place := BUILT_IN.get(kind)) is not None:
        module, _, name = place.partition(":")
        return getattr(importlib.import_module(module), name)
    if (ended := ENDED.get(kind)) is not None:
        raise InvalidField(
            field, f"is {kind!r}. {ended}. Use one of: {', '.join(kinds())}", reason=Reason.UNKNOWN_LOGGER
        )
    loaded = _POINTS.load(kind)
    if loaded is None:
        known = ", ".join(kinds())
        message = f"is {_shown(kind)}, not one of: {known}; a package may announce more in the group {GROUP!r}"
        raise InvalidField(field, message, reason=Reason.UNKNOWN_LOGGER)
    place, found = loaded
    if not isinstance(found, type) or not issubclass(found, Logger):
        raise _POINTS.bad(kind, f"is a {type(found).__name__} at {place!r}, not a subclass of Logger")
    if not dataclasses.is_dataclass(found):
        raise _POINTS.bad(kind, f"is the class {found.__name__} at {place!r}, which is no dataclass")
    _schema(kind, found)
    return found


def make(spec: LoggerSpec) -> Logger:
    """The logger of a specification, not open yet.

    Raises:
        BridgeError: as `find` does; or it cannot be made (BAD_LOGGER).
    """
    declared = find(spec.kind)
    options = checked_options(spec.options, _schema(spec.kind, declared), "log_to")
    try:
        return declared(**values_of(declared, options))
    except BridgeError:
        raise
    except Exception as error:
        raise _POINTS.bad(spec.kind, f"cannot be made: {error_text(error)}") from error


def _schema(kind: str, declared: type[Logger]) -> Mapping[str, Any]:
    try:
        return schema_of(declared)
    except Undeclarable as error:
        raise _POINTS.bad(kind, str(error)) from error


def _check_library(kind: str, declared: type[Logger], field: str) -> None:
    if declared.library is None or importlib.util.find_spec(declared.library) is not None:
        return
    cure = f": install crucible-bridge[{declared.extra}]" if declared.extra else ""
    message = f"is {kind}, which needs {declared.library}, and the worker does not have it{cure}"
    raise FailedPrecondition(message, reason=Reason.EXTRA_NOT_INSTALLED, field=field)


def _value(text: str, rule: Mapping[str, Any]) -> Any:
    """The JSON value that a text stands for; the text itself where it stands for none of the wanted type."""
    kind = rule.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    try:
        if "boolean" in kinds:
            return _TRUTHS.get(text.lower(), text)
        if "integer" in kinds:
            return int(text)
        if "number" in kinds:
            return float(text)
    except ValueError:
        return text
    return text


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "...")
