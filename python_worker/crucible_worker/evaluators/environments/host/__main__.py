"""Entry of a process of environments: bound to its parent, then one of three.

"describe" tells what an environment says of itself, and ends. "keep" loads an environment, and forks a process from it
for each group at work. "play" is such a process where forking is not safe.
"""

from __future__ import annotations

import argparse

from crucible_worker.children.entry import begin


def main() -> None:
    """Do one of these."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("describe", "keep", "play"))
    parser.add_argument("environment", help="name of the environment")
    arguments, end = begin("crucible_worker.evaluators.environments.host", __doc__, parser)
    # Only now: a worker that dies meanwhile leaves nothing behind.
    from crucible_worker.evaluators.environments.host import child, fork_server

    if arguments.what == "describe":
        fork_server.describe(end, arguments.environment)
    elif arguments.what == "keep":
        fork_server.keep(end, arguments.environment)
    else:
        child.play_by_name(end, arguments.environment)


if __name__ == "__main__":
    main()
