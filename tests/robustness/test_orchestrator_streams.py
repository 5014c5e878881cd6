"""A model that lives with its caller, whose stream is lost again and again: nothing is lost, nothing asked in vain."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.client.evaluation import request_of
from crucible_bridge.codec.orchestrator import question_from_v1
from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import (
    Dataset,
    Datum,
    EvaluateRequest,
    Limits,
    ModelInput,
    Sample,
    SampledSequence,
    SampleQuestion,
    SamplingParams,
)
from crucible_bridge.v1 import evaluation_pb2 as pb
from crucible_worker.testing import run_worker
from tests.robustness.harness import until, workshop
from tests.service.evaluation_kit import log_of, numbered, samples_of
from tests.service.orchestrator_kit import Shouter, Stream, line_to, opened, start_of

SAMPLES = 10_000
"""Questions to be answered."""
LOSSES = 50
"""Streams that are lost on the way."""
KILLED_SAMPLES = 2_000
"""Of the evaluation whose worker is killed."""
WINDOW = 64
"""Questions open at once."""
LEFT_OPEN_SHARE = 0.3
"""Of the losses, those of an orchestrator that comes back while its old stream still stands."""
EARLY_SHARE = 0.1
"""How often it answers though the window has room."""


class Orchestrator:
    """Answers in any order, drops its stream at will, and compares what it is asked with what is written down."""

    def __init__(self, bridge: Bridge, address: str, request: EvaluateRequest, seed: int) -> None:
        self.asked: collections.Counter[str] = collections.Counter()
        self.written: set[str] = set()
        self.in_vain: list[str] = []
        self.peak = 0
        self._bridge, self._address, self._start = bridge, address, start_of(request, window=WINDOW)
        self._random = random.Random(seed)
        self._sequence = 0
        self._left_open = contextlib.AsyncExitStack()
        self.events: list[Event] = []

    async def stay(self, answers: int | None) -> pb.OrchestratorEnded | None:
        """One stream: so many answers, or until the end if None."""
        async with contextlib.AsyncExitStack() as held:
            stream = await held.enter_async_context(opened(self._address, self._start))
            await stream.accepted()
            # One that was left open until now has been sent away.
            await self._left_open.aclose()
            # What was written by the attempts before is in the log by now, and nothing of it may be asked.
            await self.read_log()
            before = set(self.written)
            open_now: dict[int, str] = {}
            while answers is None or answers > 0:
                frame = await stream.read()
                assert frame is not None
                match frame.WhichOneof("frame"):
                    case "ended":
                        return frame.ended
                    case "withdrawn":
                        del open_now[frame.withdrawn]
                    case "question":
                        prompt = _prompt(frame)
                        self.asked[prompt] += 1
                        self.in_vain += [prompt] * (prompt in before)
                        open_now[frame.question.id] = prompt
                self.peak = max(self.peak, len(open_now))
                given = await self._answer_some(stream, open_now)
                answers = None if answers is None else answers - given
            if self._random.random() < LEFT_OPEN_SHARE:
                self._left_open = held.pop_all()
        return None

    async def _answer_some(self, stream: Stream, open_now: dict[int, str]) -> int:
        """Answer some of what is open, drawn at random, whenever the window is full, and now and then before."""
        if len(self.asked) == SAMPLES:  # the window may not fill any more
            count = len(open_now)
        elif len(open_now) == WINDOW or self._random.random() < EARLY_SHARE:
            count = self._random.randint(1, len(open_now))
        else:
            return 0
        for number in self._random.sample(sorted(open_now), count):
            text = open_now.pop(number).upper()
            await stream.answer(number, (SampledSequence(text=text, tokens=()),))
        return count

    async def read_log(self) -> None:
        async with self._bridge.telemetry.subscribe(after_sequence=self._sequence, until_now=True) as log:
            async for event in log:
                self.events.append(event)
                self._sequence = event.sequence
                if event.kind is EventKind.SAMPLE_COMPLETE:
                    self.written.add(event.metadata["sample_id"])


def _prompt(frame: Any) -> str:
    question = question_from_v1(frame.question)
    assert isinstance(question, SampleQuestion)
    assert isinstance(question.prompt, str)
    return question.prompt


def _dataset(folder: Path) -> str:
    lines = (
        json.dumps({"id": f"q{number}", "input": f"q{number}", "target": f"Q{number}"}) for number in range(SAMPLES)
    )
    (folder / "data.jsonl").write_text("\n".join(lines))
    return "jsonl:data.jsonl"


def _request(dataset: Any, *, concurrency: int) -> EvaluateRequest:
    return request_of(
        evaluation_id="e",
        model="orchestrator:policy",
        evaluators="accuracy",
        dataset=dataset,
        sampling=SamplingParams(max_tokens=8),
        limits=Limits(concurrency=concurrency),
    )


@pytest.mark.parametrize("seed", [1])
async def test_a_stream_that_is_lost_fifty_times_loses_nothing(tmp_path: Path, seed: int):
    """Every sample ends once, with its own answer; what was written down is never asked again; the window holds."""
    request = _request(_dataset(tmp_path), concurrency=WINDOW)
    draw = random.Random(seed)
    async with run_worker({}, data_roots=(tmp_path,)) as worker:
        orchestrator = Orchestrator(worker.bridge, worker.address, request, seed)
        for _ in range(LOSSES):
            assert await orchestrator.stay(draw.randint(1, SAMPLES // LOSSES)) is None
        ended = await orchestrator.stay(None)
        assert ended is not None
        await orchestrator.read_log()
        samples = await samples_of(worker.bridge)
    kinds = collections.Counter(event.kind for event in orchestrator.events)
    assert ended.evaluation.metrics.values["accuracy"] == 1.0
    assert [(sample.sample_id, sample.output) for sample in samples] == [(f"q{n}", f"Q{n}") for n in range(SAMPLES)]
    assert orchestrator.in_vain == []
    assert len(orchestrator.asked) == SAMPLES
    assert kinds[EventKind.SAMPLE_COMPLETE] == SAMPLES
    assert kinds[EventKind.EVALUATION_INTERRUPT] == kinds[EventKind.EVALUATION_RESUME] == LOSSES
    assert orchestrator.peak <= WINDOW
    # What was open when a stream was lost had to be asked again; nothing else, but for answers on their way.
    assert orchestrator.asked.total() > SAMPLES


async def test_a_model_outlives_the_worker_that_asks_it(tmp_path: Path):
    """SIGKILL of the worker: the client goes on at another one, and what was written down is not asked again."""
    async with workshop(tmp_path, {}) as shop:
        first, second = await shop.start_several(2)
        async with line_to(first.address) as line, crucible_bridge.connect(line.address) as bridge:
            model = Shouter()
            call = asyncio.create_task(
                bridge.evaluation.evaluate_with_orchestrator_model(
                    _request(Dataset.of(numbered(KILLED_SAMPLES)), concurrency=4), model=model
                )
            )
            await until(lambda: len(model.prompts) > KILLED_SAMPLES // 3)
            line.worker = second.address
            first.kill()
            evaluation = await call
        log = await log_of(second.bridge, "e")
    written = collections.Counter(event.metadata["sample_id"] for event in log if "sample_id" in event.metadata)
    assert evaluation.metrics.values["accuracy"] == 1.0
    assert evaluation.attempt > 1
    assert written == dict.fromkeys((f"s{number}" for number in range(KILLED_SAMPLES)), 1)
    # What the dead worker was still to write may be asked twice; what is in the journal is not.
    assert KILLED_SAMPLES <= len(model.prompts) < 2 * KILLED_SAMPLES


async def test_likeliest_tokens_outlive_the_worker_that_asks_for_them(tmp_path: Path):
    """next_token_accuracy after a SIGKILL: recorded samples are not asked again, the metrics are those of one run."""
    tokens = [[number, number % 7, 9] for number in range(KILLED_SAMPLES)]
    samples = [
        Sample(input=Datum(model_input=ids[:-1], loss_fn_inputs={"target_tokens": ids[1:], "weights": [1.0, 1.0]}))
        for ids in tokens
    ]
    asked: collections.Counter[int] = collections.Counter()

    class Likeliest:
        """Holds 3 for the second token of each sequence, and 9 for the last."""

        async def compute_argmax(self, model_input: ModelInput) -> list[int | None]:
            asked[int(model_input.tokens()[0])] += 1
            return [None, 3, 9]

    request = request_of(
        evaluation_id="e",
        model="orchestrator:policy",
        evaluators="next_token_accuracy",
        dataset=Dataset.of(samples),
    )
    async with workshop(tmp_path, {}) as shop:
        first, second = await shop.start_several(2)
        async with line_to(first.address) as line, crucible_bridge.connect(line.address) as bridge:
            call = asyncio.create_task(
                bridge.evaluation.evaluate_with_orchestrator_model(request, model=Likeliest(), window=4)
            )
            await until(lambda: len(asked) > KILLED_SAMPLES // 3)
            line.worker = second.address
            first.kill()
            evaluation = await call
    right = sum(number % 7 == 3 for number in range(KILLED_SAMPLES))
    assert evaluation.metrics.values["next_token_accuracy"] == (right + KILLED_SAMPLES) / (2 * KILLED_SAMPLES)
    assert evaluation.metrics.values["sample_accuracy"] == right / KILLED_SAMPLES
    assert evaluation.attempt > 1
    assert len(asked) == KILLED_SAMPLES
    assert asked.total() < 2 * KILLED_SAMPLES
