"""The grader `rubric`: a model judges a response by criteria, optionally after another grader."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Conversation, ModelRef, RubricGrade, RubricItem, SamplingParams, Verdict, message_text
from crucible_worker.backends.base import Model
from crucible_worker.grading.base import AsksJudge, Grade, Grader, undecided, with_labels
from crucible_worker.grading.caller import CallerGrader
from crucible_worker.grading.judge.asking import Judge, Rubric
from crucible_worker.grading.judge.options import criteria_of, judge_of, judge_sampling_of
from crucible_worker.rendering import check_renderer
from crucible_worker.rendering.prompted import Prompted

__all__ = [
    "BoundRubric",
    "RubricGrader",
    "measurements_of",
    "method_of",
    "question_text",
    "rubric_of",
    "token_measurements",
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RubricGrader:
    """Grades responses by a judge, once it is bound to one."""

    judge: ModelRef
    """Who judges."""
    rubric: Rubric
    """By what."""
    sampling: SamplingParams
    """How the judge is sampled."""
    renderer: str = "auto"
    """How its prompt is rendered."""
    partial: bool = False
    """Whether the judge's score is the grade's."""
    first: Grader | None = None
    """The grader that decides before the judge, if it can."""

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """Refuse: there is no model to query.

        Raises:
            FailedPrecondition: always (reason NO_JUDGE).
        """
        raise FailedPrecondition("the grader rubric needs a judge, which is not available here", reason=Reason.NO_JUDGE)

    @property
    def needs_judge(self) -> bool:
        """False if another grader comes first."""
        return self.first is None

    def labelled(self, labels: Sequence[str]) -> RubricGrader:
        """See `base.ReadsLabels`: the grader that comes first may read them."""
        return self if self.first is None else dataclasses.replace(self, first=with_labels(self.first, labels))

    def bound(self, judge: Model, question: str | Conversation) -> Grader:
        """The grader of responses to one question."""
        asked = Judge(model=judge, sampling=self.sampling, renderer=self.renderer)
        return BoundRubric(grader=self, judge=asked, question=question_text(question))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BoundRubric:
    """Grades responses to one question by a judge."""

    grader: RubricGrader
    """How."""
    judge: Judge
    """By whom."""
    question: str
    """The question of the sample."""

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """Judge one response; the judge sees the targets as reference answers, and does not see the choices.

        The option `first` is applied before the judge: only what that grader cannot decide goes to the judge.

        Raises:
            BridgeError: the query of the judge failed.
        """
        if self.grader.first is not None:
            decided = await self.grader.first.grade(response, targets, choices)
            if decided.verdict is not Verdict.UNDECIDED:
                return decided
        if any(not target.strip() for target in targets):
            return undecided("a target is empty")
        item = RubricItem(question=self.question, response=response, references=tuple(targets))
        found = await self.grader.rubric.grade(item, self.judge)
        grade = dataclasses.replace(Grade.of(found.grade), method=method_of(found), measurements=measurements_of(found))
        if self.grader.partial or grade.score is None:
            return grade
        verdict = Verdict.INCORRECT if grade.verdict is Verdict.PARTIAL else grade.verdict
        return dataclasses.replace(grade, verdict=verdict, score=float(verdict is Verdict.CORRECT))


def rubric_of(options: Mapping[str, Any], create: Callable[..., Grader]) -> Grader:
    """A grader from options that fit the schema of `RubricOptions`; `create` makes the one that comes first.

    Raises:
        InvalidField: the judge, a criterion, or the grader that comes first cannot be used; the path begins at the
            options.
        FailedPrecondition: the judge's renderer or the first grader needs a library that is not installed, or the first
            grader a part that this worker lacks.
    """
    check_renderer(options["judge_renderer"])
    first = None
    if "first" in options:
        first = create(
            options["first"], options["first_options"], name_field='["first"]', options_field='["first_options"]'
        )
        if isinstance(first, AsksJudge):
            raise InvalidField('["first"]', "queries a judge itself")
        if isinstance(first, CallerGrader):
            raise InvalidField('["first"]', "stays with the caller, which only the option grader may name")
    return RubricGrader(
        judge=judge_of(options["judge"], ""),
        rubric=Rubric(criteria=criteria_of(options["criteria"], '["criteria"]'), threshold=options["threshold"]),
        sampling=judge_sampling_of(options),
        renderer=options["judge_renderer"],
        partial=options["partial"],
        first=first,
    )


def question_text(question: str | Conversation) -> str:
    """A question in the form for a judge: all messages of a conversation with their roles, or a prompt's row part."""
    if isinstance(question, Prompted):
        return question.question
    if isinstance(question, Conversation):
        return "\n\n".join(f"{message.role}: {message_text(message)}" for message in question.messages)
    return question


def measurements_of(found: RubricGrade) -> Mapping[str, float]:
    """Scores by criterion and tokens of the judge, for a sample's record."""
    scores = {f"rubric/{score.name}": score.score for score in found.criteria}
    return {**scores, **token_measurements(found.prompt_tokens, found.completion_tokens)}


def token_measurements(prompt_tokens: int | None, completion_tokens: int | None) -> Mapping[str, float]:
    """Tokens of a judge, for a sample's record; those that are known."""
    found = {"judge_completion_tokens": completion_tokens, "judge_prompt_tokens": prompt_tokens}
    return {name: float(count) for name, count in found.items() if count is not None}


def method_of(found: RubricGrade) -> str:
    """The method of the verdict, with the judge's reasons."""
    said = "; ".join(f"{score.name} {score.score:g}: {score.reason}" for score in found.criteria)
    return shorten(f"{found.grade.method}: {said}", MAX_PROBLEM_BYTES) if said else found.grade.method
