"""What the journal keeps of followed runs and their checkpoints."""

from __future__ import annotations

import dataclasses

import pytest

from crucible_bridge.errors import AlreadyExists, NotFound
from crucible_bridge.events import Event, EventKind
from crucible_worker.journal import follows, plans
from crucible_worker.journal.follows import CheckpointRow, CheckpointState, FollowRow

WANTED = FollowRow(
    run_id="run",
    plan_id="p",
    directory="/models/run",
    hold_folder="/models/run/.crucible",
    policy="all",
    every=0,
    name_pattern="",
    marker="",
    base_model="",
    mark=True,
    by_command=False,
)
CHECKPOINT = CheckpointRow(
    name="checkpoint-1",
    identity="i",
    step=1,
    state=CheckpointState.HELD,
    source="/models/run/checkpoint-1",
    path="/models/run/.crucible/run/checkpoint-1",
    model="local:x",
    held="links",
    held_identity="j",
    written_ns=7,
)
FOUND = Event(kind=EventKind.CHECKPOINT_FOUND, run_id="run", step=1)


async def begin(journal, wanted=WANTED, *, free=False):
    """Follow a run; `free` is whether no process follows it."""
    return await journal.submit(lambda t: follows.begin(t, wanted, lambda number: free))


async def record(journal, number, row, *events):
    """Record how a checkpoint stands."""
    return await journal.submit(lambda t: follows.record(t, number, row, events))


async def test_a_run_is_followed_in_one_way(journal):
    """The same way again is no change; another one is refused until the end of the first, and names what differs."""
    row, existed = await begin(journal)
    assert (existed, row.ended) == (False, False)
    assert await begin(journal) == (row, True)
    assert await journal.read(follows.find_follow, "run") == row
    other = dataclasses.replace(WANTED, marker="DONE", mark=False)
    with pytest.raises(AlreadyExists) as caught:
        await begin(journal, other, free=True)
    assert (caught.value.reason, caught.value.metadata) == ("OTHER_FOLLOW", {"differs": "marker, mark"})
    assert await journal.submit(lambda t: follows.end(t, "run"))
    assert not await journal.submit(lambda t: follows.end(t, "run"))
    again, existed = await begin(journal, other)
    assert (existed, again.marker) == (False, "DONE")
    assert again.number > row.number
    with pytest.raises(NotFound):
        await journal.submit(lambda t: follows.end(t, "another"))


async def test_what_a_command_follows_ends_with_it(journal):
    """Then another command may follow in another way; as long as the first one runs it may not."""
    mine = dataclasses.replace(WANTED, by_command=True)
    row, _ = await begin(journal, mine)
    other = dataclasses.replace(mine, policy="latest")
    with pytest.raises(AlreadyExists):
        await begin(journal, other)
    again, existed = await begin(journal, other, free=True)
    assert (existed, again.policy, again.number != row.number) == (False, "latest", True)


async def test_a_run_that_is_followed_again_knows_its_checkpoints(journal):
    """In the same way; in another one it begins anew."""
    row, _ = await begin(journal)
    await record(journal, row.number, CHECKPOINT)
    await journal.submit(lambda t: follows.end(t, "run"))
    assert [one.number for one in await journal.read(follows.open_follows)] == [row.number], "one is still held"
    again, existed = await begin(journal)
    assert (again, existed) == (row, False)
    assert await journal.read(follows.checkpoint_rows, row.number) == [CHECKPOINT]
    await journal.submit(lambda t: follows.end(t, "run"))
    other, _ = await begin(journal, dataclasses.replace(WANTED, every=2, policy="every"))
    assert await journal.read(follows.checkpoint_rows, row.number) == []
    assert await journal.read(follows.checkpoint_rows, other.number) == []


async def test_what_happens_to_a_checkpoint_is_written_once(journal):
    """With its event; however often it is recorded."""
    row, _ = await begin(journal)
    before = journal.last_sequence()
    for _ in range(2):
        assert await record(journal, row.number, CHECKPOINT, FOUND)
    assert journal.last_sequence() == before + 1
    released = dataclasses.replace(CHECKPOINT, state=CheckpointState.RELEASED)
    assert await record(journal, row.number, released, dataclasses.replace(FOUND, kind=EventKind.CHECKPOINT_RELEASED))
    assert journal.last_sequence() == before + 2
    assert await journal.read(follows.checkpoint_rows, row.number) == [released]
    other = dataclasses.replace(CHECKPOINT, identity="k")
    assert await record(journal, row.number, other, FOUND)
    assert len(await journal.read(follows.checkpoint_rows, row.number)) == 2


async def test_a_followed_run_goes_with_its_plan(journal):
    """Whichever worker removes the plan; what is found after that is not recorded."""
    await journal.submit(lambda t: plans.keep(t, "p", "run", "f", b"record"))
    row, _ = await begin(journal)
    await record(journal, row.number, CHECKPOINT)
    while (await journal.submit(lambda t: plans.remove_unused(t, 2**62, 10)))[0]:
        pass
    assert await journal.read(follows.find_follow, "run") is None
    assert await journal.read(follows.checkpoint_rows, row.number) == []
    assert not await record(journal, row.number, CHECKPOINT, FOUND)


async def test_evaluations_of_steps_have_their_states(journal):
    """One that was removed has none."""
    await journal.submit(lambda t: plans.take(t, "p", 3, (0, 1), "f", "gone"))
    states = await journal.read(follows.step_states, "p", [3, 4])
    assert [(one.evaluation_id, one.state) for one in states[3]] == [("gone", None)]
    assert states[4] == []
