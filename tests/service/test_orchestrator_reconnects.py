"""The client of a model that lives here comes back when its stream breaks, and goes on where it was."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import crucible_bridge
from crucible_bridge.errors import BridgeError, Code, Unavailable
from crucible_bridge.types import EvaluationState, Limits, SampledSequence
from tests.service.evaluation_kit import log_of, numbered, rig
from tests.service.orchestrator_kit import Line, Shouter, asked, line_to

BREAKS = 5
"""Times that the line is cut."""
SAMPLES = 120
"""Of the evaluation that it is cut under."""


class Cutting:
    """A model that has the line cut under it, now and then, and counts what it is asked."""

    def __init__(self, line: Line) -> None:
        self.prompts: list[str] = []
        self._line = line

    async def sample(self, prompt: str, params: Any, num_samples: int) -> list[SampledSequence]:
        self.prompts.append(prompt)
        if len(self.prompts) % (SAMPLES // BREAKS) == 0:
            self._line.cut()
        return [SampledSequence(text=prompt.upper(), tokens=())]


async def test_a_line_that_is_cut_costs_nothing_but_what_was_under_way():
    """The evaluation goes on by its id on the next stream, and ends as if nothing had happened."""
    async with rig() as it, line_to(it.worker.address) as line, crucible_bridge.connect(line.address) as bridge:
        model = Cutting(line)
        request = asked(dataset=numbered(SAMPLES), limits=Limits(concurrency=4))
        evaluation = await bridge.evaluation.evaluate_with_orchestrator_model(request, model=model)
        log = await log_of(it.worker.bridge, "e")
    written = [event.metadata["sample_id"] for event in log if "sample_id" in event.metadata]
    assert evaluation.state is EvaluationState.COMPLETED
    assert evaluation.metrics.values["accuracy"] == 1.0
    assert evaluation.attempt > BREAKS
    assert sorted(written) == sorted(f"s{number}" for number in range(SAMPLES))
    # No more than what was open is asked again at a break.
    assert SAMPLES < len(model.prompts) <= SAMPLES + 4 * (evaluation.attempt - 1)


async def test_a_worker_that_does_not_come_back_ends_the_callers_patience():
    """The error is that of the last attempt, and the evaluation stays to be gone on with."""
    async with rig() as it, line_to(it.worker.address) as line, crucible_bridge.connect(line.address) as bridge:

        class Ends:
            async def sample(self, prompt: str, params: Any, num_samples: int) -> list[SampledSequence]:
                line.up = False
                line.cut()
                return [SampledSequence(text="", tokens=())]

        with pytest.raises(Unavailable):
            await bridge.evaluation.evaluate_with_orchestrator_model(asked(), model=Ends(), patience=0.5)
        evaluation = await it.evaluation.evaluate_with_orchestrator_model(asked(), model=Shouter())
    assert evaluation.metrics.values["accuracy"] == 1.0
    assert evaluation.attempt == 2


async def test_who_was_sent_away_does_not_come_back():
    """Of two callers of one evaluation the later stays: they do not take it from each other for ever."""
    started = asyncio.Event()

    class Waits:
        async def sample(self, prompt: str, params: Any, num_samples: int) -> list[SampledSequence]:
            started.set()
            return await asyncio.get_running_loop().create_future()

    async with rig() as it:
        call = it.evaluation.evaluate_with_orchestrator_model
        first = asyncio.create_task(call(asked(), model=Waits()))
        await started.wait()
        second = await call(asked(), model=Shouter())
        with pytest.raises(BridgeError) as caught:
            await first
    assert (caught.value.code, caught.value.reason) == (Code.ABORTED, "TAKEN_OVER")
    assert second.metrics.values["accuracy"] == 1.0


async def test_a_caller_that_is_cancelled_leaves():
    """Cancelling the call ends the stream; the evaluation is interrupted, and can be gone on with."""
    started = asyncio.Event()

    class Waits:
        async def sample(self, prompt: str, params: Any, num_samples: int) -> list[SampledSequence]:
            started.set()
            return await asyncio.get_running_loop().create_future()

    async with rig() as it:
        call = asyncio.create_task(it.evaluation.evaluate_with_orchestrator_model(asked(), model=Waits()))
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        evaluation = await it.evaluation.evaluate_with_orchestrator_model(asked(), model=Shouter())
    assert (evaluation.state, evaluation.attempt) == (EvaluationState.COMPLETED, 2)
