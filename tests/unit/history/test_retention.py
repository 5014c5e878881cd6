"""What is forgotten, and what never is."""

import time

import pytest
import structlog

from crucible_bridge.errors import NotFound
from crucible_bridge.events import EventKind
from crucible_bridge.types import EvaluationState, Metrics, Problem
from crucible_worker.history import lifecycle, retention
from crucible_worker.history.retention import Retention
from crucible_worker.journal import plans, queries
from tests.unit.journal.journals import append, claim, commit

DAY = 24 * 3600.0
KEEP = Retention(max_events=10**6, evaluation_seconds=DAY, interrupted_seconds=DAY, plan_seconds=DAY)


async def trimmed(journal, locks, **changes):
    """Trim until nothing is left to do, as a worker does; how many chunks it took."""
    policy = Retention(**{**{name: getattr(KEEP, name) for name in Retention.__slots__}, **changes})
    chunks = 1
    while await journal.submit(lambda transaction: retention.trim(transaction, locks, policy)):
        chunks += 1
    return chunks


async def sequences(journal):
    """Sequences that are retained, which must be those that the head says."""
    log = await journal.read(queries.head)
    rows, _ = await journal.read(queries.read_events, after=0, through=10**9, limit=10**6)
    assert [sequence for sequence, _ in rows] == list(range(log.oldest, log.sequence + 1))
    return [sequence for sequence, _ in rows]


async def end(journal, locks, row):
    """End an evaluation."""
    problem = Problem(reason="X", message="x")
    await journal.submit(lambda t: lifecycle.end(t, locks, row, EvaluationState.FAILED, problem, 0))


async def rows_of(journal, number):
    """How many rows of samples an evaluation has in the file, whatever reads find."""
    sql = "SELECT COUNT(*) FROM samples WHERE number = ?"
    return (await journal.read(lambda connection: connection.execute(sql, (number,)).fetchone()))[0]


async def long_ago(journal, column, seconds):
    """Have something happened so many seconds earlier than it did."""
    await journal.submit(lambda t: t.execute(f"UPDATE evaluations SET {column} = {column} - ?", (int(seconds * 1e9),)))


@pytest.mark.parametrize(("most", "kept"), [(9, 9), (10, 10), (11, 10), (1, 1)])
async def test_events_beyond_the_bound_go_oldest_first(journal, locks, most, kept):
    """At most max_events are retained, the newest; as many as the bound stay."""
    await append(journal, 10)
    await trimmed(journal, locks, max_events=most)
    assert await sequences(journal) == list(range(11 - kept, 11))


async def test_events_of_new_kinds_go_with_the_others(journal, locks):
    """They are part of the one log: what lies before its oldest event is gone, of whichever kind."""
    for kind in (EventKind.EVALUATOR_START, EventKind.METRICS_COMPUTED) * 3:
        await append(journal, 1, kind=kind)
    await trimmed(journal, locks, max_events=3)
    tables = "SELECT sequence FROM events UNION ALL SELECT sequence FROM later_events ORDER BY sequence"
    assert await journal.read(lambda connection: connection.execute(tables).fetchall()) == [(4,), (5,), (6,)]


async def test_events_go_by_chunks(journal, locks, monkeypatch):
    """No transaction removes more than a chunk: other writers wait for it."""
    monkeypatch.setattr(retention, "CHUNK", 3)
    await append(journal, 10)
    assert await trimmed(journal, locks, max_events=1) == 3
    assert await sequences(journal) == [10]


@pytest.mark.parametrize("state", ["running", "interrupted"])
async def test_events_of_unfinished_evaluations_stay(journal, locks, state):
    """Nothing from the first event of an unfinished evaluation on is removed, however much that is."""
    await append(journal, 5)
    row = (await claim(journal, locks)).row
    await append(journal, 20)
    if state == "interrupted":
        await journal.submit(lambda t: lifecycle.interrupt(t, locks, row, 0, "drain"))
    await trimmed(journal, locks, max_events=3)
    assert (await sequences(journal))[0] == row.first_sequence == 6

    await end(journal, locks, row)
    await trimmed(journal, locks, max_events=3)
    assert len(await sequences(journal)) == 3


async def test_sequence_goes_on_after_everything_was_removed(journal, locks):
    """A sequence is never given twice, whatever was trimmed."""
    await append(journal, 3)
    await trimmed(journal, locks, max_events=1)
    await append(journal, 1)
    assert await sequences(journal) == [3, 4]


async def test_ended_evaluations_go_when_they_are_old(journal, locks):
    """Record and samples of a terminal evaluation go after their time, and its id is free; younger ones stay."""
    old, young = [(await claim(journal, locks, name)).row for name in ("old", "young")]
    for row in (old, young):
        for position in range(3):
            await commit(journal, row, position)
    await end(journal, locks, old)
    await long_ago(journal, "ended_ns", 2 * DAY)
    await end(journal, locks, young)
    await trimmed(journal, locks)

    with pytest.raises(NotFound):
        await journal.read(queries.find_by_number, old.number)
    with pytest.raises(NotFound):
        await journal.read(queries.read_samples, old.number, page_size=9)
    assert await rows_of(journal, old.number) == 0
    assert len((await journal.read(queries.read_samples, young.number, page_size=9))[0]) == 3
    again = await claim(journal, locks, "old")
    assert (again.existed, again.owned) == (False, True)
    assert again.row.number not in (old.number, young.number), "the number is also the owner's lock"


async def test_an_evaluation_goes_in_one_moment_and_its_samples_by_chunks(journal, locks, monkeypatch):
    """No read finds it from the first chunk on; its row goes with the last one, so that nothing is left over."""
    monkeypatch.setattr(retention, "CHUNK", 2)
    row = (await claim(journal, locks)).row
    for position in range(5):
        await commit(journal, row, position)
    await end(journal, locks, row)
    await long_ago(journal, "ended_ns", 2 * DAY)
    left = []
    while await journal.submit(lambda t: retention.trim(t, locks, KEEP)):
        assert await journal.read(queries.find, "e") is None
        assert await journal.read(queries.list_rows) == ([], False)
        for read in (queries.find_by_number, queries.extent_of):
            with pytest.raises(NotFound):
                await journal.read(read, row.number)
        left.append(await rows_of(journal, row.number))
    assert left == [3, 1, 0]
    for table in ("evaluations", "removals"):
        assert await journal.read(lambda c, table=table: c.execute(f"SELECT * FROM {table}").fetchall()) == []


async def test_running_evaluations_are_never_removed(journal, locks):
    """However old an evaluation is, it stays until it has ended."""
    row = (await claim(journal, locks)).row
    await long_ago(journal, "created_ns", 1000 * DAY)
    await trimmed(journal, locks)
    assert (await journal.read(queries.find_by_number, row.number)).state is EvaluationState.QUEUED


@pytest.mark.parametrize(("age", "cancelled"), [(0.5 * DAY, False), (2 * DAY, True)])
async def test_forgotten_evaluations_are_cancelled(journal, locks, age, cancelled):
    """One that was interrupted for longer than interrupted_retention is CANCELLED, with its reason; others wait."""
    row = (await claim(journal, locks)).row
    await journal.submit(lambda t: lifecycle.interrupt(t, locks, row, 0, "drain"))
    await long_ago(journal, "interrupted_ns", age)
    await trimmed(journal, locks, interrupted_seconds=DAY)
    await journal.submit(lambda t: t.execute("UPDATE resumptions SET warned_ns = warned_ns - ?", (int(DAY * 1e9),)))
    await trimmed(journal, locks)
    evaluation = queries.evaluation_of(await journal.read(queries.find_by_number, row.number))
    assert (evaluation.state is EvaluationState.CANCELLED) is cancelled
    if cancelled:
        assert evaluation.problem is not None
        assert evaluation.problem.reason == "RETENTION"
        assert evaluation.ended_unix_ns > time.time_ns() - 60e9
        assert evaluation.metrics == Metrics({})


async def test_nothing_interrupted_is_cancelled_without_a_line_in_the_log_a_day_before(journal, locks):
    """However long no worker ran: the line comes first, once, and names what resumes it; a resumption takes it back."""
    row = (await claim(journal, locks)).row
    await journal.submit(lambda t: lifecycle.interrupt(t, locks, row, 0, "drain"))
    await long_ago(journal, "interrupted_ns", 5 * DAY)
    with structlog.testing.capture_logs() as before:
        await trimmed(journal, locks, interrupted_seconds=7 * DAY)
    await long_ago(journal, "interrupted_ns", 5 * DAY)
    with structlog.testing.capture_logs() as lines:
        await trimmed(journal, locks, interrupted_seconds=7 * DAY)
        await trimmed(journal, locks, interrupted_seconds=7 * DAY)
    assert before == []
    assert [(line["event"], line["evaluation_id"], line["hours"]) for line in lines] == [
        ("interrupted_will_be_cancelled", "e", 24.0)
    ]
    assert (await journal.read(queries.find_by_number, row.number)).state is EvaluationState.INTERRUPTED

    row = (await claim(journal, locks)).row
    await journal.submit(lambda t: lifecycle.interrupt(t, locks, row, 0, "drain"))
    sql = "SELECT warned_ns FROM resumptions"
    assert await journal.read(lambda connection: connection.execute(sql).fetchall()) == [(0,)]


async def keep_plan(journal, plan_id, run_id, *steps):
    """Keep a plan of some steps, used two days ago."""

    def write(transaction):
        plans.keep(transaction, plan_id, run_id, "f", b"record")
        for step in steps:
            plans.take(transaction, plan_id, step, (0, 1), "sf", f"{plan_id}-step-{step}-0")
        transaction.execute("UPDATE plans SET used_ns = used_ns - ?", (int(2 * DAY * 1e9),))

    await journal.submit(write)


async def test_plans_go_when_they_are_old_and_their_run_has_no_evaluation(journal, locks):
    """A plan goes with its steps after its time; while its run has evaluations, or it is used, it stays."""
    row = (await claim(journal, locks)).row
    await journal.submit(lambda t: t.execute("UPDATE evaluations SET run_id = 'has one'"))
    for plan_id, run_id in (("held", "has one"), ("old", "none"), ("used", "none")):
        await keep_plan(journal, plan_id, run_id, 1, 2)
    await journal.submit(lambda t: plans.touch(t, "used", "f"))
    await trimmed(journal, locks)

    async def kept():
        found = [await journal.read(plans.find_plan, plan_id) for plan_id in ("held", "old", "used")]
        return [row.plan_id for row in found if row is not None]

    assert await kept() == ["held", "used"]
    assert await journal.read(plans.step_rows, "old", 1) == {}
    assert len(await journal.read(plans.step_rows, "held", 1)) == 2

    await end(journal, locks, row)
    await long_ago(journal, "ended_ns", 2 * DAY)
    await trimmed(journal, locks)
    assert await kept() == ["used"]


async def test_steps_of_a_plan_go_by_chunks_and_the_plan_last(journal, locks, monkeypatch):
    """While steps are left, their plan is."""
    monkeypatch.setattr(retention, "CHUNK", 3)
    await keep_plan(journal, "p", "run", 1, 2)
    left = []
    while await journal.submit(lambda t: retention.trim(t, locks, KEEP)):
        count = sum([len(await journal.read(plans.step_rows, "p", step)) for step in (1, 2)])
        left.append((count, await journal.read(plans.find_plan, "p") is not None))
    assert left == [(1, True), (0, False)]


async def test_a_plan_that_is_gone_cannot_be_used(journal):
    """Whoever read a plan before it was removed is told so, and nothing is written."""
    for gone in (journal.submit(lambda t: plans.touch(t, "p", "f")), journal.read(plans.record_of, "p")):
        with pytest.raises(NotFound) as caught:
            await gone
        assert caught.value.reason == "UNKNOWN_PLAN"
