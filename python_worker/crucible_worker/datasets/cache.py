"""Data sets that were loaded recently or are still in use: reused while their files are unchanged.

The steps of a plan read the same data again and again. A reused data set is what a new read would return: a file counts
as unchanged while its path, size and times are the same, and only if it had not been modified for longer than the
resolution of a file system's times; a commit of the hub never changes.
"""

from __future__ import annotations

import collections
import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

from crucible_bridge.types import Dataset, FileDataset, HubDataset, JsonlDataset, format_file, format_hub
from crucible_worker.datasets.jsonl import find_file
from crucible_worker.datasets.loading import LoadedDataset, field_of
from crucible_worker.datasets.spool import SpooledSamples

__all__ = ["MAX_CACHED", "MAX_FILE_BYTES", "SETTLED_SECONDS", "DatasetCache"]

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
