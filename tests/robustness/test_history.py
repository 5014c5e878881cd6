"""Histories of random calls and faults keep the rules of `history`, and each rule refuses a history that breaks it.

HISTORY_SEED repeats the choices of a run, HISTORY_SECONDS sets its length. `FOUND` has the seeds of runs that found
something.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.client import StartedEvaluation
from crucible_bridge.client.evaluation import EvaluationPage
from crucible_bridge.errors import (
    AlreadyExists,
    BridgeError,
    FailedPrecondition,
    InternalError,
    InvalidField,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from crucible_bridge.events import Event, EventKind
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    CheckpointResult,
    Evaluation,
    EvaluationState,
    EvaluatorResult,
    EvaluatorSpec,
    Metrics,
    SampleResult,
    Verdict,
)
from tests.postgres_server import PostgresServer, running_server
from tests.robustness.evidence import bits, request
from tests.robustness.history import Call, Ended, History, Reading, Reference, comparable, violations
from tests.robustness.history_traffic import record

SECONDS, WHOLE_SECONDS = 180.0, 1800.0
"""Of calls and faults, by `make test-history` and by `make torture`."""
FOUND: Mapping[int, str] = {
    1298895676: "a worker without free descriptors called a data file unreadable, and failed an evaluation as by a bug",
    2876891065: "a journal that could be written again during a drain left a traceback in the log",
    1873280391: "a worker whose clock was 40 days ahead put an evaluation off for 40 days after an outage",
}
"""What seeds have found: `make torture` runs each of them again."""
MOST_SHOWN = 20
"""Violations in the message of a test that fails."""
FINGERPRINT = "f"
METRICS = Metrics({"accuracy": 0.5})
SAMPLES = (
    SampleResult(evaluator="accuracy", sample_id="s0", verdict=Verdict.CORRECT, score=1.0),
    SampleResult(evaluator="accuracy", sample_id="s1", verdict=Verdict.INCORRECT, score=0.0),
)
COMPLETED, CANCELLED, RUNNING = EvaluationState.COMPLETED, EvaluationState.CANCELLED, EvaluationState.RUNNING
Kind = EventKind


async def _check(folder: Path, seconds: float, seed: int, server: PostgresServer | None = None) -> None:
    """Record a history and apply every rule."""
    seed = int(os.environ.get("HISTORY_SEED", "0")) or seed or random.SystemRandom().randrange(1, 2**32)
    seconds = float(os.environ.get("HISTORY_SECONDS", seconds))
    print(f"HISTORY_SEED={seed} HISTORY_SECONDS={seconds:g}")
    history = await record(folder, seed, seconds, server)
    outcomes = collections.Counter(
        (call.name, "answered" if call.error is None else call.error.reason) for call in history.calls
    )
    print(f"{len(history.calls)} calls, {len(history.log)} events, {len(history.ended)} evaluations: {dict(outcomes)}")
    found = violations(history)
    assert not found, f"HISTORY_SEED={seed}, {folder / 'history.txt'}:\n" + "\n".join(found[:MOST_SHOWN])


@pytest.mark.parametrize(
    ("seconds", "seed"),
    [
        pytest.param(SECONDS, 0, marks=pytest.mark.history, id="short"),
        pytest.param(WHOLE_SECONDS, 0, marks=pytest.mark.torture, id="whole"),
        *(pytest.param(SECONDS, seed, marks=pytest.mark.torture, id=f"seed-{seed}") for seed in FOUND),
    ],
)
class TestHistory:
    async def test_a_history_in_sqlite_keeps_every_rule(self, tmp_path: Path, seconds: float, seed: int):
        """Whatever happens to two workers of a state directory, their answers agree, and nothing is lost or doubled."""
        await _check(tmp_path, seconds, seed)

    @pytest.mark.postgres
    async def test_a_history_in_postgres_keeps_every_rule(self, tmp_path: Path, seconds: float, seed: int):
        """Likewise of two workers of one database."""
        with running_server() as server:
            await _check(tmp_path, seconds, seed, server)


def _evaluation(identity: str, **fields: Any) -> Evaluation:
    """The evaluation `a`, completed in its second attempt; or another one."""
    result = EvaluatorResult(
        evaluator=EvaluatorSpec(kind="accuracy"), metrics=METRICS, n=2, n_scored=2, n_correct=1, n_unscored=0
    )
    whole: dict[str, Any] = {
        "request": request(identity, samples=2),
        "state": COMPLETED,
        "metrics": METRICS,
        "results": (result,),
        "done": 2,
        "total": 2,
        "attempt": 2,
        "last_sequence": 9,
        "dataset_fingerprint": FINGERPRINT,
    }
    return Evaluation(evaluation_id=identity, **{**whole, **fields})


def _running(**fields: Any) -> Evaluation:
    unfinished = {"state": RUNNING, "metrics": Metrics({}), "results": (), "done": 1, "attempt": 1, "last_sequence": 3}
    return _evaluation("a", **{**unfinished, **fields})


def _cancelled() -> Evaluation:
    fields = {"metrics": Metrics({}), "results": (), "done": 0, "attempt": 1, "last_sequence": 11}
    return _evaluation("c", state=CANCELLED, **fields)


def _log(*events: tuple[str, EventKind, Mapping[str, str]]) -> list[Event]:
    return [
        Event(
            sequence=number,
            evaluation_id=identity,
            kind=kind,
            evaluator="accuracy" if kind is Kind.SAMPLE_COMPLETE else "",
            metadata=metadata,
            measurements={"accuracy": 0.5} if kind is Kind.EVALUATION_COMPLETE else {},
        )
        for number, (identity, kind, metadata) in enumerate(events, 1)
    ]


START = ("a", Kind.EVALUATION_START, {})
FIRST, SECOND = (("a", Kind.SAMPLE_COMPLETE, {"sample_id": name, "repeat": "0"}) for name in ("s0", "s1"))
INTERRUPT, RESUME = ("a", Kind.EVALUATION_INTERRUPT, {}), ("a", Kind.EVALUATION_RESUME, {})
COMPLETE = ("a", Kind.EVALUATION_COMPLETE, {})
STOP = ("a", Kind.EVALUATION_STOP, {"state": "completed"})
OTHERS = (("", Kind.METRICS_COMPUTED, {}), ("a", Kind.EVALUATION_PROGRESS, {}))
CANCELLED_EVENTS = (("c", Kind.EVALUATION_START, {}), ("c", Kind.EVALUATION_STOP, {"state": "cancelled"}))
RIGHT_LOG = (START, FIRST, INTERRUPT, OTHERS[0], RESUME, OTHERS[1], SECOND, COMPLETE, STOP, *CANCELLED_EVENTS)


def _call(name: str, asked: float, answer: Any = None, *, subject: str = "a", **fields: Any) -> Call:
    return Call(name=name, worker="0.0", subject=subject, asked=asked, answered=asked + 0.5, answer=answer, **fields)


def _refused(name: str, asked: float, error: BridgeError) -> Call:
    return _call(name, asked, error=error)


def _right() -> History:
    """A history that keeps every rule, and has something for each."""
    log = _log(*RIGHT_LOG)
    done, cancelled = _evaluation("a"), _cancelled()
    return History(
        references={"k": {FINGERPRINT: Reference(metrics=bits(METRICS), samples=comparable(SAMPLES))}},
        kinds={"a": "k", "c": "k"},
        calls=[
            _call("start", 1, StartedEvaluation(evaluation=_running(done=0), existed=False)),
            _refused("start_other", 2, AlreadyExists("no", reason=Reason.OTHER_SPECIFICATION)),
            _call("pause", 3, _running(paused=True)),
            _call("get", 4, _running(paused=True)),
            _call("resume", 5, _running()),
            _call("samples", 6, SAMPLES[:1]),
            _refused("get", 7, Unavailable("it was killed", reason=Reason.TRANSPORT)),
            _call("get", 8, done),
            _call("cancel", 9, cancelled, subject="c"),
            _call("list", 10, [EvaluationPage(items=(cancelled, done), next_page_token="")], subject=""),
            _call("nll", 11, {"nll": 2.0}, subject="", expected={"nll": 2.0}),
            _call("notify", 12, [StartedEvaluation(evaluation=done, existed=True)], subject="p 1"),
            _call("notify", 13, [StartedEvaluation(evaluation=done, existed=True)], subject="p 1"),
        ],
        readings=[
            Reading(reader="r", after=0, through=4, events=log[:4]),
            Reading(reader="r", after=4, through=11, events=log[4:]),
            Reading(reader="w", evaluation_id="c", after=0, through=11, events=log[9:]),
        ],
        log=log,
        ended={
            "a": [Ended(worker=str(number), evaluation=done, samples=SAMPLES) for number in range(2)],
            "c": [Ended(worker="0", evaluation=cancelled, samples=())],
        },
        run_results={
            "a": CheckpointResult(evaluation_id="a", state=COMPLETED, done=2, metrics=dict(METRICS.values)),
            "c": CheckpointResult(evaluation_id="c", state=CANCELLED),
        },
    )


def test_a_right_history_is_accepted() -> None:
    """No rule refuses what a worker may do."""
    assert violations(_right()) == []


Change = Callable[[History], object]


def _asks(*calls: Call) -> Change:
    return lambda history: history.calls.extend(calls)


def _logs(*events: tuple[str, EventKind, Mapping[str, str]]) -> Change:
    """Another log, which every reader has read."""

    def change(history: History) -> None:
        history.log = _log(*events)
        history.readings = []

    return change


def _ends(evaluation: Evaluation | None = None, samples: Sequence[SampleResult] = SAMPLES) -> Change:
    """Another end of `a` at both workers."""
    ended = [Ended(worker="0", evaluation=evaluation or _evaluation("a"), samples=samples)]
    return lambda history: history.ended.update(a=ended)


def _reads(index: int, **fields: Any) -> Change:
    def change(history: History) -> None:
        history.readings[index] = dataclasses.replace(history.readings[index], **fields)

    return change


def _shows(**fields: Any) -> Change:
    def change(history: History) -> None:
        history.run_results["a"] = dataclasses.replace(history.run_results["a"], **fields)

    return change


OTHER_SAMPLE = dataclasses.replace(SAMPLES[0], output="another answer")
EVENTS = _log(*RIGHT_LOG)
(RESULT,) = _evaluation("a").results
WRONG: Mapping[str, tuple[str, Change]] = {
    "a bug": ("refusals_have_reasons", _asks(_refused("get", 20, InternalError("a bug")))),
    "no reason": ("refusals_have_reasons", _asks(_refused("get", 20, Unavailable("no", reason="MADE_UP")))),
    "another code": (
        "refusals_have_reasons",
        _asks(_refused("get", 20, NotFound("no", reason=Reason.JOURNAL_UNREADABLE))),
    ),
    "a final refusal of a right call": (
        "refusals_have_reasons",
        _asks(_refused("start", 20, PermissionDenied("no", reason=Reason.UNREADABLE))),
    ),
    "a final refusal of another call": (
        "refusals_have_reasons",
        _asks(_refused("get", 20, InvalidField("dataset", "no", reason=Reason.MALFORMED_LINE))),
    ),
    "another specification": (
        "other_specifications_are_refused",
        _asks(_call("start_other", 20, StartedEvaluation(evaluation=_evaluation("a"), existed=True))),
    ),
    "an evaluation that is gone": (
        "known_evaluations_stay_known",
        _asks(_refused("get", 20, NotFound("no", reason=Reason.UNKNOWN_EVALUATION))),
    ),
    "a list without it": (
        "known_evaluations_stay_known",
        _asks(_call("list", 20, [EvaluationPage(items=(_cancelled(),), next_page_token="")])),
    ),
    "a list that has it twice": (
        "known_evaluations_stay_known",
        _asks(_call("list", 20, [EvaluationPage(items=(_cancelled(), *[_evaluation("a")] * 2), next_page_token="")])),
    ),
    "new twice": (
        "starts_are_new_once",
        _asks(_call("start", 20, StartedEvaluation(evaluation=_evaluation("a"), existed=False))),
    ),
    "completed, then running": ("ends_are_final", _asks(_call("get", 20, _running(attempt=3, last_sequence=12)))),
    "cancelled, then completed": ("ends_are_final", _asks(_call("get", 20, _evaluation("c", last_sequence=12)))),
    "completed with other bits": (
        "ends_are_final",
        _asks(_call("get", 20, _evaluation("a", metrics=Metrics({"accuracy": 0.5000000000000001})))),
    ),
    "completed with another end": ("ends_are_final", _asks(_call("get", 20, _evaluation("a", ended_unix_ns=1)))),
    "fewer done": ("progress_never_goes_back", _asks(_call("get", 6.2, _running(done=0)))),
    "an earlier attempt": (
        "progress_never_goes_back",
        _asks(_call("get", 6.2, _running(attempt=2, last_sequence=5)), _call("get", 7.2, _running(last_sequence=5))),
    ),
    "an earlier sequence": ("progress_never_goes_back", _asks(_call("get", 6.2, _running(last_sequence=2)))),
    "a pause that is lost": ("pauses_last", _asks(_call("get", 3.6, _running()))),
    "a sample twice": ("samples_are_those_of_an_undisturbed_run", _asks(_call("samples", 20, [SAMPLES[0]] * 2))),
    "a sample of no run": ("samples_are_those_of_an_undisturbed_run", _asks(_call("samples", 20, [OTHER_SAMPLE]))),
    "a sample that is gone": ("samples_are_those_of_an_undisturbed_run", _asks(_call("samples", 20, []))),
    "other samples": ("results_are_those_of_an_undisturbed_run", _ends(samples=(OTHER_SAMPLE, SAMPLES[1]))),
    "a missing sample": ("results_are_those_of_an_undisturbed_run", _ends(samples=SAMPLES[:1])),
    "other metrics": (
        "results_are_those_of_an_undisturbed_run",
        _ends(_evaluation("a", metrics=Metrics({"accuracy": 0.25}))),
    ),
    "a data set that never was": (
        "results_are_those_of_an_undisturbed_run",
        _ends(_evaluation("a", dataset_fingerprint="g")),
    ),
    "another number done": ("totals_agree", _ends(_evaluation("a", done=1))),
    "another number scored": (
        "totals_agree",
        _ends(_evaluation("a", results=(dataclasses.replace(RESULT, n_scored=1, n_unscored=1),))),
    ),
    "another number correct": (
        "totals_agree",
        _ends(_evaluation("a", results=(dataclasses.replace(RESULT, n_correct=2),))),
    ),
    "another total": ("totals_agree", _ends(_evaluation("a", total=3))),
    "another last sequence": ("totals_agree", _ends(_evaluation("a", last_sequence=8))),
    "a run with other metrics": ("totals_agree", _shows(metrics={"accuracy": 0.25})),
    "a run in another state": ("totals_agree", _shows(state=RUNNING)),
    "a run without it": ("totals_agree", lambda history: history.run_results.pop("a")),
    "samples without events": (
        "totals_agree",
        _logs(START, FIRST, COMPLETE, STOP, *CANCELLED_EVENTS),
    ),
    "a gap in the log": ("events_are_in_order", lambda history: history.log.pop(3)),
    "no start": ("events_are_in_order", _logs(*RIGHT_LOG[1:])),
    "two starts": ("events_are_in_order", _logs(START, START, *RIGHT_LOG[1:])),
    "an attempt within an attempt": ("events_are_in_order", _logs(START, RESUME, FIRST, SECOND, COMPLETE, STOP)),
    "two interruptions": ("events_are_in_order", _logs(START, INTERRUPT, INTERRUPT, RESUME, COMPLETE, STOP)),
    "a sample between attempts": (
        "events_are_in_order",
        _logs(START, INTERRUPT, FIRST, RESUME, SECOND, COMPLETE, STOP),
    ),
    "a sample's event twice": ("events_are_in_order", _logs(START, FIRST, FIRST, SECOND, COMPLETE, STOP)),
    "a sample's event again in another attempt": (
        "events_are_in_order",
        _logs(START, FIRST, INTERRUPT, RESUME, FIRST, SECOND, COMPLETE, STOP),
    ),
    "a sample after the end": ("events_are_in_order", _logs(START, FIRST, COMPLETE, STOP, SECOND)),
    "completed without COMPLETE": ("events_are_in_order", _logs(START, FIRST, SECOND, STOP)),
    "cancelled with COMPLETE": (
        "events_are_in_order",
        _logs(START, FIRST, SECOND, COMPLETE, ("a", Kind.EVALUATION_STOP, {"state": "cancelled"})),
    ),
    "something between COMPLETE and STOP": ("events_are_in_order", _logs(START, FIRST, COMPLETE, SECOND, STOP)),
    "another number of attempts": ("events_are_in_order", _ends(_evaluation("a", attempt=3))),
    "an event that a reader missed": ("readers_get_everything_once", _reads(1, events=EVENTS[5:])),
    "an event that a reader got twice": ("readers_get_everything_once", _reads(0, events=[*EVENTS[:4], EVENTS[3]])),
    "an event of another evaluation": ("readers_get_everything_once", _reads(2, events=EVENTS[8:])),
    "events out of order": ("readers_get_everything_once", _reads(0, events=[EVENTS[1], EVENTS[0], *EVENTS[2:4]])),
    "a reader that began elsewhere": ("readers_get_everything_once", _reads(1, after=5, events=EVENTS[5:])),
    "another metric": ("arithmetic_is_right", _asks(_call("nll", 20, {"nll": 2.0001}, expected={"nll": 2.0}))),
    "a missing metric": ("arithmetic_is_right", _asks(_call("nll", 20, {}, expected={"nll": 2.0}))),
    "a step with two evaluations": (
        "plans_start_each_step_once",
        _asks(_call("notify", 20, [StartedEvaluation(evaluation=_cancelled(), existed=True)], subject="p 1")),
    ),
    "an evaluation that never ends": ("everything_ends", _ends(_running())),
    "an evaluation that failed for good": ("everything_ends", _ends(_evaluation("a", state=EvaluationState.FAILED))),
    "an evaluation that was not cancelled": ("everything_ends", _ends(_evaluation("a", state=CANCELLED))),
    "an evaluation without an end": ("everything_ends", lambda history: history.ended.pop("a")),
}
"""Changes of a right history, each with the rule that refuses it."""


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_history_is_refused(name: str) -> None:
    """Each rule finds what it is about: the checker can fail."""
    rule, change = WRONG[name]
    history = _right()
    change(history)
    assert rule in {told.partition(":")[0] for told in violations(history)}


def test_an_ended_evaluation_may_refuse_a_pause() -> None:
    """A refusal that the reference of the call names is right."""
    history = _right()
    error = FailedPrecondition("it has ended", reason=Reason.EVALUATION_ENDED)
    history.calls.append(_refused("pause", 20, error))
    assert violations(history) == []
