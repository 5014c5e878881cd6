"""What the costliest messages of every call cost a real worker: memory is bounded, and probes are answered."""

from __future__ import annotations

import asyncio
import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.struct_pb2 import ListValue, Value

import crucible_bridge
import crucible_bridge.v1
from crucible_bridge.codec.elements import MAX_ELEMENTS
from tests.processes import rss_of
from tests.robustness.bare_http2 import sent_of_a_long_message
from tests.robustness.harness import WorkerProcess, until, workshop
from tests.robustness.probes import HEALTH_SECONDS, worst_probe
from tests.service.grading_kit import GRADING
from tests.service.server_kit import token_file
from tests.service.serving import Serving, serving

MEBIBYTE = 1024 * 1024
MESSAGE_BYTES = 60 * MEBIBYTE
MEMORY_BYTES = 1280 * MEBIBYTE
"""For one call, besides its message: elements have 100 bytes each, and the objects that are made of them more; a number
of one byte has 16."""
UNREAD_BYTES = 64 * MEBIBYTE
"""For a message that is refused before it is read: windows, and what is received meanwhile."""
AWAITED_BYTES = 256 * MEBIBYTE
"""For one that is awaited: what arrives until the growth of the process is seen."""
ATTEMPTS = 3
"""Of one message: whatever else the machine does may delay a probe."""
ANSWERS = 3
"""Of a stream that are read: a subscription does not end."""
CALL_SECONDS = 60.0

DEEP = 4_000_000
"""Messages in each other: 19 MB of tags and lengths."""

_UNKNOWN = b"\xfa\x7f\x00"
"""A field of the number 2,047, without content."""
_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
_NUMBERS = (FieldDescriptor.TYPE_ENUM, FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64)
Path_ = tuple[Any, ...]
"""Fields from a request to one of its depths."""


def _varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found, value = found + bytes([value & 0x7F | 0x80]), value >> 7
    return found + bytes([value])


def _inside(path: Path_, data: bytes) -> bytes:
    for field in reversed(path):
        data = _varint(field.number << 3 | 2) + _varint(len(data)) + data
    return data


def _named(path: Path_) -> str:
    return ".".join(field.name for field in path)


def _paths(descriptor: Any, wanted: Callable[[Any], bool]) -> Iterator[Path_]:
    """The way to each field that is wanted; each type of message is entered once."""
    entered, left = {descriptor.full_name}, [((), descriptor)]
    while left:
        above, here = left.pop(0)
        for field in here.fields:
            path: Path_ = (*above, field)
            if wanted(field):
                yield path
            if field.message_type is not None and field.message_type.full_name not in entered:
                entered.add(field.message_type.full_name)
                left.append((path, field.message_type))


@functools.cache
def _nested() -> bytes:
    """A list in a list, and so on."""
    levels = (Value.DESCRIPTOR.fields_by_name["list_value"], ListValue.DESCRIPTOR.fields_by_name["values"])
    heads, size = [b""], 0
    for level in range(DEEP):
        heads.append(_varint(levels[1 - level % 2].number << 3 | 2) + _varint(size))
        size += len(heads[-1])
    return b"".join(reversed(heads))


def _messages(request: Any) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """The costliest messages of a request, with their names."""
    for path in _paths(request, lambda field: field.is_repeated and (field.message_type or field.type in _TEXTS)):
        one, name, above = _inside(path[-1:], b""), _named(path), path[:-1]
        yield f"empty {name}", lambda above=above, one=one: _inside(above, one * (MESSAGE_BYTES // len(one)))
        yield f"most {name}", lambda above=above, one=one: _inside(above, one * (MAX_ELEMENTS - len(above)))
    for path in _paths(request, lambda field: field.is_repeated and field.type in _NUMBERS):
        yield (
            f"numbers {'.'.join(field.name for field in path)}",
            lambda path=path: _inside(path, b"\1" * MESSAGE_BYTES),
        )
    yield "unknown fields", lambda: _UNKNOWN * (MESSAGE_BYTES // len(_UNKNOWN))
    for path in _paths(request, lambda field: field.message_type is Value.DESCRIPTOR):
        yield f"deep {_named(path)}", lambda path=path: _inside(path, _nested())
    for path in list(_paths(request, lambda field: not field.is_repeated and field.type in _TEXTS))[:3]:
        yield f"text {_named(path)}", lambda path=path: _inside(path, b"a" * MESSAGE_BYTES)


def _methods() -> Iterator[Any]:
    for module in pkgutil.iter_modules(crucible_bridge.v1.__path__):
        if module.name.endswith("_pb2"):
            services = importlib.import_module(f"crucible_bridge.v1.{module.name}").DESCRIPTOR.services_by_name
            for service in services.values():
                yield from (method for method in service.methods if method.name != "Drain")


async def _called(channel: grpc.aio.Channel, method: Any, data: bytes, compression: grpc.Compression) -> str:
    """Send a message; how the call ended."""
    # Also where a call takes several: a client that streams may find it ended while it writes, and says INTERNAL.
    call: Any = channel.unary_stream(f"/{method.containing_service.full_name}/{method.name}", None, None)
    answers = call(data, timeout=CALL_SECONDS, compression=compression)
    try:
        for _ in range(ANSWERS):
            if await answers.read() is grpc.aio.EOF:  # pyright: ignore[reportAttributeAccessIssue] - the stubs lack it
                return "OK"
    except grpc.aio.AioRpcError as error:
        return error.code().name
    answers.cancel()
    return "OK"


async def _check(
    worker: WorkerProcess | Serving,
    method: Any,
    name: str,
    data: bytes,
    *,
    memory: int = MEMORY_BYTES,
    compression: grpc.Compression = grpc.Compression.NoCompression,
) -> str:
    """One message, and probes beside it; how the call ended."""
    found: list[float] = []
    pid = worker.process.pid
    async with grpc.aio.insecure_channel(worker.address, [("grpc.max_send_message_length", -1)]) as channel:
        for _ in range(ATTEMPTS):
            before, peak = rss_of(pid), 0
            work = asyncio.ensure_future(_called(channel, method, data, compression))

            async def watch(work: asyncio.Future[str] = work) -> None:
                nonlocal peak
                while not work.done():
                    peak = max(peak, rss_of(pid))
                    await asyncio.sleep(0.01)

            watching = asyncio.create_task(watch())
            found.append(await worst_probe(worker.address, work, pid))
            await watching
            print(
                f"{method.name} {name}: probe {found[-1]:.2f} s, {(peak - before) / MEBIBYTE:.0f} MiB, {work.result()}"
            )
            assert peak - before < memory, f"{method.name} {name}"
            if found[-1] < HEALTH_SECONDS:
                return work.result()
    raise AssertionError(f"{method.name} {name}: probes took {found}")


@pytest.mark.parametrize(
    ("called", "name"),
    [
        ("GradeMath", "empty items"),
        ("GradeMath", "unknown fields"),
        ("ListEvaluations", "numbers states"),
        ("StartEvaluation", "most request.evaluators"),
    ],
)
async def test_a_costly_message_is_refused_at_little_cost(tmp_path: Path, called: str, name: str) -> None:
    """Of each shape one: empty messages, fields of no meaning, numbers, and as many messages as a request may have."""
    method = next(method for method in _methods() if method.name == called)
    async with workshop(tmp_path, {"m": {}}, grading_processes=2) as shop:
        await _check(await shop.start(), method, name, dict(_messages(method.input_type))[name]())


@pytest.mark.parametrize("path", ["/crucible_bridge.v1.WorkerService/GetInfo", "/grpc.health.v1.Health/Check"])
async def test_a_message_that_is_declared_as_long_is_ended(tmp_path: Path, path: str) -> None:
    """Without a token only windows of it are received; of a health check, which needs none, what a moment brings."""
    async with serving(tmp_path, f'token_file = "{token_file(tmp_path, "s3cret")}"') as worker:
        async with crucible_bridge.connect(worker.address) as bridge:
            await until(lambda: bridge.worker.health(GRADING))  # all is imported then
        before, peak = rss_of(worker.process.pid), 0
        sending = asyncio.create_task(sent_of_a_long_message(worker.address, path))
        while not sending.done():
            peak = max(peak, rss_of(worker.process.pid))
            await asyncio.sleep(0.01)
        print(f"{path}: {await sending / MEBIBYTE:.0f} MiB sent, {(peak - before) / MEBIBYTE:.0f} MiB")
        assert max(await sending, peak - before) < (AWAITED_BYTES if "Health" in path else UNREAD_BYTES)
        await worst_probe(worker.address, sending, worker.process.pid)


@pytest.mark.torture
@pytest.mark.parametrize("method", list(_methods()), ids=lambda method: method.name)
async def test_the_costliest_messages_of_a_call_are_bounded(tmp_path: Path, method: Any) -> None:
    """Of every shape, in each field of the request that can have it."""
    async with workshop(tmp_path, {"m": {}}, seconds=3_600, grading_processes=2) as shop:
        worker = await shop.start()
        for name, made in _messages(method.input_type):
            await _check(worker, method, name, made())


@pytest.mark.torture
async def test_a_compressed_message_is_not_expanded(tmp_path: Path) -> None:
    """Of no call: it is refused for its compression, at the cost of what was sent."""
    async with workshop(tmp_path, {"m": {}}, seconds=3_600, grading_processes=2) as shop:
        worker = await shop.start()
        for method in _methods():
            ended = await _check(
                worker,
                method,
                "compressed",
                bytes(MESSAGE_BYTES),
                memory=UNREAD_BYTES,
                compression=grpc.Compression.Gzip,
            )
            assert ended == "UNIMPLEMENTED", method.name


@pytest.mark.torture
async def test_a_message_without_a_token_is_not_received(tmp_path: Path) -> None:
    """Of no call: it costs what gRPC receives before anybody reads it."""
    async with serving(tmp_path, f'token_file = "{token_file(tmp_path, "s3cret")}"') as worker:
        for method in _methods():
            ended = await _check(worker, method, "without a token", bytes(MESSAGE_BYTES), memory=UNREAD_BYTES)
            assert ended == "UNAUTHENTICATED", method.name
