"""References to managed models, "managed:SERVER/PATH?adapter=PATH&devices=0,1", and paths of held checkpoints.

On the wire, the former are an InstalledModel of the scheme `managed`, so clients of any release can send them.
"""

from __future__ import annotations

import dataclasses
from pathlib import PurePath

from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.types import HubModel, InstalledModel, LocalModel, ModelRef, format_model
from crucible_bridge.types.spelling import read_spelling, write_spelling
from crucible_worker.util.gpus import check_devices

__all__ = [
    "HOLD_FOLDER",
    "SCHEME",
    "ManagedRef",
    "as_managed",
    "format_original_model",
    "original_model",
    "original_path",
    "read_managed_ref",
]


SCHEME = "managed"
_OPTIONS = ("adapter", "devices")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ManagedRef:
    """A checkpoint, and the server that is to serve it."""

    server: str
    """Name of the server: "vllm", "sglang", or one of the worker's settings."""
    path: str = ""
    """Directory of the checkpoint; empty if each checkpoint of a run is meant."""
    adapter: str | None = None
    """Directory of a LoRA adapter on it."""
    devices: tuple[str, ...] = ()
    """Devices, a replica for each; those of the server's settings if there are none."""

    def to_model(self) -> InstalledModel:
        """The reference on the wire."""
        options = {"adapter": self.adapter, "devices": ",".join(self.devices) or None}
        given = {key: value for key, value in options.items() if value is not None}
        name = f"{self.server}/{self.path}" if self.path else self.server
        return InstalledModel(SCHEME, write_spelling(name, given))


def as_managed(model: ModelRef) -> ManagedRef | None:
    """A reference as one to a managed model; None if it is none, or invalid."""
    if not isinstance(model, InstalledModel) or model.scheme != SCHEME:
        return None
    try:
        return read_managed_ref(model)
    except InvalidField:
        return None


def read_managed_ref(model: InstalledModel, field: str = "model") -> ManagedRef:
    """Read the reference of the wire; its path may be empty.

    Raises:
        InvalidField: an option is unknown or invalid.
    """
    name, options = read_spelling(model.name, field)
    for key in options:
        if key not in _OPTIONS:
            raise InvalidField(field, f"has the option {clipped(key)}; there are {', '.join(_OPTIONS)}")
    server, _, path = name.partition("/")
    if not server:
        raise InvalidField(field, "names no server: write managed:SERVER/PATH, such as managed:vllm/PATH")
    devices = tuple(options["devices"].split(",")) if "devices" in options else ()
    try:
        check_devices(devices, "devices")
    except ValueError as error:
        raise InvalidField(field, f"has the option {error}") from None
    return ManagedRef(server=server, path=path, adapter=options.get("adapter"), devices=devices)


# The paths of held checkpoints: a followed directory's checkpoints have a second path while they are read.
#
#     runs/sums/step-600                  the trainer's own path, which users see
#     runs/sums/.crucible/RUN/step-600    the held path, which goes away when the checkpoint is released

HOLD_FOLDER = ".crucible"
"""Name of the folder in which the checkpoints of a followed directory are held while they are read."""


def original_path(path: str) -> str:
    """The path at which the trainer saved a checkpoint; any other path than a held one is returned as it is."""
    parts = PurePath(path).parts
    if len(parts) < 3 or parts[-3] != HOLD_FOLDER:
        return path
    return str(PurePath(*parts[:-3], parts[-1]))


def original_model(model: ModelRef) -> ModelRef:
    """A model with the trainer's own path in place of a held one, of its adapter too."""
    if (managed := as_managed(model)) is not None:
        adapter = None if managed.adapter is None else original_path(managed.adapter)
        return dataclasses.replace(managed, path=original_path(managed.path), adapter=adapter).to_model()
    if not isinstance(model, LocalModel | HubModel):
        return model
    if model.adapter_path is not None:
        model = dataclasses.replace(model, adapter_path=original_path(model.adapter_path))
    return dataclasses.replace(model, path=original_path(model.path)) if isinstance(model, LocalModel) else model


def format_original_model(model: ModelRef) -> str:
    """A model as people read it: `original_model` as text."""
    return format_model(original_model(model))
