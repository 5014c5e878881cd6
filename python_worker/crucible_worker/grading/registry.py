"""Every grader that can be requested by name, and the parts of the worker that graders are made with."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from crucible_bridge.errors import BridgeError, InvalidField, clipped
from crucible_bridge.reasons import Reason
from crucible_worker.grading import custom
from crucible_worker.grading.base import Grader, GraderType
from crucible_worker.grading.caller import CALLER, CallerGrader, name_at_caller
from crucible_worker.grading.choice import ChoiceGrader
from crucible_worker.grading.code.options import CodeOptions
from crucible_worker.grading.fanout.graders import math_grader_of
from crucible_worker.grading.format import FormatOptions, format_of
from crucible_worker.grading.judge.grader import RubricOptions, rubric_of
from crucible_worker.grading.math.grader import MathOptions
from crucible_worker.grading.numbers import Numeric
from crucible_worker.grading.patterns import Regex
from crucible_worker.grading.text import F1, Bleu, Contains, ExactMatch, Rouge, exact_match_of
from crucible_worker.util.options import checked_options, first_line, schema_of, values_of

if TYPE_CHECKING:
    from crucible_worker.grading.code.sandbox import SandboxSlots
    from crucible_worker.grading.fanout.fanout import Fanout
    from crucible_worker.grading.fanout.graders import ClusterPlaces
    from crucible_worker.grading.pool import GradingPool

__all__ = [
    "GRADERS",
    "NO_GRADING_PARTS",
    "GraderType",
    "GradingParts",
    "OwnGrader",
    "create",
    "found",
    "handed",
    "names",
    "version_of",
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GradingParts:
    """The parts of one worker. A grader that needs a missing part is refused when it is made."""

    pool: GradingPool | Fanout | None = None
    """The processes in which mathematics is computed, or the cluster that has them."""
    places: SandboxSlots | ClusterPlaces | None = None
    """The places where programs run."""
    custom_graders: Mapping[str, GraderType] = dataclasses.field(default_factory=dict)
    """Graders of files that a user names on the command line, by name; no call can add one."""


NO_GRADING_PARTS = GradingParts()
"""The parts of a worker that has none."""


def handed(make: Callable[..., Any], parts: object) -> dict[str, Any]:
    """The parts that the keyword-only parameters of a function name.

        def math_grader_of(options: Mapping[str, Any], *, pool: GradingPool | Fanout | None) -> MathGrader: ...

    is handed the worker's pool, because `pool` is the name of a part in `GradingParts`.

    Raises:
        AttributeError: there is no part of such a name.
    """
    parameters = inspect.signature(make).parameters.values()
    return {needed.name: getattr(parts, needed.name) for needed in parameters if needed.kind is needed.KEYWORD_ONLY}


class OwnGrader:
    """A built-in grader: its options are the fields of a class."""

    def __init__(
        self, name: str, declared: type[Any], make: Callable[..., Grader] | None = None, *, version: int = 1
    ) -> None:
        """Make one; the class is not read before it is needed.

        Args:
            name: its name in requests.
            declared: class whose fields are the options; the first line of its docstring is the description.
            make: makes a grader from options that passed the schema; the class itself if None. Its keyword-only
            parameters name parts of `GradingParts`.
            version: as `GraderType` has it.
        """
        self.name, self.declared, self.version = name, declared, version
        self.make: Callable[..., Grader] = self._made if make is None else make

    @functools.cached_property
    def options_schema(self) -> Mapping[str, Any]:
        """JSON schema of its options."""
        return schema_of(self.declared)

    @functools.cached_property
    def description(self) -> str:
        """One sentence."""
        return first_line(self.declared)

    def _made(self, options: Mapping[str, Any]) -> Grader:
        return self.declared(**values_of(self.declared, options))


def _code(options: Mapping[str, Any], *, places: SandboxSlots | ClusterPlaces | None) -> Grader:
    from crucible_worker.grading.code.by_name import code_of  # 20 ms that a worker need not spend at start

    return code_of(options, places=places)


def _rubric(
    options: Mapping[str, Any],
    *,
    pool: GradingPool | Fanout | None,
    places: SandboxSlots | ClusterPlaces | None,
    custom_graders: Mapping[str, GraderType],
) -> Grader:
    parts = GradingParts(pool=pool, places=places, custom_graders=custom_graders)
    return rubric_of(options, functools.partial(create, parts=parts))


GRADERS: Mapping[str, OwnGrader] = MappingProxyType(
    {
        grader.name: grader
        for grader in (
            OwnGrader("exact_match", ExactMatch, exact_match_of, version=2),
            OwnGrader("contains", Contains, version=2),
            OwnGrader("numeric", Numeric, version=2),
            OwnGrader("multiple_choice", ChoiceGrader, version=2),
            OwnGrader("math", MathOptions, math_grader_of, version=2),
            OwnGrader("regex", Regex),
            OwnGrader("f1", F1, version=2),
            OwnGrader("bleu", Bleu),
            OwnGrader("rouge", Rouge),
            OwnGrader("format", FormatOptions, format_of, version=2),
            OwnGrader("code", CodeOptions, _code, version=2),
            OwnGrader("rubric", RubricOptions, _rubric),
        )
    }
)
"""The built-in graders, by name. Raise the version of one with each change that gives another verdict for the same
response, also of what graders share: the extraction of answers, the reading of numbers and texts."""


def names(parts: GradingParts = NO_GRADING_PARTS) -> Sequence[str]:
    """Names that can be requested: built-in, then the user's own, then installed ones; nothing is loaded."""
    return list(dict.fromkeys((*GRADERS, *parts.custom_graders, *custom.names())))


def found(name: str, parts: GradingParts, name_field: str) -> GraderType | OwnGrader:
    """The grader of a name; arguments and errors are those of `create`."""
    grader = GRADERS.get(name) or parts.custom_graders.get(name) or _of_caller(name) or custom.find(name)
    if grader is None:
        known = ", ".join((*names(parts), f"{CALLER}:NAME"))
        raise InvalidField(name_field, f"is {clipped(name)}, known are: {known}", reason=Reason.UNKNOWN_GRADER)
    return grader


def _of_caller(name: str) -> GraderType | None:
    """The grader `caller`, or `caller:NAME`; None if the name is another one."""
    own = name_at_caller(name)
    if own is None:
        return None
    description = "Asks the caller of EvaluateWithOrchestratorModel."
    return GraderType(name=name, description=description, make=lambda options: CallerGrader(name=own))


def version_of(name: str, parts: GradingParts | None = None) -> int | None:
    """The version of the grader of a name; None of one of the caller, and of one that cannot be used.

    Without parts, only built-in graders are known, and nothing is loaded.
    """
    if name in GRADERS:
        return GRADERS[name].version
    if parts is None or name_at_caller(name) is not None:
        return None
    try:
        return found(name, parts, "grader").version
    except BridgeError:
        return None


def create(
    name: str,
    options: Mapping[str, Any],
    parts: GradingParts = NO_GRADING_PARTS,
    *,
    name_field: str,
    options_field: str,
) -> Grader:
    """Make the grader of a name: one of `GRADERS`, otherwise one that an installed distribution provides.

    Args:
        name: its name in the request.
        options: JSON values, checked against the grader's schema.
        parts: what the worker provides for grading.
        name_field: path of the name, for errors.
        options_field: path of the options, for errors.

    Raises:
        InvalidField: there is no such grader (reason UNKNOWN_GRADER), or an option is wrong.
        FailedPrecondition: it needs a library that is not installed (EXTRA_NOT_INSTALLED), or a part that this worker
            lacks (NO_GRADING_POOL, NO_SANDBOX); or a user's grader cannot be used (BAD_GRADER).
    """
    grader = found(name, parts, name_field)
    checked = checked_options(options, grader.options_schema, options_field)
    try:
        return grader.make(checked, **(handed(grader.make, parts) if name in GRADERS else {}))
    except InvalidField as error:
        raise InvalidField(options_field + error.field, error.message, reason=error.reason) from error
