"""Entry of a process of environments: bound to its parent, then one of three.

"describe" tells what an environment says of itself, and ends. "keep" loads an environment, and forks a process from it
for each group at work. "play" is such a process where forking is not safe.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket

from crucible_worker.lifetime import die_with


def main() -> None:
    """Do one of these."""
    parser = argparse.ArgumentParser(prog="crucible_worker.evaluators.environments.host", description=__doc__)
    parser.add_argument("--parent", type=int, required=True, help="process id of who has started this one")
    parser.add_argument("--socket", type=int, required=True, help="file descriptor of a socket")
    parser.add_argument("what", choices=("describe", "keep", "play"))
    parser.add_argument("environment", help="name of the environment")
    arguments = parser.parse_args()
    die_with(arguments.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(arguments.socket, False)
    end = socket.socket(fileno=arguments.socket)
    # Only now: a worker that dies meanwhile leaves nothing behind.
    from crucible_worker.evaluators.environments.host import keeper, player

    if arguments.what == "describe":
        keeper.describe(end, arguments.environment)
    elif arguments.what == "keep":
        keeper.keep(end, arguments.environment)
    else:
        player.play_by_name(end, arguments.environment)


if __name__ == "__main__":
    main()
