"""What the first evaluation of a worker loads."""

import os
import subprocess
import sys
import time
from pathlib import Path

import crucible_bridge
from crucible_bridge.types import Dataset, EvaluatorSpec, InlineDataset, Sample, SamplingParams

SECONDS = 30.0
"""For a worker to be ready, on a loaded machine."""
RECORDER = """
import os, sys, threading

class Recorder:
    def find_spec(self, name, path=None, target=None):
        if name == "jsonschema":
            with open(os.environ["IMPORTS_FILE"], "a") as file:
                file.write("event loop" if threading.current_thread() is threading.main_thread() else "thread")

sys.meta_path.insert(0, Recorder())
"""
"""Writes down who imports the slowest library of a first evaluation."""


async def test_the_event_loop_imports_no_large_library(tmp_path: Path) -> None:
    """A thread imports what checks the options of evaluators: the event loop answers health probes meanwhile."""
    (tmp_path / "sitecustomize.py").write_text(RECORDER)
    imports, ready = tmp_path / "imports", tmp_path / "ready"
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "IMPORTS_FILE": str(imports)}
    command = [sys.executable, "-m", "crucible_worker", "serve", "--port=0", f"--state-dir={tmp_path / 'state'}"]
    with subprocess.Popen([*command, f"--ready-file={ready}"], env=environment, stderr=subprocess.DEVNULL) as worker:
        try:
            deadline = time.monotonic() + SECONDS
            while not ready.exists():
                assert worker.poll() is None
                assert time.monotonic() < deadline
                os.sched_yield()
            assert not imports.exists()
            async with crucible_bridge.connect(ready.read_text()) as bridge:
                await bridge.evaluation.evaluate(
                    evaluation_id="first",
                    model="embedded:arithmetic@600",
                    evaluators=[EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"})],
                    dataset=Dataset(source=InlineDataset((Sample(input="1+1=", targets=("2",)),))),
                    sampling=SamplingParams(max_tokens=4),
                )
        finally:
            worker.kill()

    assert imports.read_text() == "thread"
