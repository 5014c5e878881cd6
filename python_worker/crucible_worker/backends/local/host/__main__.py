"""Entry point of the host: tie it to the worker's life, then import the heavy modules and serve."""

from __future__ import annotations

import argparse
import functools
import logging
import os
import sys
import threading
from typing import Any

from crucible_worker.backends.local.protocol import HostBounds, Replies
from crucible_worker.children.frames import receive
from crucible_worker.children.lifetime import begin
from crucible_worker.children.messages import unpack
from crucible_worker.util.limits import WorkerLimits


def main() -> None:
    """Serve the worker at the other end of a socket until it closes the socket or dies."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", metavar="auto|cpu|cuda|cuda:N", default="auto")
    parser.add_argument("--bounds", type=HostBounds.from_json, default=HostBounds.of(WorkerLimits()), help="as JSON")
    arguments, end = begin("crucible_worker.backends.local.host", __doc__, parser)
    bounds: HostBounds = arguments.bounds
    logging.basicConfig(stream=sys.stderr, format="model host: %(levelname)s %(name)s: %(message)s")
    # Imported only now: these take seconds.
    from transformers.utils import logging as transformers_logging

    from crucible_worker.backends.local.host.engine import TorchEngine
    from crucible_worker.backends.local.host.loading import load_texts
    from crucible_worker.backends.local.host.text_processes import HostForkServer, import_architecture, serve

    transformers_logging.disable_progress_bar()
    # Forked before the first thread starts.
    fork_server = HostForkServer(functools.partial(serve, bounds=bounds, load=load_texts), import_architecture)
    engine = TorchEngine(arguments.device, bounds, fork_server, Replies(end).send)
    threading.Thread(target=_exit_when_it_ends, args=(engine.run,), name="compute", daemon=True).start()
    while (body := receive(end)) is not None:
        engine.submit(unpack(body))
    # The worker has closed its end: exit at once, without waiting for a thread in a large matrix product.
    os._exit(0)


def _exit_when_it_ends(run: Any) -> None:
    """End the host if its compute thread ends: the worker then starts another one."""
    try:
        run()
    finally:
        logging.getLogger(__name__).exception("the compute thread ended")
        os._exit(1)


if __name__ == "__main__":
    main()
