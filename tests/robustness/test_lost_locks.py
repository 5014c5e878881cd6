"""Somebody removes the lock file during an evaluation: two attempts never write it both."""

from pathlib import Path

import pytest

from crucible_bridge.types import EvaluationState
from tests.robustness.evidence import SAMPLES, bits, check_interrupted_run, log_of, request, samples_of
from tests.robustness.harness import count_lines, until, workshop

CONCURRENCY = 8
CALLS = 2 * SAMPLES


@pytest.mark.parametrize("where", ["at the same worker", "at another one", "at one that starts later"])
async def test_an_owner_that_lost_its_lock_leaves_the_evaluation_to_the_next_attempt(tmp_path: Path, where: str):
    """Each sample is recorded once, only what was under way runs again, and the owner's log names the file."""
    call_file = tmp_path / "calls"
    async with workshop(tmp_path, {"m": {"latency": 0.05, "call_file": str(call_file)}}) as shop:
        first = next_one = await shop.start()
        if where == "at another one":
            next_one = await shop.start()
        whole = await first.bridge.evaluation.evaluate(request("whole", concurrency=CONCURRENCY))
        assert count_lines(call_file) == CALLS
        await first.bridge.evaluation.start_evaluation(request("lost", concurrency=1))
        await until(lambda: count_lines(call_file) > CALLS + CALLS // 50)
        (shop.state_dir / "owners.lock").unlink()
        if where == "at one that starts later":
            next_one = await shop.start()
        ended = await next_one.bridge.evaluation.evaluate(request("lost", concurrency=CONCURRENCY))

        assert (ended.state, ended.attempt, ended.done) == (EvaluationState.COMPLETED, 2, whole.done)
        assert bits(ended.metrics) == bits(whole.metrics)
        assert await samples_of(next_one.bridge, "lost") == await samples_of(next_one.bridge, "whole")
        check_interrupted_run(await log_of(next_one.bridge), ended)
        assert count_lines(call_file) <= 2 * CALLS + 2 * CONCURRENCY
        assert "lock_file_was_replaced" in first.log_file.read_text()
        # Other evaluations still run there.
        assert (await first.bridge.evaluation.evaluate(request("next"))).state is EvaluationState.COMPLETED
