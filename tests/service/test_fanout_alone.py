"""What `--fanout` does before it has a cluster: the sizes of its chunks, and what it refuses."""

from __future__ import annotations

import asyncio
import importlib.util

import pytest

from crucible_bridge.errors import FailedPrecondition, Unavailable
from crucible_bridge.reasons import Reason
from crucible_bridge.types import MathPolicy
from crucible_worker.grading.fanout.fanout import Fanout
from crucible_worker.grading.fanout.graders import check_installed
from tests import needs
from tests.service.fanout_kit import pairs


@pytest.mark.parametrize(
    ("count", "sizes"), [(255, [255]), (1_024, [1_024]), (1_025, [1_024, 1]), (2_049, [1_024, 1_024, 1])]
)
async def test_chunks_have_bounds(monkeypatch, count, sizes):
    """From 256 to 1,024 answers, if there are that many."""
    fanout, found = Fanout("auto", 8), []

    async def answered(order):
        found.append(len(order.items))
        return [order] * len(order.items)

    monkeypatch.setattr(fanout, "_graded", answered)
    await fanout.grades("math", pairs(count), MathPolicy())
    await fanout.aclose()

    assert sorted(found, reverse=True) == sizes


async def test_no_more_chunks_are_on_their_way_than_the_limit(monkeypatch):
    """Others wait in the worker."""
    fanout, now, most = Fanout("auto", 2), 0, 0

    async def answered(order):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        return [order] * len(order.items)

    monkeypatch.setattr(fanout, "_graded", answered)
    await fanout.grades("math", pairs(3_000), MathPolicy())
    await fanout.aclose()

    assert most == 2


async def test_a_cluster_that_is_not_there_is_named():
    """With the option, and what to start."""
    pytest.importorskip("ray", reason=needs.MISSING["ray"])
    fanout = Fanout("ray://127.0.0.1:1", 8)
    try:
        with pytest.raises(Unavailable, match=r"--fanout ray://127\.0\.0\.1:1: .*ray start --head") as caught:
            await fanout.start()
    finally:
        await fanout.aclose()
    assert (caught.value.reason, caught.value.retryable) == (Reason.FANOUT_UNREACHABLE, True)


async def test_ray_that_is_not_installed_is_named(monkeypatch):
    """A worker does not start to grade by itself in silence."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FailedPrecondition, match=r"pip install 'crucible-bridge\[ray\]'") as caught:
        check_installed()
    assert caught.value.reason == Reason.EXTRA_NOT_INSTALLED
