"""The process that has loaded an environment, and is forked for each running group.

It runs nothing of the environment except its import, so it always reads the worker's orders at once.
"""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
from typing import Any, NoReturn

from crucible_bridge.errors import BridgeError
from crucible_worker.children.fork_server import ForkServer, refuse
from crucible_worker.children.lifetime import lower_priority, outlive, set_oom_score
from crucible_worker.children.messages import error_to_map
from crucible_worker.evaluators.environments import entry_points, wire
from crucible_worker.evaluators.environments.host import child

__all__ = ["describe", "keep"]

_HOST = "crucible_worker.evaluators.environments.host"


def describe(end: socket.socket, name: str) -> NoReturn:
    """Send an environment's description, or why it cannot be used."""
    try:
        told: dict[str, Any] = {"options_schema": entry_points.load(name).options_schema}
    except BridgeError as error:
        told = {"error": error_to_map(error)}
    end.sendall(wire.pack(told))
    # Threads that the environment has started are not waited for.
    os._exit(0)


def keep(control: socket.socket, name: str) -> NoReturn:
    """Load an environment, and serve orders until the socket is closed."""
    try:
        environment = entry_points.load(name)
    except BridgeError as error:
        refuse(control, error)
    lower_priority()
    # If memory runs out, a group of environments should be killed first.
    set_oom_score()
    # Garbage collections would write to every page that is shared with forks.
    gc.collect()
    gc.freeze()
    # If it were killed with the worker, it could not kill processes of groups; from here on, its socket ends it.
    outlive()
    ForkServer(control, lambda end, _: child.play(end, environment), spawn=lambda end: _spawned(name, end)).serve()


def _spawned(name: str, end: int) -> int:
    """A process that loads the environment itself: forking a process with threads might copy locked locks."""
    command = [sys.executable, "-P", "-m", _HOST, f"--parent={os.getpid()}", f"--socket={end}", "play", name]
    process = subprocess.Popen(command, pass_fds=(end,), process_group=0)
    process.returncode = 0  # the server waits for it, by its id
    return process.pid
