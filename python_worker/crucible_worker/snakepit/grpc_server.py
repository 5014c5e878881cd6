"""The script that Snakepit starts: a worker whose calls are tools of the pool.

    python .../crucible_worker/snakepit/grpc_server.py [OPTIONS of the pool's adapter_args] [what Snakepit appends]

Snakepit finds its processes by this file's name. They run until SIGTERM, or until their parent is gone.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

__all__ = ["main"]

EXIT_USAGE = 2


def main() -> int:
    """Run the worker; the exit code."""
    folder = Path(__file__).resolve().parent
    _forget(folder)
    # Until the server handles signals itself: a SIGTERM before that ends the process without a traceback.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    # Before grpc is imported: its C core would write its own lines among our JSON lines.
    os.environ["GRPC_VERBOSITY"] = "NONE"

    from crucible_worker.config import SettingsError
    from crucible_worker.snakepit.launch import LaunchError, own_session, read_launch
    from crucible_worker.util.loading import loading

    if own_session(os.environ) and os.getpid() != os.getpgrp():
        os.setsid()
    try:
        settings = read_launch(sys.argv[1:], os.environ, folder)
    except (LaunchError, SettingsError) as error:
        print(f"crucible-worker: {error}", file=sys.stderr)
        return EXIT_USAGE
    # Children would search this folder first for their imports.
    os.chdir("/")

    with loading():
        from crucible_worker.server import serve
        from crucible_worker.server.endpoint import snakepit_endpoint

    return serve(settings, endpoint=snakepit_endpoint(settings), ready_text=_port, with_parent=True)


def _forget(folder: Path) -> None:
    """Remove the script's folder from the import path: modules here have names that others use too."""
    if sys.path and Path(sys.path[0]).resolve() == folder:
        del sys.path[0]


def _port(address: str) -> str:
    """The content of the ready file, for Snakepit."""
    return address.rpartition(":")[2]


if __name__ == "__main__":
    sys.exit(main())
