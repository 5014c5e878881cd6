"""An experiment in a Python loop: opened by a `with` block, logged to in it, closed at its end."""

# The timeout is not measured here: it travels to the worker as gRPC's deadline.

from __future__ import annotations

import dataclasses
import enum
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self, SupportsFloat

from crucible_bridge.client.experiments import ExperimentsClient
from crucible_bridge.errors import InvalidField
from crucible_bridge.types.generated import Experiment, LoggedMetrics

__all__ = ["ExperimentLog", "plain_config"]

_BACK_TO_WORKER_SECONDS = 10.0
"""Seconds that a call waits longer than the worker may."""


class ExperimentLog:
    """An experiment that is logged to. Made by `Bridge.experiment`.

    Its methods are those of the loggers of tinker-cookbook's `ml_log`. Each returns once the worker has what was logged
    in its journal. It does not wait for the loggers.
    """

    def __init__(
        self, client: ExperimentsClient, experiment_id: str, log_to: Sequence[str] = (), config: object = None
    ) -> None:
        self._client = client
        self._experiment_id, self._log_to, self._config = experiment_id, log_to, config

    async def __aenter__(self) -> Self:
        """Open it, or continue it."""
        await self.open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close it, and wait for its loggers as `close` does."""
        await self.close()

    async def open(self) -> Experiment:
        """Open the experiment; one that exists is continued.

        Raises:
            BridgeError: a logger is refused, or the call failed.
        """
        config = None if self._config is None else plain_config(self._config, "config")
        opened = await self._client.open_experiment(self._experiment_id, log_to=self._log_to, config=config)
        return opened.experiment

    async def log_metrics(
        self, metrics: Mapping[str, SupportsFloat], step: int | None = None, *, family: str = ""
    ) -> int:
        """Log metrics of one moment; returns the sequence of their row.

        Args:
            metrics: numbers by name; also numpy's and torch's. NaN and infinite ones are logged.
            step: the training step; None if there is none.
            family: which metrics share a step axis; one axis for all if empty.

        Raises:
            InvalidField: a value is no number; the field has its name.
            BridgeError: the call failed.
        """
        values = {name: _number(value, f"metrics[{name!r}]") for name, value in metrics.items()}
        row = LoggedMetrics(values=values, step=step, family=family, unix_time_ns=time.time_ns())
        return await self._client.log_metrics(self._experiment_id, [row])

    async def log_rows(self, rows: Sequence[LoggedMetrics]) -> int:
        """Log many rows in one call, which costs little more than one row; returns the sequence of the last one.

        Raises:
            BridgeError: the call failed.
        """
        return await self._client.log_metrics(self._experiment_id, rows)

    async def log_hparams(self, config: object) -> int:
        """Log hyperparameters; returns the sequence of their entry.

        Args:
            config: a mapping, a dataclass, or an object with attributes; values that JSON does not have become text.

        Raises:
            BridgeError: the call failed.
        """
        return await self._client.log_hparams(self._experiment_id, plain_config(config, "config"))

    async def log_long_text(self, key: str, text: str, step: int | None = None) -> int:
        """Log a text; returns the sequence of its entry.

        Args:
            key: its name.
            text: at most 8 MiB.
            step: the training step; None if there is none.

        Raises:
            BridgeError: the call failed.
        """
        return await self._client.log_long_text(self._experiment_id, key, text=text, step=step)

    async def sync(self, seconds: float = 30.0) -> bool:
        """Wait until every logger has written out, or sent, what was logged; whether all have within the time.

        Args:
            seconds: how long to wait at most.

        Raises:
            BridgeError: the call failed.
        """
        timeout = seconds + _BACK_TO_WORKER_SECONDS
        return (await self._client.sync(self._experiment_id, timeout_ms=_milliseconds(seconds), timeout=timeout)).synced

    async def close(self, seconds: float = 30.0) -> bool:
        """Close the experiment, and wait for its loggers; whether all have everything within the time.

        Loggers that have not get it afterwards: from this worker, or from the next one of its journal.

        Args:
            seconds: how long to wait at most.

        Raises:
            BridgeError: the call failed.
        """
        closed = await self._client.close_experiment(
            self._experiment_id, timeout_ms=_milliseconds(seconds), timeout=seconds + _BACK_TO_WORKER_SECONDS
        )
        return closed.synced

    async def state(self) -> Experiment:
        """How far each of its loggers has come, and what it fails with.

        Raises:
            BridgeError: the call failed.
        """
        return (await self._client.sync(self._experiment_id, timeout_ms=0)).experiment

    async def get_logger_url(self, logger: str = "") -> str | None:
        """Where people look at the experiment; None while there is no such place.

        Args:
            logger: as `log_to` named it; the first that has a URL if empty.

        Raises:
            BridgeError: the call failed.
        """
        return await self._client.get_url(self._experiment_id, logger) or None


def plain_config(config: object, field: str) -> Mapping[str, Any]:
    """A configuration as JSON values by name: of a mapping, a dataclass, or the attributes of an object.

    Example: `plain_config({"lr": 1e-4, "path": Path("a")}, "config") == {"lr": 1e-4, "path": "a"}`.

    Raises:
        InvalidField: it is none of these.
    """
    found = _plain(config)
    if not isinstance(found, dict):
        raise InvalidField(
            field, f"is a {type(config).__name__}, must be a mapping, a dataclass or an object with fields"
        )
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return _plain(value.value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    attributes = getattr(value, "__dict__", None)
    if attributes and not isinstance(value, type) and not callable(value):
        return {name: _plain(inner) for name, inner in attributes.items() if not name.startswith("_")}
    return str(value)


def _number(value: Any, field: str) -> float:
    if isinstance(value, str | bytes):
        raise InvalidField(field, f"is {value!r}, must be a number")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidField(field, f"is a {type(value).__name__}, must be a number: {error}") from error


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
