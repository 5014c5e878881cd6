"""A worker of a PostgreSQL journal whose lease is over changes nothing of what it owned, of whatever kind."""

import asyncio
import contextlib
import dataclasses

import pytest

from tests import needs

pytest.importorskip("psycopg", reason=needs.MISSING["psycopg"])

from crucible_worker.journal import OwnershipLost
from crucible_worker.journal.follows import CheckpointState
from crucible_worker.journal.journal import FencedJournal
from crucible_worker.planning.follow_records import FollowRecords
from tests.unit.journal.journals import open_journal
from tests.unit.journal.test_follows import CHECKPOINT, FOUND, WANTED

pytestmark = pytest.mark.postgres


@pytest.fixture
async def journals(postgres_server, tmp_path):
    """The journals of two workers."""
    url = postgres_server.new_database()
    async with open_journal(tmp_path / "one", url) as one, open_journal(tmp_path / "two", url) as two:
        yield one, two


async def take_over(journal, owners, number):
    """Become the owner in the place of a worker that was stopped: its lease is over at this moment."""

    def taken(transaction):
        sql = "UPDATE sessions SET expires = clock_timestamp() - interval '1 s' WHERE session = "
        owner = "(SELECT session FROM owners WHERE kind = 'follows' AND number = ?)"
        transaction.execute(sql + owner, (number,))
        return owners.acquire(number, transaction)

    assert await journal.submit(taken)


async def test_checkpoints_are_recorded_by_the_one_that_follows(journals):
    """The worker that lost a run records nothing of it, and learns so before it changes files."""
    one, two = journals
    with contextlib.closing(FollowRecords(one, one.owners("owners"))) as mine:
        row, _ = await mine.begin(WANTED)
        assert await mine.acquire(row.number)
        await mine.confirm(row.number)
        assert await mine.record(row.number, CHECKPOINT, FOUND)
        others = FollowRecords(two, two.owners("owners"))
        await take_over(two, others._locks, row.number)
        with pytest.raises(OwnershipLost):
            await mine.confirm(row.number)
        with pytest.raises(OwnershipLost):
            await mine.record(row.number, dataclasses.replace(CHECKPOINT, state=CheckpointState.STARTED), FOUND)
        assert await others.checkpoints(row.number) == [CHECKPOINT]
        assert (two.last_sequence(), await mine.acquire(row.number)) == (1, False)
        others.release(row.number)
        async with asyncio.timeout(60.0):  # it may follow again, once no other worker does
            while not await mine.acquire(row.number):
                await asyncio.sleep(0.02)
        await mine.confirm(row.number)


async def test_a_lost_owner_is_refused_until_it_owns_again(journals):
    """`confirm` and `submit` of what an owner writes refuse together."""
    one, two = journals
    mine, others = one.owners("follows"), two.owners("follows")
    owned = FencedJournal(one, mine, 7)
    with pytest.raises(OwnershipLost):
        await owned.confirm()
    assert await mine.take(7)
    await owned.confirm()
    await take_over(two, others, 7)
    for lost in (owned.confirm(), owned.submit(lambda transaction: transaction.append(0, [FOUND]))):
        with pytest.raises(OwnershipLost) as refused:
            await lost
        assert refused.value.retryable
