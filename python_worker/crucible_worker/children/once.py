"""Children that answer one question: they read foreign input, or wait for a hub, and are killed at their limits."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping

from crucible_worker.children.bounds import limit
from crucible_worker.children.channel import Channel
from crucible_worker.children.entry import begin
from crucible_worker.children.frames import frame, receive
from crucible_worker.children.process import Process

__all__ = ["Unanswered", "answer_once", "ask_once", "bare_environment"]

_VARIABLES = ("PYTHONPATH", "LD_LIBRARY_PATH")


class Unanswered(Exception):
    """A child ended without an answer, or was killed: it took too much time or memory."""


def bare_environment() -> dict[str, str]:
    """The minimal environment of a child, without the rest of this process's environment."""
    return {name: os.environ[name] for name in _VARIABLES if name in os.environ}


async def ask_once(module: str, question: bytes, *, environment: Mapping[str, str], logs: bool = False) -> bytes:
    """Start a child that calls `answer_once`, and return its answer. It is gone afterwards, also if this is cancelled.

    Args:
        module: what it runs.
        question: sent to the child.
        environment: the child's.
        logs: whether what it prints goes to this process's stderr.

    Raises:
        Unanswered: there is no answer.
    """
    process, end = Process.start(module, environment=environment, logs=logs)
    try:
        channel = await Channel.over(end)
        try:
            channel.send(frame(question))
            answer = await channel.receive()
        finally:
            channel.abort()
    finally:
        await process.end()
    if answer is None:
        raise Unanswered
    return answer


def answer_once(
    module: str,
    answer: Callable[[bytes], bytes],
    *,
    cpu_seconds: int | None = None,
    memory_bytes: int | None = None,
) -> None:
    """Answer the question, in the child.

    Args:
        module: what it runs.
        answer: from the question to the answer.
        cpu_seconds: after which the kernel ends it.
        memory_bytes: of address space that it may have.
    """
    _, end = begin(module, __doc__)
    if cpu_seconds is not None:
        limit(resource.RLIMIT_CPU, cpu_seconds)
    if memory_bytes is not None:
        limit(resource.RLIMIT_AS, memory_bytes)
    question = receive(end)
    if question is not None:
        end.sendall(frame(answer(question)))
