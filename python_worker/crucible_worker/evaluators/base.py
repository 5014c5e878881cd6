"""What an evaluator is: how it queries and judges one sample, and how the judgements become metrics.

The engine owns everything between: concurrency, retries, time-outs, the journal. An evaluator never retries, never
catches a backend's error, and keeps no state between samples, so that an evaluation can resume on another worker.
"""

from __future__ import annotations

import dataclasses
import enum
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from crucible_bridge.types import (
    AnsweredEnvironment,
    AnsweredGrade,
    Conversation,
    EpisodeAction,
    EvaluatorInfo,
    EvaluatorKind,
    Metrics,
    ModelRef,
    OpenEpisode,
    Problem,
    Sample,
    SampleResult,
    SamplingParams,
    ToolCall,
    TrajectoryGroup,
    Turn,
    UnparsedToolCall,
    Verdict,
)
from crucible_worker.backends.base import Model

__all__ = [
    "NAMED",
    "Bound",
    "CallerPart",
    "Evaluator",
    "EvaluatorType",
    "HasAuxiliaryModels",
    "HoldsProcesses",
    "Outcome",
    "PartKind",
    "SampleCaller",
    "SampleContext",
    "as_asked",
    "caller_parts",
    "kinds_of",
    "likelihood_cure",
    "measures_auxiliary_models",
    "measures_likelihoods",
    "model_path",
    "stops_itself",
    "takes_models",
    "turns_kept",
    "wants_answers",
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """When a sample of an evaluator that `stops_itself` has to end."""

    seconds: float
    """Seconds from the beginning of its run until it receives the request to stop."""
    wind_up_seconds: float
    """Seconds from that request until it is killed."""
    problem: Problem
    """The problem of a sample that is not done by then."""
    clock: Callable[[], float] = time.monotonic
    """Seconds that stand still while the evaluation is paused."""


class PartKind(enum.StrEnum):
    """What may stay with the caller, next to the model."""

    GRADER = "grader"
    ENVIRONMENT = "environment"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CallerPart:
    """A part of an evaluator that stays with the caller."""

    kind: PartKind
    """What it is."""
    option: str
    """The option that names it."""
    text: str
    """The option's value."""
    name: str
    """Its name at the caller; empty for the caller's only one."""


class SampleCaller(Protocol):
    """The caller of an evaluation as one sample sees it; the engine counts its answers as progress."""

    @property
    def evaluator(self) -> str:
        """Name of the evaluator, for questions."""
        ...

    async def grade(self, grader: str, sample: Sample, response: str) -> AnsweredGrade:
        """Ask a grader; an empty name is the only one.

        Raises:
            BridgeError: it has no valid answer, or has left.
        """
        ...

    def new_episode(self) -> int:
        """A number for an episode that `follow` opens then."""
        ...

    async def follow(
        self, environment: str, episode: int, question: OpenEpisode | EpisodeAction
    ) -> AnsweredEnvironment:
        """Open an episode, or continue it; an empty name is the only environment.

        Raises:
            BridgeError: it has no valid answer, or has left.
        """
        ...

    def close_episode(self, number: int) -> None:
        """Nothing further is asked of the episode; does not wait."""
        ...


def _unseen() -> None:
    """Progress that is not observed."""


def _uncounted(done: int, total: int) -> None:
    """Questions that are not counted."""


@dataclasses.dataclass(slots=True, kw_only=True)
class SampleContext:
    """The context of an evaluator for one sample."""

    model: Model
    """The model. Its calls are counted, gated and retried by the engine."""
    repeat: int
    """The number of this run of the sample, from 0 to `repeats` - 1."""
    seed: int
    """A function of the evaluation's seed, the sample's id and the repeat: the same on every attempt."""
    auxiliary_models: Mapping[str, Model] = dataclasses.field(default_factory=dict)
    """The further models of an evaluator that `HasAuxiliaryModels`; the engine treats them like `model`."""
    bound: Bound | None = None
    """Only for an evaluator that `stops_itself`; None if only the evaluation bounds it."""
    keeps_turns: bool = False
    """Whether `Outcome.turns` is recorded; if not, an evaluator need not build it."""
    progressed: Callable[[], None] = _unseen
    """An evaluator that `stops_itself` calls it when its sample makes progress, so that it never counts as stalled."""
    counted: Callable[[int, int], None] = _uncounted
    """An evaluator with many questions in a sample calls it with the number of questions done, and of all."""
    caller: SampleCaller | None = None
    """The caller, if it has stayed connected to answer questions of evaluators."""
    folder: Path | None = None
    """A folder for files of this evaluation and evaluator: the evaluator creates it, the worker deletes it with
    the evaluation."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Outcome:
    """An evaluator's result for one sample; the engine adds identity, time and attempts."""

    verdict: Verdict
    """What it amounts to."""
    score: float | None = None
    """A finite number whose meaning the evaluator defines; None if the sample is unscored."""
    output: str = ""
    """What the model said, its reasoning with its tags included."""
    extracted: str = ""
    """What the grader parsed as the answer."""
    method: str = ""
    """How the verdict came about."""
    stop_reason: str = ""
    """"stop", "length", or empty if nothing was generated."""
    output_tokens: int | None = 0
    """Generated tokens; None if the model's server does not report them, as the engine finds where this is 0."""
    problem: Problem | None = None
    """Why it is unscored."""
    measurements: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Further finite numbers, by name, that `aggregate` needs."""
    group: TrajectoryGroup | None = None
    """Rollouts to record, at most MAX_GROUP_BYTES: above that the sample is an ERROR."""
    turns: tuple[Turn, ...] = ()
    """What the evaluated model received and answered, with rewards, if the evaluator knows more than the calls show:
    the calls of every model are recorded anyway."""
    turns_left_out: int = 0
    """Bytes of turns that did not fit."""
    reasoning: str = ""
    """The reasoning, without tags: of the output, and what a server returned apart."""
    refusal: str = ""
    """The refusal that a server returned in place of an answer."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls of tools that an answer makes."""
    unparsed_tool_calls: tuple[UnparsedToolCall, ...] = ()
    """Those that cannot be parsed."""

    @classmethod
    def of(cls, found: bool | float, **measurements: float) -> Outcome:
        """Make the outcome of an answer that is right or wrong, or that has a score.

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
        """Refuse a sample of the request if its structure can never work; `run` judges its values.

        Raises:
            InvalidField: the path begins at the sample: `datum.loss_fn_inputs["weights"]`.
        """
        ...

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Query the model about one sample, and judge what it answers.

        Raises:
            BridgeError: the sample cannot be judged: it becomes ERROR with that reason, the other samples continue.
        """
        ...

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """Metrics over every sample and repeat, in the data set's order, passed once: bare keys, exact sums."""
        ...


@runtime_checkable
class HasAuxiliaryModels(Protocol):
    """The methods of a built-in evaluator that queries further models; the engine opens and loads these models."""

    @property
    def auxiliary_models(self) -> Mapping[str, ModelRef]:
        """The further models, by the option that names each: "judge", or "grader_options.judge" for a nested option."""
        ...

    def check_auxiliary_models(self, auxiliary_models: Mapping[str, Model]) -> None:
        """Refuse further models that the evaluator cannot work with.

        Raises:
            FailedPrecondition: one lacks the client that the evaluator needs.
        """
        ...

    @property
    def needs_auxiliary_models(self) -> bool:
        """Whether it queries them about every sample: then it fails if one of them cannot be loaded.

        If it queries them about some samples only, those samples alone are ERROR.
        """
        ...


@runtime_checkable
class HoldsProcesses(Protocol):
    """The methods of a built-in evaluator that starts separate processes."""

    async def get_ready(self) -> None:
        """Start what samples need, before the first one runs; the samples report what fails here."""
        ...

    def close(self) -> None:
        """End the processes at the end of the attempt, at once except for cleanup; called once, does not wait."""
        ...


def kinds_of(evaluator: Evaluator) -> Sequence[EvaluatorKind]:
    """Which clients of a model it can work with."""
    return getattr(evaluator, "kinds", (EvaluatorKind.SAMPLING,))


def stops_itself(evaluator: Evaluator) -> bool:
    """Whether one sample of it may take as long as an evaluation.

    The engine's time-outs do not apply to it. It ends at the `bound` of its context, with its results up to then.
    """
    return getattr(evaluator, "stops_itself", False)


def turns_kept(evaluator: Evaluator) -> int | None:
    """Of how many samples, from the first of the data set, the turns are recorded; None: of all of them."""
    return getattr(evaluator, "turns_kept", None)


NAMED = "models:"
"""Begins the name of an auxiliary model that the request's `models` has, before its role or name there."""


def model_path(name: str) -> str:
    """Path in a request of a further model, by its role or name."""
    return f'models["{name}"]'


def takes_models(evaluator: Evaluator) -> bool:
    """Whether it uses the further models of a request, by their roles and names."""
    return getattr(evaluator, "takes_models", False)


def wants_answers(evaluator: Evaluator) -> bool:
    """Whether it lets a model answer and compares: it then needs a conversation's question apart from its answer."""
    return getattr(evaluator, "wants_answers", False)


def as_asked(sample: Sample) -> Sample:
    """The sample that an evaluator receives which `wants_answers`.

    If a conversation ends with the assistant's message, the question is the conversation before it. That message is
    the target, unless the sample has targets.
    """
    if not isinstance(sample.input, Conversation) or not sample.expected:
        return sample
    *asked, last = sample.input.messages
    if not asked or last.role != "assistant":
        return sample
    question = Conversation(tuple(asked), sample.input.tools)
    return dataclasses.replace(sample, input=question, targets=sample.expected)


def caller_parts(evaluator: Evaluator) -> Sequence[CallerPart]:
    """Its parts that stay with the caller: it runs only in an evaluation whose caller stays connected."""
    return getattr(evaluator, "caller_parts", ())


def measures_likelihoods(evaluator: Evaluator) -> bool:
    """Whether it measures given text and generates nothing: it queries log-probabilities of prompts."""
    return getattr(evaluator, "measures_likelihoods", False)


def measures_auxiliary_models(evaluator: Evaluator) -> bool:
    """Whether it measures the likelihoods of its further models too."""
    return getattr(evaluator, "measures_auxiliary_models", False)


def likelihood_cure(evaluator: Evaluator) -> str:
    """What to evaluate by instead where a server returns no log-probabilities of prompts; empty if it knows nothing."""
    return getattr(evaluator, "likelihood_cure", "")


class EvaluatorType(Protocol):
    """A kind of evaluator, as the registry holds it."""

    @property
    def info(self) -> EvaluatorInfo:
        """What it is, with the JSON schema of its options.

        `keys` names every key that `aggregate` can yield; an option that replaces these keys says so.
        """
        ...

    def create(self, options: Mapping[str, Any], sampling: SamplingParams | None) -> Evaluator:
        """Make one; the options have passed the schema and include its defaults.

        Raises:
            InvalidField: something is wrong that the schema cannot express, such as a needed `sampling` being absent.
        """
        ...
