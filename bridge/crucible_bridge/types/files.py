"""Data sets that are files on the worker's disk."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Mapping

from crucible_bridge.errors import InvalidField
from crucible_bridge.types.columns import check_columns
from crucible_bridge.types.spelling import quoted, read_spelling, write_spelling

__all__ = ["FileDataset", "FileFormat", "JsonlDataset", "format_file", "parse_file"]

_QUESTION_MARK = re.compile("%3f", re.IGNORECASE)


class FileFormat(enum.StrEnum):
    """The format of a file of rows."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


@dataclasses.dataclass(frozen=True, slots=True)
class JsonlDataset:
    """JSON lines on the worker's disk, read like a FileDataset of format JSONL without columns.

    As one text: "jsonl:PATH".
    """

    path: str
    """Relative to one of the worker's data roots."""


@dataclasses.dataclass(frozen=True, slots=True)
class FileDataset:
    """A file of rows on the worker's disk.

    As one text: "csv:PATH", "parquet:PATH" or "jsonl:PATH", then "?" and columns, such as
    "?input=question&target=answer". A "?" in the path is written %3F.
    """

    path: str
    """Relative to one of the worker's data roots."""
    format: FileFormat = dataclasses.field(kw_only=True)
    """Its format: one object per line, comma-separated values with a header, or Apache Parquet."""
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict, kw_only=True)
    """Which column is what: keys are "input", "target" or "targets" or "index", "choices", "labels", "id", "tools"
    and "metadata.NAME"; values are columns, a field of one after a dot ("choices.text"). If empty, the rows have one of
    the shapes that `crucible_bridge.types.rows` knows. Every other column becomes metadata."""

    def checked(self, field: str) -> FileDataset | JsonlDataset:
        """Itself, if it is valid; if it only has a path to JSON lines, the JsonlDataset that means the same.

        Raises:
            InvalidField: names the invalid field, below `field`.
        """
        if not self.path:
            raise InvalidField(f"{field}.path", "is empty")
        if not isinstance(self.format, FileFormat):
            raise InvalidField(f"{field}.format", f"is {self.format!r}, not one of {', '.join(FileFormat)}")
        check_columns(self.columns, field)
        return self if self.columns or self.format is not FileFormat.JSONL else JsonlDataset(self.path)


def parse_file(file_format: FileFormat, text: str) -> FileDataset | JsonlDataset:
    """Read the text after "csv:".

    Raises:
        InvalidField: a part of it is invalid.
    """
    path, options = read_spelling(text, "dataset")
    if "?" not in text:
        path = _QUESTION_MARK.sub("?", text)
    return FileDataset(path, format=file_format, columns=options).checked("dataset")


def format_file(source: FileDataset | JsonlDataset) -> str:
    """Write a file as one text: "csv:PATH", with its columns."""
    file_format = FileFormat.JSONL if isinstance(source, JsonlDataset) else source.format
    columns = {} if isinstance(source, JsonlDataset) else source.columns
    if columns:
        return f"{file_format}:{write_spelling(source.path, columns)}"
    if _QUESTION_MARK.search(source.path):
        return f"{file_format}:{quoted(source.path)}?"
    return f"{file_format}:{source.path.replace('?', '%3F')}"
