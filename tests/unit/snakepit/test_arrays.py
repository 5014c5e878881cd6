"""Arrays among parameters: the same numbers, in whatever form they come."""

from __future__ import annotations

import base64
import functools
from typing import Any

import hypothesis.strategies as st
import msgpack
import numpy as np
import pytest
from hypothesis import given

from crucible_bridge.codec.token_metrics import kl_sample_train_request_from_bytes
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import KLSampleTrainRequest, Tensor
from crucible_bridge.v1 import types_pb2
from crucible_worker.snakepit.arguments import Arguments, read_array, read_numbers
from crucible_worker.snakepit.catalogue import TOOLS
from tests.tables import rows

NAMES = ("logprobs", "mask", "training_logprobs")
DTYPES = {"logprobs": "<f4", "mask": "u1", "training_logprobs": "<f8"}
WORDS = {"<f4": "f32", "u1": "u8", "<f8": "float64"}
READ = {tool.name: tool.read for tool in TOOLS}["kl_sample_train"]

Columns = dict[str, list[np.ndarray]]


@st.composite
def columns(draw: Any, *, equal: bool = False) -> Columns:
    """Sequences of any lengths, or of one."""
    longest = draw(st.integers(0, 4))
    lengths = (
        [longest] * draw(st.integers(1, 3)) if equal else draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    )
    numbers = st.integers(-9, 0).map(lambda number: number / 8)
    return {
        name: [
            np.array(
                draw(st.lists(st.integers(0, 1) if name == "mask" else numbers, min_size=n, max_size=n)), DTYPES[name]
            )
            for n in lengths
        ]
        for name in NAMES
    }


def read(parameters: dict[str, Any], binary: dict[str, bytes] | None = None) -> KLSampleTrainRequest:
    """What the call is asked, of what a tool was given."""
    arguments = Arguments(parameters, binary or {})
    request = READ(arguments)
    arguments.refuse_unknown()
    return kl_sample_train_request_from_bytes(request)


def same(request: KLSampleTrainRequest, expected: Columns) -> bool:
    """Whether a request has these numbers, sequence by sequence."""
    found = (request.logprobs, request.masks, request.training_logprobs)
    return all(
        len(column) == len(expected[name]) and all(map(np.array_equal, column, expected[name]))
        for column, name in zip(found, NAMES)
    )


@given(columns())
def test_lists_are_sequences(given_columns: Columns):
    """Lists of lists are sequences, and their numbers come as they are."""
    assert same(read({name: [part.tolist() for part in parts] for name, parts in given_columns.items()}), given_columns)


@given(columns())
def test_arrays_may_lie_end_to_end(given_columns: Columns):
    """Bytes of all sequences are parted by their lengths, each array in a binary parameter of its name."""
    tensors = {name: {"dtype": WORDS[DTYPES[name]]} for name in NAMES}
    binary = {name: b"".join(part.tobytes() for part in parts) for name, parts in given_columns.items()}
    lengths = [len(part) for part in given_columns["mask"]]

    assert same(read({"tensors": tensors, "lengths": lengths}, binary), given_columns)


@given(columns(equal=True))
def test_two_dimensions_are_sequences(given_columns: Columns):
    """The rows of an array with two dimensions are sequences of one length."""
    shape = [len(given_columns["mask"]), len(given_columns["mask"][0])]
    tensors = {name: {"dtype": WORDS[DTYPES[name]], "shape": shape} for name in NAMES}
    binary = {name: b"".join(part.tobytes() for part in parts) for name, parts in given_columns.items()}

    assert same(read({"tensors": tensors}, binary), given_columns)


@given(columns())
def test_one_binary_may_hold_all(given_columns: Columns):
    """Arrays are found in one binary parameter by their offsets, sequence by sequence."""
    data, parameters = b"", {}
    for name, parts in given_columns.items():
        parameters[name] = []
        for part in parts:
            described = {"dtype": WORDS[DTYPES[name]], "shape": [len(part)], "binary": "all", "offset": len(data)}
            parameters[name].append(described)
            data += part.tobytes()

    assert same(read(parameters, {"all": data}), given_columns)


@given(columns())
def test_msgpack_holds_parameters_too(given_columns: Columns):
    """A binary parameter with msgpack holds parameters, bytes among them, as if they were JSON."""
    parameters = {
        name: [{"dtype": WORDS[DTYPES[name]], "data": part.tobytes()} for part in parts]
        for name, parts in given_columns.items()
    }

    packed: Any = msgpack.packb(parameters)

    assert same(read({}, {"msgpack": packed}), given_columns)


def test_bytes_are_not_copied_before_the_request():
    """An array in a binary parameter is a view of it, wherever it begins."""
    data = np.arange(8, dtype="<f4").tobytes()
    binary = lambda name, field: data  # noqa: E731 - a function of no other name

    whole = read_array({"dtype": "f32"}, "x", "x", binary)
    part = read_array({"dtype": "f32", "shape": [2], "offset": 8}, "x", "x", binary)

    assert isinstance(whole, np.ndarray)
    assert isinstance(part, np.ndarray)
    assert part.tolist() == [2.0, 3.0]
    assert np.shares_memory(whole, part)


def test_one_sequence_is_a_list_of_numbers():
    """A list of numbers is one sequence."""
    request = read({"logprobs": [-1.0], "mask": [1], "training": [-2]})

    assert same(
        request, {"logprobs": [np.array([-1.0])], "mask": [np.array([1])], "training_logprobs": [np.array([-2])]}
    )


def test_null_parameters_are_absent():
    """A parameter that is null says nothing, whether the tool has it or not."""
    request = read({"data": None, "lengths": None, "logprobs": [-1.0], "mask": [1], "training": [-2], "extended": None})

    assert request.extended is False


def test_a_null_beside_what_is_given_says_nothing():
    """A description that is null is none, and a null in JSON leaves msgpack its parameter."""
    packed: Any = msgpack.packb({"mask": [1], "lengths": None})
    said = {"tensors": {"logprobs": None}, "logprobs": [-1.0], "mask": None, "training_logprobs": [-2]}

    request = read(said, {"msgpack": packed})

    assert [part.tolist() for part in request.masks] == [[1]]


@pytest.mark.parametrize(("length", "data"), [(0, ""), (1, "AAAA")])
def test_rows_are_counted_before_there_are_lengths_of_them(length: int, data: str):
    """Rows without a value take no bytes: how many there are is bounded before room is made for their lengths."""
    rows = {"dtype": "u8", "shape": [3, length], "data": data}
    parameters: dict[str, Any] = dict.fromkeys(NAMES, rows)

    assert READ(Arguments(parameters, {}, max_sequences=3))
    with pytest.raises(InvalidField, match="logprobs has 3 sequences, at most 2 are accepted"):
        READ(Arguments(parameters, {}, max_sequences=2))


def test_numbers_that_json_has_not_are_text():
    """NaN and infinities are read from their names, alone in a list too."""
    numbers = read_numbers([["NaN", 1], ["Infinity", "-Infinity"]], "x")
    request = read({"logprobs": ["NaN", -1], "mask": [1, 0], "training_logprobs": [-1, -1]})

    np.testing.assert_array_equal(numbers, [[np.nan, 1], [np.inf, -np.inf]])
    np.testing.assert_array_equal(request.logprobs[0], [np.nan, -1])


def test_bf16_stays_what_it_is():
    """A bf16 array, which numpy has not, is carried in its own bytes."""
    array = read_array({"dtype": "bfloat16", "data": base64.b64encode(b"\x80\x3f").decode()}, "x", "x", lambda *_: b"")

    assert isinstance(array, Tensor)
    assert bytes(array.data) == b"\x80\x3f"
    request = read({"logprobs": {"dtype": "bf16", "data": "gL8="}, "mask": [1], "training_logprobs": [-1.0]})
    assert request.logprobs[0].tolist() == [-1.0]


def test_arrays_of_sequences_are_named_one_by_one():
    """A list of names is one array a sequence, in whatever element types."""
    binary = {"a": b"\0\0\x80\xbf", "b": b"\0\0\0\0\0\0\0\xc0\0\0\0\0\0\0\0\xc0"}
    request = read(
        {
            "tensors": {"a": {"dtype": "f32"}, "b": {"dtype": "f64"}},
            "logprobs": ["a", "b"],
            "mask": [[1], [1, 0]],
            "training_logprobs": ["a", "b"],
        },
        binary,
    )

    assert [part.tolist() for part in request.logprobs] == [[-1.0], [-2.0, -2.0]]


def test_every_element_type_has_a_word():
    """All element types of the protos can be described."""
    for number in types_pb2.Dtype.values():
        if number:
            word = types_pb2.Dtype.Name(number).removeprefix("DTYPE_").lower()
            assert read_array({"dtype": word, "data": ""}, "x", "x", lambda *_: b"").shape == (0,)


NESTED: Any = functools.reduce(lambda inner, _: [inner], range(40), "x")
GOOD = {"mask": [1], "training_logprobs": [-1.0]}
WRONG = [
    ({"logprobs": "nothing", **GOOD}, {}, "logprobs", "describe"),
    ({"logprobs": [[1.0], ["x"]], **GOOD}, {}, "logprobs[1][0]", "is text"),
    ({"logprobs": [[1.0], 2.0], **GOOD}, {}, "logprobs[1]", "is a number"),
    ({"logprobs": [[1.0, None]], **GOOD}, {}, "logprobs[0][1]", "is null"),
    ({"logprobs": [[[1.0]]], **GOOD}, {}, "logprobs[0]", "one dimension"),
    ({"logprobs": {"dtype": "f32", "shape": [1, 1, 1], "data": "AACAPw=="}, **GOOD}, {}, "logprobs", "dimensions"),
    ({"logprobs": [1 << 70], **GOOD}, {}, "logprobs[0]", "64 bits"),
    ({"logprobs": {}, **GOOD}, {}, "logprobs.dtype", "missing"),
    ({"logprobs": {"dtype": "f31"}, **GOOD}, {}, "logprobs.dtype", "not one of"),
    ({"logprobs": {"dtype": 3}, **GOOD}, {}, "logprobs.dtype", "text is needed"),
    ({"logprobs": {"dtype": "f32", "shapes": []}, **GOOD}, {}, "logprobs.shapes", "unknown"),
    ({"logprobs": {"dtype": "f32", "shape": [-1]}, **GOOD}, {}, "logprobs.shape", "dimensions"),
    ({"logprobs": {"dtype": "f32", "shape": 1}, **GOOD}, {}, "logprobs.shape", "dimensions"),
    ({"logprobs": {"dtype": "f32", "data": "?"}, **GOOD}, {}, "logprobs.data", "base64"),
    ({"logprobs": {"dtype": "f32", "data": 1}, **GOOD}, {}, "logprobs.data", "base64"),
    ({"logprobs": {"dtype": "f32", "binary": 1}, **GOOD}, {}, "logprobs.binary", "text is needed"),
    ({"logprobs": {"dtype": "f32"}, **GOOD}, {}, "logprobs", "does not exist"),
    ({"logprobs": {"dtype": "f32", "shape": [2]}, **GOOD}, {"logprobs": b"1234"}, "logprobs", "bytes"),
    ({"logprobs": {"dtype": "f32", "offset": 8}, **GOOD}, {"logprobs": b"1234"}, "logprobs.offset", "beyond"),
    ({"logprobs": {"dtype": "f32", "offset": "1"}, **GOOD}, {"logprobs": b"1234"}, "logprobs.offset", "integer"),
    ({"logprobs": 1.0, **GOOD}, {}, "logprobs", "a list of numbers"),
    ({"logprobs": {"dtype": "u8", "data": "AA=="}, **GOOD, "lengths": NESTED}, {}, "lengths" + "[0]" * 32, "32 lists"),
    ({**GOOD}, {}, "logprobs", "not given"),
    ({"logprobs": [1.0], "training": [1.0], **GOOD}, {}, "training", "the same"),
    ({"logprobs": [1.0], "tensors": {"logprobs": {"dtype": "u8"}}, **GOOD}, {}, "logprobs", "the same"),
    ({"logprobs": [[1.0], []], **GOOD, "mask": [[1]]}, {}, "mask", "1 sequences"),
    ({"logprobs": [[1.0], [2.0]], **GOOD, "mask": [[1], [1, 1]]}, {}, "mask[1]", "2 values"),
    ({"logprobs": [1.0], "lengths": [0.5], **GOOD}, {}, "lengths", "integers"),
    ({"logprobs": [1.0], "tensors": [], **GOOD}, {}, "tensors", "an object"),
    ({"logprobs": [1.0], "tensors": {"x": {"dtype": "u8"}}, **GOOD}, {}, 'tensors["x"]', "not used"),
    ({"logprobs": [1.0], "result_format": "xml", **GOOD}, {}, "result_format", "not one of"),
    ({"logprobs": [1.0], **GOOD}, {"extra": b""}, "extra", "nothing refers to"),
    ({"logprobs": [1.0], **GOOD}, {"msgpack": b"\xc1"}, "msgpack", "not msgpack"),
    ({"logprobs": [1.0], **GOOD}, {"msgpack": b"\x90"}, "msgpack", "a map"),
    ({"logprobs": [1.0], **GOOD}, {"msgpack": msgpack.packb({"mask": [1]})}, "mask", "both in JSON"),
]


@rows(("parameters", "binary", "field", "text"), WRONG)
def test_what_cannot_be_an_array_is_named(parameters: Any, binary: Any, field: str, text: str):
    """Whatever does not fit is refused, with the path of what the caller wrote."""
    with pytest.raises(InvalidField) as refused:
        read(parameters, binary)

    assert refused.value.field == field
    assert text in refused.value.message
