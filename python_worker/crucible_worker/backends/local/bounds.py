"""What the host bounds: those limits of the worker that it has to know."""

from __future__ import annotations

import dataclasses
import json

from crucible_worker.limits import WorkerLimits

__all__ = ["HostBounds"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostBounds:
    """Limits under the names that they have in `WorkerLimits`."""

    max_rendered_chars: int
    max_rendering_seconds: float
    max_rendering_bytes: int
    max_checkpoint_seconds: float

    @classmethod
    def of(cls, limits: WorkerLimits) -> HostBounds:
        """Those of a worker."""
        return cls(**{field.name: getattr(limits, field.name) for field in dataclasses.fields(cls)})

    @classmethod
    def from_json(cls, text: str) -> HostBounds:
        """What `to_json` made."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """As an argument of the host."""
        return json.dumps(dataclasses.asdict(self))
