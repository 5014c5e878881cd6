"""Evaluations that are taken on before their data set was read: what the journal says of them, step by step."""

import pytest

from crucible_bridge.codec.events import event_from_record
from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.events import EventKind
from crucible_bridge.types import EvaluationState, Problem
from crucible_worker.engine import claims
from crucible_worker.engine.claims import Contents
from crucible_worker.history import lifecycle, retention
from crucible_worker.journal import queries
from tests.unit.journal.journals import append, claim, request

START, RESUME = EventKind.EVALUATION_START, EventKind.EVALUATION_RESUME
INTERRUPT, EXCEPTION = EventKind.EVALUATION_INTERRUPT, EventKind.EVALUATION_EXCEPTION
FOUND = Contents(dataset_fingerprint="d", model_fingerprint="m", total=10)
PROBLEM = Problem(reason="FAULT", message="broken")


async def taken_on(journal, locks, contents=None):
    """Claim evaluation `e`, as one whose data set was not read."""
    return await journal.submit(
        lambda t: claims.claim(t, locks, request(), fingerprint="f", contents=contents, worker_id="w")
    )


async def found(journal, number, contents=FOUND):
    """Say what it is made of."""
    return await journal.submit(lambda t: claims.prepared(t, number, contents, "w"))


async def told(journal):
    """Kinds of all events, each with its measurements."""
    rows, _ = await journal.read(queries.read_events, after=0, through=10**9, limit=10**6)
    events = [event_from_record(*row) for row in rows]
    return [(event.kind, dict(event.measurements)) for event in events]


async def test_start_waits_until_the_samples_are_counted(journal, locks):
    """Taking it on tells nothing; START has the total, and is the first event of the evaluation."""
    row = (await taken_on(journal, locks)).row
    assert (row.state, row.contents_known, row.total) == (EvaluationState.QUEUED, False, 0)
    assert await told(journal) == []

    row = await found(journal, row.number)

    assert (row.contents_known, row.total, row.dataset_fingerprint, row.model_fingerprint) == (True, 10, "d", "m")
    assert await told(journal) == [(START, {"total": 10.0, "done": 0.0})]
    assert (row.first_sequence, row.last_sequence) == (1, 1)


@pytest.mark.parametrize("ending", ["end", "interrupt", "reap"])
async def test_nothing_ends_that_has_not_begun(journal, locks, tmp_path, ending):
    """Where an attempt ends before the samples are counted, START comes just before that, without a total."""
    row = (await taken_on(journal, locks)).row
    if ending == "end":
        await journal.submit(lambda t: lifecycle.end(t, locks, row, EvaluationState.FAILED, PROBLEM, 0))
    elif ending == "interrupt":
        await journal.submit(lambda t: lifecycle.interrupt(t, locks, row, 0, "drain"))
    else:
        locks.release(row.number)
        assert await journal.submit(lambda t: lifecycle.reap(t, locks, row.number))

    last = (EXCEPTION, {}) if ending == "end" else (INTERRUPT, {"done": 0.0})
    assert await told(journal) == [(START, {"done": 0.0}), last]


async def test_an_end_beside_the_count_tells_start_once(journal, locks):
    """An attempt that is stopped as it writes what it found does not know that yet."""
    stale = (await taken_on(journal, locks)).row
    await found(journal, stale.number)
    await journal.submit(lambda t: lifecycle.end(t, locks, stale, EvaluationState.FAILED, PROBLEM, 0))
    assert [kind for kind, _ in await told(journal)] == [START, EXCEPTION]


@pytest.mark.parametrize("contents", [None, FOUND])
async def test_going_on_finds_what_it_is_made_of(journal, locks, contents):
    """The next attempt says it when it is taken on, or once it has found out; START is not told again."""
    row = (await taken_on(journal, locks)).row
    await journal.submit(lambda t: lifecycle.interrupt(t, locks, row, 0, "drain"))
    again = await taken_on(journal, locks, contents)
    assert (again.owned, again.existed, again.row.contents_known) == (True, True, contents is not None)
    row = await found(journal, row.number)
    assert (row.total, row.attempt) == (10, 2)
    measurements = {"done": 0.0} if contents is None else {"total": 10.0, "done": 0.0}
    assert (await told(journal))[2:] == [(RESUME, measurements)]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"dataset_fingerprint": "x"}, "DATASET_CHANGED"),
        ({"model_fingerprint": "x"}, "MODEL_CHANGED"),
        ({"examples_fingerprint": "x"}, "DATASET_CHANGED"),
    ],
)
async def test_what_was_found_stands(journal, locks, changed, reason):
    """Another data set or checkpoint is refused, who asks with it or has found it, and changes nothing."""
    row = (await claim(journal, locks)).row
    other = Contents(**{"dataset_fingerprint": "d", "model_fingerprint": "m", "total": 10, **changed})
    with pytest.raises(FailedPrecondition) as refused:
        await found(journal, row.number, other)
    assert refused.value.reason == reason
    await journal.submit(lambda t: lifecycle.interrupt(t, locks, row, 0, "drain"))
    with pytest.raises(FailedPrecondition):
        await taken_on(journal, locks, other)
    kept = await journal.read(queries.find_by_number, row.number)
    assert (kept.dataset_fingerprint, kept.model_fingerprint, kept.attempt) == ("d", "m", 1)


async def test_what_has_told_nothing_holds_no_event_back(journal, locks):
    """Retention goes by the first events of unfinished evaluations: one that has none keeps none."""
    await append(journal, 20)
    await taken_on(journal, locks)
    policy = retention.Retention(max_events=5, evaluation_seconds=1e6, interrupted_seconds=1e6, plan_seconds=1e6)
    while await journal.submit(lambda t: retention.trim(t, locks, policy)):
        pass
    assert (await journal.read(queries.head)).oldest == 16


A, B = "a" * 64, "b" * 64


async def resumed(journal, locks, row, model):
    """Interrupt an evaluation, and claim it again with a model."""
    await journal.submit(lambda t: lifecycle.interrupt(t, locks, row, 0, "drain"))
    contents = Contents(dataset_fingerprint="d", model_fingerprint=model, total=10)
    return (await taken_on(journal, locks, contents)).row


async def test_a_digest_of_every_byte_is_recorded_when_it_is_known(journal, locks):
    """What the start recorded stays, so that a later attempt can begin before its digest is known."""
    row = (await claim(journal, locks, model_fingerprint=f"tensors:{A}")).row

    await journal.submit(lambda t: claims.complete_model(t, row.number, f"tensors:{A},full:{B}"))

    again = await resumed(journal, locks, row, f"tensors:{A}")
    assert (again.model_fingerprint, again.attempt) == (f"tensors:{A},full:{B}", 2)
    with pytest.raises(FailedPrecondition) as refused:
        await journal.submit(lambda t: claims.complete_model(t, row.number, f"tensors:{A},full:{A}"))
    assert refused.value.reason == "MODEL_CHANGED"
    assert refused.value.metadata["fingerprint"] == f"tensors:{A},full:{B}"


async def test_a_digest_that_a_later_attempt_cannot_find_is_recorded_no_more(journal, locks):
    """It would be said of samples of which it is not known."""
    row = (await claim(journal, locks, model_fingerprint=f"tensors:{A},full:{B}")).row
    await resumed(journal, locks, row, f"tensors:{A}")

    await journal.submit(lambda t: claims.complete_model(t, row.number, f"tensors:{A}"))

    assert (await journal.read(queries.find_by_number, row.number)).model_fingerprint == f"tensors:{A}"


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (f"tensors:{A}", f"tensors:{B}", "is not what it was"),
        (f"tensors:{A}", f"full:{A}", "is not what it was"),
        (A, f"full:{B}", "may not be what it was when the evaluation started: .* another kind: take another id"),
        (A, f"tensors:{A}", "may not be what it was"),
    ],
)
async def test_a_checkpoint_is_compared_in_the_kind_that_was_recorded(journal, locks, before, now, told):
    """A record of an earlier release has no kind: only an equal digest of every byte shows that it is the same."""
    row = (await claim(journal, locks, model_fingerprint=before)).row

    with pytest.raises(FailedPrecondition, match=told) as refused:
        await resumed(journal, locks, row, now)
    assert refused.value.reason == "MODEL_CHANGED"


async def test_a_record_of_an_earlier_release_resumes_with_the_same_bytes(journal, locks):
    """Of a small checkpoint it has the digits of the digest of every byte."""
    row = (await claim(journal, locks, model_fingerprint=A)).row

    assert (await resumed(journal, locks, row, f"full:{A}")).attempt == 2
