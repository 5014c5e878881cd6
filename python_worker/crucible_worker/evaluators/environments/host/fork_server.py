"""The process that has loaded an environment, and is forked for each group at work.

It runs nothing of the environment except its import, so it hears the worker at once, whatever a group does.
"""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
from typing import Any, NoReturn

from crucible_bridge.errors import BridgeError
from crucible_worker.children.bounds import be_first_to_go
from crucible_worker.children.fork_server import ForkServer, refuse
from crucible_worker.children.lifetime import outlive
from crucible_worker.children.messages import error_to_map
from crucible_worker.evaluators.environments import entry_points, wire
from crucible_worker.evaluators.environments.host import child

__all__ = ["describe", "keep"]

_NICE = 10
"""Beside a worker that answers its callers, what computes without end waits its turn."""
_HOST = "crucible_worker.evaluators.environments.host"


def describe(end: socket.socket, name: str) -> NoReturn:
    """Tell what an environment says of itself, or why it cannot be used."""
    try:
        told: dict[str, Any] = {"options_schema": entry_points.load(name).options_schema}
    except BridgeError as error:
        told = {"error": error_to_map(error)}
    end.sendall(wire.pack(told))
    # What the environment has started is not waited for.
    os._exit(0)


def keep(control: socket.socket, name: str) -> NoReturn:
    """Load an environment, and serve orders until the socket is closed."""
    try:
        environment = entry_points.load(name)
    except BridgeError as error:
        refuse(control, error)
    os.nice(_NICE)
    # Where memory runs out, a group of environments is what is missed least.
    be_first_to_go()
    # Collections would write into every page that is shared with what is forked.
    gc.collect()
    gc.freeze()
    # Killed with the worker, it could not kill what groups have started; from here on its socket tells it.
    outlive()
    ForkServer(control, lambda end, _: child.play(end, environment), spawn=lambda end: _spawned(name, end)).serve()


def _spawned(name: str, end: int) -> int:
    """One that loads the environment itself: what has threads may hold any lock as it is forked."""
    command = [sys.executable, "-P", "-m", _HOST, f"--parent={os.getpid()}", f"--socket={end}", "play", name]
    process = subprocess.Popen(command, pass_fds=(end,), process_group=0)
    process.returncode = 0  # the server waits for it, by its id
    return process.pid
