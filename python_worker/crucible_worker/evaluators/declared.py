'''Evaluators that are declared once: a class whose annotated fields are its options.

    class Brevity(AnswerEvaluator, keys={"brevity": "fraction of 1", "words": "words"}):
        """Samples answers and reports the share that is short."""

        max_words: Annotated[int, Meta(ge=1)] = 3
        """Words that a short answer has at most."""

        def judge(self, answer: str, sample: Sample) -> Outcome:
            """Count the words of an answer."""
            words = len(answer.split())
            return Outcome.of(words <= self.max_words, words=words)

Each class is a frozen dataclass without being decorated. `util.options` says what a field may be.
'''

from __future__ import annotations

import abc
import dataclasses
import functools
import inspect
import math
import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, dataclass_transform

from crucible_bridge.errors import InternalError, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    EvaluatorInfo,
    EvaluatorKind,
    Goal,
    Metrics,
    Sample,
    SampleResult,
    SamplingParams,
)
from crucible_worker.backends.base import Model
from crucible_worker.evaluators.answering import Answering, check_sampling_client
from crucible_worker.evaluators.base import Outcome, SampleContext
from crucible_worker.metrics.scores import Reduce, reduced, scores_by_sample
from crucible_worker.rendering import RendererName, check_input, check_renderer
from crucible_worker.util.options import Handed, first_line, handed_names, schema_of, values_of

__all__ = ["AnswerEvaluator", "BaseEvaluator", "DeclaredKind", "SamplingEvaluator"]

_SAMPLING = "sampling"
_MAX_NAMED = 5  # measurements in an error


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
class _Declared:
    """Makes each subclass a frozen dataclass, and stores what its header says."""

    kind: ClassVar[str]
    """Its name in requests."""
    kinds: ClassVar[tuple[EvaluatorKind, ...]] = (EvaluatorKind.SAMPLING,)
    """Which clients of a model it can work with."""
    keys: ClassVar[Mapping[str, str]]
    """Every key that `aggregate` can yield, with its unit; `pass@<k>` means every key with a value in place of <k>."""
    score_goal: ClassVar[Goal | None] = Goal.HIGHER
    """Which scores are better; None if neither."""

    def __init_subclass__(
        cls,
        *,
        kind: str = "",
        keys: Mapping[str, str] | None = None,
        kinds: tuple[EvaluatorKind, ...] | None = None,
        score_goal: Goal | str | None = "",
        **further: Any,
    ) -> None:
        """Declare a kind of evaluator.

        Args:
            kind: the name in requests; if empty, the name of the class in small letters: BrevityOfAll is
                brevity_of_all.
            keys: see `keys`; if None, the keys of the class from which it inherits `aggregate`, or else those of the
                mean score and its standard error.
            kinds: see `kinds`; if None, those of the base class.
            score_goal: see `score_goal`; if empty, that of the base class.
            further: for other base classes.
        """
        super().__init_subclass__(**further)
        cls.kind = kind or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        if keys is not None:
            cls.keys = keys
        elif getattr(cls, "aggregate", None) is BaseEvaluator.aggregate:
            cls.keys = {cls.kind: "mean score", f"{cls.kind}_stderr": "its standard error"}
        if kinds is not None:
            cls.kinds = kinds
        if score_goal is None or isinstance(score_goal, Goal):
            cls.score_goal = score_goal
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)


class BaseEvaluator(_Declared, abc.ABC, keys={}):
    """An evaluator with its options, which are its fields; see `evaluators.base.Evaluator` for the methods.

    By default it accepts every model and every sample, runs each sample once, and reports the mean of the scores.
    """

    sampling: Handed[SamplingParams | None] = None
    """How the request wants to be sampled."""

    needs_sampling: ClassVar[bool] = False
    """Whether a request has to say how to sample."""

    def __post_init__(self) -> None:
        """Refuse wrong options that no schema can express. A subclass that overrides this method calls it.

        Raises:
            InvalidField: an option is wrong; its path begins with `options["name"]`.
            FailedPrecondition: an option needs a library that is not installed, or a part that this worker lacks.
        """
        for name in ("renderer", "judge_renderer"):
            if isinstance(renderer := getattr(self, name, None), str):
                check_renderer(renderer)

    @property
    def repeats(self) -> int:
        """How often each sample is run: once."""
        return 1

    def check(self, model: Model) -> None:
        """Accept every model."""

    def check_sample(self, sample: Sample) -> None:
        """Accept every sample: a sample that cannot be run becomes an ERROR."""

    @abc.abstractmethod
    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Query the model about one sample, and judge what it answers."""

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """Compute means over the scored results: the mean score for the kind, the mean measurement for each other key.

        A key that ends in "_stderr" is the standard error of the mean score, clustered by sample.
        """
        listed = list(results)
        values: dict[str, float] = {}
        undefined: dict[str, str] = {}
        mean = reduced(scores_by_sample(listed), Reduce.MEAN)
        names = {"score_mean": self.kind, "score_mean_stderr": f"{self.kind}_stderr"}
        scored = [result for result in listed if result.verdict.scored]
        for key in self.keys:
            found = [result.measurements[key] for result in scored if key in result.measurements]
            if key not in names.values() and found:
                values[key] = math.fsum(found) / len(found)
            elif key not in names.values():
                undefined[key] = self._why_missing(key, scored) if scored else "no sample was scored"
        values |= {names[name]: value for name, value in mean.values.items() if names[name] in self.keys}
        undefined |= {names[name]: why for name, why in mean.undefined.items() if names[name] in self.keys}
        return Metrics.of(values, undefined)

    def _why_missing(self, key: str, scored: Sequence[SampleResult]) -> str:
        """Why an announced key has no value, with the measurements that are not announced."""
        why = f"no sample has the measurement {key}"
        if others := sorted({name for result in scored for name in result.measurements} - set(self.keys)):
            listed = ", ".join(map(repr, others[:_MAX_NAMED]))
            why += f"; samples have {listed}, which `keys` of the class {type(self).__name__} does not declare"
        return why

    @classmethod
    def keys_for(cls, options: Mapping[str, Any]) -> Sequence[str]:
        """The keys that an evaluator with these options can yield; the options are valid."""
        return tuple(cls.keys)

    @classmethod
    def definitions(cls) -> Mapping[str, Any]:
        """The content of `$defs` in the schema of the options."""
        return {}

    @classmethod
    def unavailable(cls) -> str:
        """Why it cannot be used here; empty if it can."""
        return ""


class SamplingEvaluator(BaseEvaluator):
    """An evaluator that lets the model generate."""

    # `DeclaredKind.create` refuses a request without it.
    sampling: Handed[SamplingParams]  # pyright: ignore[reportGeneralTypeIssues]
    """How the model is sampled."""

    needs_sampling: ClassVar[bool] = True
    wants_answers: ClassVar[bool] = True
    """See `evaluators.base.wants_answers`."""

    def check(self, model: Model) -> None:
        """Refuse a model that cannot generate.

        Raises:
            FailedPrecondition: the model lacks a sampling client (reason MISSING_CLIENT).
        """
        check_sampling_client(model, self.kind)


class AnswerEvaluator(SamplingEvaluator):
    """An evaluator with one answer to each sample, which it judges without a grader: `judge` is all it needs."""

    renderer: RendererName = "auto"

    def check_sample(self, sample: Sample) -> None:
        """Refuse a conversation if the renderer accepts no conversations.

        Raises:
            InvalidField: names it.
        """
        check_input(sample.input, self.renderer)

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Sample one answer, with the sample's own seed, and judge what it says after the reasoning.

        Raises:
            BridgeError: the model could not be queried, the prompt is empty, or `judge` returned another type (reason
                EVALUATOR_FAILED).
        """
        answering = Answering(sampling=self.sampling, renderer=self.renderer)
        answer = await answering.answer(context.model, sample.input, context.seed)
        outcome = self.judge(answer.text, sample)
        if inspect.isawaitable(outcome):
            outcome = await outcome
        if not isinstance(outcome, Outcome):
            message = f"judge of {self.kind!r} returned {type(outcome).__name__}, not Outcome: return Outcome.of(score)"
            raise InternalError(message, reason=Reason.EVALUATOR_FAILED)
        return dataclasses.replace(
            outcome,
            output=answer.output,
            stop_reason=answer.sequence.stop_reason,
            output_tokens=answer.sequence.output_tokens,
        )

    @abc.abstractmethod
    def judge(self, answer: str, sample: Sample) -> Outcome | Awaitable[Outcome]:
        """Judge the answer without its reasoning; the whole output is added to the outcome. It may be a coroutine."""


@dataclasses.dataclass(frozen=True, slots=True)
class DeclaredKind:
    """A class of evaluators as a kind in the registry."""

    evaluator: type[BaseEvaluator]
    """It."""

    @property
    def info(self) -> EvaluatorInfo:
        """What it is, with the JSON schema of its options.

        Raises:
            Undeclarable: a field cannot be an option.
        """
        info, why = _info_of(self.evaluator), self.evaluator.unavailable()
        return dataclasses.replace(info, unavailable=why) if why else info

    def keys_by(self, options: Mapping[str, Any]) -> Sequence[str]:
        """The keys that an evaluator with these options can yield."""
        return self.evaluator.keys_for(options)

    def create(
        self, options: Mapping[str, Any], sampling: SamplingParams | None, parts: object | None = None
    ) -> BaseEvaluator:
        """Make an evaluator of options that passed the schema and include its defaults.

        Args:
            options: its options.
            sampling: how the request wants to be sampled.
            parts: the worker's parts, for its fields that are `Handed`.

        Raises:
            InvalidField: `sampling` is missing, or `BaseEvaluator.__post_init__` refuses an option.
            FailedPrecondition: `BaseEvaluator.__post_init__` raises it.
        """
        kind = self.evaluator.kind
        if self.evaluator.needs_sampling and sampling is None:
            raise InvalidField(_SAMPLING, f"is missing, and {kind} samples answers: give at least max_tokens")
        handed = [name for name in handed_names(self.evaluator) if name != _SAMPLING and parts is not None]
        return self.evaluator(
            **values_of(self.evaluator, options),
            **{name: getattr(parts, name) for name in handed},
            sampling=sampling,
        )


@functools.cache
def _info_of(evaluator: type[BaseEvaluator]) -> EvaluatorInfo:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema_of(evaluator)}
    definitions = evaluator.definitions()
    return EvaluatorInfo(
        kind=evaluator.kind,
        kinds=evaluator.kinds,
        description=first_line(evaluator),
        options_schema={**schema, "$defs": dict(definitions)} if definitions else schema,
        keys=evaluator.keys,
        score_goal=evaluator.score_goal,
    )
