"""From a row of any columns to a record of the keys that JSON lines have."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types.rows import SHAPES, TEXT

__all__ = ["FIELD", "Column", "find_columns", "record_of", "row_of", "whole_rows"]

FIELD = "dataset.hub.columns"
"""Where a request names columns."""

_KEYS = ("input", "target", "targets", "choices", "id")
_METADATA = "metadata."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Where in a row a value of a record lies."""

    key: str
    """What it is: "input", "metadata.level"."""
    path: tuple[str, ...]
    """The column, and the fields within it."""
    labels: Sequence[str] | None
    """Names of the classes that its numbers stand for, if they do."""


def find_columns(columns: Mapping[str, str], features: Mapping[str, Any]) -> list[Column]:
    """Find the columns of a request in a data set.

    Args:
        columns: by key; if empty, the columns that are called as the keys are.
        features: types of the columns by name, as the library tells them: mappings for columns with fields.

    Raises:
        InvalidField: names the column that is not there and those that are, or says that nothing is the input.
    """
    wanted = columns or {key: key for key in _KEYS if key in features}
    there = ", ".join(map(str, features))
    if "input" not in wanted:
        raise InvalidField(FIELD, f"says not which column is the input; there are {there}")
    if "target" in wanted and "targets" in wanted:
        raise InvalidField(FIELD, f"says not whether the column target or targets is to be taken; there are {there}")
    return [_find(key, column, features) for key, column in wanted.items()]


def whole_rows(features: Mapping[str, Any]) -> list[Column] | None:
    """Every column that can be told in text, if the rows have a shape by which they are known without a mapping.

    Rows with an input are not among them: of these, the columns that are called as the keys are taken, and no others.

    Args:
        features: as `find_columns` takes them.
    """
    plain = {name: feature for name, feature in features.items() if _is_plain(feature)}
    if "input" in features or not any(shape.fits(plain) for shape in (*SHAPES, TEXT)):
        return None
    return [_find(name, name, plain) for name in plain]


def _is_plain(feature: Any) -> bool:
    """Whether values of a type can be told in text: those of images, sounds and bytes cannot."""
    if isinstance(feature, Mapping):
        return all(map(_is_plain, feature.values()))
    if hasattr(feature, "feature"):
        return _is_plain(feature.feature)
    return hasattr(feature, "names") or (type(feature).__name__ == "Value" and "binary" not in feature.dtype)


def row_of(row: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
    """A row of `whole_rows`, classes by their names."""
    return {column.key: _named(row[column.key], column.labels) for column in columns}


def _find(key: str, column: str, features: Mapping[str, Any]) -> Column:
    # A column's own name may hold a dot.
    parts = (column,) if column in features else tuple(column.split("."))
    found: Any = features
    for part in parts:
        if not isinstance(found, Mapping) or part not in found:
            there = ", ".join(_names(features))
            problem = f"is {column[:200]!r}, which is no column; there are {there}"
            raise InvalidField(f'{FIELD}["{key}"]', problem, reason=Reason.NO_SUCH_COLUMN)
        found = found[part]
    # Of a list the type of its items says what their numbers stand for.
    found = getattr(found, "feature", found)
    return Column(key=key, path=parts, labels=getattr(found, "names", None))


def _names(features: Mapping[str, Any], prefix: str = "") -> list[str]:
    names: list[str] = []
    for name, feature in features.items():
        names += _names(feature, f"{prefix}{name}.") if isinstance(feature, Mapping) else [f"{prefix}{name}"]
    return names


def record_of(row: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
    """The record that a row is; what is wrong with it is for the reader of records to say.

    Numbers are written as JSON does, classes by their names; messages lose what is null in them.
    """
    record: dict[str, Any] = {}
    for column in columns:
        value: Any = row
        for part in column.path:
            value = None if value is None else value[part]
        value = _named(value, column.labels)
        if column.key.startswith(_METADATA):
            if value is not None:
                record.setdefault("metadata", {})[column.key.removeprefix(_METADATA)] = value
        elif column.key == "input":
            record["input"] = _asked(value)
        elif column.key == "target" and isinstance(value, list):
            record["targets"] = [_text(item) for item in value]
        elif column.key == "targets" and not isinstance(value, list):
            record["target"] = _text(value)
        else:
            record[column.key] = [_text(item) for item in value] if isinstance(value, list) else _text(value)
    return record


def _named(value: Any, labels: Sequence[str] | None) -> Any:
    if labels is None:
        return value
    if isinstance(value, list):
        return [_named(item, labels) for item in value]
    # -1 stands for a class that is not told.
    return labels[value] if isinstance(value, int) and 0 <= value < len(labels) else None


def _asked(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [
        {key: part for key, part in message.items() if part is not None} if isinstance(message, dict) else message
        for message in value
    ]


def _text(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, int | float) else value
