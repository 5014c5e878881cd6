"""Owner locks: one owner at a time, in one process and across processes, and never longer than the process."""

import asyncio
import contextlib
import errno
import fcntl
import os
import stat
import subprocess
import sys

import pytest

from crucible_worker.journal import JournalUnavailable, OwnershipLost, Transaction
from crucible_worker.journal.journal import FencedJournal
from crucible_worker.journal.locks import OwnerLocks
from tests.unit.journal.journals import event, open_journal

HOLD = """
import sys
from pathlib import Path
from crucible_worker.journal.locks import OwnerLocks
locks = OwnerLocks(Path(sys.argv[1]))
print(locks.acquire(7), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def pair(tmp_path):
    """Two workers' locks on one file."""
    locks = OwnerLocks(tmp_path / "owners.lock"), OwnerLocks(tmp_path / "owners.lock")
    yield locks
    for each in locks:
        each.close()


def test_two_owners_exclude_each_other_in_one_process(pair):
    """What one holds the other cannot take, and is not free for either, until it is given back."""
    one, other = pair
    assert one.acquire(1)
    assert not other.acquire(1)
    assert not one.acquire(1), "taken twice"
    assert not one.is_free(1)
    assert not other.is_free(1)

    other.release(1)
    assert not other.is_free(1), "given back by one who does not hold it"
    one.release(1)
    assert other.is_free(1)
    assert other.acquire(1)


def test_numbers_are_locked_apart(pair):
    """Holding one number, however large, says nothing of its neighbours."""
    one, other = pair
    for number in (1, 2, 10**9, 2**62):
        assert one.acquire(number)
        assert other.is_free(number + 1) or number == 1
        assert other.acquire(number - 1) or number in (2,)
        assert not other.is_free(number)


def test_asking_does_not_take(pair):
    """is_free leaves a lock as it is."""
    one, other = pair
    assert one.is_free(3)
    assert other.is_free(3)
    assert other.acquire(3)


def test_closing_drops_every_lock(pair):
    """A closed one holds nothing; closing again does nothing."""
    one, other = pair
    for number in range(5):
        one.acquire(number)
    one.close()
    one.close()
    assert all(other.acquire(number) for number in range(5))


def test_lock_dies_with_its_process(pair, tmp_path):
    """SIGKILL frees what a process held, without anybody tidying up."""
    one, _ = pair
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "owners.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "True\n"
        assert not one.acquire(7)
        assert not one.is_free(7)
        child.kill()
        child.wait()
    assert one.is_free(7)
    assert one.acquire(7)


def test_children_do_not_inherit_a_lock(pair):
    """A child that was given every descriptor it can have does not keep a lock that its parent has closed."""
    one, other = pair
    one.acquire(1)
    child = subprocess.Popen(
        [sys.executable, "-c", "print(1, flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        close_fds=False,
    )
    with child:
        assert child.stdout is not None
        child.stdout.read(1)
        one.close()
        assert other.is_free(1)
        child.communicate(b"\n")


def test_lock_file_is_private(tmp_path):
    """The file is made with mode 0600."""
    locks = OwnerLocks(tmp_path / "owners.lock")
    locks.close()
    assert stat.S_IMODE(os.stat(tmp_path / "owners.lock").st_mode) == 0o600


async def test_threads_share_one_owner(pair):
    """Of many threads that want a number exactly one gets it."""
    one, _ = pair
    got = await asyncio.gather(*(asyncio.to_thread(one.acquire, 5) for _ in range(16)))
    assert sorted(got) == [False] * 15 + [True]


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
async def test_who_has_locks_in_a_file_that_is_gone_owns_nothing(tmp_path, pair, replaced):
    """Others lock the new file and may own what it owned; its earlier owner is refused before it writes."""
    one, other = pair
    assert one.acquire(1)
    assert one.acquire(2)
    await one.confirm(1)
    (tmp_path / "owners.lock").unlink()
    if replaced:
        (tmp_path / "owners.lock").touch()
    assert other.acquire(1)
    with pytest.raises(OwnershipLost):
        await one.confirm(1)
    assert not one.acquire(1)
    assert not one.is_free(1)
    assert one.is_free(2)
    assert one.acquire(2)
    await one.confirm(2)
    assert not other.acquire(2)


async def test_a_state_directory_that_is_away_takes_no_lock_away(tmp_path):
    """Nobody can own anything meanwhile, and each has what it had when it is back."""
    state = tmp_path / "state"
    state.mkdir()
    locks = OwnerLocks(state / "owners.lock")
    assert locks.acquire(1)
    state.rename(tmp_path / "elsewhere")
    with pytest.raises(JournalUnavailable, match="moved or removed"):
        await locks.confirm(1)
    (tmp_path / "elsewhere").rename(state)
    await locks.confirm(1)
    locks.close()


async def test_the_owner_before_writes_nothing_where_locks_do_not_exclude(tmp_path):
    """The journal counts owners: the later one writes, the earlier one is refused; what is undone does not count."""
    async with open_journal(tmp_path) as journal:
        one = OwnerLocks(tmp_path / "one.lock", counted=True)
        other = OwnerLocks(tmp_path / "other.lock", counted=True)
        assert await journal.submit(lambda transaction: one.acquire(1, transaction))
        await journal.submit(lambda transaction: one.check(1, transaction))

        def undone(transaction: Transaction) -> None:
            assert other.acquire(1, transaction)
            raise ValueError("undone")

        with pytest.raises(ValueError, match="undone"):
            await journal.submit(undone)
        await FencedJournal(journal, one, 1).submit(lambda transaction: transaction.append(0, [event()]))

        assert await journal.submit(lambda transaction: other.acquire(1, transaction))
        with pytest.raises(OwnershipLost):
            await FencedJournal(journal, one, 1).submit(lambda transaction: transaction.append(0, [event()]))
        await FencedJournal(journal, other, 1).submit(lambda transaction: transaction.append(0, [event()]))
        assert journal.last_sequence() == 2
        for locks in (one, other):
            locks.close()


def test_a_lock_file_that_cannot_be_opened_has_its_reason(tmp_path):
    """A worker that starts says so, and which file it is."""
    (tmp_path / "owners.lock").mkdir()
    with pytest.raises(JournalUnavailable, match=r"cannot open .*owners\.lock: Is a directory"):
        OwnerLocks(tmp_path / "owners.lock")


def test_a_system_without_locks_is_a_journal_that_cannot_be_used(tmp_path, monkeypatch):
    """A lock that cannot be had just now is refused with its reason, and had later."""

    def refused(*arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with contextlib.closing(OwnerLocks(tmp_path / "owners.lock")) as locks:
        with monkeypatch.context() as patched:
            patched.setattr(fcntl, "fcntl", refused)
            for look in (locks.acquire, locks.is_free):
                with pytest.raises(JournalUnavailable, match=r"cannot lock .*owners\.lock: No locks available"):
                    look(1)
        assert locks.acquire(1)
