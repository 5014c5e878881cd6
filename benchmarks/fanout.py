"""Grading on a Ray cluster of this machine against grading in the worker itself: the same 200,000 pairs, in turns.

The cluster has two nodes of one processor each, and a first node without any. Both sides use two processors, so no
speed-up can be expected here: what is measured is what the way to the cluster and back costs. At the end a node is
killed while it grades. Every answer has to have one grade, equal to that of the worker itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

from _report import Claim, arguments, report
from ray.cluster_utils import Cluster

from crucible_bridge.types import Grade, GradeItem
from crucible_worker.grading.fanout.fanout import Fanout
from crucible_worker.grading.fanout.graders import ClusterMath
from crucible_worker.grading.math.grader import MathGrader
from crucible_worker.grading.pool import GradingPool
from crucible_worker.util.limits import WorkerLimits

PAIRS = 200_000
"""Graded while a node is killed."""
TURN_PAIRS = 40_000
"""Of each run; each has different ones, so that the caches of the math grader have no effect."""
CALL_PAIRS = WorkerLimits().max_grading_items
"""Pairs of a call."""
CALLS = 4
"""Calls in flight."""
STORE_BYTES = 100 * 1024 * 1024
OPTIONS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "disabled"}


def pairs(turn: int, count: int) -> list[GradeItem]:
    """Right and wrong answers; one in three needs mathematics, the others are numbers."""
    made: list[GradeItem] = []
    for number in range(turn * count, (turn + 1) * count):
        answer, target = (
            (f"{number}x+{number % 7}", f"{number % 7}+x*{number}"),
            (f"{number}", f"{number + number % 2}"),
            (f"\\frac{{{number}}}{{{number + 1}}}", f"{number}/{number + 1}"),
        )[number % 3]
        made.append(GradeItem(id=str(number), response=f"So it is \\boxed{{{answer}}}.", targets=(target,)))
    return made


async def graded(grader: MathGrader | ClusterMath, items: Sequence[GradeItem]) -> tuple[float, list[Grade]]:
    """Seconds for all items in calls of the usual size, and their grades."""
    room, started = asyncio.Semaphore(CALLS), time.perf_counter()

    async def call(at: int) -> list[Grade]:
        async with room:
            return await grader.grade_batch(items[at : at + CALL_PAIRS])

    parts = await asyncio.gather(*(call(at) for at in range(0, len(items), CALL_PAIRS)))
    return time.perf_counter() - started, [grade for part in parts for grade in part]


def outcomes(grades: Sequence[Grade]) -> list[tuple[Any, ...]]:
    """What has to be equal: all but the time that it took."""
    return [(one.id, one.verdict, one.score, one.extracted, one.method, one.reason) for one in grades]


@contextlib.contextmanager
def cluster() -> Iterator[tuple[Cluster, Any]]:
    """A cluster, and the node that will be killed."""
    os.environ |= OPTIONS
    common = {"object_store_memory": STORE_BYTES, "node_ip_address": "127.0.0.1"}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **common})
    try:
        os.environ["RAY_ADDRESS"] = str(made.address)
        made.add_node(num_cpus=1, **common)
        yield made, made.add_node(num_cpus=1, **common)
    finally:
        made.shutdown()


async def measure(victim: Any, runs: int) -> list[Claim]:
    """Take turns, then kill a node."""
    pool, fanout = GradingPool(2), Fanout("auto", WorkerLimits().max_fanout_chunks)
    await pool.start()
    await fanout.start()
    local, there = MathGrader(pool), ClusterMath(fanout)
    seconds: dict[str, list[float]] = {"local": [], "there": []}
    try:
        await graded(there, pairs(1_000, CALL_PAIRS))  # every node loads the mathematics
        for turn in range(runs):
            items = pairs(turn, TURN_PAIRS)
            took, expected = await graded(local, items)
            seconds["local"].append(took)
            took, found = await graded(there, items)
            seconds["there"].append(took)
            assert outcomes(found) == outcomes(expected)
        items = pairs(10, PAIRS)
        _, expected = await graded(local, items)
        raylet = victim.all_processes["raylet"][0].process.pid
        after = statistics.median(seconds["there"])  # a fifth of the whole
        killing = asyncio.get_running_loop().call_later(after, os.kill, raylet, signal.SIGKILL)
        took, found = await graded(there, items)
        killing.cancel()
    finally:
        await fanout.aclose()
        await pool.aclose()
    once = len({grade.id for grade in found}) == len(found) == PAIRS
    same = sum(a == b for a, b in zip(outcomes(found), outcomes(expected)))
    rate = {side: [TURN_PAIRS / one for one in times] for side, times in seconds.items()}
    return [
        Claim(
            name="pairs a second on a cluster of this machine, and in the worker",
            ours=rate["there"],
            baseline=rate["local"],
            unit="/s",
            ratio=statistics.median(rate["there"]) / statistics.median(rate["local"]),
            claim="none: both have the same two processors",
        ),
        Claim(
            name=f"of {PAIRS:,} pairs graded once, with the worker's verdict, while a node was killed",
            ours=[same / PAIRS if once else 0.0],
            unit="share",
            claim="all",
            at_least=1.0,
        ),
        Claim(name="seconds for these, with one node from a fifth of them on", ours=[took], unit="s", claim="none"),
    ]


def main() -> None:
    """Measure and report."""
    options = arguments(__doc__)
    with cluster() as (_, victim):
        claims = asyncio.run(measure(victim, options.runs))
    report(claims, as_json=options.json)


if __name__ == "__main__":
    main()
