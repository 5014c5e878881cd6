"""A fork server and its children: each ends with its client, and its end is known."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from crucible_bridge.errors import Unavailable
from crucible_worker.children.fork_server import join
from crucible_worker.children.forks import Fork, Forks, NotForked
from crucible_worker.children.frames import frame, receive
from crucible_worker.children.process import Process
from tests.processes import children_of, is_alive

SERVER = """
import os, subprocess, sys
from crucible_bridge.errors import Unavailable
from crucible_worker.children.lifetime import begin
from crucible_worker.children.fork_server import ForkServer, refuse
from crucible_worker.children.frames import frame, receive
_, control = begin("server", None)
if "FULL" in os.environ:
    def refused(pid, open_pidfd=os.pidfd_open):
        os.pidfd_open = open_pidfd
        raise OSError(24, "Too many open files")
    os.pidfd_open = refused
if "REFUSED" in os.environ:
    refuse(control, Unavailable("no server today", reason="TODAY"))

def run(end, name):
    while (order := receive(end)) is not None:
        if order == b"exit":
            os._exit(7)
        if order == b"fail":
            raise LookupError("no such order")
        if order == b"leave":
            left = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
            end.sendall(frame(str(left.pid).encode()))
        else:
            end.sendall(frame(f"{os.getpid()} {name} {prepared}".encode()))

prepared = ""

def prepare(name):
    global prepared
    prepared += name

ForkServer(control, run, prepare=prepare).serve()
"""


Start = Callable[..., Awaitable[Fork]]


class Died(Exception):
    """The server has."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """One in which the server is found."""
    (tmp_path / "a_server.py").write_text(SERVER)
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


@contextlib.asynccontextmanager
async def served(environment: dict[str, str]) -> AsyncIterator[tuple[Process, socket.socket, Forks]]:
    """A server, its first control socket, and a client that owns it."""
    process, control = Process.start("a_server", environment=environment, kind=socket.SOCK_SEQPACKET, logs=True)
    forks = Forks(control, Died, process)
    try:
        yield process, control, forks
    finally:
        forks.close()
        await until(lambda: process.reap() is not None)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what other processes do."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def asked(fork: Fork, order: bytes) -> str:
    """What a child answers."""

    def ask() -> bytes:
        fork.end.sendall(frame(order))
        return receive(fork.end) or b""

    async with asyncio.timeout(60):
        return (await asyncio.to_thread(ask)).decode()


@pytest.fixture
def start() -> Iterator[Start]:
    """Has a child forked, whose socket is open until the test ends."""
    with contextlib.ExitStack() as ends:

        async def started(forks: Forks, name: str = "") -> Fork:
            fork = await forks.start(name)
            ends.enter_context(fork.end)
            return fork

        yield started


async def test_children_are_forked_each_with_its_name(environment, start):
    """By one process, which prepares for each; they are told apart by the kernel."""
    async with served(environment) as (process, _, forks):
        first, second = await asyncio.gather(start(forks, "a"), start(forks, "b"))
        told = [(await asked(fork, b"who")).split() for fork in (first, second)]

        assert [each[1:] for each in told] == [["a", "a"], ["b", "ab"]]
        assert {int(each[0]) for each in told} == set(children_of(process.pid))
        assert first.alive
        assert second.alive


@pytest.mark.parametrize(("order", "status"), [(b"exit", 7), (b"fail", 1)])
async def test_the_exit_status_of_a_child_is_told(environment, start, order, status):
    """Also where it raised; the server goes on."""
    async with served(environment) as (_, _, forks):
        fork = await start(forks)
        assert await asked(fork, order) == ""
        async with asyncio.timeout(60):
            assert await fork.ended == status
        assert not fork.alive
        assert await asked(await start(forks), b"who")


async def test_a_killed_child_takes_along_what_it_has_started(environment, start):
    """Its group is the server's to kill."""
    async with served(environment) as (_, _, forks):
        fork = await start(forks)
        left = int(await asked(fork, b"leave"))
        fork.kill()
        async with asyncio.timeout(60):
            assert await fork.ended == -signal.SIGKILL
        await until(lambda: not is_alive(left))
        fork.kill()


async def test_a_client_that_joined_ends_its_own_children(environment, start):
    """And nothing else: those of others go on."""
    async with served(environment) as (process, control, forks):
        mine = await start(forks, "mine")
        joined = Forks(join(control), Died)
        theirs = await start(joined, "theirs")
        pid = int((await asked(theirs, b"who")).split()[0])

        joined.close()

        await until(lambda: not is_alive(pid))
        assert await theirs.ended is None
        assert await asked(mine, b"who")
        assert not process.ends(0)
        with pytest.raises(Died):
            await start(joined)


async def test_a_server_that_is_killed_takes_its_children_along(environment, start):
    """Whoever waits is told, with the status where the server is the client's own."""
    async with served(environment) as (process, control, forks):
        fork = await start(forks)
        pid = int((await asked(fork, b"who")).split()[0])
        joined = Forks(join(control), Died)
        other = await start(joined)
        os.kill(process.pid, signal.SIGSTOP)
        waiting = [asyncio.create_task(start(each)) for each in (forks, joined)]
        await asyncio.sleep(0)
        os.kill(process.pid, signal.SIGKILL)

        async with asyncio.timeout(60):
            found = await asyncio.gather(*waiting, return_exceptions=True)
            assert [(type(each), each.args) for each in found] == [(Died, (-signal.SIGKILL,)), (Died, (None,))]
            assert (await fork.ended, await other.ended) == (-signal.SIGKILL, None)
        await until(lambda: not is_alive(pid))
        assert not forks.alive
        assert not joined.alive


async def test_a_server_ends_with_its_first_client(environment, start):
    """And all that others have started there."""
    async with served(environment) as (process, control, forks):
        joined = Forks(join(control), Died)
        pids = [int((await asked(await start(each), b"who")).split()[0]) for each in (forks, joined)]

        forks.close()

        await until(lambda: process.ends(0) and not any(map(is_alive, pids)))
        with pytest.raises(Died):
            await start(joined)


async def test_a_server_that_refuses_tells_every_client(environment, start):
    """Those that have joined meanwhile, too."""
    async with served({**environment, "REFUSED": "yes"}) as (_, control, forks):
        joined = Forks(join(control), Died)
        for each in (forks, joined):
            with pytest.raises(Unavailable, match="no server today") as caught:
                async with asyncio.timeout(60):
                    await start(each)
            assert caught.value.reason == "TODAY"
        joined.close()


async def test_a_server_without_a_free_descriptor_forks_again_later(environment, start):
    """The one child is refused with the reason, and nothing of it is left; the next one starts."""
    async with served({**environment, "FULL": "1"}) as (process, _, forks):
        with pytest.raises(NotForked, match="Too many open files"):
            await start(forks)
        assert children_of(process.pid) == []
        assert await asked(await start(forks), b"who")


async def test_a_client_without_a_free_descriptor_has_a_child_forked_later(environment, start, monkeypatch):
    """The system leaves out the descriptor of a child; that child ends, and the next one starts."""
    receive_fds = socket.recv_fds

    def without(*arguments):
        data, fds, *rest = receive_fds(*arguments)
        for fd in fds:
            monkeypatch.setattr(socket, "recv_fds", receive_fds)
            os.close(fd)
        return data, [], *rest

    async with served(environment) as (process, _, forks):
        monkeypatch.setattr(socket, "recv_fds", without)
        with pytest.raises(NotForked, match="Too many open files"):
            await start(forks)
        await until(lambda: not children_of(process.pid))
        assert await asked(await start(forks), b"who")


async def test_no_socket_for_a_child_is_no_child(environment, start, monkeypatch):
    """A client that cannot make a socket says why, as a server does that cannot fork."""

    def refused(*arguments):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with served(environment) as (_, _, forks):
        await forks.ready()
        with monkeypatch.context() as patched:
            patched.setattr(socket, "socketpair", refused)
            with pytest.raises(NotForked, match="Too many open files"):
                await start(forks)
        assert await asked(await start(forks), b"who")
