"""Workers that die or are stopped during an evaluation: without a call, another one runs the rest."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from crucible_bridge.types import Dataset, EvaluateRequest, EvaluationState, InlineDataset
from tests.robustness.evidence import SAMPLES, bits, check_interrupted_run, log_of, request, samples_of
from tests.robustness.harness import Workshop, count_lines, until, workshop

SECONDS = 120.0
"""For a resumption on a machine that has other things to do."""
CALLS = 2 * SAMPLES


def wanted(evaluation_id: str) -> EvaluateRequest:
    """An evaluation of a file, which any worker can read again."""
    return request(evaluation_id, concurrency=8, dataset=Dataset.of("jsonl:questions.jsonl"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The questions of `request` in a file."""
    folder = tmp_path / "data"
    folder.mkdir()
    source = request("any").dataset.source
    assert isinstance(source, InlineDataset)
    rows = [{"id": one.id, "input": one.input, "target": one.targets[0]} for one in source.samples]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


async def ended(shop: Workshop, evaluation_id: str) -> bool:
    """Whether a worker that is left says that it is completed."""
    evaluation = await shop.survivor.bridge.evaluation.get_evaluation(evaluation_id)
    return evaluation.state is EvaluationState.COMPLETED


@pytest.mark.parametrize("how", ["kill", "terminate"])
async def test_what_nobody_asks_for_again_is_finished(tmp_path: Path, data: Path, how: str):
    """Three workers are ended one after the other at any instant; the last one finishes it, to the last bit."""
    call_file = tmp_path / "calls"
    model = {"latency": 0.1, "call_file": str(call_file)}
    rng = random.Random(how)
    async with workshop(
        tmp_path, {"m": model}, data_roots=(data,), resume_interrupted=True, seconds=4 * SECONDS
    ) as shop:
        first, *others = await shop.start_several(4)
        await first.bridge.evaluation.evaluate(wanted("whole"))
        undisturbed = count_lines(call_file)
        await first.bridge.evaluation.start_evaluation(wanted("ended"))
        for worker in [first, *others[:2]]:
            made = count_lines(call_file) + rng.randrange(1, CALLS // 4)
            await until(lambda made=made: count_lines(call_file) >= made, SECONDS)
            getattr(worker, how)()
            await until(lambda worker=worker: not worker.alive, SECONDS)
        await until(lambda: ended(shop, "ended"), SECONDS)

        bridge = shop.survivor.bridge
        whole, finished = [await bridge.evaluation.get_evaluation(name) for name in ("whole", "ended")]
        assert bits(finished.metrics) == bits(whole.metrics)
        check_interrupted_run(await log_of(bridge), finished)
        assert await samples_of(bridge, "ended") == await samples_of(bridge, "whole")
        assert undisturbed == CALLS
        assert finished.attempt >= 2
