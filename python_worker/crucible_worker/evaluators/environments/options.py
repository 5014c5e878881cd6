"""What can be asked of `rl_test_set`, and what was."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import EvaluatorInfo, EvaluatorKind, EvaluatorSpec, SamplingParams
from crucible_worker.evaluators.answering import THINKING_OPTION
from crucible_worker.evaluators.environments import entry_points
from crucible_worker.evaluators.environments.group import MAX_GROUP_SIZE, VIABLE_SHARE, Strategy, Tolerance
from crucible_worker.evaluators.graded import GRADER_DEFS, GRADER_OPTIONS, grader_of
from crucible_worker.grading import registry as graders
from crucible_worker.grading.base import AsksJudge, Grader
from crucible_worker.grading.options import checked_options
from crucible_worker.grading.parts import GradingParts
from crucible_worker.rendering import RENDERER_OPTION, check_renderer

if TYPE_CHECKING:
    from crucible_worker.evaluators.environments.described import Environments

__all__ = [
    "DEFAULT_FORMAT_COEF",
    "DEFAULT_RETRIES",
    "DEFAULT_TURNS",
    "MAX_RETRIES",
    "MAX_TURNS_OF_A_ROLLOUT",
    "PROBLEMS",
    "RL_TEST_SET",
    "Chosen",
    "chosen",
    "installed_environment",
]

PROBLEMS = "problems"
"""The environment that comes with the worker."""
DEFAULT_TURNS, MAX_TURNS_OF_A_ROLLOUT = 32, 1_000
"""Of the option `max_turns`."""
DEFAULT_RETRIES, MAX_RETRIES = 3, 100
"""Of the option `max_retries`; the default is that of tinker-cookbook."""
DEFAULT_FORMAT_COEF = 0.1
"""Of the option `format_coef`, as tinker-cookbook has it."""

_OF_PROBLEMS = ("grader", "grader_options", "format_grader", "format_options", "format_coef", "thinking", "tag_by")

_PROPERTIES: Mapping[str, Any] = {
    "environment": {
        "type": "string",
        "examples": [PROBLEMS],
        "default": PROBLEMS,
        "description": f"{PROBLEMS}: one answer to each sample, graded. Others may be installed with the worker.",
    },
    "environment_options": {
        "type": "object",
        "default": {},
        "description": f"Options of an environment that is installed; {PROBLEMS} has those of this list.",
    },
    "group_size": {
        "type": "integer",
        "minimum": 1,
        "maximum": MAX_GROUP_SIZE,
        "default": 1,
        "description": "Rollouts of each sample. An environment that is installed may make more or fewer.",
    },
    **GRADER_OPTIONS,
    "format_grader": {
        "type": "string",
        "default": "",
        "description": "A grader that says whether an answer has the form; any form will do if empty.",
    },
    "format_options": {
        "type": "object",
        "default": {},
        "description": "Options of that grader.",
    },
    "format_coef": {
        "type": "number",
        "minimum": 0,
        "maximum": 1_000,
        "default": DEFAULT_FORMAT_COEF,
        "description": "What a wrong form costs: the reward is format_coef * (format - 1) + correct.",
    },
    "thinking": dict(THINKING_OPTION),
    "tag_by": {
        "type": "string",
        "default": "",
        "description": "An entry of the samples' metadata whose values are their tags; none if empty.",
    },
    "max_turns": {
        "type": "integer",
        "minimum": 1,
        "maximum": MAX_TURNS_OF_A_ROLLOUT,
        "default": DEFAULT_TURNS,
        "description": "Turns after which an episode is ended; its last turn then has the metric stop/max_turns.",
    },
    "strategy": {
        "type": "string",
        "enum": [strategy.value for strategy in Strategy],
        "default": Strategy.RETRY.value,
        "description": (
            "fail_fast: a failed rollout fails the evaluator. retry: max_retries rollouts of a group are made again, "
            "one more fails the group. min_viable_group: rollouts are made again until min_successful stand, the "
            "others are left out."
        ),
    },
    "max_retries": {
        "type": "integer",
        "minimum": 0,
        "maximum": MAX_RETRIES,
        "default": DEFAULT_RETRIES,
        "description": "Rollouts of each group that are made again; none with fail_fast.",
    },
    "min_successful": {
        "type": "integer",
        "minimum": 0,
        "maximum": MAX_GROUP_SIZE,
        "default": 0,
        "description": f"Rollouts that make a group, with min_viable_group; 0: {VIABLE_SHARE:g} of it, rounded up.",
    },
    "intermediates": {
        "type": "boolean",
        "default": False,
        "description": "Whether the tokens and log-probabilities of every turn are kept, not their numbers alone.",
    },
    "renderer": dict(RENDERER_OPTION),
}

_KEYS: Mapping[str, str] = {
    "env/<tag>/total_episodes": "rollouts",
    "env/<tag>/total_turns": "turns",
    "env/<tag>/total_ac_tokens": "tokens",
    "env/<tag>/total_ob_tokens": "tokens",
    "env/<tag>/total_cached_ob_tokens": "tokens",
    "env/<tag>/ac_tokens_per_turn": "tokens",
    "env/<tag>/ob_tokens_per_turn": "tokens",
    "env/<tag>/turns_per_episode": "turns",
    "env/<tag>/reward/total": "reward",
    "env/<tag>/by_group/frac_mixed": "fraction of 1",
    "env/<tag>/by_group/frac_all_good": "fraction of 1",
    "env/<tag>/by_group/frac_all_bad": "fraction of 1",
    "env/<tag>/<metric>": "the environment's",
    "rollout_errors/<kind>": "rollouts",
    "rollout_errors/total": "rollouts",
    "rollout_errors/groups_skipped": "groups",
}

RL_TEST_SET = EvaluatorInfo(
    kind="rl_test_set",
    kinds=(EvaluatorKind.SAMPLING,),
    description="Runs the model in environments, a group of rollouts for each sample, and reports its rewards.",
    options_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": dict(_PROPERTIES),
        "additionalProperties": False,
        "$defs": dict(GRADER_DEFS),
    },
    keys=_KEYS,
)
"""What `rl_test_set` says of itself."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Options, checked and put together."""

    environment: str | None
    """Name of a user's; None for problems of one turn."""
    environment_options: Mapping[str, Any]
    """Its options."""
    group_size: int
    """Rollouts of each sample."""
    grader: Grader
    """Who says how right an answer to a problem is."""
    format: Grader | None
    """Who says whether it has the form."""
    format_coef: float
    """What a wrong form costs."""
    tag_by: str
    """The entry of a sample's metadata that is its tag; empty for none."""
    max_turns: int
    """Turns after which an episode is ended."""
    tolerance: Tolerance
    """How failed rollouts are borne."""
    intermediates: bool
    """Whether tokens and log-probabilities are kept."""


def installed_environment(spec: EvaluatorSpec) -> str | None:
    """The environment of a user that a specification asks for, by name; None where it asks for none."""
    name = spec.options.get("environment", PROBLEMS) if spec.kind == RL_TEST_SET.kind else PROBLEMS
    return name if isinstance(name, str) and name != PROBLEMS else None


def chosen(
    options: Mapping[str, Any], sampling: SamplingParams, *, grading: GradingParts, environments: Environments
) -> Chosen:
    """Put together options that have passed the schema and bear its defaults.

    Raises:
        InvalidField: there is no such environment or grader; an option is wrong, or of no use beside the others;
            several rollouts of a problem would all be the same.
        FailedPrecondition: an environment, grader or renderer cannot be used.
    """
    check_renderer(options["renderer"])
    schema = _environment(options, environments)
    if schema is None:
        _check_problems(options, sampling)
    else:
        _refuse_options_of_problems(options)
    return Chosen(
        environment=None if schema is None else options["environment"],
        environment_options={}
        if schema is None
        else checked_options(options["environment_options"], schema, 'options["environment_options"]'),
        group_size=options["group_size"],
        grader=grader_of(options, grading),
        format=_format(options, grading),
        format_coef=options["format_coef"],
        tag_by=options["tag_by"],
        max_turns=options["max_turns"],
        tolerance=_tolerance(options),
        intermediates=options["intermediates"],
    )


def _environment(options: Mapping[str, Any], environments: Environments) -> Mapping[str, Any] | None:
    """The schema of the options of a user's environment."""
    name = options["environment"]
    if name == PROBLEMS:
        return None
    schema = environments.find(name)
    if schema is None:
        known = ", ".join([PROBLEMS, *entry_points.names()])
        message = f"is {name[:60]!r}, known are: {known}"
        raise InvalidField('options["environment"]', message, reason=Reason.UNKNOWN_ENVIRONMENT)
    return schema


def _check_problems(options: Mapping[str, Any], sampling: SamplingParams) -> None:
    if options["environment_options"]:
        message = f"is given, and {PROBLEMS} has none but those beside it"
        raise InvalidField('options["environment_options"]', message)
    if options["group_size"] > 1 and sampling.temperature == 0:
        message = f"is 0: all {options['group_size']} rollouts of a problem would be the same"
        raise InvalidField("sampling.temperature", message)


def _refuse_options_of_problems(options: Mapping[str, Any]) -> None:
    for name in _OF_PROBLEMS:
        if options[name] != _PROPERTIES[name]["default"]:
            message = f"is of {PROBLEMS} alone: the environment {options['environment'][:60]!r} rewards by itself"
            raise InvalidField(f'options["{name}"]', message)


def _format(options: Mapping[str, Any], grading: GradingParts) -> Grader | None:
    if not options["format_grader"]:
        return None
    fields = {"name_field": 'options["format_grader"]', "options_field": 'options["format_options"]'}
    found = graders.create(options["format_grader"], options["format_options"], grading, **fields)
    if isinstance(found, AsksJudge):
        raise InvalidField('options["format_grader"]', "asks a judge, which is for graders of the answer")
    return found


def _tolerance(options: Mapping[str, Any]) -> Tolerance:
    strategy, least = Strategy(options["strategy"]), options["min_successful"] or None
    if least is not None and strategy is not Strategy.MIN_VIABLE_GROUP:
        raise InvalidField('options["min_successful"]', f"is of min_viable_group, and the strategy is {strategy}")
    if least is not None and options["environment"] == PROBLEMS and least > options["group_size"]:
        raise InvalidField('options["min_successful"]', f"is {least}, group_size is {options['group_size']}")
    return Tolerance(strategy=strategy, max_retries=options["max_retries"], min_successful=least)
