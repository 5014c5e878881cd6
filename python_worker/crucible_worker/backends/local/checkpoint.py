"""What is opened as one model: weights, an adapter on them, in a type, on a device."""

from __future__ import annotations

import dataclasses
from pathlib import Path

__all__ = ["Checkpoint"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Directories that were found to be safe to load, and how to load them."""

    directory: Path
    """The model's."""
    adapter: Path | None = None
    """The LoRA adapter's, if any."""
    dtype: str | None = None
    """Element type of the weights; float32 on a CPU, and on CUDA the files' own, if None."""
    device: str | None = None
    """"cpu", "cuda" or "cuda:N"; the host's own if None."""
