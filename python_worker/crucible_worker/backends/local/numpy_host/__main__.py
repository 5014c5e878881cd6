"""Entry point of the host: tie it to the worker's life, then serve."""

from __future__ import annotations

import argparse
import os
import threading

from crucible_worker.util.loading import loading

with loading():
    from crucible_worker.backends.local.numpy_host.engine import NumpyEngine
    from crucible_worker.backends.local.protocol import HostBounds, Replies
    from crucible_worker.children.frames import receive
    from crucible_worker.children.lifetime import begin
    from crucible_worker.children.messages import unpack
    from crucible_worker.util.limits import WorkerLimits


def main() -> None:
    """Serve the worker at the other end of a socket until it closes the socket or dies."""
    parser = argparse.ArgumentParser()
    # Every host gets them. Nothing here takes long enough to need one.
    parser.add_argument("--bounds", type=HostBounds.from_json, default=HostBounds.of(WorkerLimits()), help="as JSON")
    _, end = begin("crucible_worker.backends.local.numpy_host", __doc__, parser)
    engine = NumpyEngine(Replies(end).send)
    threading.Thread(target=engine.run, name="compute", daemon=True).start()
    while (body := receive(end)) is not None:
        engine.submit(unpack(body))
    # The worker has closed its end: exit at once, without waiting for the thread.
    os._exit(0)


if __name__ == "__main__":
    main()
