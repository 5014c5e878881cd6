"""Pairs of an evaluation whose worker is killed: another worker measures the rest, and the metrics are the same."""

from __future__ import annotations

import asyncio
import contextlib

from crucible_bridge.errors import Unavailable
from crucible_bridge.types import EvaluatorSpec, Sample
from tests.robustness.evidence import bits, request, samples_of
from tests.robustness.harness import count_lines, until, workshop

PAIRS = 60
SPEC = EvaluatorSpec(kind="preference", options={"reference": "embedded:r"})
DATASET = tuple(
    Sample(
        id=f"s{number}", input=f"question {number}", metadata={"chosen": f"yes {number}", "rejected": f"no {number}"}
    )
    for number in range(PAIRS)
)


async def test_pairs_survive_the_worker_that_measured_them(tmp_path):
    """What was measured before the kill is not measured again, by either model."""
    policy_calls, reference_calls = tmp_path / "policy", tmp_path / "reference"
    models = {
        "m": {"latency": 0.02, "call_file": str(policy_calls)},
        "r": {"latency": 0.02, "call_file": str(reference_calls), "fingerprint": "other"},
    }
    async with workshop(tmp_path, models, seconds=60) as shop:
        worker, following = await shop.start(), shop.launch(standby=True)
        asked = request("killed", evaluators=[SPEC], dataset=DATASET, concurrency=4)
        start = asyncio.create_task(worker.bridge.evaluation.evaluate(asked))
        await until(lambda: count_lines(reference_calls) >= PAIRS)
        worker.kill()
        with contextlib.suppress(Unavailable):
            await start

        bridge = (await following.ready()).bridge
        resumed = await bridge.evaluation.evaluate(asked)
        calls = (count_lines(policy_calls), count_lines(reference_calls))
        whole = await bridge.evaluation.evaluate(request("whole", evaluators=[SPEC], dataset=DATASET))
        killed, undisturbed = [await samples_of(bridge, name) for name in ("killed", "whole")]

    assert resumed.attempt == 2
    # Two calls of each model for a pair, and again those of the pairs in flight or not yet written.
    assert all(2 * PAIRS <= count < 4 * PAIRS for count in calls)
    assert [(each.sample_id, each.score, each.measurements) for each in killed] == [
        (each.sample_id, each.score, each.measurements) for each in undisturbed
    ]
    assert bits(resumed.metrics) == bits(whole.metrics)
    assert whole.metrics.values["dpo_loss"] > 0
