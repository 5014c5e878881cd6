"""What was found: verdicts, metrics, results of samples, evaluators and evaluations."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

__all__ = ["EvaluationState", "Metrics", "Verdict"]


class Verdict(enum.StrEnum):
    """What was found of an answer."""

    CORRECT = "correct"
    INCORRECT = "incorrect"
    PARTIAL = "partial"
    UNDECIDED = "undecided"
    ERROR = "error"
    MEASURED = "measured"

    @property
    def scored(self) -> bool:
        """Whether it counts: UNDECIDED and ERROR do not, and are never taken for wrong."""
        return self is not Verdict.UNDECIDED and self is not Verdict.ERROR


@dataclasses.dataclass(frozen=True, slots=True)
class Metrics:
    """Numbers, and why some are missing."""

    values: Mapping[str, float]
    """Finite numbers only, by key."""
    undefined: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Keys that have no finite value, each with the reason; never also in `values`."""

    @classmethod
    def of(cls, values: Mapping[str, float], undefined: Mapping[str, str] | None = None) -> Metrics:
        """Make one; what is not finite becomes undefined."""
        finite = {key: float(value) for key, value in values.items() if math.isfinite(value)}
        missing = {key: f"is {value}, not finite" for key, value in values.items() if key not in finite}
        return cls(finite, {**missing, **(undefined or {})})

    @classmethod
    def all_undefined(cls, keys: Iterable[str], reason: str) -> Metrics:
        """Make one in which every key is missing for one reason."""
        return cls({}, dict.fromkeys(keys, reason))


class EvaluationState(enum.StrEnum):
    """Where an evaluation is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"

    @property
    def terminal(self) -> bool:
        """Whether it has ended for good."""
        return self in (EvaluationState.COMPLETED, EvaluationState.FAILED, EvaluationState.CANCELLED)
