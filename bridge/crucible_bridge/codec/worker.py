"""Information about a worker <-> v1."""

from __future__ import annotations

from crucible_bridge.codec.generated import (
    backend_info_from_v1,
    backend_info_to_v1,
    background_task_to_v1,
    drain_report_from_v1,
    drain_report_to_v1,
    fleet_to_v1,
    model_usage_to_v1,
    worker_info_from_v1,
    worker_info_to_v1,
)
from crucible_bridge.types import WorkerLoad
from crucible_bridge.v1 import worker_pb2

__all__ = [
    "backend_info_from_v1",
    "backend_info_to_v1",
    "drain_report_from_v1",
    "drain_report_to_v1",
    "worker_info_from_v1",
    "worker_info_to_v1",
    "worker_load_onto_v1",
]


def worker_load_onto_v1(load: WorkerLoad, message: worker_pb2.WorkerInfo) -> None:
    """Update the parts of a message that change from call to call; the rest is encoded once."""
    message.running = load.running
    message.queued = load.queued
    message.calls = load.calls
    message.draining = load.draining
    message.last_sequence = load.last_sequence
    del message.usage[:]
    message.usage.extend(map(model_usage_to_v1, load.usage))
    del message.fleets[:]
    message.fleets.extend(map(fleet_to_v1, load.fleets))
    del message.failed_tasks[:]
    message.failed_tasks.extend(map(background_task_to_v1, load.failed_tasks))
    message.certificate_expires_unix_ns = load.certificate_expires_unix_ns
