"""Entry point of a process of environments: it is bound to its parent, then does one of three things.

"describe" sends an environment's description, and ends. "keep" loads an environment, and forks a process
for each running group. "play" is such a process if forking is not safe.
"""

from __future__ import annotations

import argparse

from crucible_worker.children.lifetime import begin


def main() -> None:
    """Run the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("describe", "keep", "play"))
    parser.add_argument("environment", help="name of the environment")
    arguments, end = begin("crucible_worker.evaluators.environments.host", __doc__, parser)
    # Imported only now: if the worker dies meanwhile, no process remains.
    from crucible_worker.evaluators.environments.host import child

    if arguments.what == "describe":
        child.describe(end, arguments.environment)
    elif arguments.what == "keep":
        child.keep(end, arguments.environment)
    else:
        child.play_by_name(end, arguments.environment)


if __name__ == "__main__":
    main()
