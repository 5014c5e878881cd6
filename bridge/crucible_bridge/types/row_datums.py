"""Rows that are Datums: the JSON of tinker's, and columns of lists.

{"model_input": {"chunks": [{"tokens": [1, 2], "type": "encoded_text"}]},
"loss_fn_inputs": {"target_tokens": {"data": [2, 3], "dtype": "int64", "shape": [2]}}}
{"tokens": [1, 2], "target_tokens": [2, 3], "weights": [0.0, 1.0]}
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from crucible_bridge.types.arrays import MAX_DIMENSIONS
from crucible_bridge.types.data import (
    Datum,
    ImageAssetChunk,
    ImageChunk,
    ModelInput,
    ModelInputChunk,
    TokensChunk,
)
from crucible_bridge.types.row_choices import MalformedRow, kind_of

__all__ = ["LOSS_FN_INPUTS", "MODEL_INPUT", "TARGET_TOKENS", "TOKENS", "datum_columns", "datum_of"]

MODEL_INPUT, LOSS_FN_INPUTS = "model_input", "loss_fn_inputs"
TOKENS, TARGET_TOKENS = "tokens", "target_tokens"
_ARRAYS = (TARGET_TOKENS, "weights", "mask", "logprobs", "advantages")
"""Columns of lists that are arrays of a Datum, next to its tokens."""
_DTYPES = ("int32", "int64", "float32", "float64")
_SPARSE = ("sparse_crow_indices", "sparse_col_indices")
_TENSOR = frozenset({"data", "dtype", "shape", *_SPARSE})
_CHUNKS = {"encoded_text": ("tokens",), "image": ("data", "format"), "image_asset_pointer": ("location", "format")}
"""What a chunk needs, by type."""
_FORMATS = ("png", "jpeg")


def datum_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Those columns that make a Datum; none if the rows are no Datums."""
    names = set(columns)
    if {MODEL_INPUT, LOSS_FN_INPUTS} <= names:
        return (MODEL_INPUT, LOSS_FN_INPUTS)
    if {TOKENS, TARGET_TOKENS} <= names:
        return (TOKENS, *(name for name in _ARRAYS if name in names))
    return ()


def datum_of(row: Mapping[str, Any], columns: tuple[str, ...]) -> Datum:
    """The Datum of a row.

    A list without a dtype has that of a Datum in Python: integers are int64, other numbers float64.

    Args:
        row: values by column, as JSON has them.
        columns: from `datum_columns`.

    Raises:
        MalformedRow: a part has another structure; it is named by its path.
    """
    if columns[0] == TOKENS:
        arrays: Any = {name: row[name] for name in columns[1:]}
        paths = {name: f'"{name}"' for name in arrays}
        chunks: tuple[ModelInputChunk, ...] = (TokensChunk(tokens=_tokens(row[TOKENS], f'"{TOKENS}"')),)
    else:
        chunks, arrays = _chunks(row[MODEL_INPUT]), row[LOSS_FN_INPUTS]
        if not isinstance(arrays, Mapping):
            raise MalformedRow(f'has "{LOSS_FN_INPUTS}" that is {kind_of(arrays)}, not an object')
        paths = {name: f'{LOSS_FN_INPUTS}["{name}"]' for name in arrays}
    # A column that only other rows have is null here.
    inputs = {name: _array(value, paths[name]) for name, value in arrays.items() if value is not None}
    return Datum(model_input=ModelInput(chunks), loss_fn_inputs=inputs)


def _chunks(value: Any) -> tuple[ModelInputChunk, ...]:
    if isinstance(value, list):
        return (TokensChunk(tokens=_tokens(value, MODEL_INPUT)),)
    chunks = value.get("chunks") if isinstance(value, Mapping) else None
    if not isinstance(chunks, list):
        raise MalformedRow(f'has "{MODEL_INPUT}" that is neither a list of token ids nor an object with "chunks"')
    return tuple(_chunk(chunk, f"{MODEL_INPUT}.chunks[{index}]") for index, chunk in enumerate(chunks))


def _chunk(chunk: Any, path: str) -> ModelInputChunk:
    kind = chunk.get("type", "encoded_text") if isinstance(chunk, Mapping) else None
    if kind not in _CHUNKS or any(key not in chunk for key in _CHUNKS[kind]):
        needed = "; ".join(f"{name} with {' and '.join(keys)}" for name, keys in _CHUNKS.items())
        raise MalformedRow(f"has {path} that is no chunk; its type is one of {needed}")
    if kind == "encoded_text":
        return TokensChunk(tokens=_tokens(chunk["tokens"], f"{path}.tokens"))
    expected = chunk.get("expected_tokens")
    if isinstance(expected, bool) or not isinstance(expected, int | None):
        raise MalformedRow(f"has {path}.expected_tokens that is {kind_of(expected)}, not an integer")
    if chunk["format"] not in _FORMATS:
        raise MalformedRow(f"has {path}.format that is not one of {', '.join(_FORMATS)}")
    if kind == "image_asset_pointer":
        if not isinstance(chunk["location"], str):
            raise MalformedRow(f"has {path}.location that is {kind_of(chunk['location'])}, not text")
        return ImageAssetChunk(location=chunk["location"], format=chunk["format"], expected_tokens=expected)
    try:
        data = base64.b64decode(chunk["data"], validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise MalformedRow(f"has {path}.data that is not base64") from None
    return ImageChunk(data=data, format=chunk["format"], expected_tokens=expected)


def _tokens(value: Any, path: str) -> np.ndarray:
    tokens = _array(value, path)
    if tokens.ndim != 1 or tokens.dtype.kind != "i":
        raise MalformedRow(f"has {path} that is no list of token ids")
    return tokens


def _array(value: Any, path: str) -> np.ndarray:
    dtype, shape, data = None, None, value
    if isinstance(value, Mapping):
        further = value.keys() - _TENSOR
        if further or "data" not in value or value.get("dtype") not in _DTYPES:
            raise MalformedRow(f"has {path} without data and a dtype, one of {', '.join(_DTYPES)}")
        if any(value.get(name) is not None for name in _SPARSE):
            raise MalformedRow(f"has {path} that is sparse: write all of its values, with to_numpy()")
        dtype, shape, data = value["dtype"], value.get("shape"), value["data"]
    if not isinstance(data, list):
        raise MalformedRow(f"has {path} that is {kind_of(data)}, not a list of numbers")
    try:
        array = np.asarray(data) if data else np.empty(0, dtype or np.int64)
    except ValueError:
        raise MalformedRow(f"has {path} whose lists have different lengths") from None
    if array.dtype.kind not in "if":  # null and NaN, texts, booleans, and integers beyond int64
        raise MalformedRow(f"has {path} that holds something else than finite numbers of 64 bits")
    if dtype is not None and dtype.startswith("int") and array.dtype.kind != "i":
        raise MalformedRow(f"has {path} of {dtype} that holds fractions")
    if dtype is not None:
        with np.errstate(over="ignore"):
            cast = array.astype(dtype)
        if (dtype == "int32" and (cast != array).any()) or not np.isfinite(cast).all():
            raise MalformedRow(f"has {path} with a value that is beyond {dtype}")
        array = cast
    if shape is None:
        return array
    if not isinstance(shape, list) or array.size != _product(shape):
        problem = f"has {path} of {array.size:,} values that do not have the shape {str(shape)[:60]}"
        raise MalformedRow(problem)
    return array.reshape(shape)


def _product(shape: Sequence[Any]) -> int:
    """The number of values of a shape; -1 if it is none."""
    fits = all(isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in shape)
    return math.prod(shape) if fits and len(shape) <= MAX_DIMENSIONS else -1
