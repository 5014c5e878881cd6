"""Batches of questions to a model: places of errors, order, concurrency, and a deadline that is over."""

from __future__ import annotations

import asyncio

import pytest

from crucible_bridge.errors import BackendError, BridgeError, DeadlineExceeded
from crucible_bridge.types import EmbeddedModel, Problem
from crucible_worker.inference.batches import ITEMS_A_PASS, BatchBounds, ask_all, each
from crucible_worker.inference.retries import RetryingModel
from crucible_worker.testing import ScriptedBackend, ScriptedModel


async def test_indices_are_asked_in_order_and_so_many_at_once():
    """None is left out, none asked twice."""
    started: list[int] = []
    running, peak = 0, 0

    async def ask(index: int) -> None:
        nonlocal running, peak
        started.append(index)
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0)
        running -= 1

    await each(20, ask, 3)

    assert (started, peak) == (list(range(20)), 3)


async def test_other_work_goes_on_between_items_that_do_not_wait():
    """Such as thousands that are refused at once: the event loop has its turn after a few of them."""
    turns: list[int] = []
    asked: list[int] = []

    async def ask(index: int) -> None:
        asked.append(index)

    async def other() -> None:
        while len(asked) < 100:
            turns.append(len(asked))
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    await each(100, ask, 1)
    await beside

    assert len(turns) >= 100 // ITEMS_A_PASS


async def test_the_first_error_ends_all_and_comes_alone():
    """Not as a group, and what was under way is cancelled."""
    cancelled: list[int] = []

    async def ask(index: int) -> None:
        if index == 1:
            raise BackendError("is down")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(index)
            raise

    with pytest.raises(BackendError, match="is down"):
        await each(10, ask, 3)

    assert sorted(cancelled) == [0, 2]


async def test_after_the_deadline_no_call_is_made():
    """Not even those that could start before a timer fires."""
    model, asked = ScriptedModel(), []

    def asker(gated: RetryingModel):
        async def ask(index: int, question: str) -> str:
            asked.append(question)
            return question

        return ask

    now = asyncio.get_running_loop().time()
    bounds = BatchBounds(concurrency=2, item_seconds=1.0, deadline=now)
    with pytest.raises(DeadlineExceeded) as over:
        await ask_all(
            {EmbeddedModel: ScriptedBackend({"m": model})}, EmbeddedModel("m"), ["a", "b"], asker, bounds=bounds
        )

    assert over.value.field == "limits.deadline_ms"
    assert (asked, model.loads) == ([], 0)


async def test_questions_that_are_problems_are_their_own_answers():
    """Errors of the others become problems, everything at its place."""
    unread = Problem(reason="INVALID_FIELD", message="is odd")

    def asker(gated: RetryingModel):
        async def ask(index: int, question: str) -> str:
            if question == "bad":
                raise BridgeError("fails", reason="R", field=f"items[{index}]")
            return f"{index} {question}"

        return ask

    answers = await ask_all(
        {EmbeddedModel: ScriptedBackend({"m": ScriptedModel()})},
        EmbeddedModel("m"),
        ["a", unread, "bad", "b"],
        asker,
        bounds=BatchBounds(concurrency=2, item_seconds=1.0),
    )

    failed = Problem(reason="R", message="fails", field="items[2]")
    assert answers.results == ["0 a", unread, failed, "3 b"]
    assert answers.model_fingerprint == "scripted"
