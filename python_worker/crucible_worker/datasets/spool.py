"""Samples outside of memory: written once, as they are read from their source, and read back one at a time.

Memory has only the offset of each record: a worker caches several data sets, each of any size. Small data sets need no
file. The file of a large one has no name, so that it is deleted with the process, however that ends. It is a copy, so
that a data set that is changed meanwhile is still evaluated unchanged.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from crucible_bridge.errors import InvalidField, Unavailable, clipped
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Problem, Sample
from crucible_worker.datasets.jsonl import JsonLine
from crucible_worker.journal.contents import input_from_value, input_to_value
from crucible_worker.journal.packing import pack, unpack

__all__ = ["MEMORY_BYTES", "MalformedSample", "SpooledSamples", "shuffle_key", "spool"]

MEMORY_BYTES = 4 * 1024 * 1024
"""Records of a data set up to this total size stay in memory; more go to a file."""
BLOCK_BYTES = 256 * 1024
"""Bytes that are collected before they are written."""

_MALFORMED_PARTS = 3
"""Parts of the record of a malformed line; that of a sample has five, or six with labels."""
_MALFORMED = Reason.MALFORMED_LINE


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MalformedSample:
    """Stands in for a line that is no sample: it becomes ERROR with this problem."""

    id: str
    """The line's index among the file's records."""
    problem: Problem
    """What is wrong with it."""
    fault: str
    """Only number and fault, without the excerpt in `problem`: the fingerprint of a data set covers this."""


def spool(
    lines: Iterable[JsonLine],
    directory: Path | None,
    *,
    field: str,
    noun: str = "line",
    skip_malformed: bool = False,
    go_on: Callable[[], None] = lambda: None,
) -> SpooledSamples:
    """Read all samples of a source. It blocks: call it in a thread.

    A sample without an id gets its index. So does a malformed line, unless a sample has that id: then its line number.

    Args:
        lines: the source's records, in order, with growing numbers.
        directory: for a file; the system's temporary directory if None.
        field: path in the request, for errors.
        noun: name of a record in errors.
        skip_malformed: turn each malformed line into an error, instead of refusing the data set.
        go_on: called for every record; it raises to stop the reading.

    Raises:
        InvalidField: a line is malformed and not to be skipped (MALFORMED_LINE), or an id occurs twice
            (DUPLICATE_SAMPLE_ID).
        Unavailable: the file cannot be written (NO_ROOM_FOR_DATASET).
    """
    samples = SpooledSamples(directory, field=field, noun=noun)
    for line in lines:
        go_on()
        if line.sample is None and not skip_malformed:
            place = f"{line.noun or noun} {line.number}"
            raise InvalidField(field, _with_excerpt(f"{place} {line.problem}", line.shown), reason=_MALFORMED)
        samples._add(line)
    samples._end()
    return samples


class SpooledSamples(Sequence[Sample | MalformedSample]):
    """Samples that are read back on access; made by `spool`."""

    def __init__(self, directory: Path | None, *, field: str, noun: str) -> None:
        self._store = _Store(directory, field)
        self._field, self._noun = field, noun
        self._ends = array("Q", [0])
        self._identities = array("Q")
        self._numbers = array("Q")
        self._malformed = array("Q")
        self._taken: frozenset[int] = frozenset()
        self._order: np.ndarray | None = None

    @property
    def size(self) -> int:
        """Bytes of all records, in memory or in the file, whatever samples were chosen."""
        return self._ends[-1]

    def __len__(self) -> int:
        return len(self._ends) - 1 if self._order is None else len(self._order)

    @overload
    def __getitem__(self, index: int) -> Sample | MalformedSample: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Sample | MalformedSample, ...]: ...
    def __getitem__(self, index: int | slice) -> Any:
        """One sample, or several."""
        if isinstance(index, slice):
            return tuple(self[position] for position in range(*index.indices(len(self))))
        count = len(self)
        if not -count <= index < count:
            raise IndexError(index)
        position = index % count
        return self._at(position if self._order is None else int(self._order[position]))

    def choose(self, is_meant: Callable[[Sample | MalformedSample], bool]) -> None:
        """Keep only the samples that `is_meant` accepts, in their order."""
        self._order = np.array([index for index, sample in enumerate(self) if is_meant(sample)], np.uint32)

    def ordered(self, shuffle_seed: int | None, limit: int | None, go_on: Callable[[], None] = lambda: None) -> None:
        """Sort them by `shuffle_key`, if there is a seed, and keep the first ones, if there is a limit.

        Args:
            shuffle_seed: the seed.
            limit: how many are kept.
            go_on: called for every sample that is read for its key; it raises to stop this.
        """
        order = np.arange(len(self), dtype=np.uint32) if self._order is None else self._order
        if shuffle_seed is not None:
            keys = bytearray()
            for sample in self:
                go_on()
                keys += shuffle_key(shuffle_seed, sample.id)
            words = np.frombuffer(keys, ">u8").reshape(-1, 4)
            order = order[np.lexsort(words.T[::-1])]
        self._order = order[:limit].copy()

    def _add(self, line: JsonLine) -> None:
        index = len(self)
        self._noun = line.noun or self._noun
        self._numbers.append(line.number)
        if line.sample is None:
            record: list[object] = [line.number, line.problem, line.shown]
            self._malformed.append(index)
            self._identities.append(0)
        else:
            identity = line.sample.id or str(index)
            record = _to_record(identity, line.sample)
            self._identities.append(_digest(identity))
        self._ends.append(self._store.append(pack(record)))

    def _end(self) -> None:
        self._store.flush()
        identities = np.array(self._identities, np.uint64)
        if self._malformed:
            # A skipped line must not get the id of a sample.
            malformed = np.array(self._malformed, np.int64)
            present = np.delete(identities, malformed)
            by_index = np.array([_digest(str(index)) for index in self._malformed], np.uint64)
            self._taken = frozenset(malformed[np.isin(by_index, present)].tolist())
            identities[malformed] = [_digest(self._at(index).id) for index in self._malformed]
        self._identities = array("Q")
        self._refuse_equal_ids(identities)
        self._numbers = array("Q")

    def _refuse_equal_ids(self, identities: np.ndarray) -> None:
        values, counts = np.unique(identities, return_counts=True)
        suspects = np.isin(identities, values[counts > 1]).nonzero()[0]
        first: dict[str, int] = {}
        for index in suspects.tolist():
            identity = self._at(index).id
            if identity in first:
                places = f"{self._noun} {self._numbers[first[identity]]} and {self._noun} {self._numbers[index]}"
                message = f"has the id {clipped(identity)} twice: {places}"
                raise InvalidField(self._field, message, reason=Reason.DUPLICATE_SAMPLE_ID)
            first[identity] = index

    def _at(self, index: int) -> Sample | MalformedSample:
        record = unpack(self._store.read(self._ends[index], self._ends[index + 1]))
        if len(record) > _MALFORMED_PARTS:
            return _from_record(record)
        number, problem, shown = record
        fault = f"{self._noun} {number} {problem}"
        return MalformedSample(
            id=f"{self._noun} {number}" if index in self._taken else str(index),
            problem=Problem(reason=_MALFORMED, message=_with_excerpt(fault, shown), field=self._field),
            fault=fault,
        )


class _Store:
    """An append-only store of bytes, in memory until it is large."""

    def __init__(self, directory: Path | None, field: str) -> None:
        self._directory, self._field = directory, field
        self._pending = bytearray()
        self._file: int | None = None
        self._written = 0

    def append(self, record: bytes) -> int:
        """Add a record; returns where it ends."""
        self._pending += record
        if len(self._pending) > (MEMORY_BYTES if self._file is None else BLOCK_BYTES):
            self._write()
        return self._written + len(self._pending)

    def flush(self) -> None:
        """Write what is pending, if there is a file."""
        if self._file is not None:
            self._write()

    def read(self, start: int, end: int) -> bytes:
        """The bytes between two offsets, after `flush`."""
        if self._file is None:
            return bytes(self._pending[start:end])
        return os.pread(self._file, end - start, start)

    def _write(self) -> None:
        try:
            if self._file is None:
                with tempfile.TemporaryFile(dir=self._directory, buffering=0) as opened:
                    self._file = os.dup(opened.fileno())
                weakref.finalize(self, os.close, self._file)
            view = memoryview(self._pending)
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            raise Unavailable(
                f"is too large for memory, and cannot be written to a file: {error.strerror}",
                reason=Reason.NO_ROOM_FOR_DATASET,
                field=self._field,
            ) from error
        self._written += len(self._pending)
        self._pending = bytearray()


def shuffle_key(seed: int, identity: str) -> bytes:
    """The sort key of a shuffled data set: SHA-256 of seed and id."""
    return hashlib.sha256(f"{seed}\0{identity}".encode("utf-8", "surrogatepass")).digest()


def _with_excerpt(fault: str, shown: str) -> str:
    return f"{fault}: {shown}" if shown else fault


def _digest(identity: str) -> int:
    # Ids with equal digests are compared themselves, so the digest may be short.
    digest = hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _to_record(identity: str, sample: Sample) -> list[object]:
    labels = [list(sample.choice_labels)] if sample.choice_labels else []
    asked = input_to_value(sample.input)
    return [identity, asked, list(sample.targets), list(sample.choices), dict(sample.metadata), *labels]


def _from_record(record: list[Any]) -> Sample:
    identity, asked, targets, choices, metadata, *labels = record
    return Sample(
        id=identity,
        input=input_from_value(asked),
        targets=tuple(targets),
        choices=tuple(choices),
        metadata=metadata,
        choice_labels=tuple(labels[0]) if labels else (),
    )
