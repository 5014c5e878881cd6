"""The limits of the worker that the host enforces."""

from __future__ import annotations

import dataclasses
import json

from crucible_worker.util.limits import WorkerLimits

__all__ = ["HostBounds"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostBounds:
    """Limits, with the names of `WorkerLimits`."""

    max_rendered_chars: int
    max_rendering_seconds: float
    max_rendering_bytes: int
    max_checkpoint_seconds: float

    @classmethod
    def of(cls, limits: WorkerLimits) -> HostBounds:
        """The bounds of a worker's limits."""
        return cls(**{field.name: getattr(limits, field.name) for field in dataclasses.fields(cls)})

    @classmethod
    def from_json(cls, text: str) -> HostBounds:
        """The inverse of `to_json`."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """As an argument of the host."""
        return json.dumps(dataclasses.asdict(self))
