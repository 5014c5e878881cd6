"""What the option `fanout` names: a Ray cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["AUTO", "LOCAL", "endpoint_of", "read_fanout"]

AUTO = "auto"
"""The cluster of which this machine is a node."""
LOCAL = "local"
"""A cluster of this machine alone, which ends with the worker."""

_CLIENT = re.compile(r"ray://(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s/:@\[\]]+):(?P<port>\d{1,5})")
_MAX_PORT = 65_535


def read_fanout(value: Any, base: Path) -> str:
    """Check the address of a cluster.

    Args:
        value: what the operator gave.
        base: not used; every reader of a setting has it.

    Raises:
        ValueError: it is none; the message says what is expected.
    """
    if isinstance(value, str) and (value in (AUTO, LOCAL) or endpoint_of(value) is not None):
        return value
    raise ValueError("ray://HOST:PORT, auto or local")


def endpoint_of(address: str) -> tuple[str, int] | None:
    """Host and port of ray://HOST:PORT; None for another address."""
    found = _CLIENT.fullmatch(address)
    if found is None or not 0 < (port := int(found["port"])) <= _MAX_PORT:
        return None
    return found["host"].strip("[]"), port
