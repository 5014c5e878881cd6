"""Samples outside of memory: what was put in comes back, in any order, from memory or a file, and nothing is left."""

import dataclasses
import gc
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import InvalidField, Unavailable
from crucible_bridge.types import ChatMessage, Conversation, Sample
from crucible_worker.datasets import spool as module
from crucible_worker.datasets.jsonl import JsonLine
from crucible_worker.datasets.spool import MalformedSample, SpooledSamples, shuffle_key, spool

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
SAMPLES = st.builds(
    Sample,
    id=st.just(""),
    input=TEXTS | st.lists(st.builds(ChatMessage, TEXTS, TEXTS), min_size=1, max_size=3).map(tuple).map(Conversation),
    targets=st.lists(TEXTS, max_size=2).map(tuple),
    choices=st.lists(TEXTS, max_size=2).map(tuple),
    choice_labels=st.lists(TEXTS, max_size=2).map(tuple),
    metadata=st.dictionaries(TEXTS, TEXTS, max_size=2),
)


def _spooled(samples: Sequence[Sample | None], directory: Path | None = None) -> SpooledSamples:
    lines = [
        JsonLine(number=number, sample=sample) if sample is not None else JsonLine(number=number, problem="is bad")
        for number, sample in enumerate(samples, start=1)
    ]
    return spool(lines, directory, field="dataset.x", skip_malformed=True)


def _ids(samples: SpooledSamples) -> list[str]:
    return [sample.id for sample in samples]


@pytest.fixture
def in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record stays in memory, and blocks are short."""
    monkeypatch.setattr(module, "MEMORY_BYTES", 0)
    monkeypatch.setattr(module, "BLOCK_BYTES", 64)


@pytest.mark.parametrize("memory_bytes", [0, 1 << 20])
def test_every_sample_comes_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, memory_bytes: int) -> None:
    """Whatever is in it, and wherever it lay meanwhile."""
    monkeypatch.setattr(module, "MEMORY_BYTES", memory_bytes)
    monkeypatch.setattr(module, "BLOCK_BYTES", 64)

    @given(st.lists(SAMPLES, max_size=8))
    def check(samples: list[Sample]) -> None:
        spooled = _spooled(samples, tmp_path)
        named = [dataclasses.replace(sample, id=str(index)) for index, sample in enumerate(samples)]
        assert list(spooled) == named
        assert spooled[1:] == tuple(named[1:])
        assert [spooled[-1 - index] for index in range(len(named))] == named[::-1]

    check()


@pytest.mark.usefixtures("in_a_file")
def test_beyond_the_end_there_is_nothing() -> None:
    """An index that is too large is an error, as of any sequence."""
    spooled = _spooled([Sample(input="a")])
    for index in (1, -2):
        with pytest.raises(IndexError):
            spooled[index]


@pytest.mark.usefixtures("in_a_file")
@pytest.mark.parametrize("limit", [None, 7, 100])
def test_a_shuffle_is_the_order_of_the_keys(limit: int | None) -> None:
    """Samples are sorted by SHA-256 of seed and id, all of them, and the limit comes after that."""
    spooled = _spooled([Sample(id=f"s{index}", input="a") for index in range(50)])
    spooled.ordered(3, limit)
    expected = sorted((f"s{index}" for index in range(50)), key=lambda identity: shuffle_key(3, identity))
    assert _ids(spooled) == expected[:limit]


@pytest.mark.usefixtures("in_a_file")
def test_malformed_lines_keep_their_places() -> None:
    """Each has its index for an id, or its number where a sample, before or behind it, has that id."""
    spooled = _spooled([None, Sample(id="3", input="a"), None, None, Sample(input="b")])
    assert _ids(spooled) == ["0", "3", "2", "line 4", "4"]
    bad = spooled[3]
    assert isinstance(bad, MalformedSample)
    assert (bad.problem.reason, bad.problem.message, bad.problem.field) == (
        "MALFORMED_LINE",
        "line 4 is bad",
        "dataset.x",
    )


def test_an_id_that_is_there_twice_is_refused() -> None:
    """The first pair, in order, is named; be it a sample without an id that is called by its index."""
    with pytest.raises(InvalidField, match="the id '2' twice: line 1 and line 3"):
        _spooled([Sample(id="2", input="a"), Sample(id="x", input="b"), Sample(input="c"), Sample(id="x", input="d")])


def test_ids_of_one_digest_are_not_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests only tell which ids are to be compared."""
    monkeypatch.setattr(module, "_digest", len)
    assert _ids(_spooled([Sample(id=identity, input="a") for identity in ("ab", "cd", "ef")])) == ["ab", "cd", "ef"]
    with pytest.raises(InvalidField, match="'cd' twice: line 2 and line 4"):
        _spooled([Sample(id=identity, input="a") for identity in ("ab", "cd", "ef", "cd")])


def _files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.usefixtures("in_a_file")
def test_nothing_is_left_of_the_file(tmp_path: Path) -> None:
    """It has no name while it is there, and is closed with the last reference to its samples."""
    before = _files()
    spooled = _spooled([Sample(input="a" * 1000)] * 3, tmp_path)
    assert (list(tmp_path.iterdir()), _files()) == ([], before + 1)
    del spooled
    assert _files() == before


@pytest.mark.parametrize(("beyond", "files"), [(-1, 0), (0, 0), (1, 1)])
def test_what_fits_stays_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, beyond: int, files: int) -> None:
    """Up to the limit there is no file."""
    samples = [Sample(input=str(random.Random(index).random())) for index in range(20)]
    size = _spooled(samples)._ends[-1]
    monkeypatch.setattr(module, "MEMORY_BYTES", size - beyond)
    before = _files()
    spooled = _spooled(samples, tmp_path)
    assert _files() - before == files
    assert [sample.input for sample in spooled if isinstance(sample, Sample)] == [sample.input for sample in samples]


@pytest.mark.usefixtures("in_a_file")
def test_no_room_is_said(tmp_path: Path) -> None:
    """A directory that takes no file is a passing trouble of the worker, not of the data set."""
    with pytest.raises(Unavailable) as caught:
        _spooled([Sample(input="a")], tmp_path / "gone")
    assert (caught.value.reason, caught.value.field, caught.value.retryable) == (
        "NO_ROOM_FOR_DATASET",
        "dataset.x",
        True,
    )


def test_it_is_given_up_when_nobody_waits() -> None:
    """What `go_on` raises ends it at the record it has come to."""
    seen = []

    def go_on() -> None:
        seen.append(None)
        if len(seen) == 3:
            raise KeyError

    with pytest.raises(KeyError):
        spool((JsonLine(number=n, sample=Sample(input="a")) for n in range(1, 10)), None, field="f", go_on=go_on)


def test_a_shuffle_is_given_up_when_nobody_waits() -> None:
    """It reads every sample again, and `go_on` is asked at each of them."""
    spooled = _spooled([Sample(id=f"s{index}", input="a") for index in range(9)])
    seen = []

    def go_on() -> None:
        seen.append(None)
        if len(seen) == 3:
            raise KeyError

    with pytest.raises(KeyError):
        spooled.ordered(3, None, go_on)
    assert len(seen) == 3
