"""What evaluators with an option `grader` or `judge` share: the option, how answers are judged, how a grade is used."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from msgspec import Meta

from crucible_bridge.errors import InternalError, InvalidField
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Datum, ModelRef, Problem, Sample, SamplingParams, Verdict
from crucible_worker.backends.base import Model
from crucible_worker.evaluators.answering import Answer, check_sampling_client
from crucible_worker.evaluators.base import CallerPart, PartKind, SampleContext
from crucible_worker.evaluators.declared import SamplingEvaluator
from crucible_worker.grading import registry as graders
from crucible_worker.grading.base import AsksJudge, Grade, Grader, with_labels
from crucible_worker.grading.caller import CallerGrader
from crucible_worker.grading.judge.grader import (
    DEFAULT_JUDGE_TOKENS,
    JUDGE,
    JudgeName,
    JudgeRenderer,
    JudgeTokens,
    judge_of,
)
from crucible_worker.grading.judge.rubric import Judge
from crucible_worker.grading.registry import NO_GRADING_PARTS, GradingParts
from crucible_worker.util.options import Handed

__all__ = [
    "DEFAULT_GRADER",
    "GRADER_JUDGE",
    "Graded",
    "GraderName",
    "Judged",
    "check_question",
    "grade_answer",
    "grader_definitions",
    "grader_for",
    "grader_of",
    "problem_of_grade",
]

# What evaluators with an option `judge` have in common.


class Judged(SamplingEvaluator):
    """An evaluator that samples answers of the model, and lets another model judge them."""

    judge: JudgeName
    judge_max_tokens: JudgeTokens = DEFAULT_JUDGE_TOKENS
    judge_renderer: JudgeRenderer = "auto"

    def __post_init__(self) -> None:
        """Refuse a judge that is no model of this worker.

        Raises:
            InvalidField: names the option.
            FailedPrecondition: a renderer needs a library that is not installed.
        """
        _ = self.judging
        super().__post_init__()

    @functools.cached_property
    def judging(self) -> ModelRef:
        """Who judges."""
        return judge_of(self.judge, "options")

    @property
    def judge_sampling(self) -> SamplingParams:
        """How the judge is sampled: greedily."""
        return SamplingParams(max_tokens=self.judge_max_tokens, temperature=0.0)

    @property
    def auxiliary_models(self) -> Mapping[str, ModelRef]:
        """The judge."""
        return {JUDGE: self.judging}

    def check_auxiliary_models(self, auxiliary_models: Mapping[str, Model]) -> None:
        """Refuse a judge that cannot generate; raises as `check` does."""
        check_sampling_client(auxiliary_models[JUDGE], self.kind, "the judge")

    @property
    def needs_auxiliary_models(self) -> bool:
        """True: the judge decides every sample."""
        return True

    def opened_judge(self, context: SampleContext) -> Judge:
        """The judge of a sample."""
        return Judge(model=context.auxiliary_models[JUDGE], sampling=self.judge_sampling, renderer=self.judge_renderer)


GRADER_JUDGE = "grader_options.judge"
"""The option that names a grader's judge."""

GraderName: TypeAlias = Annotated[
    str,
    Meta(
        examples=list(graders.GRADERS),
        description="The grader that judges, by name: one of the worker, with its options under its name in $defs, "
        "an installed one, or one of the caller: caller, caller:NAME.",
    ),
]
"""The type of the option `grader`."""
DEFAULT_GRADER = "exact_match"
"""The default of the option `grader`."""


def grader_definitions() -> Mapping[str, Any]:
    """The options of each grader, for a schema's `$defs`."""
    return {name: dict(grader.options_schema) for name, grader in graders.GRADERS.items()}


def grader_of(name: str, options: Mapping[str, Any], grading: GradingParts) -> Grader:
    """The grader that the options `grader` and `grader_options` name.

    Raises:
        InvalidField: there is no such grader, or an option of it is unknown or wrong.
        FailedPrecondition: it needs a library that is not installed, or a part that this worker lacks; or it is an
            installed grader that cannot be used.
    """
    return graders.create(
        name,
        options,
        grading,
        name_field='options["grader"]',
        options_field='options["grader_options"]',
    )


class Graded(SamplingEvaluator):
    """An evaluator with a grader that judges what the model answers."""

    grader: GraderName = DEFAULT_GRADER
    grader_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Options of the grader; $defs has their schema under its name."""
    grading: Handed[GradingParts] = NO_GRADING_PARTS
    """The parts of the worker that graders use."""

    def __post_init__(self) -> None:
        """Make the grader; raises what `grader_of` raises."""
        _ = self.judging
        super().__post_init__()

    @functools.cached_property
    def judging(self) -> Grader:
        """Who judges."""
        return grader_of(self.grader, self.grader_options, self.grading)

    @property
    def caller_parts(self) -> Sequence[CallerPart]:
        """The grader, if it stays with the caller; see `evaluators.base.caller_parts`."""
        if not isinstance(self.judging, CallerGrader):
            return ()
        return (CallerPart(kind=PartKind.GRADER, option="grader", text=self.grader, name=self.judging.name),)

    @property
    def auxiliary_models(self) -> Mapping[str, ModelRef]:
        """The grader's judge, if it queries one."""
        return {GRADER_JUDGE: self.judging.judge} if isinstance(self.judging, AsksJudge) else {}

    @property
    def needs_auxiliary_models(self) -> bool:
        """True unless its grader decides some answers without the judge."""
        return isinstance(self.judging, AsksJudge) and self.judging.needs_judge

    def check_auxiliary_models(self, auxiliary_models: Mapping[str, Model]) -> None:
        """Refuse a judge that cannot generate; raises as `check` does."""
        if GRADER_JUDGE in auxiliary_models:
            check_sampling_client(auxiliary_models[GRADER_JUDGE], self.kind, "the judge")

    @classmethod
    def definitions(cls) -> Mapping[str, Any]:
        """The options of each grader."""
        return grader_definitions()


def check_question(grader: Grader, sample: Sample) -> None:
    """Refuse a sample that a grader's judge cannot read.

    Raises:
        InvalidField: it is tokens.
    """
    # The protocol check comes last: looking for its members takes 10 us for each sample.
    if isinstance(sample.input, Datum) and isinstance(grader, AsksJudge):
        raise InvalidField("datum", "is tokens, and a judge reads text")


def grader_for(grader: Grader, sample: Sample, context: SampleContext) -> Grader:
    """The grader of answers to a sample; a grader that queries a judge or the caller is bound to the sample.

    Raises:
        InvalidField: `check_question` refuses the sample.
    """
    if sample.choice_labels:
        grader = with_labels(grader, sample.choice_labels)
    caller = context.caller
    if caller is not None and isinstance(grader, CallerGrader):
        return grader.bound(lambda name, response: caller.grade(name, sample, response))
    judge = context.auxiliary_models.get(GRADER_JUDGE)
    if judge is None or not isinstance(grader, AsksJudge):
        return grader
    check_question(grader, sample)
    assert not isinstance(sample.input, Datum)
    return grader.bound(judge, sample.input)


async def grade_answer(grader: Grader, answer: Answer, sample: Sample, context: SampleContext) -> Grade:
    """Grade what a model answered; without an answer it is wrong, and no judge is queried about it.

    Raises:
        InvalidField: `check_question` refuses the sample.
        InternalError: the grader gave an invalid score (reason BAD_SCORE).
        BridgeError: its judge could not be queried.
    """
    grade = await grader_for(grader, sample, context).grade(answer.text, sample.targets, sample.choices)
    if grade.verdict.scored and not (grade.score is not None and 0 <= grade.score <= 1):
        raise InternalError(f"the grader said {grade.verdict} with score {grade.score}", reason=Reason.BAD_SCORE)
    if not answer.no_answer or not grade.verdict.scored:
        return grade
    return Grade(verdict=Verdict.INCORRECT, score=0.0, method=answer.no_answer)


def problem_of_grade(grade: Grade) -> Problem | None:
    """Why a sample with this grade is unscored, if it is."""
    if grade.verdict.scored:
        return None
    if grade.problem is not None:
        return grade.problem
    reason = Reason.GRADER_FAILED if grade.verdict is Verdict.ERROR else Reason.UNDECIDED
    return Problem(reason=reason, message=shorten(grade.reason or "the grader gave no reason", MAX_PROBLEM_BYTES))
