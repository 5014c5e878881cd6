"""DeleteEvaluation: what goes, what stays, and what those see who read meanwhile, at any worker of the journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.errors import BridgeError, Code, NotFound
from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import EvaluationState
from crucible_worker.history import retention
from crucible_worker.testing import RunningWorker, ScriptedModel, run_worker
from tests.service.evaluation_kit import HeldModel, asked, kinds_of, log_of, numbered, refused, samples_of
from tests.service.plans_kit import plan

SAMPLES = 40


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[RunningWorker, RunningWorker]]:
    """Two workers of one journal; the first one has the evaluation `e`, which has ended."""
    models = {"m": ScriptedModel()}
    async with run_worker(models, state_dir=tmp_path) as one, run_worker(models, state_dir=tmp_path) as other:
        await one.bridge.evaluation.evaluate(asked(evaluation_id="e", run_id="r", dataset=numbered(SAMPLES)))
        yield one, other


async def watched(bridge: Bridge, evaluation_id: str) -> list[Event]:
    """The events of an evaluation, to its end."""
    return [event async for event in bridge.evaluation.watch_evaluation(evaluation_id)]


async def test_it_is_gone_for_every_worker_and_client(pair: tuple[RunningWorker, RunningWorker]):
    """No call finds it, nor a second delete; the answer is the evaluation as it was."""
    one, other = pair
    before = await one.bridge.evaluation.get_evaluation("e")

    def delete() -> object:
        with crucible_bridge.connect_sync(other.address) as bridge:
            return bridge.evaluation.delete_evaluation("e")

    assert await asyncio.to_thread(delete) == before
    for worker in pair:
        calls = worker.bridge.evaluation
        for call in (
            calls.get_evaluation("e"),
            calls.get_samples("e"),
            calls.cancel_evaluation("e"),
            calls.delete_evaluation("e"),
            calls.generate_report("e"),
            watched(worker.bridge, "e"),
        ):
            await refused(call, Code.NOT_FOUND, "UNKNOWN_EVALUATION", "evaluation_id")
        await refused(calls.compare_evaluations(["e", "f"]), Code.NOT_FOUND, "UNKNOWN_EVALUATION", "evaluation_ids[0]")
        await refused(calls.generate_report(run_id="r"), Code.NOT_FOUND, "UNKNOWN_RUN", "run_id")
        assert (await calls.list_evaluations()).items == ()


async def test_what_runs_is_refused_until_it_is_cancelled(tmp_path: Path):
    """At its owner and at another worker: the refusal says what to do first."""
    held = {"m": HeldModel()}
    async with run_worker(held, state_dir=tmp_path) as one, run_worker(held, state_dir=tmp_path) as other:
        await one.bridge.evaluation.start_evaluation(asked(evaluation_id="e"))
        for worker in (one, other):
            calls = worker.bridge.evaluation
            error = await refused(calls.delete_evaluation("e"), Code.FAILED_PRECONDITION, "NOT_ENDED", "evaluation_id")
            assert "cancel it first" in error.message
        await other.bridge.evaluation.cancel_evaluation("e")
        deleted = await other.bridge.evaluation.delete_evaluation("e")
        assert deleted.state is EvaluationState.CANCELLED
        await refused(one.bridge.evaluation.get_evaluation("e"), Code.NOT_FOUND, "UNKNOWN_EVALUATION", "evaluation_id")


async def test_streams_read_across_it_and_lose_nothing(pair: tuple[RunningWorker, RunningWorker]):
    """A subscriber in the middle of its events, and one that begins later, get each event of the log once."""
    one, other = pair
    log = await log_of(one.bridge)
    middle = log[len(log) // 2].sequence
    info = await other.bridge.worker.get_info()

    async with other.bridge.telemetry.subscribe(middle, info.log_id) as stream:
        first = await anext(stream)
        await one.bridge.evaluation.delete_evaluation("e")
        await one.bridge.evaluation.evaluate(asked(evaluation_id="later", dataset=numbered(3)))
        read = [first]
        while read[-1].kind is not EventKind.EVALUATION_STOP or read[-1].evaluation_id != "later":
            read.append(await anext(stream))

    whole = await log_of(other.bridge)
    assert whole[: len(log)] == log
    assert [event.sequence for event in whole] == list(range(1, len(whole) + 1))
    assert read == whole[middle:]


async def test_its_id_is_free(pair: tuple[RunningWorker, RunningWorker]):
    """The same request again is a new evaluation with events of its own; another specification is accepted, too."""
    one, other = pair
    request = asked(evaluation_id="e", run_id="r", dataset=numbered(SAMPLES))
    before = await one.bridge.evaluation.get_evaluation("e")
    await one.bridge.evaluation.delete_evaluation("e")

    again = await other.bridge.evaluation.start_evaluation(request)
    ended = await other.bridge.evaluation.evaluate(request)
    assert (again.existed, ended.attempt, ended.metrics) == (False, 1, before.metrics)
    assert (await kinds_of(one.bridge))[0] is EventKind.EVALUATION_START
    assert (await watched(one.bridge, "e"))[0].sequence > before.last_sequence

    await one.bridge.evaluation.delete_evaluation("e")
    fewer = await one.bridge.evaluation.evaluate(asked(evaluation_id="e", dataset=numbered(2)))
    assert (fewer.state, len(await samples_of(other.bridge))) == (EvaluationState.COMPLETED, 2)


async def test_who_watches_an_interrupted_one_is_told(tmp_path: Path):
    """It is cancelled and deleted at once: its watch ends with the error, its log with one STOP."""
    model = HeldModel()
    async with run_worker({"m": model}, state_dir=tmp_path) as first:
        await first.bridge.evaluation.start_evaluation(asked(evaluation_id="e"))
        await model.asked.wait()
    async with run_worker({"m": ScriptedModel()}, state_dir=tmp_path) as worker:
        events = worker.bridge.evaluation.watch_evaluation("e")
        kinds = [(await anext(events)).kind for _ in range(3)]
        deleted = await worker.bridge.evaluation.delete_evaluation("e")
        with pytest.raises(NotFound, match="was deleted, or removed"):
            await anext(events)
        log = await log_of(worker.bridge, "e")

    assert kinds == [EventKind.EVALUATION_START, EventKind.EVALUATOR_START, EventKind.EVALUATION_INTERRUPT]
    assert deleted.state is EvaluationState.CANCELLED
    assert deleted.problem is not None
    assert (deleted.problem.reason, deleted.problem.message) == ("CANCELLED", "deleted")
    assert [event.kind for event in log] == [*kinds, EventKind.EVALUATION_STOP]


@pytest.mark.parametrize("call", ["samples", "report", "compare"])
async def test_a_reader_gets_all_of_it_or_an_error(
    pair: tuple[RunningWorker, RunningWorker], monkeypatch: pytest.MonkeyPatch, call: str
):
    """However small the chunks are in which its rows go, nobody gets a part of it as if it were the whole."""
    monkeypatch.setattr(retention, "CHUNK", 1)
    one, other = pair
    calls = other.bridge.evaluation
    await one.bridge.evaluation.evaluate(asked(evaluation_id="f", dataset=numbered(SAMPLES)))

    async def read() -> object:
        if call == "samples":
            return [result.sample_id async for result in calls.all_samples("e", page_size=7)]
        if call == "report":
            return await calls.generate_report(["e", "f"])
        return await calls.compare_evaluations(["e", "f"])

    whole = await read()
    deleting = asyncio.create_task(one.bridge.evaluation.delete_evaluation("e"))
    errors: list[BridgeError] = []
    while not errors:
        try:
            assert await read() == whole
        except NotFound as error:
            errors.append(error)
    await deleting
    assert errors[0].reason == "UNKNOWN_EVALUATION"


async def test_the_next_page_of_what_is_deleted_is_an_error(pair: tuple[RunningWorker, RunningWorker]):
    """Its end is never mistaken for the end of the samples."""
    one, other = pair
    page = await other.bridge.evaluation.get_samples("e", page_size=5)
    await one.bridge.evaluation.delete_evaluation("e")
    rest = other.bridge.evaluation.get_samples("e", page_size=5, page_token=page.next_page_token)
    await refused(rest, Code.NOT_FOUND, "UNKNOWN_EVALUATION", "evaluation_id")


async def test_its_files_and_what_only_it_has_recorded_go(tmp_path: Path):
    """The folder that it had, its samples and their contents; those that another evaluation shares stay."""
    async with run_worker({"m": ScriptedModel()}, state_dir=tmp_path) as worker:
        calls = worker.bridge.evaluation
        ended = {
            name: await calls.evaluate(asked(evaluation_id=name, dataset=numbered(count)))
            for name, count in (("e", 4), ("same", 4), ("alone", 6))
        }
        folders = {
            name: tmp_path / "kept" / f"{number}-{ended[name].created_unix_ns}"
            for number, name in enumerate(ended, start=1)
        }
        for folder in folders.values():
            folder.mkdir(parents=True)
        before = await samples_of(worker.bridge, "same")
        await calls.delete_evaluation("e")
        await calls.delete_evaluation("alone")

        assert [name for name, folder in folders.items() if folder.exists()] == ["same"]
        assert await samples_of(worker.bridge, "same") == before
        assert before[0].sample is not None


async def test_a_step_of_a_plan_is_evaluated_again(tmp_path: Path):
    """Where its evaluation was deleted, the same NotifyStep starts it anew under the same id."""
    async with run_worker({"m": ScriptedModel()}, state_dir=tmp_path) as worker:
        calls = worker.bridge.evaluation
        await calls.register_plan(plan())
        ((name, _),) = [
            (started.evaluation.evaluation_id, started.existed)
            for started in await calls.notify_step("p", 0, "embedded:m")
        ]
        async for _ in calls.watch_evaluation(name):
            pass
        await calls.delete_evaluation(name)
        (again,) = await calls.notify_step("p", 0, "embedded:m")
        assert (again.evaluation.evaluation_id, again.existed) == (name, False)
