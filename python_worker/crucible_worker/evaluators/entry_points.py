"""Evaluators of users, found by the entry points of installed distributions in the group `crucible_worker.evaluators`.

An entry point names a class of evaluators, see `declared`, or an instance of what `base.EvaluatorType` describes. Its
name is the `kind` in requests. It is imported when a request names it or lists evaluators. It never replaces a built-in
evaluator.

Its code is trusted: it runs on the worker's event loop, in the worker's process, with all its rights. `guarded.py` says
how its failures are handled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.errors import BridgeError
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import EvaluatorInfo, EvaluatorKind, Goal
from crucible_worker.declared_options import Undeclarable
from crucible_worker.evaluators.declared import BaseEvaluator, DeclaredKind
from crucible_worker.evaluators.guarded import GuardedType
from crucible_worker.grading.base import NO_OPTIONS
from crucible_worker.util.entry_points import EntryPoints, told

__all__ = ["GROUP", "described", "find", "kind_of", "names"]

GROUP = "crucible_worker.evaluators"
"""The entry point group that announces evaluators."""

_POINTS = EntryPoints(group=GROUP, what="evaluator", reason=Reason.BAD_EVALUATOR)


def names() -> Sequence[str]:
    """Kinds of the announced evaluators, sorted; loads nothing."""
    return _POINTS.names()


def described(name: str) -> EvaluatorInfo:
    """The entry of an announced evaluator in a listing; if it cannot be used, the entry says why."""
    try:
        found = find(name)
    except BridgeError as error:
        return _unusable(name, error.message)
    return _unusable(name, "is no longer announced") if found is None else found.info


def find(name: str) -> GuardedType | None:
    """Load the evaluator that is announced under a name; None if there is none.

    Raises:
        FailedPrecondition: it cannot be loaded, is no evaluator, or two distributions announce this name (reason
            BAD_EVALUATOR); it needs a library that is not installed (EXTRA_NOT_INSTALLED).
    """
    loaded = _POINTS.load(name)
    if loaded is None:
        return None
    return kind_of(name, *loaded)


def kind_of(name: str, place: str, found: Any) -> GuardedType:
    """Make the evaluator type of a loaded object.

    Args:
        name: the kind.
        place: where the object was loaded from, for errors.
        found: a class of evaluators, or an object as `base.EvaluatorType` describes it.

    Raises:
        FailedPrecondition: it is no evaluator, lacks a method, a field cannot be an option, or it has another kind
            (BAD_EVALUATOR).
    """
    if isinstance(found, type) and issubclass(found, BaseEvaluator):
        found = DeclaredKind(found)
    if isinstance(found, type):
        raise _POINTS.bad(name, f"is the class {found.__name__} at {place!r}, not an instance of it")
    try:
        info, create = getattr(found, "info", None), getattr(found, "create", None)
    except Undeclarable as error:
        raise _POINTS.bad(name, str(error)) from error
    except (Exception, SystemExit) as error:  # foreign code may raise anything
        raise _POINTS.bad(name, f"does not describe itself: {told(error)}") from error
    if not isinstance(info, EvaluatorInfo) or not callable(create):
        message = f"is a {type(found).__name__} at {place!r}, without an EvaluatorInfo as `info` or a `create`"
        raise _POINTS.bad(name, message)
    if isinstance(found, DeclaredKind) and (missing := sorted(found.evaluator.__abstractmethods__)):
        raise _POINTS.bad(
            name, f"is the class {found.evaluator.__name__} at {place!r}, which lacks {', '.join(missing)}"
        )
    _check(name, info)
    return GuardedType(info=info, kind=found)


def _check(name: str, info: EvaluatorInfo) -> None:
    if info.kind != name:
        raise _POINTS.bad(name, f"calls itself {info.kind!r}")
    texts = isinstance(info.description, str) and isinstance(info.unavailable, str)
    goal = info.score_goal is None or isinstance(info.score_goal, Goal)
    kinds = isinstance(info.kinds, tuple) and all(isinstance(kind, EvaluatorKind) for kind in info.kinds)
    if not (texts and goal and kinds and info.kinds):
        raise _POINTS.bad(name, "has an EvaluatorInfo whose fields are not of the types it declares, or no kinds")
    keys = info.keys
    if not isinstance(keys, Mapping) or not keys or not all(isinstance(text, str) for text in (*keys, *keys.values())):
        raise _POINTS.bad(name, "announces no keys, or some that are no text")
    _POINTS.check_options(name, info.options_schema)


def _unusable(name: str, why: str) -> EvaluatorInfo:
    return EvaluatorInfo(
        kind=name,
        kinds=(),
        description="An installed evaluator that cannot be used.",
        options_schema=NO_OPTIONS,
        keys={},
        unavailable=shorten(why, MAX_PROBLEM_BYTES),
    )
