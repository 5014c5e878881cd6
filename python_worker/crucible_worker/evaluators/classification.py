"""The evaluator `classification`: one of the same labels for every sample, by likelihood or by an answer.

By likelihood, labels are compared as `multiple_choice` compares choices. By generation, an answer is sampled, and the
prediction is the label that it names. `crucible_worker.metrics.classification` and `.calibration` define the keys.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import string
from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta

from crucible_bridge.errors import InvalidField
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
from crucible_worker.backends.base import Model
from crucible_worker.evaluators.accuracy import Accuracy
from crucible_worker.evaluators.base import Outcome, SampleContext
from crucible_worker.evaluators.declared import BaseEvaluator
from crucible_worker.evaluators.multiple_choice import Client, Decides, Delimiter, Form, MultipleChoice
from crucible_worker.grading import choice
from crucible_worker.metrics.classification import (
    ChoiceLikelihood,
    Measure,
    classification_metrics,
    expected_calibration_error,
    likeliest,
    right_probability,
)
from crucible_worker.metrics.scores import ACCURACY_KEYS, accuracy
from crucible_worker.rendering import RendererName
from crucible_worker.rendering.choices import MAX_CHOICES, ChoiceForm, UnnamedChoice, named_choice

__all__ = ["Classification"]

_LIKELIHOOD: Final = "likelihood"
_GENERATION = "generation"
_TARGET, _PREDICTED, _CONFIDENCE = "target", "predicted", "confidence"
_NONE = -1
"""Index of the label if an answer names none."""
_NO_LABEL = "\0none"
"""No label, as labels are not blank and without control characters."""
_MEASURES = ("precision", "recall", "f1")
_CALIBRATION = "expected_calibration_error"

_ONE_LINE = r"^[^\u0000-\u001f]*[^\s\u0000-\u001f][^\u0000-\u001f]*(?![\s\S])"
"""A label is not blank and has no control characters. In Python, `$` would also match before a final line end."""

_Label: TypeAlias = Annotated[str, Meta(max_length=200, pattern=_ONE_LINE)]


class Classification(
    BaseEvaluator,
    kind="classification",
    kinds=(EvaluatorKind.SAMPLING, EvaluatorKind.TRAINING),
    keys={
        **dict.fromkeys((*ACCURACY_KEYS, *_MEASURES), "fraction of 1"),
        **dict.fromkeys((f"{measure}/<label>" for measure in _MEASURES), "fraction of 1"),
        _CALIBRATION: "fraction of 1",
    },
):
    """Predicts one of the same labels for every sample, and reports how well, by label and in all."""

    labels: Annotated[
        Sequence[_Label], Meta(min_length=2, max_length=MAX_CHOICES, extra_json_schema={"uniqueItems": True})
    ]
    """The labels; a sample's target names one, by its text or else by its letter."""
    positive: str | None = None
    """The label for precision, recall and f1; if null, they are means over the labels that have one (macro)."""
    by: Literal["likelihood", "generation"] = _LIKELIHOOD
    """likelihood: the label whose log-probability after the input is the greatest. generation: the label that a
    sampled answer names; at most 26 labels."""
    measure: Decides = Measure.SUM
    form: Form = ChoiceForm.TEXT
    delimiter: Delimiter = None
    client: Client = "auto"
    renderer: RendererName = "auto"

    wants_answers: ClassVar[bool] = True
    """See `evaluators.base.wants_answers`."""

    def __post_init__(self) -> None:
        """Refuse labels that an answer cannot distinguish.

        Raises:
            InvalidField: `positive` is none of the labels; by generation, there are more labels than letters, two
                labels that an answer cannot distinguish, or `sampling` is missing.
            FailedPrecondition: the renderer needs a library that is not installed.
        """
        if self.positive is not None and self.positive not in self.labels:
            raise InvalidField('options["positive"]', f"is {self.positive!r}, which is none of the labels")
        super().__post_init__()
        _ = self.asking

    @functools.cached_property
    def asking(self) -> Accuracy | MultipleChoice:
        """The evaluator that queries the model and judges."""
        if self.by == _GENERATION:
            choice.check_choices(self.labels, 'options["labels"]')
            if self.sampling is None:
                raise InvalidField("sampling", "is missing, and by generation answers are sampled")
            return Accuracy(grader="multiple_choice", sampling=self.sampling, renderer=self.renderer)
        return MultipleChoice(
            measure=self.measure,
            form=self.form,
            delimiter=self.delimiter,
            client=self.client,
            renderer=self.renderer,
        )

    @property
    def measures_likelihoods(self) -> bool:
        """True unless the labels are generated."""
        return isinstance(self.asking, MultipleChoice)

    @property
    def likelihood_cure(self) -> str:
        """See `evaluators.base.likelihood_cure`."""
        return f"for a server that only chats, classification has the option by={_GENERATION}"

    def check(self, model: Model) -> None:
        """Refuse a model without the client that is needed.

        Raises:
            FailedPrecondition: the model lacks it (reason MISSING_CLIENT).
        """
        self.asking.check(model)

    def check_sample(self, sample: Sample) -> None:
        """Refuse a sample with its own choices, without a target or with several targets, and a Datum.

        Raises:
            InvalidField: names what is wrong.
        """
        if isinstance(sample.input, Datum):
            raise InvalidField("datum", "is tokens, and labels are text")
        if sample.choices:
            raise InvalidField("choices", "are given, but the labels are in the evaluator's options")
        if len(sample.targets) != 1:
            raise InvalidField("targets", f"has {len(sample.targets)} entries: one label is needed")
        self.asking.check_sample(self._asked(sample))

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Predict one sample's label.

        Returns:
            The outcome of `multiple_choice`, or of `accuracy` with its grader; UNDECIDED if the target is no label.
            Further measurements: indices of target and prediction (-1 if an answer names no label), and the confidence.

        Raises:
            BridgeError: what these two evaluators raise.
        """
        self.check_sample(sample)
        given = sample.targets[0]
        try:
            # A label is a label, even if it is also the letter of another.
            target = self.labels.index(given) if given in self.labels else named_choice(given, self.labels)
        except UnnamedChoice:
            problem = Problem(reason=Reason.UNDECIDED, message="the target is none of the labels")
            return Outcome(verdict=Verdict.UNDECIDED, problem=problem)
        asked = dataclasses.replace(self._asked(sample), targets=(self.labels[target],))
        outcome = await self.asking.run(asked, context)
        if not outcome.verdict.scored:
            return outcome
        found = self._found(outcome)
        return dataclasses.replace(outcome, measurements={**outcome.measurements, _TARGET: float(target), **found})

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """Accuracy with its uncertainty; precision, recall and f1; and the calibration error of likelihoods."""
        scores: list[Sequence[float | None]] = []
        predicted: list[str] = []
        targets: list[str] = []
        confidences: list[float] = []
        for result in results:
            scores.append([result.score if result.verdict.scored else None])
            if result.verdict.scored:
                predicted.append(self._label(result.measurements[_PREDICTED]))
                targets.append(self._label(result.measurements[_TARGET]))
                if _CONFIDENCE in result.measurements:
                    confidences.append(result.measurements[_CONFIDENCE])
        measured = self._measured(predicted, targets)
        right_or_wrong = accuracy(scores)
        values = {**right_or_wrong.values, **measured.values}
        undefined = {**right_or_wrong.undefined, **measured.undefined}
        if confidences and len(confidences) == len(predicted):
            right = [label == target for label, target in zip(predicted, targets)]
            values[_CALIBRATION] = expected_calibration_error(confidences, right)
        else:
            undefined[_CALIBRATION] = "answers have no probabilities" if predicted else "no sample was scored"
        return Metrics.of(values, undefined)

    def _measured(self, predicted: Sequence[str], targets: Sequence[str]) -> Metrics:
        keys = [*_MEASURES, *(f"{measure}/{label}" for measure in _MEASURES for label in self.labels)]
        if not targets:
            return Metrics.all_undefined(keys, "no sample was scored")
        found = classification_metrics(predicted, targets, positive=self.positive, labels=self.labels)
        missing = dict.fromkeys(keys, "no target is this label, and it is never predicted")
        missing |= {key: reason for key, reason in found.undefined.items() if key in missing}
        return Metrics.of(
            {key: found.values[key] for key in keys if key in found.values},
            {key: reason for key, reason in missing.items() if key not in found.values},
        )

    def _asked(self, sample: Sample) -> Sample:
        return dataclasses.replace(sample, choices=tuple(self.labels), choice_labels=tuple(self.labels))

    def _label(self, index: float) -> str:
        return _NO_LABEL if index == _NONE else self.labels[int(index)]

    def _found(self, outcome: Outcome) -> dict[str, float]:
        """The index of the predicted label, and its probability if that is known."""
        if isinstance(self.asking, Accuracy):
            letter = outcome.extracted  # of several labels none is predicted
            return {_PREDICTED: float(string.ascii_uppercase.index(letter) if len(letter) == 1 else _NONE)}
        choices = [
            ChoiceLikelihood(
                logprob=outcome.measurements.get(f"logprob[{index}]", -math.inf),
                tokens=int(outcome.measurements[f"tokens[{index}]"]),
                bytes=1 if self.asking.form is ChoiceForm.LETTERS else len(label.encode()),
            )
            for index, label in enumerate(self.labels)
        ]
        taken = likeliest(choices, self.asking.measure)
        assert taken is not None  # it is scored: not every label is impossible
        # Of several equally likely labels the first: a confusion matrix counts whole samples.
        found = {_PREDICTED: float(taken[0])}
        confidence = right_probability(choices, [taken[0]])
        return found if confidence is None else {**found, _CONFIDENCE: confidence}
