"""How the GPUs of servers that the worker starts are named: "0", "GPU-8f2c", "0+1" for one replica on two.

The command line checks settings with it, so it imports nothing.
"""

from __future__ import annotations

import re

__all__ = ["MAX_DEVICES", "check_devices"]

MAX_DEVICES = 64
"""Most replicas of one server."""
_DEVICES = re.compile(r"[A-Za-z0-9:-]+(\+[A-Za-z0-9:-]+)*")
"""A GPU by its number or UUID, or several that serve one replica together: "0", "GPU-8f2c", "0+1"."""


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
