"""Frames between processes: what is sent arrives, whole or not at all, and no longer than it may be."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.children.frames import HEADER, TooLong, frame, length_of, receive
from crucible_worker.children.process import Channel

LIMIT = 100


@given(st.lists(st.binary(max_size=300)))
def test_bodies_arrive_in_order(bodies: list[bytes]) -> None:
    """On a blocking socket, and then its end."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(b"".join(map(frame, bodies)))
        assert [receive(ours) for _ in bodies] == bodies
        assert receive(ours) is None


def test_a_large_body_arrives() -> None:
    """Though it does not fit into what the kernel holds at once."""
    body = bytes(range(256)) * 20_000
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sending = threading.Thread(target=theirs.sendall, args=(frame(body),))
        sending.start()
        assert receive(ours) == body
        sending.join()


@pytest.mark.parametrize("sent", [b"", frame(b"whole")[:2], frame(b"whole")[:-1]])
def test_an_end_within_a_frame_is_an_end(sent: bytes) -> None:
    """A frame that was begun is no message."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(sent)
        assert receive(ours) is None


def test_the_bound_is_that_of_the_body() -> None:
    """One byte more is refused: by who sends it, and by who reads its header alone."""
    body = b"x" * LIMIT
    assert length_of(frame(body, LIMIT)[: HEADER.size], LIMIT) == LIMIT
    with pytest.raises(TooLong, match="a message of 101 bytes, at most 100 are sent"):
        frame(body + b"x", LIMIT)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(HEADER.pack(LIMIT + 1))
        with pytest.raises(TooLong, match="a message of 101 bytes, at most 100 are read"):
            receive(ours, LIMIT)


def test_who_waits_until_a_time_waits_no_longer() -> None:
    """However often a byte of the frame arrives meanwhile."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(HEADER.pack(1_000_000) + bytes(1_000))
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            receive(ours, until=started + 0.05)
        assert time.monotonic() >= started + 0.05
        with pytest.raises(TimeoutError):
            receive(ours, until=started)


def test_who_waits_is_asked_whether_to_go_on() -> None:
    """At each of the socket's own time-outs; then the frame is read on where it was left."""
    ours, theirs = socket.socketpair()
    ours.settimeout(0.001)
    rest = [frame(b"whole")[index : index + 1] for index in range(HEADER.size + 5)]
    with ours, theirs:
        assert receive(ours, idle=lambda: theirs.sendall(rest.pop(0))) == b"whole"
        with pytest.raises(ZeroDivisionError):
            receive(ours, idle=lambda: 1 / 0)


async def test_a_channel_reads_what_was_sent_before_its_end() -> None:
    """Also where it takes what has arrived as all there is, though another process holds the other end."""
    ours, theirs = socket.socketpair()
    channel = await Channel.over(ours)
    with theirs:
        theirs.sendall(frame(b"first") + frame(b"second") + frame(b"third")[:-1])
        channel.end_input()
        async with asyncio.timeout(10):
            assert [await channel.receive() for _ in range(3)] == [b"first", b"second", None]
    channel.abort()


async def test_a_channel_has_bounds_too() -> None:
    """As `receive` has."""
    ours, theirs = socket.socketpair()
    channel = await Channel.over(ours)
    with theirs:
        theirs.sendall(frame(bytes(LIMIT)) + frame(bytes(LIMIT + 1)))
        assert await channel.receive(LIMIT) == bytes(LIMIT)
        with pytest.raises(TooLong):
            await channel.receive(LIMIT)
    channel.abort()
