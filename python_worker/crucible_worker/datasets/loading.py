"""Data sets: from a source to samples, all checked before anything is evaluated; their fingerprint; recent ones."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from crucible_bridge.errors import InvalidField, NotFound, Unavailable, clipped
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    BuiltinDataset,
    Dataset,
    FileDataset,
    FileFormat,
    HubDataset,
    InlineDataset,
    JsonlDataset,
    RowReader,
    Sample,
    format_file,
    format_hub,
)
from crucible_worker.datasets.identity import SampleCache, dataset_fingerprint
from crucible_worker.datasets.jsonl import find_file, read_lines
from crucible_worker.datasets.row_process import read_rows, read_table
from crucible_worker.datasets.spool import MalformedSample, SpooledSamples, shuffle_key, spool
from crucible_worker.util.files import state_of

__all__ = [
    "BUILTIN_DATASETS",
    "MAX_CACHED",
    "MAX_FILE_BYTES",
    "SETTLED_SECONDS",
    "DatasetCache",
    "LoadedDataset",
    "MalformedSample",
    "field_of",
    "load",
]


CHANGE_CHECK_SECONDS = 0.5
"""Seconds between two looks whether a file that is read is being written."""
_SHOWN_VALUES, _SHOWN_CHARS, _SHOWN_QUERY = 10, 40, 400
"""Limits of the error about a filter that no sample passes: existing values of a key, and characters."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadedDataset:
    """The samples to evaluate on."""

    samples: Sequence[Sample | MalformedSample]
    """In order; every sample has an id, and ids are unique. Those of a file are read back one at a time."""
    fingerprint: str
    """SHA-256 of these samples, in hexadecimal: equal for equal samples in the same order, whatever their source."""


def load(
    dataset: Dataset,
    *,
    data_roots: Sequence[Path],
    builtins: Mapping[str, Callable[[], Sequence[Sample]]],
    spool_dir: Path | None = None,
    hub_network: bool = False,
    go_on: Callable[[], None] = lambda: None,
) -> LoadedDataset:
    """Load a data set. It blocks: call it in a thread.

    A sample without an id gets its index in the source, from 0. Shuffling sorts by SHA-256 of seed and id, so that the
    order is the same in every version of Python and adding a sample leaves the others in their order; the limit is
    applied after it. The whole source is checked, whatever the limit. An exception is a data set of the hub without
    shuffling and filter: there, only the rows within the limit are read.

    Args:
        dataset: what to load.
        data_roots: files lie below these.
        builtins: data sets that ship with the worker, by name.
        spool_dir: where samples of large files lie while they are evaluated; the system's temporary directory if None.
        hub_network: whether the Hugging Face hub may be queried; otherwise only its cache on this machine is read.
        go_on: called for every line of a file, and repeatedly after that; it raises to stop the loading.

    Raises:
        InvalidField: it is empty, or `where` leaves nothing of it (reason EMPTY_DATASET), an id occurs twice
            (DUPLICATE_SAMPLE_ID), a line is malformed and not to be skipped (MALFORMED_LINE), a file is not of its
            format (MALFORMED_FILE), its columns fit two shapes (AMBIGUOUS_COLUMNS) or lack a requested one
            (NO_SUCH_COLUMN), or the limit is below 1.
        NotFound: there is no such file or built-in data set.
        PermissionDenied: the path leads out of the data roots, or the file cannot be read.
        Unavailable: the file was written while it was read (DATASET_CHANGED_WHILE_READ).
        FailedPrecondition: a file is requested, and the worker has no data root.
        Unavailable: there is no room for the samples (NO_ROOM_FOR_DATASET).
        BridgeError: the hub's data set cannot be loaded; see `datasets.row_process.read_rows`.
    """
    if dataset.limit is not None and dataset.limit < 1:
        raise InvalidField("dataset.limit", f"is {dataset.limit}, at least 1 is needed")
    match dataset.source:
        case InlineDataset(SampleCache() as samples):
            return _kept(samples, dataset, go_on)
        case InlineDataset(samples):
            field, loaded = "dataset.inline", _identified(samples, "dataset.inline")
        case JsonlDataset() | FileDataset():
            field = field_of(dataset.source)
            loaded = _from_file(
                dataset, dataset.source, find_file(dataset.source.path, data_roots, field), spool_dir, go_on
            )
        case HubDataset():
            field, loaded = "dataset.hub", _from_hub(dataset, dataset.source, spool_dir, hub_network, go_on)
        case BuiltinDataset(name):
            field, loaded = "dataset.builtin", _identified(_builtin(name, builtins), "dataset.builtin")
    return _finished(loaded, dataset, field, go_on)


def _finished(
    loaded: SpooledSamples | list[Sample], dataset: Dataset, field: str, go_on: Callable[[], None]
) -> LoadedDataset:
    if not loaded:
        raise InvalidField(field, "holds no sample", reason=Reason.EMPTY_DATASET)
    if dataset.where:
        loaded = _chosen(loaded, dataset.where, go_on)
    samples = _ordered(loaded, dataset.shuffle_seed, dataset.limit, go_on)
    return LoadedDataset(samples=samples, fingerprint=dataset_fingerprint(samples, go_on))


def _kept(samples: SampleCache, dataset: Dataset, go_on: Callable[[], None]) -> LoadedDataset:
    key = (dataset.limit, dataset.shuffle_seed, tuple(sorted(dataset.where.items())))
    if key not in samples.loaded:
        field = "dataset.inline"
        samples.loaded[key] = _finished(_identified(samples, field), dataset, field, go_on)
    return samples.loaded[key]


def field_of(source: JsonlDataset | FileDataset) -> str:
    """Where a request names a file."""
    return "dataset.jsonl_path" if isinstance(source, JsonlDataset) else "dataset.file"


def _from_file(
    dataset: Dataset, source: JsonlDataset | FileDataset, path: Path, spool_dir: Path | None, go_on: Callable[[], None]
) -> SpooledSamples:
    field = field_of(source)
    kind, columns = ("jsonl", {}) if isinstance(source, JsonlDataset) else (source.format, source.columns)
    cure = f"name the columns, as in {kind}:PATH?input=question&target=answer"
    rows = RowReader(columns, field=field, cure=cure, typed=kind != FileFormat.CSV)
    unchanged = _Unchanged(path, field, go_on)
    go_on = unchanged.go_on
    if isinstance(source, JsonlDataset) or source.format is FileFormat.JSONL:
        noun, lines = "line", read_lines(path, field, rows, go_on)
    else:
        noun, lines = "row", read_table(path, source, rows, go_on)
    with contextlib.closing(lines):
        try:
            return spool(lines, spool_dir, field=field, noun=noun, skip_malformed=dataset.skip_malformed, go_on=go_on)
        finally:
            unchanged.check()  # what was read of a file that has changed is no fault of its content


class _Unchanged:
    """Refuses a file that is written while it is read: its samples would be those of no file."""

    def __init__(self, path: Path, field: str, go_on: Callable[[], None]) -> None:
        self._path, self._field, self._go_on = path, field, go_on
        self._before, self._next = state_of(path), time.monotonic() + CHANGE_CHECK_SECONDS

    def go_on(self) -> None:
        """Check from time to time: a file that grows may have no end."""
        self._go_on()
        if time.monotonic() >= self._next:
            self.check()
            self._next = time.monotonic() + CHANGE_CHECK_SECONDS

    def check(self) -> None:
        """Compare the file's size and time with those of before.

        Raises:
            Unavailable: they differ (DATASET_CHANGED_WHILE_READ).
        """
        if state_of(self._path) != self._before:
            raise Unavailable(
                "was written while it was read: call again when it is complete",
                reason=Reason.DATASET_CHANGED_WHILE_READ,
                field=self._field,
            )


def _from_hub(
    dataset: Dataset, source: HubDataset, spool_dir: Path | None, network: bool, go_on: Callable[[], None]
) -> SpooledSamples:
    limit = dataset.limit if dataset.shuffle_seed is None and not dataset.where else None
    with contextlib.closing(read_rows(source, network=network, limit=limit, go_on=go_on)) as rows:
        return spool(
            rows, spool_dir, field="dataset.hub", noun="row", skip_malformed=dataset.skip_malformed, go_on=go_on
        )


def _chosen(
    samples: SpooledSamples | list[Sample], where: Mapping[str, str], go_on: Callable[[], None]
) -> SpooledSamples | list[Sample]:
    """The samples that have all these values in their metadata; a malformed line has no metadata.

    Raises:
        InvalidField: there is none (EMPTY_DATASET); the error names existing values.
    """
    there: dict[str, dict[str, None]] = {key: {} for key in where}
    first: list[str] = []

    def is_meant(sample: Sample | MalformedSample) -> bool:
        go_on()
        metadata = {} if isinstance(sample, MalformedSample) else sample.metadata
        if not first:
            first.extend(key[:_SHOWN_CHARS] for key in itertools.islice(metadata, _SHOWN_VALUES))
        for key, values in there.items():
            if key in metadata and len(values) < _SHOWN_VALUES:
                values[metadata[key][:_SHOWN_CHARS]] = None
        return all(metadata.get(key) == value for key, value in where.items())

    if isinstance(samples, SpooledSamples):
        samples.choose(is_meant)
        chosen: SpooledSamples | list[Sample] = samples
    else:
        chosen = [sample for sample in samples if is_meant(sample)]
    if not chosen:
        wanted = " and ".join(f"{key} = {value[:_SHOWN_CHARS]}" for key, value in where.items())
        known = "; ".join(
            f"values of {key} are {', '.join(values)}" if values else f"no sample has {key} in its metadata"
            for key, values in there.items()
        )
        if first and not all(there.values()):
            known = f"{known[:_SHOWN_QUERY]}; the first sample has {', '.join(first)[:_SHOWN_QUERY]}"
        problem = f"matches no sample with {wanted[:_SHOWN_QUERY]}: {known[: 2 * _SHOWN_QUERY]}"
        raise InvalidField("dataset.where", problem, reason=Reason.EMPTY_DATASET)
    return chosen


def _ordered(
    samples: SpooledSamples | list[Sample], shuffle_seed: int | None, limit: int | None, go_on: Callable[[], None]
) -> Sequence[Sample | MalformedSample]:
    if isinstance(samples, SpooledSamples):
        samples.ordered(shuffle_seed, limit, go_on)
        return samples
    if shuffle_seed is not None:
        samples = sorted(samples, key=lambda sample: shuffle_key(shuffle_seed, sample.id))
    return tuple(samples[:limit])


def _arithmetic() -> Sequence[Sample]:
    from crucible_worker.embedded.arithmetic import held_out  # hashes 8,100 problems: only when it is requested

    return held_out()


BUILTIN_DATASETS: Mapping[str, Callable[[], Sequence[Sample]]] = MappingProxyType({"arithmetic": _arithmetic})
"""Data sets that ship with the worker."""


def _builtin(name: str, builtins: Mapping[str, Callable[[], Sequence[Sample]]]) -> Sequence[Sample]:
    if name not in builtins:
        known = ", ".join(builtins) or "none"
        raise NotFound(
            f"is {clipped(name)}, known are: {known}", field="dataset.builtin", reason=Reason.UNKNOWN_DATASET
        )
    return builtins[name]()


def _identified(samples: Sequence[Sample], field: str) -> list[Sample]:
    named = [
        sample if sample.id else dataclasses.replace(sample, id=str(index)) for index, sample in enumerate(samples)
    ]
    first: dict[str, int] = {}
    for index, sample in enumerate(named):
        if sample.id in first:
            message = f"has the id {clipped(sample.id)} twice: sample {first[sample.id]} and sample {index}"
            raise InvalidField(field, message, reason=Reason.DUPLICATE_SAMPLE_ID)
        first[sample.id] = index
    return named


# Data sets that were loaded recently or are still in use: reused while their files are unchanged.
#
# The steps of a plan read the same data again and again. A reused data set is what a new read would return: a file
# counts as unchanged while its path, size and times are the same, and only if it had not been modified for longer than
# the resolution of a file system's times; a commit of the hub never changes.

MAX_CACHED = 4
"""Data sets that are cached: the samples of small ones in memory, those of large ones in a file of the worker."""
MAX_FILE_BYTES = 256 * 1024 * 1024
"""The samples of a larger file, or commit of the hub, are cached only while an evaluation uses them: not for the life
of the worker, and not once for every step in the queue."""
SETTLED_SECONDS = 2.0
"""The coarsest resolution of a file system's times: of two changes within it, the second may not show."""

_Identity = tuple[str, int, int, int, int, int]


class DatasetCache:
    """Loads data sets; those of unchanged files and of commits once. Thread-safe."""

    def __init__(self, data_roots: Sequence[Path], settled_seconds: float = SETTLED_SECONDS) -> None:
        """Start empty; files lie below these roots, and are cached once they were not changed for `settled_seconds`."""
        self._roots, self._settled_ns = data_roots, int(settled_seconds * 1e9)
        self._kept: collections.OrderedDict[Hashable, LoadedDataset] = collections.OrderedDict()
        self._in_use: weakref.WeakValueDictionary[Hashable, SpooledSamples] = weakref.WeakValueDictionary()
        self._fingerprints: weakref.WeakKeyDictionary[SpooledSamples, str] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def load(self, dataset: Dataset, load: Callable[[], LoadedDataset]) -> LoadedDataset:
        """What `load` returns, or what it returned for the same data set and unchanged content.

        Raises:
            BridgeError: as `datasets.loading.load` does.
        """
        match dataset.source:
            case JsonlDataset() | FileDataset() as source:
                return self._load_file(dataset, source, load)
            case HubDataset(revision=str()) as source:
                return self._load_commit(dataset, source, load)
            case _:
                return load()

    def _load_file(
        self, dataset: Dataset, source: JsonlDataset | FileDataset, load: Callable[[], LoadedDataset]
    ) -> LoadedDataset:
        began = time.time_ns()
        before = self._identity(source)
        if before is None:
            return load()
        key = (format_file(source), _choice(dataset), before)
        if (kept := self._find(key)) is not None:
            return kept
        loaded = load()
        *_, size, modified, changed = before
        settled = began - max(modified, changed) > self._settled_ns
        if settled and self._identity(source) == before:
            self._store(key, loaded, size)
        return loaded

    def _load_commit(self, dataset: Dataset, source: HubDataset, load: Callable[[], LoadedDataset]) -> LoadedDataset:
        key = (format_hub(source), _choice(dataset))
        if (kept := self._find(key)) is not None:
            return kept
        loaded = load()
        if isinstance(loaded.samples, SpooledSamples):
            self._store(key, loaded, loaded.samples.size)
        return loaded

    def _find(self, key: Hashable) -> LoadedDataset | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            samples = self._in_use.get(key)
            return None if samples is None else LoadedDataset(samples=samples, fingerprint=self._fingerprints[samples])

    def _store(self, key: Hashable, loaded: LoadedDataset, size: int) -> None:
        with self._lock:
            if isinstance(loaded.samples, SpooledSamples):
                self._in_use[key] = loaded.samples
                self._fingerprints[loaded.samples] = loaded.fingerprint
            if size <= MAX_FILE_BYTES:
                self._kept[key] = loaded
            while len(self._kept) > MAX_CACHED:
                self._kept.popitem(last=False)

    def _identity(self, source: JsonlDataset | FileDataset) -> _Identity | None:
        path = find_file(source.path, self._roots, field_of(source))
        try:
            found = os.stat(path)
        except OSError:
            return None  # deleted meanwhile: reading it reports that
        return (str(path), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _choice(dataset: Dataset) -> Hashable:
    """The options of a data set besides its source, in a hashable form: mappings have none."""
    return dataset.limit, dataset.shuffle_seed, dataset.skip_malformed, tuple(sorted(dataset.where.items()))
