"""What is removed from the journal: old events, evaluations that ended or were interrupted long ago, unused plans.

Age is measured by the machine's clock, as far as it can be trusted; see `journal.uptime`. With an evaluation go its
rows, in chunks, and its files.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import functools
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import EvaluationState, Problem
from crucible_worker.history import lifecycle, resumptions, run_registry
from crucible_worker.journal import Journal, JournalUnavailable, Transaction
from crucible_worker.journal.experiments import remove_unused_experiment
from crucible_worker.journal.plans import remove_unused
from crucible_worker.journal.queries import EvaluationRow, Reads, find_by_number, head
from crucible_worker.journal.store import Owners
from crucible_worker.journal.uptime import UptimeClock, trusted_clock
from crucible_worker.util.error_reporter import logged

__all__ = [
    "CHUNK",
    "NOTICE_SECONDS",
    "TRIM_SECONDS",
    "Retention",
    "delete",
    "folder_of",
    "hide",
    "keep_trimmed",
    "remove_chunk",
    "remove_forgotten",
    "trim",
]

# Files of an evaluation, below the state directory: they are removed after the journal has removed the evaluation.
#
# The folder of an evaluation, `kept/<number>-<created>`, is made by the code that writes files there. Only
# `remove_forgotten` removes it, however the evaluation was removed, and whether or not a worker died in between.

_KEPT = "kept"
_NAME = re.compile(r"(\d{1,18})-(\d{1,20})")


def folder_of(state_dir: Path, row: EvaluationRow) -> Path:
    """The folder of an evaluation; a later evaluation of the same id has another folder."""
    return state_dir / _KEPT / f"{row.number}-{row.created_ns}"


async def remove_forgotten(journal: Journal) -> int:
    """Remove the folders of evaluations that the journal no longer has; returns how many."""
    # First the folders, then the journal: an evaluation is committed before its folder is made.
    folders = await asyncio.to_thread(_folders, journal.folder / _KEPT)
    if not folders:
        return 0
    known = await journal.read(_created, list(folders))
    forgotten = [path for number, paths in folders.items() for created, path in paths if known.get(number) != created]
    for path in forgotten:
        await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
    return len(forgotten)


def _folders(kept: Path) -> dict[int, list[tuple[int, Path]]]:
    found: dict[int, list[tuple[int, Path]]] = {}
    with contextlib.suppress(FileNotFoundError):
        for path in kept.iterdir():
            if name := _NAME.fullmatch(path.name):
                found.setdefault(int(name[1]), []).append((int(name[2]), path))
    return found


def _created(source: Reads, numbers: Sequence[int]) -> Mapping[int, int]:
    """Creation times of those of the given evaluations that exist."""
    found: dict[int, int] = {}
    for number in numbers:
        row = source.execute("SELECT created_ns FROM evaluations WHERE number = ?", (number,)).fetchone()
        if row is not None:
            found[number] = row[0]
    return found


TRIM_SECONDS = 60.0
"""Seconds between two removals by a worker."""

NOTICE_SECONDS = 86_400.0
"""Seconds before the cancel of an interrupted evaluation at which a log says so."""

_log = structlog.get_logger(__name__)

_ENDED = (EvaluationState.COMPLETED, EvaluationState.FAILED, EvaluationState.CANCELLED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long records are retained; 0 is forever."""

    max_events: int
    """Number of events retained; those of unfinished evaluations always are."""
    evaluation_seconds: float
    """Ended evaluations with their samples: seconds since they ended. Experiments: since they were logged to."""
    interrupted_seconds: float
    """Interrupted evaluations: seconds since they were interrupted; then they are cancelled."""
    plan_seconds: float
    """Plans of a run without evaluations: seconds since they were used."""
    run_seconds: float = 0.0
    """What evaluations of a run measured: seconds since they ended, if the evaluation is no longer retained."""
    grace_seconds: float = 0.0
    """Lived time for which a record must have been too old before it is removed."""


async def keep_trimmed(journal: Journal, locks: Owners, retention: Retention, life: UptimeClock) -> None:
    """Count the time and remove what is too old, now and every `TRIM_SECONDS`; runs until it is cancelled."""
    while True:
        removed: collections.Counter[str] = collections.Counter()
        try:
            await journal.submit(life.beat)
            while await journal.submit(functools.partial(trim, locks=locks, retention=retention, removed=removed)):
                pass
            if folders := await remove_forgotten(journal):
                removed["folders"] = folders
        except JournalUnavailable as error:
            _log.warning("not_trimmed", reason=error.reason)
        except Exception as error:  # an error must not end the loop
            logged(_log, "trim_failed", error)
        if removed:
            _log.info(
                "removed_by_retention",
                evaluations=removed["evaluations"],
                samples=removed["samples"],
                events=removed["events"],
                plans=removed["plans"],
                checkpoint_results=removed["checkpoint_results"],
                experiments=removed["experiments"],
                interrupted_cancelled=removed["interrupted_cancelled"],
                folders=removed["folders"],
            )
        await asyncio.sleep(TRIM_SECONDS)


def trim(
    transaction: Transaction,
    locks: Owners,
    retention: Retention,
    removed: collections.Counter[str] | None = None,
) -> bool:
    """Remove one chunk of what is too old; True when there is more to remove.

    Args:
        transaction: the transaction.
        locks: this worker's.
        retention: how long records are retained.
        removed: gets the counts of what was removed, after the commit.
    """
    clock = trusted_clock(transaction, retention.grace_seconds)
    now: collections.Counter[str] = collections.Counter()
    more = False
    if retention.interrupted_seconds:
        _cancel_forgotten(transaction, locks, clock, retention.interrupted_seconds, now)
    if remove_chunk(transaction, CHUNK, now):
        more = True
    elif retention.evaluation_seconds:
        before = _ago(clock, retention.evaluation_seconds)
        more |= _remove_evaluations(transaction, before, now)
        unused = remove_unused_experiment(transaction, before)
        now["experiments"] += unused
        more |= unused
    if retention.plan_seconds:
        unused, rows = remove_unused(transaction, _ago(clock, retention.plan_seconds), CHUNK)
        now["plans"] += rows
        more |= unused
    if retention.run_seconds:
        before_ns = _ago(clock, retention.run_seconds)
        results = run_registry.remove_old_measurements(transaction, before_ns, CHUNK)
        now["checkpoint_results"] += results
        more |= results == CHUNK
    if retention.max_events:
        more |= _remove_events(transaction, retention.max_events, now)
    if removed is not None:
        transaction.after_commit(lambda: removed.update(+now))
    return more


def _ago(clock_ns: int, seconds: float) -> int:
    return clock_ns - int(seconds * 1e9)


def _cancel_forgotten(
    transaction: Transaction, locks: Owners, clock_ns: int, seconds: float, counts: collections.Counter[str]
) -> None:
    """Cancel what was interrupted so many seconds ago, if a log has said so before."""
    notice = min(NOTICE_SECONDS, seconds)
    rows = transaction.execute(
        """SELECT evaluations.number FROM evaluations JOIN resumptions ON resumptions.number = evaluations.number
           WHERE state = ? AND interrupted_ns < ? AND warned_ns > 0 AND warned_ns <= ?""",
        (EvaluationState.INTERRUPTED, _ago(clock_ns, seconds), _ago(clock_ns, notice)),
    ).fetchall()
    for row in resumptions.warn(transaction, _ago(clock_ns, seconds - notice), clock_ns):
        transaction.after_commit(functools.partial(_tell, row.evaluation_id, notice))
    problem = Problem(reason=Reason.RETENTION, message="interrupted for longer than interrupted_retention")
    for (number,) in rows:
        if locks.is_free(number, transaction):
            row = find_by_number(transaction, number)
            lifecycle.end(transaction, locks, row, EvaluationState.CANCELLED, problem, row.active_ns)
            counts["interrupted_cancelled"] += 1


def _tell(evaluation_id: str, notice: float) -> None:
    _log.warning(
        "interrupted_will_be_cancelled",
        evaluation_id=evaluation_id,
        hours=round(notice / 3600, 1),
        cure=f"crucible-worker resume {evaluation_id}",
    )


def _remove_evaluations(transaction: Transaction, before_ns: int, counts: collections.Counter[str]) -> bool:
    row = transaction.execute(
        f"""SELECT number FROM evaluations WHERE state IN ({", ".join("?" * len(_ENDED))}) AND ended_ns < ?
            AND number NOT IN (SELECT number FROM removals) LIMIT 1""",
        (*_ENDED, before_ns),
    ).fetchone()
    if row is None:
        return False
    # A worker of an earlier release may have ended it, which wrote none.
    run_registry.keep_measurement(transaction, *row)
    hide(transaction, *row)
    return remove_chunk(transaction, CHUNK, counts)


def _remove_events(transaction: Transaction, max_events: int, counts: collections.Counter[str]) -> bool:
    log = head(transaction)
    oldest_wanted = transaction.sequence - max_events + 1
    (unfinished,) = transaction.execute(
        f"""SELECT MIN(first_sequence) FROM evaluations
            WHERE first_sequence > 0 AND state NOT IN ({", ".join("?" * len(_ENDED))})""",
        _ENDED,
    ).fetchone()
    if unfinished is not None:
        oldest_wanted = min(oldest_wanted, unfinished)
    oldest = min(oldest_wanted, log.oldest + CHUNK)
    if oldest <= log.oldest:
        return False
    for table in ("events", "later_events"):
        counts["events"] += transaction.execute(f"DELETE FROM {table} WHERE sequence < ?", (oldest,)).rowcount
    transaction.execute("UPDATE head SET oldest = ?", (oldest,))
    return oldest < oldest_wanted


# How an evaluation is removed from the journal: in one moment for every reader, then its rows by chunks.
#
# The first transaction hides it: no query finds it, and its id is free. Its rows follow, at most a chunk in each
# transaction, as other writers wait meanwhile. If the worker dies in between, retention removes the rest. Its events
# stay in the log, so that no stream loses its place.

CHUNK = 10_000
"""Rows removed in one transaction: other writers wait for it."""
_HIDDEN_ID_BYTES = 128
"""Twice as many characters name a hidden evaluation: more than an id may have, so that no caller can name it."""


def delete(transaction: Transaction, locks: Owners, number: int) -> EvaluationRow:
    """Hide an evaluation that has ended; one without an owner is cancelled first. Returns its last state.

    Raises:
        NotFound: it was removed meanwhile.
        FailedPrecondition: a worker owns it (NOT_ENDED).
    """
    row = find_by_number(transaction, number)
    if not row.state.terminal:
        if not locks.is_free(number, transaction):
            raise FailedPrecondition(
                f"is {row.evaluation_id!r}, which is {row.state.value}: cancel it first "
                "(CancelEvaluation, crucible-worker cancel)",
                reason=Reason.NOT_ENDED,
                field="evaluation_id",
            )
        row = lifecycle.cancel(transaction, locks, number, "deleted")
    run_registry.forget_measurement(transaction, number)
    hide(transaction, number)
    return row


def hide(transaction: Transaction, number: int) -> None:
    """Hide an evaluation from every query, and free its id."""
    transaction.execute("INSERT INTO removals VALUES (?)", (number,))
    transaction.execute(
        "UPDATE evaluations SET evaluation_id = ? WHERE number = ?", (secrets.token_hex(_HIDDEN_ID_BYTES), number)
    )


def remove_chunk(transaction: Transaction, chunk: int, counts: collections.Counter[str] | None = None) -> bool:
    """Remove a chunk of the rows of a hidden evaluation; False if nothing is hidden.

    Args:
        transaction: the transaction.
        chunk: rows at most.
        counts: gets the numbers of samples and evaluations removed.
    """
    row = transaction.execute("SELECT number FROM removals LIMIT 1").fetchone()
    if row is None:
        return False
    (number,) = row
    removed = transaction.execute(
        """DELETE FROM samples WHERE number = ? AND (position, evaluator, repeat) IN
           (SELECT position, evaluator, repeat FROM samples WHERE number = ? LIMIT ?)""",
        (number, number, chunk),
    ).rowcount
    gone = removed < chunk and _remove_contents(transaction, number, chunk) < chunk
    if gone:
        transaction.execute("DELETE FROM evaluations WHERE number = ?", (number,))
    if counts is not None:
        counts["samples"] += removed
        counts["evaluations"] += gone
    return True


def _remove_contents(transaction: Transaction, number: int, chunk: int) -> int:
    """Remove a chunk of the contents of a data set that no other evaluation records; returns how many rows."""
    return transaction.execute(
        """DELETE FROM dataset_contents WHERE (dataset, position) IN (
               SELECT dataset, position FROM dataset_contents WHERE dataset = (
                   SELECT dataset FROM recorded_evaluations AS one WHERE number = ? AND NOT EXISTS (
                       SELECT 1 FROM recorded_evaluations AS other
                       WHERE other.dataset = one.dataset AND other.number <> one.number)) LIMIT ?)""",
        (number, chunk),
    ).rowcount
