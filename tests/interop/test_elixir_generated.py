"""The Elixir client's generated modules against the protos: every message, field, enum value and call, both ways.

Read as text, so that neither Elixir nor Hex is needed to know that they are current.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor import (
    Descriptor,
    EnumDescriptor,
    FieldDescriptor,
    FileDescriptor,
    OneofDescriptor,
    ServiceDescriptor,
)

import crucible_bridge.v1
from tests.tables import rows

GENERATED = Path(__file__).resolve().parents[2] / "elixir_client_example" / "lib" / "crucible_bridge" / "v1"
GENERATOR = "0.15.0"
LINE = 98
"""Columns of a line, by the formatter of Elixir."""
SCALARS = {
    FieldDescriptor.TYPE_DOUBLE: ":double",
    FieldDescriptor.TYPE_FLOAT: ":float",
    FieldDescriptor.TYPE_INT64: ":int64",
    FieldDescriptor.TYPE_UINT64: ":uint64",
    FieldDescriptor.TYPE_INT32: ":int32",
    FieldDescriptor.TYPE_UINT32: ":uint32",
    FieldDescriptor.TYPE_BOOL: ":bool",
    FieldDescriptor.TYPE_STRING: ":string",
    FieldDescriptor.TYPE_BYTES: ":bytes",
}

Module = dict[str, tuple[str, frozenset[str]]]
"""Lines of a module by what they declare: "field x", "oneof y", "rpc Z" -> number or types, and options."""


def proto_files() -> dict[str, FileDescriptor]:
    """The descriptors of every proto of ours, by file name."""
    names = [each.name for each in pkgutil.iter_modules(crucible_bridge.v1.__path__) if each.name.endswith("_pb2")]
    return {
        name.removesuffix("_pb2"): importlib.import_module(f"crucible_bridge.v1.{name}").DESCRIPTOR for name in names
    }


def elixir_name(full_name: str) -> str:
    """How a message or enum is called: crucible_bridge.v1.Tensor is CrucibleBridge.V1.Tensor."""
    parts = full_name.split(".")
    return ".".join("".join(word[:1].upper() + word[1:] for word in part.split("_")) for part in parts)


def declared(path: Path) -> dict[str, Module]:
    """The modules of a generated file, with all that they declare."""
    text = re.sub(r'@moduledoc """.*?"""', "", path.read_text(), flags=re.DOTALL)
    modules = {}
    for name, body in re.findall(r"^defmodule (\S+) do\n(.*?)^end$", text, flags=re.DOTALL | re.MULTILINE):
        modules[name] = dict(lines(body))
    return modules


def lines(body: str) -> Iterator[tuple[str, tuple[str, frozenset[str]]]]:
    """What a module declares; a declaration may be spread over lines that are indented deeper."""
    for statement in re.split(r"\n(?=  \S)", "\n" + body):
        words = " ".join(statement.split())
        kind, _, rest = words.partition(" ")
        if kind in ("field", "oneof"):
            name, number, *options = re.split(r", (?![^()]*\))", rest)
            yield f"{kind} {name.removeprefix(':')}", (number, frozenset(options))
        elif kind == "rpc":
            name, *types = re.split(r", ", rest)
            yield f"rpc {name.removeprefix(':')}", (" -> ".join(types), frozenset())
        elif kind == "use":
            what, *options = re.split(r", ", rest)
            yield "use", (what, frozenset(options))


def expected(file: FileDescriptor) -> dict[str, Module]:
    """What the generator writes for a proto."""
    modules: dict[str, Module] = {}
    for enum in file.enum_types_by_name.values():
        modules[elixir_name(enum.full_name)] = expected_enum(enum)
    for message in file.message_types_by_name.values():
        modules.update(expected_messages(message))
    for service in file.services_by_name.values():
        name = elixir_name(service.full_name)
        modules[f"{name}.Service"] = expected_service(service)
        modules[f"{name}.Stub"] = {"use": ("GRPC.Stub", frozenset({f"service: {name}.Service"}))}
    return modules


def expected_enum(enum: EnumDescriptor) -> Module:
    """An enum's module."""
    values: Module = {f"field {value.name}": (str(value.number), frozenset()) for value in enum.values}
    return {"use": ("Protobuf", used("enum: true")), **values}


def expected_messages(message: Descriptor) -> Iterator[tuple[str, Module]]:
    """A message's module, and those of what is nested in it."""
    for nested in message.nested_types:
        yield from expected_messages(nested)
    for enum in message.enum_types:
        yield elixir_name(enum.full_name), expected_enum(enum)
    is_entry = message.GetOptions().map_entry
    module: Module = {"use": ("Protobuf", used("map: true") if is_entry else used())}
    for index, oneof in enumerate(message.oneofs):
        if not synthetic(oneof):
            module[f"oneof {oneof.name}"] = (str(index), frozenset())
    for field in message.fields:
        module[f"field {field.name}"] = (str(field.number), frozenset(options(field)))
    yield elixir_name(message.full_name), module


def synthetic(oneof: OneofDescriptor) -> bool:
    """Whether it only carries an optional field: then it holds that one alone, and is named after it."""
    return [f"_{field.name}" for field in oneof.fields] == [oneof.name]


def used(*options: str) -> frozenset[str]:
    """Options of every `use Protobuf`."""
    return frozenset({f'protoc_gen_elixir_version: "{GENERATOR}"', "syntax: :proto3", *options})


def options(field: FieldDescriptor) -> Iterator[str]:
    """Options of a field."""
    if field.message_type is not None:
        yield f"type: {elixir_name(field.message_type.full_name)}"
        if field.message_type.GetOptions().map_entry:
            yield "map: true"
    elif field.enum_type is not None:
        yield from (f"type: {elixir_name(field.enum_type.full_name)}", "enum: true")
    else:
        yield f"type: {SCALARS[field.type]}"
    if field.is_repeated:
        yield "repeated: true"
    if field.containing_oneof is not None:
        oneof = field.containing_oneof
        if synthetic(oneof):
            yield "proto3_optional: true"
        else:
            yield f"oneof: {list(oneof.containing_type.oneofs).index(oneof)}"
    if field.json_name != field.name:
        yield f'json_name: "{field.json_name}"'


def expected_service(service: ServiceDescriptor) -> Module:
    """A service's module."""
    version = f'protoc_gen_elixir_version: "{GENERATOR}"'
    module: Module = {"use": ("GRPC.Service", frozenset({f'name: "{service.full_name}"', version}))}
    for method in service.methods:
        request, response = elixir_name(method.input_type.full_name), elixir_name(method.output_type.full_name)
        request = f"stream({request})" if method.client_streaming else request
        response = f"stream({response})" if method.server_streaming else response
        module[f"rpc {method.name}"] = (f"{request} -> {response}", frozenset())
    return module


@rows("name", sorted(proto_files()))
def test_generated_modules_are_current(name: str) -> None:
    """Each generated file declares what its proto does, nothing less and nothing else; `make generate-elixir` else."""
    found = declared(GENERATED / f"{name}.pb.ex")
    wanted = expected(proto_files()[name])
    assert found.keys() == wanted.keys()
    for module, declarations in wanted.items():
        assert found[module] == declarations, module


@rows("name", sorted(proto_files()))
def test_generated_modules_are_laid_out_by_the_generator(name: str) -> None:
    """A declaration stands on one line if it fits there, else on several, as the generator's formatter writes it."""
    assert laid_out_otherwise((GENERATED / f"{name}.pb.ex").read_text()) == []


def laid_out_otherwise(text: str) -> list[str]:
    """Declarations that are on one line and too long for it, or on several and short enough for one."""
    text = re.sub(r'@moduledoc """.*?"""', "", text, flags=re.DOTALL)
    statements = re.findall(r"^  \S.*(?:\n    .*)*", text, flags=re.MULTILINE)
    on_one_line = {statement: "  " + " ".join(statement.split()) for statement in statements}
    return [each for each, line in on_one_line.items() if ("\n" in each) != (len(line) > LINE)]


def test_another_layout_is_found() -> None:
    """The check of the layout sees a long line that is not divided, and a short one that is."""
    short = "  field :kind, 1, type: :string"
    long = f"  field :{'k' * LINE}, 1, type: :string"
    divided = "  field :kind, 1,\n    type: :string"
    assert laid_out_otherwise("\n".join((short, long, divided))) == [long, divided]


def test_every_proto_is_generated() -> None:
    """There is one generated file for each proto, and none whose proto is gone."""
    assert {path.name.removesuffix(".pb.ex") for path in GENERATED.glob("*.ex")} == set(proto_files())


def test_a_difference_is_found(tmp_path: Path) -> None:
    """The comparison sees another number, type, label, oneof and call."""
    path = GENERATED / "evaluation.pb.ex"
    wanted = declared(path)
    for before, after in (
        ("field :kind, 1, type: :string", "field :kind, 2, type: :string"),
        ("field :kind, 1, type: :string", "field :kind, 1, type: :bytes"),
        ("repeated: true, ", ""),
        ("oneof :source, 0", "oneof :origin, 0"),
        ("rpc :Evaluate, ", "rpc :Evaluated, "),
        ("stream(CrucibleBridge.V1.EventBatch)", "CrucibleBridge.V1.EventBatch"),
        ("EVALUATION_STATE_QUEUED, 1", "EVALUATION_STATE_QUEUED, 7"),
        ("proto3_optional: true, ", ""),
    ):
        text = path.read_text()
        assert before in text, before
        changed = tmp_path / "evaluation.pb.ex"
        changed.write_text(text.replace(before, after, 1))
        assert declared(changed) != wanted, before
