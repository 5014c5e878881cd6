"""What the option `fanout` names: a Ray cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["AUTO", "LOCAL", "endpoint_of", "ray_variables", "read_fanout"]

AUTO = "auto"
"""The cluster of which this machine is a node."""
LOCAL = "local"
"""A cluster of this machine alone, which ends with the worker."""

_TOKEN_VARIABLES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
_TOKEN_FILE = Path(".ray", "auth_token")
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


def ray_variables(address: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a process that connects to a cluster, besides those that it has.

    A cluster of which Ray's own files say nothing gets no token unless Ray is told to send it, also where there is one.
    """
    variables = {"RAY_USAGE_STATS_ENABLED": "0"}
    has_token = any(environment.get(name) for name in _TOKEN_VARIABLES) or (Path.home() / _TOKEN_FILE).is_file()
    if address != LOCAL and has_token and not environment.get("RAY_AUTH_MODE"):
        variables["RAY_AUTH_MODE"] = "token"
    if address == LOCAL:
        # It listens on 127.0.0.1; Ray would take the machine's address in its network.
        variables["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    return variables
