"""Rows that are Datums: the JSON of tinker's, columns of lists, and what is refused by its path."""

import json
from typing import Any

import numpy as np
import pytest

from crucible_bridge.types import Datum, ImageAssetChunk, ImageChunk, MalformedRow, RowReader, TokensChunk
from tests import needs
from tests.tables import rows

TARGETS = {"data": [2, 3], "dtype": "int64", "shape": [2]}


def read(row: dict[str, Any]) -> Datum:
    """The Datum of a row."""
    found = RowReader({}, field="dataset.file", cure="name the columns").sample(row).input
    assert isinstance(found, Datum)
    return found


def tinker_row(**arrays: Any) -> dict[str, Any]:
    """A row as tinker writes it."""
    chunks = [{"tokens": [1, 2], "type": "encoded_text"}]
    return {"model_input": {"chunks": chunks}, "loss_fn_inputs": {"target_tokens": TARGETS, **arrays}}


def test_the_json_of_tinker_is_a_datum() -> None:
    """Tokens, images, dtypes and shapes are those of the Datum; null is no value, and other columns become metadata."""
    row = tinker_row(
        weights={"data": [0.0, 0.1], "dtype": "float32", "shape": None, "sparse_crow_indices": None},
        mask=None,
    )
    row["model_input"]["chunks"] += [
        {"data": "iVBORw==", "format": "png", "expected_tokens": 7, "type": "image"},
        {"location": "a", "format": "jpeg", "type": "image_asset_pointer"},
    ]
    reader = RowReader({}, field="dataset.file", cure="")
    sample = reader.sample(row | {"id": 3, "model_input_spans": None, "source": "books"})

    datum = sample.input
    assert isinstance(datum, Datum)
    tokens, *images = datum.model_input.chunks
    assert isinstance(tokens, TokensChunk)
    assert tokens.tokens.tolist() == [1, 2]
    assert images == [
        ImageChunk(data=b"\x89PNG", format="png", expected_tokens=7),
        ImageAssetChunk(location="a", format="jpeg"),
    ]
    assert datum.loss_fn_inputs.keys() == {"target_tokens", "weights"}
    weights = datum.loss_fn_inputs["weights"]
    assert isinstance(weights, np.ndarray)
    assert (weights.tobytes(), weights.dtype) == (np.array([0.0, 0.1], np.float32).tobytes(), np.float32)
    assert (sample.id, sample.targets, sample.metadata) == ("3", (), {"source": "books"})


def test_what_tinkers_sdk_writes_is_what_it_sends() -> None:
    """The JSON of the wire's type, read back, has the arrays of the Datum that was written."""
    tinker = pytest.importorskip("tinker", reason=needs.MISSING["tinker"])
    wire = pytest.importorskip("tinker.types._pydantic_types.datum", reason=needs.MISSING["tinker"])
    tensors = pytest.importorskip("tinker.types._pydantic_types.tensor_data", reason=needs.MISSING["tinker"])
    given = tinker.Datum(
        model_input=tinker.ModelInput.from_ints([1, 2, 3]),
        loss_fn_inputs={"target_tokens": [2, 3, 4], "weights": [0.0, 0.1, 1 / 3]},
    )
    arrays = {key: tensors.TensorData.from_numpy(value.to_numpy()) for key, value in given.loss_fn_inputs.items()}
    text = wire.Datum(model_input=given.model_input, loss_fn_inputs=arrays).model_dump_json()

    found = read(json.loads(text))

    assert found.model_input.tokens().tolist() == [1, 2, 3]
    for key, value in given.loss_fn_inputs.items():
        array, written = found.loss_fn_inputs[key], value.to_numpy()
        assert isinstance(array, np.ndarray)
        assert (array.tobytes(), array.dtype, array.shape) == (written.tobytes(), written.dtype, written.shape)


@rows(
    ("row", "dtypes"),
    [
        ({"tokens": [1, 2], "target_tokens": [2, 3]}, {"target_tokens": "int64"}),
        (
            {"tokens": [1, 2], "target_tokens": [2, 3], "weights": [0, 0.5], "text": "a b"},
            {"target_tokens": "int64", "weights": "float64"},
        ),
        (
            {"model_input": [1, 2], "loss_fn_inputs": {"target_tokens": [2, 3], "weights": [0, 1]}},
            {"target_tokens": "int64", "weights": "int64"},
        ),
        ({"tokens": [1, 2], "target_tokens": [2, 3], "weights": None}, {"target_tokens": "int64"}),
    ],
)
def test_lists_are_arrays(row: dict[str, Any], dtypes: dict[str, str]) -> None:
    """Columns of lists next to the tokens are arrays, as lists of a Datum in Python are."""
    datum = read(row)

    assert datum.model_input.tokens().tolist() == [1, 2]
    assert {key: array.dtype.name for key, array in datum.loss_fn_inputs.items()} == dtypes


@rows(
    ("row", "says"),
    [
        (tinker_row(weights={"data": [1, 2]}), 'has loss_fn_inputs["weights"] without data and a dtype'),
        (tinker_row(weights={"data": [1], "dtype": "f8"}), 'has loss_fn_inputs["weights"] without data and a dtype'),
        (tinker_row(weights=3), 'has loss_fn_inputs["weights"] that is a number, not a list of numbers'),
        (tinker_row(weights=["a"]), 'has loss_fn_inputs["weights"] that holds something else than finite numbers'),
        (
            tinker_row(weights=[0.5, None]),
            'has loss_fn_inputs["weights"] that holds something else than finite numbers',
        ),
        (tinker_row(weights=[True]), 'has loss_fn_inputs["weights"] that holds something else than finite numbers'),
        (tinker_row(weights=[2**70]), 'has loss_fn_inputs["weights"] that holds something else than finite numbers'),
        (tinker_row(weights=[[1], [1, 2]]), 'has loss_fn_inputs["weights"] whose lists have different lengths'),
        (tinker_row(x={"data": [1.5], "dtype": "int64"}), 'has loss_fn_inputs["x"] of int64 that holds fractions'),
        (
            tinker_row(x={"data": [2**40], "dtype": "int32"}),
            'has loss_fn_inputs["x"] with a value that is beyond int32',
        ),
        (tinker_row(x={"data": [1e300], "dtype": "float32"}), "with a value that is beyond float32"),
        (tinker_row(x={"data": [1, 2], "dtype": "int64", "shape": [3]}), "of 2 values that do not have the shape [3]"),
        (tinker_row(x={"data": [1, 2], "dtype": "int64", "shape": [-1]}), "that do not have the shape [-1]"),
        (tinker_row(x={"data": [1], "dtype": "int64", "shape": [2, 2], "sparse_crow_indices": [0]}), "that is sparse"),
        ({"model_input": 3, "loss_fn_inputs": {}}, 'has "model_input" that is neither a list of token ids nor'),
        (
            {"model_input": {"chunks": [{"type": "x"}]}, "loss_fn_inputs": {}},
            "has model_input.chunks[0] that is no chunk",
        ),
        (
            {"model_input": {"chunks": [{"tokens": [0.5]}]}, "loss_fn_inputs": {}},
            "has model_input.chunks[0].tokens that",
        ),
        ({"model_input": [1], "loss_fn_inputs": []}, 'has "loss_fn_inputs" that is a list, not an object'),
        ({"tokens": ["a"], "target_tokens": [1]}, 'has "tokens" that holds something else than finite numbers'),
        ({"tokens": [[1]], "target_tokens": [1]}, 'has "tokens" that is no list of token ids'),
    ],
)
def test_another_structure_is_named_by_its_path(row: dict[str, Any], says: str) -> None:
    """A row that is no Datum is malformed; nothing of it is converted with loss."""
    with pytest.raises(MalformedRow) as caught:
        read(row)

    assert says in str(caught.value)
