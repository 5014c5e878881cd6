"""The options of `rl_test_set`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.reasons import Reason
from crucible_bridge.types import EvaluatorSpec
from crucible_worker.evaluators.answering import REMOVE_THINKING, Thinking
from crucible_worker.evaluators.base import CallerPart, PartKind
from crucible_worker.evaluators.environments import entry_points
from crucible_worker.evaluators.environments.group import MAX_GROUP_SIZE, VIABLE_SHARE, FailurePolicy, Strategy
from crucible_worker.evaluators.environments.processes import Environments
from crucible_worker.evaluators.graded import DEFAULT_GRADER, Graded, GraderName
from crucible_worker.grading import registry as graders
from crucible_worker.grading.base import AsksJudge, Grader
from crucible_worker.grading.caller import CALLER, CallerGrader, name_at_caller
from crucible_worker.rendering import RendererName
from crucible_worker.util.options import Handed, checked_options, schema_of

__all__ = [
    "DEFAULT_FORMAT_COEF",
    "DEFAULT_RETRIES",
    "DEFAULT_TURNS",
    "KEYS",
    "KIND",
    "MAX_RETRIES",
    "MAX_TURNS_OF_A_ROLLOUT",
    "PROBLEMS",
    "EnvironmentOptions",
    "installed_environment",
]

PROBLEMS = "problems"
"""The environment that comes with the worker."""
DEFAULT_TURNS, MAX_TURNS_OF_A_ROLLOUT = 32, 1_000
"""Maximum of the option `max_turns`."""
DEFAULT_RETRIES, MAX_RETRIES = 3, 100
"""Maximum of the option `max_retries`; the default is tinker-cookbook's."""
DEFAULT_FORMAT_COEF = 0.1
"""Default of the option `format_coef`, tinker-cookbook's."""

_ANY_OPTIONS: Mapping[str, Any] = {"type": "object"}
"""The schema of options that the caller checks itself."""

_OF_PROBLEMS = (
    *("grader", "grader_options", "format_grader", "format_options", "format_coef"),
    *("require_stop_sequence_for_format", "thinking", "tag_by"),
)

KIND = "rl_test_set"
"""The evaluator with these options."""

KEYS: Mapping[str, str] = {
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
"""The keys that it reports."""


class EnvironmentOptions(Graded, kind=KIND, keys=KEYS):
    """Options of `rl_test_set`."""

    environment: Annotated[str, Meta(examples=[PROBLEMS])] = PROBLEMS
    """problems: one answer to each sample, graded. Further ones may be installed with the worker, or stay with the
    caller: caller, caller:NAME."""
    environment_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Options of an installed environment, or of the caller's; those of problems are in this list."""
    group_size: Annotated[int, Meta(ge=1, le=MAX_GROUP_SIZE)] = 1
    """Rollouts of each sample; several need a temperature above 0. An installed environment may make more or
    fewer."""
    grader: GraderName = DEFAULT_GRADER
    grader_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Options of the grader; their schema is under its name in $defs."""
    format_grader: str = ""
    """A grader that says whether an answer has the form; any form will do if empty."""
    format_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Options of that grader."""
    format_coef: Annotated[float, Meta(ge=0, le=1_000)] = DEFAULT_FORMAT_COEF
    """Penalty of a wrong form: the reward is format_coef * (format - 1) + correct."""
    require_stop_sequence_for_format: bool = False
    """Only an answer that a stop sequence ended has the form: one of the renderer, the prompt or the request. Without
    this, an answer has it as well that the model's end-of-sequence token ended."""
    thinking: Thinking = REMOVE_THINKING
    tag_by: str = ""
    """Key of the samples' metadata that has their tag; no tags if empty."""
    max_turns: Annotated[int, Meta(ge=1, le=MAX_TURNS_OF_A_ROLLOUT)] = DEFAULT_TURNS
    """Turns after which an episode is ended; its last turn then has the metric stop/max_turns."""
    strategy: Strategy = Strategy.RETRY
    """fail_fast: a failed rollout fails the evaluator. retry: max_retries rollouts of a group are repeated, one more
    fails the group. min_viable_group: rollouts are repeated until min_successful succeed, the others are left out."""
    max_retries: Annotated[int, Meta(ge=0, le=MAX_RETRIES)] = DEFAULT_RETRIES
    """Rollouts of each group that are repeated; none with fail_fast."""
    min_successful: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_GROUP_SIZE,
            description=f"With min_viable_group, rollouts that must succeed; 0: {VIABLE_SHARE:g} of it, rounded up.",
        ),
    ] = 0
    intermediates: bool = False
    """Record the tokens and log-probabilities of every turn, not only their numbers."""
    num_groups_to_log: Annotated[int | None, Meta(ge=0)] = None
    """Groups whose turns are recorded: so many samples, from the first of the data set; all if absent."""
    renderer: RendererName = "auto"

    environments: Handed[Environments]
    """The installed environments."""

    def __post_init__(self) -> None:
        """Refuse options that do not fit each other.

        Raises:
            InvalidField: there is no such environment or grader; an option is wrong, or does not fit the others;
                several rollouts of a problem would all be the same.
            FailedPrecondition: an environment, grader or renderer cannot be used.
        """
        schema = self._environment()
        if schema is None:
            self._check_problems()
        else:
            self._refuse_options_of_problems()
            _ = self.of_environment
        super().__post_init__()
        _ = self.format, self.tolerance

    @functools.cached_property
    def of_environment(self) -> Mapping[str, Any]:
        """Options of an installed environment, with its defaults."""
        schema = self._environment()
        if schema is None:
            return {}
        return checked_options(self.environment_options, schema, 'options["environment_options"]')

    @functools.cached_property
    def format(self) -> Grader | None:
        """The grader that decides whether an answer has the form."""
        if not self.format_grader:
            return None
        fields = {"name_field": 'options["format_grader"]', "options_field": 'options["format_options"]'}
        found = graders.create(self.format_grader, self.format_options, self.grading, **fields)
        if isinstance(found, AsksJudge):
            raise InvalidField('options["format_grader"]', "queries a judge, which only graders of the answer may")
        if isinstance(found, CallerGrader):
            raise InvalidField('options["format_grader"]', "stays with the caller, as only the grader may")
        return found

    @functools.cached_property
    def tolerance(self) -> FailurePolicy:
        """How failed rollouts are handled."""
        least = self.min_successful or None
        if least is not None and self.strategy is not Strategy.MIN_VIABLE_GROUP:
            message = f"is for min_viable_group, and the strategy is {self.strategy}"
            raise InvalidField('options["min_successful"]', message)
        if least is not None and self.environment == PROBLEMS and least > self.group_size:
            raise InvalidField('options["min_successful"]', f"is {least}, group_size is {self.group_size}")
        return FailurePolicy(strategy=self.strategy, max_retries=self.max_retries, min_successful=least)

    @property
    def at_caller(self) -> str | None:
        """The name of the environment at the caller, empty for its only one; None if it does not stay there."""
        return name_at_caller(self.environment)

    @property
    def caller_parts(self) -> Sequence[CallerPart]:
        """The environment, or the grader of problems, if it stays with the caller."""
        if self.at_caller is None:
            return super().caller_parts
        text = self.environment
        return (CallerPart(kind=PartKind.ENVIRONMENT, option="environment", text=text, name=self.at_caller),)

    def _environment(self) -> Mapping[str, Any] | None:
        """The schema of the options of a user's environment."""
        if self.environment == PROBLEMS:
            return None
        if self.at_caller is not None:
            return _ANY_OPTIONS
        schema = self.environments.find(self.environment)
        if schema is None:
            known = ", ".join([PROBLEMS, *entry_points.names(), f"{CALLER}:NAME"])
            message = f"is {clipped(self.environment)}, known are: {known}"
            raise InvalidField('options["environment"]', message, reason=Reason.UNKNOWN_ENVIRONMENT)
        return schema

    def _check_problems(self) -> None:
        if self.environment_options:
            message = f"is given, and {PROBLEMS} has only the options next to it"
            raise InvalidField('options["environment_options"]', message)
        if self.group_size > 1 and self.sampling.temperature == 0:
            message = f"is 0: all {self.group_size} rollouts of a problem would be the same"
            raise InvalidField("sampling.temperature", message)

    def _refuse_options_of_problems(self) -> None:
        for name, rule in schema_of(type(self))["properties"].items():
            if name in _OF_PROBLEMS and getattr(self, name) != rule["default"]:
                message = f"is only for {PROBLEMS}: the environment {clipped(self.environment)} rewards by itself"
                raise InvalidField(f'options["{name}"]', message)


def installed_environment(spec: EvaluatorSpec) -> str | None:
    """The name of the installed environment in a specification; None if it has none."""
    name = spec.options.get("environment", PROBLEMS) if spec.kind == KIND else PROBLEMS
    foreign = isinstance(name, str) and name != PROBLEMS and name_at_caller(name) is None
    return name if foreign else None
