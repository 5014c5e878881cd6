"""What a worker says of itself and what never changes: gathered once, as it asks the disk."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import platform
from collections.abc import Mapping

from crucible_bridge.types import WorkerInfo
from crucible_worker.config import Settings
from crucible_worker.server.parts import Parts

__all__ = ["describe"]

_LIBRARIES = ("grpcio", "protobuf", "numpy", "torch", "transformers", "openai")


def describe(info: WorkerInfo, parts: Parts, settings: Settings) -> WorkerInfo:
    """Add to `info` what does not change while the worker lives; blocks some milliseconds, imports nothing heavy."""
    return dataclasses.replace(
        info,
        version=importlib.metadata.version("crucible-bridge"),
        versions=_versions(),
        backends=tuple(parts.backend_infos()),
        evaluators=tuple(evaluator.kind for evaluator in parts.evaluators()),
        datasets=tuple(parts.datasets),
        limits={name: float(value) for name, value in dataclasses.asdict(settings.limits).items()},
    )


def _versions() -> Mapping[str, str]:
    """Versions of Python and of the libraries that matter, those that are installed; none of them is imported."""
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
