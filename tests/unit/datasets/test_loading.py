"""Data sets: which samples a source holds, what is refused, and what the fingerprint tells apart."""

import dataclasses
import hashlib
import json
import os
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from crucible_bridge.errors import (
    BridgeError,
    FailedPrecondition,
    InvalidField,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from crucible_bridge.types import (
    BuiltinDataset,
    ChatMessage,
    Conversation,
    Dataset,
    Datum,
    Dtype,
    FileDataset,
    FileFormat,
    InlineDataset,
    JsonlDataset,
    ModelInput,
    RowReader,
    Sample,
    Tensor,
)
from crucible_worker.datasets import jsonl
from crucible_worker.datasets import loading as datasets
from crucible_worker.datasets.jsonl import line_of, read_lines
from crucible_worker.datasets.loading import BUILTIN_DATASETS, LoadedDataset, MalformedSample, load
from crucible_worker.journal.packing import pack
from tests.tables import rows

Write = Callable[[bytes], Path]
GOOD = b'{"input": "2+2=", "target": "4"}\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data root."""
    made = tmp_path / "root"
    made.mkdir()
    return made


@pytest.fixture
def write(root: Path) -> Write:
    """Writes `data.jsonl` below the root."""

    def written(content: bytes) -> Path:
        path = root / "data.jsonl"
        path.write_bytes(content)
        return path

    return written


def _load(
    root: Path, path: str = "data.jsonl", *, go_on: Callable[[], None] = lambda: None, **options: Any
) -> LoadedDataset:
    return load(Dataset(source=JsonlDataset(path), **options), data_roots=[root], builtins={}, go_on=go_on)


def _rows() -> RowReader:
    return RowReader({}, field="dataset.jsonl_path", cure="name the columns")


def _inline(samples: Sequence[Sample], **options: Any) -> LoadedDataset:
    return load(Dataset(source=InlineDataset(tuple(samples)), **options), data_roots=[], builtins={})


def test_a_record_becomes_a_sample(root: Path, write: Write) -> None:
    """Every key of a record has its place; metadata that is not text is kept as JSON."""
    record = {
        "id": "x",
        "input": [{"role": "user", "content": "2+2?"}],
        "targets": ["4", "four"],
        "choices": ["3", "4"],
        "metadata": {"level": "easy", "year": 2024, "tags": ["a", None]},
    }
    write(json.dumps(record).encode() + b"\n" + GOOD)

    samples = _load(root).samples

    assert tuple(samples) == (
        Sample(
            id="x",
            input=Conversation((ChatMessage("user", "2+2?"),)),
            targets=("4", "four"),
            choices=("3", "4"),
            metadata={"level": "easy", "year": "2024", "tags": '["a", null]'},
        ),
        Sample(id="1", input="2+2=", targets=("4",)),
    )


@pytest.mark.parametrize(
    "content",
    [
        GOOD + b'{"input": "b"}',
        b"\xef\xbb\xbf" + GOOD + b'{"input": "b"}\r\n',
        GOOD + b'{"input": "b"}\n\n \r\n\n',
        b"\n" + GOOD + b' \n\r\n{"input": "b"}',
        GOOD.replace(b"\n", b"\r") + b'{"input": "b"}\r',
    ],
)
def test_ends_of_lines_and_files_do_not_matter(root: Path, write: Write, content: bytes) -> None:
    """A byte order mark, CR LF, CR alone, a last line without an end and blank lines anywhere are fine."""
    write(content)

    assert [sample.id for sample in _load(root).samples] == ["0", "1"]


def test_lines_are_counted_with_the_blank_ones(root: Path, write: Write) -> None:
    """An error names the line of the file; a sample without an id has its index among the rows."""
    write(GOOD + b"\n\n" + GOOD + b"[1]\n")
    with pytest.raises(InvalidField, match="line 5 is a list, not an object"):
        _load(root)
    assert [sample.id for sample in _load(root, skip_malformed=True).samples] == ["0", "1", "2"]

    write(b'\n{"input": "a", "id": "x"}\n\n{"input": "b", "id": "x"}')
    with pytest.raises(InvalidField, match="the id 'x' twice: line 2 and line 4"):
        _load(root)


def test_nan_where_no_value_is_needed_is_no_value(root: Path, write: Write) -> None:
    """A column that becomes metadata, an id and choices may be NaN, as a null may be there."""
    write(b'{"input": "a", "target": 42.0, "id": NaN, "choices": NaN, "note": NaN, "metadata": {"x": [NaN, 1.0]}}')

    assert list(_load(root).samples) == [Sample(id="0", input="a", targets=("42",), metadata={"x": "[null, 1.0]"})]


@rows(
    ("content", "found"),
    [
        (b'[{"input": "a"}, {"input": "b"}]', ["a", "b"]),
        (b'\xef\xbb\xbf \n[\n  {\n    "input": "a, ]}\\"[{"\n  },\n  {"input": "b\\\\"}\n]\n', ['a, ]}"[{', "b\\"]),
        (b'[{"input": "a", "metadata": {"x": [1, [2]]}}]', ["a"]),
    ],
)
def test_a_file_may_be_one_array(root: Path, write: Write, monkeypatch: pytest.MonkeyPatch, content: bytes, found: Any):
    """Its elements are rows, wherever the pieces end in which it is read."""
    write(content)
    for size in (1, 2, 3, 7, 1 << 20):
        monkeypatch.setattr(jsonl, "_SKIP_BYTES", size)

        assert [sample.input for sample in _load(root).samples if isinstance(sample, Sample)] == found


@rows(
    ("content", "reason", "says"),
    [
        (b"[]", "EMPTY_DATASET", "holds no sample"),
        (b'[{"input": "a"}, 3]', "MALFORMED_LINE", "element 2 is a number, not an object"),
        (b'[{"input": "a"}, {"input": 3}]', "MALFORMED_LINE", 'element 2 has an "input" that is a number'),
        (b'[{"input": "a"},, {"input": "b"}]', "MALFORMED_LINE", "element 2 is not JSON"),
        (b'[{"input": "a"}, {"input": "b"}', "MALFORMED_LINE", "element 1 is the last of an array that does not end"),
        (b'[{"input": "a"}] {"input": "b"}', "MALFORMED_LINE", "element 1 is the last of the array, and something"),
        (b'[{"input": "a", "id": "x"},\n{"input": "b", "id": "x"}]', "DUPLICATE_SAMPLE_ID", "element 1 and element 2"),
        (b'[{"input": "' + b"x" * 100 + b'"}, {"input": "a"}]', "MALFORMED_LINE", "element 1 is longer than 99 bytes"),
    ],
)
def test_an_array_that_cannot_be_read_says_why(
    root: Path, write: Write, monkeypatch: pytest.MonkeyPatch, content: bytes, reason: str, says: str
) -> None:
    """Errors count its elements."""
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", 99)
    write(content)

    with pytest.raises(InvalidField, match=says) as caught:
        _load(root)

    assert caught.value.reason == reason


@rows(
    ("line", "says"),
    [
        (b"{", "is not JSON"),
        (b"[1]", "is a list, not an object"),
        (b'"text"', "is text, not an object"),
        (b"\xff", "is not UTF-8, at byte 1"),
        (b'{"target": "4"}', 'has no "input"'),
        (b'{"input": 3}', "that is a number"),
        (b'{"input": null}', "that is null"),
        (b'{"input": []}', "without messages"),
        (b'{"input": ["hi"]}', "message 0 is no object"),
        (b'{"input": [{"role": "user"}]}', "message 0, at content, is not given"),
        (b'{"input": [{"role": "user", "content": 3}]}', "message 0, at content, is no list"),
        (b'{"input": "a", "target": null}', "holds null or NaN, not text"),
        (b'{"input": "a", "target": {"value": "4"}}', "holds an object, not text"),
        (b'{"input": "a", "target": [["4"]]}', "holds a list, not text"),
        (b'{"input": "a", "choices": "4"}', "that is text, not a list"),
        (b'{"input": "a", "choices": ["x"], "target": 1}', "the index of a choice, and there are 1 choices"),
        (b'{"input": "a", "target": "4", "targets": ["4"]}', 'both "target" and "targets"'),
        (b'{"input": "a", "output": "4", "targets": ["4"]}', 'both "output" and "targets"'),
        (
            b'{"input": "a", "target": "b", "level": "x", "metadata": {"level": "y"}}',
            '"level" as a column and in "metadata"',
        ),
        (b'{"input": "a", "input": "b"}', "the key 'input' twice"),
        (b'{"input": "a", "id": true}', "that is a boolean"),
        (b'{"input": "a", "metadata": []}', "that is a list, not an object"),
        (b'{"input": "a", "target": NaN}', 'has "target" that holds null or NaN, not text'),
        (b'{"input": "a", "metadata": {"x": -Infinity}}', "holds -Infinity"),
        (b'{"input": "a", "metadata": {"x": 1e999}}', "beyond float64"),
        (b'{"input": "a", "metadata": {"x": ' + b"9" * 5000 + b"}}", "more than 1,000 digits"),
        (b'{"input": "\\ud800"}', "half a surrogate pair"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_malformed_line_is_named(root: Path, write: Write, line: bytes, says: str) -> None:
    """The error gives the number of the line and says what is wrong; skipped, it stands for an ERROR in its place."""
    write(GOOD + line + b"\n" + GOOD)

    with pytest.raises(InvalidField) as caught:
        _load(root)

    assert caught.value.reason == "MALFORMED_LINE"
    assert str(caught.value).startswith("dataset.jsonl_path line 2 ")
    assert says in caught.value.message
    skipped = _load(root, skip_malformed=True).samples
    assert [sample.id for sample in skipped] == ["0", "1", "2"]
    assert isinstance(skipped[1], MalformedSample)
    assert (skipped[1].problem.reason, skipped[1].problem.message) == ("MALFORMED_LINE", caught.value.message)


def test_surrogate_pairs_are_text(root: Path, write: Write) -> None:
    """Two escapes that make one character are that character."""
    write(b'{"input": "\\ud83d\\ude00"}')

    (sample,) = _load(root).samples

    assert isinstance(sample, Sample)
    assert sample.input == "\U0001f600"


@pytest.mark.parametrize(("beyond", "fits"), [(-1, True), (0, True), (1, False)])
def test_lines_are_bounded(root: Path, write: Write, monkeypatch: pytest.MonkeyPatch, beyond: int, fits: bool) -> None:
    """A line above the limit is malformed, and the next one is read from its beginning."""
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", len(GOOD) - beyond)
    write(GOOD + b'{"input": ""}\n')

    first, second = _load(root, skip_malformed=True).samples

    assert isinstance(first, Sample) is fits
    assert isinstance(second, Sample)
    assert second.input == ""


class GivenUpError(Exception):
    """Raised by a test in place of a cancel."""


def test_an_endless_line_is_refused_before_its_end_is_looked_for(root: Path) -> None:
    """A file of 64 GiB without a line's end costs one read of the longest line, however much lies behind it."""
    with (root / "data.jsonl").open("wb") as file:
        file.truncate(64 * 1024**3)
    reads = 0

    def go_on() -> None:
        nonlocal reads
        reads += 1

    with pytest.raises(InvalidField, match="line 1 is longer than 16,777,216 bytes: one object a line is needed"):
        _load(root, go_on=go_on)

    assert reads <= 2  # the part that was read, and its record


def test_an_endless_line_that_is_skipped_can_be_given_up(root: Path) -> None:
    """While the end of a long line is looked for, the loading asks after every part whether to continue."""
    with (root / "data.jsonl").open("wb") as file:
        file.truncate(64 * 1024**3)
    reads = 0

    def go_on() -> None:
        nonlocal reads
        reads += 1
        if reads == 5:
            raise GivenUpError

    with pytest.raises(GivenUpError):
        _load(root, skip_malformed=True, go_on=go_on)


@pytest.mark.parametrize(("beyond", "fits"), [(0, True), (1, False)])
def test_the_end_of_a_long_line_is_looked_for_within_a_bound(
    root: Path, write: Write, monkeypatch: pytest.MonkeyPatch, beyond: int, fits: bool
) -> None:
    """A line that does not end within the bound refuses its file, even where malformed lines are skipped."""
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", 99)
    monkeypatch.setattr(jsonl, "_SKIP_BYTES", 100)
    monkeypatch.setattr(jsonl, "MAX_SKIPPED_BYTES", 300)
    write(GOOD + b"x" * (299 + beyond) + b"\n" + GOOD)

    if fits:
        assert [type(sample) for sample in _load(root, skip_malformed=True).samples] == [
            Sample,
            MalformedSample,
            Sample,
        ]
    else:
        with pytest.raises(InvalidField, match="line 2 does not end within 300 bytes") as caught:
            _load(root, skip_malformed=True)
        assert (caught.value.reason, caught.value.field) == ("MALFORMED_LINE", "dataset.jsonl_path")


@pytest.mark.parametrize(("count", "says"), [(1_000, None), (1_001, "an integer of more than 1,000 digits")])
def test_integers_are_bounded(count: int, says: str | None) -> None:
    """An integer has at most `MAX_DIGITS` digits: to write a longer one again takes the square of its length."""
    line = line_of(1, b'{"input": "a", "metadata": {"x": ' + b"9" * count + b"}}", _rows())

    assert (says is None and line.sample is not None) or (says is not None and says in line.problem)


@pytest.mark.parametrize(("parts", "says"), [(10, None), (11, "more than 10 lists, objects and texts")])
def test_lists_objects_and_texts_of_a_line_are_bounded(
    monkeypatch: pytest.MonkeyPatch, parts: int, says: str | None
) -> None:
    """A line is parsed only if it has at most `MAX_LINE_PARTS`: the parser lets no other thread run among them."""
    monkeypatch.setattr(jsonl, "MAX_LINE_PARTS", 10)
    own = 7  # the record, its two keys and the text, the object, the key and the list in it
    line = line_of(1, b'{"input": "a", "metadata": {"x": [' + b",".join([b"[]"] * (parts - own)) + b"]}}", _rows())

    assert (says is None and line.sample is not None) or (says is not None and says in line.problem)


def test_empty_lines_take_no_memory(root: Path, write: Write) -> None:
    """Empty lines at the end are counted, not gathered: a file of nothing else takes no memory."""
    write(GOOD + b"\n" * 300_000)

    tracemalloc.start()
    try:
        records = list(read_lines(root / "data.jsonl", "dataset.jsonl_path", _rows()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert [record.number for record in records] == [1]
    assert peak < 1_000_000


def test_a_skipped_line_takes_no_id_away(root: Path, write: Write) -> None:
    """Where a sample bears the index of a malformed line as its id, the line is called by its number."""
    write(b'{\n{"input": "a", "id": "0"}\n')

    assert [sample.id for sample in _load(root, skip_malformed=True).samples] == ["line 1", "0"]


@pytest.mark.parametrize(
    ("content", "places"),
    [
        (b'{"input": "a", "id": "x"}\n{"input": "b"}\n{"input": "c", "id": "x"}', "line 1 and line 3"),
        (b'{"input": "a", "id": 1}\n{"input": "b"}', "line 1 and line 2"),
    ],
)
def test_ids_are_unique_in_a_file(root: Path, write: Write, content: bytes, places: str) -> None:
    """An id that is there twice, given or from the index, is refused with both lines."""
    write(content)

    with pytest.raises(InvalidField, match=places) as caught:
        _load(root)

    assert caught.value.reason == "DUPLICATE_SAMPLE_ID"


def test_ids_are_unique_in_a_request() -> None:
    """Inline samples are named by their position."""
    with pytest.raises(InvalidField, match="'x' twice: sample 0 and sample 2") as caught:
        _inline([Sample(id="x", input="a"), Sample(input="b"), Sample(id="x", input="c")])

    assert (caught.value.field, caught.value.reason) == ("dataset.inline", "DUPLICATE_SAMPLE_ID")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(root: Path, write: Write, content: bytes) -> None:
    """There is nothing to evaluate on."""
    write(content)

    with pytest.raises(InvalidField) as caught:
        _load(root)

    assert (caught.value.field, caught.value.reason) == ("dataset.jsonl_path", "EMPTY_DATASET")


def test_an_empty_list_is_refused() -> None:
    """There is nothing to evaluate on."""
    with pytest.raises(InvalidField) as caught:
        _inline([])

    assert (caught.value.field, caught.value.reason) == ("dataset.inline", "EMPTY_DATASET")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("missing.jsonl", NotFound),
        ("folder", NotFound),
        ("fifo", NotFound),
        ("loop", NotFound),
        ("x" * 5000, NotFound),
        ("../outside.jsonl", PermissionDenied),
        ("folder/../../outside.jsonl", PermissionDenied),
        ("../missing.jsonl", PermissionDenied),
        ("link.jsonl", PermissionDenied),
        ("link/outside.jsonl", PermissionDenied),
        ("/etc/passwd", PermissionDenied),
        ("", InvalidField),
        ("a\0b", InvalidField),
    ],
)
def test_only_files_below_a_root_are_read(tmp_path: Path, root: Path, path: str, error: type[BridgeError]) -> None:
    """A path out of the roots is refused, however it leads out; what is no file is not there."""
    (tmp_path / "outside.jsonl").write_bytes(GOOD)
    (root / "folder").mkdir()
    (root / "link.jsonl").symlink_to(tmp_path / "outside.jsonl")
    (root / "link").symlink_to(tmp_path)
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "fifo")

    with pytest.raises(error) as caught:
        _load(root, path)

    assert caught.value.field == "dataset.jsonl_path"


def test_the_first_root_that_has_the_file_counts(tmp_path: Path, root: Path) -> None:
    """Roots are searched in order, and links that stay below a root are followed."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.jsonl").write_bytes(b'{"input": "second"}')
    (other / "b.jsonl").symlink_to("a.jsonl")

    loaded = load(Dataset(source=JsonlDataset("b.jsonl")), data_roots=[root, other], builtins={})

    assert tuple(loaded.samples) == (Sample(id="0", input="second"),)


def test_without_a_data_root_no_file_is_read() -> None:
    """The error names the option that gives one."""
    with pytest.raises(FailedPrecondition, match="--data-root"):
        load(Dataset(source=JsonlDataset("a.jsonl")), data_roots=[], builtins={})


def test_a_builtin_data_set_is_found_by_its_name() -> None:
    """The arithmetic problems come with their ids, the first of them with a limit."""
    loaded = load(Dataset(source=BuiltinDataset("arithmetic"), limit=3), data_roots=[], builtins=BUILTIN_DATASETS)

    assert len(loaded.samples) == 3
    assert all(isinstance(sample, Sample) and sample.id + "=" == sample.input for sample in loaded.samples)


def test_an_unknown_builtin_data_set_is_refused_with_those_that_are_known() -> None:
    """The error names the data sets that there are."""
    with pytest.raises(NotFound, match="'mmlu', known are: arithmetic"):
        load(Dataset(source=BuiltinDataset("mmlu")), data_roots=[], builtins=BUILTIN_DATASETS)


@rows(("limit", "count"), [(1, 1), (4, 4), (5, 5), (6, 5), (None, 5)])
def test_a_limit_takes_the_first(limit: int | None, count: int) -> None:
    """At most as many samples as the limit, in order."""
    loaded = _inline([Sample(input=str(index)) for index in range(5)], limit=limit)

    assert [sample.id for sample in loaded.samples] == [str(index) for index in range(count)]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_nothing_is_refused(limit: int) -> None:
    """An evaluation on no samples is a wrong question."""
    with pytest.raises(InvalidField, match="at least 1") as caught:
        _inline([Sample(input="a")], limit=limit)

    assert caught.value.field == "dataset.limit"


def test_a_shuffle_is_the_same_for_ever() -> None:
    """Seed and id alone decide the order; indices are given before, the limit is applied after."""
    samples = [Sample(input=str(index)) for index in range(6)]

    shuffled = [sample.id for sample in _inline(samples, shuffle_seed=7).samples]

    assert shuffled == ["3", "0", "1", "2", "5", "4"]
    assert [sample.id for sample in _inline(samples, shuffle_seed=7, limit=2).samples] == shuffled[:2]
    assert [sample.id for sample in _inline(samples, shuffle_seed=8).samples] != shuffled
    added = [sample.id for sample in _inline([*samples, Sample(id="new", input="a")], shuffle_seed=7).samples]
    assert [identity for identity in added if identity != "new"] == shuffled


def test_equal_samples_have_equal_fingerprints_however_they_came(root: Path, write: Write) -> None:
    """A file, a request and a built-in data set of the same samples are the same data set."""
    write(b'{"input": "2+2=", "target": "4", "metadata": {"b": "1", "a": "2"}}\n')
    sample = Sample(id="0", input="2+2=", targets=("4",), metadata={"a": "2", "b": "1"})
    builtin = load(Dataset(source=BuiltinDataset("x")), data_roots=[], builtins={"x": lambda: [sample]})

    assert _load(root).fingerprint == _inline([sample]).fingerprint == builtin.fingerprint


BASE = Sample(id="a", input="x", targets=("y",), choices=("z",), metadata={"k": "v"})


@rows(
    "change",
    [
        {"id": "b"},
        {"input": "y"},
        {"input": Conversation((ChatMessage("user", "x"),))},
        {"targets": ("y", "y")},
        {"targets": (), "choices": ("y", "z")},
        {"choices": ()},
        {"metadata": {"k": "w"}},
        {"metadata": {"k": "v", "l": ""}},
        {"choice_labels": ("A",)},
    ],
)
def test_any_difference_changes_the_fingerprint(change: dict[str, Any]) -> None:
    """A data set that changed has another fingerprint, whatever changed."""
    assert _inline([dataclasses.replace(BASE, **change)]).fingerprint != _inline([BASE]).fingerprint


def test_a_sample_without_labels_has_the_fingerprint_of_earlier_releases() -> None:
    """Labels are part of a fingerprint only if a sample has some."""
    samples = [
        Sample(id="a", input="q", targets=("A",), choices=("x", "y"), metadata={"k": "v"}),
        Sample(input=Conversation((ChatMessage("user", "b"),))),
    ]

    earlier = "abdaa0749d0c3ee643c044ce2b154210c04449580479573fc6dcb8f599772899"
    assert _inline(samples).fingerprint == earlier


def test_malformed_lines_are_part_of_the_fingerprint(root: Path, write: Write) -> None:
    """A line that is skipped is still a sample: one that was mended is a change."""
    write(GOOD + b"{\n")
    broken = _load(root, skip_malformed=True).fingerprint
    write(GOOD)

    assert _load(root).fingerprint != broken


def _datum(tokens: Any, **arrays: Any) -> Sample:
    return Sample(id="a", input=Datum(model_input=ModelInput.of(tokens), loss_fn_inputs=arrays))


def test_arrays_count_by_their_content() -> None:
    """Type, shape, every bit and the name of an array matter; the width of token ids does not."""
    weights = np.array([1.0, 0.0], np.float32)
    base = _inline([_datum(np.array([1, 2]), weights=weights)]).fingerprint

    assert _inline([_datum(np.array([1, 2], np.int32), weights=weights.copy())]).fingerprint == base
    others = [
        _datum([1, 3], weights=weights),
        _datum([1, 2], mask=weights),
        _datum([1, 2], weights=weights.astype(np.float64)),
        _datum([1, 2], weights=-weights),
        _datum([1, 2], weights=np.array([1.0, -0.0], np.float32)),
        _datum([1, 2], weights=weights.reshape(1, 2)),
        _datum([1, 2], weights=Tensor(dtype=Dtype.BF16, shape=(2,), data=b"\x80\x3f\x00\x00")),
    ]
    prints = {_inline([other]).fingerprint for other in others}
    assert len(prints) == len(others)
    assert base not in prints


def _text_of(content: bytes) -> str:
    """Without white space around it."""
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8"
    return content.decode(encoding, "replace").removeprefix("\ufeff").strip(" \t\r\n\v\f")


@given(st.binary(max_size=200) | st.text(max_size=80).map(lambda text: json.dumps({"input": text}).encode()))
def test_no_file_makes_it_fail_otherwise(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Whatever a file holds, it loads, or is refused as empty or as a file: skipped lines raise nothing else."""
    # One that is compressed by Zstandard needs a library that the core does without.
    assume(not content.startswith(b"(\xb5/\xfd"))
    root = tmp_path_factory.getbasetemp()
    (root / "any.jsonl").write_bytes(content)

    try:
        count = len(_load(root, "any.jsonl", skip_malformed=True).samples)
    except InvalidField as error:
        count, reason = 0, error.reason
    else:
        reason = ""

    assert (count > 0) is (reason == "")
    if reason == "MALFORMED_LINE":  # an array without an end
        assert _text_of(content).startswith("[")
    elif reason == "MALFORMED_FILE":
        assert (
            content.startswith(
                (b"\x1f\x8b", b"(\xb5/\xfd", b"\xff\xfe", b"\xfe\xff", b"BZh", b"PK", b"PAR1", b"\xfd7z")
            )
            or b"\0" in content[:4]
        )
    elif not _text_of(content).lstrip("\ufeff").startswith("["):
        assert bool(reason) is not bool(_text_of(content))


def test_what_an_error_shows_of_a_line_is_no_part_of_the_fingerprint(root: Path, write: Write) -> None:
    """A data set with lines that are skipped keeps the fingerprint that it had before errors showed the lines."""
    write(GOOD + b"[1]\n")
    loaded = _load(root, skip_malformed=True)
    parts = (["sample", "0", ["text", "2+2="], ["4"], [], []], ["malformed", "1", "line 2 is a list, not an object"])

    assert isinstance(loaded.samples[1], MalformedSample)
    assert loaded.samples[1].problem.message == "line 2 is a list, not an object: it reads '[1]'"
    assert loaded.fingerprint == hashlib.sha256(b"".join(map(pack, parts))).hexdigest()


def _written(path: Path, how: str) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    match how:
        case "truncated":
            os.truncate(path, sum(map(len, lines[: len(lines) // 2])))
        case "cut in a line":
            os.truncate(path, path.stat().st_size // 2 - 3)
        case "appended to":
            with path.open("ab") as file:
                file.write(GOOD)
        case "replaced":
            other = path.with_name("other")
            other.write_bytes(b"".join(lines))
            os.replace(other, path)
        case _:
            path.unlink()


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
@pytest.mark.parametrize("how", ["truncated", "cut in a line", "appended to", "replaced", "removed"])
def test_a_file_that_is_written_while_it_is_read_is_refused(root: Path, how: str, kind: str) -> None:
    """What was read are samples of no file: the error is retryable, and no fault of the content."""
    path = root / f"set.{kind}"
    line = GOOD if kind == "jsonl" else b"2+2=,4\n"
    path.write_bytes((b"" if kind == "jsonl" else b"input,target\n") + line * 20_000)
    calls = 0

    def go_on() -> None:
        nonlocal calls
        calls += 1
        if calls == 100:
            _written(path, how)

    file = JsonlDataset("set.jsonl") if kind == "jsonl" else FileDataset(path="set.csv", format=FileFormat.CSV)
    with pytest.raises(Unavailable, match="was written while it was read") as caught:
        load(Dataset(source=file), data_roots=[root], builtins={}, go_on=go_on)

    assert (caught.value.reason, caught.value.retryable) == ("DATASET_CHANGED_WHILE_READ", True)


def test_a_file_that_grows_is_not_read_to_its_end(root: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is as fast as the reader would keep it for ever."""
    monkeypatch.setattr(datasets, "CHANGE_CHECK_SECONDS", 0.0)
    path, calls = write(GOOD * 100), 0

    def go_on() -> None:
        nonlocal calls
        calls += 1
        with path.open("ab") as file:
            file.write(GOOD * 2)

    with pytest.raises(Unavailable, match="was written while it was read"):
        load(Dataset(source=JsonlDataset(path.name)), data_roots=[root], builtins={}, go_on=go_on)

    assert calls == 1
