"""An evaluation with every kind of result, and the command that exports it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import NamedTuple

from crucible_bridge.types import EvaluatorSpec, SamplingParams
from crucible_worker.testing import ScriptedModel, run_worker
from tests import commands
from tests.robustness.harness import until

LOG_SECONDS = 60.0
"""For logs to be written, on a machine that has other things to do; a bound, not an expectation."""
SAMPLES = [
    {"id": "right", "input": "ab", "target": "AB", "metadata": {"level": "easy", "naïve": "\U0001f600"}},
    {"id": "wrong/two ünï", "input": [{"role": "system", "content": "Shout."}, {"role": "user", "content": "cód"}]}
    | {"targets": ["no", "nor this"]},
    {"id": "undecided", "input": "x", "target": ""},
]


class Result(NamedTuple):
    """What a command has said."""

    exit_code: int
    stdout: str
    stderr: str


async def exported(*arguments: str | Path) -> Result:
    """`crucible-worker export`, run in a process of its own."""
    done = await asyncio.to_thread(commands.run, "export", *arguments)
    return Result(done.returncode, done.stdout, done.stderr)


async def evaluate_into(folder: Path, ids: tuple[str, ...] = ("e",), *, log_dir: Path | None = None) -> Path:
    """Evaluate the samples by two evaluators into the journal of a folder; returns the state directory."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in SAMPLES))
    models = {"m": ScriptedModel()}
    async with run_worker(models, state_dir=folder / "state", data_roots=(folder,), log_dir=log_dir) as worker:
        for evaluation_id in ids:
            await worker.bridge.evaluation.evaluate(
                evaluation_id=evaluation_id,
                run_id="run-7",
                step=320,
                model="embedded:m",
                evaluators=[
                    EvaluatorSpec(kind="accuracy", name="exact", options={"grader": "exact_match"}),
                    EvaluatorSpec(kind="accuracy", name="number", options={"grader": "numeric"}),
                ],
                dataset="jsonl:data.jsonl",
                sampling=SamplingParams(max_tokens=8),
                labels={"team": "blue"},
            )
        if log_dir is not None:
            await until(lambda: len(list(log_dir.glob("*.eval"))) == len(ids), LOG_SECONDS)
    return folder / "state"
