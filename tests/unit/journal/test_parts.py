"""Parts of an evaluation: each run of a sample is handed out to one holder, and has one result, whoever is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import EvaluationState
from crucible_worker.engine.evaluation_owners import EvaluationOwners
from crucible_worker.history import lifecycle
from crucible_worker.journal import parts
from crucible_worker.journal.parts import PartGone
from crucible_worker.journal.records import SampleKey
from tests.unit.journal.journals import claim, commit, open_journal

ITEMS = [(SampleKey(position, 0, 0), 1) for position in range(40)]


@pytest.fixture
async def other(tmp_path, database, journal):
    """The journal as another worker has it."""
    async with open_journal(tmp_path / ("." if database is None else "other"), database) as opened:
        yield opened


@pytest.fixture
async def owners(journal):
    """What the worker has."""
    made = EvaluationOwners(journal)
    yield made
    made.close()


@pytest.fixture
async def others(other):
    """What the other worker has."""
    made = EvaluationOwners(other)
    yield made
    made.close()


async def shared(journal, owners):
    """An evaluation with forty runs of samples in three parts; its row."""
    row = (await claim(journal, owners, total=len(ITEMS))).row
    await journal.submit(lambda t: parts.write(t, row.number, parts.cut(ITEMS, 16)))
    return row


async def lease(journal, owners, row, holder, runs):
    """Lease parts."""
    return await journal.submit(lambda t: parts.lease(t, owners.parts, row.number, holder=holder, runs=runs))


async def spend(journal, owners, holder, done):
    """Count results."""
    return await journal.submit(lambda t: parts.spend(t, owners.parts, holder, done))


@given(st.lists(st.integers(0, 70), max_size=4), st.integers(1, 40))
def test_parts_have_every_item_once_and_one_evaluator_each(counts, size):
    """Whatever is cut: together the parts are what there was, in its order."""
    items = [(SampleKey(position, index, 0), 1) for index, count in enumerate(counts) for position in range(count)]
    found = parts.cut(items, size)
    assert sum(part.size for part in found) == len(items)
    assert all(1 <= part.size <= size for part in found)
    assert [part.evaluator for part in found] == sorted(part.evaluator for part in found)


def test_the_size_of_parts_is_bounded():
    """Small evaluations have few parts, large ones no large parts."""
    assert [parts.size_of(runs) for runs in (64, 2_048, 20_000, 10**7)] == [16, 32, 256, 256]


async def test_items_are_handed_out_once(journal, owners, other, others):
    """Two holders never have the same run of a sample; both together have all."""
    row = await shared(journal, owners)
    mine = await lease(journal, owners, row, "a", 17)
    theirs = await lease(other, others, row, "b", 100)
    assert [len(part.items) for part in mine] == [16, 16]
    assert [item for part in (*mine, *theirs) for item in part.items] == ITEMS
    assert await lease(other, others, row, "b", 1) == []


async def test_results_of_a_part_of_another_holder_are_refused(journal, owners, other, others):
    """Nobody writes for a part that somebody else has, or that has no row any more."""
    row = await shared(journal, owners)
    (part,) = await lease(journal, owners, row, "a", 1)
    with pytest.raises(PartGone):
        await spend(journal, owners, "b", {part.part: 1})
    assert not await spend(journal, owners, "a", {part.part: 15})
    assert await journal.read(parts.remaining_of, row.number) == {0: 25}
    assert await spend(journal, owners, "a", {part.part: 1})
    assert await journal.read(parts.remaining_of, row.number) == {0: 24}
    with pytest.raises(PartGone):
        await spend(journal, owners, "a", {part.part: 1})


async def test_what_is_given_back_goes_to_others_without_its_results(journal, owners, other, others):
    """A run of a sample that has a result stands; whoever takes the part over gets the rest."""
    row = await shared(journal, owners)
    (part,) = await lease(journal, owners, row, "a", 1)
    await commit(journal, row, 3)
    await spend(journal, owners, "a", {part.part: 1})
    await journal.submit(lambda t: parts.give_back(t, owners.parts, "a", [part.part]))

    (again,) = await lease(other, others, row, "b", 1)
    assert (again.part, len(again.items)) == (part.part, 15)
    assert SampleKey(3, 0, 0) not in dict(again.items)
    with pytest.raises(PartGone):
        await spend(journal, owners, "a", {part.part: 1})


async def test_parts_of_a_dead_holder_are_taken_over(tmp_path, database, journal, owners):
    """What a worker had that is gone, the next one has; nobody else's is touched."""
    row = await shared(journal, owners)
    async with open_journal(tmp_path / "dead", database) if database else open_journal(tmp_path) as dead:
        theirs = EvaluationOwners(dead)
        (part,) = await lease(dead, theirs, row, "dead", 1)
        assert [one.part for one in await lease(journal, owners, row, "a", 100)] == [part.part + 1, part.part + 2]
        assert await lease(journal, owners, row, "b", 100) == []
        theirs.close()
    (taken,) = await lease(journal, owners, row, "a", 100)
    assert taken == part


async def test_an_evaluation_is_free_when_no_lease_of_it_lives(journal, owners, other, others):
    """The lease of a part alone keeps an evaluation from being interrupted, or claimed by another worker."""
    row = await shared(journal, owners)
    (part,) = await lease(other, others, row, "b", 1)
    owners.release(row.number)
    await journal.submit(lambda t: None)  # in a database, it is released by a transaction
    assert await others.leads.looks_free(row.number)
    assert not await owners.looks_free(row.number)
    assert not await journal.submit(lambda t: lifecycle.reap(t, owners, row.number))
    assert not (await claim(journal, owners)).owned

    await other.submit(lambda t: parts.give_back(t, others.parts, "b", [part.part]))
    assert await owners.looks_free(row.number)
    again = await claim(journal, owners)
    assert (again.owned, again.row.attempt) == (True, 2)


async def test_a_holder_without_a_part_keeps_an_evaluation_alive(journal, owners, other, others):
    """It waits for parts that the lead has: when that is gone, there is no INTERRUPT, and it may lead."""
    row = await shared(journal, owners)
    await lease(journal, owners, row, "a", 100)
    attended = await other.submit(lambda t: parts.attend(t, others.parts, row.number, 1, holder="b"))
    owners.release(row.number)
    for part in range(1, attended):
        owners.parts.release(part)
    await journal.submit(lambda t: None)
    assert not await owners.looks_free(row.number)
    assert not await journal.submit(lambda t: lifecycle.reap(t, owners, row.number))
    assert not (await claim(journal, owners)).owned
    assert len(await lease(other, others, row, "b", 100)) == 3

    await other.submit(lambda t: parts.give_back(t, others.parts, "b", range(1, attended)))
    await other.submit(lambda t: parts.leave(t, others.parts, attended))
    assert await owners.looks_free(row.number)
    assert await journal.read(parts.held_parts, row.number) == {}


async def test_nobody_attends_what_has_ended(journal, owners):
    """Neither an attempt that has ended, nor the next one of it."""
    row = await shared(journal, owners)
    await journal.submit(lambda t: t.execute("UPDATE evaluations SET attempt = attempt + 1"))
    with pytest.raises(PartGone):
        await journal.submit(lambda t: parts.attend(t, owners.parts, row.number, 1, holder="b"))
    await journal.submit(lambda t: t.execute("UPDATE evaluations SET state = 'completed'"))
    with pytest.raises(PartGone):
        await journal.submit(lambda t: parts.attend(t, owners.parts, row.number, 2, holder="b"))
    assert await journal.read(parts.held_parts, row.number) == {}


async def test_a_holder_never_gets_its_own_parts_again(journal, owners, other, others):
    """After it was taken for dead, their runs may still be at work: they go to another holder, once."""
    row = await shared(journal, owners)
    mine = await lease(journal, owners, row, "a", 100)
    for part in mine:
        owners.parts.release(part.part)
    await journal.submit(lambda t: None)
    assert await lease(journal, owners, row, "a", 100) == []
    assert [part.items for part in await lease(other, others, row, "b", 100)] == [part.items for part in mine]


async def test_the_lead_is_taken_while_parts_are_leased(journal, owners, other, others):
    """A holder of a part may become the lead, if there is none."""
    row = await shared(journal, owners)
    await lease(other, others, row, "b", 1)
    assert not await other.submit(lambda t: others.acquire_lead(row.number, t))
    owners.release(row.number)
    await journal.submit(lambda t: None)
    assert await other.submit(lambda t: others.acquire_lead(row.number, t))
    assert not await owners.leads.looks_free(row.number)


@pytest.mark.parametrize(
    "change", ["state = 'completed'", "state = 'cancelled'", "state = 'interrupted'", "attempt = attempt + 1"]
)
async def test_parts_end_with_the_attempt(journal, owners, change):
    """Whichever release's worker ends, interrupts or resumes an evaluation: its parts are gone."""
    row = await shared(journal, owners)
    (part,) = await lease(journal, owners, row, "a", 1)
    await journal.submit(lambda t: t.execute("UPDATE evaluations SET done = 1, active_ns = 5"))
    await journal.submit(lambda t: lifecycle.mark_running(t, row.number))
    assert await journal.read(parts.remaining_of, row.number) == {0: 40}
    await journal.submit(lambda t: t.execute(f"UPDATE evaluations SET {change}"))
    assert await journal.read(parts.remaining_of, row.number) == {}
    with pytest.raises(PartGone):
        await spend(journal, owners, "a", {part.part: 1})


async def test_parts_go_with_their_evaluation(journal, owners):
    """No part is left of an evaluation that is removed."""
    row = await shared(journal, owners)
    assert await journal.read(parts.offered) == [(row.number, 1)]
    await journal.submit(lambda t: t.execute("DELETE FROM evaluations"))
    assert await journal.read(parts.offered) == []


async def test_an_evaluation_that_ends_has_no_parts(journal, owners):
    """A cancel by its lead ends it for every holder."""
    row = await shared(journal, owners)
    owners.release(row.number)
    await journal.submit(lambda t: None)
    ended = await journal.submit(lambda t: lifecycle.cancel(t, owners, row.number, "enough"))
    assert ended.state is EvaluationState.CANCELLED
    assert await journal.read(parts.offered) == []
