"""The worker's end of a run's channel, where the other end has gone."""

import logging
import socket

import pytest

from crucible_worker.grading.code.inside.wire import pack
from crucible_worker.grading.code.sandbox import SandboxChannel

MESSAGES = 20


async def test_what_one_said_that_has_gone_is_read_and_its_answers_are_nobodys(caplog: pytest.LogCaptureFixture):
    """Without a word in the worker's log, however many there are."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(b"".join(pack({"said": index}) for index in range(MESSAGES)))
    ours.setblocking(False)
    channel = await SandboxChannel.over(ours)

    with caplog.at_level(logging.WARNING):
        heard = []
        while (message := await channel.receive(1_000)) is not None:
            heard.append(message)
            channel.send({"heard": message})
    channel.close()

    assert heard == [{"said": index} for index in range(MESSAGES)]
    assert not caplog.records
