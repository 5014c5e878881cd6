"""Results: verdicts, metrics, results of samples, evaluators and evaluations."""

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
    """The outcome for one answer."""

    CORRECT = "correct"
    INCORRECT = "incorrect"
    PARTIAL = "partial"
    UNDECIDED = "undecided"
    ERROR = "error"
    MEASURED = "measured"

    @property
    def scored(self) -> bool:
        """Whether it counts: UNDECIDED and ERROR do not, and never count as wrong."""
        return self is not Verdict.UNDECIDED and self is not Verdict.ERROR


@dataclasses.dataclass(frozen=True, slots=True)
class Metrics:
    """Numbers, and the reasons for missing ones."""

    values: Mapping[str, float]
    """Finite numbers only, by key."""
    undefined: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Keys that have no finite value, each with the reason; never also in `values`."""

    @classmethod
    def of(cls, values: Mapping[str, float], undefined: Mapping[str, str] | None = None) -> Metrics:
        """Make one; values that are not finite become undefined."""
        finite = {key: float(value) for key, value in values.items() if math.isfinite(value)}
        missing = {key: f"is {value}, not finite" for key, value in values.items() if key not in finite}
        return cls(finite, {**missing, **(undefined or {})})

    @classmethod
    def all_undefined(cls, keys: Iterable[str], reason: str) -> Metrics:
        """Make one in which every key is missing for the same reason."""
        return cls({}, dict.fromkeys(keys, reason))


class EvaluationState(enum.StrEnum):
    """The state of an evaluation."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"

    @property
    def terminal(self) -> bool:
        """Whether it has ended finally."""
        return self in (EvaluationState.COMPLETED, EvaluationState.FAILED, EvaluationState.CANCELLED)
