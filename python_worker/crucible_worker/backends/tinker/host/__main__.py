"""Entry of the text host: claim the pipes, die with the worker, then import what is heavy and serve."""

from __future__ import annotations

import argparse
import functools
import logging
import os
import signal
import sys

from crucible_worker.backends.local.bounds import HostBounds
from crucible_worker.backends.local.frames import read_frame
from crucible_worker.backends.local.host.pipes import Replies, claim_pipes
from crucible_worker.lifetime import die_with


def main() -> None:
    """Serve the worker at the other end of stdin and stdout until it closes them or dies."""
    parser = argparse.ArgumentParser(prog="crucible_worker.backends.tinker.host", description=__doc__)
    parser.add_argument("--parent", type=int, required=True, help="process id of the worker")
    parser.add_argument("--bounds", type=HostBounds.from_json, required=True, help="as JSON")
    arguments = parser.parse_args()
    bounds: HostBounds = arguments.bounds
    die_with(arguments.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is the worker's
    requests, replies = claim_pipes()
    logging.basicConfig(stream=sys.stderr, format="text host: %(levelname)s %(name)s: %(message)s")
    # Only now: these take seconds, and what they print must not get between the frames.
    from crucible_worker.backends.local.host import text_child
    from crucible_worker.backends.local.host.fork_server import ForkServer
    from crucible_worker.backends.tinker.host import tokenizers
    from crucible_worker.backends.tinker.host.engine import Engine
    from crucible_worker.rendering import tinker_cookbook

    # It brings torch along, which maps more memory than a child is granted: the children share it.
    tinker_cookbook.preload()
    # Before the first thread.
    fork_server = ForkServer(functools.partial(text_child.serve, bounds=bounds, load=tokenizers.load))
    engine = Engine(bounds, fork_server, Replies(replies).send)
    while (message := read_frame(requests)) is not None:
        engine.submit(message)
    # The worker has closed its end: nothing here is worth waiting for.
    os._exit(0)


if __name__ == "__main__":
    main()
