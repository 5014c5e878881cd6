"""Persisted events through a subscription: worker and subscriber are two processes on 127.0.0.1.

A journal is filled, then a subscriber reads all of it: from SQLite through gRPC to typed events in Python. The baseline
is a bare grpc.aio stream of the same messages: its server has them as bytes, and its subscriber parses them and reads
the identifier, measurements and metadata of each event. Both are read alternately.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
from _processes import server_process
from _report import Claim, arguments, report

import crucible_bridge
from crucible_bridge.channel import open_channel, server_options
from crucible_bridge.codec.events import event_to_record
from crucible_bridge.events import Event, EventKind
from crucible_bridge.v1 import events_pb2
from crucible_worker.journal import Journal
from crucible_worker.server.process import write_ready_file

EVENTS = 300_000

LEAST = 0.1
"""Bound, relative to the bare stream."""

_SERVICE, _METHOD = "crucible_bridge.v1.TelemetryService", "Subscribe"
_LENGTH_BYTES = 4
"""The length before each message in the bare server's file."""


async def main() -> None:
    options = arguments(__doc__)
    with tempfile.TemporaryDirectory(prefix="crucible-") as folder:
        state_dir, messages = Path(folder), Path(folder, "messages")
        written = await fill(state_dir)
        ready, bare_ready = state_dir / "ready", state_dir / "bare-ready"
        serve = ["-m", "crucible_worker", "serve", "--port", "0", "--log-level", "error"]
        with server_process([*serve, "--state-dir", folder, "--ready-file", str(ready)], ready) as address:
            messages.write_bytes(await recorded(address))
            with (
                server_process([__file__, "--bare", str(messages), str(bare_ready)], bare_ready) as bare,
                multiprocessing.get_context("spawn").Pool(1) as subscriber,
            ):
                runs = [
                    (subscriber.apply(subscribe, (address,)), subscriber.apply(subscribe_bare, (bare,)))
                    for _ in range(options.runs + 1)
                ][1:]  # the first one warms both up
    report(
        [
            Claim(
                name="persisted events through a subscription",
                ours=[EVENTS / ours for ours, _ in runs],
                baseline=[EVENTS / bare for _, bare in runs],
                unit="events/s",
                ratio=statistics.median(bare / ours for ours, bare in runs),
                at_least=LEAST,
                claim=f"at least {LEAST:g} of a bare stream of the same messages",
            ),
            Claim(name="events written to the journal", ours=[written], unit="events/s", claim="printed only"),
        ],
        as_json=options.json,
    )


async def fill(state_dir: Path) -> float:
    """Write events like those of samples; returns events a second."""
    journal = await Journal.open(state_dir, event_to_record)
    started = time.perf_counter()
    pending = []
    for index in range(EVENTS):
        event = Event(
            kind=EventKind.SAMPLE_COMPLETE,
            unix_time_ns=time.time_ns(),
            duration_ns=1_000_000,
            evaluation_id="evaluation-1",
            run_id="run-1",
            step=100,
            evaluator="accuracy",
            measurements={"score": 1.0, "output_tokens": 3.0},
            metadata={"sample_id": str(index), "repeat": "0", "verdict": "correct", "attempt": "1"},
        )
        pending.append(journal.submit(lambda transaction, event=event: transaction.append(0, (event,))))
        if len(pending) == 1024:
            await asyncio.gather(*pending)
            pending.clear()
    await asyncio.gather(*pending)
    seconds = time.perf_counter() - started
    await journal.aclose()
    return EVENTS / seconds


def subscribe(address: str) -> float:
    """Seconds to read the whole log."""
    return asyncio.run(_subscribe(address))


async def _subscribe(address: str) -> float:
    async with crucible_bridge.connect(address) as bridge:
        started = time.perf_counter()
        count = 0
        async with bridge.telemetry.subscribe(until_now=True) as stream:
            async for batch in stream.batches():
                count += len(batch.events)
        assert count == EVENTS, count
        return time.perf_counter() - started


def _stream(channel: grpc.aio.Channel) -> AsyncIterator[bytes]:
    """The messages of a server, as bytes."""
    call = channel.unary_stream(f"/{_SERVICE}/{_METHOD}", None, None)
    return aiter(call(events_pb2.SubscribeRequest(until_now=True).SerializeToString()))


async def recorded(address: str) -> bytes:
    """All messages of the worker, each after its length."""
    async with open_channel(address) as channel:
        messages = [message async for message in _stream(channel)]
    return b"".join(len(message).to_bytes(_LENGTH_BYTES, "big") + message for message in messages)


def subscribe_bare(address: str) -> float:
    """Seconds to read the bare stream."""
    return asyncio.run(_subscribe_bare(address))


async def _subscribe_bare(address: str) -> float:
    async with open_channel(address) as channel:
        started = time.perf_counter()
        count = 0
        async for message in _stream(channel):
            for event in events_pb2.EventBatch.FromString(message).events:
                count += len((event.evaluation_id, dict(event.measurements), dict(event.metadata))) == 3
        assert count == EVENTS, count
        return time.perf_counter() - started


async def serve_bare(recording: Path, ready: Path) -> None:
    """Run the bare server until the process is ended."""
    rest, messages = memoryview(recording.read_bytes()), []
    while rest:
        end = _LENGTH_BYTES + int.from_bytes(rest[:_LENGTH_BYTES], "big")
        messages.append(bytes(rest[_LENGTH_BYTES:end]))
        rest = rest[end:]

    async def answer(request: bytes, context: object) -> AsyncIterator[bytes]:
        for message in messages:
            yield message

    server = grpc.aio.server(options=server_options())
    handlers = {_METHOD: grpc.unary_stream_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await asyncio.to_thread(write_ready_file, ready, f"127.0.0.1:{port}")
    await server.wait_for_termination()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--bare"]:
        asyncio.run(serve_bare(Path(sys.argv[2]), Path(sys.argv[3])))
    else:
        asyncio.run(main())
