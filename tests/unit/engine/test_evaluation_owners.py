"""An evaluation whose parts workers of an earlier release run: it is theirs until the last of them is gone."""

import pytest

from crucible_bridge.types import EvaluationState
from crucible_worker.engine.claims import EvaluationOwners
from crucible_worker.history import lifecycle
from tests.unit.journal.journals import claim, open_journal


@pytest.fixture
async def owners(journal):
    """What the worker owns."""
    made = EvaluationOwners(journal)
    yield made
    made.close()


@pytest.fixture
async def part(tmp_path, database, journal, owners):
    """Has the lease of a part of evaluation 1, whose owner is gone; `release` ends it."""
    row = (await claim(journal, owners)).row
    async with open_journal(tmp_path / ("." if database is None else "other"), database) as other:
        parts = other.owners("parts")

        def lease(transaction):
            sql = "INSERT INTO parts (number, evaluator, remaining, holder, record) VALUES (?, 0, 10, 'b', ?)"
            transaction.execute(sql, (row.number, b""))
            assert parts.acquire(1, transaction)

        async def release():
            parts.release(1)
            await other.submit(lambda transaction: None)  # in a database, a transaction releases it

        await other.submit(lease)
        owners.release(row.number)
        await journal.submit(lambda transaction: None)
        yield release
        parts.close()


async def test_an_evaluation_is_free_when_its_last_part_is(journal, owners, part):
    """Until then it is neither interrupted nor claimed; then it is resumed as one, and its parts are gone."""
    assert not await owners.looks_free(1)
    assert not await journal.submit(lambda now: lifecycle.reap(now, owners, 1))
    assert not (await claim(journal, owners)).owned

    await part()

    assert await owners.looks_free(1)
    again = await claim(journal, owners)
    assert (again.owned, again.row.attempt) == (True, 2)
    assert await journal.read(lambda source: source.execute("SELECT COUNT(*) FROM parts").fetchone()) == (0,)


async def test_a_cancel_ends_it_once_it_is_free(journal, owners, part):
    """A cancel of an evaluation with a part is recorded for its workers, and one without ends at once."""
    asked = await journal.submit(lambda now: lifecycle.cancel(now, owners, 1, "enough"))
    assert asked.state is EvaluationState.QUEUED

    await part()

    ended = await journal.submit(lambda now: lifecycle.cancel(now, owners, 1, "enough"))
    assert ended.state is EvaluationState.CANCELLED
    assert await journal.read(lambda source: source.execute("SELECT COUNT(*) FROM parts").fetchone()) == (0,)
