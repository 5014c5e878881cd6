"""The events of an evaluation's life: which, in what order, how many, and what each measures and says."""

import asyncio
import itertools
import json
import math

import pytest
from structlog.testing import capture_logs

from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import EvaluationState, Limits, Sample
from crucible_worker.testing import STALL, ScriptedModel
from tests.robustness.harness import until
from tests.service.evaluation_kit import (
    SHOUT,
    HeldModel,
    accuracy,
    asked,
    by_evaluator,
    failing,
    kinds_of,
    log_of,
    nll,
    numbered,
    rig,
    state_of,
)
from tests.tables import rows

pytestmark = pytest.mark.core

START, SAMPLE = EventKind.EVALUATION_START, EventKind.SAMPLE_COMPLETE
STOP, EXCEPTION = EventKind.EVALUATION_STOP, EventKind.EVALUATION_EXCEPTION
COMPLETE = EventKind.EVALUATION_COMPLETE
BEGIN, END = EventKind.EVALUATOR_START, EventKind.EVALUATOR_COMPLETE
FAILED = EventKind.EVALUATOR_EXCEPTION
BOTH = (accuracy(), nll())


async def test_completed_evaluation_tells_start_samples_evaluators_complete_stop():
    """COMPLETED: START, COMPLETE and STOP once, each evaluator's start, samples and end between, gap-free."""
    async with rig() as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=BOTH))

        events = await log_of(r.worker.bridge)

    assert evaluation.state is EvaluationState.COMPLETED
    assert by_evaluator(events) == {
        "": [START, COMPLETE, STOP],
        "accuracy": [BEGIN, SAMPLE, SAMPLE, END],
        "nll": [BEGIN, SAMPLE, SAMPLE, END],
    }
    assert (events[0].kind, [event.kind for event in events[-2:]]) == (START, [COMPLETE, STOP])
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert evaluation.last_sequence == len(events)


async def test_every_event_carries_the_identity_of_its_evaluation():
    """Each event has id, run, step and correlation_id of the request, a time, and text and finite numbers alone."""
    async with rig() as r:
        await r.evaluation.evaluate(asked(evaluators=BOTH, run_id="run", step=7, correlation_id="c"))

        events = await log_of(r.worker.bridge)

    assert {(event.evaluation_id, event.run_id, event.step, event.correlation_id) for event in events} == {
        ("e", "run", 7, "c")
    }
    times = [event.unix_time_ns for event in events]
    assert times == sorted(times)
    assert all(math.isfinite(value) for event in events for value in event.measurements.values())
    assert all(json.loads(json.dumps(dict(event.metadata))) == event.metadata for event in events)


async def test_start_and_sample_measurements():
    """Starts measure total; SAMPLE_COMPLETE score and output_tokens, and says sample, repeat and verdict."""
    async with rig() as r:
        await r.evaluation.evaluate(asked(evaluators=(accuracy(samples_per_prompt=3), nll())))
        start, *rest = await log_of(r.worker.bridge)

    begun = {event.evaluator: event for event in rest if event.kind is BEGIN}
    rest = [event for event in rest if event.kind is SAMPLE]
    assert start.measurements == {"total": 8.0, "done": 0.0}
    assert start.metadata.keys() == {"model", "evaluators", "worker_id"}
    assert (start.metadata["model"], start.metadata["evaluators"]) == ("embedded:m", "accuracy,nll")
    graded, measured = (next(event for event in rest if event.evaluator == label) for label in ("accuracy", "nll"))
    assert graded.measurements == {"score": 1.0, "output_tokens": 1.0}
    assert graded.metadata == {"sample_id": "0", "repeat": "0", "verdict": "correct", "attempt": "1"}
    assert measured.metadata["verdict"] == "measured"
    assert graded.duration_ns > 0
    assert {label: dict(event.measurements) for label, event in begun.items()} == {
        "accuracy": {"total": 6.0},
        "nll": {"total": 2.0},
    }
    assert [(event.duration_ns, dict(event.metadata)) for event in begun.values()] == [(0, {})] * 2


async def test_unscored_sample_measures_no_score_and_has_its_problem():
    """A sample that failed has no score, verdict error, and the problem in its event."""
    async with rig(ScriptedModel(fault=failing("a"))) as r:
        await r.evaluation.evaluate(asked())
        event = await r.told(SAMPLE)

    assert event.measurements == {"output_tokens": 0.0}
    assert event.metadata["verdict"] == "error"
    assert event.problem is not None
    assert event.problem.reason == "BACKEND_DOWN"


async def test_end_events_carry_the_metrics():
    """EVALUATOR_COMPLETE has its metrics, counts and tokens, COMPLETE every metric, sample_count and tokens."""
    async with rig() as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=BOTH, metric_prefix="test/"))
        complete, stop = await r.told(COMPLETE), await r.told(STOP)
        ends = {event.evaluator: event for event in r.recorder.of(EventKind.EVALUATOR_COMPLETE)}

    counts = {"n": 2.0, "n_scored": 2.0, "n_unscored": 0.0, "n_errors": 0.0, "n_truncated_reasoning": 0.0}
    spent = {"usage.prompt_tokens": 2.0, "usage.output_tokens": 0.0, "usage.calls": 2.0, "usage.unreported_calls": 0.0}
    assert ends["nll"].measurements == {"test/nll": evaluation.metrics.values["test/nll"], **counts, **spent}
    assert ends["accuracy"].measurements.items() >= {"test/accuracy": 1.0, **counts}.items()
    both = {"usage.prompt_tokens": 4.0, "usage.output_tokens": 2.0, "usage.calls": 4.0, "usage.unreported_calls": 0.0}
    assert complete.measurements == {**evaluation.metrics.values, "sample_count": 2.0, **both}
    assert complete.metadata["model"] == "embedded:m"
    assert (stop.measurements, stop.metadata) == ({}, {"state": "completed"})
    assert complete.duration_ns == stop.duration_ns == evaluation.duration_ns > 0


@pytest.mark.parametrize(("prefix", "told"), [("test/", {"metric_prefix": "test/"}), ("", {})])
async def test_end_events_name_the_prefix_of_their_keys(prefix, told):
    """Events with metrics name the metric_prefix, so that a consumer finds known keys after it, unless it is empty."""
    async with rig() as r:
        await r.evaluation.evaluate(asked(evaluators=BOTH, metric_prefix=prefix))
        ends = [await r.told(COMPLETE), *r.recorder.of(EventKind.EVALUATOR_COMPLETE)]

    assert len(ends) == 3
    for event in ends:
        assert {key: value for key, value in event.metadata.items() if key == "metric_prefix"} == told


async def test_undefined_metrics_are_named_in_the_events_with_their_reason():
    """A key without a finite value is in no measurements; the metadata says why."""
    async with rig() as r:
        await r.evaluation.evaluate(asked(dataset=SHOUT[:1]))
        complete = await r.told(COMPLETE)

    assert "accuracy_stderr" not in complete.measurements
    assert complete.metadata["undefined.accuracy_stderr"] == "only one sample was scored"


@rows(
    ("kind", "name"),
    [
        (START, ("crucible_bridge", "evaluation", "start")),
        (SAMPLE, ("crucible_bridge", "evaluation", "sample")),
        (BEGIN, ("crucible_bridge", "evaluator", "start")),
        (EventKind.EVALUATOR_COMPLETE, ("crucible_bridge", "evaluator", "stop")),
        (EventKind.EVALUATOR_EXCEPTION, ("crucible_bridge", "evaluator", "exception")),
        (COMPLETE, ("crucible_kitchen", "evaluation", "complete")),
        (STOP, ("crucible_bridge", "evaluation", "stop")),
        (EXCEPTION, ("crucible_bridge", "evaluation", "exception")),
        (EventKind.EVALUATION_RESUME, ("crucible_bridge", "evaluation", "resume")),
        (EventKind.EVALUATION_INTERRUPT, ("crucible_bridge", "evaluation", "interrupt")),
        (EventKind.EVALUATION_PROGRESS, ("crucible_bridge", "evaluation", "progress")),
        (EventKind.METRICS_COMPUTED, ("crucible_bridge", "metrics", "stop")),
        (EventKind.GRADING_COMPLETE, ("crucible_bridge", "grading", "stop")),
    ],
)
def test_telemetry_names(kind, name):
    """Each kind has the `:telemetry` name that the contract gives it."""
    assert Event(kind=kind).telemetry_name == name


async def test_cancelled_evaluation_tells_one_stop():
    """CANCELLED: one STOP with state=cancelled, no COMPLETE and no evaluator's end."""
    async with rig(HeldModel()) as r:
        await r.evaluation.start_evaluation(asked())
        await r.model.asked.wait()

        cancelled = await r.evaluation.cancel_evaluation("e", "no longer wanted")

        kinds = await kinds_of(r.worker.bridge)
        stop = await r.told(STOP)
    assert state_of(cancelled) == (EvaluationState.CANCELLED, "CANCELLED")
    assert kinds == [START, BEGIN, STOP]
    assert stop.metadata == {"state": "cancelled"}
    assert stop.problem is not None
    assert stop.problem.message == "no longer wanted"


async def test_deadline_cancels_with_one_stop():
    """At deadline_ms the evaluation is CANCELLED, and no further model call is made."""
    async with rig(HeldModel()) as r:
        evaluation = await r.evaluation.evaluate(
            asked(dataset=numbered(4), limits=Limits(deadline_ms=2_000, concurrency=1))
        )
        kinds = await kinds_of(r.worker.bridge)

    assert state_of(evaluation) == (EvaluationState.CANCELLED, "DEADLINE_EXCEEDED")
    assert kinds == [START, BEGIN, STOP]
    assert r.model.counts["sample"] == 1


async def test_failed_evaluation_tells_one_exception():
    """FAILED by a stall: one EXCEPTION with the problem, no STOP."""
    async with rig(ScriptedModel(fault=lambda call: STALL)) as r:
        evaluation = await r.evaluation.evaluate(asked(limits=Limits(stall_timeout_ms=1_000)))
        kinds = await kinds_of(r.worker.bridge)
        exception = await r.told(EXCEPTION)

    assert state_of(evaluation) == (EvaluationState.FAILED, "STALLED")
    assert kinds == [START, BEGIN, EXCEPTION]
    assert exception.problem == evaluation.problem
    assert exception.duration_ns == evaluation.duration_ns > 0


async def test_failed_evaluation_of_failed_evaluators():
    """FAILED as no evaluator finished: each one's EXCEPTION, then the evaluation's, no COMPLETE, no metrics."""
    async with rig(ScriptedModel(fault=failing())) as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=BOTH, limits=Limits(max_unscored=0)))
        events = await log_of(r.worker.bridge)

    assert state_of(evaluation) == (EvaluationState.FAILED, "TOO_MANY_UNSCORED")
    assert by_evaluator(events) == {
        "": [START, EXCEPTION],
        "accuracy": [BEGIN, SAMPLE, SAMPLE, FAILED],
        "nll": [BEGIN, SAMPLE, SAMPLE, FAILED],
    }
    assert events[-1].kind is EXCEPTION
    assert (evaluation.metrics.values, evaluation.metrics.undefined) == ({}, {})


async def test_progress_comes_at_most_four_times_a_second():
    """PROGRESS comes while samples are done, at most 4 a second, with how far it is and how fast."""
    async with rig(ScriptedModel(latency=0.004)) as r:
        await r.evaluation.evaluate(
            asked(dataset=[*numbered(160), Sample(input="")], limits=Limits(concurrency=1), evaluators=[accuracy()])
        )
        events = await log_of(r.worker.bridge)

    progress = [event for event in events if event.kind is EventKind.EVALUATION_PROGRESS]
    assert progress
    assert all(event.measurements.keys() == {"done", "total", "unscored", "samples_per_second"} for event in progress)
    last = progress[-1]
    before = [event for event in events if event.kind is SAMPLE and event.sequence < last.sequence]
    assert (last.measurements["done"], last.measurements["total"]) == (len(before), 161)
    assert last.measurements["samples_per_second"] > 0
    times = [event.unix_time_ns for event in progress]
    # Less than a quarter of a second: the two clocks of this may run apart by a little.
    assert all(later - earlier > 0.2e9 for earlier, later in itertools.pairwise(times))


async def test_watch_ends_with_the_last_event_and_sees_what_the_log_has():
    """Watch from 0 gives every event of the evaluation and ends by itself; without_samples leaves out the samples."""
    async with rig() as r:
        other = asyncio.create_task(r.evaluation.evaluate(asked(evaluation_id="other")))
        await r.evaluation.start_evaluation(asked())
        async with r.evaluation.watch_evaluation("e") as stream:
            seen = [event async for event in stream]
        await other
        async with r.evaluation.watch_evaluation("e", without_samples=True) as stream:
            short = [event async for event in stream]

        log = await log_of(r.worker.bridge, "e")
    assert seen == log
    assert short == [event for event in log if event.kind is not SAMPLE]


async def test_watch_resumes_after_any_event():
    """A watch with after_sequence and log_id of an earlier one goes on with the next event, whichever it was."""
    async with rig() as r:
        await r.evaluation.evaluate(asked())
        log = await log_of(r.worker.bridge, "e")
        async with r.evaluation.watch_evaluation("e") as stream:
            await anext(stream)
            log_id = stream.log_id
        for index, event in enumerate(log):
            async with r.evaluation.watch_evaluation("e", after_sequence=event.sequence, log_id=log_id) as stream:
                assert [later async for later in stream] == log[index + 1 :]


async def test_each_end_of_an_attempt_is_one_line_of_the_log() -> None:
    """With what an operator looks for: which evaluation, how it ended, how much of it has a score, how long it took."""
    model = ScriptedModel(fault=lambda call: STALL if model.calls > 2 else None)
    with capture_logs() as logs:
        async with rig(model) as r:
            await r.evaluation.evaluate(asked(evaluation_id="whole", run_id="run", step=1))
            await r.evaluation.start_evaluation(asked(evaluation_id="stopped"))
            await until(lambda: model.calls > 2)
            await r.evaluation.cancel_evaluation("stopped")
            await r.evaluation.start_evaluation(asked(evaluation_id="left"))
            await until(lambda: model.calls > 4)
    ended = [entry for entry in logs if entry["event"].startswith("evaluation_")]
    assert [(e["evaluation_id"], e["event"], e.get("state"), e.get("reason")) for e in ended] == [
        ("whole", "evaluation_ended", "completed", None),
        ("stopped", "evaluation_ended", "cancelled", "CANCELLED"),
        ("left", "evaluation_interrupted", None, None),
    ]
    assert [(entry["run_id"], entry["attempt"]) for entry in ended] == [("run", 1), (None, 1), (None, 1)]
    assert [(entry["done"], entry["total"], entry["unscored"]) for entry in ended] == [(2, 2, 0), (0, 2, 0), (0, 2, 0)]
    assert all(entry["seconds"] >= 0 for entry in ended)
