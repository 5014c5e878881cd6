"""A directory of checkpoints is followed: each whole one is held, evaluated once and released."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import AlreadyExists, BridgeError, NotFound
from crucible_bridge.events import EventKind
from crucible_bridge.types import Dataset, EvaluationPlan, EvaluatorSpec, FollowPolicy, HubModel, LocalModel, Sample
from crucible_worker.planning.follow.checkpoints import Naming, look
from crucible_worker.planning.follow.holding import hold
from crucible_worker.planning.follow.names import hold_name
from tests import needs
from tests.service.follow_kit import (
    FOUND,
    QUESTIONS,
    RELEASED,
    SKIPPED,
    CheckpointBackend,
    Followed,
    following,
    save,
    save_adapter,
    weights,
)
from tests.service.patience_kit import patient_plan
from tests.service.plans_kit import plan, planned
from tests.tables import rows


async def test_each_checkpoint_is_evaluated_once(tmp_path: Path):
    """Those that are there, and those that come later, by the order of their steps."""
    async with following(tmp_path) as f:
        save(f.folder, 10)
        save(f.folder, 9)
        answer = await f.follow()
        assert (answer.plan_id, answer.existed) == ("run", False)
        await f.told(RELEASED, "checkpoint-10")
        save(f.folder, 20)
        released = await f.told(RELEASED, "checkpoint-20")
        found = await f.evaluations()
    assert f.events(FOUND) == [(FOUND, f"checkpoint-{step}") for step in (9, 10, 20)]
    assert {step: each.evaluation_id for step, each in found.items()} == {
        step: f"run-step-{step}-0" for step in (9, 10, 20)
    }
    assert [found[step].metrics.values["accuracy"] for step in (9, 10, 20)] == [0.0, 1.0, 1.0]
    assert released.measurements["lag_steps"] == 0.0
    assert released.measurements["lag_seconds"] >= 0.0


async def test_a_whole_checkpoint_starts_within_seconds(tmp_path: Path):
    """EVALUATION_START comes at most 3 s after the checkpoint became whole, as far as the machine has the time."""
    async with following(tmp_path) as f:
        f.folder.mkdir()
        await f.follow()
        save(f.folder, 10)
        written = time.time()
        start = await f.recorder.wait_for(lambda event: event.kind is EventKind.EVALUATION_START, seconds=60.0)
        found = await f.told(FOUND, "checkpoint-10")
    assert 0 <= found.measurements["lag_seconds"] < 60
    assert start.step == found.step == 10
    assert start.unix_time_ns / 1e9 - written < 30


async def test_a_checkpoint_is_held_by_links_while_it_is_read(tmp_path: Path):
    """The trainer deletes it meanwhile, and no result changes; then the links go. Users see its own path."""
    gate = asyncio.Event()
    async with following(tmp_path, backend=CheckpointBackend(gate=gate)) as f:
        path = save(f.folder, 10)
        await f.follow()
        found = await f.told(FOUND, "checkpoint-10")
        held = Path(found.metadata["path"])
        assert found.metadata["held"] == "links"
        assert held == f.folder / ".crucible" / hold_name("run", f.state_dir) / "checkpoint-10"
        assert (held / "model.safetensors").stat().st_ino == (path / "model.safetensors").stat().st_ino
        shutil.rmtree(path)
        start = await f.recorder.wait_for(lambda event: event.kind is EventKind.EVALUATION_START, seconds=60.0)
        gate.set()
        released = await f.told(RELEASED, "checkpoint-10")
        (evaluation,) = (await f.evaluations()).values()
        (checkpoint,) = (await f.bridge.evaluation.list_runs(run_id="run")).checkpoints
    assert evaluation.metrics.values["accuracy"] == 1.0
    assert checkpoint.model == LocalModel(str(path))
    assert start.metadata["model"] == f"local:{path}"
    assert released.metadata == {"name": "checkpoint-10", "path": str(held), "held": "links"}
    assert not held.exists()


async def test_a_released_checkpoint_is_marked(tmp_path: Path):
    """In the state directory, and in the checkpoint if that is wanted; a trainer that waits sees whole files."""
    async with following(tmp_path) as f:
        path = save(f.folder, 10)
        await f.follow(mark=True)
        await f.told(RELEASED, "checkpoint-10")
        marks = [path / ".released", f.state_dir / "released" / "run" / "checkpoint-10.released"]
        assert [json.loads(mark.read_text()) for mark in marks] == [
            {"run_id": "run", "name": "checkpoint-10", "step": 10}
        ] * 2
        # The mark makes no other checkpoint of it.
        save(f.folder, 20)
        await f.told(RELEASED, "checkpoint-20")
    assert f.events(SKIPPED) == []


async def test_a_mark_is_written_into_the_checkpoint_alone(tmp_path: Path):
    """Not through a link that has taken its place, or the name of the file in which the mark begins."""
    gate = asyncio.Event()
    async with following(tmp_path, backend=CheckpointBackend(gate=gate)) as f:
        moved, other = save(f.folder, 10), tmp_path / "other"
        (save(f.folder, 20) / ".released.part").symlink_to(other)
        await f.follow(mark=True)
        await f.told(FOUND, "checkpoint-20")
        moved.rename(tmp_path / "moved")
        moved.symlink_to(tmp_path / "moved")
        gate.set()
        await f.told(RELEASED, "checkpoint-10")
        await f.told(RELEASED, "checkpoint-20")
        assert (f.state_dir / "released" / "run" / "checkpoint-10.released").exists()
        assert (f.folder / "checkpoint-20" / ".released").is_file()
    assert not (tmp_path / "moved" / ".released").exists()
    assert not other.exists()


async def test_a_directory_that_becomes_a_link_is_not_followed_out_of_its_root(tmp_path: Path):
    """What is evaluated already ends as it would; when the directory is back, it is followed again."""
    gate, outside = asyncio.Event(), tmp_path / "outside"
    save(outside, 5)
    async with following(tmp_path, backend=CheckpointBackend(gate=gate)) as f:
        save(f.folder, 10)
        await f.follow()
        await f.recorder.wait_for(lambda event: event.kind is EventKind.EVALUATION_START, seconds=60.0)
        f.folder.rename(f.root / "moved")
        f.folder.symlink_to(outside)
        gate.set()
        await f.told(RELEASED, "checkpoint-10")
        f.folder.unlink()
        (f.root / "moved").rename(f.folder)
        save(f.folder, 20)
        await f.told(RELEASED, "checkpoint-20")
    assert f.events(FOUND) == [(FOUND, "checkpoint-10"), (FOUND, "checkpoint-20")]
    assert [path.name for path in outside.iterdir()] == ["checkpoint-5"]


async def test_a_half_written_checkpoint_waits(tmp_path: Path):
    """It is evaluated once it is whole, and the others do not wait for it."""
    async with following(tmp_path) as f:
        half = f.folder / "checkpoint-10"
        half.mkdir(parents=True)
        (half / "config.json").write_text("{}")
        whole = weights(10)
        (half / "model.safetensors").write_bytes(whole[:-4])
        save(f.folder, 11)
        await f.follow()
        await f.told(RELEASED, "checkpoint-11")
        assert f.events(FOUND) == [(FOUND, "checkpoint-11")]
        with (half / "model.safetensors").open("ab") as file:
            file.write(whole[-4:])
        await f.told(RELEASED, "checkpoint-10")
        found = await f.evaluations()
    assert [found[step].metrics.values["accuracy"] for step in (10, 11)] == [1.0, 0.0]


async def test_a_marker_makes_it_whole(tmp_path: Path):
    """With a marker, nothing is evaluated before it is there."""
    async with following(tmp_path) as f:
        path = save(f.folder, 10)
        marked = save(f.folder, 20)
        (marked / "DONE").touch()
        await f.follow(marker="DONE")
        await f.told(RELEASED, "checkpoint-20")
        assert f.events(FOUND) == [(FOUND, "checkpoint-20")]
        (path / "DONE").touch()
        await f.told(RELEASED, "checkpoint-10")


async def test_names_by_a_pattern(tmp_path: Path):
    """Other names are no checkpoints then."""
    async with following(tmp_path) as f:
        save(f.folder, 10)
        save(f.folder, 7, "mine-7")
        await f.follow(name_pattern="mine-{step}")
        released = await f.told(RELEASED, "mine-7")
    assert released.step == 7
    assert f.events(FOUND) == [(FOUND, "mine-7")]


async def test_the_policy_every_takes_each_kth(tmp_path: Path):
    """The first one, and each third after it; the others are skipped with the reason."""
    async with following(tmp_path) as f:
        for step in range(1, 8):
            save(f.folder, step)
        await f.follow(policy=FollowPolicy.EVERY, every=3)
        skipped = await f.told(SKIPPED, "checkpoint-2")
        for step in (1, 4, 7):
            await f.told(RELEASED, f"checkpoint-{step}")
        assert sorted(await f.evaluations()) == [1, 4, 7]
    assert skipped.metadata["reason"] == "the policy evaluates one of 3 checkpoints"
    assert "lag_seconds" not in skipped.measurements


async def test_the_policy_latest_skips_what_is_overtaken(tmp_path: Path):
    """While one is evaluated the newest of the others waits, held, and those between are skipped."""
    gate = asyncio.Event()
    async with following(tmp_path, backend=CheckpointBackend(gate=gate)) as f:
        save(f.folder, 1)
        save(f.folder, 2)
        await f.follow(policy=FollowPolicy.LATEST)
        await f.told(SKIPPED, "checkpoint-1")
        await f.recorder.wait_for(lambda event: event.kind is EventKind.EVALUATION_START, seconds=60.0)
        save(f.folder, 3)
        await f.told(FOUND, "checkpoint-3")
        save(f.folder, 4)
        await f.told(SKIPPED, "checkpoint-3")
        gate.set()
        for step in (2, 4):
            await f.told(RELEASED, f"checkpoint-{step}")
        assert sorted(await f.evaluations()) == [2, 4]
    assert f.events(SKIPPED) == [(SKIPPED, "checkpoint-1"), (SKIPPED, "checkpoint-3")]
    assert f.events(RELEASED) == [(RELEASED, "checkpoint-2"), (RELEASED, "checkpoint-4")]


async def test_an_adapter_is_evaluated_on_its_model(tmp_path: Path):
    """On the one that it names, or on the given one; without either it is skipped, with the cure."""
    async with following(tmp_path) as f:
        save_adapter(f.folder, 1, "someone/base")
        save_adapter(f.folder, 2, None)
        await f.follow()
        reason = (await f.told(SKIPPED, "checkpoint-2")).metadata["reason"]
        await f.told(RELEASED, "checkpoint-1")
        await f.bridge.follow(
            "run", run_id="other", base_model="local:base?dtype=float32", evaluators=["nll"], dataset=QUESTIONS
        )
        await f.recorder.wait_for(
            lambda event: event.kind is RELEASED and event.run_id == "other" and event.step == 2, seconds=60.0
        )
        models = {(each.request.run_id, each.request.step): each.request.model for each in await _all(f)}
    assert "--base-model" in reason
    held = [
        str(f.folder / ".crucible" / hold_name(run_id, f.state_dir) / name)
        for run_id, name in (("run", "checkpoint-1"), ("other", "checkpoint-2"))
    ]
    assert models["run", 1] == HubModel("someone/base", adapter_path=held[0])
    assert models["other", 2] == LocalModel("base", adapter_path=held[1], dtype="float32")


async def _all(f: Followed) -> list[Any]:
    return [each async for each in f.bridge.evaluation.all_evaluations()]


async def test_a_plan_decides_what_is_due(tmp_path: Path):
    """A registered plan is named by its id; a checkpoint at which nothing is due is skipped."""
    async with following(tmp_path) as f:
        await f.bridge.evaluation.register_plan(plan(run_id="run", eval_every=5, infrequent_evaluations=()))
        for step in (3, 5):
            save(f.folder, step)
        answer = await f.follow(plan="p")
        assert answer.plan_id == "p"
        skipped = await f.told(SKIPPED, "checkpoint-3")
        await f.told(RELEASED, "checkpoint-5")
        assert [each.evaluation_id for each in (await f.evaluations()).values()] == ["p-step-5-0"]
    assert skipped.metadata["reason"] == "nothing of the plan p is due at step 3"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "checkpoint-10"),
        ({"hold_folder": "holds"}, "checkpoint-10"),
        ({"name_pattern": "global_step_{step}/actor"}, "global_step_10/actor"),
    ],
)
async def test_the_best_checkpoint_is_named_where_the_trainer_saved_it(
    options: Mapping[str, str], name: str, tmp_path: Path
):
    """The file lies in the followed directory, wherever checkpoints are held, and however deep they lie."""
    async with following(tmp_path) as f:
        path, file = f.folder / name, f.folder / "BEST"
        save(path.parent, 10, path.name)
        await f.follow(plan=patient_plan(best_file=True), **options)
        found = await f.told(FOUND, path.parent.name if "/" in name else name)
        assert found.metadata["held"] == "links"
        async with asyncio.timeout(60.0):
            while not file.exists():
                await asyncio.sleep(0.05)
        best = json.loads(file.read_text())
    assert (best["checkpoint"], best["model"]) == (name, f"local:{path}")


async def test_a_run_is_followed_until_it_is_unfollowed(tmp_path: Path):
    """Then nothing more is found; what has begun ends. The same call again resumes, and evaluates nothing twice."""
    async with following(tmp_path) as f:
        save(f.folder, 1)
        await f.follow()
        await f.told(RELEASED, "checkpoint-1")
        assert (await f.follow()).existed is True
        assert await f.bridge.unfollow("run") is True
        assert await f.bridge.unfollow("run") is False
        save(f.folder, 2)
        assert (await f.follow()).existed is False
        await f.told(RELEASED, "checkpoint-2")
        with pytest.raises(NotFound) as caught:
            await f.bridge.unfollow("another")
    assert caught.value.reason == "UNKNOWN_FOLLOW"
    assert f.events(RELEASED) == [(RELEASED, "checkpoint-1"), (RELEASED, "checkpoint-2")]


async def test_two_workers_share_a_run(tmp_path: Path):
    """Both are told to follow; one does, and the other one goes on when that ends."""
    async with contextlib.AsyncExitStack() as second:
        async with following(tmp_path) as f:
            g = await second.enter_async_context(following(tmp_path, root=f.root))
            answers = await asyncio.gather(f.follow(), g.follow())
            assert sorted(answer.existed for answer in answers) == [False, True]
            save(f.folder, 1)
            await g.told(RELEASED, "checkpoint-1")
        save(g.folder, 2)
        await g.told(RELEASED, "checkpoint-2")
        assert sorted(await g.evaluations()) == [1, 2]
        assert g.events() == [
            event for step in (1, 2) for event in ((FOUND, f"checkpoint-{step}"), (RELEASED, f"checkpoint-{step}"))
        ]


async def test_workers_of_two_journals_hold_for_themselves(tmp_path: Path):
    """By one run id in one directory: what one releases, the other one still reads."""
    gate = asyncio.Event()
    async with (
        following(tmp_path, backend=CheckpointBackend(gate=gate)) as slow,
        following(tmp_path, root=slow.root, state_dir=tmp_path / "other") as quick,
    ):
        path = save(slow.folder, 2)
        await slow.follow()
        found = await slow.told(FOUND, "checkpoint-2")
        await quick.follow()
        await quick.told(RELEASED, "checkpoint-2")
        shutil.rmtree(path)
        held = Path(found.metadata["path"])
        assert [each for each in slow.folder.glob(".crucible/*/*") if each.name == path.name] == [held]
        gate.set()
        await slow.told(RELEASED, "checkpoint-2")
        for each in (slow, quick):
            (evaluation,) = (await each.evaluations()).values()
            assert evaluation.metrics.values["accuracy"] == 1.0
        assert not held.parent.exists()


async def test_what_is_held_in_a_folder_of_another_name_is_released(tmp_path: Path):
    """The path in the journal says where it is, and not the folder's name of today."""
    gate = asyncio.Event()
    async with following(tmp_path, backend=CheckpointBackend(gate=gate)) as f:
        path = save(f.folder, 2)
        await f.follow()
        found = await f.told(FOUND, "checkpoint-2")
    moved = tmp_path / "moved"
    shutil.move(f.state_dir, moved)
    shutil.rmtree(path)
    held = Path(found.metadata["path"])
    assert held.is_dir()
    assert held.parent.name != hold_name("run", moved)
    async with following(tmp_path, state_dir=moved) as f:
        await f.told(RELEASED, "checkpoint-2")
        (evaluation,) = (await f.evaluations()).values()
        assert evaluation.metrics.values["accuracy"] == 1.0
        assert not held.parent.exists()


async def test_a_worker_that_starts_resumes(tmp_path: Path):
    """A run stays followed although no worker runs; checkpoints of the meantime are found by the next one."""
    async with following(tmp_path) as f:
        save(f.folder, 1)
        await f.follow()
        await f.told(RELEASED, "checkpoint-1")
    save(f.folder, 2)
    async with following(tmp_path) as f:
        await f.told(RELEASED, "checkpoint-2")
        assert sorted(await f.evaluations()) == [1, 2]
        assert f.events(RELEASED) == [(RELEASED, "checkpoint-1"), (RELEASED, "checkpoint-2")]


async def test_a_directory_may_come_later_and_go(tmp_path: Path):
    """It is waited for; a checkpoint that goes with it before it is held is not evaluated."""
    async with following(tmp_path) as f:
        await f.follow()
        save(f.folder, 1)
        await f.told(RELEASED, "checkpoint-1")
        shutil.rmtree(f.folder)
        save(f.folder, 2)
        await f.told(RELEASED, "checkpoint-2")
        assert sorted(await f.evaluations()) == [1, 2]


def _patient() -> EvaluationPlan:
    """A plan of the run, whose best step is reported; enough samples that it is no chance."""
    samples = tuple(Sample(id=f"s{index}", input=f"{index}?", targets=("even",)) for index in range(40))
    evaluation = planned(EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"}), dataset=Dataset.of(samples))
    return patient_plan(plan_id="run", evaluations=(evaluation,), patience=5)


async def test_a_checkpoint_that_is_written_again_is_a_new_one(tmp_path: Path):
    """It is evaluated under another id; the number before is marked, and neither best nor compared any more.

    Another worker that takes the following over evaluates neither of them again.
    """
    wanted = _patient()
    async with following(tmp_path) as f:
        save(f.folder, 2)
        path = save(f.folder, 4)
        await f.follow(plan=wanted)
        await f.told(RELEASED, "checkpoint-4")
        shutil.rmtree(path)
        save(f.folder, 4, content=5)
        await f.recorder.wait_for(lambda event: f.events(RELEASED).count((RELEASED, "checkpoint-4")) == 2, seconds=60.0)
    async with following(tmp_path) as f:
        await f.follow(plan=wanted)
        save(f.folder, 6)
        await f.told(RELEASED, "checkpoint-6")
        found = (await f.bridge.evaluation.list_runs(run_id="run")).checkpoints
        best = (await f.bridge.evaluation.list_runs()).runs[0].best
        compared = await f.bridge.evaluation.compare_evaluations(run_id="run")

    by_step = {one.step: [(each.metrics["accuracy"], each.superseded) for each in one.results] for one in found}
    assert by_step == {2: [(1.0, False)], 4: [(1.0, True), (0.0, False)], 6: [(1.0, False)]}
    first, second = found[1].results
    assert first.evaluation_id == "run-step-4-0"
    assert second.evaluation_id.startswith("run-step-4-0-")
    assert first.evaluation_id not in {one.evaluation_id for one in best}
    assert [one.request.step for one in compared.evaluations] == [2, 4, 6]
    assert first.evaluation_id not in {one.evaluation_id for one in compared.evaluations}


async def test_a_best_step_that_is_written_again_is_looked_at_again(tmp_path: Path):
    """Its place is that of its new number."""
    wanted = _patient()
    async with following(tmp_path) as f:
        save(f.folder, 1)
        path = save(f.folder, 2)
        await f.follow(plan=wanted)
        await f.recorder.wait_for(lambda event: event.kind is EventKind.RUN_BEST and event.step == 2, seconds=60.0)
        await f.told(RELEASED, "checkpoint-2")
        shutil.rmtree(path)
        save(f.folder, 2, content=3)
        await f.recorder.wait_for(lambda event: f.events(RELEASED).count((RELEASED, "checkpoint-2")) == 2, seconds=60.0)
        save(f.folder, 4)
        best = await f.recorder.wait_for(
            lambda event: event.kind is EventKind.RUN_BEST and event.step == 4, seconds=60.0
        )

    assert best.metadata["previous_step"] == "1"


async def test_a_second_folder_of_a_step_is_skipped(tmp_path: Path):
    """A step has one number: that of the folder that was evaluated first, as the reason says."""
    async with following(tmp_path) as f:
        save(f.folder, 1)
        await f.follow(name_pattern="*-{step}")
        await f.told(RELEASED, "checkpoint-1")
        save(f.folder, 1, "last-1")
        skipped = await f.told(SKIPPED, "last-1")
    assert skipped.metadata["reason"] == "another checkpoint of step 1 is or was evaluated, checkpoint-1"


async def test_what_was_evaluated_is_evaluated_again_next_to_a_second_folder(tmp_path: Path):
    """A checkpoint that is written again is a new one, also if the name of a skipped folder would be preferred."""
    async with following(tmp_path) as f:
        path = save(f.folder, 1)
        await f.follow(name_pattern="*-{step}")
        await f.told(RELEASED, "checkpoint-1")
        save(f.folder, 1, "last-1")
        await f.told(SKIPPED, "last-1")
        shutil.rmtree(path)
        save(f.folder, 1, content=3)
        await f.recorder.wait_for(lambda event: f.events(RELEASED).count((RELEASED, "checkpoint-1")) == 2, seconds=60.0)
        assert f.events(SKIPPED) == [(SKIPPED, "last-1")]


@pytest.mark.parametrize("hindrance", ["name", "time"])
async def test_a_checkpoint_that_cannot_be_recorded_holds_up_no_other(hindrance: str, tmp_path: Path):
    """Its name is not UTF-8; or its files are of the year 2400, by a broken clock, and then it is evaluated as well."""
    async with following(tmp_path) as f:
        path = save(f.folder, 1, os.fsdecode(b"ckpt\xff-1" if hindrance == "name" else b"ckpt-1"))
        if hindrance == "time":
            for file in path.iterdir():
                os.utime(file, (13_600_000_000, 13_600_000_000))
        await f.follow(name_pattern="ckpt*-{step}")
        save(f.folder, 2, "ckpt-2")
        await f.told(RELEASED, "ckpt-2")
        if hindrance == "time":
            released = await f.told(RELEASED, "ckpt-1")
            assert released.measurements["lag_seconds"] == 0.0
        assert sorted(await f.evaluations()) == ([2] if hindrance == "name" else [1, 2])


async def test_what_cannot_be_linked_is_copied(tmp_path: Path):
    """As on another file system: the event says why, and the result is the same."""
    other = Path(tempfile.mkdtemp(prefix="crucible-follow-", dir="/dev/shm"))
    try:
        if other.stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip(needs.ANOTHER_FILE_SYSTEM)
        (tmp_path / "models").mkdir()
        async with following(tmp_path, roots=(tmp_path / "models", other)) as f:
            save(f.folder, 2)
            await f.follow(hold_folder=other / "held")
            found = await f.told(FOUND, "checkpoint-2")
            await f.told(RELEASED, "checkpoint-2")
        assert found.metadata["held"] == "copy"
        assert "hard links are refused" in found.metadata["reason"]
        assert found.metadata["path"] == str(other / "held" / hold_name("run", f.state_dir) / "checkpoint-2")
        assert list((other / "held").glob("*/*")) == []
    finally:
        shutil.rmtree(other)


@pytest.mark.skipif(os.geteuid() == 0, reason=needs.NO_ROOT)
async def test_a_directory_that_cannot_be_written_is_read_where_it_is(tmp_path: Path):
    """Then nothing holds its checkpoints, which the event says."""
    async with following(tmp_path) as f:
        save(f.folder, 2)
        f.folder.chmod(0o500)
        try:
            await f.follow()
            found = await f.told(FOUND, "checkpoint-2")
            await f.told(RELEASED, "checkpoint-2")
        finally:
            f.folder.chmod(0o700)
    assert (found.metadata["held"], found.metadata["path"]) == ("nothing", str(f.folder / "checkpoint-2"))


@rows(
    ("fields", "field", "reason"),
    [
        ({"directory": "../elsewhere"}, "directory", "PATH_OUT_OF_ROOT"),
        ({"hold_folder": "/"}, "hold_folder", "PATH_OUT_OF_ROOT"),
        ({"every": 2}, "every", "INVALID_FIELD"),
        ({"policy": FollowPolicy.EVERY}, "every", "INVALID_FIELD"),
        ({"name_pattern": "/"}, "name_pattern", "INVALID_FIELD"),
        ({"marker": "a/b"}, "marker", "INVALID_FIELD"),
        ({"base_model": "embedded:arithmetic@320"}, "base_model", "INVALID_FIELD"),
        ({"plan": "no such plan"}, "plan_id", "UNKNOWN_PLAN"),
        ({"plan": "p"}, "run_id", "INVALID_FIELD"),
        ({"evaluators": ["made_up"]}, "evaluators[0].kind", "UNKNOWN_EVALUATOR"),
    ],
)
async def test_what_is_wrong_is_named(fields: dict[str, Any], field: str, reason: str, tmp_path: Path):
    """By its field, and nothing is followed."""
    async with following(tmp_path) as f:
        await f.bridge.evaluation.register_plan(plan(run_id="another"))
        asked = {"evaluators": ["nll"], "dataset": QUESTIONS, **fields}
        directory = asked.pop("directory", "run")
        if "plan" in asked:
            asked = {"plan": asked["plan"]}
        with pytest.raises(BridgeError) as caught:
            await f.bridge.follow(directory, run_id="run", **asked)
        assert (caught.value.reason, caught.value.field) == (reason, field)
        with pytest.raises(NotFound):
            await f.bridge.unfollow("run")


async def test_a_file_is_not_followed(tmp_path: Path):
    """Nothing could come of it; a directory that does not exist is waited for."""
    async with following(tmp_path) as f:
        f.folder.write_text("")
        with pytest.raises(BridgeError, match="which is no directory") as caught:
            await f.follow()
    assert caught.value.field == "directory"


async def test_another_way_is_refused_while_a_run_is_followed(tmp_path: Path):
    """The error names what differs; after the end of the following it is accepted."""
    async with following(tmp_path) as f:
        await f.follow()
        with pytest.raises(AlreadyExists) as caught:
            await f.follow(mark=True)
        assert (caught.value.reason, caught.value.metadata["differs"]) == ("OTHER_FOLLOW", "mark")
        await f.bridge.unfollow("run")
        assert (await f.follow(mark=True)).existed is False


async def test_what_was_held_and_not_recorded_is_evaluated(tmp_path: Path):
    """A worker was killed between the two, and the trainer has deleted the checkpoint since."""
    async with following(tmp_path) as f:
        path = save(f.folder, 10)
        folder = f.folder / ".crucible" / hold_name("run", f.state_dir)
        await _until_whole(f.folder, folder)
        shutil.rmtree(path)
        (folder / ".checkpoint-9.crucible-partial").mkdir()
        await f.follow()
        await f.told(RELEASED, "checkpoint-10")
        (evaluation,) = (await f.evaluations()).values()
        assert evaluation.metrics.values["accuracy"] == 1.0
        assert not folder.exists()
    assert f.events() == [(FOUND, "checkpoint-10"), (RELEASED, "checkpoint-10")]


async def _until_whole(directory: Path, folder: Path) -> None:
    """Hold the one checkpoint of a directory, as a worker does."""
    async with asyncio.timeout(60):
        while not (found := look(directory, Naming()).whole):
            await asyncio.sleep(0.05)
    hold(found[0], folder, max_copy_bytes=0, naming=Naming())
