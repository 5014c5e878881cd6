"""A node of a Ray cluster is killed while it grades: every answer has its grade, once, as the worker would give it."""

from __future__ import annotations

import asyncio

import pytest

from tests import needs

pytest.importorskip("ray", reason=needs.MISSING["ray"])

from crucible_bridge.errors import Unavailable
from crucible_bridge.reasons import Reason
from crucible_worker.grading.fanout import fanout as module
from crucible_worker.grading.fanout.fanout import Fanout
from crucible_worker.grading.fanout.graders import ClusterMath
from crucible_worker.grading.math.grader import MathGrader
from crucible_worker.grading.pool import GradingPool
from tests.service.fanout_kit import pairs, ray_cluster, timeless

pytestmark = pytest.mark.clusters

PAIRS = 6_000


async def test_a_killed_node_costs_no_answer_and_doubles_none(monkeypatch):
    """Ray begins its chunks again on the other node."""
    items = pairs(PAIRS)
    pool = GradingPool(2)
    try:
        local = await MathGrader(pool).grade_batch(items)
    finally:
        await pool.aclose()
    begun, grades_of = asyncio.Event(), module.grades_of
    loop = asyncio.get_running_loop()

    def noted(order, body):
        loop.call_soon_threadsafe(begun.set)
        return grades_of(order, body)

    with ray_cluster(1) as cluster:
        node, fanout = cluster.add_node(), Fanout("auto", 64)
        try:
            await fanout.start()
            monkeypatch.setattr(module, "grades_of", noted)
            call = asyncio.create_task(ClusterMath(fanout).grade_batch(items))
            await begun.wait()
            await asyncio.to_thread(cluster.kill, node)
            there = await call
        finally:
            await fanout.aclose()

    assert [grade.id for grade in there] == [item.id for item in items]
    assert timeless(there) == timeless(local)


async def test_a_cluster_that_is_gone_is_an_error_and_its_return_is_noticed():
    """The answers that were there are lost with a reason that may be retried; the next cluster is used."""
    fanout = Fanout("auto", 64)
    try:
        with ray_cluster(1):
            await fanout.start()
            lost = asyncio.Event()
            fanout.on_warm_change = lambda warm: lost.set() if not warm else None
        async with asyncio.timeout(60):
            await lost.wait()
        with pytest.raises(Unavailable, match="--fanout auto") as caught:
            await ClusterMath(fanout).grade_batch(pairs(3))
        assert caught.value.reason == Reason.FANOUT_UNREACHABLE
        with ray_cluster(1):
            assert len(await ClusterMath(fanout).grade_batch(pairs(3))) == 3
    finally:
        await fanout.aclose()
