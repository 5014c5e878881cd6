"""The fork server of grading pools, `python -m crucible_worker.grading.pool_host`: loads modules, forks children."""

from __future__ import annotations

import argparse
import gc
import importlib

from crucible_bridge.errors import Unavailable
from crucible_bridge.reasons import Reason
from crucible_worker.children.fork_server import ForkServer, refuse
from crucible_worker.children.lifetime import begin
from crucible_worker.grading import children


def main() -> None:
    """Load the modules, and fork children until the worker ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("modules", nargs="*", help="what children need")
    arguments, control = begin("crucible_worker.grading.pool_host", __doc__, parser)
    try:
        for module in arguments.modules:
            importlib.import_module(module)
    except Exception as error:
        message = f"the children that grade do not start: {type(error).__name__}: {error}"
        refuse(control, Unavailable(message, reason=Reason.GRADING_POOL))
    # Garbage collections would write to every page that is shared with forks.
    gc.collect()
    gc.freeze()
    ForkServer(control, children.serve).serve()


if __name__ == "__main__":
    main()
