"""Which evaluations can be deleted, and what a delete leaves."""

import pytest

from crucible_bridge.errors import FailedPrecondition, NotFound
from crucible_bridge.events import EventKind
from crucible_bridge.types import EvaluationState, Problem
from crucible_worker.history import lifecycle, retention
from crucible_worker.journal import queries
from tests.unit.journal.journals import IN_A_FILE, claim, commit, owner_locks

FOREVER = retention.Retention(max_events=0, evaluation_seconds=0, interrupted_seconds=0, plan_seconds=0)


async def delete(journal, locks, number):
    """Delete an evaluation, its rows left for later."""
    return await journal.submit(lambda transaction: retention.delete(transaction, locks, number))


async def kinds(journal):
    """Kinds of all events, in order."""
    sql = "SELECT kind FROM events ORDER BY sequence"
    return [kind for (kind,) in await journal.read(lambda connection: connection.execute(sql).fetchall())]


async def end(journal, locks, row):
    """End an evaluation."""
    problem = Problem(reason="X", message="x")
    await journal.submit(lambda t: lifecycle.end(t, locks, row, EvaluationState.FAILED, problem, 0))


@IN_A_FILE
async def test_what_a_worker_owns_is_refused_with_the_cure(journal, locks, tmp_path):
    """By its owner and by another worker alike; nothing changes."""
    row = (await claim(journal, locks)).row
    with owner_locks(tmp_path) as others:
        for asked in (locks, others):
            with pytest.raises(FailedPrecondition, match="'e', which is queued: cancel it first") as caught:
                await delete(journal, asked, row.number)
            assert (caught.value.reason, caught.value.field) == ("NOT_ENDED", "evaluation_id")
    assert (await journal.read(queries.find, "e")) == row


@pytest.mark.parametrize("drained", [True, False])
async def test_what_no_worker_owns_is_cancelled_first(journal, locks, drained):
    """Its log ends as that of every evaluation: with one STOP, whether its owner drained or died."""
    row = (await claim(journal, locks)).row
    if drained:
        await journal.submit(lambda t: lifecycle.interrupt(t, locks, row, 0, "drain"))
    else:
        locks.release(row.number)
    last = await delete(journal, locks, row.number)
    assert last.state is EvaluationState.CANCELLED
    assert (await kinds(journal)) == [
        EventKind.EVALUATION_START,
        EventKind.EVALUATION_INTERRUPT,
        EventKind.EVALUATION_STOP,
    ]


async def test_events_stay_and_the_id_is_free(journal, locks):
    """A new evaluation of the id has another number, and events of the old one get no result of the new one."""
    row = (await claim(journal, locks)).row
    await commit(journal, row, 0)
    await end(journal, locks, row)
    before = await kinds(journal)
    await delete(journal, locks, row.number)
    assert await kinds(journal) == before
    with pytest.raises(NotFound):
        await delete(journal, locks, row.number)

    again = await claim(journal, locks)
    await commit(journal, again.row, 0)
    assert (again.existed, again.row.number > row.number) == (False, True)
    rows, _ = await journal.read(queries.read_events, after=0, through=99, kinds=[EventKind.SAMPLE_COMPLETE], limit=9)
    found = [await journal.read(queries.sample_of_event, sequence, "e", 0, "nll", 0, 1) for sequence, _ in rows]
    assert [result is not None for result in found] == [False, True]


async def test_a_worker_that_died_in_between_leaves_nothing(journal, locks):
    """Whatever the limits of retention are, the next trim removes the rows of what was deleted."""
    row = (await claim(journal, locks)).row
    for position in range(3):
        await commit(journal, row, position)
    await end(journal, locks, row)
    await delete(journal, locks, row.number)
    while await journal.submit(lambda t: retention.trim(t, locks, FOREVER)):
        pass
    for table in ("evaluations", "samples", "removals"):
        assert await journal.read(lambda c, table=table: c.execute(f"SELECT * FROM {table}").fetchall()) == []
