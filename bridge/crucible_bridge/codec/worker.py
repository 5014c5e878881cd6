"""What a worker says of itself <-> v1."""

from __future__ import annotations

from crucible_bridge.types import BackendInfo, DrainReport, WorkerInfo, WorkerLoad
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


def backend_info_to_v1(info: BackendInfo) -> worker_pb2.BackendInfo:
    """Encode a kind of place where models live."""
    return worker_pb2.BackendInfo(name=info.name, models=info.models, unavailable=info.unavailable)


def backend_info_from_v1(message: worker_pb2.BackendInfo) -> BackendInfo:
    """Decode a kind of place where models live."""
    return BackendInfo(name=message.name, models=tuple(message.models), unavailable=message.unavailable)


def worker_info_to_v1(info: WorkerInfo) -> worker_pb2.WorkerInfo:
    """Encode a worker as it stands."""
    return worker_pb2.WorkerInfo(
        worker_id=info.worker_id,
        version=info.version,
        versions=dict(info.versions),
        backends=[backend_info_to_v1(backend) for backend in info.backends],
        evaluators=info.evaluators,
        datasets=info.datasets,
        code_images=info.code_images,
        limits=dict(info.limits),
        running=info.running,
        queued=info.queued,
        calls=info.calls,
        draining=info.draining,
        started_unix_ns=info.started_unix_ns,
        log_id=info.log_id,
        last_sequence=info.last_sequence,
    )


def worker_info_from_v1(message: worker_pb2.WorkerInfo) -> WorkerInfo:
    """Decode a worker as it stands; every message of this type is well formed."""
    return WorkerInfo(
        worker_id=message.worker_id,
        version=message.version,
        versions=dict(sorted(message.versions.items())),
        backends=tuple(backend_info_from_v1(backend) for backend in message.backends),
        evaluators=tuple(message.evaluators),
        datasets=tuple(message.datasets),
        code_images=tuple(message.code_images),
        limits=dict(sorted(message.limits.items())),
        running=message.running,
        queued=message.queued,
        calls=message.calls,
        draining=message.draining,
        started_unix_ns=message.started_unix_ns,
        log_id=message.log_id,
        last_sequence=message.last_sequence,
    )


def worker_load_onto_v1(load: WorkerLoad, message: worker_pb2.WorkerInfo) -> None:
    """Bring a message up to date: what changes from call to call, where the rest is encoded once."""
    message.running = load.running
    message.queued = load.queued
    message.calls = load.calls
    message.draining = load.draining
    message.last_sequence = load.last_sequence


def drain_report_to_v1(report: DrainReport) -> worker_pb2.DrainResponse:
    """Encode the answer to a drain."""
    return worker_pb2.DrainResponse(interrupted=report.interrupted)


def drain_report_from_v1(message: worker_pb2.DrainResponse) -> DrainReport:
    """Decode the answer to a drain."""
    return DrainReport(interrupted=tuple(message.interrupted))
