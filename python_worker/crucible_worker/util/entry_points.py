"""Code of users, found by the entry points of installed distributions and loaded when a request names it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason

__all__ = ["EntryPoints", "error_text"]

_MAX_SHOWN = 300  # characters of a foreign error that is repeated


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EntryPoints:
    """The entry points of one group."""

    group: str
    """The name of the group: "crucible_worker.graders"."""
    what: str
    """The word for one of them in an error: "grader"."""
    reason: str
    """The reason of errors about one that cannot be used: "BAD_GRADER"."""

    def names(self) -> Sequence[str]:
        """The announced names, sorted; loads nothing."""
        from importlib import metadata  # 10 ms that a worker need not spend at start

        return sorted({point.name for point in metadata.entry_points(group=self.group)})

    def load(self, name: str) -> tuple[str, Any] | None:
        """Import the object that is announced under a name: its origin, and the object; None if there is none.

        Raises:
            FailedPrecondition: it cannot be loaded, or two distributions announce this name (the group's reason); it
                needs a library that is not installed (EXTRA_NOT_INSTALLED).
        """
        from importlib import metadata

        points = list(metadata.entry_points(group=self.group, name=name))
        if not points:
            return None
        if len({point.value for point in points}) > 1:
            raise self.bad(name, "is announced twice: " + ", ".join(sorted(point.value for point in points)))
        point = points[0]
        try:
            return point.value, point.load()
        except ModuleNotFoundError as error:
            # If its own module is missing, the distribution is wrong; any other module is a library to install.
            if error.name is None or f"{point.module}.".startswith(f"{error.name}."):
                raise self.bad(name, f"cannot be loaded from {point.value!r}: {error_text(error)}") from error
            message = f"the {self.what} {name!r} needs {error.name!r}, which is not installed"
            raise FailedPrecondition(message, reason=Reason.EXTRA_NOT_INSTALLED) from error
        except (Exception, SystemExit) as error:  # foreign code may raise anything when it is imported
            raise self.bad(name, f"cannot be loaded from {point.value!r}: {error_text(error)}") from error

    def check_schema(self, name: str, schema: Mapping[str, Any]) -> None:
        """Refuse options whose description is no JSON schema.

        Raises:
            FailedPrecondition: with the group's reason.
        """
        from jsonschema import Draft202012Validator, SchemaError  # 40 ms that a worker need not spend at start

        try:
            Draft202012Validator.check_schema(dict(schema))
        except SchemaError as error:
            raise self.bad(name, f"has options that are no JSON schema: {error.message[:_MAX_SHOWN]}") from error

    def check_options(self, name: str, schema: Any) -> None:
        """Refuse a schema that is no object, does not describe each option, or allows further options.

        Raises:
            FailedPrecondition: with the group's reason.
        """
        try:
            json.dumps(schema, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise self.bad(name, f"has options that are no JSON schema: {error_text(error)}") from error
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise self.bad(name, "has options that are not of the type object")
        self.check_schema(name, schema)
        rules = schema.get("properties", {}).values()
        if schema.get("additionalProperties") is not False or not all(isinstance(rule, dict) for rule in rules):
            # A misspelt option would otherwise be silently ignored.
            raise self.bad(name, "has options that are not described one by one, with additionalProperties false")

    def bad(self, name: str, message: str) -> FailedPrecondition:
        """The error that says what is wrong with one of them."""
        return FailedPrecondition(f"the {self.what} {name!r} {message}", reason=self.reason)


def error_text(error: BaseException) -> str:
    """The text of a foreign error, truncated."""
    return f"{type(error).__name__}: {error}"[:_MAX_SHOWN]
