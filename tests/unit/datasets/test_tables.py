"""CSV and Parquet files, through the child process that reads them."""

import gzip
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from crucible_bridge.errors import BridgeError, Cancelled, FailedPrecondition, InvalidField, Unavailable
from crucible_bridge.types import ChatMessage, Conversation, Dataset, Datum, FileDataset, FileFormat, Sample
from crucible_worker.datasets import row_process
from crucible_worker.datasets.loading import LoadedDataset, MalformedSample, load
from crucible_worker.datasets.row_process import Fault
from crucible_worker.datasets.tables import reader
from tests import needs
from tests.scripted_readers import scripted_reader
from tests.tables import rows

CSV, PARQUET = FileFormat.CSV, FileFormat.PARQUET
CHAT = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]


def read(
    root: Path, name: str, file_format: FileFormat, *, go_on: Callable[[], None] = lambda: None, **options: Any
) -> LoadedDataset:
    """Load a file, by a child process."""
    source = FileDataset(name, format=file_format, columns=options.pop("columns", {}))
    return load(Dataset(source=source, **options), data_roots=[root], builtins={}, go_on=go_on)


def records(content: bytes, folder: Path, columns: dict[str, str] | None = None) -> list[Any]:
    """The rows of a CSV file, without a child."""
    path = folder / "any.csv"
    path.write_bytes(content)
    return list(reader.csv_rows(str(path), columns or {}))


@pytest.fixture(autouse=True)
def fields_as_they_were() -> Any:
    """The module's bound on fields, which the child sets for itself."""
    before = reader.csv.field_size_limit()
    yield
    reader.csv.field_size_limit(before)


def test_a_file_of_comma_separated_values_is_read(tmp_path: Path) -> None:
    """Cells may hold commas, quotes and lines; the first row names the columns, of which others become metadata."""
    content = '\ufeffquestion,answer,level\r\n"a, ""b""\nc",#### 4,easy\r\n\r\nd,5,\r\n'
    (tmp_path / "q.csv").write_bytes(content.encode())

    samples = read(tmp_path, "q.csv", CSV).samples

    assert list(samples) == [
        Sample(id="0", input='a, "b"\nc', targets=("4",), metadata={"answer": "#### 4", "level": "easy"}),
        Sample(id="1", input="d", targets=("5",), metadata={"level": ""}),
    ]


def test_equal_rows_are_equal_samples_in_every_format(tmp_path: Path) -> None:
    """JSON lines, CSV and Parquet of one table have one fingerprint."""
    pa = pytest.importorskip("pyarrow", reason=needs.MISSING["pyarrow"])
    pq = pytest.importorskip("pyarrow.parquet", reason=needs.MISSING["pyarrow"])
    table = [{"question": f"{n}+{n}=", "answer": str(2 * n), "level": "é"} for n in range(200)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))
    lines = ["question,answer,level", *(",".join(row.values()) for row in table)]
    (tmp_path / "q.csv").write_text("\n".join(lines), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "q.parquet")

    prints = [read(tmp_path, f"q.{kind}", kind).fingerprint for kind in FileFormat]

    assert len(set(prints)) == 1


def test_a_parquet_file_is_read_with_lists_classes_and_dates(tmp_path: Path) -> None:
    """A class is its name where the file says so, NaN and null are no values, bytes are left out."""
    pa = pytest.importorskip("pyarrow", reason=needs.MISSING["pyarrow"])
    pq = pytest.importorskip("pyarrow.parquet", reason=needs.MISSING["pyarrow"])
    import datetime

    table = pa.table(
        {
            "messages": [CHAT, CHAT[:1]],
            "kind": [1, -1],
            "when": [datetime.date(2026, 1, 2), None],
            "share": [float("nan"), 0.5],
            "shares": [[float("nan"), 0.5], None],
            "raw": [b"x", b"y"],
            "raw_class": pa.array([b"x", b"y"]).dictionary_encode(),
        }
    )
    features = {"info": {"features": {"kind": {"names": ["easy", "hard"], "_type": "ClassLabel"}}}}
    table = table.replace_schema_metadata({"huggingface": json.dumps(features)})
    pq.write_table(table, tmp_path / "q.parquet")

    first, second = read(tmp_path, "q.parquet", PARQUET).samples

    assert isinstance(first, Sample)
    assert first.input == Conversation((ChatMessage("user", "2+2?"), ChatMessage("assistant", "4")))
    assert first.metadata == {"kind": "hard", "when": "2026-01-02", "shares": "[null, 0.5]"}
    assert isinstance(second, Sample)
    assert second.metadata == {"share": "0.5"}
    with pytest.raises(InvalidField, match="bytes, which has no text form"):
        read(tmp_path, "q.parquet", PARQUET, columns={"input": "raw"})


@rows(
    ("content", "found"),
    [
        (b"input,target\na,b\n", [{"input": "a", "target": "b"}]),
        (b"input,target,id\na,,\n", [{"input": "a", "target": None, "id": None}]),
        (b'input\n""\n', [{"input": ""}]),
        (b",input\n0,a\n", [{"input": "a"}]),
        (b'input,choices\na,"[""x"", 1]"\n', [{"input": "a", "choices": ["x", 1]}]),
        (b"input,choices\na,['x']\n", [{"input": "a", "choices": "['x']"}]),
        (b'input,target\na,"[1, 2]"\n', [{"input": "a", "target": "[1, 2]"}]),
        (b"input,target\na\nb,c,d\ne,f", ["has 1 fields", "has 3 fields", {"input": "e", "target": "f"}]),
        (b"input\n\xff\na\n", ["is not UTF-8, at byte 1 of line 2", {"input": "a"}]),
        (b'input\n"a" b\nc\n', ["is not CSV", {"input": "c"}]),
        (
            b'input,metadata\na,"{""k"": 1, ""k"": 2}"\nb,"{""k"": 1}"\n',
            ["has the key 'k' twice in a cell of the column 'metadata'", {"input": "b", "metadata": {"k": 1}}],
        ),
        (b'input\na "b" c\n', [{"input": 'a "b" c'}]),
        (b" input , target\na, b\n", [{"input": "a", "target": " b"}]),
        (b"input;target\na, b;c\n", [{"input": "a, b", "target": "c"}]),
        (b"input\ttarget\na; b\tc\n", [{"input": "a; b", "target": "c"}]),
        (b'input,"a; b"\nx,y\n', [{"input": "x", "a; b": "y"}]),
        (b"input,a;b\nx,y\n", [{"input": "x", "a;b": "y"}]),
        (b"input,target\na,007\n  \n\nb,42.0\n", [{"input": "a", "target": "007"}, {"input": "b", "target": "42.0"}]),
        (b"input,target\ra,b\rc,d", [{"input": "a", "target": "b"}, {"input": "c", "target": "d"}]),
        ("\ufeffinput\ttarget\r\né\tb\r\n".encode("utf-16-le"), [{"input": "é", "target": "b"}]),
        (gzip.compress(b"input,target\na,b\n"), [{"input": "a", "target": "b"}]),
    ],
)
def test_rows_of_csv(tmp_path_factory: pytest.TempPathFactory, content: bytes, found: list[Any]) -> None:
    """Cells are text, those of lists JSON; an empty one is no value, unless it is the input; a fault is of its row."""
    read_ = records(content, tmp_path_factory.mktemp("csv"))

    assert len(read_) == len(found)
    for row, expected in zip(read_, found):
        if isinstance(expected, str):
            assert isinstance(row, Fault)
            assert row.startswith(expected)
        else:
            assert row == expected


def test_columns_that_are_asked_for_may_hold_lists(tmp_path: Path) -> None:
    """A column that is to be the choices holds JSON as one that is called so does."""
    found = records(
        b'q,options,right\na,"[""x""]",\n', tmp_path, {"input": "q", "choices": "options", "target": "right"}
    )

    assert found == [{"q": "a", "options": ["x"], "right": None}]


@pytest.mark.long
@rows(
    ("content", "reason", "says"),
    [
        (b"", "EMPTY_DATASET", "holds no sample"),
        (b"input,input\na,b\n", "MALFORMED_FILE", "the column 'input' twice"),
        (b"\xff\n", "MALFORMED_FILE", "has a first row that is not UTF-8"),
        (b'input\n"a\nb\nc', "MALFORMED_LINE", "row 1 is not CSV: unexpected end of data"),
        (
            b"input,output,targets\na,b,c\n",
            "MALFORMED_LINE",
            'row 1 has both "output" and "targets": it reads \'{"input"',
        ),
        (b"inptu;target\na;b\n", "MALFORMED_LINE", 'row 1 has no "input": found: inptu, target; known: '),
        (b"input;target\tx\na;b\n", "MALFORMED_FILE", "has semicolons and tabs in its first row"),
        (b"input, input \na,b\n", "MALFORMED_FILE", "the column 'input' twice"),
        (b'input,choices\na,"[""\\ud800""]"\n', "MALFORMED_LINE", "row 1 holds half a surrogate pair"),
        (b"question,answer,prompt,completion\na,b,c,d\n", "AMBIGUOUS_COLUMNS", "csv:PATH?input=question&target=answer"),
    ],
)
def test_a_csv_file_that_cannot_be_read_says_why(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, reason: str, says: str
) -> None:
    """The error shows the row, what was found and what is known."""
    root = tmp_path_factory.mktemp("csv")
    (root / "q.csv").write_bytes(content)

    with pytest.raises(InvalidField) as caught:
        read(root, "q.csv", CSV)

    assert (caught.value.reason, caught.value.field) == (reason, "dataset.file")
    assert says in caught.value.message


@pytest.mark.parametrize(("beyond", "fits"), [(0, True), (1, False)])
def test_rows_of_csv_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beyond: int, fits: bool) -> None:
    """A row may have as many bytes as a line of JSON; a quote that is left open ends there, not with the file."""
    monkeypatch.setattr(reader, "MAX_LINE_BYTES", 100)
    content = b'input\nx\n"' + b"a\n" * 40 + b"b" * (17 + beyond) + b'"\n'

    if fits:
        assert len(records(content, tmp_path)) == 2
    else:
        with pytest.raises(InvalidField, match="more than 100 bytes, row 2: is a quote left open"):
            records(content, tmp_path)


@pytest.mark.parametrize(("count", "fits"), [(10, True), (11, False)])
def test_columns_of_csv_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, fits: bool) -> None:
    """A file of too many columns is refused by its first row."""
    monkeypatch.setattr(reader, "MAX_COLUMNS", 10)
    content = ",".join(f"c{number}" for number in range(count)).encode()

    if fits:
        assert records(content, tmp_path) == []
    else:
        with pytest.raises(InvalidField, match="has 11 columns, at most 10"):
            records(content, tmp_path)


def test_an_endless_file_is_refused_at_its_bound(tmp_path: Path) -> None:
    """A sparse file of 64 GiB without a line's end costs one read."""
    with (tmp_path / "q.csv").open("wb") as file:
        file.write(b"input\n")
        file.truncate(64 * 1024**3)

    with pytest.raises(InvalidField, match="more than 16,777,216 bytes, row 1"):
        read(tmp_path, "q.csv", CSV, skip_malformed=True)


def test_a_malformed_row_may_be_skipped(tmp_path: Path) -> None:
    """It stands for an ERROR in its place, with what was wrong."""
    (tmp_path / "q.csv").write_bytes(b"input,target\na,b\nc\nd,e\n")

    first, second, third = read(tmp_path, "q.csv", CSV, skip_malformed=True).samples

    assert isinstance(first, Sample)
    assert isinstance(second, MalformedSample)
    assert isinstance(third, Sample)
    assert (second.id, third.id) == ("1", "2")
    assert second.problem.message == "row 2 has 1 fields, and the first row names 2 columns"


@given(st.binary(max_size=120) | st.text('",\n\r a{[', max_size=60).map(lambda text: f"input,x\n{text}".encode()))
@settings(max_examples=200)
def test_no_file_of_csv_makes_it_fail_otherwise(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Whatever a file holds, it has rows, faults, or is refused by its name."""
    # One that is compressed by Zstandard needs a library that the core does without.
    assume(not content.startswith(b"(\xb5/\xfd"))
    try:
        found = records(content, tmp_path_factory.getbasetemp())
    except InvalidField as error:
        assert error.field == "dataset.file"  # noqa: PT017 - most files are none
    else:
        assert all(isinstance(row, dict | Fault) for row in found)


@rows("content", [b"", b"PAR1", b"PAR1" + b"\0" * 100 + b"PAR1", b"input,target\na,b\n"])
def test_what_is_no_parquet_is_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """The error is the request's."""
    pytest.importorskip("pyarrow", reason=needs.MISSING["pyarrow"])
    root = tmp_path_factory.mktemp("parquet")
    (root / "q.parquet").write_bytes(content)

    with pytest.raises(InvalidField, match="is no readable Parquet file") as caught:
        read(root, "q.parquet", PARQUET)

    assert caught.value.reason == "MALFORMED_FILE"


@rows(
    ("kind", "values", "says"),
    [
        ("string", b"\0\0\0\0\1\0\0\0\xff", "can't decode byte 0xff"),
        ("timestamp[s]", (10**12).to_bytes(8, "little"), "out of range"),
    ],
)
def test_values_of_parquet_that_python_lacks_are_refused(
    tmp_path_factory: pytest.TempPathFactory, kind: str, values: bytes, says: str
) -> None:
    """Text that is not UTF-8 and dates that are too far are faults of the file, and no end of its reader."""
    pa = pytest.importorskip("pyarrow", reason=needs.MISSING["pyarrow"])
    pq = pytest.importorskip("pyarrow.parquet", reason=needs.MISSING["pyarrow"])
    root = tmp_path_factory.mktemp("parquet")
    parts = (values[:8], values[8:]) if kind == "string" else (values,)
    column = pa.Array.from_buffers(pa.type_for_alias(kind), 1, [None, *map(pa.py_buffer, parts)])
    pq.write_table(pa.table({"input": ["a"], "odd": column}), root / "q.parquet")

    with pytest.raises(InvalidField, match=says) as caught:
        read(root, "q.parquet", PARQUET)

    assert caught.value.reason == "MALFORMED_FILE"


@pytest.mark.long
def test_a_parquet_file_that_unpacks_to_more_than_memory_holds_is_refused(tmp_path: Path) -> None:
    """A small file of one value, many times over, costs the child its bound, and the worker nothing."""
    pa = pytest.importorskip("pyarrow", reason=needs.MISSING["pyarrow"])
    pq = pytest.importorskip("pyarrow.parquet", reason=needs.MISSING["pyarrow"])
    value = "x" * (64 * 1024 * 1024)
    array = pa.DictionaryArray.from_arrays(pa.array([0] * 128, pa.int32()), pa.array([value]))
    pq.write_table(pa.table({"input": array}), tmp_path / "q.parquet", compression="zstd")
    assert (tmp_path / "q.parquet").stat().st_size < 1024 * 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(BridgeError) as caught:
        read(tmp_path, "q.parquet", PARQUET)

    assert caught.value.reason in ("MALFORMED_FILE", "MALFORMED_LINE")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 * 1024


def _scripted(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    scripted_reader(monkeypatch, folder, script)
    (folder / "q.csv").write_bytes(b"input\na\n")


def test_a_reader_that_dies_is_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows without their end are not taken for all rows."""
    _scripted(monkeypatch, tmp_path, 'say(b\'r{"input": "a"}\')\nos.kill(os.getpid(), 9)')

    with pytest.raises(Unavailable) as caught:
        read(tmp_path, "q.csv", CSV)

    assert (caught.value.reason, caught.value.retryable) == ("FILE_READER_DIED", True)


def test_a_reader_that_nobody_waits_for_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent child is ended as soon as its rows are not wanted any more, and has no keys of the worker."""
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    pid = tmp_path / "pid"
    _scripted(
        monkeypatch,
        tmp_path,
        "text = str(os.getpid()) + ' ' + os.environ.get('HF_TOKEN', 'none')\n"
        f"open({str(pid)!r} + '.new', 'w').write(text)\n"
        f"os.rename({str(pid)!r} + '.new', {str(pid)!r})\nimport signal\nsignal.pause()",
    )

    def go_on() -> None:
        if pid.exists():
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        read(tmp_path, "q.csv", CSV, go_on=go_on)

    number, token = pid.read_text().split()
    assert token == "none"
    assert not Path(f"/proc/{number}").exists()


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parquet needs it, CSV does not; nothing is started."""
    monkeypatch.setattr(row_process, "_PARQUET_LIBRARY", "a_module_that_nobody_has")
    (tmp_path / "q.parquet").write_bytes(b"PAR1")

    with pytest.raises(FailedPrecondition, match=r"crucible-bridge\[datasets\]") as caught:
        read(tmp_path, "q.parquet", PARQUET)

    assert caught.value.reason == "EXTRA_NOT_INSTALLED"


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says of it is told, and its place is not."""
    (tmp_path / "q.csv").write_bytes(b"input\na\n")
    request = {"path": str(tmp_path / "gone.csv"), "format": "csv", "columns": {}}

    with pytest.raises(BridgeError) as caught:
        list(reader.rows(request))

    assert (caught.value.reason, caught.value.field) == ("UNREADABLE", "dataset.file")
    assert str(tmp_path) not in str(caught.value)
    assert os.listdir(tmp_path) == ["q.csv"]


def test_whole_floats_and_missing_values_are_the_same_in_every_format(tmp_path: Path) -> None:
    """42.0 of a column of floats is 42, and NaN in a column that nothing reads is no value."""
    pa = pytest.importorskip("pyarrow", reason=needs.MISSING["pyarrow"])
    pq = pytest.importorskip("pyarrow.parquet", reason=needs.MISSING["pyarrow"])
    answers, nan = [42.0, 1e5, 0.1, -0.0, 1e22], float("nan")
    table = [{"question": "q", "answer": answer, "id": float(n), "note": nan} for n, answer in enumerate(answers)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "q.parquet")
    inline = load(Dataset.of(table), data_roots=[], builtins={})

    found = [read(tmp_path, f"q.{kind}", kind) for kind in (FileFormat.JSONL, PARQUET)]

    assert [sample.targets for sample in inline.samples if isinstance(sample, Sample)] == [
        ("42",),
        ("100000",),
        ("0.1",),
        ("0",),
        ("1e+22",),
    ]
    assert {loaded.fingerprint for loaded in found} == {inline.fingerprint}
    assert [sample.id for sample in inline.samples] == ["0", "1", "2", "3", "4"]


def test_nan_as_an_answer_is_named_with_its_row(tmp_path: Path) -> None:
    """Where a value is needed, NaN is none."""
    pa = pytest.importorskip("pyarrow", reason=needs.MISSING["pyarrow"])
    pq = pytest.importorskip("pyarrow.parquet", reason=needs.MISSING["pyarrow"])
    pq.write_table(pa.table({"question": ["a", "b"], "answer": [1.0, float("nan")]}), tmp_path / "q.parquet")

    with pytest.raises(InvalidField, match='row 2 has "answer" that holds null or NaN, not text'):
        read(tmp_path, "q.parquet", PARQUET)


@pytest.mark.parametrize("name", ["q.tsv", "q.tsv.gz", "q.csv"])
def test_tabs_separate_the_columns(tmp_path: Path, name: str) -> None:
    """In a file that is called .tsv, and in one whose first row has them."""
    content = b"input\ttarget\na, b\tc; d\n" if name == "q.csv" else b"input\na, b\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)

    (sample,) = read(tmp_path, name, CSV).samples

    assert sample == Sample(id="0", input="a, b", targets=("c; d",) if name == "q.csv" else ())


def test_a_class_of_a_parquet_file_is_its_number_in_a_column_of_indices(tmp_path: Path) -> None:
    """The index is meant, whatever the class is called."""
    pa = pytest.importorskip("pyarrow", reason=needs.MISSING["pyarrow"])
    pq = pytest.importorskip("pyarrow.parquet", reason=needs.MISSING["pyarrow"])
    table = pa.table({"q": ["a"], "c": [["B", "A", "O"]], "answer": [0]})
    features = {"info": {"features": {"answer": {"names": ["A", "B", "C"], "_type": "ClassLabel"}}}}
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(features)}), tmp_path / "q.parquet")

    (sample,) = read(tmp_path, "q.parquet", PARQUET, columns={"input": "q", "choices": "c", "index": "answer"}).samples

    assert isinstance(sample, Sample)
    assert (sample.targets, sample.choice_labels) == (("A",), ("A", "B", "C"))


def test_datums_of_every_source_are_one_data_set(tmp_path: Path) -> None:
    """JSON lines and columns of lists have the bits, the dtypes and so the fingerprint of the Datums in a request."""
    pa = pytest.importorskip("pyarrow", reason=needs.MISSING["pyarrow"])
    pq = pytest.importorskip("pyarrow.parquet", reason=needs.MISSING["pyarrow"])
    weights = [np.array([0.0, 0.1, 1 / 3], np.float32), np.array([1e-40, 1.0], np.float32)]
    data = [
        Datum(
            model_input=list(range(len(each))),
            loss_fn_inputs={"target_tokens": np.arange(1, len(each) + 1), "weights": each},
        )
        for each in weights
    ]
    inline = load(Dataset.of(data), data_roots=[], builtins={})
    lists = [(datum.model_input.tokens().tolist(), np.asarray(datum.loss_fn_inputs["target_tokens"])) for datum in data]
    lines = [
        {
            "model_input": {"chunks": [{"tokens": tokens, "type": "encoded_text"}]},
            "loss_fn_inputs": {
                "target_tokens": {"data": targets.tolist(), "dtype": "int64", "shape": [len(tokens)]},
                "weights": {"data": each.tolist(), "dtype": "float32", "shape": [len(tokens)]},
            },
        }
        for (tokens, targets), each in zip(lists, weights)
    ]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    flat = {
        "tokens": pa.array([tokens for tokens, _ in lists], pa.list_(pa.int32())),
        "target_tokens": pa.array([targets.tolist() for _, targets in lists], pa.large_list(pa.int64())),
        "weights": pa.array([each.tolist() for each in weights], pa.list_(pa.float32())),
    }
    pq.write_table(pa.table(flat), tmp_path / "flat.parquet")
    nested = pa.StructArray.from_arrays([flat["target_tokens"], flat["weights"]], ["target_tokens", "weights"])
    pq.write_table(pa.table({"model_input": flat["tokens"], "loss_fn_inputs": nested}), tmp_path / "nested.parquet")
    pq.write_table(pa.Table.from_pylist(lines), tmp_path / "tinker.parquet")

    files = [("q.jsonl", FileFormat.JSONL), *((f"{name}.parquet", PARQUET) for name in ("flat", "nested", "tinker"))]
    prints = {name: read(tmp_path, name, kind).fingerprint for name, kind in files}

    assert prints == dict.fromkeys(prints, inline.fingerprint)
    first, _ = read(tmp_path, "q.jsonl", FileFormat.JSONL).samples
    assert isinstance(first, Sample)
    assert isinstance(first.input, Datum)
    assert np.asarray(first.input.loss_fn_inputs["weights"]).tobytes() == weights[0].tobytes()
