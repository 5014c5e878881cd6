"""Tools that a model may call, and their JSON in the forms of data sets.

    {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {...}}}     OpenAI, TRL
    {"type": "function", "function": {"name": ..., "description": ..., "parameters": ..., "return": ...}}  Hugging Face
    {"name": "add", "description": "Adds.", "parameters": {...}}                                       without a frame

A list of them may be JSON as text, and so may each of them, and its schemas. A null counts as no value; a schema has
one only as `default`, `const` and in lists.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.types.bounds import TOOL_SPEC_NAME_MAX_BYTES

__all__ = [
    "MAX_SCHEMA_BYTES",
    "MAX_SCHEMA_DEPTH",
    "MAX_TOOLS",
    "MAX_TOOLS_BYTES",
    "ToolSpec",
    "check_tools",
    "tool_from_json",
    "tool_to_json",
    "tools_from_json",
]

MAX_TOOLS = 128
"""Tools of one conversation."""
MAX_TOOLS_BYTES = 1 << 20
"""All of them together: names, descriptions, schemas."""
MAX_SCHEMA_BYTES = 256 * 1024
"""A JSON schema of a tool."""
MAX_SCHEMA_DEPTH = 32
"""Objects and lists within each other, in a schema."""
_LISTED_DEPTH = MAX_SCHEMA_DEPTH + 4
"""The same of a list of tools: its frames come first."""

_BRACKETS = re.compile(r'"(?>(?:[^"\\]|\\.)*)"?|[\[\]{}]', re.DOTALL)
_NO_NAME = re.compile(r"[\s\x00-\x1f\x7f]")
_FUNCTION = ("name", "description", "parameters", "strict", "return")
"""Keys of a function, in the order in which templates get them."""
_OTHER_NAMES = {"input_schema": "parameters"}
"""What other APIs call a key."""
_NULL_KEYS = frozenset({"default", "const"})
"""Keywords of a schema whose value may be null."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool that a model may call."""

    name: str
    """Its name: at most 128 bytes, no white space."""
    description: str = ""
    """What it does, for the model."""
    parameters: str = ""
    """JSON schema of its arguments, as JSON: an object, at most 256 KiB, nested at most 32 deep; none if empty."""
    strict: bool | None = None
    """Whether a server is to make the arguments match the schema. Other models are only shown it."""
    returns: str = ""
    """JSON schema of what it returns, as JSON, where a data set has it; for templates alone."""

    def checked(self, field: str) -> ToolSpec:
        """Itself.

        Raises:
            InvalidField: the name is none, or a schema is no JSON object, or one that is too long or too deep.
        """
        if not self.name:
            raise InvalidField(f"{field}.name", "is empty")
        if len(self.name.encode(errors="replace")) > TOOL_SPEC_NAME_MAX_BYTES:
            raise InvalidField(f"{field}.name", f"has more than {TOOL_SPEC_NAME_MAX_BYTES} bytes")
        if _NO_NAME.search(self.name):
            raise InvalidField(f"{field}.name", f"is {clipped(self.name)}, which has white space")
        for name, schema in (("parameters", self.parameters), ("returns", self.returns)):
            if schema:
                _check_schema(schema, f"{field}.{name}")
        return self


def check_tools(tools: Sequence[ToolSpec], field: str) -> None:
    """Refuse the tools of a conversation that no model should get; in linear time.

    Raises:
        InvalidField: there are too many, or too large ones, or one of them is malformed, or a name is there twice.
    """
    if len(tools) > MAX_TOOLS:
        raise InvalidField(field, f"has {len(tools):,} tools, at most {MAX_TOOLS} are accepted")
    size = sum(map(_size, tools))
    if size > MAX_TOOLS_BYTES:
        raise InvalidField(field, f"has {size:,} bytes of tools, at most {MAX_TOOLS_BYTES:,} are accepted")
    names: set[str] = set()
    for index, tool in enumerate(tools):
        tool.checked(f"{field}[{index}]")
        if tool.name in names:
            raise InvalidField(f"{field}[{index}].name", f"is {clipped(tool.name)}, which is there twice")
        names.add(tool.name)


def tool_to_json(tool: ToolSpec, *, returns: bool = False) -> dict[str, Any]:
    """A tool in the form of OpenAI's API; its keys have one order, whichever a row had.

    Args:
        tool: one that was checked.
        returns: whether what it returns is there too: chat templates may show it, servers do not know the key.
    """
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    if tool.parameters:
        function["parameters"] = json.loads(tool.parameters)
    if tool.strict is not None:
        function["strict"] = tool.strict
    if tool.returns and returns:
        function["return"] = json.loads(tool.returns)
    return {"type": "function", "function": function}


def tools_from_json(value: Any, path: str) -> tuple[ToolSpec, ...]:
    """The tools of a list, or of JSON as text, checked; none if there is nothing.

    Raises:
        InvalidField: names the key below `path`.
    """
    if isinstance(value, str):
        value = _parsed(value, path, MAX_TOOLS_BYTES, _LISTED_DEPTH) if value.strip() else None
    if value is None or value == {}:
        return ()
    if not isinstance(value, list | tuple):
        raise InvalidField(path, "is no list of tools")
    if len(value) > MAX_TOOLS:
        raise InvalidField(path, f"has {len(value):,} tools, at most {MAX_TOOLS} are accepted")
    tools = tuple(tool_from_json(each, f"{path}[{index}]") for index, each in enumerate(value))
    check_tools(tools, path)
    return tools


def tool_from_json(value: Any, path: str) -> ToolSpec:
    """A tool in one of the forms of data sets; its schemas are not checked yet, see `check_tools`.

    Raises:
        InvalidField: names the key below `path`.
    """
    if isinstance(value, str):
        value = _parsed(value, path, MAX_TOOLS_BYTES, _LISTED_DEPTH)
    if not isinstance(value, Mapping):
        raise InvalidField(path, "is no object")
    given = _present(value)
    if given.pop("type", "function") != "function":
        raise InvalidField(f"{path}.type", 'must be "function"')
    if "function" in given:
        function = given.pop("function")
        _refuse_unknown(given, (), path)
        path = f"{path}.function"
        if not isinstance(function, Mapping):
            raise InvalidField(path, "is no object")
        given = _present(function)
    given = {_OTHER_NAMES.get(key, key): item for key, item in given.items()}
    _refuse_unknown(given, _FUNCTION, path)
    strict = given.get("strict")
    if not isinstance(strict, bool | None):
        raise InvalidField(f"{path}.strict", "is neither true nor false")
    return ToolSpec(
        name=_text(given.get("name"), f"{path}.name"),
        description=_text(given.get("description", ""), f"{path}.description"),
        parameters=_schema(given.get("parameters"), f"{path}.parameters"),
        strict=strict,
        returns=_schema(given.get("return"), f"{path}.return"),
    )


def _present(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): item for key, item in value.items() if item is not None}


def _refuse_unknown(given: Mapping[str, Any], known: Sequence[str], path: str) -> None:
    if unknown := sorted(given.keys() - set(known)):
        there = f"known are {', '.join(known)}" if known else 'beside "type" and "function" there is none'
        raise InvalidField(path, f"has the key {clipped(unknown[0])}; {there}")


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise InvalidField(path, "is not given" if value is None else "is not text")
    return value


def _schema(value: Any, path: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping):
        raise InvalidField(path, "is no object")
    try:
        return json.dumps(_without_nulls(value, path, MAX_SCHEMA_DEPTH), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidField(path, f"is not JSON: {clipped(str(error))}") from error


def _without_nulls(value: Any, path: str, depth: int) -> Any:
    """A schema without keywords that are null, as tables have them where another row has the keyword."""
    if not isinstance(value, Mapping | list | tuple):
        return value
    if depth == 0:
        raise _too_deep(path)
    if isinstance(value, Mapping):
        return {
            key: _without_nulls(item, path, depth - 1)
            for key, item in value.items()
            if item is not None or key in _NULL_KEYS
        }
    return [_without_nulls(item, path, depth - 1) for item in value]


def _check_schema(text: str, path: str) -> None:
    if not isinstance(_parsed(text, path, MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH), dict):
        raise InvalidField(path, "is no JSON object")


def _parsed(text: str, path: str, most: int, depth: int) -> Any:
    if len(text) > most or len(text.encode(errors="replace")) > most:
        raise InvalidField(path, f"has more than {most:,} bytes")
    inside = 0
    for match in _BRACKETS.finditer(text):
        inside += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        if inside > depth:
            raise _too_deep(path)
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise InvalidField(path, f"is not JSON: {clipped(str(error))}") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _too_deep(path: str) -> InvalidField:
    return InvalidField(path, f"is nested more than {MAX_SCHEMA_DEPTH} deep")


def _size(tool: ToolSpec) -> int:
    texts = (tool.name, tool.description, tool.parameters, tool.returns)
    return sum(len(text) if text.isascii() else len(text.encode(errors="replace")) for text in texts)
