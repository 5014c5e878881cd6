"""Starts processes of environments."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from crucible_bridge.errors import BackendError
from crucible_bridge.reasons import Reason
from crucible_worker.children.process import Process
from crucible_worker.evaluators.variables import passed_variables

__all__ = ["LOAD_SECONDS", "start"]

LOAD_SECONDS = 120.0
"""Time limit for the import of an environment."""

_HOST = "crucible_worker.evaluators.environments.host"


def start(
    what: str, environment: str, variables: Sequence[str], kind: socket.SocketKind = socket.SOCK_STREAM
) -> tuple[Process, socket.socket]:
    """Start a process of an environment; returns it and this end of its socket.

    Args:
        what: its task: "describe" or "keep".
        environment: the environment's name.
        variables: names of variables of the worker's that it gets, in addition to those that every process gets.
        kind: of the socket.

    Raises:
        BackendError: it cannot be started (reason ENVIRONMENT_NOT_STARTED).
    """
    # Threads of OpenBLAS would make forking unsafe.
    passed = {"OPENBLAS_NUM_THREADS": "1", **passed_variables("TMPDIR", *variables)}
    try:
        # Output of an environment may be anything, and does not belong in the worker's log.
        return Process.start(_HOST, what, environment, environment=passed, kind=kind)
    except OSError as error:
        message = f"the process of the environment {environment!r} cannot be started: {error.strerror}"
        raise BackendError(message, reason=Reason.ENVIRONMENT_NOT_STARTED, retryable=True) from error
