"""The best step of a plan and its plateau: what is reported, in which order, and once."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import crucible_bridge
from crucible_bridge.errors import InvalidField
from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import EmbeddedModel, EvaluationPlan, Goal, LocalModel, ModelRef
from crucible_worker.backends.base import Model
from crucible_worker.config import Settings
from crucible_worker.journal import Transaction
from crucible_worker.journal.plans import PatientRow, PatientStep, replace_steps
from crucible_worker.journal.schema import JOURNAL_FILE
from crucible_worker.planning import patience
from crucible_worker.server import Worker
from crucible_worker.server.parts import Parts, build_with
from crucible_worker.testing import EventRecorder, RunningWorker, ScriptedModel, record_events, run_worker
from crucible_worker.testing.scripted import ScriptedBackend
from tests.service.evaluation_kit import HeldModel, failing
from tests.service.patience_kit import answering, best_and_plateau, models, patient_plan, right, steps_of


async def notified(worker: RunningWorker, recorder: EventRecorder, step: int, model: str) -> None:
    """Report a step, and wait for the end of its evaluation."""
    (started,) = await worker.bridge.evaluation.notify_step("p", step, model)
    await ended(recorder, started.evaluation.evaluation_id)


async def ended(recorder: EventRecorder, evaluation_id: str) -> None:
    """Wait for the end of an evaluation."""
    last = (EventKind.EVALUATION_STOP, EventKind.EVALUATION_EXCEPTION)
    await recorder.wait_for(lambda event: event.evaluation_id == evaluation_id and event.kind in last)


async def reported(recorder: EventRecorder, kind: EventKind, step: int) -> Event:
    """Wait for an event of a step."""
    return await recorder.wait_for(lambda event: event.kind is kind and event.step == step)


async def test_only_what_is_credibly_better_is_the_new_best():
    """A value that is higher, but not distinguishable, is no improvement; so many of them in a row are a plateau."""
    shares = models(a=0.4, b=0.6, c=0.605, d=0.59, e=0.9, f=0.9, g=0.9, h=0.9)
    async with run_worker(shares) as worker, record_events(worker.bridge) as recorder:
        await worker.bridge.evaluation.register_plan(patient_plan(correlation_id="c"))
        for step, name in enumerate(shares):
            await notified(worker, recorder, step, f"embedded:{name}")
        await reported(recorder, EventKind.RUN_PLATEAU, 6)
        found = await best_and_plateau(worker.bridge)

        assert steps_of(found) == [("best", 0), ("best", 1), ("plateau", 3), ("best", 4), ("plateau", 6)]
        first, second, plateau = found[:3]
        assert first.measurements == {"value": 0.4, "n": 200.0, "n_scored": 200.0}
        assert (first.run_id, first.correlation_id, first.evaluation_id) == ("run", "c", "")
        assert first.metadata == {
            "metric": "accuracy",
            "goal": "higher",
            "plan_id": "p",
            "evaluation_id": "p-step-0-0",
            "model": "embedded:a",
            "by": "first",
        }
        assert second.metadata["by"] == "paired"
        assert (second.metadata["previous_step"], second.metadata["previous_evaluation_id"]) == ("0", "p-step-0-0")
        measured = second.measurements
        assert (measured["value"], measured["previous_value"]) == (0.6, 0.4)
        assert measured["difference"] == pytest.approx(0.2)
        assert 0 < measured["difference_ci_low"] < 0.2 < measured["difference_ci_high"]
        assert plateau.measurements == {"value": 0.6, "last_value": 0.59, "evaluations": 2.0}
        assert (plateau.metadata["best_step"], plateau.metadata["best_model"]) == ("1", "embedded:b")


async def test_a_step_of_few_scores_is_neither_the_best_nor_a_step_without_progress():
    """The samples that it scored may be the easy ones; if it was the first step, the next one takes its place."""
    shares = {"few": answering(32, "few"), **models(a=0.4, b=0.39), "fewer": answering(180, "fewer"), **models(c=0.41)}
    async with run_worker(shares) as worker, record_events(worker.bridge) as recorder:
        await worker.bridge.evaluation.register_plan(patient_plan())
        for step, name in enumerate(shares):
            await notified(worker, recorder, step, f"embedded:{name}")
        await reported(recorder, EventKind.RUN_PLATEAU, 4)
        found = await best_and_plateau(worker.bridge)

        assert steps_of(found) == [("best", 0), ("best", 1), ("plateau", 4)]
        assert [(one.measurements["n_scored"], one.measurements["n"]) for one in found[:2]] == [(32, 200), (200, 200)]
        assert found[1].metadata["by"] == "first"


async def test_a_difference_up_to_min_delta_is_no_improvement():
    """The interval must lie beyond it, not just the difference."""
    shares = models(a=0.4, b=0.6, c=0.9)
    async with run_worker(shares) as worker, record_events(worker.bridge) as recorder:
        await worker.bridge.evaluation.register_plan(patient_plan(min_delta=0.2, patience=1))
        for step, name in enumerate(shares):
            await notified(worker, recorder, step, f"embedded:{name}")
        await reported(recorder, EventKind.RUN_BEST, 2)
        assert steps_of(await best_and_plateau(worker.bridge)) == [("best", 0), ("plateau", 1), ("best", 2)]


async def test_a_metric_without_scores_is_compared_by_its_values():
    """The event says so, and why."""
    shares = models(a=0.4, b=0.41)
    async with run_worker(shares) as worker, record_events(worker.bridge) as recorder:
        await worker.bridge.evaluation.register_plan(patient_plan(metric="accuracy_stderr"))
        for step, name in enumerate(shares):
            await notified(worker, recorder, step, f"embedded:{name}")
        event = await reported(recorder, EventKind.RUN_BEST, 1)
        assert (event.metadata["by"], event.metadata["not_paired"]) == ("value", "NO_SCORES")
        assert event.measurements.keys() == {"value", "n", "n_scored", "previous_value", "difference"}


async def test_less_can_be_better():
    """With the goal lower, a higher value is never the new best."""
    shares = models(a=0.4, b=0.9, c=0.1)
    async with run_worker(shares) as worker, record_events(worker.bridge) as recorder:
        wanted = patient_plan(metric="accuracy", goal=Goal.LOWER, patience=1)
        await worker.bridge.evaluation.register_plan(wanted)
        for step, name in enumerate(shares):
            await notified(worker, recorder, step, f"embedded:{name}")
        event = await reported(recorder, EventKind.RUN_BEST, 2)
        # The evaluator declares that more is better, so that its samples' scores say nothing of this goal.
        assert event.metadata["not_paired"] == "NO_SCORES"
        assert steps_of(await best_and_plateau(worker.bridge)) == [("best", 0), ("plateau", 1), ("best", 2)]


async def test_steps_count_in_their_order_whatever_ends_first():
    """A step waits for an earlier one that is at work."""
    slow = HeldModel(answer=right(0.6))
    async with run_worker({**models(a=0.4, c=0.61), "b": slow}) as worker, record_events(worker.bridge) as recorder:
        await worker.bridge.evaluation.register_plan(patient_plan())
        await notified(worker, recorder, 1, "embedded:a")
        (held,) = await worker.bridge.evaluation.notify_step("p", 2, "embedded:b")
        await notified(worker, recorder, 3, "embedded:c")
        await reported(recorder, EventKind.RUN_BEST, 1)
        assert steps_of(await best_and_plateau(worker.bridge)) == [("best", 1)]
        slow.let_go.set()
        await ended(recorder, held.evaluation.evaluation_id)
        await reported(recorder, EventKind.RUN_BEST, 2)
        await notified(worker, recorder, 4, "embedded:a")
        await reported(recorder, EventKind.RUN_PLATEAU, 4)
        # Step 3 is tied with step 2, and would have been better than step 1.
        assert steps_of(await best_and_plateau(worker.bridge)) == [("best", 1), ("best", 2), ("plateau", 4)]


async def test_a_late_step_is_put_into_its_place():
    """The steps after one that is reported late are looked at again, and nothing is reported twice."""
    shares = models(a=0.4, b=0.9, c=0.6)
    async with run_worker(shares) as worker, record_events(worker.bridge) as recorder:
        await worker.bridge.evaluation.register_plan(patient_plan())
        await notified(worker, recorder, 10, "embedded:a")
        await notified(worker, recorder, 30, "embedded:c")
        await reported(recorder, EventKind.RUN_BEST, 30)
        await notified(worker, recorder, 20, "embedded:b")
        await reported(recorder, EventKind.RUN_BEST, 20)
        await notified(worker, recorder, 40, "embedded:c")
        plateau = await reported(recorder, EventKind.RUN_PLATEAU, 40)
        assert plateau.metadata["best_step"] == "20"
        found = await best_and_plateau(worker.bridge)
        assert steps_of(found) == [("best", 10), ("best", 30), ("best", 20), ("plateau", 40)]


async def test_only_evaluations_with_the_metric_count():
    """One that was cancelled, or in which no sample was scored, is no evaluation without an improvement."""
    faulty = ScriptedModel(fault=failing())
    shared = {**models(a=0.5), "held": HeldModel(), "faulty": faulty}
    async with run_worker(shared) as worker, record_events(worker.bridge) as recorder:
        await worker.bridge.evaluation.register_plan(patient_plan(patience=1))
        await notified(worker, recorder, 1, "embedded:a")
        (started,) = await worker.bridge.evaluation.notify_step("p", 2, "embedded:held")
        await worker.bridge.evaluation.cancel_evaluation(started.evaluation.evaluation_id, "enough")
        await notified(worker, recorder, 3, "embedded:faulty")
        assert "accuracy" not in (await worker.bridge.evaluation.get_evaluation("p-step-3-0")).metrics.values
        await notified(worker, recorder, 4, "embedded:a")
        await reported(recorder, EventKind.RUN_PLATEAU, 4)
        assert steps_of(await best_and_plateau(worker.bridge)) == [("best", 1), ("plateau", 4)]


async def test_what_a_worker_left_is_reported_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A worker that ends before it looks leaves the mark; the next one reports each step once."""
    shares = models(a=0.4, b=0.9)
    with monkeypatch.context() as patched:

        async def nothing(self: patience.Patient) -> None:
            pass

        patched.setattr(patience.Patient, "_look", nothing)
        async with run_worker(shares, state_dir=tmp_path) as worker, record_events(worker.bridge) as recorder:
            await worker.bridge.evaluation.register_plan(patient_plan())
            for step, name in enumerate(shares):
                await notified(worker, recorder, step, f"embedded:{name}")
            assert await best_and_plateau(worker.bridge) == []
    for _ in range(2):
        async with run_worker(shares, state_dir=tmp_path) as worker, record_events(worker.bridge) as recorder:
            await reported(recorder, EventKind.RUN_BEST, 1)
            assert steps_of(await best_and_plateau(worker.bridge)) == [("best", 0), ("best", 1)]


async def test_two_workers_report_each_step_once(tmp_path: Path):
    """Whichever of them ends the evaluation, and whichever looks first."""
    shares = models(**{f"m{step}": 0.1 + 0.1 * step for step in range(8)})
    async with (
        run_worker(shares, state_dir=tmp_path) as one,
        run_worker(shares, state_dir=tmp_path) as other,
        record_events(one.bridge) as recorder,
    ):
        await one.bridge.evaluation.register_plan(patient_plan())
        started = await asyncio.gather(
            *(
                (one, other)[step % 2].bridge.evaluation.notify_step("p", step, f"embedded:m{step}")
                for step in range(len(shares))
            )
        )
        for (each,) in started:
            await ended(recorder, each.evaluation.evaluation_id)
        await reported(recorder, EventKind.RUN_BEST, len(shares) - 1)
        found = steps_of(await best_and_plateau(one.bridge))
        assert sorted(found) == [("best", step) for step in range(len(shares))]


async def test_a_look_that_another_worker_has_overtaken_is_repeated_at_once(monkeypatch: pytest.MonkeyPatch):
    """The other worker may have read less, before this step had ended."""
    taken = []

    def overtaken(transaction: Transaction, row: PatientRow, steps: Sequence[PatientStep]) -> bool:
        if not taken:
            taken.append(row.turn)
            transaction.execute("UPDATE patient_plans SET turn = turn + 1")
        return replace_steps(transaction, row, steps)

    monkeypatch.setattr(patience, "replace_steps", overtaken)
    monkeypatch.setattr(patience, "LOOK_SECONDS", 3600.0)
    async with run_worker(models(a=0.5)) as worker, record_events(worker.bridge) as recorder:
        await worker.bridge.evaluation.register_plan(patient_plan())
        await notified(worker, recorder, 0, "embedded:a")
        await reported(recorder, EventKind.RUN_BEST, 0)

    assert len(taken) == 1


async def test_a_metric_that_no_evaluation_yields_is_refused():
    """The error names the field and what there is."""
    async with run_worker(models(a=0.5)) as worker:
        with pytest.raises(InvalidField, match="which no evaluation yields; there are accuracy") as caught:
            await worker.bridge.evaluation.register_plan(patient_plan(metric="acuracy"))
        assert caught.value.field == "patience.metric"
        with pytest.raises(InvalidField) as caught:
            await worker.bridge.evaluation.register_plan(patient_plan(patience=0))
        assert caught.value.field.endswith("patience.patience")
        with pytest.raises(InvalidField) as caught:
            await worker.bridge.evaluation.register_plan(patient_plan(patience=1, best_file=True, metric="x"))
        assert caught.value.field == "patience.metric"


async def test_the_evaluator_says_which_values_are_better_and_where_the_key_is():
    """A plan may name neither goal nor prefix; the events have both. Without a declaration, the goal is needed."""
    shares = models(a=0.9, b=0.2, c=0.2)
    async with run_worker(shares) as worker, record_events(worker.bridge) as recorder:
        (part,) = patient_plan().evaluations
        prefixed = dataclasses.replace(part, metric_prefix="test/")
        other = dataclasses.replace(part, metric_prefix="other/")
        await worker.bridge.evaluation.register_plan(patient_plan(goal=None, evaluations=(prefixed,)))
        for step, name in enumerate(shares):
            await notified(worker, recorder, step, f"embedded:{name}")
        await reported(recorder, EventKind.RUN_PLATEAU, 2)
        found = await best_and_plateau(worker.bridge)
        assert steps_of(found) == [("best", 0), ("plateau", 2)]
        assert {(event.metadata["metric"], event.metadata["goal"]) for event in found} == {("test/accuracy", "higher")}

        two = patient_plan(plan_id="two", goal=None, evaluations=(prefixed, other))
        with pytest.raises(InvalidField, match="several evaluations yield; there are test/accuracy, other/accuracy"):
            await worker.bridge.evaluation.register_plan(two)


async def test_earlier_releases_do_not_read_the_events(tmp_path: Path):
    """They are in the table of later kinds."""
    async with run_worker(models(a=0.5), state_dir=tmp_path) as worker, record_events(worker.bridge) as recorder:
        await worker.bridge.evaluation.register_plan(patient_plan())
        await notified(worker, recorder, 1, "embedded:a")
        await reported(recorder, EventKind.RUN_BEST, 1)
    with contextlib.closing(sqlite3.connect(tmp_path / JOURNAL_FILE)) as journal:
        (count,) = journal.execute("SELECT COUNT(*) FROM later_events WHERE kind = 'RUN_BEST'").fetchone()
    assert count == 1


class FolderBackend(ScriptedBackend):
    """Opens a test's models by the last part of a local path, without a look at the folder."""

    async def open(self, model: ModelRef) -> Model:
        """Find a model."""
        assert isinstance(model, LocalModel)
        return await super().open(EmbeddedModel(Path(model.path).name))


@contextlib.asynccontextmanager
async def worker_of_folders(state_dir: Path, root: Path, **shares: float) -> AsyncIterator[RunningWorker]:
    """A worker that takes folders below a model root for checkpoints which answer this share of the samples right."""
    folders = FolderBackend(models(**shares))

    async def build(settings: Settings) -> Parts:
        backends = {LocalModel: folders, EmbeddedModel: folders}
        return await build_with(settings, backends=backends)

    settings = Settings(port=0, state_dir=state_dir, model_roots=(root,), grading_processes=0, code_sandboxes=0)
    async with (
        Worker(settings.validate(), build=build) as worker,
        crucible_bridge.connect(worker.address) as bridge,
    ):
        yield RunningWorker(bridge=bridge, address=worker.address, state_dir=state_dir)


async def written(file: Path, step: int) -> dict[str, Any]:
    """Wait until the file is that of a step."""
    async with asyncio.timeout(30):
        while not file.exists() or json.loads(file.read_text())["step"] != step:
            await asyncio.sleep(0.01)
    return json.loads(file.read_text())


async def test_the_best_checkpoint_is_written_next_to_the_checkpoints(tmp_path: Path):
    """The file BEST is replaced at each new best step, and is whole at every moment."""
    root = tmp_path / "models"
    for name in ("a", "b", "c"):
        (root / "run" / name).mkdir(parents=True)
    file = root / "run" / "BEST"
    async with (
        worker_of_folders(tmp_path / "state", root, a=0.4, b=0.8, c=0.8) as worker,
        record_events(worker.bridge) as recorder,
    ):
        await worker.bridge.evaluation.register_plan(patient_plan(patience=1, best_file=True))
        await notified(worker, recorder, 1, "local:run/a")
        assert (await written(file, 1))["checkpoint"] == "a"
        await notified(worker, recorder, 2, "local:run/b")
        await notified(worker, recorder, 3, "local:run/c")
        await reported(recorder, EventKind.RUN_PLATEAU, 3)
        assert await written(file, 2) == {
            "checkpoint": "b",
            "model": "local:run/b",
            "run_id": "run",
            "plan_id": "p",
            "step": 2,
            "metric": "accuracy",
            "goal": "higher",
            "value": 0.8,
            "evaluation_id": "p-step-2-0",
            "n": 200,
            "n_scored": 200,
        }
        assert sorted(path.name for path in (root / "run").iterdir()) == ["BEST", "a", "b", "c"]


async def test_a_plan_with_a_file_takes_only_checkpoints_on_disk(tmp_path: Path):
    """Another model is refused when its step is reported; the file alone, without a metric, with the plan."""
    async with worker_of_folders(tmp_path / "state", tmp_path, a=0.4) as worker:
        await worker.bridge.evaluation.register_plan(patient_plan(best_file=True))
        with pytest.raises(InvalidField, match="is written next to checkpoints on the worker's disk") as caught:
            await worker.bridge.evaluation.notify_step("p", 1, "embedded:a")
        assert caught.value.field == "model"
        with pytest.raises(InvalidField, match="is only allowed with patience") as caught:
            await worker.bridge.evaluation.register_plan(no_patience())
        assert caught.value.field == "best_file"


def no_patience() -> EvaluationPlan:
    """A plan that wants the file, and does not say by which metric."""
    return dataclasses.replace(patient_plan(best_file=True), patience=None)
