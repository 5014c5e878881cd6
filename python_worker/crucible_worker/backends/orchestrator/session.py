"""Questions to an orchestrator that has a model, graders or environments, and its answers, in any order.

The window bounds how many questions are open at once. A question is open from when it is handed out until its answer
comes or it is withdrawn. Withdrawals go out before further questions, so that the other end sees the same bound; so do
the ends of episodes.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import itertools
from collections.abc import AsyncGenerator

from crucible_bridge.errors import BackendError, Unavailable
from crucible_bridge.problems import shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Answer, Problem, Question

__all__ = ["MAX_REASON_BYTES", "CallerSession", "ClosedEpisode", "PendingQuestion", "Withdrawn"]

MAX_REASON_BYTES = 64
"""Longest reason of an orchestrator for having no answer; the rest is truncated."""


@dataclasses.dataclass(frozen=True, slots=True)
class PendingQuestion:
    """A question, to be answered by its id."""

    id: int
    question: Question


@dataclasses.dataclass(frozen=True, slots=True)
class Withdrawn:
    """A question that was handed out and no longer needs an answer."""

    id: int


@dataclasses.dataclass(frozen=True, slots=True)
class ClosedEpisode:
    """An episode of which nothing further is asked."""

    id: int


class CallerSession:
    """One connection of an orchestrator; belongs to one event loop."""

    def __init__(self, window: int) -> None:
        """Have at most so many questions open at once."""
        self.ignored = 0
        """Answers to questions that are not open."""
        self.closed = False
        """Whether the orchestrator has disconnected."""
        self._slots = asyncio.Semaphore(window)
        self._ids, self._episodes = itertools.count(1), itertools.count(1)
        self._open: dict[int, asyncio.Future[Answer | None]] = {}
        self._unsent: dict[int, Question] = {}
        self._notices: collections.deque[Withdrawn | ClosedEpisode] = collections.deque()
        self._news = asyncio.Event()

    async def ask(self, question: Question) -> Answer:
        """Send a question once the window has room, and return its answer; a cancelled call withdraws it.

        Raises:
            Unavailable: the orchestrator has disconnected.
        """
        async with self._slots:
            if self.closed:
                raise _disconnected()
            number = next(self._ids)
            future = self._open[number] = asyncio.get_running_loop().create_future()
            self._unsent[number] = question
            self._news.set()
            try:
                answer = await future
            finally:
                # Still open: it has no answer, and its caller no longer needs one.
                if self._open.pop(number, None) is not None and self._unsent.pop(number, None) is None:
                    self._notify(Withdrawn(number))
        if answer is None:
            raise _disconnected()
        return answer

    async def answered(self, question: Question, unanswered: str) -> Answer:
        """Like `ask`, but a problem is an error; `unanswered` is its message if the problem has none.

        Raises:
            BackendError: the orchestrator could not answer.
            Unavailable: it has disconnected.
        """
        answer = await self.ask(question)
        if isinstance(answer, Problem):
            raise BackendError(
                answer.message or unanswered,
                reason=shorten(answer.reason, MAX_REASON_BYTES) or None,
                retryable=answer.retryable,
            )
        return answer

    def answer(self, number: int, answer: Answer) -> None:
        """Accept the answer to the question of this id; an answer to one that is not open is counted and ignored."""
        if number in self._unsent or number not in self._open:
            self.ignored += 1
            return
        future = self._open.pop(number)
        if not future.done():  # the caller was cancelled just now
            future.set_result(answer)

    def new_episode(self) -> int:
        """A number for an episode, from 1, that no other one here has."""
        return next(self._episodes)

    def close_episode(self, number: int) -> None:
        """Tell the other end that nothing further is asked of an episode; needs no answer."""
        if not self.closed:
            self._notify(ClosedEpisode(number))

    def _notify(self, notice: Withdrawn | ClosedEpisode) -> None:
        self._notices.append(notice)
        self._news.set()

    async def frames(self) -> AsyncGenerator[PendingQuestion | Withdrawn | ClosedEpisode, None]:
        """The messages to send, until this is closed."""
        while not self.closed:
            if self._notices:
                yield self._notices.popleft()
            elif self._unsent:
                number = next(iter(self._unsent))
                yield PendingQuestion(number, self._unsent.pop(number))
            else:
                self._news.clear()
                await self._news.wait()

    def close(self) -> None:
        """End the session: open questions fail. Idempotent."""
        self.closed = True
        for future in self._open.values():
            if not future.done():
                future.set_result(None)
        self._open.clear()
        self._unsent.clear()
        self._notices.clear()
        self._news.set()


def _disconnected() -> Unavailable:
    return Unavailable("the caller has disconnected", reason=Reason.CALLER_LEFT)
