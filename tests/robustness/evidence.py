"""What an evaluation left behind, and the rules that it must keep, however often its workers died."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

from crucible_bridge.client import Bridge, request_of
from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import (
    EvaluateRequest,
    Evaluation,
    EvaluationState,
    Limits,
    Metrics,
    Sample,
    SampleResult,
    SamplingParams,
)

__all__ = ["SAMPLES", "bits", "check_events", "check_interrupted_run", "log_of", "request", "samples_of"]

SAMPLES = 300
"""Of the evaluation that is killed again and again."""


def _target(number: int) -> str:
    """What the model says, but for every third sample."""
    return "another answer" if number % 3 == 2 else f"QUESTION {number}"


_DATASET = tuple(
    Sample(id=f"s{number}", input=f"question {number}", targets=(_target(number),)) for number in range(SAMPLES)
)


def request(evaluation_id: str, *, concurrency: int = 32, samples: int = SAMPLES, **fields: Any) -> EvaluateRequest:
    """An evaluation with accuracy and nll of the model `m`, whose result every worker can repeat to the last bit."""
    defaults = {
        "evaluation_id": evaluation_id,
        "run_id": "run",
        "step": 7,
        "model": "embedded:m",
        "evaluators": ("accuracy", "nll"),
        "dataset": _DATASET[:samples],
        "sampling": SamplingParams(max_tokens=32, temperature=1.0, seed=11),
        "limits": Limits(concurrency=concurrency),
    }
    return request_of(**{**defaults, **fields})


def bits(metrics: Metrics) -> dict[str, str]:
    """Metrics to the last bit."""
    return {key: value.hex() for key, value in metrics.values.items()} | dict(metrics.undefined)


async def samples_of(bridge: Bridge, evaluation_id: str) -> list[SampleResult]:
    """Every result but for the time it took."""
    samples = [sample async for sample in bridge.evaluation.all_samples(evaluation_id)]
    return [dataclasses.replace(sample, duration_ns=0) for sample in samples]


async def log_of(bridge: Bridge) -> list[Event]:
    """The log to its end, as a fresh subscriber reads it."""
    async with bridge.telemetry.subscribe(until_now=True) as stream:
        return [event async for event in stream]


def check_events(log: Sequence[Event]) -> None:
    """Sequences count from 1 without a gap."""
    assert [event.sequence for event in log] == list(range(1, len(log) + 1))


def check_interrupted_run(log: Sequence[Event], evaluation: Evaluation, samples: int = SAMPLES) -> None:
    """A completed evaluation has every event there once, in an order that makes sense, whatever interrupted it."""
    events = [event for event in log if event.evaluation_id == evaluation.evaluation_id]
    kinds = [event.kind for event in events]
    count = collections.Counter(kinds)
    assert evaluation.state is EvaluationState.COMPLETED
    assert evaluation.last_sequence == events[-1].sequence
    assert (kinds[0], kinds[-2:]) == (
        EventKind.EVALUATION_START,
        [EventKind.EVALUATION_COMPLETE, EventKind.EVALUATION_STOP],
    )
    assert [count[kind] for kind in (kinds[0], *kinds[-2:])] == [1, 1, 1]
    spans = [kind for kind in kinds if kind in (EventKind.EVALUATION_INTERRUPT, EventKind.EVALUATION_RESUME)]
    assert spans == [EventKind.EVALUATION_INTERRUPT, EventKind.EVALUATION_RESUME] * (evaluation.attempt - 1)
    runs = collections.Counter(
        (event.evaluator, event.metadata["sample_id"]) for event in events if event.kind is EventKind.SAMPLE_COMPLETE
    )
    assert len(runs) == samples * len(evaluation.results)
    assert set(runs.values()) == {1}
    for result in evaluation.results:
        mine = [event.kind for event in events if event.evaluator == result.evaluator.label]
        assert mine == [
            EventKind.EVALUATOR_START,
            *[EventKind.SAMPLE_COMPLETE] * samples,
            EventKind.EVALUATOR_COMPLETE,
        ]
    assert [result.n_scored for result in evaluation.results] == [samples] * len(evaluation.results)
    assert evaluation.done == evaluation.total == samples * len(evaluation.results)
