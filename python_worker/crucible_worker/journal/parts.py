"""Parts of an evaluation whose work is shared: runs of samples of one evaluator, leased by one worker at a time.

A part is a row with an owner of its own, of the kind "parts". Its holder commits results with `spend`, which refuses
them once the part is another holder's, or gone: then the evaluation has ended, or another attempt has begun. A run of a
sample that has a result of this attempt is never handed out again. So each has one result, whoever dies.

A helper also has a part without runs, from its beginning to its end: while it waits for parts, the evaluation has a
lease that lives, and is not interrupted by the death of its lead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from crucible_worker.journal.packing import pack, unpack
from crucible_worker.journal.queries import Reads
from crucible_worker.journal.records import SampleKey
from crucible_worker.journal.store import Owners
from crucible_worker.journal.transaction import Transaction
from crucible_worker.journal.unavailable import JournalUnavailable

__all__ = [
    "MAX_PART",
    "MIN_PART",
    "MIN_SHARED",
    "PARTS",
    "CutPart",
    "LeasedPart",
    "PartGone",
    "attend",
    "check",
    "cut",
    "give_back",
    "held_parts",
    "lease",
    "leave",
    "offered",
    "remaining_of",
    "remove",
    "size_of",
    "spend",
    "unclaimed",
    "write",
]

MIN_SHARED = 64
"""Runs of samples; an attempt with fewer is not shared."""
PARTS = 64
"""Parts of an attempt, about, within the bounds of their size."""
MIN_PART = 16
"""Runs of samples in a part at least, but for the last one of an evaluator: a lease costs a transaction."""
MAX_PART = 256
"""Runs of samples in a part at most: what one worker has when all others have nothing left."""


_GONE = "this part of the evaluation is not this worker's any more"


class PartGone(JournalUnavailable):
    """A part is not this holder's any more: nothing is written for it."""


@dataclasses.dataclass(frozen=True, slots=True)
class CutPart:
    """A part before it is written."""

    evaluator: int
    size: int
    record: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class LeasedPart:
    """A part as its holder gets it."""

    part: int
    items: tuple[tuple[SampleKey, int], ...]
    """What is left to run: keys of samples, each with the number of its attempt."""


def size_of(runs: int) -> int:
    """Runs of samples in each part of an attempt with so many of them."""
    return max(MIN_PART, min(MAX_PART, runs // PARTS))


def cut(items: Iterable[tuple[SampleKey, int]], size: int) -> list[CutPart]:
    """Cut what an attempt has to run into parts, each of one evaluator, in the given order."""
    parts: list[CutPart] = []
    rows: list[tuple[int, int, int]] = []
    evaluator = 0
    for place, attempt in items:
        if rows and (place.evaluator != evaluator or len(rows) == size):
            parts.append(CutPart(evaluator, len(rows), pack(rows)))
            rows = []
        evaluator = place.evaluator
        rows.append((place.position, place.repeat, attempt))
    if rows:
        parts.append(CutPart(evaluator, len(rows), pack(rows)))
    return parts


def write(transaction: Transaction, number: int, parts: Sequence[CutPart]) -> None:
    """Write the parts of an evaluation, in place of any that it has."""
    remove(transaction, number)
    transaction.insert(
        "INSERT INTO parts (number, evaluator, remaining, record) VALUES",
        [(number, part.evaluator, part.size, part.record) for part in parts],
    )


def remove(transaction: Transaction, number: int) -> None:
    """Remove the parts of an evaluation: no holder writes for it from now on."""
    transaction.execute("DELETE FROM parts WHERE number = ?", (number,))


def attend(transaction: Transaction, owners: Owners, number: int, attempt: int, *, holder: str) -> int:
    """Begin to hold a part without runs, which keeps the evaluation alive; `leave` ends that.

    Raises:
        PartGone: the attempt has ended.
    """
    sql = """INSERT INTO parts (number, evaluator, remaining, holder, record)
             SELECT number, 0, 0, ?, ? FROM evaluations
             WHERE number = ? AND attempt = ? AND state IN ('queued', 'running') RETURNING part"""
    row = transaction.execute(sql, (holder, pack([]), number, attempt)).fetchone()
    if row is None or not owners.acquire(row[0], transaction):
        raise PartGone(_GONE)
    (part,) = row
    transaction.if_undone(lambda: owners.release(part))
    return part


def leave(transaction: Transaction, owners: Owners, part: int) -> None:
    """End what `attend` began."""
    _done(transaction, owners, part)


def lease(transaction: Transaction, owners: Owners, number: int, *, holder: str, runs: int) -> list[LeasedPart]:
    """Lease parts of an evaluation: first those that nobody has, then those whose holder is dead.

    A holder that has lost its own parts does not get them again: their runs may still be at work, and would come twice.

    Args:
        transaction: the transaction.
        owners: of parts, at this worker.
        number: the evaluation's.
        holder: who leases, unlike any other.
        runs: runs of samples that the parts have together at least, if there are so many.
    """
    leased: list[LeasedPart] = []
    for part in _free(transaction, owners, number, holder, most=runs):
        if runs <= 0:
            break
        if not owners.acquire(part, transaction):
            continue  # given back just now: its last holder's lock is released after the commit
        transaction.if_undone(lambda part=part: owners.release(part))
        items = _items_left(transaction, number, part)
        if not items:
            _done(transaction, owners, part)
            continue
        transaction.execute("UPDATE parts SET holder = ?, remaining = ? WHERE part = ?", (holder, len(items), part))
        runs -= len(items)
        leased.append(LeasedPart(part, items))
    return leased


def spend(transaction: Transaction, owners: Owners, holder: str, done: Mapping[int, int]) -> bool:
    """Count results of leased parts, which are written in this transaction; returns whether a part is done.

    Args:
        transaction: the transaction.
        owners: of parts, at this worker.
        holder: who has leased them.
        done: how many results are of each part.

    Raises:
        PartGone: one is not this holder's any more; nothing is to be written.
        JournalUnavailable: this worker was not heard for too long.
    """
    finished = False
    for part, count in done.items():
        row = transaction.execute(
            "UPDATE parts SET remaining = remaining - ? WHERE part = ? AND holder = ? RETURNING remaining",
            (count, part, holder),
        ).fetchone()
        if row is None:
            raise PartGone(_GONE)
        owners.check(part, transaction)
        if row[0] == 0:
            finished = True
            _done(transaction, owners, part)
    return finished


def check(transaction: Transaction, owners: Owners, holder: str, part: int) -> None:
    """Refuse to write for a part that is not this holder's any more; raises as `spend` does."""
    sql = "SELECT 1 FROM parts WHERE part = ? AND holder = ?"
    if transaction.execute(sql, (part, holder)).fetchone() is None:
        raise PartGone(_GONE)
    owners.check(part, transaction)


def give_back(transaction: Transaction, owners: Owners, holder: str, parts: Collection[int]) -> None:
    """Let others have parts, from the commit on; their holder submits no results of them after this."""
    for part in parts:
        transaction.execute("UPDATE parts SET holder = NULL WHERE part = ? AND holder = ?", (part, holder))
        owners.release_in(transaction, part)


def remaining_of(source: Reads, number: int) -> Mapping[int, int]:
    """Runs of samples without a result, by the evaluator's index; evaluators that have none are left out."""
    sql = "SELECT evaluator, SUM(remaining) FROM parts WHERE number = ? GROUP BY evaluator"
    return {evaluator: int(remaining) for evaluator, remaining in source.execute(sql, (number,)).fetchall()}


def held_parts(source: Reads, number: int) -> Mapping[str, int]:
    """The holders of parts of an evaluation, each with one of its parts; holders may be dead."""
    sql = "SELECT holder, MIN(part) FROM parts WHERE number = ? AND holder IS NOT NULL GROUP BY holder"
    return dict(source.execute(sql, (number,)).fetchall())


def unclaimed(source: Reads, number: int) -> bool:
    """Whether an evaluation has parts that nobody has."""
    sql = "SELECT 1 FROM parts WHERE number = ? AND holder IS NULL LIMIT 1"
    return source.execute(sql, (number,)).fetchone() is not None


def offered(source: Reads) -> list[tuple[int, int]]:
    """Evaluations that have parts that nobody has: their numbers, each with the number of its attempt, oldest first."""
    sql = """SELECT number, attempt FROM evaluations
             WHERE number IN (SELECT number FROM parts WHERE holder IS NULL) ORDER BY number"""
    return source.execute(sql).fetchall()


def _done(transaction: Transaction, owners: Owners, part: int) -> None:
    transaction.execute("DELETE FROM parts WHERE part = ?", (part,))
    owners.release_in(transaction, part)


def _free(transaction: Transaction, owners: Owners, number: int, asking: str, *, most: int) -> Iterator[int]:
    """Parts that can be leased, in order; of those that nobody has, no more than that."""
    sql = "SELECT part FROM parts WHERE number = ? AND holder IS NULL ORDER BY part LIMIT ?"
    yield from [part for (part,) in transaction.execute(sql, (number, most)).fetchall()]
    # What a holder has lives and dies together.
    for holder, one in held_parts(transaction, number).items():
        if holder != asking and owners.is_free(one, transaction):
            sql = "SELECT part FROM parts WHERE number = ? AND holder = ? ORDER BY part"
            yield from [part for (part,) in transaction.execute(sql, (number, holder)).fetchall()]


def _items_left(transaction: Transaction, number: int, part: int) -> tuple[tuple[SampleKey, int], ...]:
    evaluator, remaining, record = transaction.execute(
        "SELECT evaluator, remaining, record FROM parts WHERE part = ?", (part,)
    ).fetchone()
    rows: list[tuple[int, int, int]] = unpack(record)
    if len(rows) > remaining:
        sql = """SELECT position, repeat, attempt FROM samples
                 WHERE number = ? AND position BETWEEN ? AND ? AND evaluator = ?"""
        found = transaction.execute(sql, (number, rows[0][0], rows[-1][0], evaluator)).fetchall()
        done = {(position, repeat): attempt for position, repeat, attempt in found}
        rows = [row for row in rows if done.get((row[0], row[1]), 0) < row[2]]
    return tuple((SampleKey(position, evaluator, repeat), attempt) for position, repeat, attempt in rows)
