"""The connection of this process to a Ray cluster, and the task that grades there."""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import Any

import ray

from crucible_bridge.errors import Unavailable
from crucible_bridge.reasons import Reason
from crucible_worker.grading.fanout.address import AUTO, LOCAL, endpoint_of
from crucible_worker.grading.fanout.task import grade_chunk

__all__ = ["CHUNK_CPUS", "CHUNK_RETRIES", "STORE_BYTES", "connect", "cores", "leave", "remote_grading"]

CHUNK_CPUS = 1
"""Processors of a task."""
CHUNK_RETRIES = 5
"""How often Ray begins a chunk again when its node or its process dies. Grades do not depend on it."""
STORE_BYTES = 256 * 1024 * 1024
"""Shared memory of a cluster that the worker starts."""
CONNECT_SECONDS = 5.0
"""Time for a server of Ray clients to accept a connection."""

_NAMESPACE = "crucible-worker"


def connect(address: str) -> None:
    """Connect to a cluster, or start one; blocks for seconds.

    Raises:
        Unavailable: there is none (reason FANOUT_UNREACHABLE).
    """
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "namespace": _NAMESPACE}
    if address == LOCAL:
        options |= {"include_dashboard": False, "object_store_memory": STORE_BYTES}
    try:
        if (endpoint := endpoint_of(address)) is not None:
            # Ray itself tries a port without a listener for half a minute.
            socket.create_connection(endpoint, CONNECT_SECONDS).close()
        ray.init(address=address, **options)
    except Exception as error:  # of many kinds, with no common base
        raise Unavailable(
            f"--fanout {address}: {_cure(address)} ({error})", reason=Reason.FANOUT_UNREACHABLE
        ) from error


def _cure(address: str) -> str:
    if address == LOCAL:
        return "Ray does not start here"
    if address == AUTO:
        return "this machine is no node of a Ray cluster: ray start --address=HEAD:6379, or --fanout local"
    return "no Ray cluster answers there, or it wants a token (RAY_AUTH_TOKEN); ray start --head opens port 10001"


def cores() -> int:
    """Processors of all nodes that live."""
    return int(sum(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]))


def remote_grading() -> Any:
    """The task of Ray that grades a chunk; `remote` begins one."""
    return ray.remote(num_cpus=CHUNK_CPUS, max_retries=CHUNK_RETRIES)(grade_chunk)


def leave() -> None:
    """Disconnect; a cluster that this process has started ends."""
    with contextlib.suppress(Exception):  # of a cluster that is gone
        ray.shutdown()
