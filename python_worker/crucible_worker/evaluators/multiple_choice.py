"""The evaluator `multiple_choice`: the share of questions of which the model considers the right choice the likeliest.

Nothing is generated: the log-probabilities of the choices after the question are compared.
`crucible_worker.metrics.classification` says how, `crucible_worker.rendering.choices` how a question becomes tokens.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
from msgspec import Meta

from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Datum,
    EvaluatorKind,
    Metrics,
    Problem,
    Sample,
    SampleResult,
    Verdict,
)
from crucible_worker.backends.base import Capability, Model
from crucible_worker.backends.continuations import (
    forward_continuations,
    sample_continuations,
)
from crucible_worker.evaluators.base import Outcome, SampleContext
from crucible_worker.evaluators.declared import BaseEvaluator
from crucible_worker.evaluators.measured_tokens import Intermediates, ReduceAdded, choice_group, keys_by, reduced_or
from crucible_worker.grading.base import excerpt
from crucible_worker.metrics.classification import ChoiceLikelihood, Measure, likeliest, right_probability, right_share
from crucible_worker.metrics.scores import ACCURACY_KEYS, Reduce, accuracy
from crucible_worker.rendering import RendererName, check_input
from crucible_worker.rendering.choices import (
    ChoiceForm,
    UnnamedChoice,
    check_choices,
    named_choice,
    render_choices,
)

__all__ = ["Client", "Decides", "Delimiter", "Form", "MultipleChoice"]

_AUTO: Final = "auto"
_TRAINING, _SAMPLING = "training", "sampling"

_IN_TEXT = (
    "multiple_choice needs log-probabilities of tokens. For a model of a server, use the evaluator accuracy with the "
    "grader multiple_choice, and {choices} in the template of the data set's prompt (--evaluator accuracy --grader "
    "multiple_choice --template '{input}\n{choices}')"
)
"""How a model that gets only text is asked instead."""

_BY_MEASURE = {f"accuracy_{measure.value}": measure for measure in Measure}
_AT_ONCE = frozenset({Capability.CONTINUATIONS, Capability.TARGETS})
"""The calls that measure several choices at once."""
_MEASURING = _AT_ONCE | {Capability.LOGPROBS}
_PROBABILITY = "target_probability"
_KEYS = (*ACCURACY_KEYS, *_BY_MEASURE, _PROBABILITY)

Delimiter: TypeAlias = Annotated[
    str | None,
    Meta(
        max_length=100,
        description=(
            "Text between question and choice, if the choice is text. If null, the target delimiter of the data set "
            "in plain text, and nothing after a chat template."
        ),
    ),
]
"""The type of the option `delimiter`."""
Client: TypeAlias = Annotated[
    Literal["auto", "training", "sampling"],
    Meta(
        description=(
            "Query log-probabilities of a sampling client or forward passes of a training client; auto: the one that "
            "takes fewer calls."
        )
    ),
]
"""The type of the option `client` of evaluators that compare choices."""
Decides: TypeAlias = Annotated[
    Measure,
    Meta(
        description=(
            "What decides: the sum of the log-probabilities of a choice's tokens, or this sum divided by the number of "
            "tokens, or of UTF-8 bytes. The accuracy of each measure is reported as well."
        )
    ),
]
"""The type of the option `measure`."""
Form: TypeAlias = Annotated[
    ChoiceForm,
    Meta(
        description=(
            "text: the text of each choice follows the question. letters: the question lists the choices, and their "
            "letters follow it."
        )
    ),
]
"""The type of the option `form`."""


class MultipleChoice(
    BaseEvaluator,
    kind="multiple_choice",
    kinds=(EvaluatorKind.SAMPLING, EvaluatorKind.TRAINING),
    keys=dict.fromkeys(_KEYS, "fraction of 1"),
):
    """Compares the log-probabilities of a question's choices, and reports how often the right one is the likeliest."""

    measure: Decides = Measure.SUM
    form: Form = ChoiceForm.TEXT
    delimiter: Delimiter = None
    client: Client = _AUTO
    renderer: RendererName = "auto"
    reduce: ReduceAdded = Reduce.MEAN
    intermediates: Intermediates = False

    wants_answers: ClassVar[bool] = True
    """See `evaluators.base.wants_answers`."""
    measures_likelihoods: ClassVar[bool] = True
    """See `evaluators.base.measures_likelihoods`."""
    likelihood_cure: ClassVar[str] = _IN_TEXT
    """See `evaluators.base.likelihood_cure`."""

    @classmethod
    def keys_for(cls, options: Mapping[str, Any]) -> Sequence[str]:
        """The keys that one with these options can yield."""
        return keys_by(options, _KEYS)

    def check(self, model: Model) -> None:
        """Refuse a model without the client that is needed.

        Raises:
            FailedPrecondition: the model lacks it (reason MISSING_CLIENT).
        """
        self._forwards(model)

    def check_sample(self, sample: Sample) -> None:
        """Refuse a sample that is no question for any model; `run` checks what its targets name.

        Raises:
            InvalidField: names its choices, its targets, or an input that cannot become a question.
        """
        check_input(sample.input, self.renderer)
        check_choices(sample, self.form)
        if isinstance(sample.input, Datum) and self.measure is Measure.PER_BYTE:
            raise InvalidField("datum", "is tokens, and bytes of its choices are to be counted")

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Measure the choices of one sample.

        Returns:
            CORRECT or INCORRECT with score 1 or 0; PARTIAL if right and wrong choices share the greatest value, with
            the share of right ones as score; UNDECIDED if a target names no choice, or may name two, or the model
            considers every choice impossible.

        Raises:
            InvalidField: the sample is no question, or is longer than the context.
            FailedPrecondition: the sample cannot be rendered for this model, or the client is missing.
            BackendError: the model could not be queried, or answered with NaN (reason NAN_LOGPROB) or +inf.
        """
        self.check_sample(sample)
        named: list[int] = []
        for index, target in enumerate(sample.targets):
            try:
                named.append(named_choice(target, sample.choices, sample.choice_labels))
            except UnnamedChoice as error:
                return self._undecided(f"targets[{index}] {error}", {})
        right = frozenset(named)
        try:
            question = await render_choices(context.model.tokenizer, sample, self.form, self.delimiter, self.renderer)
        except FailedPrecondition as error:
            if error.reason == Reason.NO_TOKENIZER:
                raise FailedPrecondition(f"{error.message}; {_IN_TEXT}", reason=error.reason) from error
            raise
        logprobs = await self._logprobs(context.model, question.prompt, question.continuations)
        _check(logprobs)
        found = [ChoiceLikelihood.of(*each) for each in zip(logprobs, question.texts, strict=True)]
        outcome = self._judged(sample, found, right)
        if outcome.score is None or not self.intermediates:
            return outcome
        group = choice_group(question.prompt, question.continuations, logprobs, right)
        return dataclasses.replace(outcome, group=group)

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """Accuracy by the deciding measure, with its uncertainty; by each measure; and the target's probability.

        The option `reduce` may replace them.
        """
        return reduced_or(results, self.reduce, self._means)

    def _means(self, results: Iterable[SampleResult]) -> Metrics:
        scores: list[Sequence[float | None]] = []
        further: dict[str, list[float]] = {key: [] for key in (*_BY_MEASURE, _PROBABILITY)}
        for result in results:
            scored = result.verdict.scored
            scores.append([result.score if scored else None])
            for key, values in further.items():
                if scored and key in result.measurements:
                    values.append(result.measurements[key])
        metrics = accuracy(scores)
        measured = sum(score is not None for (score,) in scores)
        values, undefined = dict(metrics.values), dict(metrics.undefined)
        for key, found in further.items():
            if measured and len(found) == measured:
                values[key] = math.fsum(found) / measured
            elif measured:
                # A mean over some of the samples would not compare with the other means.
                undefined[key] = f"{measured - len(found):,} of {measured:,} samples have choices without bytes"
            else:
                undefined[key] = "no sample was scored"
        return Metrics.of(values, undefined)

    def _judged(self, sample: Sample, found: Sequence[ChoiceLikelihood], right: frozenset[int]) -> Outcome:
        taken = likeliest(found, self.measure)
        if taken is None:
            return self._undecided("the model considers every choice impossible", _measurements(found, right))
        score = right_share(taken, right)
        verdict = {0.0: Verdict.INCORRECT, 1.0: Verdict.CORRECT}.get(score, Verdict.PARTIAL)
        return Outcome(
            verdict=verdict,
            score=score,
            extracted=excerpt("\n".join(sample.choices[index] for index in taken)),
            method=self.measure.value,
            measurements=_measurements(found, right),
        )

    def _undecided(self, why: str, measurements: Mapping[str, float]) -> Outcome:
        problem = Problem(reason=Reason.UNDECIDED, message=why)
        return Outcome(verdict=Verdict.UNDECIDED, method=self.measure.value, problem=problem, measurements=measurements)

    async def _logprobs(
        self, model: Model, prompt: Sequence[int], continuations: Sequence[Sequence[int]]
    ) -> Sequence[np.ndarray]:
        if self._forwards(model):
            return await forward_continuations(model, prompt, continuations)
        return await sample_continuations(model, prompt, continuations)

    def _forwards(self, model: Model) -> bool:
        """Whether forward passes measure the choices, and not queries of a sampling client."""
        able = model.capabilities
        measures = self.client != _TRAINING and not able.isdisjoint(_MEASURING)
        forwards = self.client != _SAMPLING and Capability.FORWARD in able
        if measures and (not forwards or not able.isdisjoint(_AT_ONCE)):
            return False
        if forwards:
            return True
        needed = "a sampling or a training" if self.client == _AUTO else f"a {self.client}"
        raise FailedPrecondition(
            f"multiple_choice needs {needed} client, which the model lacks", reason=Reason.MISSING_CLIENT
        )


def _check(logprobs: Sequence[np.ndarray]) -> None:
    values = np.concatenate(logprobs)
    if nan := int(np.count_nonzero(np.isnan(values))):
        message = f"{nan:,} of {values.size:,} log-probabilities are NaN"
        raise BackendError(message, reason=Reason.NAN_LOGPROB, retryable=False)
    if infinite := int(np.count_nonzero(np.isposinf(values))):
        message = f"{infinite:,} of {values.size:,} log-probabilities are +inf"
        raise BackendError(message, reason=Reason.INFINITE_LOGPROB, retryable=False)


def _measurements(found: Sequence[ChoiceLikelihood], right: frozenset[int]) -> dict[str, float]:
    """The measurements of a sample; a log-probability of -inf is left out, as measurements are finite."""
    kept: dict[str, float] = {}
    for index, choice in enumerate(found):
        if math.isfinite(choice.logprob):
            kept[f"logprob[{index}]"] = choice.logprob
        kept[f"tokens[{index}]"] = float(choice.tokens)
    for key, measure in _BY_MEASURE.items():
        if (taken := likeliest(found, measure)) is not None:
            kept[key] = right_share(taken, right)
    if (probability := right_probability(found, right)) is not None:
        kept[_PROBABILITY] = probability
    return kept
