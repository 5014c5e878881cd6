"""Filters of data sets by metadata: which samples they leave, in which order, and of which ids."""

import json
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Dataset, InlineDataset, JsonlDataset, Sample
from crucible_worker.datasets.loading import LoadedDataset, load
from tests.tables import rows

ROWS = [{"input": f"{n}", "level": ("easy", "hard")[n % 2], "kind": ("a", "b", "c")[n % 3]} for n in range(12)]


@pytest.fixture(params=["inline", "file"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The same rows in a request and in a file."""
    if request.param == "inline":
        return Dataset.of(ROWS).source
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return JsonlDataset("q.jsonl")


def read(source: Any, tmp_path: Path, **options: Any) -> LoadedDataset:
    """Load it."""
    return load(Dataset(source=source, **options), data_roots=[tmp_path], builtins={})


def ids(loaded: LoadedDataset) -> list[str]:
    """Which samples these are."""
    return [sample.id for sample in loaded.samples]


def test_a_filter_leaves_those_that_have_all_its_values(source: Any, tmp_path: Path) -> None:
    """Ids are those of the whole data set; the limit counts what is left; equal samples have an equal fingerprint."""
    assert ids(read(source, tmp_path, where={"level": "hard"})) == ["1", "3", "5", "7", "9", "11"]
    both = {"level": "hard", "kind": "a"}
    assert ids(read(source, tmp_path, where=both)) == ["3", "9"]
    assert ids(read(source, tmp_path, where=both, limit=1)) == ["3"]
    left = [Sample(id=str(n), input=str(n), metadata={"level": "hard", "kind": "a"}) for n in (3, 9)]
    alone = read(InlineDataset(tuple(left)), tmp_path)
    assert read(source, tmp_path, where=both).fingerprint == alone.fingerprint


def test_a_shuffle_orders_what_is_left(source: Any, tmp_path: Path) -> None:
    """As it would be ordered among all: the filter takes samples out, and moves none."""
    every = ids(read(source, tmp_path, shuffle_seed=7))
    left = ids(read(source, tmp_path, shuffle_seed=7, where={"level": "easy"}))

    assert left == [identity for identity in every if int(identity) % 2 == 0]
    assert ids(read(source, tmp_path, shuffle_seed=7, where={"level": "easy"}, limit=2)) == left[:2]


@rows(
    ("where", "says"),
    [
        ({"level": "hrad"}, "matches no sample with level = hrad: values of level are easy, hard"),
        ({"levle": "hard"}, "no sample has levle in its metadata; the first sample has level"),
        ({"level": "hard", "kind": "d"}, "matches no sample with level = hard and kind = d: "),
    ],
)
def test_a_filter_that_leaves_nothing_says_what_there_is(tmp_path: Path, where: dict[str, str], says: str) -> None:
    """The error names the key and values that it has."""
    with pytest.raises(InvalidField) as caught:
        read(Dataset.of(ROWS).source, tmp_path, where=where)

    assert says in caught.value.message
    assert (caught.value.field, caught.value.reason) == ("dataset.where", "EMPTY_DATASET")


def test_a_malformed_line_passes_no_filter(tmp_path: Path) -> None:
    """It has no metadata; a data set that does not skip it is refused all the same."""
    (tmp_path / "q.jsonl").write_text('{"input": "a", "level": "easy"}\n{\n')

    assert ids(read(JsonlDataset("q.jsonl"), tmp_path, where={"level": "easy"}, skip_malformed=True)) == ["0"]
    with pytest.raises(InvalidField, match="line 2 is not JSON"):
        read(JsonlDataset("q.jsonl"), tmp_path, where={"level": "easy"})
