"""What the tests of evaluations share: short requests, models that wait to be let go, logs read to their end."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from crucible_bridge.client import Bridge
from crucible_bridge.client.evaluation import request_of
from crucible_bridge.errors import BackendError, BridgeError, Code, Unavailable
from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import (
    Dataset,
    EvaluateRequest,
    Evaluation,
    EvaluationState,
    EvaluatorSpec,
    Limits,
    ModelInput,
    Sample,
    SampledSequence,
    SampleResult,
    SamplingParams,
    Verdict,
)
from crucible_worker.datasets.loading import LoadedDataset
from crucible_worker.engine import preparation
from crucible_worker.testing import EventRecorder, RunningWorker, ScriptedModel, record_events, run_worker
from crucible_worker.util.limits import WorkerLimits

SHOUT = (Sample(input="a", targets=("A",)), Sample(input="b", targets=("B",)))
"""Two samples that a model which answers in upper case gets right."""


@dataclasses.dataclass(kw_only=True)
class HeldModel(ScriptedModel):
    """Answers once it is let go."""

    let_go: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    """Set it to have every answer given."""
    asked: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    """Set when it has been asked for an answer."""

    @property
    def sampling(self) -> HeldModel:
        return self

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> Sequence[SampledSequence]:
        answers = await super().sample(prompt, params, num_samples)
        self.asked.set()
        await self.let_go.wait()
        return answers


@dataclasses.dataclass(frozen=True)
class Rig:
    """A worker with one model, `embedded:m`, and all that it tells."""

    worker: RunningWorker
    model: Any
    recorder: EventRecorder

    @property
    def evaluation(self) -> Any:
        return self.worker.bridge.evaluation

    async def ended(self, evaluation_id: str) -> Evaluation:
        """Wait for the last event of an evaluation, and get it."""
        last = (EventKind.EVALUATION_STOP, EventKind.EVALUATION_EXCEPTION)
        await self.recorder.wait_for(lambda event: event.evaluation_id == evaluation_id and event.kind in last)
        return await self.evaluation.get_evaluation(evaluation_id)

    async def told(self, kind: EventKind, evaluation_id: str = "e") -> Event:
        """Wait for the first event of a kind."""
        return await self.recorder.wait_for(lambda event: event.kind is kind and event.evaluation_id == evaluation_id)


@contextlib.asynccontextmanager
async def rig(model: ScriptedModel | None = None, **options: Any) -> AsyncIterator[Rig]:
    """A worker whose model is this one, a plain one if None; options are those of `run_worker`, limits by name too."""
    names = {field.name for field in dataclasses.fields(WorkerLimits)}
    limits = {name: options.pop(name) for name in names & options.keys()}
    if limits:
        options["limits"] = WorkerLimits(**limits)
    model = ScriptedModel() if model is None else model
    async with run_worker({"m": model}, **options) as worker, record_events(worker.bridge) as recorder:
        yield Rig(worker, model, recorder)


def asked(**fields: Any) -> EvaluateRequest:
    """Evaluation `e` of two samples by `accuracy`, however many of them are errors, but for what is given."""
    defaults = {
        "evaluation_id": "e",
        "model": "embedded:m",
        "evaluators": ["accuracy"],
        "dataset": SHOUT,
        "sampling": SamplingParams(max_tokens=8),
        "limits": Limits(max_unscored_share=1.0),
    }
    return request_of(**{**defaults, **fields})


def accuracy(name: str | None = None, **options: Any) -> EvaluatorSpec:
    """The evaluator `accuracy` with options."""
    return EvaluatorSpec(kind="accuracy", name=name, options=options)


def nll(name: str | None = None, **options: Any) -> EvaluatorSpec:
    """The evaluator `nll` with options."""
    return EvaluatorSpec(kind="nll", name=name, options=options)


def numbered(count: int) -> list[Sample]:
    """So many samples, "s0" and on, all of which a model that answers in upper case gets right."""
    return [Sample(id=f"s{index}", input=f"q{index}", targets=(f"Q{index}",)) for index in range(count)]


def failing(*texts: str, retryable: bool = False, retry_after: float | None = None) -> Any:
    """A fault: calls with these prompts fail; every call where none is given."""

    def fault(call: Any) -> BridgeError | None:
        if texts and call.text not in texts:
            return None
        return BackendError("is out of order", reason="BACKEND_DOWN", retryable=retryable, retry_after=retry_after)

    return fault


async def log_of(bridge: Bridge, evaluation_id: str | None = None, **filters: Any) -> list[Event]:
    """Every event of the log as it is now, of one evaluation if that is said."""
    async with bridge.telemetry.subscribe(until_now=True, **filters) as stream:
        return [event async for event in stream if evaluation_id in (None, event.evaluation_id)]


async def kinds_of(bridge: Bridge, evaluation_id: str = "e") -> list[EventKind]:
    """Kinds of an evaluation's events, in order, but for PROGRESS, which comes by the clock."""
    return [
        event.kind for event in await log_of(bridge, evaluation_id) if event.kind is not EventKind.EVALUATION_PROGRESS
    ]


def by_evaluator(events: Iterable[Event]) -> dict[str, list[EventKind]]:
    """Kinds of events in order, by evaluator; those of none, but for PROGRESS, under an empty text."""
    kinds: dict[str, list[EventKind]] = {}
    for event in events:
        if event.kind is not EventKind.EVALUATION_PROGRESS:
            kinds.setdefault(event.evaluator, []).append(event.kind)
    return kinds


async def samples_of(bridge: Bridge, evaluation_id: str = "e", **filters: Any) -> list[SampleResult]:
    """What became of every sample."""
    return [sample async for sample in bridge.evaluation.all_samples(evaluation_id, **filters)]


async def verdicts_of(bridge: Bridge, evaluation_id: str = "e") -> list[Verdict]:
    """Verdict of every sample."""
    return [sample.verdict for sample in await samples_of(bridge, evaluation_id)]


async def refused(call: Any, code: Code, reason: str, field: str = "") -> BridgeError:
    """The error that a call ends with, which must be this one."""
    with pytest.raises(BridgeError) as caught:
        await call
    error = caught.value
    assert (error.code, error.reason, error.field) == (code, reason, field), str(error)
    return error


async def drained_at(call: Any, evaluation_id: str) -> None:
    """A waiting call must end as that of a worker which drains, and name its evaluation."""
    error = await refused(call, Code.UNAVAILABLE, "DRAINING")
    assert isinstance(error, Unavailable)
    assert error.metadata.get("evaluation_id") == evaluation_id


@contextlib.contextmanager
def held_loading(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Data sets whose loading waits, at a line, until it is let go or nobody wants it; what says that, and lets go."""
    begun, let_go = threading.Event(), threading.Event()
    load = preparation.load

    def slowly(dataset: Dataset, *, go_on: Callable[[], None], **sources: Any) -> LoadedDataset:
        begun.set()
        while not let_go.wait(0.01):
            go_on()
        return load(dataset, go_on=go_on, **sources)

    monkeypatch.setattr(preparation, "load", slowly)
    yield begun, let_go
    let_go.set()


def state_of(evaluation: Evaluation) -> tuple[EvaluationState, str | None]:
    """State of an evaluation, and the reason of its problem."""
    return evaluation.state, None if evaluation.problem is None else evaluation.problem.reason
