"""Experiments in the journal: their entries, and how far each logger has come. Each function is part of a transaction.

An entry is removed in the transaction in which the last logger that wanted it has it, or by `append`, once the entries
of its experiment have more bytes than they may. A logger that had not taken such an entry counts it as missed.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import LoggedMetrics
from crucible_worker.journal.packing import pack, unpack
from crucible_worker.journal.queries import Reads
from crucible_worker.journal.store import Transaction
from crucible_worker.loggers.base import Entry, Hparams, LongText, MetricRow

__all__ = [
    "MAX_CONFIG_BYTES",
    "MAX_LOGGERS",
    "PAGE_BYTES",
    "ExperimentRow",
    "LoggerRow",
    "NamedLogger",
    "Page",
    "acknowledge",
    "add_config",
    "append",
    "config_of",
    "find_experiment",
    "find_waiting",
    "open_experiment",
    "packed_hparams",
    "packed_metrics",
    "packed_text",
    "read_page",
    "remove_unused_experiment",
    "report",
    "unpacked",
    "want_sync",
]

# Entries of experiments, as the journal stores them: `unpacked(packed_metrics(rows), 1)` yields the rows again.
#
# A record has one or more entries; their sequences are those of the record's place in the journal.

_METRICS, _HPARAMS, _TEXT = "metrics", "hparams", "text"


def packed_metrics(rows: Sequence[LoggedMetrics], now_ns: int) -> bytes:
    """Pack rows of metrics, one entry each; `now_ns` is the time of those without one."""
    return pack((_METRICS, [(row.step, row.unix_time_ns or now_ns, row.family, row.values) for row in rows]))


def packed_hparams(values: Mapping[str, Any], now_ns: int) -> bytes:
    """Pack hyperparameters, JSON values: one entry."""
    return pack((_HPARAMS, now_ns, values))


def packed_text(key: str, text: str, step: int | None, now_ns: int) -> bytes:
    """Pack a text: one entry."""
    return pack((_TEXT, now_ns, key, text, step))


def unpacked(record: bytes, first: int) -> Iterator[Entry]:
    """The entries of a record, of which the first has the sequence `first`."""
    kind, *fields = unpack(record)
    if kind == _METRICS:
        for sequence, (step, time_ns, family, values) in enumerate(fields[0], first):
            yield MetricRow(sequence=sequence, unix_time_ns=time_ns, values=values, step=step, family=family)
    elif kind == _HPARAMS:
        time_ns, values = fields
        yield Hparams(sequence=first, unix_time_ns=time_ns, values=values)
    else:
        time_ns, key, text, step = fields
        yield LongText(sequence=first, unix_time_ns=time_ns, key=key, text=text, step=step)


MAX_CONFIG_BYTES = 8 * 1024 * 1024
"""Bytes of all hyperparameters of an experiment together; more are refused."""
MAX_LOGGERS = 32
"""Loggers of an experiment; more are refused."""
PAGE_BYTES = 1024 * 1024
"""A page for a logger ends with the record that exceeds this size."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NamedLogger:
    """A logger, as a request or the operator named it."""

    text: str
    """"trackio:PROJECT"; equal texts are one logger of an experiment."""
    by_operator: bool
    """Whether the operator did, and so may name places to which no request may write."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoggerRow:
    """The row of a logger; see the schema for the meaning of the columns."""

    number: int
    experiment: int
    logger: str
    by_operator: bool
    position: int
    synced: int
    missed: int
    missed_told: int
    url: str
    problem: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRow:
    """The row of an experiment, without its configuration, and those of its loggers."""

    number: int
    experiment_id: str
    sequence: int
    created_ns: int
    closed_ns: int
    sync_wanted: int
    loggers: tuple[LoggerRow, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a logger is to get next."""

    logger: LoggerRow
    """The logger, as it stands."""
    entries: Sequence[Entry]
    """The next entries, in order; none if it has everything."""
    through: int
    """The last sequence that was examined: entries for other loggers are left out."""
    sync_wanted: bool
    """Whether a caller waits until the logger has synced, and it has everything."""
    closed: bool
    """Whether the experiment is closed."""


_LOGGER = "number, experiment, logger, by_operator, position, synced, missed, missed_told, url, problem"


def find_experiment(source: Reads, experiment_id: str) -> ExperimentRow | None:
    """An experiment with its loggers, in the order in which they were named first; None if there is none."""
    row = source.execute(
        """SELECT number, experiment_id, sequence, created_ns, closed_ns, sync_wanted FROM experiments
           WHERE experiment_id = ?""",
        (experiment_id,),
    ).fetchone()
    if row is None:
        return None
    number, name, sequence, created_ns, closed_ns, sync_wanted = row
    sql = f"SELECT {_LOGGER} FROM experiment_loggers WHERE experiment = ? ORDER BY number"
    return ExperimentRow(
        number=number,
        experiment_id=name,
        sequence=sequence,
        created_ns=created_ns,
        closed_ns=closed_ns,
        sync_wanted=sync_wanted,
        loggers=tuple(map(_logger_row, source.execute(sql, (number,)).fetchall())),
    )


def open_experiment(
    transaction: Transaction, experiment_id: str, loggers: Sequence[NamedLogger]
) -> tuple[ExperimentRow, bool]:
    """Create an experiment, or open it again, and add loggers; the flag says whether it existed already.

    A logger that joins later gets what is logged from then on.

    Raises:
        InvalidField: it would have too many loggers.
    """
    now = time.time_ns()
    found = find_experiment(transaction, experiment_id)
    if found is None:
        transaction.execute(
            """INSERT INTO experiments (experiment_id, sequence, bytes, config, created_ns, used_ns, closed_ns,
               sync_wanted) VALUES (?, 0, 0, ?, ?, ?, 0, 0)""",
            (experiment_id, pack({}), now, now),
        )
    else:
        transaction.execute("UPDATE experiments SET closed_ns = 0, used_ns = ? WHERE number = ?", (now, found.number))
    row = _there(transaction, experiment_id)
    there = {logger.logger: logger for logger in row.loggers}
    for named in loggers:
        if named.text not in there:
            values = (row.number, named.text, named.by_operator, row.sequence, row.sequence)
            transaction.execute(
                """INSERT INTO experiment_loggers (experiment, logger, by_operator, position, synced, missed,
                   missed_told, url, problem) VALUES (?, ?, ?, ?, ?, 0, 0, '', '') ON CONFLICT DO NOTHING""",
                values,
            )
        elif named.by_operator and not there[named.text].by_operator:
            sql = "UPDATE experiment_loggers SET by_operator = 1 WHERE number = ?"
            transaction.execute(sql, (there[named.text].number,))
    row = _there(transaction, experiment_id)
    if len(row.loggers) > MAX_LOGGERS:
        raise InvalidField(
            "log_to", f"would give the experiment {len(row.loggers)} loggers, at most {MAX_LOGGERS} may be"
        )
    return row, found is not None


def add_config(transaction: Transaction, number: int, values: Mapping[str, Any]) -> None:
    """Merge hyperparameters into those of an experiment.

    Raises:
        InvalidField: they would be too large together.
    """
    (config,) = transaction.execute("SELECT config FROM experiments WHERE number = ?", (number,)).fetchone()
    merged = pack({**unpack(config), **values})
    if len(merged) > MAX_CONFIG_BYTES:
        raise InvalidField(
            "hparams", f"would have {len(merged):,} bytes with those before, at most {MAX_CONFIG_BYTES:,} may be"
        )
    transaction.execute("UPDATE experiments SET config = ? WHERE number = ?", (merged, number))


def append(
    transaction: Transaction,
    number: int,
    record: bytes,
    entries: int,
    *,
    most_bytes: int,
    loggers: Sequence[int] | None = None,
) -> int:
    """Append a record; returns the sequence of its last entry.

    Args:
        transaction: the transaction.
        number: the experiment's.
        record: the entries, packed.
        entries: how many they are.
        most_bytes: what the experiment may retain; the oldest records are removed, never this one.
        loggers: numbers of those that get it; all if None.
    """
    transaction.execute(
        "UPDATE experiments SET sequence = sequence + ?, bytes = bytes + ?, used_ns = ? WHERE number = ?",
        (entries, len(record), time.time_ns(), number),
    )
    sequence, size = transaction.execute(
        "SELECT sequence, bytes FROM experiments WHERE number = ?", (number,)
    ).fetchone()
    only = None if loggers is None else pack(sorted(loggers))
    transaction.execute(
        "INSERT INTO experiment_entries VALUES (?, ?, ?, ?, ?)", (number, sequence, entries, only, record)
    )
    if size > most_bytes:
        _remove_oldest(transaction, number, size - most_bytes, before=sequence)
    return sequence


def want_sync(transaction: Transaction, number: int, *, close: bool) -> None:
    """Record that loggers are to sync what there is by now, and that the experiment is closed, if it is to be."""
    transaction.execute("UPDATE experiments SET sync_wanted = sequence WHERE number = ?", (number,))
    sql = "UPDATE experiments SET closed_ns = ? WHERE number = ? AND closed_ns = 0"
    if close and transaction.execute(sql, (time.time_ns(), number)).rowcount:
        # Those that have synced everything are open still: they are to close.
        (sequence,) = transaction.execute("SELECT sequence FROM experiments WHERE number = ?", (number,)).fetchone()
        transaction.execute(
            "UPDATE experiment_loggers SET synced = ? WHERE experiment = ? AND synced >= ?",
            (sequence - 1, number, sequence),
        )


def acknowledge(
    transaction: Transaction, logger: LoggerRow, through: int, *, refused: int, url: str, synced: bool
) -> None:
    """Record that a logger has everything through a sequence, and remove what every logger has.

    Args:
        transaction: the transaction.
        logger: as it was when it was fed: it was told of what it had missed by then.
        through: the sequence.
        refused: entries that it refused for good.
        url: where people look at it.
        synced: whether it has synced as well.
    """
    transaction.execute(
        """UPDATE experiment_loggers SET position = CASE WHEN position < ? THEN ? ELSE position END,
           missed = missed + ?, missed_told = ?, url = ?, problem = '' WHERE number = ?""",
        (through, through, refused, logger.missed + refused, url, logger.number),
    )
    if synced:
        sql = "UPDATE experiment_loggers SET synced = ? WHERE number = ? AND synced < ?"
        transaction.execute(sql, (through, logger.number, through))
    (everywhere,) = transaction.execute(
        "SELECT MIN(position) FROM experiment_loggers WHERE experiment = ?", (logger.experiment,)
    ).fetchone()
    if everywhere is not None:
        _remove_through(transaction, logger.experiment, everywhere)


def report(transaction: Transaction, logger: LoggerRow, problem: str) -> None:
    """Record why a logger gets no further; empty if it does."""
    transaction.execute("UPDATE experiment_loggers SET problem = ? WHERE number = ?", (problem, logger.number))


def find_waiting(source: Reads) -> list[tuple[LoggerRow, str]]:
    """Loggers that have not got, or not synced, everything that they are to; each with its experiment's id."""
    columns = ", ".join(f"loggers.{name}" for name in _LOGGER.split(", "))
    rows = source.execute(
        f"""SELECT {columns}, experiments.experiment_id
            FROM experiment_loggers AS loggers JOIN experiments ON experiments.number = loggers.experiment
            WHERE loggers.position < experiments.sequence OR loggers.synced < experiments.sync_wanted
            ORDER BY loggers.number"""
    )
    return [(_logger_row(row[:-1]), row[-1]) for row in rows.fetchall()]


def config_of(source: Reads, experiment: int) -> Mapping[str, Any]:
    """The hyperparameters of an experiment; empty if it was removed."""
    row = source.execute("SELECT config FROM experiments WHERE number = ?", (experiment,)).fetchone()
    return {} if row is None else unpack(row[0])


def read_page(source: Reads, number: int) -> Page | None:
    """What a logger is to get next; None if it was removed."""
    row = source.execute(f"SELECT {_LOGGER} FROM experiment_loggers WHERE number = ?", (number,)).fetchone()
    if row is None:
        return None
    logger = _logger_row(row)
    sequence, closed_ns, sync_wanted = source.execute(
        "SELECT sequence, closed_ns, sync_wanted FROM experiments WHERE number = ?", (logger.experiment,)
    ).fetchone()
    records = source.execute(
        """SELECT sequence, entries, loggers, record FROM experiment_entries WHERE experiment = ? AND sequence > ?
           ORDER BY sequence""",
        (logger.experiment, logger.position),
    )
    entries: list[Entry] = []
    through, size = logger.position, 0
    for last, count, only, record in records:
        if only is None or number in unpack(only):
            found = unpacked(record, last - count + 1)
            entries += [entry for entry in found if entry.sequence > logger.position]
            size += len(record)
        through = last
        if size > PAGE_BYTES:
            break
    else:
        through = sequence
    return Page(
        logger=logger,
        entries=entries,
        through=through,
        sync_wanted=not entries and logger.synced < sync_wanted,
        closed=closed_ns > 0,
    )


def remove_unused_experiment(transaction: Transaction, before_ns: int) -> bool:
    """Remove an experiment that was last used before a time; whether there was one."""
    row = transaction.execute("SELECT number FROM experiments WHERE used_ns < ? LIMIT 1", (before_ns,)).fetchone()
    if row is None:
        return False
    transaction.execute("DELETE FROM experiments WHERE number = ?", row)
    return True


def _there(source: Reads, experiment_id: str) -> ExperimentRow:
    row = find_experiment(source, experiment_id)
    assert row is not None
    return row


def _logger_row(row: Sequence[Any]) -> LoggerRow:
    number, experiment, logger, by_operator, position, synced, missed, missed_told, url, problem = row
    return LoggerRow(
        number=number,
        experiment=experiment,
        logger=logger,
        by_operator=bool(by_operator),
        position=position,
        synced=synced,
        missed=missed,
        missed_told=missed_told,
        url=url,
        problem=problem,
    )


def _remove_through(transaction: Transaction, number: int, sequence: int) -> None:
    where = "FROM experiment_entries WHERE experiment = ? AND sequence <= ?"
    (size,) = transaction.execute(f"SELECT SUM(LENGTH(record)) {where}", (number, sequence)).fetchone()
    if size is not None:
        transaction.execute(f"DELETE {where}", (number, sequence))
        transaction.execute("UPDATE experiments SET bytes = bytes - ? WHERE number = ?", (size, number))


def _remove_oldest(transaction: Transaction, number: int, surplus: int, *, before: int) -> None:
    """Remove the oldest records until `surplus` bytes are gone; loggers without them count their entries as missed."""
    loggers = transaction.execute("SELECT number, position FROM experiment_loggers WHERE experiment = ?", (number,))
    positions = dict(loggers.fetchall())
    missed = dict.fromkeys(positions, 0)
    through = 0
    for sequence, entries, only, size in transaction.execute(
        """SELECT sequence, entries, loggers, LENGTH(record) FROM experiment_entries
           WHERE experiment = ? AND sequence < ? ORDER BY sequence""",
        (number, before),
    ).fetchall():
        if surplus <= 0:
            break
        surplus, through = surplus - size, sequence
        for logger in positions if only is None else unpack(only):
            missed[logger] += max(0, min(entries, sequence - positions[logger]))
    _remove_through(transaction, number, through)
    for logger, count in missed.items():
        transaction.execute(
            """UPDATE experiment_loggers SET position = CASE WHEN position < ? THEN ? ELSE position END,
               missed = missed + ? WHERE number = ?""",
            (through, through, count, logger),
        )
