"""Rollouts of an evaluation whose worker is killed: another worker goes on, and a learner sees no difference."""

from __future__ import annotations

import asyncio
import contextlib

import numpy as np

from crucible_bridge.errors import Unavailable
from crucible_bridge.rollouts import PaddedRollouts, pad_rollouts
from crucible_bridge.types import EvaluatorSpec
from tests.robustness.evidence import bits, request, samples_of
from tests.robustness.harness import count_lines, until, workshop

SAMPLES = 30
ROLLOUTS = EvaluatorSpec(kind="rollout", options={"samples_per_prompt": 4, "intermediates": True})


def _arrays(batch: PaddedRollouts) -> list[bytes]:
    arrays = (batch.tokens, batch.action_mask, batch.padding_mask, batch.logprobs, batch.rewards, batch.groups)
    return [np.ascontiguousarray(array).tobytes() for array in arrays]


async def test_tokens_survive_the_worker_that_asked_for_them(tmp_path):
    """What was answered before the kill is not asked again, and the arrays are those of an undisturbed run."""
    call_file = tmp_path / "calls"
    async with workshop(tmp_path, {"m": {"latency": 0.02, "call_file": str(call_file)}}, seconds=60) as shop:
        worker, following = await shop.start(), shop.launch(standby=True)
        asked = request("killed", evaluators=[ROLLOUTS], samples=SAMPLES, concurrency=8)
        start = asyncio.create_task(worker.bridge.evaluation.evaluate(asked))
        await until(lambda: count_lines(call_file) >= 2 * SAMPLES)
        worker.kill()
        with contextlib.suppress(Unavailable):
            await start

        bridge = (await following.ready()).bridge
        resumed = await bridge.evaluation.evaluate(asked)
        calls = count_lines(call_file)
        whole = await bridge.evaluation.evaluate(request("whole", evaluators=[ROLLOUTS], samples=SAMPLES))
        killed, undisturbed = [pad_rollouts(await samples_of(bridge, name)) for name in ("killed", "whole")]

    assert resumed.attempt == 2
    assert calls < 4 * SAMPLES + 2 * SAMPLES  # but for those in flight, each once
    assert killed.tokens.shape[0] == 4 * SAMPLES
    assert _arrays(killed) == _arrays(undisturbed)
    assert bits(resumed.metrics) == bits(whole.metrics)
