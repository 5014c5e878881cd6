"""Requested evaluators, and the choices of a request."""

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
    """Whether a higher or a lower number is better."""

    HIGHER = "higher"
    LOWER = "lower"


class Record(enum.StrEnum):
    """How much is recorded of samples."""

    FULL = "full"
    """Results with outputs, what each sample is, its prompt and its turns."""
    OUTPUTS = "outputs"
    """Results with outputs."""
    NONE = "none"
    """Only results: verdict, score, measurements and problem."""


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
        """The label of its samples and events: the name, or the kind if there is none."""
        return self.name if self.name is not None else self.kind


class ReportFormat(enum.StrEnum):
    """Format of a report."""

    MARKDOWN = "markdown"
    JSON = "json"
    HTML = "html"
