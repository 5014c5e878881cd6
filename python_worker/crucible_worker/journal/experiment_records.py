"""Entries of experiments, as the journal stores them: `unpacked(packed_metrics(rows), 1)` yields the rows again.

A record has one or more entries; their sequences are those of the record's place in the journal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crucible_bridge.types import LoggedMetrics
from crucible_worker.journal.packing import pack, unpack
from crucible_worker.loggers.base import Entry, Hparams, LongText, MetricRow

__all__ = ["packed_hparams", "packed_metrics", "packed_text", "unpacked"]

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
