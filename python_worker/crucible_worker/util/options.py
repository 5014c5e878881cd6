'''Options: declared once, as annotated fields of a class or keyword-only parameters of a function, and checked.

    class Brevity:
        max_words: Annotated[int, Meta(ge=1)] = 3
        """Words that a short answer has at most."""

is the option `max_words`, in JSON schema:

    {"type": "integer", "minimum": 1, "default": 3, "description": "Words that a short answer has at most."}

Types are bool, int, float, str, Literal of texts, enumerations of texts, lists and mappings of these, and each of them
or None. Bounds are those of `msgspec.Meta`. Any other type brings its schema as `extra_json_schema`. A field without a
default has to be given; a field with the default `msgspec.UNSET` may be left out.

The schema is the contract: values of requests are checked against it, and so are those of users' evaluators, graders
and environments that bring a schema of their own.
'''

from __future__ import annotations

import ast
import collections.abc
import dataclasses
import difflib
import enum
import functools
import inspect
import itertools
import json
import linecache
import math
import re
import sys
import textwrap
import threading
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Meta, UnsetType

from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

__all__ = [
    "Flat",
    "Handed",
    "Undeclarable",
    "checked_options",
    "first_line",
    "handed_names",
    "load_checker",
    "may_be_refused",
    "schema_of",
    "values_of",
]

# What a class or a function declares.

_T = TypeVar("_T")
_HANDED = object()

Handed: TypeAlias = Annotated[_T, _HANDED]
"""A field that is no option: code hands it over, that of an evaluator by its name."""


class Undeclarable(TypeError):
    """A field or parameter cannot be an option; the message names it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Flat:
    """Marks a field that is a dataclass: its fields become options themselves, `Annotated[Normalization, Flat()]`."""

    only: tuple[str, ...] = ()
    """The fields that become options, in this order; all if empty."""
    rules: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict, hash=False)
    """Further entries of their schema, by field."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    name: str
    """Its name in requests."""
    rule: Mapping[str, Any]
    """Its JSON schema."""
    required: bool
    """Whether it has to be given."""
    convert: Callable[[Any], Any]
    """Converts the JSON value of a request to the field's value."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """A field or parameter, and its options: itself, those within it, or none."""

    name: str
    flat: type[Any] | None
    options: tuple[_Option, ...]


def schema_of(declared: Any, rules: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """The JSON schema of the options that a class or function declares; it allows no other options.

    Args:
        declared: a dataclass, or a function with keyword-only parameters.
        rules: further entries of the schema, by option.

    Raises:
        Undeclarable: a field or parameter cannot be an option.
    """
    options = [option for field in _fields_of(declared) for option in field.options]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {option.name: {**option.rule, **(rules or {}).get(option.name, {})} for option in options},
        # Before the check for missing options: the name of a missing one may be misspelt.
        "additionalProperties": False,
    }
    if required := [option.name for option in options if option.required]:
        schema["required"] = required
    return schema


def values_of(declared: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments for the class or function, from options that passed its schema."""
    found: dict[str, Any] = {}
    for field in _fields_of(declared):
        given = {each.name: each.convert(options[each.name]) for each in field.options if each.name in options}
        found |= given if field.flat is None else {field.name: field.flat(**given)}
    return found


@functools.cache
def handed_names(declared: Any) -> tuple[str, ...]:
    """The fields that code hands over."""
    return tuple(name for name, hint, _ in _declared(declared) if _HANDED in _parts(hint)[1])


def first_line(declared: Any) -> str:
    """The first paragraph of a docstring."""
    return " ".join((inspect.getdoc(declared) or "").partition("\n\n")[0].split())


@functools.cache
def _fields_of(declared: Any) -> tuple[_Field, ...]:
    docs = _docs_of(declared)
    fields: list[_Field] = []
    for name, hint, default in _declared(declared):
        kind, metadata = _parts(hint)
        flat = next((each for each in metadata if isinstance(each, Flat)), None)
        if flat is not None:
            within = {option.name: option for field in _fields_of(kind) for option in field.options}
            options = tuple(
                dataclasses.replace(within[each], rule={**within[each].rule, **flat.rules.get(each, {})})
                for each in flat.only or within
            )
            fields.append(_Field(name=name, flat=kind, options=options))
        elif _HANDED not in metadata:
            fields.append(_Field(name=name, flat=None, options=(_option(name, hint, default, docs.get(name, "")),)))
    return tuple(fields)


def _declared(declared: Any) -> Sequence[tuple[str, Any, Any]]:
    """Name, type and default of each parameter or field, in the order of the class that declares it last."""
    try:
        hints = typing.get_type_hints(declared, include_extras=True)
    except NameError as error:
        raise Undeclarable(f"has an annotation that cannot be read: {error}") from error
    if isinstance(declared, type):
        fields = {field.name: field for field in dataclasses.fields(declared) if field.init}
        names = dict.fromkeys(name for each in declared.__mro__ for name in reversed(_annotations(each)))
        return [(name, hints[name], _default(fields[name])) for name in reversed(names) if name in fields]
    return [
        (each.name, hints.get(each.name, Any), dataclasses.MISSING if each.default is each.empty else each.default)
        for each in inspect.signature(declared).parameters.values()
        if each.kind is each.KEYWORD_ONLY
    ]


def _annotations(declared: type) -> dict[str, Any]:
    return vars(declared).get("__annotations__", {})


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type, and its annotations."""
    if typing.get_origin(hint) is not Annotated:
        return hint, ()
    kind, *metadata = typing.get_args(hint)
    return kind, tuple(metadata)


# The JSON schema of a type. `msgspec.json.schema` sorts the values of enumerations, and refuses bounds of a type or
# None; `msgspec.convert` takes 3.0 for an int only where it takes "3" as well.

_PLAIN: Mapping[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
_LENGTHS = {"array": "Items", "object": "Properties"}
_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
    "examples": "examples",
    "description": "description",
}


def _option(name: str, hint: Any, default: Any, doc: str) -> _Option:
    try:
        rule, convert = _rule(hint)
        if "type" not in rule:
            raise _undeclarable(hint)
    except Undeclarable as error:
        raise Undeclarable(f"has the option {name!r} {error}") from error
    required = default is dataclasses.MISSING and "default" not in rule
    if default is not dataclasses.MISSING and default is not UNSET:
        rule.setdefault("default", _as_json(default))
    if doc:
        rule["description"] = doc
    return _Option(name=name, rule=rule, required=required, convert=convert)


def _rule(hint: Any) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """The JSON schema of a type, and the conversion of JSON values to it."""
    kind, metadata = _parts(hint)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _optional(kind, metadata)
    rule, convert = dict[str, Any](), _same
    if kind in _PLAIN:
        # A number that came through google.protobuf.Struct is a double.
        rule, convert = {"type": _PLAIN[kind]}, int if kind is int else _same
    elif origin is Literal and all(isinstance(value, str) for value in arguments):
        rule = {"type": "string", "enum": list(arguments)}
    elif isinstance(kind, type) and issubclass(kind, enum.Enum):
        rule, convert = {"type": "string", "enum": [member.value for member in kind]}, kind
    elif origin in (list, tuple, collections.abc.Sequence) and arguments:
        inner, item = _rule(arguments[0])
        rule, convert = {"type": "array", "items": inner}, lambda values: tuple(map(item, values))
    elif kind is dict or origin in (dict, collections.abc.Mapping):
        rule = {"type": "object"}
        if arguments and arguments[1] is not Any:
            inner, item = _rule(arguments[1])
            rule, convert = rule | {"additionalProperties": inner}, functools.partial(_each_value, item)
    metas = [each for each in metadata if isinstance(each, Meta)]
    extra = {key: value for meta in metas for key, value in (meta.extra_json_schema or {}).items()}
    if not rule and kind is not Any and "type" not in extra:
        raise _undeclarable(kind)
    lengths = _LENGTHS.get(str((rule | extra).get("type")), "Length")
    words = {**_BOUNDS, "min_length": f"min{lengths}", "max_length": f"max{lengths}"}
    for meta in metas:
        rule |= {word: getattr(meta, name) for name, word in words.items() if getattr(meta, name) is not None}
    return rule | extra, convert


def _optional(kind: Any, metadata: tuple[Any, ...]) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """A type or None, or a type that may be left out."""
    kinds = [each for each in typing.get_args(kind) if each not in (types.NoneType, UnsetType)]
    if len(kinds) != 1:
        raise _undeclarable(kind)
    rule, convert = _rule(Annotated[(kinds[0], *metadata)] if metadata else kinds[0])
    if types.NoneType not in typing.get_args(kind):
        return rule, convert
    if "enum" in rule:
        rule["enum"].append(None)
    return rule | {"type": [rule.get("type"), "null"]}, lambda value: None if value is None else convert(value)


def _undeclarable(kind: Any) -> Undeclarable:
    return Undeclarable(f"of the type {getattr(kind, '__name__', kind)}, which no JSON value has")


def _same(value: Any) -> Any:
    return value


def _each_value(convert: Callable[[Any], Any], values: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return values and {key: convert(value) for key, value in values.items()}


def _as_json(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _as_json(each) for key, each in value.items()}
    return [_as_json(each) for each in value] if isinstance(value, list | tuple) else value


# What the source says of each field or parameter: the docstring under it, or its line under "Args:".

_parsing = threading.Lock()
"""In Python 3.11, `ast.parse` of several threads at once raises SystemError now and then."""


def _docs_of(declared: Any) -> Mapping[str, str]:
    if not isinstance(declared, type):
        return _argument_docs(inspect.getdoc(declared) or "")
    docs: dict[str, str] = {}
    for each in reversed(declared.__mro__):
        if _annotations(each):
            docs |= _docs_in(sys.modules.get(each.__module__)).get(each.__name__, {})
    return docs


@functools.cache
def _docs_in(module: types.ModuleType | None) -> Mapping[str, Mapping[str, str]]:
    """By class of a module, the docstrings under its fields; nothing if there is no source."""
    file = getattr(module, "__file__", None)
    lines = [] if file is None else linecache.getlines(file, vars(module))
    with _parsing:
        tree = ast.parse("".join(lines))
    docs: dict[str, dict[str, str]] = {}
    for declared in _classes(tree):
        fields = docs.setdefault(declared.name, {})
        for pair in itertools.pairwise(declared.body):
            match pair:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    fields.setdefault(name, " ".join(text.split()))
                case _:
                    pass
    return docs


def _classes(tree: Any) -> Iterator[ast.ClassDef]:
    """Also those within functions and other classes; `ast.walk` would visit every expression, for 0.1 s."""
    for each in getattr(tree, "body", ()):
        if isinstance(each, ast.ClassDef):
            yield each
        yield from _classes(each)


def _argument_docs(doc: str) -> Mapping[str, str]:
    """Parameters by name, as a docstring of Google's style has them."""
    section = re.search(r"^Args:\n((?:[ \t]+.*\n?|\n)*)", doc, re.MULTILINE)
    if section is None:
        return {}
    found = re.findall(r"^(\w+)(?: \([^)]*\))?: (.*(?:\n[ \t]+.*)*)", textwrap.dedent(section[1]), re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


# The check of values.

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
            accepted = ", ".join("null" if each is None else str(each) for each in rule)
            return InvalidField(path, f"is {_shown(value)}, not one of: {accepted}")
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
