"""Entry of the host: claim the pipes, die with the worker, then import what is heavy and serve."""

from __future__ import annotations

import argparse
import functools
import logging
import os
import signal
import sys
import threading
from typing import Any

from crucible_worker.backends.local.bounds import HostBounds
from crucible_worker.backends.local.frames import read_frame
from crucible_worker.backends.local.host.pipes import Replies, claim_pipes
from crucible_worker.lifetime import die_with
from crucible_worker.limits import WorkerLimits


def main() -> None:
    """Serve the worker at the other end of stdin and stdout until it closes them or dies."""
    parser = argparse.ArgumentParser(prog="crucible_worker.backends.local.host", description=__doc__)
    parser.add_argument("--parent", type=int, required=True, help="process id of the worker")
    parser.add_argument("--device", metavar="auto|cpu|cuda|cuda:N", default="auto")
    parser.add_argument("--bounds", type=HostBounds.from_json, default=HostBounds.of(WorkerLimits()), help="as JSON")
    arguments = parser.parse_args()
    bounds: HostBounds = arguments.bounds
    die_with(arguments.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is the worker's
    requests, replies = claim_pipes()
    logging.basicConfig(stream=sys.stderr, format="model host: %(levelname)s %(name)s: %(message)s")
    # Only now: these take seconds, and what they print must not get between the frames.
    from transformers.utils import logging as transformers_logging

    from crucible_worker.backends.local.host import checking, text_child
    from crucible_worker.backends.local.host.engine import Engine
    from crucible_worker.backends.local.host.fork_server import ForkServer, import_architecture

    transformers_logging.disable_progress_bar()
    # Before the first thread.
    fork_server = ForkServer(
        functools.partial(text_child.serve, bounds=bounds, load=checking.load), import_architecture
    )
    engine = Engine(arguments.device, bounds, fork_server, Replies(replies).send)
    threading.Thread(target=_end_if_it_ends, args=(engine.run,), name="compute", daemon=True).start()
    while (message := read_frame(requests)) is not None:
        engine.submit(message)
    # The worker has closed its end. Nothing here is worth waiting for, least of all a thread amid a large product.
    os._exit(0)


def _end_if_it_ends(run: Any) -> None:
    """A host that no longer computes must not look alive: the worker then starts another one."""
    try:
        run()
    finally:
        logging.getLogger(__name__).exception("the compute thread ended")
        os._exit(1)


if __name__ == "__main__":
    main()
