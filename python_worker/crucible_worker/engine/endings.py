"""What ends an attempt at an evaluation before its samples are done."""

from __future__ import annotations

import dataclasses
import enum

import structlog

from crucible_bridge.errors import BridgeError
from crucible_bridge.problems import problem_of
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Problem
from crucible_worker.journal import JournalUnavailable
from crucible_worker.util.error_reporter import logged, shortage, with_id

__all__ = ["INTERRUPTS", "Ending", "Stopped", "stopped_by"]

_log = structlog.get_logger(__name__)


class Ending(enum.Enum):
    """What stopped an attempt before its samples were done."""

    CANCEL = enum.auto()
    DEADLINE = enum.auto()
    STALL = enum.auto()
    FAULT = enum.auto()
    DRAIN = enum.auto()
    JOURNAL = enum.auto()
    LEFT = enum.auto()
    """The caller that has the model has disconnected."""
    OUTAGE = enum.auto()
    """A model did not answer for too long."""
    USER = enum.auto()
    """The user of the command that runs it has ended that."""


INTERRUPTS = (Ending.DRAIN, Ending.JOURNAL, Ending.LEFT, Ending.OUTAGE, Ending.USER)
"""Those that end only the attempt: the evaluation can be resumed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Stopped:
    """How an attempt ended."""

    ending: Ending
    """What stopped it."""
    problem: Problem
    """Why."""


def stopped_by(error: BaseException) -> Stopped:
    """The end of an attempt by an error of its own work; a bug of the worker is logged."""
    if isinstance(error, BridgeError):
        return Stopped(Ending.JOURNAL if isinstance(error, JournalUnavailable) else Ending.FAULT, problem_of(error))
    if (lacking := shortage(error)) is not None:
        _log.warning("evaluation_failed", reason=lacking.reason, problem=lacking.message)
        return Stopped(Ending.FAULT, problem_of(lacking))
    message = with_id(f"{type(error).__name__} in the worker", logged(_log, "evaluation_failed", error))
    return Stopped(Ending.FAULT, Problem(reason=Reason.INTERNAL, message=message))
