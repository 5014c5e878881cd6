"""Somebody removes the lock file under a running evaluation: two workers never write it both."""

from pathlib import Path

from crucible_bridge.types import EvaluationState
from tests.robustness.evidence import SAMPLES, bits, check_interrupted_run, log_of, request, samples_of
from tests.robustness.harness import count_lines, until, workshop

CONCURRENCY = 8
CALLS = 2 * SAMPLES


async def test_a_worker_that_lost_its_lock_leaves_the_evaluation_to_who_has_it(tmp_path: Path):
    """Each sample is recorded once; only what was under way runs again; the log of the first one names the file."""
    call_file = tmp_path / "calls"
    async with workshop(tmp_path, {"m": {"latency": 0.05, "call_file": str(call_file)}}) as shop:
        first, second = await shop.start_several(2)
        whole = await first.bridge.evaluation.evaluate(request("whole", concurrency=CONCURRENCY))
        assert count_lines(call_file) == CALLS
        await first.bridge.evaluation.start_evaluation(request("shared", concurrency=CONCURRENCY))
        await until(lambda: count_lines(call_file) > CALLS + CALLS // 4)
        (shop.state_dir / "owners.lock").unlink()
        ended = await second.bridge.evaluation.evaluate(request("shared", concurrency=CONCURRENCY))

        assert (ended.state, ended.attempt, ended.done) == (EvaluationState.COMPLETED, 2, whole.done)
        assert bits(ended.metrics) == bits(whole.metrics)
        assert await samples_of(second.bridge, "shared") == await samples_of(second.bridge, "whole")
        check_interrupted_run(await log_of(second.bridge), ended)
        assert count_lines(call_file) <= 2 * CALLS + 2 * CONCURRENCY
        assert "lock_file_was_replaced" in first.log_file.read_text()
        # It goes on with all else.
        assert (await first.bridge.evaluation.evaluate(request("next"))).state is EvaluationState.COMPLETED


async def test_a_worker_that_lost_its_lock_begins_another_attempt_after_the_first(tmp_path: Path):
    """The same call at the same worker: its two attempts do not run beside each other."""
    call_file = tmp_path / "calls"
    async with workshop(tmp_path, {"m": {"latency": 0.05, "call_file": str(call_file)}}) as shop:
        worker = await shop.start()
        whole = await worker.bridge.evaluation.evaluate(request("whole", concurrency=CONCURRENCY))
        await worker.bridge.evaluation.start_evaluation(request("again", concurrency=CONCURRENCY))
        await until(lambda: count_lines(call_file) > CALLS + CALLS // 4)
        (shop.state_dir / "owners.lock").unlink()
        ended = await worker.bridge.evaluation.evaluate(request("again", concurrency=CONCURRENCY))

        assert (ended.state, ended.attempt, ended.done) == (EvaluationState.COMPLETED, 2, whole.done)
        assert bits(ended.metrics) == bits(whole.metrics)
        assert await samples_of(worker.bridge, "again") == await samples_of(worker.bridge, "whole")
        check_interrupted_run(await log_of(worker.bridge), ended)
        assert count_lines(call_file) <= 2 * CALLS + 2 * CONCURRENCY
