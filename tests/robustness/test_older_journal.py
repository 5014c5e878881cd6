"""Journals that older workers wrote: everything in them stays usable.

`tests/cases/journals/version_2.sqlite3.gz` is of a worker whose journal had no tables for lived time yet,
`version_2_lived.sqlite3.gz` of one with them, before types and conversions were generated from the protos. Those with a
commit in their name were made by the worker of that commit: `80a3895` has none of the later tables, `593254b` all but
those of records. All were made with the requests below: `completed`, `another` and a step of a plan have completed,
`interrupted` was drained after 15 of its 24 results.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import gzip
import sqlite3
from pathlib import Path

import pytest

from crucible_bridge.client import request_of
from crucible_bridge.errors import AlreadyExists, FailedPrecondition
from crucible_bridge.events import EventKind
from crucible_bridge.types import (
    EvaluateRequest,
    EvaluationState,
    EvaluatorSpec,
    Limits,
    Sample,
    SamplingParams,
)
from crucible_worker.grading.registry import GRADERS
from crucible_worker.history import rules
from crucible_worker.journal.schema import JOURNAL_FILE, prepare
from crucible_worker.testing import ScriptedModel, run_worker
from tests.robustness.evidence import bits, check_events, log_of, samples_of

JOURNALS = Path(__file__).parent.parent / "cases" / "journals"
SAMPLES = tuple(
    Sample(id=f"s{n}", input=f"question {n}", targets=(f"QUESTION {n}" if n % 3 else "another",)) for n in range(12)
)
MODELS = {"m": ScriptedModel()}


def _request(evaluation_id: str) -> EvaluateRequest:
    return request_of(
        evaluation_id=evaluation_id,
        run_id="run",
        step=7,
        model="embedded:m",
        evaluators=[EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"}), EvaluatorSpec(kind="nll")],
        dataset=SAMPLES,
        sampling=SamplingParams(max_tokens=32, temperature=1.0, seed=11),
        limits=Limits(concurrency=1),
        labels={"who": "fixture"},
    )


@pytest.fixture(params=["version_2", "version_2_lived", "version_2_80a3895", "version_2_593254b"])
def state_dir(tmp_path, request):
    """A state directory with an older journal."""
    fixture = JOURNALS / f"{request.param}.sqlite3.gz"
    (tmp_path / JOURNAL_FILE).write_bytes(gzip.decompress(fixture.read_bytes()))
    return tmp_path


def _connect(path: Path) -> contextlib.closing[sqlite3.Connection]:
    return contextlib.closing(sqlite3.connect(path))


async def test_what_has_ended_is_readable(state_dir):
    """Evaluations with their requests and metrics, samples, events and plans are as they were written."""
    with _connect(state_dir / JOURNAL_FILE) as journal:
        log_id, last = journal.execute("SELECT log_id, sequence FROM head").fetchone()
        names = {name for (name,) in journal.execute("SELECT name FROM sqlite_master")}
    async with run_worker(MODELS, state_dir=state_dir) as worker:
        info = await worker.bridge.worker.get_info()
        assert info.last_sequence == last
        # The fixture is a copy, of which a journal that remembers its file makes a log of its own.
        assert (info.log_id == log_id) == ("journal_file" not in names)
        evaluation = worker.bridge.evaluation
        assert {each.evaluation_id for each in (await evaluation.list_evaluations()).items} == {
            *("completed", "another", "interrupted", "plan-step-3-0"),
        }
        completed = await evaluation.get_evaluation("completed")
        assert completed.state is EvaluationState.COMPLETED
        assert completed.request.evaluators == tuple(result.evaluator for result in completed.results)
        assert completed.metrics.values["accuracy"] == 8 / 12
        assert len(await samples_of(worker.bridge, "completed")) == 24
        log = await log_of(worker.bridge)
        check_events(log)
        assert len(log) == last
        (step,) = await evaluation.notify_step("plan", 3, "embedded:m")
        assert step.existed
        assert step.evaluation.state is EvaluationState.COMPLETED
        assert await evaluation.evaluate(_request("completed")) == completed
        with pytest.raises(AlreadyExists):
            await evaluation.evaluate(dataclasses.replace(_request("completed"), step=8))


async def test_what_was_interrupted_is_resumed_by_its_own_rules_alone(state_dir):
    """Its samples are those of version 1 of the rules: it stays as it was, and readable."""
    async with run_worker(MODELS, state_dir=state_dir) as worker:
        with pytest.raises(FailedPrecondition) as refused:
            await worker.bridge.evaluation.evaluate(_request("interrupted"))
        left = await worker.bridge.evaluation.get_evaluation("interrupted")
        assert (refused.value.reason, left.rules_version) == ("RULES_CHANGED", 1)
        assert (left.state, left.attempt, left.done) == (EvaluationState.INTERRUPTED, 1, 15)
        assert len(await samples_of(worker.bridge, "interrupted")) == 15


async def test_what_was_interrupted_is_resumed(state_dir, monkeypatch):
    """It completes with what it has, to the last bit the result of an evaluation that nothing interrupted."""
    monkeypatch.setattr(rules, "RULES_VERSION", 1)
    monkeypatch.setattr(GRADERS["exact_match"], "version", 1)
    async with run_worker(MODELS, state_dir=state_dir) as worker:
        stands = await worker.bridge.evaluation.get_evaluation("interrupted")
        assert (stands.state, stands.done, stands.total) == (EvaluationState.INTERRUPTED, 15, 24)
        ended = await worker.bridge.evaluation.evaluate(_request("interrupted"))
        assert (ended.state, ended.attempt, ended.done) == (EvaluationState.COMPLETED, 2, 24)
        log = await log_of(worker.bridge)
        check_events(log)
        events = [event for event in log if event.evaluation_id == "interrupted"]
        count = collections.Counter((event.kind, event.evaluator, event.metadata.get("sample_id")) for event in events)
        del count[EventKind.EVALUATION_PROGRESS, "", None]
        assert set(count.values()) == {1}, "no event is written twice"
        assert sum(kind is EventKind.SAMPLE_COMPLETE for kind, *_ in count) == 24
        assert {evaluator for kind, evaluator, _ in count if kind is EventKind.EVALUATOR_COMPLETE} == {
            *("accuracy", "nll"),
        }
        assert [event.kind for event in events[-2:]] == [EventKind.EVALUATION_COMPLETE, EventKind.EVALUATION_STOP]
        assert bits(ended.metrics) == bits((await worker.bridge.evaluation.get_evaluation("completed")).metrics)
        found = await samples_of(worker.bridge, "interrupted")
        recorded = [result for result in found if result.sample is not None]
        assert len(recorded) == 9, "results of the release before have no records, and those of this one have them"
        assert all(result.sample == SAMPLES[int(result.sample_id[1:])] for result in recorded)


@pytest.mark.parametrize("state_dir", ["version_2", "version_2_80a3895", "version_2_593254b"], indirect=True)
def test_an_older_worker_finds_the_tables_that_it_knows(state_dir, tmp_path_factory):
    """Tables are added, and none that a worker of this version knows is changed: it may run at the same time."""
    new = prepare(tmp_path_factory.mktemp("new"))
    with _connect(state_dir / JOURNAL_FILE) as older:
        sql = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
        known = set(older.execute(sql))
        version = older.execute("PRAGMA user_version").fetchone()
        prepare(state_dir)
        after = set(older.execute(sql))
    with _connect(new) as journal:
        made = set(journal.execute(sql))
        assert journal.execute("PRAGMA user_version").fetchone() == version
    assert known < after
    assert {(kind, name) for kind, name, _ in made} == {(kind, name) for kind, name, _ in after}
    assert known < made
