"""What an evaluation is made of must be what it was at the start, at every attempt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crucible_bridge.errors import AlreadyExists, Code, FailedPrecondition
from crucible_bridge.types import EvaluateRequest, EvaluationState, Limits
from tests.robustness.evidence import log_of, request
from tests.robustness.harness import WorkerProcess, count_lines, until, workshop

SLOW_CONCURRENCY = 2


def _write(path: Path, lines: int, answer: str) -> None:
    records = [json.dumps({"input": f"question {number}", "target": answer}) for number in range(lines)]
    path.write_text("\n".join(records))


async def _killed(worker: WorkerProcess, wanted: EvaluateRequest, call_file: Path) -> None:
    await worker.bridge.evaluation.start_evaluation(wanted)
    await until(lambda: count_lines(call_file) > 10)
    worker.kill()


async def _refused(worker: WorkerProcess, wanted: EvaluateRequest) -> FailedPrecondition:
    with pytest.raises(FailedPrecondition) as refused:
        await worker.bridge.evaluation.start_evaluation(wanted)
    assert refused.value.code is Code.FAILED_PRECONDITION
    assert refused.value.metadata["fingerprint"] != refused.value.metadata["present_fingerprint"]
    stands = await worker.bridge.evaluation.get_evaluation(wanted.evaluation_id)
    assert (stands.state, stands.attempt) == (EvaluationState.INTERRUPTED, 1)
    return refused.value


async def test_changed_data_set_is_refused_on_going_on(tmp_path):
    """A file that is another one now is FAILED_PRECONDITION; put back, the evaluation goes on."""
    roots, call_file = tmp_path / "data", tmp_path / "calls"
    roots.mkdir()
    _write(roots / "set.jsonl", 100, "right")
    wanted = request("one", dataset="jsonl:set.jsonl", limits=Limits(concurrency=SLOW_CONCURRENCY))
    models = {"m": {"latency": 0.02, "call_file": str(call_file)}}
    async with workshop(tmp_path, models, data_roots=(roots,)) as shop:
        await _killed(await shop.start(), wanted, call_file)
        for lines, answer in ((100, "wrong"), (99, "right")):
            _write(roots / "set.jsonl", lines, answer)
            worker = shop.workers[-1] if shop.workers[-1].alive else await shop.start()
            error = await _refused(worker, wanted)
            assert (error.reason, error.field) == ("DATASET_CHANGED", "dataset")
        _write(roots / "set.jsonl", 100, "right")
        # Whoever was refused owns nothing: a third worker can go on.
        ended = await (await shop.start()).bridge.evaluation.evaluate(wanted)
        assert (ended.state, ended.attempt) == (EvaluationState.COMPLETED, 2)


async def test_changed_checkpoint_is_refused_on_going_on(tmp_path):
    """Another fingerprint under the same name is FAILED_PRECONDITION; a worker that has the old one goes on."""
    call_file = tmp_path / "calls"
    wanted = request("one", concurrency=SLOW_CONCURRENCY)
    model = {"latency": 0.01, "call_file": str(call_file)}
    async with workshop(tmp_path, {"m": model}) as shop:
        await _killed(await shop.start(), wanted, call_file)
        shop.models = {"m": {**model, "fingerprint": "another"}}
        error = await _refused(await shop.start(), wanted)
        assert (error.reason, error.field) == ("MODEL_CHANGED", "model")
        assert error.metadata["present_fingerprint"] == "another"
        shop.models = {"m": model}
        worker = await shop.start()
        ended = await worker.bridge.evaluation.evaluate(request("one", concurrency=64))
        assert (ended.state, ended.attempt) == (EvaluationState.COMPLETED, 2)


async def test_other_specification_is_refused_in_every_state(tmp_path):
    """Running, interrupted or ended: the id is taken, the error names what differs, and nothing is written."""
    call_file = tmp_path / "calls"
    async with workshop(tmp_path, {"m": {"latency": 0.02, "call_file": str(call_file)}}) as shop:
        other = request("one", step=8)

        async def refused(worker: WorkerProcess, state: EvaluationState) -> None:
            with pytest.raises(AlreadyExists) as taken:
                await worker.bridge.evaluation.start_evaluation(other)
            fingerprints = {taken.value.metadata[key] for key in ("fingerprint", "requested_fingerprint")}
            assert len(fingerprints) == 2
            assert "step" in taken.value.message
            assert (await worker.bridge.evaluation.get_evaluation("one")).state is state

        owner, worker = await shop.start_several(2)
        await owner.bridge.evaluation.start_evaluation(request("one"))
        await until(lambda: count_lines(call_file) > 10)
        await refused(worker, EvaluationState.RUNNING)
        owner.kill()
        await refused(worker, EvaluationState.INTERRUPTED)
        # Limits and labels are no part of the specification.
        again = request("one", limits=Limits(concurrency=100), labels={"a": "b"})
        assert (await worker.bridge.evaluation.evaluate(again)).state is EvaluationState.COMPLETED
        length = len(await log_of(worker.bridge))
        await refused(worker, EvaluationState.COMPLETED)
        assert len(await log_of(worker.bridge)) == length
