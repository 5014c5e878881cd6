"""What the tests of `--fanout` share: a Ray cluster of two nodes on 127.0.0.1, and a way to kill one."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from crucible_bridge.types import Grade, GradeItem

STORE_BYTES = 80 * 1024 * 1024
"""Shared memory of a node; Ray accepts no less."""
OPTIONS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray would write a token into the home of whoever runs the tests.
    "RAY_AUTH_MODE": "disabled",
    # 127.0.0.1 stays what it is: Ray would listen at the machine's address in its network.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "2",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RayCluster:
    """A running cluster; its first node has no processors, and so no chunks."""

    cluster: Any
    """Of `ray.cluster_utils`."""

    @property
    def address(self) -> str:
        """Of its first node, which `auto` finds by the variable RAY_ADDRESS."""
        return self.cluster.address

    def add_node(self) -> Any:
        """One more node, with a processor."""
        return self.cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES, node_ip_address="127.0.0.1")

    def kill(self, node: Any) -> None:
        """Kill a node as a lost machine goes: without a word."""
        (raylet,) = node.all_processes["raylet"]
        os.kill(raylet.process.pid, signal.SIGKILL)


@contextlib.contextmanager
def ray_cluster(nodes: int, **head: Any) -> Iterator[RayCluster]:
    """A cluster with so many nodes that grade, which `--fanout auto` finds."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in OPTIONS.items():
            patched.setenv(name, value)
        from ray.cluster_utils import Cluster

        arguments = {
            "num_cpus": 0,
            "object_store_memory": STORE_BYTES,
            "include_dashboard": False,
            "node_ip_address": "127.0.0.1",
            **head,
        }
        handled = signal.getsignal(signal.SIGTERM)
        cluster = Cluster(initialize_head=True, head_node_args=arguments)
        try:
            patched.setenv("RAY_ADDRESS", str(cluster.address))
            running = RayCluster(cluster=cluster)
            for _ in range(nodes):
                running.add_node()
            yield running
        finally:
            cluster.shutdown()
            signal.signal(signal.SIGTERM, handled)


def pairs(count: int) -> list[GradeItem]:
    """Answers with their targets: right, wrong, without an answer, and some that need mathematics."""
    forms = (
        lambda n: (f"so it is \\boxed{{{n}x+{n % 7}}}", f"{n % 7}+x*{n}"),
        lambda n: (f"The answer is {n}.", str(n + n % 2)),
        lambda n: (f"\\boxed{{\\frac{{{n}}}{{{n + 1}}}}}", f"{n}/{n + 1}"),
        lambda n: ("", str(n)),
        lambda n: (f"\\boxed{{x^{n % 9}+{n}}}", f"x^{n % 9}+{n + 1}"),
    )
    made = [forms[number % len(forms)](number) for number in range(count)]
    return [GradeItem(id=str(number), response=made[number][0], targets=made[number][1:]) for number in range(count)]


def timeless(grades: Sequence[Grade]) -> list[Grade]:
    """Grades without what differs from run to run: their time, and which limit of time ended one."""
    return [
        dataclasses.replace(grade, duration_ns=0, reason=grade.reason.partition("it took longer than")[0])
        for grade in grades
    ]
