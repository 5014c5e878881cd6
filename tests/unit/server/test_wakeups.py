"""gRPC's polling thread is never held up by bytes that the event loop has left unread."""

from __future__ import annotations

import asyncio
import functools
import socket
import subprocess
import sys

from crucible_worker.server.wakeups import Wakeups

SERVER = """
import asyncio
import grpc.aio
from crucible_worker.server.wakeups import Wakeups

async def main():
    wakeups = Wakeups.of(asyncio.get_running_loop())
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await channel.channel_ready()
    await server.stop(None)
    print(wakeups.readers)

asyncio.run(main())
"""


class Poller:
    """Stands in for gRPC's: reads one byte each time, and handles all that is queued."""

    def __init__(self, reader: socket.socket) -> None:
        self.reader = reader
        self.turns = 0

    def _handle_events(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self.reader.recv(1)
        self.turns += 1


class Selections:
    """Counts how often a loop has asked which files can be read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.count = 0
        self._select = loop._selector.select  # pyright: ignore[reportAttributeAccessIssue]: asyncio's own
        loop._selector.select = self._counted  # pyright: ignore[reportAttributeAccessIssue]: asyncio's own

    def _counted(self, timeout: float | None = None) -> object:
        self.count += 1
        return self._select(timeout)


async def test_all_bytes_are_read_in_one_turn_of_the_loop():
    """However many there are, the socket is empty after one turn, and the handler has had each of them."""
    loop = asyncio.get_running_loop()
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)
        poller, selections = Poller(reader), Selections(loop)
        wakeups = Wakeups.of(loop)
        loop.add_reader(reader, functools.partial(poller._handle_events, loop))
        try:
            for count in (1, 2, 150):
                for _ in range(count):
                    writer.send(b"1")
                before = selections.count
                poller.turns = 0
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert (poller.turns, selections.count) == (count, before + 2)
        finally:
            loop.remove_reader(reader)
    assert wakeups.readers == 1


async def test_events_behind_one_that_fails_are_handled():
    """An event of a closed loop raises in the handler; those behind it need no further event to be handled."""
    loop = asyncio.get_running_loop()
    raised: list[object] = []
    loop.set_exception_handler(lambda _, context: raised.append(context["exception"]))
    reader, writer = socket.socketpair()
    closed = RuntimeError("Event loop is closed")
    queue, handled = [closed, closed, "first", closed, "second"], []

    class Queue(Poller):
        def _handle_events(self, loop: asyncio.AbstractEventLoop) -> None:
            assert self.reader.recv(1)
            while queue:
                event = queue.pop(0)
                if isinstance(event, RuntimeError):
                    raise event
                handled.append(event)

    with reader, writer:
        reader.setblocking(False)
        Wakeups.of(loop)
        loop.add_reader(reader, functools.partial(Queue(reader)._handle_events, loop))
        try:
            writer.send(b"1" * len(queue))
            async with asyncio.timeout(5):
                while queue:
                    await asyncio.sleep(0)
        finally:
            loop.remove_reader(reader)
    assert (handled, raised) == (["first", "second"], [closed] * 3)


async def test_a_loop_that_comes_too_late_has_nothing_to_do():
    """Loops in two threads share the socket: one reads the byte and handles the events, the other calls no handler."""
    loop = asyncio.get_running_loop()
    raised: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: raised.append(context))
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        late = Poller(reader)
        Wakeups.of(loop)
        loop.add_reader(reader, functools.partial(late._handle_events, loop))
        (key,) = [key for key in loop._selector.get_map().values() if key.fd == reader.fileno()]  # pyright: ignore[reportAttributeAccessIssue]: asyncio's own
        key.data[0]._run()  # no byte waits
        loop.remove_reader(reader)
    assert (raised, late.turns) == ([], 0)


async def test_other_readers_are_left_alone():
    """They read what they want; and a loop is looked at once, however many workers it has."""
    loop = asyncio.get_running_loop()
    reader, writer = socket.socketpair()
    with reader, writer:
        wakeups, read = Wakeups.of(loop), asyncio.Event()
        assert Wakeups.of(loop) is wakeups
        loop.add_reader(reader, lambda: (reader.recv(1), read.set()))
        writer.send(b"12")
        await read.wait()
        loop.remove_reader(reader)
        assert wakeups.readers == 0


def test_the_reader_of_grpc_is_found():
    """By what it is called in the version that is installed."""
    done = subprocess.run([sys.executable, "-c", SERVER], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
