"""A judge and its criteria, as options of graders and evaluators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
from crucible_worker.rendering import RENDERER_OPTION

__all__ = [
    "CRITERIA_OPTION",
    "JUDGE",
    "JUDGE_OPTIONS",
    "MAX_JUDGE_TOKENS",
    "RUBRIC_SCHEMA",
    "criteria_of",
    "judge_of",
    "judge_sampling_of",
]

JUDGE = "judge"
"""The option that names the judge."""
MAX_JUDGE_TOKENS = 65_536
"""Of the option `judge_max_tokens`."""

JUDGE_OPTIONS: Mapping[str, Any] = {
    JUDGE: {
        "type": "string",
        "minLength": 1,
        "examples": ["openai:SERVER/MODEL", "local:PATH"],
        "description": "The model that judges, any of this worker's.",
    },
    "judge_max_tokens": {
        "type": "integer",
        "minimum": 1,
        "maximum": MAX_JUDGE_TOKENS,
        "default": 1_024,
        "description": "Tokens of a judgement, with its thoughts.",
    },
    "judge_renderer": {**RENDERER_OPTION, "description": "How the judge is asked: as `renderer`, of the judge."},
}
"""Who judges, and how it is asked."""

CRITERIA_OPTION: Mapping[str, Any] = {
    "type": "array",
    "minItems": 1,
    "maxItems": MAX_CRITERIA,
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
    "description": (
        "What is judged: name, description in words for the judge, weight (1), and the scale from min (0) to max (10)."
    ),
}
"""What is judged."""

_CORRECT: Mapping[str, Any] = {
    "name": "correct",
    "description": (
        "Does the response give the answer that the question asks for, the same in meaning as a reference answer, "
        "where there is one? 1: it does. 0: it does not, or it gives several answers."
    ),
    "min": 0,
    "max": 1,
}

RUBRIC_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        **JUDGE_OPTIONS,
        "criteria": {**CRITERIA_OPTION, "default": [_CORRECT]},
        "threshold": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "default": 0.5,
            "description": "The weighted score from which on a response is right.",
        },
        "partial": {
            "type": "boolean",
            "default": False,
            "description": "A sample's score is the judge's; otherwise 1 from the threshold on, and 0 below it.",
        },
        "first": {
            "type": "string",
            "examples": ["math", "exact_match"],
            "description": "A grader that comes first: what it leaves UNDECIDED goes to the judge, and nothing else.",
        },
        "first_options": {"type": "object", "default": {}, "description": "Options of that grader."},
    },
    "additionalProperties": False,
    "required": [JUDGE],
}
"""Options of the grader."""


def judge_of(options: Mapping[str, Any], field: str) -> ModelRef:
    """The judge that options name.

    Raises:
        InvalidField: it is no model, or the orchestrator's own; `field` is the path of the options.
    """
    path = f'{field}["{JUDGE}"]'
    try:
        judge = parse_model(options[JUDGE])
    except InvalidField as error:
        raise InvalidField(path, error.message, reason=error.reason) from error
    if isinstance(judge, OrchestratorModel):
        raise InvalidField(path, "is the orchestrator's own, and a judge has to be the worker's")
    return judge


def judge_sampling_of(options: Mapping[str, Any]) -> SamplingParams:
    """How a judge is sampled: its likeliest answer."""
    return SamplingParams(max_tokens=options["judge_max_tokens"], temperature=0.0)


def criteria_of(given: Sequence[Mapping[str, Any]], field: str) -> tuple[RubricCriterion, ...]:
    """Criteria of options that fit `CRITERIA_OPTION`.

    Raises:
        InvalidField: one cannot be asked about, or two have the same name; `field` is the path of them all.
    """
    criteria = tuple(RubricCriterion(**criterion).checked(f"{field}[{index}]") for index, criterion in enumerate(given))
    known: set[str] = set()
    for index, criterion in enumerate(criteria):
        if criterion.name in known:
            raise InvalidField(f"{field}[{index}].name", f"is {criterion.name!r}, as another one's is")
        known.add(criterion.name)
    return criteria
