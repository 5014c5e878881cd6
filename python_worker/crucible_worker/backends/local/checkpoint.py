"""What is opened as one model: weights, an adapter on them, element type, device."""

from __future__ import annotations

import dataclasses
from pathlib import Path

__all__ = ["Checkpoint"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Directories that passed the safety checks, and how to load them."""

    directory: Path
    """The model's."""
    adapter: Path | None = None
    """Directory of the LoRA adapter, if any."""
    dtype: str | None = None
    """Requested element type of the weights. Another type is another model."""
    default_dtype: str | None = None
    """Element type if none is requested; if None, float32 on a CPU, and that of the files on CUDA."""
    device: str | None = None
    """"cpu", "cuda" or "cuda:N", or several of one kind, separated by commas; the host's own if None."""
    target_delimiter: str | None = None
    """Text between a prompt and its answer in one text, if it is known for this model; see `Tokenizer`."""

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that each have a replica; none if there are not several."""
        devices = () if self.device is None else tuple(self.device.split(","))
        return devices if len(devices) > 1 else ()
