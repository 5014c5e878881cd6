"""Limits of rates: the calls of a server slow down together, and none is lost while it answers others."""

import asyncio

import pytest

from crucible_bridge.errors import BackendError, Cancelled
from crucible_bridge.types import ModelInput, SamplingParams
from crucible_worker.inference import pacing, retries
from crucible_worker.inference.pacing import LIMITED_ATTEMPTS, CallPace
from crucible_worker.inference.retries import ATTEMPTS_PER_CALL, RetryingModel, RetryPolicy
from crucible_worker.testing import ScriptedModel
from crucible_worker.util.tasks import Backoff

PROMPT, PARAMS = ModelInput.of([1, 2]), SamplingParams(max_tokens=1)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch):
    """Waits that a server does not name take no time to speak of."""
    for module in (pacing, retries):
        monkeypatch.setattr(module, "RATE_BACKOFF", Backoff(0.0005, 0.002))


class Limited:
    """Answers so many calls in a window of its own clock, which each call moves by one; refuses the others."""

    def __init__(self, calls: int, window: int, wait: float | None = None) -> None:
        self.calls, self.window, self.wait = calls, window, wait
        self.now = self.answered = self.refused = self.in_flight = self.peak = 0

    async def call(self, number: int) -> int:
        """Echo the number."""
        self.now += 1
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            await asyncio.sleep(0)
        finally:
            self.in_flight -= 1
        if self.now % self.window >= self.calls:
            self.refused += 1
            raise BackendError("too many", reason="BACKEND_RATE_LIMITED", retry_after=self.wait)
        self.answered += 1
        return number


def left() -> float:
    """Seconds that a call has."""
    return 600.0


@pytest.mark.parametrize("wait", [None, 0.0, 0.001])
async def test_no_call_is_lost_to_a_limit_of_the_rate(wait: float | None):
    """A server that answers one call of ten gets each of 60 calls again until it has answered them all."""
    server, gate, model = Limited(1, 10, wait), RetryPolicy(60), ScriptedModel()
    calls = (gate.call(server.call, (number,), seconds_left=left, model=model) for number in range(60))
    assert await asyncio.gather(*calls) == list(range(60))
    assert server.answered == 60


async def test_a_server_that_answers_nothing_but_429_ends_the_call():
    """Six refusals without any answer between: the error is that of the call, and takes nothing of the budget."""
    server, gate, model = Limited(0, 1), RetryPolicy(1), ScriptedModel()
    with pytest.raises(BackendError, match="too many"):
        await gate.call(server.call, (1,), seconds_left=left, model=model)
    assert server.refused == ATTEMPTS_PER_CALL


async def test_a_call_without_a_time_limit_ends_all_the_same():
    """Others are answered, this one never is: its tries are bounded."""
    gate, model, tries = RetryPolicy(1), ScriptedModel(), 0

    async def other() -> None:
        return None

    async def refused() -> None:
        nonlocal tries
        tries += 1
        raise BackendError("too many", reason="BACKEND_RATE_LIMITED", retry_after=0.0)

    async def between() -> None:
        while True:
            await gate.call(other, model=model)
            await asyncio.sleep(0)

    answering = asyncio.create_task(between())
    with pytest.raises(BackendError, match="too many"):
        await gate.call(refused, model=model)
    answering.cancel()
    assert tries <= LIMITED_ATTEMPTS


async def test_fewer_at_once_after_a_refusal_and_more_after_answers():
    """A refusal halves the calls at once, once for a burst; answers raise it by one, until there is no limit."""
    pace = CallPace()
    for _ in range(8):
        await pace.begin()
    for _ in range(8):  # sent together
        pace.refused(0.0 if pace.limit is None else -1.0, 0.0)
        pace.end()
    assert pace.limit == 4
    for _ in range(4):
        pace.answered()
    assert pace.limit == 5
    for _ in range(5 + 6 + 7 + 8):
        pace.answered()
    assert pace.limit is None


async def test_calls_wait_in_the_order_of_their_arrival_and_go_when_it_closes():
    """One at a time after refusals; a call that gives up leaves its place, and the closed gate refuses the rest."""
    gate, model, order = RetryPolicy(1), ScriptedModel(), []
    pace = gate._pace_of(model)
    await pace.begin()
    pace.refused(0.0, 0.0)
    assert pace.limit == 1

    async def note(number: int) -> None:
        order.append(number)

    tasks = [asyncio.create_task(gate.call(note, (number,), model=model)) for number in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.wait([tasks[0]])
    pace.end()
    await asyncio.gather(*tasks[1:])
    assert order == [1, 2]
    await pace.begin()
    pace.refused(float("inf"), 3600.0)
    late = asyncio.create_task(gate.call(note, (3,), model=model))
    await asyncio.sleep(0)
    gate.close()
    with pytest.raises(Cancelled):
        await late


async def test_a_call_that_is_cancelled_as_its_turn_comes_leaves_its_place():
    """It ends as cancelled, and the next one has the turn, in whichever order both happen."""
    for end_first in (False, True):
        pace = CallPace()
        await pace.begin()
        pace.refused(0.0, 0.0)
        first, second = (asyncio.create_task(pace.begin()) for _ in range(2))
        await asyncio.sleep(0)
        if end_first:
            pace.end()
        first.cancel()
        if not end_first:
            pace.end()
        with pytest.raises(asyncio.CancelledError):
            await first
        await second
        pace.end()
        await pace.begin()


class Spent:
    """A budget that is spent."""

    reached = "a larger max_cost: 1 of 1 are spent"

    async def room(self) -> None:
        await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        """Nothing waits here."""


async def test_a_sample_that_ends_while_it_waits_for_a_budget_leaves_its_turn():
    """Otherwise the server's turns would be used up by samples that are gone."""
    gate, model = RetryPolicy(1), ScriptedModel()
    pace = gate._pace_of(model)
    await pace.begin()
    pace.refused(0.0, 0.0)
    pace.end()
    gate.budget = Spent()
    waiting = asyncio.create_task(RetryingModel(model, gate).sample(PROMPT, PARAMS))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.budget = None
    async with asyncio.timeout(60):
        assert len(await RetryingModel(model, gate).sample(PROMPT, PARAMS)) == 1
