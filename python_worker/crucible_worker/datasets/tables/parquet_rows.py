"""Rows of a Parquet file; imported in the child process only."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.reasons import Reason
from crucible_bridge.types.row_datums import LOSS_FN_INPUTS, MODEL_INPUT, datum_columns
from crucible_worker.datasets.row_process import FILE_FIELD

__all__ = ["parquet_rows"]

_BATCH_ROWS = 64
"""Rows that are read from the file at once."""
_DTYPES = {"int32": "int32", "int64": "int64", "float": "float32", "double": "float64"}
"""dtypes of arrays, by the name of the type of a list's items."""
_FEATURES = b"huggingface"
"""The key under which the datasets library stores the names of classes."""


def parquet_rows(path: str, columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The rows of a file, by column; columns of bytes, such as images, are left out unless they are requested.

    Args:
        path: the file.
        columns: column by key of a record; empty if the columns have the names of the keys.

    Raises:
        InvalidField: it is no readable Parquet file (MALFORMED_FILE).
        OSError: likewise; or it cannot be opened.
        MemoryError: it needs too much memory.
    """
    try:
        file = pq.ParquetFile(path)
        names = file.schema_arrow.names
        twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
        if twice is not None:
            raise InvalidField(FILE_FIELD, f"has the column {clipped(twice)} twice", reason=Reason.MALFORMED_FILE)
        wanted = {column if column in names else column.partition(".")[0] for column in columns.values()}
        chosen = [field.name for field in file.schema_arrow if field.name in wanted or _is_plain(field.type)]
        labels = _labels(file.schema_arrow.metadata or {})
        labels.pop(columns.get("index", ""), None)  # the number is meant, not the name of its class
        tensors = _tensors(file.schema_arrow) if not columns else {}
        for batch in file.iter_batches(_BATCH_ROWS, columns=chosen, use_threads=False):
            for row in batch.to_pylist():
                yield {name: _value(row[name], labels.get(name), tensors.get(name)) for name in chosen}
    except pa.ArrowMemoryError as error:
        raise MemoryError from error
    except (pa.ArrowException, ValueError, OverflowError) as error:  # also text that is not UTF-8, or a far date
        problem = f"is no readable Parquet file: {str(error).partition(chr(10))[0][:200]}"
        raise InvalidField(FILE_FIELD, problem, reason=Reason.MALFORMED_FILE) from error


def _is_plain(kind: pa.DataType) -> bool:
    """Whether values of a type have a text form."""
    if isinstance(kind, pa.BaseExtensionType):
        return False
    if pa.types.is_dictionary(kind):
        return _is_plain(kind.value_type)
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return not any(is_binary(kind) for is_binary in binary) and all(map(_is_plain, inner))


def _labels(metadata: Mapping[bytes, bytes]) -> dict[str, Sequence[str]]:
    """Names of classes, by column."""
    try:
        features = json.loads(metadata[_FEATURES])["info"]["features"]
        return {
            name: feature["names"]
            for name, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return {}  # written by another library: ignored


def _tensors(schema: pa.Schema) -> dict[str, Any]:
    """The dtypes of columns of lists that are arrays of Datums; of a column of such lists, the dtypes of its fields."""
    found: dict[str, Any] = {}
    for name in datum_columns(schema.names):
        kind = schema.field(name).type
        if name == LOSS_FN_INPUTS and pa.types.is_struct(kind):
            fields = [kind.field(index) for index in range(kind.num_fields)]
            found[name] = {field.name: _dtype(field.type) for field in fields}
        elif name != MODEL_INPUT:
            found[name] = _dtype(kind)
    return found


def _dtype(kind: pa.DataType) -> str | None:
    is_list = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return _DTYPES.get(str(kind.value_type)) if any(check(kind) for check in is_list) else None


def _value(value: Any, labels: Sequence[str] | None = None, dtype: Any = None) -> Any:
    if isinstance(dtype, str) and isinstance(value, list):
        return {"data": _value(value), "dtype": dtype}
    if isinstance(dtype, dict) and isinstance(value, dict):
        return {name: _value(item, None, dtype.get(name)) for name, item in value.items()}
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, list):
        return [_value(item) for item in value]
    if isinstance(value, dict):
        return {name: _value(item) for name, item in value.items()}
    if labels is not None and isinstance(value, int):
        return labels[value] if 0 <= value < len(labels) else None
    return value
