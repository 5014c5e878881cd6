"""The protos as generators read them: services, messages and enums with their comments and options."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = [
    "PACKAGE",
    "PACKAGE_PATH",
    "PROTOS",
    "Enum",
    "Field",
    "File",
    "Message",
    "Method",
    "Schema",
    "Service",
    "load",
]

PROTOS = Path(__file__).resolve().parents[1]
PACKAGE = "crucible_bridge.v1"
PACKAGE_PATH = Path("crucible_bridge/v1")
OPTIONS = "crucible_bridge/options/v1/options.proto"
BOUNDS = "crucible_bridge.options.v1.bounds"

_F = descriptor_pb2.FieldDescriptorProto
_M = descriptor_pb2.MethodOptions
# Numbers of the fields by which descriptor.proto locates a comment.
_MESSAGES, _ENUMS, _SERVICES = 4, 5, 6
_FIELDS = _VALUES = _METHODS = 2
_ONEOFS = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnumValue:
    """One value of an enum."""

    name: str
    number: int
    comment: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Enum:
    """An enum."""

    name: str
    comment: str
    values: tuple[EnumValue, ...]
    file: str
    """Stem of its file: "types"."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """A field of a message."""

    name: str
    number: int
    kind: str
    """The proto's word for its type: "int32", "string", "message", "enum", ...; of a map "map"."""
    type_name: str = ""
    """Of a message or enum: its name, without the package where that is ours."""
    repeated: bool = False
    """Whether there are several; not of a map."""
    optional: bool = False
    """Whether absence differs from the default: `optional`, or a message that is not repeated."""
    oneof: str = ""
    """The group of which one is given."""
    key: str = ""
    """Of a map: its keys' type."""
    value: Field | None = None
    """Of a map: its values."""
    comment: str
    bounds: Any = None
    """`crucible_bridge.options.v1.Bounds`, an empty one where the proto gives none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Message:
    """A message."""

    name: str
    comment: str
    fields: tuple[Field, ...]
    oneofs: Mapping[str, str]
    """Comments by name."""
    file: str
    """Stem of its file: "types"."""

    def field(self, name: str) -> Field:
        """The field of that name."""
        return next(field for field in self.fields if field.name == name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """A call of a service."""

    name: str
    comment: str
    request: str
    response: str
    client_streaming: bool
    server_streaming: bool
    idempotency: str
    """"NO_SIDE_EFFECTS", "IDEMPOTENT" or "IDEMPOTENCY_UNKNOWN"."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Service:
    """A service."""

    name: str
    comment: str
    methods: tuple[Method, ...]
    file: str
    """Stem of its file: "worker"."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """One proto of the package."""

    name: str
    """Path below `protos/`."""
    comment: str
    """What stands before its package line."""
    messages: tuple[Message, ...]
    enums: tuple[Enum, ...]
    services: tuple[Service, ...]

    @property
    def stem(self) -> str:
        """Its name without folder and suffix: "worker"."""
        return Path(self.name).stem


@dataclasses.dataclass(frozen=True)
class Schema:
    """All protos of the package."""

    files: tuple[File, ...]
    """By name."""
    descriptors: descriptor_pb2.FileDescriptorSet
    """As protoc compiled them, imports included."""

    @functools.cached_property
    def messages(self) -> dict[str, Message]:
        """By name."""
        return {message.name: message for file in self.files for message in file.messages}

    @functools.cached_property
    def enums(self) -> dict[str, Enum]:
        """By name."""
        return {enum.name: enum for file in self.files for enum in file.enums}

    @functools.cached_property
    def services(self) -> dict[str, Service]:
        """By name."""
        return {service.name: service for file in self.files for service in file.services}

    def asked(self) -> list[str]:
        """Names of the messages that requests are made of, in order of the alphabet."""
        found: set[str] = set()
        waiting = [method.request for service in self.services.values() for method in service.methods]
        while waiting:
            name = waiting.pop()
            if name in self.messages and name not in found:
                found.add(name)
                waiting += [(field.value or field).type_name for field in self.messages[name].fields]
        return sorted(found)

    def without_options(self) -> descriptor_pb2.FileDescriptorSet:
        """The descriptors as if `options.proto` were not imported."""
        plain = descriptor_pb2.FileDescriptorSet()
        for file in self.descriptors.file:
            if file.name in (OPTIONS, "google/protobuf/descriptor.proto"):
                continue
            copy = plain.file.add()
            copy.CopyFrom(file)
            if OPTIONS in copy.dependency:
                copy.dependency.remove(OPTIONS)
            for message in copy.message_type:
                _clear(message)
        return plain


def _clear(message: descriptor_pb2.DescriptorProto) -> None:
    """Drop options that descriptor.proto does not have, and names that follow from others."""
    for field in message.field:
        field.options.DiscardUnknownFields()
        if not field.options.ListFields():
            field.ClearField("options")
        field.ClearField("json_name")
    for nested in message.nested_type:
        _clear(nested)


def protoc(*arguments: str) -> None:
    """Run grpcio-tools' protoc among the protos."""
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], check=True, cwd=PROTOS)


def load() -> Schema:
    """Compile the protos of the package."""
    names = sorted(str(path.relative_to(PROTOS)) for path in (PROTOS / PACKAGE_PATH).glob("*.proto"))
    with tempfile.TemporaryDirectory() as directory:
        compiled = Path(directory) / "all.binpb"
        protoc(
            f"--proto_path={PROTOS}",
            f"--proto_path={_includes()}",
            "--include_imports",
            "--include_source_info",
            f"--descriptor_set_out={compiled}",
            *names,
            OPTIONS,
        )
        descriptors = descriptor_pb2.FileDescriptorSet.FromString(compiled.read_bytes())
    bounds_of = _bounds_reader(descriptors)
    files = tuple(_file(file, bounds_of) for file in descriptors.file if file.name in names)
    return Schema(tuple(sorted(files, key=lambda file: file.name)), descriptors)


def _includes() -> Path:
    import grpc_tools

    return Path(grpc_tools.__file__).parent / "_proto"


def _bounds_reader(descriptors: descriptor_pb2.FileDescriptorSet) -> Callable[[_F], Any]:
    """Reads a field's bounds: what descriptor.proto alone parses as an unknown field."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptors.file:
        pool.Add(file)
    options_class = message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FieldOptions"))
    extension: Any = pool.FindExtensionByName(BOUNDS)
    # Registers the extension with the class.
    message_factory.GetMessageClassesForFiles([OPTIONS], pool)
    return lambda field: options_class.FromString(field.options.SerializeToString()).Extensions[extension]


class _Comments:
    """Comments of a file, by their location."""

    def __init__(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        self._by_path = {tuple(location.path): location.leading_comments for location in file.source_code_info.location}

    def at(self, *path: int) -> str:
        """The comment before what lies at a path: its lines, without the blank that follows `//`."""
        lines = self._by_path.get(path, "").splitlines()
        return "\n".join(line.removeprefix(" ") for line in lines).strip("\n")


def _file(file: descriptor_pb2.FileDescriptorProto, bounds_of: Callable[[_F], Any]) -> File:
    comments, stem = _Comments(file), Path(file.name).stem
    return File(
        name=file.name,
        comment=comments.at(2),
        messages=tuple(
            _message(message, stem, comments, at, bounds_of) for at, message in enumerate(file.message_type)
        ),
        enums=tuple(
            Enum(
                name=enum.name,
                comment=comments.at(_ENUMS, at),
                values=tuple(
                    EnumValue(name=value.name, number=value.number, comment=comments.at(_ENUMS, at, _VALUES, index))
                    for index, value in enumerate(enum.value)
                ),
                file=stem,
            )
            for at, enum in enumerate(file.enum_type)
        ),
        services=tuple(
            Service(
                name=service.name,
                comment=comments.at(_SERVICES, at),
                methods=tuple(_methods(service, at, comments)),
                file=stem,
            )
            for at, service in enumerate(file.service)
        ),
    )


def _methods(service: descriptor_pb2.ServiceDescriptorProto, at: int, comments: _Comments) -> Iterator[Method]:
    for index, method in enumerate(service.method):
        yield Method(
            name=method.name,
            comment=comments.at(_SERVICES, at, _METHODS, index),
            request=_local(method.input_type),
            response=_local(method.output_type),
            client_streaming=method.client_streaming,
            server_streaming=method.server_streaming,
            idempotency=_M.IdempotencyLevel.Name(method.options.idempotency_level),
        )


def _message(
    message: descriptor_pb2.DescriptorProto, stem: str, comments: _Comments, at: int, bounds_of: Callable[[_F], Any]
) -> Message:
    # A field that is `optional` has a oneof of its own, which is none of the proto's.
    synthetic = {field.oneof_index for field in message.field if field.proto3_optional}
    oneofs = {
        oneof.name: comments.at(_MESSAGES, at, _ONEOFS, index)
        for index, oneof in enumerate(message.oneof_decl)
        if index not in synthetic
    }
    return Message(
        name=message.name,
        comment=comments.at(_MESSAGES, at),
        fields=tuple(
            _field(field, message, comments.at(_MESSAGES, at, _FIELDS, index), bounds_of(field))
            for index, field in enumerate(message.field)
        ),
        oneofs=oneofs,
        file=stem,
    )


def _field(
    field: descriptor_pb2.FieldDescriptorProto, message: descriptor_pb2.DescriptorProto, comment: str, bounds: Any
) -> Field:
    repeated = field.label == _F.LABEL_REPEATED
    kind = _F.Type.Name(field.type).removeprefix("TYPE_").lower()
    for nested in message.nested_type:
        if nested.options.map_entry and field.type_name.endswith(f".{message.name}.{nested.name}"):
            key, value = nested.field
            return Field(
                name=field.name,
                number=field.number,
                kind="map",
                key=_F.Type.Name(key.type).removeprefix("TYPE_").lower(),
                value=_field(value, nested, "", None),
                comment=comment,
                bounds=bounds,
            )
    in_oneof = field.HasField("oneof_index") and not field.proto3_optional
    absence_shows = field.proto3_optional or repeated or kind in ("message", "string", "bytes", "enum")
    if bounds is not None and bounds.required and not absence_shows:
        zero = "false" if kind == "bool" else "0"
        raise SystemExit(
            f"{message.name}.{field.name} is a {kind} and required, but a {kind} that is absent cannot be told from"
            f" {zero}: write `optional {kind} {field.name}`, or a bound such as `least` in place of `required`"
        )
    return Field(
        name=field.name,
        number=field.number,
        kind=kind,
        type_name=_local(field.type_name),
        repeated=repeated,
        optional=field.proto3_optional or (kind == "message" and not repeated and not in_oneof),
        oneof=message.oneof_decl[field.oneof_index].name if in_oneof else "",
        comment=comment,
        bounds=bounds,
    )


def _local(type_name: str) -> str:
    """A type's name without our package; types of other packages keep theirs."""
    return type_name.removeprefix(".").removeprefix(f"{PACKAGE}.")
