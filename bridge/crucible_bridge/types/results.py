"""What was found: verdicts, metrics, results of samples, evaluators and evaluations."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crucible_bridge.types.requests import EvaluateRequest, EvaluatorSpec
    from crucible_bridge.types.rollouts import TrajectoryGroup

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
    """Stable, upper case: "SAMPLE_TIMEOUT"."""
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampleResult:
    """What became of one sample."""

    evaluator: str
    """The evaluator's name, or its kind where it has none."""
    sample_id: str
    """The sample's id."""
    repeat: int = 0
    """Which of several samples of one input, from 0."""
    verdict: Verdict
    """What was found of the answer."""
    score: float | None = None
    """Finite; None where unscored. accuracy: 0 to 1, 1 is right. nll: nats per unit of weight."""
    output: str = ""
    """What the model generated; empty where nothing was."""
    extracted: str = ""
    """What the grader took for the answer, at most 1,000 characters."""
    method: str = ""
    """By which rule of the grader the verdict came about."""
    stop_reason: str = ""
    """"stop", "length", or empty where nothing was generated."""
    output_tokens: int = 0
    """Generated tokens."""
    duration_ns: int = 0
    """Wall time of its last run in nanoseconds, with its retries and the waits between them."""
    attempts: int = 0
    """Model calls it took, retries included."""
    problem: Problem | None = None
    """Why it is unscored."""
    measurements: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Further finite numbers of the sample, by the evaluator's own keys."""
    group: TrajectoryGroup | None = None
    """Its rollouts, where the evaluator keeps them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorResult:
    """The result of one evaluator."""

    evaluator: EvaluatorSpec
    """As requested."""
    metrics: Metrics
    """Its metrics, under the same full keys as in Evaluation."""
    n: int = 0
    """Runs of samples: samples times repeats."""
    n_scored: int = 0
    """Those with a verdict or a measurement."""
    n_unscored: int = 0
    """Those without: `n - n_scored`, UNDECIDED and ERROR."""
    n_errors: int = 0
    """Those with verdict ERROR."""
    n_truncated: int = 0
    """Those whose output was cut at max_tokens or a full context, whatever their verdict."""
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
    """As requested, or made by the worker."""
    state: EvaluationState
    """Where it is in its life."""
    request: EvaluateRequest
    """What was asked first, with the limits in force; inline samples are left out."""
    metrics: Metrics = Metrics({})
    """Metrics of the evaluators that finished, under `prefix + "name/" + key`; empty until it ends."""
    results: tuple[EvaluatorResult, ...] = ()
    """Evaluators one by one, as in the request; empty until it ends."""
    done: int = 0
    """Runs of samples done, of all evaluators."""
    total: int = 0
    """Runs of samples to do: samples times repeats, of all evaluators that can work with the model. 0 until the data
    set has been read: that of a plan's step is read once the step was answered."""
    dataset_fingerprint: str = ""
    """SHA-256 of the samples, in hexadecimal; empty until they have been read."""
    model_fingerprint: str = ""
    """Content of the checkpoint, as its backend tells; behind a "+", that of each model which judges. Empty until the
    data set has been read."""
    created_unix_ns: int = 0
    """When it was accepted, Unix time in nanoseconds."""
    ended_unix_ns: int = 0
    """When it ended, Unix time in nanoseconds; 0 until then."""
    duration_ns: int = 0
    """Time with an owner in nanoseconds, all attempts, waiting for a turn included."""
    attempt: int = 0
    """Attempts so far, from 1: each has one owner."""
    last_sequence: int = 0
    """Sequence of its last event: where to watch on from."""
    problem: Problem | None = None
    """Why it failed or was cancelled."""
