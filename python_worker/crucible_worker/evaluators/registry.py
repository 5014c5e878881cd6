"""Every evaluator of this worker, by kind: built-in ones, and those of users; and what they get when they are made."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from crucible_bridge.errors import BridgeError, InvalidField, clipped
from crucible_bridge.reasons import Reason
from crucible_bridge.types import EvaluatorInfo, EvaluatorSpec, ModelRef, SamplingParams
from crucible_worker.evaluators import installed
from crucible_worker.evaluators.accuracy import Accuracy
from crucible_worker.evaluators.base import Evaluator
from crucible_worker.evaluators.classification import Classification
from crucible_worker.evaluators.comparison import Comparison
from crucible_worker.evaluators.declared import DeclaredKind
from crucible_worker.evaluators.environments.options import PROBLEMS, installed_environment
from crucible_worker.evaluators.environments.processes import Environments
from crucible_worker.evaluators.graded import DEFAULT_GRADER
from crucible_worker.evaluators.inspect import Inspect
from crucible_worker.evaluators.inspect.allowed import InspectAllowlist, nothing_allowed
from crucible_worker.evaluators.installed import GuardedType
from crucible_worker.evaluators.multiple_choice import MultipleChoice
from crucible_worker.evaluators.next_token import NextToken
from crucible_worker.evaluators.nll import NLL
from crucible_worker.evaluators.pass_at_k import PassAtK
from crucible_worker.evaluators.perplexity import BitsPerByte, Perplexity
from crucible_worker.evaluators.preference import Preference
from crucible_worker.evaluators.rl_test_set import RLTestSet
from crucible_worker.evaluators.rollout import RolloutEvaluator
from crucible_worker.evaluators.rubric import RubricEvaluator
from crucible_worker.grading.registry import NO_GRADING_PARTS, GradingParts, version_of
from crucible_worker.util.options import checked_options

__all__ = [
    "EVALUATORS",
    "EvaluatorParts",
    "create",
    "graders_of",
    "info",
    "info_if_known",
    "infos",
    "is_installed",
    "keys_of",
    "kinds",
    "load_installed",
]

# The parts of a worker that evaluators use, and the models of their request, passed to them when they are made.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorParts:
    """The parts of one worker; without arguments, a worker that has none."""

    grading: GradingParts = NO_GRADING_PARTS
    """The parts for graders."""
    inspect: InspectAllowlist | None = None
    """The Inspect tasks that may be run. None if none may."""
    environments: Environments = dataclasses.field(default_factory=Environments)
    """Users' environments, and the variables that their processes get from the worker."""
    custom_evaluators: Mapping[str, GuardedType] = dataclasses.field(default_factory=dict)
    """Evaluators of files that a user names on the command line, by kind; no call can add one."""
    models: Mapping[str, ModelRef] = dataclasses.field(default_factory=dict)
    """Further models of one request, by role or by the name that a task has for them; empty outside of a request."""


EVALUATORS: Mapping[str, DeclaredKind] = MappingProxyType(
    {
        evaluator.kind: DeclaredKind(evaluator)
        for evaluator in (
            Accuracy,
            BitsPerByte,
            Classification,
            Comparison,
            Inspect,
            MultipleChoice,
            NextToken,
            NLL,
            PassAtK,
            Perplexity,
            Preference,
            RLTestSet,
            RolloutEvaluator,
            RubricEvaluator,
        )
    }
)
"""Built-in evaluators, by kind, in the order of a listing."""


def kinds(parts: EvaluatorParts | None = None) -> Sequence[str]:
    """Kinds for requests: built-in ones, those of a user's files, then installed ones; nothing is loaded."""
    own = () if parts is None else parts.custom_evaluators
    return list(dict.fromkeys((*EVALUATORS, *own, *installed.names())))


def infos(parts: EvaluatorParts) -> Sequence[EvaluatorInfo]:
    """Every evaluator of a worker with these parts, in the order of `kinds`; imports installed ones, slowly."""
    held = {**parts.custom_evaluators, **EVALUATORS}
    found = [held[kind].info if kind in held else installed.described(kind) for kind in kinds(parts)]
    return [info if info.kind != Inspect.kind or parts.inspect is not None else _without_tasks(info) for info in found]


def is_installed(spec: EvaluatorSpec, parts: EvaluatorParts) -> bool:
    """Whether a specification names an installed evaluator or environment, which must be imported; loads nothing."""
    foreign = spec.kind not in EVALUATORS and spec.kind not in parts.custom_evaluators
    return foreign or installed_environment(spec) is not None


def load_installed(wanted: Iterable[EvaluatorSpec], parts: EvaluatorParts) -> None:
    """Import installed evaluators, and environments in separate processes, of specifications; they stay loaded.

    Raises:
        FailedPrecondition: an evaluator or environment cannot be used (reason BAD_EVALUATOR, BAD_ENVIRONMENT), or needs
            a library that is not installed (EXTRA_NOT_INSTALLED).
    """
    for spec in wanted:
        if (environment := installed_environment(spec)) is not None:
            parts.environments.look(environment)
        elif is_installed(spec, parts):
            installed.find(spec.kind)


def info_if_known(kind: str, parts: EvaluatorParts | None = None) -> EvaluatorInfo | None:
    """The description of the evaluator of a kind; None if it is no longer available."""
    try:
        return info(kind, parts)
    except BridgeError:
        # An evaluator that was used once may no longer be installed.
        return None


def info(kind: str, parts: EvaluatorParts | None = None) -> EvaluatorInfo:
    """The description of the evaluator of a kind.

    Raises:
        InvalidField: there is none (reason UNKNOWN_EVALUATOR).
        FailedPrecondition: it is a user's, and cannot be used.
    """
    return _type_of(kind, "kind", parts).info


def graders_of(spec: EvaluatorSpec, grading: GradingParts | None = None) -> Mapping[str, int]:
    """The versions of the graders that judge for an evaluator, by name; without those of a caller.

    Args:
        spec: of the evaluator; its options are valid.
        grading: the parts of the worker, with its custom graders; None: only built-in graders are known.
    """
    kind = EVALUATORS.get(spec.kind)
    known = {} if kind is None else kind.info.options_schema.get("properties", {})
    if "grader" not in known or spec.options.get("environment", PROBLEMS) != PROBLEMS:
        return {}
    nested = spec.options.get("grader_options")
    names = [
        spec.options.get("grader", DEFAULT_GRADER),
        spec.options.get("format_grader"),
        nested.get("first") if isinstance(nested, Mapping) else None,
    ]
    versions = {name: version_of(name, grading) for name in names if isinstance(name, str) and name}
    return {name: version for name, version in versions.items() if version is not None}


def keys_of(spec: EvaluatorSpec, parts: EvaluatorParts | None = None) -> Sequence[str]:
    """The keys that the evaluator of a specification can yield; its options are valid.

    Raises:
        BridgeError: as for `info`.
    """
    return _type_of(spec.kind, "kind", parts).keys_by(spec.options)


def create(
    spec: EvaluatorSpec, index: int, sampling: SamplingParams | None, parts: EvaluatorParts | None = None
) -> Evaluator:
    """Make the evaluator of a specification.

    Args:
        spec: kind and options; the options are checked against the kind's schema and include its defaults afterwards.
        index: the specification's place in its request, for errors.
        sampling: how the request wants to be sampled.
        parts: those of the worker that evaluates; if None, a worker without parts.

    Raises:
        InvalidField: there is no such kind (reason UNKNOWN_EVALUATOR), an option is unknown or wrong, or the request
            lacks what the evaluator needs. Paths are those of the request: `evaluators[0].options["max_tokens"]`.
        FailedPrecondition: it needs a library that is not installed (EXTRA_NOT_INSTALLED), or a part that this worker
            lacks (NO_GRADING_POOL, NO_SANDBOX); or it is a user's and cannot be used (BAD_EVALUATOR).
    """
    kind = _type_of(spec.kind, f"evaluators[{index}].kind", parts)
    options = checked_options(spec.options, kind.info.options_schema, f"evaluators[{index}].options")
    try:
        return kind.create(options, sampling, parts or EvaluatorParts())
    except InvalidField as error:
        # The type knows its options, but not their path in the request.
        path = f"evaluators[{index}].{error.field}" if error.field.startswith("options") else error.field
        raise InvalidField(path, error.message, reason=error.reason) from error


def _type_of(kind: str, field: str, parts: EvaluatorParts | None) -> DeclaredKind | GuardedType:
    own = None if parts is None else parts.custom_evaluators.get(kind)
    found = EVALUATORS.get(kind) or own or installed.find(kind)
    if found is None:
        known = ", ".join(kinds(parts))
        raise InvalidField(field, f"is {clipped(kind)}, known are: {known}", reason=Reason.UNKNOWN_EVALUATOR)
    return found


def _without_tasks(info: EvaluatorInfo) -> EvaluatorInfo:
    return dataclasses.replace(info, unavailable=info.unavailable or nothing_allowed().message)
