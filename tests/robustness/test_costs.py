"""What the costliest messages of every call cost a real worker: memory is bounded, and probes are answered."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import FieldDescriptor

import crucible_bridge.v1
from crucible_bridge.codec.elements import MAX_ELEMENTS
from tests.robustness.harness import WorkerProcess, workshop
from tests.robustness.probes import HEALTH_SECONDS, worst_probe

MEBIBYTE = 1024 * 1024
MESSAGE_BYTES = 60 * MEBIBYTE
MEMORY_BYTES = 1280 * MEBIBYTE
"""For one call, besides its message: elements have 100 bytes each, and the objects that are made of them more; a number
of one byte has 16."""
ATTEMPTS = 3
"""Of one message: whatever else the machine does may delay a probe."""
ANSWERS = 3
"""Of a stream that are read: a subscription does not end."""
CALL_SECONDS = 60.0

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
    for path in list(_paths(request, lambda field: not field.is_repeated and field.type in _TEXTS))[:3]:
        yield f"text {_named(path)}", lambda path=path: _inside(path, b"a" * MESSAGE_BYTES)


def _methods() -> Iterator[Any]:
    for module in pkgutil.iter_modules(crucible_bridge.v1.__path__):
        if module.name.endswith("_pb2"):
            services = importlib.import_module(f"crucible_bridge.v1.{module.name}").DESCRIPTOR.services_by_name
            for service in services.values():
                yield from (method for method in service.methods if method.name != "Drain")


async def _called(channel: grpc.aio.Channel, method: Any, data: bytes) -> str:
    """Send a message; how the call ended."""

    async def message() -> Any:
        yield data

    call: Any = channel.stream_stream(f"/{method.containing_service.full_name}/{method.name}", None, None)
    answers = call(message(), timeout=CALL_SECONDS)
    try:
        for _ in range(ANSWERS):
            if await answers.read() is grpc.aio.EOF:  # pyright: ignore[reportAttributeAccessIssue] - the stubs lack it
                return "OK"
    except grpc.aio.AioRpcError as error:
        return error.code().name
    answers.cancel()
    return "OK"


async def _check(worker: WorkerProcess, method: Any, name: str, data: bytes) -> None:
    """One message, and probes beside it."""
    found: list[float] = []
    async with grpc.aio.insecure_channel(worker.address, [("grpc.max_send_message_length", -1)]) as channel:
        for _ in range(ATTEMPTS):
            before, peak = worker.rss(), 0
            work = asyncio.ensure_future(_called(channel, method, data))

            async def watch(work: asyncio.Future[str] = work) -> None:
                nonlocal peak
                while not work.done():
                    peak = max(peak, worker.rss())
                    await asyncio.sleep(0.01)

            watching = asyncio.create_task(watch())
            found.append(await worst_probe(worker.address, work, worker.pid))
            await watching
            print(
                f"{method.name} {name}: probe {found[-1]:.2f} s, {(peak - before) / MEBIBYTE:.0f} MiB, {work.result()}"
            )
            assert peak - before < MEMORY_BYTES, f"{method.name} {name}"
            if found[-1] < HEALTH_SECONDS:
                return
    raise AssertionError(f"{method.name} {name}: probes took {found}")


@pytest.mark.parametrize(
    ("called", "name"),
    [
        ("GradeMath", "empty items"),
        ("ListEvaluations", "numbers states"),
        ("StartEvaluation", "most request.evaluators"),
    ],
)
async def test_a_costly_message_is_refused_at_little_cost(tmp_path: Path, called: str, name: str) -> None:
    """Of each shape one: empty messages, numbers, and as many messages as a request may have."""
    method = next(method for method in _methods() if method.name == called)
    async with workshop(tmp_path, {"m": {}}) as shop:
        await _check(await shop.start(), method, name, dict(_messages(method.input_type))[name]())


@pytest.mark.torture
@pytest.mark.parametrize("method", list(_methods()), ids=lambda method: method.name)
async def test_the_costliest_messages_of_a_call_are_bounded(tmp_path: Path, method: Any) -> None:
    """Of every shape, in each field of the request that can have it."""
    async with workshop(tmp_path, {"m": {}}, seconds=3_600) as shop:
        worker = await shop.start()
        for name, made in _messages(method.input_type):
            await _check(worker, method, name, made())
