"""A worker that evaluates checkpoints, as the whole of a process: `python -m tests.robustness.follow_worker JSON`.

The configuration has `ready_file`, `state_dir`, `root` (the model root) and `latency` of a model call, in seconds;
`journal` is the URL of a database, if the journal is in one.
"""

import ctypes
import json
import signal
import sys
from pathlib import Path

from crucible_worker.config import Settings
from crucible_worker.server import serve
from crucible_worker.util.limits import WorkerLimits
from tests.service.follow_kit import CheckpointBackend, checkpoint_build

_PR_SET_PDEATHSIG = 1


def main(configuration: dict) -> int:
    """Serve until told to go; returns the exit code."""
    # Tests that are killed leave no worker behind.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    settings = Settings(
        journal=configuration.get("journal"),
        port=0,
        ready_file=Path(configuration["ready_file"]),
        state_dir=Path(configuration["state_dir"]),
        model_roots=(Path(configuration["root"]),),
        grading_processes=0,
        limits=WorkerLimits(),
    ).validate()
    return serve(settings, build=checkpoint_build(CheckpointBackend(latency=configuration["latency"])))


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
