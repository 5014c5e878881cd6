"""Data sets of files as one text: what is written is read again, and what names none is refused."""

import pytest
from hypothesis import given

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Dataset, FileDataset, FileFormat, JsonlDataset, format_file
from tests.tables import rows
from tests.unit.bridge import strategies as some

CSV, JSONL, PARQUET = FileFormat.CSV, FileFormat.JSONL, FileFormat.PARQUET


@rows(
    ("text", "source"),
    [
        ("jsonl:a/b.jsonl", JsonlDataset("a/b.jsonl")),
        ("jsonl:100%25 & =.jsonl", JsonlDataset("100%25 & =.jsonl")),
        ("jsonl:what%3F.jsonl", JsonlDataset("what?.jsonl")),
        ("jsonl:%253F.jsonl?", JsonlDataset("%3F.jsonl")),
        (
            "jsonl:q.jsonl?input=question&target=answer",
            FileDataset("q.jsonl", format=JSONL, columns={"input": "question", "target": "answer"}),
        ),
        ("jsonl:q%3F.jsonl?input=a%26b", FileDataset("q?.jsonl", format=JSONL, columns={"input": "a&b"})),
        ("csv:q.csv", FileDataset("q.csv", format=CSV)),
        ("csv:q%3F.csv", FileDataset("q?.csv", format=CSV)),
        ("parquet:q.parquet?input=a.b", FileDataset("q.parquet", format=PARQUET, columns={"input": "a.b"})),
    ],
)
def test_a_file_is_one_text(text, source):
    """Reading and writing are each other's inverse; a "?" in a file's name is written %3F."""
    assert Dataset.of(text).source == source
    assert format_file(source) == text


@given(some.file_datasets)
def test_every_file_is_one_text(source):
    """Whatever its names hold, what is written is read again."""
    assert Dataset.of(format_file(source)).source == source


@given(some.name)
def test_every_file_of_json_lines_is_one_text(path):
    """A file without columns keeps the type, and so the fingerprint, that it has always had."""
    assert Dataset.of(format_file(JsonlDataset(path))).source == JsonlDataset(path)


@given(some.text)
def test_no_text_makes_it_fail_otherwise(text):
    """Whatever stands behind a scheme is a data set or an error of the request."""
    for scheme in FileFormat:
        try:
            source = Dataset.of(f"{scheme}:{text}").source
        except InvalidField as error:
            assert error.field.startswith("dataset")  # noqa: PT017 - most texts are none
        else:
            assert isinstance(source, FileDataset | JsonlDataset)
            assert Dataset.of(format_file(source)).source == source


@rows(
    ("text", "field"),
    [
        ("csv:", "dataset"),
        ("csv:?input=a", "dataset.path"),
        ("csv:a?question=b", "dataset.columns"),
        ("csv:a?input=b&input=c", "dataset"),
        ("csv:a?input", "dataset"),
        ("csv:a?target=b&targets=c", "dataset.columns"),
        ("csv:a?metadata.=b", "dataset.columns"),
        ("csv:%ff?input=b", "dataset"),
        ("xlsx:a", "dataset"),
    ],
)
def test_what_cannot_be_a_file_is_refused(text, field):
    """The error names the part."""
    with pytest.raises(InvalidField) as caught:
        Dataset.of(text)

    assert caught.value.field == field
