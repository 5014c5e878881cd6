"""What an evaluator is: how one sample is asked and judged, and how the judgements become metrics.

The engine owns everything between: concurrency, retries, time-outs, the journal. An evaluator never retries, never
catches a backend's error, and keeps no state between samples, so that an evaluation can go on elsewhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from crucible_bridge.types import (
    Conversation,
    EvaluatorInfo,
    EvaluatorKind,
    Metrics,
    ModelRef,
    Problem,
    Sample,
    SampleResult,
    SamplingParams,
    TrajectoryGroup,
    Turn,
    Verdict,
)
from crucible_worker.backends.base import Model

__all__ = [
    "Bound",
    "Evaluator",
    "EvaluatorType",
    "HasAuxiliaryModels",
    "HoldsProcesses",
    "Outcome",
    "SampleContext",
    "as_asked",
    "kinds_of",
    "measures_likelihoods",
    "stops_itself",
    "wants_answers",
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """When a sample has to end, of an evaluator that `stops_itself`."""

    seconds: float
    """From the beginning of its run; then it receives the request to stop."""
    wind_up_seconds: float
    """From then on; then it is killed."""
    problem: Problem
    """What it ends with if it is not done by then."""


def _unseen() -> None:
    """Progress that is not observed."""


def _uncounted(done: int, total: int) -> None:
    """Questions that are not counted."""


@dataclasses.dataclass(slots=True, kw_only=True)
class SampleContext:
    """What an evaluator has at hand for one sample."""

    model: Model
    """The model. Its calls are counted, gated and retried by the engine."""
    repeat: int
    """Which of several samples of one input, from 0."""
    seed: int
    """A function of the evaluation's seed, the sample's id and the repeat: the same on every attempt."""
    auxiliary_models: Mapping[str, Model] = dataclasses.field(default_factory=dict)
    """The further models of an evaluator that `HasAuxiliaryModels`, treated as `model` is."""
    bound: Bound | None = None
    """Of an evaluator that `stops_itself` alone; None if only the evaluation bounds it."""
    keeps_turns: bool = False
    """Whether `Outcome.turns` is recorded: without it, an evaluator need not put it together."""
    progressed: Callable[[], None] = _unseen
    """Called by an evaluator that `stops_itself` whenever its sample gets further: the evaluation does not stall."""
    counted: Callable[[int, int], None] = _uncounted
    """Called by an evaluator of which a sample is many questions: how many of them are done, and how many there are."""
    folder: Path | None = None
    """Where files may be kept that belong to this evaluation and evaluator; made by whoever keeps one, gone with it."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Outcome:
    """What an evaluator found of one sample; the engine adds identity, time and attempts."""

    verdict: Verdict
    """What it amounts to."""
    score: float | None = None
    """Finite, its meaning is the evaluator's; None where it is unscored."""
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
    problem: Problem | None = None
    """Why it is unscored."""
    measurements: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Further finite numbers, by name, that `aggregate` needs."""
    group: TrajectoryGroup | None = None
    """Rollouts to be kept, at most MAX_GROUP_BYTES: above that the sample is an ERROR."""
    turns: tuple[Turn, ...] = ()
    """What the evaluated model got and said, with rewards, where the evaluator knows more of it than the calls show:
    those of every model are noted anyway."""
    turns_left_out: int = 0
    """Bytes of turns for which there was no room."""

    @classmethod
    def of(cls, found: bool | float, **measurements: float) -> Outcome:
        """The outcome of an answer that is right or wrong, or that has a score.

        Args:
            found: True for CORRECT with score 1, False for INCORRECT with score 0, a number for MEASURED with it.
            measurements: by name.
        """
        verdict = Verdict.MEASURED
        if isinstance(found, bool):
            verdict = Verdict.CORRECT if found else Verdict.INCORRECT
        return cls(verdict=verdict, score=float(found), measurements=measurements)


class Evaluator(Protocol):
    """An evaluator with its options, ready for samples."""

    @property
    def repeats(self) -> int:
        """How often each sample is run, from 1."""
        ...

    def check(self, model: Model) -> None:
        """Refuse a model that it cannot work with.

        Raises:
            FailedPrecondition: the model lacks the client that the evaluator needs.
        """
        ...

    def check_sample(self, sample: Sample) -> None:
        """Refuse a sample of the request whose structure can never work; its values are judged by `run`.

        Raises:
            InvalidField: the path begins at the sample: `datum.loss_fn_inputs["weights"]`.
        """
        ...

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Ask and judge one sample.

        Raises:
            BridgeError: the sample cannot be judged: it becomes ERROR with that reason, the others go on.
        """
        ...

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """Metrics over every sample and repeat, in the data set's order, passed once: bare keys, exact sums."""
        ...


@runtime_checkable
class HasAuxiliaryModels(Protocol):
    """What an evaluator of the worker's own has that asks further models; the engine opens and loads them."""

    @property
    def auxiliary_models(self) -> Mapping[str, ModelRef]:
        """Which, each by the option that names it: "judge", or "grader_options.judge" where it stands in another."""
        ...

    def check_auxiliary_models(self, auxiliary_models: Mapping[str, Model]) -> None:
        """Refuse further models that it cannot work with.

        Raises:
            FailedPrecondition: one lacks the client that the evaluator needs.
        """
        ...

    @property
    def needs_auxiliary_models(self) -> bool:
        """Whether it asks them about every sample: it fails where one cannot be loaded.

        Of an evaluator that asks about some samples alone, those are ERROR then.
        """
        ...


@runtime_checkable
class HoldsProcesses(Protocol):
    """What an evaluator of the worker's own has that starts processes of its own."""

    async def get_ready(self) -> None:
        """Start what samples need, before the first is run; what fails here is told by those."""
        ...

    def close(self) -> None:
        """End them as the attempt ends, at once but for what has to be given back; called once, does not wait."""
        ...


def kinds_of(evaluator: Evaluator) -> Sequence[EvaluatorKind]:
    """Which clients of a model it can work with."""
    return getattr(evaluator, "kinds", (EvaluatorKind.SAMPLING,))


def stops_itself(evaluator: Evaluator) -> bool:
    """Whether one sample of it may take as long as an evaluation.

    No time-out of the engine is for it. It ends at the `bound` of its context, with what it has found by then.
    """
    return getattr(evaluator, "stops_itself", False)


def wants_answers(evaluator: Evaluator) -> bool:
    """Whether it has a model answer, and compares: of a conversation it wants what was asked, apart from the answer."""
    return getattr(evaluator, "wants_answers", False)


def as_asked(sample: Sample) -> Sample:
    """A sample as an evaluator gets it that `wants_answers`.

    Of a conversation without targets that ends with the assistant's message, that message is the target, and the
    conversation before it is asked.
    """
    if sample.targets or not isinstance(sample.input, Conversation) or not sample.expected:
        return sample
    asked = Conversation(sample.input.messages[:-1])
    return dataclasses.replace(sample, input=asked, targets=sample.expected)


def measures_likelihoods(evaluator: Evaluator) -> bool:
    """Whether it measures what is there, and has the model answer nothing: it asks for log-probabilities of prompts."""
    return getattr(evaluator, "measures_likelihoods", False)


class EvaluatorType(Protocol):
    """A kind of evaluator, as the registry holds it."""

    @property
    def info(self) -> EvaluatorInfo:
        """What it is, with the JSON schema of its options.

        `keys` names every key that `aggregate` can yield; an option that puts others in their place says so.
        """
        ...

    def create(self, options: Mapping[str, Any], sampling: SamplingParams | None) -> Evaluator:
        """Make one; the options have passed the schema and bear its defaults.

        Raises:
            InvalidField: what the schema cannot say is wrong, for instance no `sampling` where it is needed.
        """
        ...
