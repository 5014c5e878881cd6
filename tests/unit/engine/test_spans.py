"""What the journal keeps of evaluators: begun once, ended once, for as long as their evaluation is there."""

import pytest

from crucible_bridge.codec.events import events_from_records
from crucible_bridge.events import EventKind
from crucible_bridge.types import EvaluationState, EvaluatorResult, EvaluatorSpec, Metrics, Problem, Verdict
from crucible_worker.engine import evaluator_progress
from crucible_worker.history import lifecycle
from crucible_worker.journal.queries import find_by_number, read_events
from crucible_worker.journal.records import evaluator_result_from_record
from tests.unit.journal.journals import claim, commit

SPEC = EvaluatorSpec(kind="nll")
RESULT = EvaluatorResult(evaluator=SPEC, metrics=Metrics({"nll": 0.5}, {"x": "why"}), n=10, n_scored=8, n_unscored=2)
BROKEN = EvaluatorResult(evaluator=SPEC, metrics=Metrics({}), n=10, problem=Problem(reason="R", message="m"))


async def begin(journal, row, index=0, active_ns=0):
    """Tell that an evaluator begins."""
    await journal.submit(lambda t: evaluator_progress.begin(t, row, index, label="nll", total=10, active_ns=active_ns))


async def end(journal, row, result=RESULT, active_ns=0):
    """Tell that the first evaluator has ended."""
    await journal.submit(lambda t: evaluator_progress.end(t, row, 0, result, active_ns))


async def taken_over(journal, locks, row, active_ns):
    """Have an attempt interrupted after so much time, and the next one begin."""
    await journal.submit(lambda t: lifecycle.interrupt(t, locks, row, active_ns, "the test wants it"))
    return (await claim(journal, locks)).row


async def told(journal, *kinds):
    """Events of these kinds."""
    rows, _ = await journal.read(read_events, after=0, through=10**9, kinds=kinds, limit=1000)
    return events_from_records(rows)


async def test_an_evaluator_begins_once(journal, locks):
    """A later attempt finds it begun, and tells nothing."""
    row = (await claim(journal, locks)).row
    await begin(journal, row, active_ns=3)
    row = await taken_over(journal, locks, row, 5)
    await begin(journal, row, active_ns=1)

    (event,) = await told(journal, EventKind.EVALUATOR_START)
    assert (event.evaluator, event.measurements, event.evaluation_id) == ("nll", {"total": 10.0}, "e")
    assert await journal.read(evaluator_progress.recorded_spans, row.number) == {0: None}


@pytest.mark.parametrize(
    ("result", "kind"), [(RESULT, EventKind.EVALUATOR_COMPLETE), (BROKEN, EventKind.EVALUATOR_EXCEPTION)]
)
async def test_an_end_has_its_result_and_its_duration(journal, locks, result, kind):
    """The duration is the evaluation's own time between the two; the record is the whole result."""
    row = (await claim(journal, locks)).row
    await begin(journal, row, active_ns=30)
    await end(journal, row, result, active_ns=75)

    (event,) = await told(journal, EventKind.EVALUATOR_COMPLETE, EventKind.EVALUATOR_EXCEPTION)
    assert (event.kind, event.duration_ns, event.problem) == (kind, 45, result.problem)
    record = (await journal.read(evaluator_progress.recorded_spans, row.number))[0]
    assert evaluator_result_from_record(SPEC, record) == result


async def test_a_duration_counts_over_attempts(journal, locks):
    """What the first attempt took since the start, and all of the second one: the time between them is not counted."""
    row = (await claim(journal, locks)).row
    await begin(journal, row, active_ns=30)
    row = await taken_over(journal, locks, row, 100)
    await end(journal, row, active_ns=7)

    (event,) = await told(journal, EventKind.EVALUATOR_COMPLETE)
    assert event.duration_ns == 70 + 7


async def test_a_start_is_never_later_than_what_a_dead_owner_has_written(journal, locks):
    """Killed right after its start: the next attempt counts from there on, and no duration is below 0."""
    row = (await claim(journal, locks)).row
    await begin(journal, row, active_ns=10**9)
    locks.release(row.number)
    row = (await claim(journal, locks)).row
    await end(journal, row, active_ns=5)

    (event,) = await told(journal, EventKind.EVALUATOR_COMPLETE)
    assert (row.past_active_ns, event.duration_ns) == (10**9, 5)


@pytest.mark.parametrize("ended", [False, True])
async def test_errors_of_an_evaluator_that_has_ended_are_done(journal, locks, ended):
    """A retryable error is to be run again only while its evaluator has not ended."""
    row = (await claim(journal, locks)).row
    await begin(journal, row)
    await commit(journal, row, 0)
    await commit(journal, row, 1, Verdict.ERROR, problem=Problem(reason="R", message="m", retryable=True))
    if ended:
        await end(journal, row)
    row = await taken_over(journal, locks, row, 1)

    assert (row.done, row.unscored) == ((2, 1) if ended else (1, 0))


async def test_spans_go_with_their_evaluation(journal, locks):
    """Whoever removes the evaluation removes them, a worker that does not know them included; others stay."""
    rows = [(await claim(journal, locks, name)).row for name in ("e", "other")]
    for row in rows:
        await begin(journal, row)
    await journal.submit(lambda t: t.execute("DELETE FROM evaluations WHERE number = ?", (rows[0].number,)))

    assert [await journal.read(evaluator_progress.recorded_spans, row.number) for row in rows] == [{}, {0: None}]


async def test_an_interrupt_has_the_duration_of_its_attempt(journal, locks):
    """What ended is the attempt: neither what came before it, nor 0."""
    row = (await claim(journal, locks)).row
    row = await taken_over(journal, locks, row, 100)
    await journal.submit(lambda t: lifecycle.interrupt(t, locks, row, 40, "the test wants it"))

    assert [event.duration_ns for event in await told(journal, EventKind.EVALUATION_INTERRUPT)] == [100, 40]
    assert (await journal.read(find_by_number, row.number)).state is EvaluationState.INTERRUPTED
