"""A judge and its criteria, as options of graders and evaluators."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    MAX_CRITERION_CHARS,
    MAX_CRITERION_NAME_CHARS,
    ModelRef,
    OrchestratorModel,
    RubricCriterion,
    SamplingParams,
    parse_model,
)
from crucible_worker.grading.judge.rubric import MAX_CRITERIA
from crucible_worker.rendering import RendererName
from crucible_worker.rendering.renderers import AUTO

__all__ = [
    "DEFAULT_JUDGE_TOKENS",
    "JUDGE",
    "MAX_JUDGE_TOKENS",
    "Criteria",
    "JudgeName",
    "JudgeRenderer",
    "JudgeTokens",
    "RubricOptions",
    "criteria_of",
    "judge_of",
    "judge_sampling_of",
    "worker_model_of",
]

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
