"""Descriptions of users' environments: read in processes that import them, so that the worker does not."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_worker.children.frames import receive
from crucible_worker.children.messages import check_containers, error_from_map, unpack
from crucible_worker.children.process import ending_of
from crucible_worker.evaluators.environments import entry_points, wire
from crucible_worker.evaluators.environments.processes import EnvironmentProcesses
from crucible_worker.evaluators.environments.starting import LOAD_SECONDS, start

__all__ = ["Environments"]


class Environments:
    """Users' environments in one worker.

    Args:
        variables: names of variables of the worker that their processes get.
    """

    def __init__(self, variables: Sequence[str] = ()) -> None:
        self._variables = tuple(variables)
        self._known: dict[str, Mapping[str, Any]] = {}

    def look(self, name: str) -> None:
        """Read and cache the description of an environment; blocks while a process imports it.

        Raises:
            FailedPrecondition: it cannot be used, see `entry_points.load`; its import does not end, or ends its
                process.
        """
        self._known.pop(name, None)
        if name in entry_points.names():
            self._known[name] = _asked(name, self._variables)

    def find(self, name: str) -> Mapping[str, Any] | None:
        """The schema of an environment's options; None if none is announced under that name.

        Raises:
            FailedPrecondition: as for `look`, which is called if it was not before.
        """
        if name not in entry_points.names():
            return None
        if name not in self._known:
            self.look(name)
        return self._known[name]

    def processes(self, name: str) -> EnvironmentProcesses:
        """Processes for an environment's groups of rollouts; none is started yet."""
        return EnvironmentProcesses(name, self._variables)


def _asked(name: str, variables: Sequence[str]) -> Mapping[str, Any]:
    process, end = start("describe", name, variables)
    until, told, ended = time.monotonic() + LOAD_SECONDS, None, False
    try:
        with end:
            told = _received(end, until)
            ended = told is None and process.ends(until)
    finally:
        code = process.reap()
    if told is None:
        why = f"ended ({ending_of(code)})" if ended else f"did not end within {LOAD_SECONDS:.0f} s"
        raise entry_points.bad(name, f"cannot be loaded: its import {why}")
    if "error" in told:
        raise error_from_map(told["error"])
    return told["options_schema"]


def _received(end: socket.socket, until: float) -> dict[str, Any] | None:
    """An environment's description from a process; None if the process gives none."""
    try:
        body = receive(end, wire.MAX_FRAME_BYTES, until=until) or b""
        check_containers(body)
        told = unpack(body)
    except (OSError, ValueError):
        return None
    return told if told.keys() & {"options_schema", "error"} else None
