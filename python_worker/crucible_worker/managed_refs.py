"""References to managed models: "managed:SERVER/PATH?adapter=PATH&devices=0,1", below the model roots of the worker.

On the wire they are an InstalledModel of the scheme `managed`, so clients of any release can send them.
"""

from __future__ import annotations

import dataclasses
import re

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import InstalledModel, ModelRef
from crucible_bridge.types.spelling import read_spelling, write_spelling

__all__ = ["MAX_DEVICES", "SCHEME", "ManagedRef", "as_managed", "check_devices", "read_managed_ref"]

SCHEME = "managed"
MAX_DEVICES = 64
"""Most replicas of one server."""
_DEVICES = re.compile(r"[A-Za-z0-9:-]+(\+[A-Za-z0-9:-]+)*")
"""A GPU by its number or UUID, or several that serve one replica together: "0", "GPU-8f2c", "0+1"."""

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
            raise InvalidField(field, f"has the option {key[:60]!r}; there are {', '.join(_OPTIONS)}")
    server, _, path = name.partition("/")
    devices = tuple(options["devices"].split(",")) if "devices" in options else ()
    try:
        check_devices(devices, "devices")
    except ValueError as error:
        raise InvalidField(field, f"has the option {error}") from None
    return ManagedRef(server=server, path=path, adapter=options.get("adapter"), devices=devices)


def check_devices(devices: tuple[str, ...], where: str) -> None:
    """Refuse what names no devices, or one twice.

    Raises:
        ValueError: the first fault.
    """
    if len(devices) > MAX_DEVICES:
        raise ValueError(f"{where} has {len(devices)} replicas, at most {MAX_DEVICES} are accepted")
    seen: set[str] = set()
    for device in devices:
        if not _DEVICES.fullmatch(device):
            raise ValueError(f'{where} has {device[:60]!r}, not the number or UUID of a GPU, or several as "0+1"')
        for one in device.split("+"):
            if one in seen:
                raise ValueError(f"{where} has {one!r} twice: one GPU is one replica's")
            seen.add(one)
