"""Entry point of the text host: tie it to the worker's life, then import the heavy modules and serve."""

from __future__ import annotations

import argparse
import functools
import logging
import os
import sys

from crucible_worker.backends.local.protocol import HostBounds, Replies
from crucible_worker.children.frames import receive
from crucible_worker.children.lifetime import begin
from crucible_worker.children.messages import unpack


def main() -> None:
    """Serve the worker at the other end of a socket until it closes the socket or dies."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bounds", type=HostBounds.from_json, required=True, help="as JSON")
    arguments, end = begin("crucible_worker.backends.tinker.host", __doc__, parser)
    bounds: HostBounds = arguments.bounds
    logging.basicConfig(stream=sys.stderr, format="text host: %(levelname)s %(name)s: %(message)s")
    # Imported only now: these take seconds.
    from crucible_worker.backends.local.host.text_processes import HostForkServer, TextEngine, serve
    from crucible_worker.backends.tinker.host import tokenizers
    from crucible_worker.rendering import tinker_cookbook

    # It imports torch, which maps more memory than a child may use: the children share it.
    tinker_cookbook.preload()
    # Forked before the first thread starts.
    fork_server = HostForkServer(functools.partial(serve, bounds=bounds, load=tokenizers.load))
    engine = TextEngine(bounds, fork_server, Replies(end).send)
    while (body := receive(end)) is not None:
        engine.submit(unpack(body))
    # The worker has closed its end: exit at once.
    os._exit(0)


if __name__ == "__main__":
    main()
