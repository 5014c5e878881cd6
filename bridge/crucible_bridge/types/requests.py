"""What an evaluation is asked to be."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

from crucible_bridge.types.data import Dataset
from crucible_bridge.types.models import ModelRef, SamplingParams

__all__ = ["EvaluateRequest", "EvaluatorInfo", "EvaluatorKind", "EvaluatorSpec", "Limits", "ReportFormat"]


class EvaluatorKind(enum.StrEnum):
    """Which client an evaluator needs."""

    TRAINING = "training"
    SAMPLING = "sampling"


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of an evaluation; None is the worker's default."""

    concurrency: int | None = None
    """Samples in flight at once."""
    deadline_ms: int | None = None
    """Milliseconds with an owner, from receipt over all attempts."""
    stall_timeout_ms: int | None = None
    """Fail when nothing progresses for so long."""
    sample_timeout_ms: int | None = None
    """One sample's bound, its retries included."""
    max_unscored_share: float | None = None
    """Fail an evaluator when more than this share of its samples is unscored; never if None."""
    max_unscored: int | None = None
    """Likewise, a count."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateRequest:
    """An evaluation to run."""

    evaluation_id: str = ""
    """Identity: the same id and specification is the same evaluation. Made by the worker if empty."""
    run_id: str = ""
    """The orchestrator's run."""
    step: int | None = None
    """The orchestrator's training step."""
    model: ModelRef
    """What to evaluate."""
    evaluators: tuple[EvaluatorSpec, ...]
    """With what; at least one."""
    dataset: Dataset
    """On what."""
    sampling: SamplingParams | None = None
    """How to sample, for evaluators that do."""
    limits: Limits = Limits()
    """Bounds."""
    metric_prefix: str = ""
    """Put before every key: "test/"."""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Recorded with the evaluation."""
    correlation_id: str = ""
    """Handed through to every event."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorInfo:
    """An evaluator that the worker has."""

    kind: str
    """"nll"."""
    kinds: tuple[EvaluatorKind, ...]
    """Which clients it can work with."""
    description: str
    """One sentence."""
    options_schema: Mapping[str, Any]
    """JSON schema of its options."""
    keys: Mapping[str, str]
    """Keys that it yields, with their units."""
    unavailable: str = ""
    """Empty, or why it cannot be used here."""


class ReportFormat(enum.StrEnum):
    """Format of a report."""

    MARKDOWN = "markdown"
    JSON = "json"
