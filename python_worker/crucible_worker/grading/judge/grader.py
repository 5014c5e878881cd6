"""The grader `rubric`, by which a model judges a response, optionally after another grader; and options of judges."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    MAX_CRITERION_CHARS,
    MAX_CRITERION_NAME_CHARS,
    Conversation,
    ModelRef,
    OrchestratorModel,
    RubricCriterion,
    RubricGrade,
    RubricItem,
    SamplingParams,
    Verdict,
    message_text,
    parse_model,
)
from crucible_worker.backends.base import Model
from crucible_worker.grading.base import AsksJudge, Grade, Grader, undecided, with_labels
from crucible_worker.grading.caller import CallerGrader
from crucible_worker.grading.judge.rubric import MAX_CRITERIA, Judge, Rubric
from crucible_worker.rendering import RendererName, check_renderer
from crucible_worker.rendering.prompts import AUTO, Prompted

__all__ = [
    "DEFAULT_JUDGE_TOKENS",
    "JUDGE",
    "MAX_JUDGE_TOKENS",
    "BoundRubric",
    "Criteria",
    "JudgeName",
    "JudgeRenderer",
    "JudgeTokens",
    "RubricGrader",
    "RubricOptions",
    "criteria_of",
    "judge_of",
    "judge_sampling_of",
    "measurements_of",
    "method_of",
    "question_text",
    "rubric_of",
    "token_measurements",
    "worker_model_of",
]

# A judge and its criteria, as options of graders and evaluators.

JUDGE = "judge"
"""The option that names the judge."""
MAX_JUDGE_TOKENS = 65_536
"""Default of the option `judge_max_tokens`."""

JudgeName: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        examples=["openai:SERVER/MODEL", "local:PATH"],
        description="The model that judges, any of this worker's; not the orchestrator's own.",
    ),
]
"""The type of the option that names the judge."""
JudgeTokens: TypeAlias = Annotated[
    int,
    Meta(
        ge=1,
        le=MAX_JUDGE_TOKENS,
        description="Tokens of a judgement, with its reasoning; the judge gives its likeliest answer.",
    ),
]
"""The type of the option `judge_max_tokens`."""
DEFAULT_JUDGE_TOKENS = 1_024
"""Maximum of the option `judge_max_tokens`."""
JudgeRenderer: TypeAlias = Annotated[
    RendererName, Meta(description="How the judge is queried: like `renderer`, for the judge.")
]
"""The type of the option `judge_renderer`."""

Criteria: TypeAlias = Annotated[
    Sequence[Any],
    Meta(
        min_length=1,
        max_length=MAX_CRITERIA,
        description=(
            "What is judged: name, description in words for the judge, weight (1), and the scale from min (0) to max "
            "(10), either within a million of 0."
        ),
        extra_json_schema={
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "minLength": 1, "maxLength": MAX_CRITERION_NAME_CHARS},
                    "description": {"type": "string", "minLength": 1, "maxLength": MAX_CRITERION_CHARS},
                    "weight": {"type": "number", "exclusiveMinimum": 0},
                    "min": {"type": "number"},
                    "max": {"type": "number"},
                },
                "required": ["name", "description"],
                "additionalProperties": False,
            },
        },
    ),
]
"""The type of the option `criteria`."""

_CORRECT: Mapping[str, Any] = {
    "name": "correct",
    "description": (
        "Does the response give the answer that the question asks for, the same in meaning as a reference answer, "
        "where there is one? 1: it does. 0: it does not, or it gives several answers."
    ),
    "min": 0,
    "max": 1,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RubricOptions:
    """A judge, any model of the worker, considers the response right by criteria."""

    judge: JudgeName
    judge_max_tokens: JudgeTokens = DEFAULT_JUDGE_TOKENS
    judge_renderer: JudgeRenderer = AUTO
    criteria: Criteria = (_CORRECT,)
    threshold: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """The weighted score from which a response is right."""
    partial: bool = False
    """A sample's score is the judge's; otherwise 1 from the threshold on, and 0 below it."""
    first: Annotated[str | UnsetType, Meta(examples=["math", "exact_match"])] = UNSET
    """A grader that comes first: only what it leaves UNDECIDED goes to the judge."""
    first_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Options of that grader."""


def judge_of(text: str, field: str) -> ModelRef:
    """The judge that an option names.

    Raises:
        InvalidField: it is not a model, or a model of the orchestrator; `field` is the path of the options.
    """
    return worker_model_of(text, f'{field}["{JUDGE}"]', what="a judge")


def worker_model_of(text: str, path: str, *, what: str) -> ModelRef:
    """The model of the worker that an option names.

    Args:
        text: the value of the option.
        path: of the option, for errors.
        what: what the model is to the evaluator, for errors: "a judge".

    Raises:
        InvalidField: it is not a model, or a model of the orchestrator.
    """
    try:
        model = parse_model(text)
    except InvalidField as error:
        raise InvalidField(path, error.message, reason=error.reason) from error
    if isinstance(model, OrchestratorModel):
        raise InvalidField(path, f"names a model of the orchestrator; {what} has to be a model of the worker")
    return model


def judge_sampling_of(options: Mapping[str, Any]) -> SamplingParams:
    """How a judge is sampled: its likeliest answer."""
    return SamplingParams(max_tokens=options["judge_max_tokens"], temperature=0.0)


def criteria_of(given: Sequence[Mapping[str, Any]], field: str) -> tuple[RubricCriterion, ...]:
    """Criteria of options that fit the option `criteria`.

    Raises:
        InvalidField: one cannot be judged, or two have the same name; `field` is the path of the option.
    """
    criteria = tuple(RubricCriterion(**criterion).checked(f"{field}[{index}]") for index, criterion in enumerate(given))
    known: set[str] = set()
    for index, criterion in enumerate(criteria):
        if criterion.name in known:
            raise InvalidField(f"{field}[{index}].name", f"is {criterion.name!r}, which another criterion has too")
        known.add(criterion.name)
    return criteria


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
