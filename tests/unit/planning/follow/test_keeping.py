"""Copies of the best checkpoints of a run: which are kept, that each is whole, and that nothing else is touched."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.types import (
    Dataset,
    EvaluateRequest,
    Evaluation,
    EvaluationState,
    EvaluatorResult,
    EvaluatorSpec,
    Goal,
    LocalModel,
    Metrics,
    ModelRef,
)
from crucible_worker.journal.follows import CheckpointRow, CheckpointState, StepState
from crucible_worker.planning.follow.contents import examine
from crucible_worker.planning.follow.keeping import Keeper, KeepRule, copy_of
from crucible_worker.util.fingerprints import FULL

GIB = 1 << 30


def save(folder: Path, name: str, step: int) -> Path:
    """Save a whole checkpoint; all have files of the same lengths."""
    path = folder / name
    path.mkdir(parents=True)
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<f", step))
    (path / "config.json").write_text("{}")
    (path / "optimizer.pt").write_text("not part of the model")
    return path


def digest(path: Path) -> str:
    """Of the weights."""
    return f"{FULL}:{hashlib.sha256((path / 'model.safetensors').read_bytes()).hexdigest()}"


class Run:
    """A run whose checkpoints were evaluated: each has a value, and a number of samples with a score."""

    def __init__(self, folder: Path, *, count: int = 2, goal: Goal = Goal.HIGHER, max_bytes: int = GIB) -> None:
        self.folder, self.best = folder / "mine", folder / "mine" / "best"
        self.evaluations: dict[str, Evaluation] = {}
        self.lines: list[str] = []
        rule = KeepRule(folder=self.best, count=count, max_bytes=max_bytes, metric="score", goal=goal)
        self.keeper = Keeper(rule, "mine", self.evaluation, self.fingerprint, self.lines.append)

    async def evaluation(self, evaluation_id: str) -> Evaluation:
        return self.evaluations[evaluation_id]

    async def fingerprint(self, model: ModelRef) -> str | None:
        assert isinstance(model, LocalModel)
        return digest(Path(model.path))

    async def ended(
        self,
        step: int,
        value: float | None,
        *,
        scored: int = 100,
        rules: int = 2,
        before: Callable[[Path], object] = lambda path: None,
        name: str = "",
    ) -> str:
        """The evaluation of a checkpoint has ended with a value, or without one; what is kept of it, by name."""
        path = self.folder / (name or f"checkpoint-{step}")
        if not path.exists():
            save(self.folder, path.name, step)
        evaluation_id = f"mine-step-{step}-0" + ("-again" if name else "")
        result = EvaluatorResult(
            evaluator=EvaluatorSpec(kind="accuracy"),
            metrics=Metrics({} if value is None else {"score": value}),
            n=100,
            n_scored=scored,
        )
        self.evaluations[evaluation_id] = Evaluation(
            evaluation_id=evaluation_id,
            state=EvaluationState.COMPLETED if value is not None else EvaluationState.FAILED,
            request=EvaluateRequest(
                model=LocalModel(str(path)),
                evaluators=(EvaluatorSpec(kind="accuracy"),),
                dataset=Dataset.of("builtin:arithmetic"),
            ),
            metrics=result.metrics,
            results=(result,),
            model_fingerprint=digest(path),
            rules_version=rules,
        )
        row = CheckpointRow(
            name=path.name,
            identity=examine(path).identity,
            step=step,
            state=CheckpointState.STARTED,
            source=str(path),
            path=str(path),
            model=f"local:{path}",
            held="nothing",
            held_identity="",
            written_ns=0,
        )
        before(path)
        state = StepState(evaluation_id, step, self.evaluations[evaluation_id].state)
        kept = await self.keeper.keep(row, [state], lambda: False)
        return Path(kept).name

    @property
    def kept(self) -> list[str]:
        """What is in the folder of the copies."""
        return sorted(path.name for path in self.best.iterdir()) if self.best.exists() else []


async def test_the_best_ones_are_kept_and_the_others_lose_their_copies(tmp_path: Path):
    """Of equal values the earlier one is better. Less may be better."""
    run = Run(tmp_path)
    for step, value in ((10, 0.1), (20, 0.5), (30, 0.3), (40, 0.3), (50, 0.9), (60, 0.2)):
        await run.ended(step, value)
    assert run.kept == ["checkpoint-20", "checkpoint-50"]
    assert run.lines[0] == "checkpoint-10: no longer kept: there are 2 better ones"

    less = Run(tmp_path / "less", goal=Goal.LOWER, count=1)
    for step, value in ((10, 0.5), (20, 0.5), (30, 0.4), (40, 0.6)):
        await less.ended(step, value)
    assert less.kept == ["checkpoint-30"]
    assert less.lines == ["checkpoint-10: no longer kept: there is a better one"]


async def test_a_copy_is_the_model_with_its_digests_and_is_no_link(tmp_path: Path):
    """It stays as it is when the trainer writes into its own files, and when it deletes them."""
    run = Run(tmp_path)
    await run.ended(10, 0.5)
    copy, own = run.best / "checkpoint-10", run.folder / "checkpoint-10"
    before = digest(copy)
    assert sorted(path.name for path in copy.iterdir()) == [".kept", "SHA256SUMS", "config.json", "model.safetensors"]
    with (own / "model.safetensors").open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\0\0\0\0")
    assert digest(own) != before
    assert digest(copy) == before
    shutil.rmtree(own)
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=copy, check=True)
    assert copy_of("mine-step-10-0", run.folder) == copy
    assert copy_of("mine-step-20-0", run.folder) is None


async def test_what_is_no_evidence_is_not_kept(tmp_path: Path):
    """A failed evaluation, and a value of too few scores, which takes no other one's place."""
    run = Run(tmp_path, count=1)
    await run.ended(10, None)
    assert run.kept == []
    await run.ended(20, 0.5)
    await run.ended(30, 0.9, scored=16)
    assert run.kept == ["checkpoint-20"]
    assert run.lines == ["checkpoint-30: not kept: it has a value of too few scores"]


async def test_numbers_by_earlier_rules_give_way(tmp_path: Path):
    """They cannot be compared with those by later ones; they stay while there is room."""
    run = Run(tmp_path, count=2)
    await run.ended(10, 0.9, rules=1)
    await run.ended(20, 0.1)
    assert run.kept == ["checkpoint-10", "checkpoint-20"]
    await run.ended(30, 0.2)
    assert run.kept == ["checkpoint-20", "checkpoint-30"]
    assert run.lines == ["checkpoint-10: no longer kept: its value is by earlier rules, or of too few scores"]


async def test_copies_stay_within_their_bytes(tmp_path: Path):
    """The worst one leaves before a better one is copied; what does not fit next to better ones is not kept."""
    size = sum(each.stat().st_size for each in save(tmp_path, "one", 1).iterdir() if each.suffix != ".pt")
    run = Run(tmp_path, count=5, max_bytes=2 * size)
    for step, value in ((10, 0.5), (20, 0.6), (30, 0.7)):
        await run.ended(step, value)
    assert run.kept == ["checkpoint-20", "checkpoint-30"]
    assert run.lines == [
        f"checkpoint-10: no longer kept: its {size:,} bytes do not fit into {2 * size:,} with better ones"
    ]
    await run.ended(40, 0.1)
    assert run.kept == ["checkpoint-20", "checkpoint-30"]
    assert run.lines[-1].startswith(f"checkpoint-40: not kept: it has {size:,} bytes, and at most {2 * size:,} are")


async def test_what_was_written_again_since_is_not_kept(tmp_path: Path):
    """The number is that of other weights: the fingerprint of the copy says so."""

    def overwrite(path: Path) -> None:
        with (path / "model.safetensors").open("r+b") as file:
            file.seek(-4, os.SEEK_END)
            file.write(b"\0\0\0\0")

    run = Run(tmp_path)
    await run.ended(10, 0.5, before=overwrite)
    assert run.kept == []
    assert run.lines == ["checkpoint-10: not kept: it is no longer what was evaluated: its files were written again"]
    await run.ended(20, 0.5, before=shutil.rmtree)
    assert run.lines[-1] == "checkpoint-20: not kept: it is gone"


async def test_only_copies_of_the_same_plan_and_metric_are_removed(tmp_path: Path):
    """Whatever else is in the folder stays, and a copy gets another name if its own is taken."""
    run = Run(tmp_path, count=1)
    (run.best / "checkpoint-10").mkdir(parents=True)
    (run.best / "notes").mkdir()
    name = await run.ended(10, 0.5)
    assert name.startswith("checkpoint-10-")
    record = run.best / name / ".kept"
    record.write_text(json.dumps({**json.loads(record.read_text()), "metric": "other"}))
    await run.ended(20, 0.6)
    assert run.kept == sorted(["checkpoint-10", name, "checkpoint-20", "notes"])


async def test_the_same_evaluation_is_kept_once(tmp_path: Path):
    """A process that was killed after the copy got its name leaves it to the next one."""
    run = Run(tmp_path)
    assert [await run.ended(10, 0.5) for _ in range(2)] == ["checkpoint-10"] * 2
    assert run.kept == ["checkpoint-10"]


async def test_fewer_copies_are_kept_if_fewer_are_wanted(tmp_path: Path):
    """So it is also if a process was killed before it removed a copy that another one has replaced."""
    run = Run(tmp_path, count=3)
    for step, value in ((10, 0.1), (20, 0.5), (30, 0.3)):
        await run.ended(step, value)
    fewer = Run(tmp_path, count=1)
    assert await fewer.ended(10, 0.1) == ""
    assert fewer.kept == ["checkpoint-20"]


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.unit.planning.follow.test_keeping import Run

class Killed(Run):
    async def fingerprint(self, model):
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(Killed(Path(sys.argv[1])).ended(10, 0.5))
"""


async def test_a_process_that_is_killed_leaves_no_copy_that_looks_whole(tmp_path: Path):
    """It has copied all files by then. The next process removes what is left, and copies again."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    run = Run(tmp_path)
    (left,) = run.kept
    assert left.startswith(".")
    assert (run.best / left / "checkpoint-10" / "model.safetensors").exists()
    assert copy_of("mine-step-10-0", run.folder) is None

    await run.ended(10, 0.5)
    assert run.kept == ["checkpoint-10"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"plan_id": 1}'])
async def test_a_record_that_is_none_is_left_alone(text: str, tmp_path: Path):
    """It is no copy of this program."""
    run = Run(tmp_path, count=1)
    folder: Any = run.best / "other"
    folder.mkdir(parents=True)
    (folder / ".kept").write_text(text)
    await run.ended(10, 0.5)
    assert run.kept == ["checkpoint-10", "other"]
