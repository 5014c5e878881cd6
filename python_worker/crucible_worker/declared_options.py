'''Options that are declared once, as annotated fields of a class or keyword-only parameters of a function.

    class Brevity:
        max_words: Annotated[int, Meta(ge=1)] = 3
        """Words that a short answer has at most."""

is the option `max_words`, in JSON schema:

    {"type": "integer", "minimum": 1, "default": 3, "description": "Words that a short answer has at most."}

Types are bool, int, float, str, Literal of texts, enumerations of texts, lists and mappings of these, and each of them
or None. Bounds are those of `msgspec.Meta`. Any other type brings its schema as `extra_json_schema`. A field without a
default has to be given; a field with the default `msgspec.UNSET` may be left out.
'''

from __future__ import annotations

import ast
import collections.abc
import dataclasses
import enum
import functools
import inspect
import itertools
import linecache
import re
import sys
import textwrap
import threading
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Meta, UnsetType

__all__ = [
    "Flat",
    "Handed",
    "Internal",
    "Option",
    "Undeclarable",
    "docs_of",
    "first_line",
    "handed_names",
    "options_of",
    "schema_of",
    "values_of",
]

_T = TypeVar("_T")
_HANDED, _INTERNAL = object(), object()

Handed: TypeAlias = Annotated[_T, _HANDED]
"""A field that is no option: the worker hands it over, by its name."""
Internal: TypeAlias = Annotated[_T, _INTERNAL]
"""A field that is no option: code alone sets it."""

_PLAIN: Mapping[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
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
_LENGTHS = {"string": "Length", "array": "Items", "object": "Properties"}


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
class Option:
    """One option."""

    name: str
    """Its name in requests."""
    rule: Mapping[str, Any]
    """Its JSON schema."""
    required: bool
    """Whether it has to be given."""
    convert: Callable[[Any], Any]
    """Converts the JSON value of a request to the field's value."""


def schema_of(declared: Any, rules: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """The JSON schema of the options that a class or function declares; it allows no other options.

    Args:
        declared: a dataclass, or a function with keyword-only parameters.
        rules: further entries of the schema, by option.

    Raises:
        Undeclarable: a field or parameter cannot be an option.
    """
    options = _ruled(options_of(declared), rules or {})
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {option.name: dict(option.rule) for option in options},
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
        if field.flat is not None:
            given = {each.name: each.convert(options[each.name]) for each in field.options if each.name in options}
            found[field.name] = field.flat(**given)
        elif field.name in options:
            found |= {each.name: each.convert(options[each.name]) for each in field.options}
    return found


def options_of(declared: Any) -> tuple[Option, ...]:
    """The options that a class or function declares, in their order; raises as `schema_of` does."""
    return tuple(option for field in _fields_of(declared) for option in field.options)


@functools.cache
def handed_names(declared: Any) -> tuple[str, ...]:
    """The fields that the worker hands over."""
    return tuple(name for name, hint, _ in _declared(declared) if _HANDED in _parts(hint)[1])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """A field or parameter, and its options: itself, those within it, or none."""

    name: str
    flat: type[Any] | None
    options: tuple[Option, ...]


@functools.cache
def _fields_of(declared: Any) -> tuple[_Field, ...]:
    docs = docs_of(declared)
    fields: list[_Field] = []
    for name, hint, default in _declared(declared):
        kind, metadata = _parts(hint)
        flat = next((each for each in metadata if isinstance(each, Flat)), None)
        if flat is not None:
            within = {option.name: option for option in _ruled(options_of(kind), flat.rules)}
            options = tuple(within[each] for each in flat.only or within)
            fields.append(_Field(name=name, flat=kind, options=options))
        elif _HANDED not in metadata and _INTERNAL not in metadata:
            fields.append(_Field(name=name, flat=None, options=(_option(name, hint, default, docs.get(name, "")),)))
    return tuple(fields)


def _ruled(options: Sequence[Option], rules: Mapping[str, Mapping[str, Any]]) -> Sequence[Option]:
    return [dataclasses.replace(option, rule={**option.rule, **rules.get(option.name, {})}) for option in options]


def first_line(declared: Any) -> str:
    """The first paragraph of a docstring."""
    return " ".join((inspect.getdoc(declared) or "").partition("\n\n")[0].split())


@functools.cache
def docs_of(declared: Any) -> Mapping[str, str]:
    """The description of each field or parameter in the source: the docstring under it, or its line under "Args:"."""
    if not isinstance(declared, type):
        return _argument_docs(inspect.getdoc(declared) or "")
    docs: dict[str, str] = {}
    for each in reversed(declared.__mro__):
        docs |= _field_docs(each)
    return docs


def _declared(declared: Any) -> Sequence[tuple[str, Any, Any]]:
    """Name, type and default of each field or parameter."""
    hints = _hints(declared)
    if isinstance(declared, type):
        fields = {field.name: field for field in dataclasses.fields(declared) if field.init}
        return [(name, hints[name], _default(fields[name])) for name in _in_order(declared) if name in fields]
    return [
        (each.name, hints.get(each.name, Any), dataclasses.MISSING if each.default is each.empty else each.default)
        for each in inspect.signature(declared).parameters.values()
        if each.kind is each.KEYWORD_ONLY
    ]


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _in_order(declared: type) -> Sequence[str]:
    """The names of fields, in the order of the class that declares each of them last."""
    names: dict[str, None] = {}
    for each in reversed(declared.__mro__):
        for name in vars(each).get("__annotations__", {}):
            names.pop(name, None)
            names[name] = None
    return list(names)


def _hints(declared: Any) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(declared, include_extras=True)
    except NameError as error:
        raise Undeclarable(f"has an annotation that cannot be read: {error}") from error


def _option(name: str, hint: Any, default: Any, doc: str) -> Option:
    kind, metadata = _parts(hint)
    metas = [each for each in metadata if isinstance(each, Meta)]
    extra = {key: value for meta in metas for key, value in (meta.extra_json_schema or {}).items()}
    described = None if kind is Any else _rule(kind)
    if described is None and "type" not in extra:
        raise Undeclarable(
            f"has the option {name!r} of the type {getattr(kind, '__name__', kind)}, which no JSON value has"
        )
    rule, convert = described or ({}, lambda value: value)
    for meta in metas:
        rule |= _bounds(meta, str(_first(rule.get("type", ""))))
    rule |= extra
    given = default is not dataclasses.MISSING and default is not UNSET
    if given and "default" not in extra:
        rule["default"] = _as_json(default)
    if doc:
        rule["description"] = doc
    return Option(
        name=name, rule=rule, required=default is dataclasses.MISSING and "default" not in extra, convert=convert
    )


def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type, and its annotations."""
    if typing.get_origin(hint) is not Annotated:
        return hint, ()
    kind, *metadata = typing.get_args(hint)
    return kind, tuple(metadata)


def _rule(kind: Any) -> tuple[dict[str, Any], Callable[[Any], Any]] | None:
    """The JSON schema of a type, and the conversion of JSON values to it; None if it has no schema."""
    kind, metadata = _parts(kind)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return {}, _same
    if kind in _PLAIN:
        # A number that came through google.protobuf.Struct is a double.
        return {"type": _PLAIN[kind]}, int if kind is int else _same
    if origin is Literal and all(isinstance(value, str) for value in arguments):
        return {"type": "string", "enum": list(arguments)}, _same
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"type": "string", "enum": [member.value for member in kind]}, kind
    if origin in (typing.Union, types.UnionType):
        return _optional(arguments)
    if origin in (list, tuple, Sequence, collections.abc.Sequence):
        return _many(arguments, metadata)
    if kind is dict or origin in (dict, collections.abc.Mapping):
        inner = _rule(arguments[1]) if arguments and arguments[1] is not Any else None
        return {"type": "object", **({} if inner is None else {"additionalProperties": inner[0]})}, _same
    return None


def _optional(arguments: Sequence[Any]) -> tuple[dict[str, Any], Callable[[Any], Any]] | None:
    """A type or None, or a type that may be left out."""
    kinds = [each for each in arguments if each not in (type(None), UnsetType)]
    inner = _rule(kinds[0]) if len(kinds) == 1 else None
    if inner is None:
        return None
    rule, convert = inner
    if type(None) in arguments:
        rule["type"] = [rule["type"], "null"]
    return rule, lambda value: None if value is None else convert(value)


def _many(arguments: Sequence[Any], metadata: Sequence[Any]) -> tuple[dict[str, Any], Callable[[Any], Any]] | None:
    inner = _rule(arguments[0]) if arguments else None
    if inner is None:
        return None
    rule, convert = inner
    for meta in _parts(arguments[0])[1]:
        rule |= _bounds(meta, rule["type"]) | dict(meta.extra_json_schema or {})
    return {"type": "array", "items": rule}, lambda values: tuple(map(convert, values))


def _bounds(meta: Meta, kind: str) -> dict[str, Any]:
    found = {word: getattr(meta, name) for name, word in _BOUNDS.items() if getattr(meta, name) is not None}
    for end in ("min", "max"):
        if (length := getattr(meta, f"{end}_length")) is not None:
            found[f"{end}{_LENGTHS[kind]}"] = length
    return found


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) else value


_parsing = threading.Lock()
"""In Python 3.11, `ast.parse` of several threads at once raises SystemError now and then."""


def _same(value: Any) -> Any:
    return value


def _as_json(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _as_json(each) for key, each in value.items()}
    return [_as_json(each) for each in value] if isinstance(value, list | tuple) else value


def _field_docs(declared: type) -> Mapping[str, str]:
    """Docstrings under the fields of a class, by field; none if there is no source."""
    tree = _class_in(_source_of(declared.__module__), declared.__name__)
    if tree is None:
        return {}
    return {
        field.target.id: " ".join(doc.value.value.split())
        for field, doc in itertools.pairwise(tree.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(doc, ast.Expr)
        and isinstance(doc.value, ast.Constant)
        and isinstance(doc.value.value, str)
    }


def _source_of(module: str) -> str:
    # Not inspect.getsource, which searches every loaded module: 5 ms for each class.
    found = sys.modules.get(module)
    file = getattr(found, "__file__", None)
    return "" if file is None else "".join(linecache.getlines(file, vars(found)))


def _class_in(source: str, name: str) -> ast.ClassDef | None:
    """A class of a module, parsed alone: parsing all of a long module takes ten times as long."""
    begun = re.search(rf"^([ \t]*)class {name}\b.*?(?=^\1[^\s)\]}}]|\Z)", source, re.MULTILINE | re.DOTALL)
    if begun is None:
        return None
    with _parsing:
        try:
            trees = ast.parse(textwrap.dedent(begun[0])).body
        except SyntaxError:  # a string of several lines in the module has a line that looks like the class
            trees = list(ast.walk(ast.parse(source)))
    return next((tree for tree in trees if isinstance(tree, ast.ClassDef) and tree.name == name), None)


def _argument_docs(doc: str) -> Mapping[str, str]:
    """Parameters by name, as a docstring of Google's style has them."""
    section = re.search(r"^Args:\n((?:[ \t]+.*\n?|\n)*)", doc, re.MULTILINE)
    if section is None:
        return {}
    found = re.findall(r"^(\w+)(?: \([^)]*\))?: (.*(?:\n[ \t]+.*)*)", textwrap.dedent(section[1]), re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}
