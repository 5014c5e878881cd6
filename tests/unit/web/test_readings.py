"""The samples that the page of an evaluation counts, while more of them come."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable
from typing import Any

import pytest

from crucible_bridge.errors import NotFound
from crucible_bridge.types import SampleResult, Verdict
from crucible_worker.web import readings
from crucible_worker.web.readings import SampleReadings


def result(n: int) -> SampleResult:
    """A result."""
    return SampleResult(evaluator="accuracy", sample_id=str(n), verdict=Verdict.CORRECT, score=1.0)


class Worker:
    """Answers GetSamples of evaluations by id, in pages; a call waits until it may go on."""

    def __init__(self, evaluations: dict[str, list[SampleResult]]) -> None:
        self.evaluations = evaluations
        self.calls = 0
        self.go_on: Callable[[int], Any] = lambda call: asyncio.sleep(0)
        self.evaluation = self

    async def get_samples(
        self, evaluation_id: str, *, without_records: bool, page_size: int, page_token: str = ""
    ) -> Any:
        self.calls += 1
        await self.go_on(self.calls)
        if evaluation_id not in self.evaluations:
            raise NotFound(f"no {evaluation_id}")
        start = int(page_token or 0)
        items = self.evaluations[evaluation_id][start : start + page_size]
        end = start + len(items)
        token = str(end) if end < len(self.evaluations[evaluation_id]) else ""
        return types.SimpleNamespace(items=tuple(items), next_page_token=token)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of three samples, and no rest between two readings."""
    monkeypatch.setattr(readings, "PAGE_SIZE", 3)
    monkeypatch.setattr(readings, "_AGAIN_LEAST_SECONDS", 0.0)
    monkeypatch.setattr(readings, "_AGAIN", 0.0)


def of(worker: Worker) -> SampleReadings:
    """Readings of a worker."""
    return SampleReadings(worker)  # pyright: ignore[reportArgumentType] - as much of a client as it needs


async def counted(found: SampleReadings, evaluation_id: str = "e") -> int:
    """How many samples an evaluation has, once all of them were counted."""
    while not (distributions := await found.distributions(evaluation_id))[1]:
        pass
    return sum(distributions[0].as_data()["accuracy"]["verdicts"].values())


async def test_the_first_samples_do_not_wait_for_the_rest(monkeypatch):
    """What has been counted is shown, and the answer says that there is more."""
    monkeypatch.setattr(readings, "FIRST_LOOK_SECONDS", 0.0)
    worker = Worker({"e": [result(n) for n in range(9)]})
    held = asyncio.Event()
    worker.go_on = lambda call: held.wait() if call > 1 else asyncio.sleep(0)
    found = of(worker)

    distributions, complete = await found.distributions("e")
    assert (distributions.as_data()["accuracy"]["verdicts"], complete) == ({"correct": 3}, False)
    held.set()
    assert await counted(found) == 9
    await found.aclose()


async def test_an_evaluation_that_moves_is_read_again():
    """After it has moved, not before."""
    worker = Worker({"e": [result(n) for n in range(4)]})
    found = of(worker)
    await counted(found)
    calls = worker.calls

    await counted(found)
    assert worker.calls == calls
    worker.evaluations["e"].append(result(4))
    found.moved("e")
    while await counted(found) != 5:
        await asyncio.sleep(0)
    await found.aclose()


async def test_no_page_is_read_while_somebody_searches():
    """The search has the worker for itself; reading continues after it."""
    worker = Worker({"e": [result(n) for n in range(9)]})
    found = of(worker)

    async with found.paused():
        looking = asyncio.create_task(counted(found))
        for _ in range(20):
            await asyncio.sleep(0)
        assert worker.calls == 0
    assert await looking == 9
    await found.aclose()


async def test_a_problem_of_the_worker_is_told():
    """And another look tries again."""
    worker = Worker({})
    found = of(worker)

    with pytest.raises(NotFound):
        await found.distributions("e")
    worker.evaluations["e"] = [result(0)]
    assert await counted(found) == 1
    await found.aclose()


async def test_what_is_counted_is_bounded(monkeypatch):
    """Beyond the bound the evaluations that were not looked at for the longest time are forgotten."""
    monkeypatch.setattr(readings, "MAX_COUNTED", 10)
    worker = Worker({name: [result(n) for n in range(6)] for name in "abc"})
    found = of(worker)
    for name in "abc":
        await counted(found, name)
    calls = worker.calls

    await counted(found, "c")
    assert worker.calls == calls
    await counted(found, "a")
    assert worker.calls > calls
    await found.aclose()
