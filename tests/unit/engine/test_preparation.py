"""What an evaluation takes to run is looked for only as long as somebody waits for it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Dataset, EvaluatorSpec, InlineDataset, PlannedEvaluation, Prompt, Sample
from crucible_worker.datasets.loading import LoadedDataset
from crucible_worker.engine import preparation
from crucible_worker.engine.preparation import Preparer, Sources


class Checker:
    """An evaluator that waits at each sample it checks until it is let go."""

    def __init__(self) -> None:
        self.checked: list[str] = []
        self.begun, self.let_go = threading.Event(), threading.Event()

    def check_sample(self, sample: Sample) -> None:
        self.checked.append(sample.id)
        self.begun.set()
        self.let_go.wait()


async def test_checking_inline_samples_is_given_up_when_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the next sample is checked, and the thread is free for others."""
    monkeypatch.setattr(preparation, "PREPARATIONS", 1)
    spec, checker = EvaluatorSpec(kind="nll"), Checker()
    samples = [Sample(id=f"s{index}", input="a") for index in range(9)]
    planned = PlannedEvaluation(evaluators=(spec,), dataset=Dataset.of(samples))
    preparer = Preparer(Sources(backends={}, data_roots=(), builtins={}))
    try:
        first = asyncio.create_task(preparer.load(planned.dataset, cast(Any, ((spec, checker),))))
        await asyncio.to_thread(checker.begun.wait)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        checker.let_go.set()

        loaded = await preparer.load(planned.dataset, ())
    finally:
        preparer.close()
    assert checker.checked == ["s0"]
    assert len(loaded.samples) == len(samples)


async def test_tasks_take_no_prompt() -> None:
    """What runs tasks of its own would never show it to a model."""

    class Tasks:
        stops_itself = True

    samples = (Sample(id="a", input="task"),)
    spec = EvaluatorSpec(kind="inspect")
    dataset = Dataset(source=InlineDataset(samples), prompt=Prompt(system="be"))
    planned = PlannedEvaluation(evaluators=(spec,), dataset=dataset)
    preparer = Preparer(Sources(backends={}, data_roots=(), builtins={}))
    try:
        with pytest.raises(InvalidField, match="inspect runs tasks") as caught:
            await preparer.prompter(
                planned, cast(Any, ((spec, Tasks()),)), LoadedDataset(samples=samples, fingerprint="f")
            )
    finally:
        preparer.close()
    assert caught.value.field == "dataset.prompt"
