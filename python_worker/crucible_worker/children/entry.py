"""How a child begins: bound to its parent's life, at one end of a socket."""

from __future__ import annotations

import argparse
import os
import signal
import socket

from crucible_worker.children.lifetime import die_with

__all__ = ["begin"]


def begin(
    module: str, description: str | None, parser: argparse.ArgumentParser | None = None
) -> tuple[argparse.Namespace, socket.socket]:
    """Read the command line that `Process.start` wrote; from here on the child is killed when its parent ends.

    Args:
        module: what the parent started, for the help.
        description: likewise.
        parser: with the module's further arguments.

    Returns:
        The arguments, and the child's end of the socket.
    """
    parser = parser or argparse.ArgumentParser()
    parser.prog, parser.description = module, description
    parser.add_argument("--parent", type=int, required=True, help="process id of the process that started this one")
    parser.add_argument("--socket", type=int, required=True, help="file descriptor of the socket to it")
    arguments = parser.parse_args()
    die_with(arguments.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    os.set_inheritable(arguments.socket, False)
    return arguments, socket.socket(fileno=arguments.socket)
