"""kill -9 between the ends of two evaluators: what has ended stands, and no event of it is written twice."""

from __future__ import annotations

from pathlib import Path

from crucible_bridge.client import Bridge
from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import EvaluateRequest
from tests.robustness.evidence import bits, check_interrupted_run, log_of, request, samples_of
from tests.robustness.harness import count_lines, workshop

SAMPLES, CONCURRENCY, LATENCY = 40, 2, 0.05
"""The long evaluator takes a second from the end of the short one on."""


def _asked(evaluation_id: str) -> EvaluateRequest:
    return request(evaluation_id, concurrency=CONCURRENCY, samples=SAMPLES)


async def _first_end(bridge: Bridge) -> Event:
    """Wait for the first end of an evaluator."""
    async with bridge.evaluation.watch_evaluation("killed") as events:
        return await anext(event async for event in events if event.kind is EventKind.EVALUATOR_COMPLETE)


async def test_an_evaluator_that_has_ended_stands_when_its_worker_is_killed(tmp_path: Path):
    """Another worker takes over: the short evaluator is neither asked nor told again, and every bit is the same."""
    call_file = tmp_path / "calls"
    models = {"m": {"latency": LATENCY, "call_file": str(call_file)}}
    async with workshop(tmp_path, models, seconds=120) as shop:
        owner, other = await shop.start_several(2)
        whole = await other.bridge.evaluation.evaluate(_asked("whole"))
        await owner.bridge.evaluation.start_evaluation(_asked("killed"))
        short = await _first_end(other.bridge)
        owner.kill()
        before = count_lines(call_file)
        evaluation = await other.bridge.evaluation.evaluate(_asked("killed"))
        after = count_lines(call_file)
        log = await log_of(other.bridge)
        found, wanted = [await samples_of(other.bridge, name) for name in ("killed", "whole")]

    assert (short.evaluator, evaluation.attempt) == ("nll", 2)
    assert after - before <= SAMPLES
    check_interrupted_run(log, evaluation, SAMPLES)
    assert bits(evaluation.metrics) == bits(whole.metrics)
    assert found == wanted
    ends = [event for event in log if event.evaluation_id == "killed" and event.kind is EventKind.EVALUATOR_COMPLETE]
    assert ends[0] == short
    assert short.measurements["nll"] == evaluation.metrics.values["nll"]
    assert all(0 < event.duration_ns <= evaluation.duration_ns for event in ends)
