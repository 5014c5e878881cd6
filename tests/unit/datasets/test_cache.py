"""Data sets of files at hand: read once while the file is unchanged, and never a stale one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import NotFound
from crucible_bridge.types import Dataset, HubDataset, InlineDataset, JsonlDataset, Sample
from crucible_worker.datasets import loading
from crucible_worker.datasets.jsonl import JsonLine
from crucible_worker.datasets.loading import MAX_CACHED, DatasetCache, LoadedDataset, load
from crucible_worker.datasets.spool import SpooledSamples, spool

DATASET = Dataset(source=JsonlDataset("d.jsonl"))


class Reader:
    """Loads data sets of a folder, and counts how often that is asked for."""

    def __init__(self, folder: Path, settled_seconds: float = -1.0) -> None:
        self.folder, self.reads = folder, 0
        self.files = DatasetCache((folder,), settled_seconds)

    def write(self, *inputs: str, name: str = "d.jsonl") -> None:
        (self.folder / name).write_text("".join(f'{{"input": "{text}"}}\n' for text in inputs))

    def load(self, dataset: Dataset = DATASET, then: Callable[[], None] = lambda: None) -> LoadedDataset:
        def read() -> LoadedDataset:
            self.reads += 1
            loaded = load(dataset, data_roots=(self.folder,), builtins={})
            then()
            return loaded

        return self.files.load(dataset, read)

    def inputs(self, dataset: Dataset = DATASET, then: Callable[[], None] = lambda: None) -> list[object]:
        return [sample.input for sample in self.load(dataset, then).samples if isinstance(sample, Sample)]


def test_an_unchanged_file_is_read_once(tmp_path):
    """The same data set comes again without a read; with another order or limit it is another one."""
    reader = Reader(tmp_path)
    reader.write("a", "b")

    assert [reader.inputs(), reader.inputs(), reader.reads] == [["a", "b"], ["a", "b"], 1]
    assert reader.inputs(Dataset(source=DATASET.source, limit=1)) == ["a"]
    assert reader.reads == 2


def test_a_changed_file_is_read_again(tmp_path):
    """Written over, or replaced by another file of the same size and time."""
    reader = Reader(tmp_path)
    reader.write("a")
    reader.inputs()
    times = os.stat(tmp_path / "d.jsonl")
    reader.write("b", name="other")
    os.utime(tmp_path / "other", ns=(times.st_atime_ns, times.st_mtime_ns))
    os.replace(tmp_path / "other", tmp_path / "d.jsonl")

    assert reader.inputs() == ["b"]
    reader.write("c", "d")
    assert reader.inputs() == ["c", "d"]


def test_a_file_changed_just_now_is_not_kept(tmp_path):
    """Another change within the file system's time could not be told from this one."""
    reader = Reader(tmp_path, settled_seconds=60.0)
    reader.write("a")
    reader.inputs()
    reader.inputs()

    assert reader.reads == 2


def test_a_file_changed_while_it_is_read_is_not_kept(tmp_path):
    """What was read may be half of each: it is this caller's alone."""
    reader = Reader(tmp_path)
    reader.write("a")

    assert reader.inputs(then=lambda: reader.write("b", "c")) == ["a"]
    assert reader.inputs() == ["b", "c"]


def test_a_file_that_is_gone_is_not_there(tmp_path):
    """Although it is at hand."""
    reader = Reader(tmp_path)
    reader.write("a")
    reader.inputs()
    (tmp_path / "d.jsonl").unlink()

    with pytest.raises(NotFound):
        reader.inputs()


def test_few_are_kept(tmp_path):
    """The one that was not asked for the longest goes first."""
    reader = Reader(tmp_path)
    several = [Dataset(source=JsonlDataset(f"{number}.jsonl")) for number in range(MAX_CACHED + 1)]
    for number, dataset in enumerate(several):
        reader.write("a", name=f"{number}.jsonl")
        reader.inputs(dataset)
    reader.inputs(several[-1])
    assert reader.reads == MAX_CACHED + 1
    reader.inputs(several[0])
    assert reader.reads == MAX_CACHED + 2


def test_large_files_are_not_kept(tmp_path, monkeypatch):
    """Beyond the limit a file is read each time."""
    monkeypatch.setattr(loading, "MAX_FILE_BYTES", 20)
    reader = Reader(tmp_path)
    reader.write("a")
    reader.inputs()
    reader.write("a longer input than that")
    reader.inputs()
    reader.inputs()

    assert reader.reads == 3


def test_what_somebody_has_is_not_read_again(tmp_path, monkeypatch):
    """However large it is: the steps of a plan that wait for their turn have the same samples."""
    monkeypatch.setattr(loading, "MAX_FILE_BYTES", 0)
    reader = Reader(tmp_path)
    reader.write("a", "b")
    first = reader.load()
    second = reader.load()

    assert second.samples is first.samples
    assert second.fingerprint == first.fingerprint
    assert reader.reads == 1
    reader.write("c")
    assert len(reader.load().samples) == 1
    reader.write("a", "b")
    del first, second
    reader.inputs()
    reader.inputs()
    assert reader.reads == 4


def test_other_sources_are_asked_each_time(tmp_path):
    """Samples of the request are what they are."""
    reader = Reader(tmp_path)
    dataset = Dataset(source=InlineDataset((Sample(input="a"),)))
    reader.inputs(dataset)
    reader.inputs(dataset)

    assert reader.reads == 2


def commit(letter: str = "a", **fields: Any) -> Dataset:
    """A data set of the hub, of one commit."""
    source = HubDataset("acme/sums", split="test", revision=letter * 40, columns={"input": "question"})
    return Dataset(**{"source": source, **fields})


def test_a_commit_of_the_hub_is_read_once(tmp_path, monkeypatch):
    """Its content never changes; another commit, limit or order is another data set; the latest is read anew."""
    files, reads = DatasetCache(()), []

    def read() -> LoadedDataset:
        reads.append(True)
        spooled = spool([JsonLine(number=1, sample=Sample(input="q"))], tmp_path, field="f", go_on=lambda: None)
        return LoadedDataset(samples=spooled, fingerprint="f")

    latest = Dataset(source=HubDataset("acme/sums", split="test"))
    kept = [commit(), commit("b"), commit(limit=1), commit(shuffle_seed=1)]
    first = [files.load(dataset, read) for dataset in kept]
    assert len(reads) == len(kept)
    assert all(files.load(dataset, read) is loaded for dataset, loaded in zip(kept, first, strict=True))
    assert len(reads) == len(kept)
    for _ in range(2):
        files.load(latest, read)
    assert len(reads) == len(kept) + 2
    samples = first[0].samples
    assert isinstance(samples, SpooledSamples)
    monkeypatch.setattr(loading, "MAX_FILE_BYTES", samples.size - 1)
    for _ in range(2):
        files.load(commit("c"), read)
    assert len(reads) == len(kept) + 4
