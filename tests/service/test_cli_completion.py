"""What a shell completes when Tab is pressed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from crucible_bridge.types import EvaluationState, Record, Sample, SamplingParams, Verdict
from crucible_worker import suites
from crucible_worker.cli.options import EVALUATORS
from crucible_worker.evaluators.registry import EVALUATORS as REGISTERED
from crucible_worker.testing import ScriptedModel, run_worker
from tests.tables import rows

COMMAND = Path(sys.executable).with_name("crucible-worker")


def _completed(*words: str, cwd: Path, program: Sequence[str | Path] = (COMMAND,)) -> list[str]:
    """What bash offers after words, the last of which is not finished."""
    done = subprocess.run(
        list(program),
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        env={
            **os.environ,
            "_CRUCIBLE_WORKER_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(("crucible-worker", *words)),
            "COMP_CWORD": str(len(words)),
        },
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """Where a journal with two evaluations of a run is."""
    async with run_worker({"m": ScriptedModel()}, state_dir=tmp_path / "state") as worker:
        for step, evaluation_id in enumerate(("nightly-1", "nightly-2", "other")):
            await worker.bridge.evaluation.evaluate(
                evaluation_id=evaluation_id,
                run_id="run-7" if evaluation_id != "other" else "",
                step=step,
                model="embedded:m",
                evaluators=["accuracy"],
                dataset=[Sample(id="a", input="a", targets=("A",))],
                sampling=SamplingParams(max_tokens=2),
            )
    return tmp_path


async def test_ids_are_those_of_the_state_directory(folder: Path):
    """The newest first; ids that are typed already are left out, and a worker at an address is not called."""
    place = ("--state-dir", "state")
    assert _completed("show", *place, "ni", cwd=folder) == ["nightly-2", "nightly-1"]
    assert _completed("compare", *place, "nightly-1", "", cwd=folder) == ["other", "nightly-2"]
    assert _completed("rm", *place, "other", "nightly-1", "", cwd=folder) == ["nightly-2"]
    assert _completed("list", *place, "--run", "", cwd=folder) == ["run-7"]
    assert _completed("show", "--address", "127.0.0.1:1", "", cwd=folder) == []
    assert _completed("show", "--state-dir", "none", "", cwd=folder) == []
    assert not (folder / "none").exists()


@rows(
    ("words", "offered"),
    [
        (("sam",), ["samples"]),
        (("evaluate", "--run"), ["--run-id"]),
        (("evaluate", "--evaluator", "p"), ["pass_at_k", "perplexity", "preference"]),
        (("evaluate", "--record", ""), ["full", "outputs", "none"]),
        (("evaluate", "--suite", "ch"), ["chat"]),
        (("samples", "x", "--verdict", "in"), ["incorrect"]),
        (("list", "--state", "c"), ["completed", "cancelled"]),
    ],
)
def test_words_are_completed(words: tuple[str, ...], offered: list[str], tmp_path: Path):
    """Commands, options, and values of options that have few."""
    assert _completed(*words, cwd=tmp_path) == offered


def test_every_evaluator_is_offered():
    """The written list is that of the registry."""
    assert set(EVALUATORS) == set(REGISTERED)


@rows(
    ("words", "values"),
    [
        (("samples", "x", "--verdict"), {verdict.value for verdict in Verdict}),
        (("list", "--state"), {state.value for state in EvaluationState}),
        (("evaluate", "--record"), {record.value for record in Record}),
        (("evaluate", "--suite"), set(suites.names())),
    ],
)
def test_every_value_is_offered(words: tuple[str, ...], values: set[str], tmp_path: Path):
    """The written lists of values are those of their types."""
    assert set(_completed(*words, "", cwd=tmp_path)) == values


def test_nothing_large_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A shell waits for each Tab: no torch, no grpc, no grader, no table drawing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    heavy = ("torch", "grpc", "sympy", "numpy", "rich", "jinja2", "google.protobuf", "msgspec")
    code = (
        "import atexit, sys\n"
        "sys.argv = ['crucible-worker']\n"
        f"atexit.register(lambda: print(*(name for name in {heavy} if name in sys.modules)))\n"
        "from crucible_worker.cli import main\n"
        "main()\n"
    )
    assert _completed("show", "", cwd=tmp_path, program=(sys.executable, "-c", code)) == []
