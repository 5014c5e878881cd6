"""What an evaluation is asked to be."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

__all__ = ["EvaluatorKind", "EvaluatorSpec", "Goal", "Record", "ReportFormat"]


class EvaluatorKind(enum.StrEnum):
    """Which client an evaluator needs."""

    TRAINING = "training"
    SAMPLING = "sampling"


class Goal(enum.StrEnum):
    """Which way a number is better."""

    HIGHER = "higher"
    LOWER = "lower"


class Record(enum.StrEnum):
    """What is recorded of samples."""

    FULL = "full"
    """Results with outputs, what each sample is, its prompt and its turns."""
    OUTPUTS = "outputs"
    """Results with outputs."""
    NONE = "none"
    """Results alone: verdict, score, measurements and problem."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorSpec:
    """One evaluator of a request."""

    kind: str
    """A kind that `list_evaluators` names."""
    name: str | None = None
    """Prefix of its keys, "<name>/<key>"; bare keys if None."""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Its options, JSON values; unknown ones are refused."""

    @property
    def label(self) -> str:
        """What its samples and events are filed under: the name, or the kind where there is none."""
        return self.name if self.name is not None else self.kind


class ReportFormat(enum.StrEnum):
    """Format of a report."""

    MARKDOWN = "markdown"
    JSON = "json"
    HTML = "html"
