"""Environments of users, found by the entry points of installed distributions: group `crucible_worker.environments`.

An entry point names an instance of `base.EnvironmentType`; its name is a value of the option `environment`
of `rl_test_set`. It is imported only in separate processes, never in the worker: see `processes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.evaluators.environments.base import EnvironmentType
from crucible_worker.util.entry_points import EntryPoints, error_text

__all__ = ["GROUP", "bad", "load", "names"]

GROUP = "crucible_worker.environments"
"""The entry point group that announces environments."""

_POINTS = EntryPoints(group=GROUP, what="environment", reason=Reason.BAD_ENVIRONMENT)


def names() -> Sequence[str]:
    """Names of the environments that are announced, sorted; nothing is loaded."""
    return _POINTS.names()


def bad(name: str, message: str) -> FailedPrecondition:
    """The error that says what is wrong with one."""
    return _POINTS.bad(name, message)


def load(name: str) -> EnvironmentType:
    """Import the environment that is announced under a name; not for the worker's own process.

    Raises:
        FailedPrecondition: it does not exist, cannot be loaded, is no environment, or has two distributions (reason
            BAD_ENVIRONMENT); it needs a library that is not installed (EXTRA_NOT_INSTALLED).
    """
    loaded = _POINTS.load(name)
    if loaded is None:
        raise _POINTS.bad(name, "is not announced by any distribution that its process finds")
    place, found = loaded
    if isinstance(found, type):
        raise _POINTS.bad(name, f"is the class {found.__name__} at {place!r}, not an instance of it")
    try:
        schema, group = getattr(found, "options_schema", None), getattr(found, "group", None)
        described = isinstance(getattr(found, "description", None), str)
    except (Exception, SystemExit) as error:  # foreign code may raise anything
        raise _POINTS.bad(name, f"does not describe itself: {error_text(error)}") from error
    if not described or not isinstance(schema, dict) or not callable(group):
        message = f"is a {type(found).__name__} at {place!r}, without a description, an options_schema or a `group`"
        raise _POINTS.bad(name, message)
    _POINTS.check_options(name, schema)
    return cast("EnvironmentType", found)
