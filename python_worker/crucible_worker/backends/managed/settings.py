"""Settings of the servers that a worker starts itself: their program, its command line, and the devices they may use.

    [managed_servers.big]
    program = "vllm"
    devices = ["0", "1"]
    arguments = ["--max-model-len", "8192"]

Without a table there are `vllm` and `sglang`, with the default command of each program.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from crucible_worker.backends.endpoints import (
    EndpointSettings,
    Kind,
    check_name,
    read_flag,
    read_number,
    read_one_of,
    read_whole,
)
from crucible_worker.backends.openai.servers import MAX_STALL_SECONDS, Renderer
from crucible_worker.util.gpus import check_devices

__all__ = [
    "KIND",
    "MAX_START_SECONDS",
    "PLACEHOLDERS",
    "ManagedServer",
    "ProgramName",
    "servers",
]

MAX_START_SECONDS = 7200.0
"""The largest `start_seconds`."""

ProgramName = Literal["vllm", "sglang"]

PLACEHOLDERS = ("model", "port", "name", "gpus")
"""What a command may have in braces: the checkpoint's directory, the port on 127.0.0.1, the name that requests have,
and the number of GPUs of one replica."""

_BRACES = re.compile(r"\{([^{}]*)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ManagedServer(EndpointSettings):
    """A server that the worker starts, one process for each device."""

    program: ProgramName
    """What is started: it determines how weights are loaded, and what the server reports of them."""
    devices: tuple[str, ...] = ()
    """Devices of the replicas, such as "0", or "0+1" for one replica on two GPUs. Requests may choose among these. If
    there are none, requests may name any, and without that there is one replica on what the program takes."""
    command: tuple[str, ...] = ()
    """The command, in place of the program's own; see `PLACEHOLDERS`."""
    arguments: tuple[str, ...] = ()
    """Further arguments of the command."""
    adapter_arguments: tuple[str, ...] | None = None
    """Arguments of the command when an adapter is to be loaded; those of the program if None."""
    environment: Mapping[str, str] = dataclasses.field(default_factory=lambda: types.MappingProxyType({}), repr=False)
    """Variables of the server's processes, in addition to the worker's."""
    start_seconds: float = 900.0
    """How long a server may take until it is healthy, and how long it may take to load weights."""
    renderer: Renderer = "auto"
    """As of an OpenAI-compatible server."""
    logprobs: bool = False
    """Likewise."""
    max_connections: int = 64
    """Likewise, of each replica."""
    stall_seconds: float = 120.0
    """Likewise."""

    def check(self) -> None:
        """Refuse settings that cannot work."""
        where = KIND.where(self.name)
        check_name(self.name, where)
        check_devices(self.devices, f"{where}: devices")
        for option in ("command", "arguments", "adapter_arguments"):
            for text in getattr(self, option) or ():
                _check_braces(text, f"{where}: {option}")
        if self.command and not any("{port}" in text for text in self.command):
            raise ValueError(
                f"{where}: command has no {{port}}: the worker chooses the port that the server listens on"
            )
        for variable in self.environment:
            if not _VARIABLE.fullmatch(variable):
                raise ValueError(f"{where}: environment has {variable!r}, which is not the name of a variable")
        for option, most in (("start_seconds", MAX_START_SECONDS), ("stall_seconds", MAX_STALL_SECONDS)):
            if not 0 < (value := getattr(self, option)) <= most:
                raise ValueError(f"{where}: {option} is {value:g}, not above 0 and at most {most:.0f}")
        if self.max_connections < 1:
            raise ValueError(f"{where}: max_connections is {self.max_connections}, must be at least 1")


def servers(configured: tuple[ManagedServer, ...]) -> dict[str, ManagedServer]:
    """The servers by name: each program's default, unless a configured server has its name."""
    defaults = {name: ManagedServer(name=name, program=name) for name in get_args(ProgramName)}
    return {**defaults, **{server.name: server for server in configured}}


def _check_braces(text: str, where: str) -> None:
    for name in _BRACES.findall(text):
        if name not in PLACEHOLDERS and name.isidentifier():
            known = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
            raise ValueError(f"{where} has {{{name}}}; there are {known}")


def _texts(value: Any, base: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
        raise ValueError("a list of texts")
    return tuple(value)


def _devices(value: Any, base: Path) -> tuple[str, ...]:
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, list) or not listed or not all(type(device) in (str, int) for device in listed):
        raise ValueError('a list of devices, such as ["0", "1"]')
    return tuple(str(device) for device in listed)


def _variables(value: Any, base: Path) -> Mapping[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError("a table of texts")
    return types.MappingProxyType(dict(value))


KIND = Kind(
    setting="managed_servers",
    noun="managed server",
    make=ManagedServer,
    required="program",
    readers={
        "program": read_one_of(*get_args(ProgramName)),
        "devices": _devices,
        "command": _texts,
        "arguments": _texts,
        "adapter_arguments": _texts,
        "environment": _variables,
        "start_seconds": read_number,
        "renderer": read_one_of(*get_args(Renderer)),
        "logprobs": read_flag,
        "max_connections": read_whole,
        "stall_seconds": read_number,
    },
)
