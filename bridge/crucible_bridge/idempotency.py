"""The calls that only read or compute, and those that may be repeated: by the `idempotency_level` in their protos."""

from __future__ import annotations

import functools
from types import ModuleType

from google.protobuf.descriptor_pb2 import MethodOptions

__all__ = ["of_one_worker", "repeatable", "service_modules", "without_side_effects"]


def service_modules() -> tuple[ModuleType, ...]:
    """The generated modules that declare services."""
    # Imported late: addresses and options of channels need no message.
    from crucible_bridge.v1 import (
        evaluation_pb2,
        events_pb2,
        experiments_pb2,
        grading_pb2,
        metrics_pb2,
        models_pb2,
        rendering_pb2,
        worker_pb2,
    )

    return (
        evaluation_pb2,
        events_pb2,
        experiments_pb2,
        grading_pb2,
        metrics_pb2,
        models_pb2,
        rendering_pb2,
        worker_pb2,
    )


def of_one_worker() -> frozenset[str]:
    """Paths of the calls about the worker that receives them; all others mean the same at every worker of a pool."""
    from crucible_bridge.v1 import worker_pb2

    service = worker_pb2.DESCRIPTOR.services_by_name["WorkerService"]
    return frozenset(f"/{service.full_name}/{method.name}" for method in service.methods)


@functools.cache
def without_side_effects() -> frozenset[str]:
    """Paths of the calls that are NO_SIDE_EFFECTS: "/crucible_bridge.v1.WorkerService/GetInfo"."""
    return _of_level(MethodOptions.NO_SIDE_EFFECTS)


@functools.cache
def repeatable() -> frozenset[str]:
    """Paths of the calls that may be repeated at any worker of a pool: also IDEMPOTENT ones, if they mean no worker."""
    return without_side_effects() | _of_level(MethodOptions.IDEMPOTENT) - of_one_worker()


def _of_level(*levels: int) -> frozenset[str]:
    return frozenset(
        f"/{service.full_name}/{method.name}"
        for module in service_modules()
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        if method.GetOptions().idempotency_level in levels
    )
