"""What an evaluation is asked to be."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

from crucible_bridge.types.data import Dataset
from crucible_bridge.types.models import ModelRef, SamplingParams

__all__ = ["EvaluateRequest", "EvaluatorInfo", "EvaluatorKind", "EvaluatorSpec", "Goal", "Limits", "ReportFormat"]


class EvaluatorKind(enum.StrEnum):
    """Which client an evaluator needs."""

    TRAINING = "training"
    SAMPLING = "sampling"


class Goal(enum.StrEnum):
    """Which way a number is better."""

    HIGHER = "higher"
    LOWER = "lower"


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
    """Bounds of an evaluation. The worker's defaults are named as in `WorkerInfo.limits`.

    Of an evaluation that goes on, `deadline_ms` is the first request's; the others are those of the request that goes
    on.
    """

    concurrency: int | None = None
    """Samples in flight at once, at most the worker's max_concurrency; its default_concurrency if None."""
    deadline_ms: int | None = None
    """Time with an owner, from receipt over all attempts; then it is CANCELLED. No bound if None."""
    stall_timeout_ms: int | None = None
    """FAILED when no sample is done and no model answers for so long; default_stall_timeout_seconds if None."""
    sample_timeout_ms: int | None = None
    """One sample's time, its retries included; then it is ERROR.

    If None, a sample is ERROR when no model has answered it for the worker's default_sample_timeout_seconds. A task of
    `inspect` then has no other bound than `deadline_ms`.
    """
    max_unscored_share: float | None = None
    """Fail an evaluator when more than this share of its samples is unscored; never if None."""
    max_unscored: int | None = None
    """Likewise, more than this count."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateRequest:
    """An evaluation to run.

    Its specification is model, evaluators, data set (inline samples by content), sampling, metric_prefix, run_id and
    step: the same id and specification is the same evaluation, another specification under the same id is refused.
    """

    evaluation_id: str = ""
    """Identity, at most 200 bytes; made by the worker if empty."""
    run_id: str = ""
    """The orchestrator's run, at most 200 bytes."""
    step: int | None = None
    """The orchestrator's training step."""
    model: ModelRef
    """What to evaluate."""
    evaluators: tuple[EvaluatorSpec, ...]
    """With what; 1 to 64."""
    dataset: Dataset
    """On what."""
    sampling: SamplingParams | None = None
    """How to sample; required by evaluators that do (accuracy)."""
    limits: Limits = Limits()
    """How long, and how much at once; not part of the specification."""
    metric_prefix: str = ""
    """Put before every key, at most 200 bytes: "test/"."""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Recorded with the evaluation, at most 64; the first request's stand."""
    correlation_id: str = ""
    """Handed through to every event, at most 200 bytes; the first request's stands."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorInfo:
    """An evaluator that the worker has."""

    kind: str
    """What `EvaluatorSpec.kind` takes: "nll"."""
    kinds: tuple[EvaluatorKind, ...]
    """Which clients it can work with."""
    description: str
    """What it does, one sentence."""
    options_schema: Mapping[str, Any]
    """JSON schema (2020-12) of its options, defaults included."""
    keys: Mapping[str, str]
    """Every key of its metrics, bare, with its unit: "nll": "nats per unit of weight". In angle brackets stands what
    the options or the data say: "pass@<k>"."""
    unavailable: str = ""
    """Empty, or why it cannot be used here."""
    score_goal: Goal | None = Goal.HIGHER
    """Which scores of samples are better; None where neither."""


class ReportFormat(enum.StrEnum):
    """Format of a report."""

    MARKDOWN = "markdown"
    JSON = "json"
