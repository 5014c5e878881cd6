"""A subscriber that reads nothing costs bounded memory, slows nobody, and misses nothing once it reads on."""

from __future__ import annotations

import asyncio
import time

import pytest

import crucible_bridge
from crucible_bridge.client import EventStream
from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import EvaluateRequest, EvaluationState, EvaluatorSpec
from tests.robustness.evidence import check_events, log_of, request
from tests.robustness.harness import workshop

SAMPLES = 250
MOST_GROWTH_BYTES = 64 * 1024 * 1024
"""Of the worker's memory while subscribers stall; measured: some 10 MB."""
STALLED = 8
"""Subscribers that read nothing."""


def _large(evaluation_id: str, runs: int) -> EvaluateRequest:
    repeats = EvaluatorSpec(kind="accuracy", options={"samples_per_prompt": runs // SAMPLES})
    return request(evaluation_id, concurrency=256, samples=SAMPLES, evaluators=(repeats,))


async def _live(stream: EventStream, last: str) -> list[Event]:
    """Read until an evaluation has ended."""
    events = []
    async for event in stream:
        events.append(event)
        if event.kind is EventKind.EVALUATION_STOP and event.evaluation_id == last:
            break
    return events


@pytest.mark.parametrize(("runs", "seconds"), [(50_000, 0.0), pytest.param(50_000, 60.0, marks=pytest.mark.torture)])
async def test_stalled_subscribers_cost_little_and_slow_nobody(tmp_path, runs, seconds):
    """Evaluations end and others receive all while some read nothing; these then get everything, in order."""
    async with workshop(tmp_path, {"m": {}}, seconds=600 + seconds) as shop:
        worker = await shop.start()
        await worker.bridge.evaluation.evaluate(_large("warm-up", runs // 10))
        # A connection of its own: flow control of one that nobody reads from holds up all its streams.
        async with crucible_bridge.connect(worker.address) as idle:
            stalled = [idle.telemetry.subscribe() for _ in range(STALLED)]
            first = [await anext(stream) for stream in stalled]
            before, began, number, received = worker.rss(), time.monotonic(), 0, []
            while number == 0 or time.monotonic() - began < seconds:
                number += 1
                live = worker.bridge.telemetry.subscribe()
                reading = asyncio.create_task(_live(live, f"large-{number}"))
                ended = await worker.bridge.evaluation.evaluate(_large(f"large-{number}", runs))
                assert ended.state is EvaluationState.COMPLETED
                received = await reading
                await live.aclose()
            growth = worker.rss() - before
            print(f"{len(received)} events, {growth / 2**20:.1f} MB more, {number} evaluations")
            assert growth < MOST_GROWTH_BYTES
            log = await log_of(worker.bridge)
            check_events(log)
            assert len(log) > runs
            assert received == log
            for stream, event in zip(stalled[:2], first):
                assert [event, *await _live(stream, f"large-{number}")] == log
