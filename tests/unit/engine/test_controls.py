"""What callers set of an evaluation, in the journal: each change once, with its event, until the evaluation goes."""

import pytest

from crucible_bridge.codec.events import event_from_record
from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.types import EvaluationState, Limits, Problem
from crucible_worker.engine import claims, controls
from crucible_worker.engine.controls import Control
from crucible_worker.history import lifecycle, retention
from crucible_worker.journal import queries
from tests.unit.journal.journals import claim, request


async def told(journal):
    """Kinds and measurements of the events of changes, in order."""
    rows, _ = await journal.read(queries.read_events, after=0, through=10**9, limit=100, new_kinds=True)
    events = [event_from_record(*row) for row in rows]
    return [(event.kind.value.removeprefix("EVALUATION_"), dict(event.measurements)) for event in events]


async def paused(journal, number, value):
    """Pause, or end the pause."""
    return await journal.submit(lambda transaction: controls.set_paused(transaction, number, value))


async def limited(journal, number, concurrency):
    """Set the limit."""
    return await journal.submit(lambda transaction: controls.set_concurrency(transaction, number, concurrency))


async def test_each_change_is_written_and_told_once(journal, locks):
    """What changes nothing writes nothing."""
    number = (await claim(journal, locks)).row.number
    assert await journal.read(controls.control_of, number) == Control()
    assert not (await paused(journal, number, False)).paused
    for value in (True, True, False, False, True):
        assert (await paused(journal, number, value)).paused is value
    for concurrency in (5, 5, 2):
        assert (await limited(journal, number, concurrency)).concurrency == concurrency
    how_far = {"total": 10, "done": 0}
    assert await told(journal) == [
        ("START", how_far),
        ("PAUSED", how_far),
        ("RESUMED", how_far),
        ("PAUSED", how_far),
        ("CONCURRENCY", {"concurrency": 5}),
        ("CONCURRENCY", {"concurrency": 2, "previous_concurrency": 5}),
    ]
    assert await journal.read(controls.control_of, number) == Control(5, True, 2)
    assert await journal.read(controls.controls_at_work) == {number: Control(5, True, 2)}


async def test_the_limit_of_the_request_is_the_previous_one(journal, locks):
    """To set the same limit again is no event; it counts for later attempts all the same."""
    asked = request(limits=Limits(concurrency=3))
    contents = claims.Contents(dataset_fingerprint="d", model_fingerprint="m", total=10)
    row = await journal.submit(
        lambda transaction: (
            claims.claim(transaction, locks, asked, fingerprint="f", contents=contents, worker_id="w").row
        )
    )
    assert (await limited(journal, row.number, 3)).concurrency == 3
    await limited(journal, row.number, 4)
    assert (await told(journal))[1:] == [("CONCURRENCY", {"concurrency": 4, "previous_concurrency": 3})]


async def test_start_comes_before_a_pause(journal, locks):
    """Also of an evaluation whose data set has not been read: START has no total then, and comes once."""
    claimed = await journal.submit(
        lambda transaction: (
            claims.claim(transaction, locks, request(), fingerprint="f", contents=None, worker_id="w").row
        )
    )
    await paused(journal, claimed.number, True)
    contents = claims.Contents(dataset_fingerprint="d", model_fingerprint="m", total=10)
    await journal.submit(lambda transaction: claims.prepared(transaction, claimed.number, contents, "w"))
    assert await told(journal) == [("START", {"done": 0}), ("PAUSED", {"done": 0})]


async def test_what_is_set_goes_with_its_evaluation(journal, locks):
    """An evaluation that has ended is not paused any more, takes no change, and leaves no row when it is removed."""
    row = (await claim(journal, locks)).row
    await paused(journal, row.number, True)
    problem = Problem(reason="X", message="x")
    await journal.submit(lambda t: lifecycle.end(t, locks, row, EvaluationState.FAILED, problem, 0))
    ended = await journal.read(queries.find, "e")
    assert not queries.evaluation_of(ended).paused
    assert await journal.read(controls.controls_at_work) == {}
    for change in (paused(journal, row.number, False), limited(journal, row.number, 2)):
        with pytest.raises(FailedPrecondition, match="'e', which has ended: it is failed") as caught:
            await change
        assert (caught.value.reason, caught.value.field) == ("EVALUATION_ENDED", "evaluation_id")

    await journal.submit(lambda t: retention.delete(t, locks, row.number))
    while await journal.submit(lambda t: retention.remove_chunk(t, retention.CHUNK)):
        pass
    sql = "SELECT count(*) FROM evaluation_controls"
    assert await journal.read(lambda connection: connection.execute(sql).fetchone()[0]) == 0
