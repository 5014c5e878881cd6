"""The evaluator `accuracy`: the share of samples that a model answers right, as a grader judges it.

See `crucible_worker.metrics.accuracy` for what the keys are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    EvaluatorInfo,
    EvaluatorKind,
    Metrics,
    ModelRef,
    Sample,
    SampleResult,
    SamplingParams,
    Verdict,
)
from crucible_worker.backends.base import Model
from crucible_worker.evaluators.answering import (
    REMOVE_THINKING,
    THINKING_OPTION,
    Answer,
    Answering,
    check_sampling_client,
)
from crucible_worker.evaluators.base import Outcome, SampleContext
from crucible_worker.evaluators.cleaning import NO_CLEANING, Cleaning, Uncleanable
from crucible_worker.evaluators.graded import (
    GRADER_DEFS,
    GRADER_OPTIONS,
    check_judge,
    check_question,
    grade_answer,
    grader_of,
    judges_of,
    needs_judge,
    problem_of_grade,
    scores_by_sample,
)
from crucible_worker.grading.base import Grade, Grader
from crucible_worker.grading.excerpt import shown
from crucible_worker.metrics.accuracy import ACCURACY_KEYS, accuracy
from crucible_worker.rendering import RENDERER_OPTION, check_input, check_renderer

if TYPE_CHECKING:
    from crucible_worker.grading.parts import GradingParts

__all__ = ["MAX_SAMPLES_PER_PROMPT", "Accuracy", "AccuracyType", "AsAccuracy"]

MAX_SAMPLES_PER_PROMPT = 1_000
"""Answers to one sample."""

_INFO = EvaluatorInfo(
    kind="accuracy",
    kinds=(EvaluatorKind.SAMPLING,),
    description="Samples answers and reports the share that a grader judges right, with its uncertainty.",
    options_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            **GRADER_OPTIONS,
            "samples_per_prompt": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_SAMPLES_PER_PROMPT,
                "default": 1,
                "description": "Answers to each sample; uncertainty is then clustered by sample.",
            },
            "renderer": dict(RENDERER_OPTION),
            "thinking": dict(THINKING_OPTION),
        },
        "additionalProperties": False,
        "$defs": dict(GRADER_DEFS),
    },
    keys=dict.fromkeys(ACCURACY_KEYS, "fraction of 1"),
)


class AccuracyType:
    """The kind `accuracy`."""

    @property
    def info(self) -> EvaluatorInfo:
        """What it is."""
        return _INFO

    def create(self, options: Mapping[str, Any], sampling: SamplingParams | None, *, grading: GradingParts) -> Accuracy:
        """Make one.

        Raises:
            InvalidField: `sampling` is missing, there is no such grader, or an option of it is unknown or wrong.
            FailedPrecondition: the grader or the renderer needs a library that is not installed, or the grader is a
                user's and cannot be used.
        """
        if sampling is None:
            raise InvalidField("sampling", "is missing, and accuracy samples answers: give at least max_tokens")
        grader = grader_of(options, grading)
        check_renderer(options["renderer"])
        return Accuracy(
            grader=grader,
            sampling=sampling,
            repeats=options["samples_per_prompt"],
            renderer=options["renderer"],
            thinking=options["thinking"],
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Asks for one answer at a time and has it judged."""

    grader: Grader
    """Who judges."""
    sampling: SamplingParams
    """How to sample."""
    repeats: int = 1
    """Answers to each sample, from 1."""
    renderer: str = "auto"
    """How text and conversations become what the model gets, see `crucible_worker.rendering.renderers`."""
    thinking: str = REMOVE_THINKING
    """Whether thoughts are graded: "remove" or "keep"."""
    clean: Cleaning = NO_CLEANING
    """What of an answer is graded."""
    wants_answers: ClassVar[bool] = True
    """See `evaluators.base.wants_answers`."""

    @property
    def others(self) -> Mapping[str, ModelRef]:
        """The grader's judge, where it asks one."""
        return judges_of(self.grader)

    def check(self, model: Model) -> None:
        """Refuse a model that cannot generate.

        Raises:
            FailedPrecondition: the model lacks a sampling client (reason MISSING_CLIENT).
        """
        check_sampling_client(model, "accuracy")

    def check_others(self, others: Mapping[str, Model]) -> None:
        """Refuse a judge that cannot generate; raises as `check` does."""
        check_judge(others, "accuracy")

    @property
    def needs_others(self) -> bool:
        """Unless its grader decides some answers without the judge."""
        return needs_judge(self.grader)

    def check_sample(self, sample: Sample) -> None:
        """Refuse a conversation that the renderer takes none of, and tokens where a judge has to read them.

        Whatever else cannot be asked is an ERROR of its own.

        Raises:
            InvalidField: names the conversation or the datum.
        """
        check_input(sample.input, self.renderer)
        check_question(self.grader, sample)

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Sample one answer, with the sample's own seed where sampling is random, and grade it.

        Raises:
            InvalidField: there is nothing to ask, or the prompt is longer than the context.
            FailedPrecondition: the sample cannot be rendered for this model, or the client is missing.
            BackendError: the model, or a judge, could not be asked, or answered with nothing.
            InternalError: the grader gave a score that is none (reason BAD_SCORE).
        """
        _, outcome = await self.answered(sample, context)
        return outcome

    async def answered(self, sample: Sample, context: SampleContext) -> tuple[Answer, Outcome]:
        """As `run`, with the answer beside what was found of it."""
        self.check(context.model)
        check_question(self.grader, sample)
        answering = Answering(sampling=self.sampling, renderer=self.renderer, thinking=self.thinking)
        answer = await answering.answer(context.model, sample.input, context.seed)
        grade = await self._graded(answer, sample, context)
        measurements = dict(grade.measurements)
        if answer.replaced:
            measurements["replaced_code_points"] = float(answer.replaced)
        return answer, Outcome(
            verdict=grade.verdict,
            score=grade.score if grade.verdict.scored else None,
            output=answer.output,
            extracted=shown(grade.extracted),  # the whole response is recorded beside it
            method=grade.method,
            stop_reason=answer.sequence.stop_reason,
            output_tokens=answer.sequence.output_tokens,
            problem=problem_of_grade(grade),
            measurements=measurements,
        )

    async def _graded(self, answer: Answer, sample: Sample, context: SampleContext) -> Grade:
        try:
            text = await self.clean.answer(answer.text)
        except Uncleanable as error:
            return Grade(verdict=Verdict.UNDECIDED, reason=str(error))
        if text != answer.text:
            answer = dataclasses.replace(answer, text=text)
        return await grade_answer(self.grader, answer, sample, context)

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """The keys of `ACCURACY_KEYS`; unscored answers are never taken for wrong but in `accuracy_strict`."""
        return accuracy(scores_by_sample(results))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AsAccuracy:
    """What evaluators have in common that ask and judge as `accuracy` does, and count otherwise."""

    KIND: ClassVar[str]
    """What it is called in errors."""
    wants_answers: ClassVar[bool] = True
    """See `evaluators.base.wants_answers`."""
    answering: Accuracy
    """Who asks and judges."""

    @property
    def repeats(self) -> int:
        """Answers to each sample."""
        return self.answering.repeats

    @property
    def others(self) -> Mapping[str, ModelRef]:
        """The grader's judge, where it asks one."""
        return self.answering.others

    def check(self, model: Model) -> None:
        """Refuse a model that cannot generate.

        Raises:
            FailedPrecondition: the model lacks a sampling client (reason MISSING_CLIENT).
        """
        check_sampling_client(model, self.KIND)

    def check_others(self, others: Mapping[str, Model]) -> None:
        """Refuse a judge that cannot generate; raises as `check` does."""
        check_judge(others, self.KIND)

    @property
    def needs_others(self) -> bool:
        """As who asks and judges."""
        return self.answering.needs_others

    def check_sample(self, sample: Sample) -> None:
        """Refuse what the renderer takes none of, and what a judge cannot read.

        Raises:
            InvalidField: names the conversation or the datum.
        """
        self.answering.check_sample(sample)
