"""Entries on their way to a logger's process: in batches of bounded size, as messages in msgpack."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from crucible_worker.children.messages import decoded, encoded
from crucible_worker.loggers.base import Entry, Experiment, Hparams, LongText, MetricRow, Missed

__all__ = ["MAX_BATCH_ENTRIES", "MAX_BATCH_SIZE", "batches", "entries_of", "experiment_of", "pack_experiment", "packed"]

MAX_BATCH_ENTRIES = 1_000
"""Entries that a logger is given at once."""
MAX_BATCH_SIZE = 1_000_000
"""Values and characters that a logger is given at once, unless one entry has more."""

Run = tuple[str, bytes]
"""Entries of one kind that follow each other: the name of the kind, and their list in msgpack."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Hparams:
    """Hyperparameters as JSON: whole numbers of any size are not msgpack's."""

    sequence: int
    unix_time_ns: int
    values: str


_DECODERS: Mapping[str, msgspec.msgpack.Decoder[Any]] = {
    kind.__name__: msgspec.msgpack.Decoder(list[kind]) for kind in (MetricRow, LongText, Missed)
}
_HPARAMS = msgspec.msgpack.Decoder(list[_Hparams])


def batches(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """The entries in order, in pieces that hold neither the worker nor a logger for long."""
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        more = _size(entry)
        if batch and (len(batch) == MAX_BATCH_ENTRIES or size + more > MAX_BATCH_SIZE):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += more
    if batch:
        yield batch


def packed(entries: Sequence[Entry]) -> list[Run]:
    """A batch, ready for a message."""
    runs: list[Run] = []
    for kind, group in itertools.groupby(entries, type):
        listed: list[Any] = list(group)
        if kind is Hparams:
            listed = [
                _Hparams(sequence=each.sequence, unix_time_ns=each.unix_time_ns, values=json.dumps(dict(each.values)))
                for each in listed
            ]
        runs.append((kind.__name__, encoded(listed)))
    return runs


def entries_of(kind: str, body: bytes) -> Sequence[Entry]:
    """The entries of a run."""
    if kind != Hparams.__name__:
        return decoded(body, _DECODERS[kind])
    return [
        Hparams(sequence=each.sequence, unix_time_ns=each.unix_time_ns, values=json.loads(each.values))
        for each in decoded(body, _HPARAMS)
    ]


def pack_experiment(experiment: Experiment) -> dict[str, Any]:
    """An experiment, ready for a message."""
    return {
        "name": experiment.name,
        "run_id": experiment.run_id,
        "directory": str(experiment.directory),
        "config": json.dumps(dict(experiment.config)),
        "resumed": experiment.resumed,
    }


def experiment_of(message: Mapping[str, Any]) -> Experiment:
    """The experiment of a message."""
    directory, config = Path(message["directory"]), json.loads(message["config"])
    return Experiment(**{**message, "directory": directory, "config": config})


def _size(entry: Entry) -> int:
    match entry:
        case MetricRow(values=values):
            return len(values)
        case Hparams(values=values):
            return sum(len(str(value)) for value in values.values())
        case LongText(text=text):
            return len(text)
        case Missed():
            return 1
