"""The child process that reads a hub's data set: `python -m crucible_worker.datasets.hub.reader`.

Only it imports `datasets`.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crucible_bridge.errors import BridgeError, FailedPrecondition, InvalidField, NotFound, clipped
from crucible_bridge.reasons import Reason
from crucible_bridge.types.rows import LATER_SHAPES, SHAPES, TEMPLATE_COLUMNS, TOOL_COLUMNS, template_column
from crucible_worker.datasets.row_process import HUB_FIELD, answer

__all__ = [
    "COLUMNS_FIELD",
    "ColumnPath",
    "find_columns",
    "main",
    "read_with",
    "record_of",
    "row_of",
    "rows",
    "whole_rows",
]

# From a row of any columns to a record of the keys that JSON lines have.

COLUMNS_FIELD = "dataset.hub.columns"
"""Where a request names columns."""

_KEYS = ("input", "target", "targets", "choices", "id")
_OF_MESSAGES = (*TOOL_COLUMNS, *TEMPLATE_COLUMNS)
_METADATA = "metadata."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPath:
    """The path in a row to a value of a record."""

    key: str
    """Key in the record: "input", "metadata.level"."""
    path: tuple[str, ...]
    """The column, and the fields within it."""
    labels: Sequence[str] | None
    """Names of the classes, if its numbers are class labels."""


def find_columns(columns: Mapping[str, str], features: Mapping[str, Any]) -> list[ColumnPath]:
    """Find the columns of a request in a data set.

    Args:
        columns: by key; if empty, the columns with the names of the keys.
        features: types of the columns by name, as the library reports them: mappings for columns with fields.

    Raises:
        InvalidField: names the missing column and the existing ones, or says that no column is the input.
    """
    wanted = columns or {key: key for key in _KEYS if key in features}
    there = ", ".join(map(str, features))
    if "input" not in wanted:
        raise InvalidField(COLUMNS_FIELD, f"names no column for the input; the columns are {there}")
    if "target" in wanted and "targets" in wanted:
        raise InvalidField(
            COLUMNS_FIELD, f"does not say whether to use the column target or targets; there are {there}"
        )
    found = [_find(key, column, features) for key, column in wanted.items()]
    choices = next((column.path for column in found if column.key == "choices"), ("",))
    if "labels" not in wanted and choices[1:] == ("text",) and "label" in features[choices[0]]:
        # With the labels next to them, as `RowReader` reads them.
        found = [dataclasses.replace(each, path=choices[:1]) if each.key == "choices" else each for each in found]
    return found


def read_with(columns: Sequence[ColumnPath], features: Mapping[str, Any]) -> list[str]:
    """The columns to read: those that were found, and those without which their messages would be incomplete."""
    unnamed = [name for name in _OF_MESSAGES if name in features and _is_plain(features[name])]
    return list(dict.fromkeys([*(column.path[0] for column in columns), *unnamed]))


def whole_rows(features: Mapping[str, Any]) -> list[ColumnPath] | None:
    """Every column that has a text form, if the rows have a shape that is recognized without a mapping.

    Rows with an input are not among them: their columns are used only if they have the names of the keys.

    Args:
        features: as `find_columns` takes them.
    """
    plain = {name: feature for name, feature in features.items() if _is_plain(feature)}
    if "input" in features or not any(shape.fits(plain) for shape in (*SHAPES, *LATER_SHAPES)):
        return None
    return [_find(name, name, plain) for name in plain]


def _is_plain(feature: Any) -> bool:
    """Whether values of a type have a text form: images, sounds and bytes have none."""
    if isinstance(feature, Mapping):
        return all(map(_is_plain, feature.values()))
    if hasattr(feature, "feature"):
        return _is_plain(feature.feature)
    return hasattr(feature, "names") or (type(feature).__name__ == "Value" and "binary" not in feature.dtype)


def row_of(row: Mapping[str, Any], columns: Sequence[ColumnPath]) -> dict[str, Any]:
    """A row of `whole_rows`, with the names of classes."""
    return {column.key: _named(row[column.key], column.labels) for column in columns}


def _find(key: str, column: str, features: Mapping[str, Any]) -> ColumnPath:
    # The name of a column may contain a dot.
    parts = (column,) if column in features else tuple(column.split("."))
    found: Any = features
    for part in parts:
        if not isinstance(found, Mapping) or part not in found:
            there = ", ".join(_names(features))
            problem = f"is {clipped(column)}, which is no column; there are {there}"
            raise InvalidField(f'{COLUMNS_FIELD}["{key}"]', problem, reason=Reason.NO_SUCH_COLUMN)
        found = found[part]
    # For a list, the type of its items names the classes.
    found = getattr(found, "feature", found)
    return ColumnPath(key=key, path=parts, labels=getattr(found, "names", None))


def _names(features: Mapping[str, Any], prefix: str = "") -> list[str]:
    names: list[str] = []
    for name, feature in features.items():
        names += _names(feature, f"{prefix}{name}.") if isinstance(feature, Mapping) else [f"{prefix}{name}"]
    return names


def record_of(row: Mapping[str, Any], columns: Sequence[ColumnPath]) -> dict[str, Any]:
    """The record of a row; the reader of records reports what is wrong with it.

    Classes are written by their names, except in a column of indices; null fields of messages are left out. Of
    messages, the record has their tools, and what the reader refuses with them.
    """
    record: dict[str, Any] = {}
    for column in columns:
        value: Any = row
        for part in column.path:
            value = None if value is None else value[part]
        if column.key != "index":
            value = _named(value, column.labels)
        if column.key.startswith(_METADATA):
            if value is not None:
                record.setdefault("metadata", {})[column.key.removeprefix(_METADATA)] = value
        else:
            record[column.key] = _without_nulls(value) if column.key == "input" else value
    named = {column.path[0] for column in columns}
    rest = {name: value for name, value in row.items() if name not in named}
    if isinstance(record.get("input"), list):
        if further := template_column(rest):
            record[further] = rest[further]
        if "tools" not in record:
            record |= {name: rest[name] for name in TOOL_COLUMNS if rest.get(name)}
    return record


def _named(value: Any, labels: Sequence[str] | None) -> Any:
    if labels is None:
        return value
    if isinstance(value, list):
        return [_named(item, labels) for item in value]
    # -1 is an unknown class.
    return labels[value] if isinstance(value, int) and 0 <= value < len(labels) else None


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [
        {key: part for key, part in message.items() if part is not None} if isinstance(message, dict) else message
        for message in value
    ]


_BATCH_ROWS = 64
"""Rows that are read from the files at once."""

_log = logging.getLogger(__name__)


def main() -> None:
    """Answer one request."""
    answer(__spec__.name, rows, _plain)


def _plain(value: object) -> str:
    """Dates and decimals as text; other types that JSON lacks, such as images, have no useful text form."""
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta | decimal.Decimal):
        return str(value)
    raise InvalidField(COLUMNS_FIELD, f"names a column of type {type(value).__name__}, which has no text form")


def rows(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a data set as records.

    Args:
        request: what `row_process.read_rows` writes.

    Raises:
        BridgeError: see there.
    """
    data = _opened(request)
    if data is None:
        return
    whole = None if request["columns"] else whole_rows(data.features)
    columns = whole or find_columns(request["columns"], data.features)
    # Other columns may be large, or need decoding.
    data = data.select_columns(read_with(columns, data.features))
    if request["limit"] is not None:
        data = data.take(min(request["limit"], len(data)))
    try:
        for batch in data.iter(_BATCH_ROWS):
            for values in zip(*batch.values(), strict=True):
                row = dict(zip(batch, values, strict=True))
                yield row_of(row, columns) if whole else record_of(row, columns)
    except Exception as error:
        raise _refused(request, error) from error


def _opened(request: dict[str, Any]) -> Any:
    """The split, its rows still on disk; None if it has no rows, as the library makes no data set of it then."""
    from datasets import config

    from crucible_worker.datasets.hub.library import cached, fetched, find

    found = find(request)
    # A commit does not change: if it is in the cache, the hub need not be queried.
    if config.HF_HUB_OFFLINE or (request["revision"] is not None and found):
        builder = cached(request, found)
    else:
        builder = fetched(request)
    splits = list(builder.info.splits or ())
    if request["split"] not in splits:
        raise NotFound(
            f"has no split {request['split']!r}; there are {', '.join(splits)}",
            reason=Reason.UNKNOWN_DATASET,
            field=f"{HUB_FIELD}.split",
        )
    if builder.info.splits[request["split"]].num_examples == 0:
        return None
    try:
        return builder.as_dataset(split=request["split"])
    except Exception as error:
        raise _refused(request, error) from error


def _refused(request: dict[str, Any], error: Exception) -> BridgeError:
    # The text may contain paths of this machine, and goes only to the worker's log.
    _log.error("data set %s cannot be read", request["repo_id"], exc_info=error)
    return FailedPrecondition(
        f"cannot be read: {type(error).__name__}", reason=Reason.HUB_DATASET_REFUSED, field=HUB_FIELD
    )


if __name__ == "__main__":
    main()
