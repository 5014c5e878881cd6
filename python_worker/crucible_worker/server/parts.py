"""What a worker is put together from, and how a real one is built from its settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Sequence

from crucible_bridge.types import EvaluatorInfo, ReportFormat
from crucible_worker.backends.base import Backend
from crucible_worker.config import Settings
from crucible_worker.runs.evaluations import Evaluations

__all__ = ["Build", "Parts", "build"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What services call."""

    evaluations: Evaluations
    """Everything evaluated here, its journal open."""
    backends: Sequence[Backend]
    """Where models live; closed by the worker on its way out."""
    evaluators: Callable[[], Iterable[EvaluatorInfo]]
    """The kinds of evaluators."""
    datasets: Sequence[str]
    """Built-in data sets."""
    report: Callable[[Sequence[str], ReportFormat], Awaitable[str]]
    """Writes about evaluations, by their ids."""


Build = Callable[[Settings], Awaitable[Parts]]
"""Puts a worker together; tests give their own."""


async def build(settings: Settings) -> Parts:
    """Open the journal and know what there is; nothing heavy is imported before it is used."""
    raise NotImplementedError(settings)
