"""After a cancel no model is asked any more: counted where it hurts, at the server that the requests come to."""

from __future__ import annotations

import asyncio
import time

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.types import EvaluationState, Limits, SamplingParams
from tests import needs
from tests.robustness.harness import until
from tests.service.evaluation_kit import numbered
from tests.service.openai_kit import Reply, Request, ScriptedServer, shout
from tests.service.serving import serving

needs.modules("aiohttp")

OWNER_SECONDS = 0.05
"""After a cancel was sent to the owner of an evaluation: no request from then on."""
OTHER_SECONDS = 0.3
"""Likewise, where another worker took the cancel."""
CALM_SECONDS = 0.6
"""How long the server is watched afterwards."""
TRIES = 12
"""A machine with other things to do is late now and then: one of these has to be in time."""
CONCURRENCY = 8


async def _late(bridge: Bridge, canceller: Bridge, identity: str, times: list[float]) -> float:
    """Cancel an evaluation while the server is asked all the time; seconds from the cancel to the last request."""
    before = len(times)
    await bridge.evaluation.start_evaluation(
        evaluation_id=identity,
        model="openai:s/m",
        evaluators=["accuracy"],
        dataset=numbered(3_000),
        sampling=SamplingParams(max_tokens=8),
        limits=Limits(concurrency=CONCURRENCY),
    )
    await until(lambda: len(times) > before + 4 * CONCURRENCY)
    sent = time.monotonic()
    ended = await canceller.evaluation.cancel_evaluation(identity, "enough")
    assert ended.state is EvaluationState.CANCELLED
    await asyncio.sleep(CALM_SECONDS)
    assert len(times) < before + 3_000
    return times[-1] - sent


async def test_no_request_comes_after_a_cancel(tmp_path):
    """The server is asked until the cancel, and never again once a moment has passed, whichever worker was told."""
    times: list[float] = []

    def script(request: Request) -> Reply:
        times.append(time.monotonic())
        return shout(request)

    async with ScriptedServer(script).serving() as server:
        settings = f'grading_processes = 0\n[openai_servers.s]\nbase_url = "{server.url}"\n'
        state_dir = tmp_path / "state"
        async with (
            serving(tmp_path / "owner", settings, state_dir=state_dir) as owner,
            serving(tmp_path / "other", settings, state_dir=state_dir) as other,
            crucible_bridge.connect(owner.address) as bridge,
            crucible_bridge.connect(other.address) as another,
        ):
            for canceller, allowed in ((bridge, OWNER_SECONDS), (another, OTHER_SECONDS)):
                late: list[float] = []
                while len(late) < TRIES and min(late, default=allowed) >= allowed:
                    late.append(await _late(bridge, canceller, f"{allowed}-{len(late)}", times))
                assert min(late) < allowed, late
            assert server.in_flight == 0
