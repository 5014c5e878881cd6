"""Options checked against a JSON schema (draft 2020-12), with the path of what is wrong."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

__all__ = ["checked_options", "load_checker", "may_be_refused"]

_MAX_SHOWN = 60  # characters of a wrong value that an error repeats

_KINDS = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "text",
}
"""JSON schema's types, in words."""

_REQUIRE_NOTHING = {"$defs", "$schema", "additionalProperties", "properties", "type"}
"""Rules of a schema that no object breaks by having no members."""


def load_checker() -> None:
    """Import what `checked_options` needs; call it in a thread, which does not block the event loop."""
    import jsonschema  # pyright: ignore[reportUnusedImport]  # noqa: F401  # 40 ms that a worker need not spend at start


def may_be_refused(options: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    """Whether options have to be checked by the schema, which is that of an object: none are right if it needs none."""
    return bool(options) or not schema.keys() <= _REQUIRE_NOTHING


def checked_options(options: Mapping[str, Any], schema: Mapping[str, Any], field: str) -> dict[str, Any]:
    """The options by a schema: checked, with defaults added, and whole numbers as int for `integer`.

    Args:
        options: JSON values.
        schema: of an object; its own properties may have a `default`.
        field: path of the options, for errors.

    Raises:
        InvalidField: at the path of the first option that is wrong, in the order of the options.
    """
    if may_be_refused(options, schema):
        _check(options, schema, field)
    properties: Mapping[str, Any] = schema.get("properties", {})
    filled = {key: rule["default"] for key, rule in properties.items() if "default" in rule and key not in options}
    # A number from google.protobuf.Struct is a float.
    whole = {key for key, rule in properties.items() if rule.get("type") == "integer"}
    given = {key: int(value) if key in whole else value for key, value in options.items()}
    return filled | given


def _check(options: Mapping[str, Any], schema: Mapping[str, Any], field: str) -> None:
    from jsonschema import Draft202012Validator  # 40 ms that a worker need not spend at start

    _check_numbers(options, field)
    errors = sorted(
        Draft202012Validator(dict(schema)).iter_errors(dict(options)), key=lambda error: list(map(str, error.path))
    )
    if errors:
        raise _described(errors[0], field)


def _check_numbers(value: Any, field: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidField(field, f"is {value}, which JSON does not have")
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_numbers(item, f"{field}{_step(key)}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check_numbers(item, f"{field}[{index}]")


def _described(error: ValidationError, field: str) -> InvalidField:
    path = field + "".join(map(_step, error.absolute_path))
    value: Any = error.instance
    rule: Any = error.validator_value
    match error.validator:
        case "additionalProperties":
            known = error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
            unknown = next(key for key in value if key not in known)
            names = ", ".join(known) or "none"
            near = difflib.get_close_matches(unknown[:_MAX_SHOWN], known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            return InvalidField(
                path + _step(unknown), f"is unknown; {hint}known are: {names}", reason=Reason.UNKNOWN_OPTION
            )
        case "required":
            missing = next(key for key in rule if key not in value)
            return InvalidField(path + _step(missing), "is missing")
        case "type":
            kinds = [rule] if isinstance(rule, str) else rule
            return InvalidField(path, f"is {_shown(value)}, must be {' or '.join(_KINDS[kind] for kind in kinds)}")
        case "enum":
            return InvalidField(path, f"is {_shown(value)}, not one of: {', '.join(map(str, rule))}")
        case "minimum":
            return InvalidField(path, f"is {_shown(value)}, at least {rule} is needed")
        case "maximum":
            return InvalidField(path, f"is {_shown(value)}, at most {rule} is accepted")
    return InvalidField(path, f"is {_shown(value)}, against the rule {error.validator}: {_shown(rule)}")


def _step(key: str | int) -> str:
    return f"[{key}]" if isinstance(key, int) else f'["{key[:_MAX_SHOWN]}"]'


def _shown(value: Any) -> str:
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)  # "true", not Python's True
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
