"""A directory of checkpoints is followed: each whole one is held, evaluated once and released."""

from __future__ import annotations

from pathlib import Path

from tests.service.follow_kit import FOUND, RELEASED, following, save


async def test_each_checkpoint_is_evaluated_once(tmp_path: Path):
    """Those that are there, and those that come later, by the order of their steps."""
    async with following(tmp_path) as f:
        save(f.folder, 10)
        save(f.folder, 9)
        answer = await f.follow()
        assert (answer.plan_id, answer.existed) == ("run", False)
        await f.told(RELEASED, "checkpoint-10")
        save(f.folder, 20)
        released = await f.told(RELEASED, "checkpoint-20")
        found = await f.evaluations()
    assert f.events(FOUND) == [(FOUND, f"checkpoint-{step}") for step in (9, 10, 20)]
    assert {step: each.evaluation_id for step, each in found.items()} == {
        step: f"run-step-{step}-0" for step in (9, 10, 20)
    }
    assert [found[step].metrics.values["accuracy"] for step in (9, 10, 20)] == [0.0, 1.0, 1.0]
    assert released.measurements["lag_steps"] == 0.0
    assert released.measurements["lag_seconds"] >= 0.0
