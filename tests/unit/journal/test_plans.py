"""What the journal keeps of plans and their steps."""

from __future__ import annotations

import pytest

from crucible_bridge.errors import AlreadyExists
from crucible_worker.journal import plans
from tests.unit.journal.journals import open_journal


@pytest.fixture
async def journal(tmp_path):
    """An open journal with the plan `p`."""
    async with open_journal(tmp_path) as opened:
        await opened.submit(lambda t: plans.keep(t, "p", "run", "f", b"record"))
        yield opened


async def take(journal, parts, evaluation_id, fingerprint="model", step=1):
    """Have an evaluation take parts of a step."""
    await journal.submit(lambda t: plans.take(t, "p", step, parts, fingerprint, evaluation_id))


async def test_a_plan_is_kept_as_it_is(journal):
    """The record is what was given; keeping it again is no change, another one is refused."""
    assert await journal.read(plans.record_of, "p") == b"record"
    assert await journal.submit(lambda t: plans.keep(t, "p", "run", "f", b"record"))
    with pytest.raises(AlreadyExists):
        await journal.submit(lambda t: plans.keep(t, "p", "run", "g", b"other"))
    assert await journal.read(plans.record_of, "p") == b"record"
    assert await journal.read(plans.find_plan, "q") is None


async def test_a_part_has_one_evaluation_at_a_step(journal):
    """Taken again by the same evaluation it stays; by another one that is refused whole; another step is free."""
    await take(journal, (0, 1), "a")
    await take(journal, (0, 1), "a")
    with pytest.raises(plans.Overtaken):
        await take(journal, (2, 1), "b")
    await take(journal, (2,), "c")
    await take(journal, (1,), "d", step=2)

    rows = await journal.read(plans.step_rows, "p", 1)
    assert {part: row.evaluation_id for part, row in rows.items()} == {0: "a", 1: "a", 2: "c"}
    assert list(await journal.read(plans.step_rows, "p", 2)) == [1]


async def test_a_step_has_one_model(journal):
    """Even parts that nobody has are refused to another model."""
    await take(journal, (0,), "a")
    with pytest.raises(AlreadyExists) as caught:
        await take(journal, (1,), "b", fingerprint="other")

    assert caught.value.reason == "OTHER_MODEL"
    assert caught.value.metadata == {"fingerprint": "model", "requested_fingerprint": "other"}
    assert list(await journal.read(plans.step_rows, "p", 1)) == [0]
