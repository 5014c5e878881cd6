"""Calls whose client methods add nothing to the proto: `client/plain_calls.py`.

A call is plain if neither side streams and no module of the client that is written by hand names it. Its parameters are
the fields of its request: those that are required come first and may be given by position, as may all where there are
at most two. A response of one field gives that field.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from generator import conversions
from generator.python_types import ENUMS, HAND, SPECIAL, TYPES, UNIONS, Type
from generator.schema import PACKAGE, Field, Message, Method, Schema, Service
from generator.sources import BRIDGE, CLIENT, HEADER, documented
from generator.types import annotation_of, by_message, default_of, joined_enums, summary

__all__ = ["make"]

WIDTH = 108
GENERATED = ("blocking_calls.py", "plain_calls.py", "request_fields.py")
# As many fields may be given by position where none is required.
POSITIONAL = 2


def make(schema: Schema, into: Path) -> dict[str, str]:
    """The module's text."""
    types = by_message(schema)
    classes = [_class(service, schema, types) for service in schema.services.values()]
    body = "\n\n".join(classes)
    names = _names(schema, types)
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    imports = "\n".join(sorted({names[name] for name in used & names.keys()}))
    exported = sorted(f"Plain{_stem(service)}Calls" for service in schema.services.values())
    text = f'''{HEADER}
"""Calls of which there is no more to do than the protos tell."""

# A timeout travels to the worker as gRPC's deadline.
# ruff: noqa: ASYNC109

from __future__ import annotations

{imports}

__all__ = {exported}


{body}'''
    return {"plain_calls.py": text}


def _is_plain(method: Method) -> bool:
    """Whether neither side streams, and no module that is written by hand names the call."""
    return not (method.client_streaming or method.server_streaming or method.name in _named_by_hand())


@functools.cache
def _named_by_hand() -> frozenset[str]:
    """Attributes and texts of the client's modules that are written by hand: what they call is among them."""
    trees = [
        ast.parse(path.read_text())
        for path in BRIDGE.joinpath(*CLIENT.split(".")).glob("*.py")
        if path.name not in GENERATED
    ]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return frozenset(attributes | texts)


def _names(schema: Schema, types: dict[str, Type]) -> dict[str, str]:
    """By each name that the module may use, the statement that imports it."""
    homes = {
        "typing": ["Any"],
        "collections.abc": ["Mapping", "Sequence"],
        f"{CLIENT}.calls": ["Calls"],
        "crucible_bridge.codec": ["generated"],
        "crucible_bridge.codec.fields": [*conversions.FIELDS],
        "crucible_bridge.codec.enums": [conversions.pair_name(name) for name in ENUMS],
        "crucible_bridge.codec.generated": [
            *(conversions.pair_name(enum.name) for enum in joined_enums(schema)),
            *(f"{conversions.snake(name)}_{way}_v1" for name in UNIONS for way in ("to", "from")),
        ],
        "crucible_bridge.types": [*HAND, *ENUMS, *(union.name for union in UNIONS.values())],
        "crucible_bridge.types.generated": [
            *(type_.python for type_ in types.values()),
            *(enum.name for enum in joined_enums(schema)),
        ],
        "crucible_bridge.v1": [f"{file.stem}_pb2" for file in schema.files],
    }
    for hand in HAND.values():
        module = homes.setdefault(f"crucible_bridge.codec.{hand.codec}", [])
        module += [f"{hand.stem}_{way}_v1" for way in ("to", "from")]
    for codec, functions in SPECIAL.items():
        homes.setdefault(f"crucible_bridge.codec.{codec}", []).extend(functions)
    found = {name: f"from {module} import {name}" for module, names in homes.items() for name in names}
    return {**found, "np": "import numpy as np"}


def _class(service: Service, schema: Schema, types: dict[str, Type]) -> str:
    methods = [_method(service, method, schema, types) for method in service.methods if _is_plain(method)]
    return f'''class Plain{_stem(service)}Calls:
    """Those of {service.name}."""

    _calls: Calls

{chr(10).join(methods)}'''


def _method(service: Service, method: Method, schema: Schema, types: dict[str, Type]) -> str:
    request, response = schema.messages[method.request], schema.messages[method.response]
    given = Type(
        request.name, needed=" ".join(field.name for field in request.fields if field.bounds.required), asked=True
    )
    fields = sorted(request.fields, key=lambda field: not field.bounds.required)
    positional = fields if len(fields) <= POSITIONAL else [field for field in fields if field.bounds.required]
    named = [field for field in fields if field not in positional]
    parameters = [_parameter(given, field, types) for field in positional]
    parameters += ["*", *(_parameter(given, field, types) for field in named), "timeout: float | None = None"]
    returns, decode = _answer(response, types)
    wire = f"{request.file}_pb2.{request.name}"
    made = "".join(f"{field.name}={_sent(given, field, types)}, " for field in request.fields)
    message = f'made({wire}, "", {made})' if made else f"{wire}()"
    path = f"/{PACKAGE}.{service.name}/{method.name}"
    return f'''    async def {conversions.snake(method.name)}(self, {", ".join(parameters)}) -> {returns}:
{documented(_said(method, positional + named), " " * 8)}        message = {message}
        call = self._calls.method("{path}", {wire}, {response.file}_pb2.{response.name})
        return await self._calls.unary(call, message, {decode}, timeout)
'''


def _parameter(given: Type, field: Field, types: dict[str, Type]) -> str:
    kind, default = annotation_of(given, field, types), default_of(given, field)
    if field.repeated:
        kind = kind.replace("tuple[", "Sequence[").replace(", ...]", "]")
    if field.kind == "map" and default:
        kind, default = f"{kind} | None", "None"
    return f"{field.name}: {kind}{f' = {default}' if default else ''}"


def _sent(given: Type, field: Field, types: dict[str, Type]) -> str:
    """The expression of what the message's field is given: that of a conversion, whose value is the parameters."""
    if field.kind == "enum":
        pair = conversions.pair_name(field.type_name)
        return f'{pair}.{"all_sent" if field.repeated else "sent"}({field.name}, "{field.name}")'
    text = _of_module(conversions.encoded_of(given, field, types), types)
    return re.sub(r'child\(field, ("\w+")\)', r"\1", re.sub(r"\bvalue\.", "", text))


def _answer(response: Message, types: dict[str, Type]) -> tuple[str, str]:
    """What a call returns, and the function that makes it of the reply."""
    if response.name in types and (response.name in {type_.message for type_ in TYPES} or len(response.fields) != 1):
        python = types[response.name].python
        return python, f"generated.{conversions.snake(python)}_from_v1"
    if len(response.fields) != 1:
        raise SystemExit(f"{response.name} is converted by hand: write the client method of its call by hand as well")
    (field,) = response.fields
    shown = Type(response.name, needed=field.name)
    text = conversions.decoded_of(shown, response, field, types)
    text = re.sub(r'child\(field, ("\w+")\)', r"\1", re.sub(r"\bmessage\.", "reply.", text))
    return annotation_of(shown, field, types), f"lambda reply: {_of_module(text, types)}"


def _of_module(text: str, types: dict[str, Type]) -> str:
    """An expression with the module of generated conversions before each of them."""
    return re.sub(r"\b(?=(?:" + "|".join(_generated(types)) + r")\b)", "generated.", text)


def _generated(types: dict[str, Type]) -> Iterator[str]:
    for type_ in types.values():
        if type_.convert:
            yield from (f"{conversions.snake(type_.python)}_{way}_v1" for way in ("from", "to"))


def _said(method: Method, fields: list[Field]) -> str:
    """The documentation: what the proto says of the call, of its request's fields and of its errors."""
    text, _, errors = method.comment.partition("Errors:")
    head, *rest = re.split(r"(?<=\.) ", " ".join(text.split()), maxsplit=1)
    lines = [head, *(["", *summary(rest[0], WIDTH)] if rest else []), "", "Args:"]
    for field in fields:
        wrapped = summary(_lower(field.comment), WIDTH - 8 - len(field.name), none=field.optional)
        lines += [f"    {field.name}: {wrapped[0]}", *(f"        {line}" for line in wrapped[1:])]
    lines += ["    timeout: seconds for the call."]
    refused = summary(f"BridgeError: {' '.join(errors.split()) or 'the call failed.'}", WIDTH - 8)
    lines += ["", "Raises:", f"    {refused[0]}", *(f"        {line}" for line in refused[1:])]
    return "\n".join(lines)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def _stem(service: Service) -> str:
    return service.name.removesuffix("Service")
