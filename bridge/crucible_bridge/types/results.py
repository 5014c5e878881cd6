"""What was found: verdicts, metrics, results of samples, evaluators and evaluations."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crucible_bridge.types.requests import EvaluateRequest, EvaluatorSpec

__all__ = [
    "Evaluation",
    "EvaluationState",
    "EvaluatorResult",
    "Metrics",
    "Problem",
    "SampleResult",
    "Verdict",
]


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
        return self not in (Verdict.UNDECIDED, Verdict.ERROR)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What went wrong with one item, sample or evaluator: the content of a status, below the call."""

    reason: str
    """Stable, upper case: "BACKEND_TIMEOUT"."""
    message: str
    """One sentence, below 1 KB."""
    field: str = ""
    """Path of the offending field, where one is."""
    retryable: bool = False
    """Whether the same call may succeed later."""


@dataclasses.dataclass(frozen=True, slots=True)
class Metrics:
    """Numbers, and why some are missing."""

    values: Mapping[str, float]
    """Finite numbers only."""
    undefined: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Keys that have no finite value, each with the reason."""

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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampleResult:
    """What became of one sample."""

    evaluator: str
    """The evaluator's name, or its kind where it has none."""
    sample_id: str
    """The sample."""
    repeat: int = 0
    """Which of several samples of one input, from 0."""
    verdict: Verdict
    """Verdict."""
    score: float | None = None
    """Score, finite; its meaning is the evaluator's."""
    output: str = ""
    """What the model said."""
    extracted: str = ""
    """What the grader took for the answer."""
    method: str = ""
    """How the verdict came about."""
    stop_reason: str = ""
    """"stop", "length", or empty where nothing was generated."""
    output_tokens: int = 0
    """Generated tokens."""
    duration_ns: int = 0
    """Time."""
    attempts: int = 0
    """Model calls it took."""
    problem: Problem | None = None
    """Why it is unscored."""
    measurements: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Further finite numbers of the sample."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorResult:
    """The result of one evaluator."""

    evaluator: EvaluatorSpec
    """As requested."""
    metrics: Metrics
    """Its metrics, keys as in the evaluation."""
    n: int = 0
    """All samples."""
    n_scored: int = 0
    """Samples with a verdict or a measurement."""
    n_unscored: int = 0
    """Undecided and errors."""
    n_errors: int = 0
    """Errors of a backend or a grader among them."""
    problem: Problem | None = None
    """Why it failed, where it did."""


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """An evaluation as it stands."""

    evaluation_id: str
    """Identity."""
    state: EvaluationState
    """State."""
    request: EvaluateRequest
    """What was asked, inline samples left out."""
    metrics: Metrics = Metrics({})
    """All evaluators' metrics."""
    results: tuple[EvaluatorResult, ...] = ()
    """One by one."""
    done: int = 0
    """Samples done, of all evaluators."""
    total: int = 0
    """Samples to do, of all evaluators."""
    dataset_fingerprint: str = ""
    """Content of the data set, SHA-256."""
    model_fingerprint: str = ""
    """Content of the checkpoint, as its backend tells."""
    created_unix_ns: int = 0
    """Unix time in nanoseconds."""
    ended_unix_ns: int = 0
    """Unix time in nanoseconds; 0 until it ends."""
    duration_ns: int = 0
    """Time at work, all attempts."""
    attempt: int = 0
    """Owners it has had so far."""
    last_sequence: int = 0
    """Sequence of its last event: where to watch on from."""
    problem: Problem | None = None
    """Why it failed, or what ended it."""
