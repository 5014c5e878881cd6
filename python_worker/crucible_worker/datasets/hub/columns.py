"""From a row of any columns to a record of the keys that JSON lines have."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types.rows import LATER_SHAPES, SHAPES, TEMPLATE_COLUMNS, template_column

__all__ = ["FIELD", "ColumnPath", "find_columns", "read_with", "record_of", "row_of", "whole_rows"]

FIELD = "dataset.hub.columns"
"""Where a request names columns."""

_KEYS = ("input", "target", "targets", "choices", "id")
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
        raise InvalidField(FIELD, f"names no column for the input; the columns are {there}")
    if "target" in wanted and "targets" in wanted:
        raise InvalidField(FIELD, f"does not say whether to use the column target or targets; there are {there}")
    found = [_find(key, column, features) for key, column in wanted.items()]
    choices = next((column.path for column in found if column.key == "choices"), ("",))
    if "labels" not in wanted and choices[1:] == ("text",) and "label" in features[choices[0]]:
        # With the labels next to them, as `RowReader` reads them.
        found = [dataclasses.replace(each, path=choices[:1]) if each.key == "choices" else each for each in found]
    return found


def read_with(columns: Sequence[ColumnPath], features: Mapping[str, Any]) -> list[str]:
    """The columns to read: those that were found, and those without which their messages would be incomplete."""
    unnamed = [name for name in TEMPLATE_COLUMNS if name in features and _is_plain(features[name])]
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
            problem = f"is {column[:200]!r}, which is no column; there are {there}"
            raise InvalidField(f'{FIELD}["{key}"]', problem, reason=Reason.NO_SUCH_COLUMN)
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
    messages, the record has what the reader refuses with them.
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
    if isinstance(record.get("input"), list) and (further := template_column(rest)):
        record[further] = rest[further]
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
