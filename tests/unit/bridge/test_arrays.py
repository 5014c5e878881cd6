"""Arrays in, tensors out, and back: every bit, no copy where none is needed."""

from __future__ import annotations

import math
import types as python_types
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.arrays import MAX_DIMENSIONS, as_array, floats, from_tensor, stored_like, to_tensor
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Datum, Dtype, Tensor
from tests import needs
from tests.tables import rows
from tests.unit.bridge import strategies as some


@given(some.arrays)
def test_a_tensor_carries_every_bit(array: Any):
    """NaN payloads, infinities, -0.0 and bf16 come back as they were."""
    assert some.plain(from_tensor(to_tensor(array), "x")) == some.plain(array)


@given(some.bit_arrays(), st.sampled_from(["big", "reversed", "fortran", "strided"]))
def test_other_layouts_are_converted(array: np.ndarray, layout: str):
    """Byte order and strides are the sender's affair: the same elements arrive."""
    match layout:
        case "big":
            sent = array.byteswap().view(array.dtype.newbyteorder(">"))
        case "reversed":
            sent = array[::-1]
        case "fortran":
            sent = np.asfortranarray(array)
        case _:
            sent = np.repeat(array, 2, axis=0)[::2]
    expected = array[::-1] if layout == "reversed" else array

    received = from_tensor(to_tensor(sent), "x")

    assert isinstance(received, np.ndarray)
    assert (received.shape, received.tobytes()) == (expected.shape, np.ascontiguousarray(expected).tobytes())


def test_nothing_is_copied_where_memory_allows():
    """A contiguous array shares its memory with its tensor, and the tensor with the array that is read of it."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)

    received = from_tensor(to_tensor(as_array(array, field="x")), "x")

    assert as_array(array, field="x") is array
    assert isinstance(received, np.ndarray)
    assert np.shares_memory(array, received)
    assert not received.flags.writeable


def test_no_dimensions_are_one():
    """An empty shape takes its length from the data; a scalar arrives as one element."""
    received = from_tensor(Tensor(dtype=Dtype.I32, shape=(), data=bytes(12)), "x")
    scalar = from_tensor(to_tensor(np.array(2.5)), "x")

    assert received.shape == (3,)
    assert scalar.shape == (1,)
    assert from_tensor(Tensor(dtype=Dtype.BF16, shape=(), data=bytes(4)), "x").shape == (2,)


@rows(
    ("dtype", "shape", "size", "words"),
    [
        (Dtype.F32, (2,), 7, "7 bytes, but f32 of shape [2] takes 8"),
        (Dtype.F32, (3,), 8, "takes 12"),
        (Dtype.F64, (), 12, "not a multiple of the 8"),
        (Dtype.BF16, (), 3, "not a multiple of the 2"),
        (Dtype.BF16, (2,), 6, "takes 4"),
        (Dtype.I64, (-1, -1), 8, "negative"),
        (Dtype.U8, (2**62, 2**62, 0), 0, "shape"),
        (Dtype.U8, (1,) * (MAX_DIMENSIONS + 1), 1, "dimensions"),
    ],
)
def test_bytes_that_do_not_fit_are_refused(dtype: Dtype, shape: tuple[int, ...], size: int, words: str):
    """The error names the tensor and both lengths."""
    with pytest.raises(InvalidField) as caught:
        from_tensor(Tensor(dtype=dtype, shape=shape, data=bytes(size)), 'data[3].loss_fn_inputs["mask"]')

    assert caught.value.field == 'data[3].loss_fn_inputs["mask"]'
    assert words in caught.value.message


def test_a_bool_is_0_or_1():
    """Any other byte would be a third truth value to numpy."""
    with pytest.raises(InvalidField, match="neither 0 nor 1"):
        from_tensor(Tensor(dtype=Dtype.BOOL, shape=(2,), data=b"\1\2"), "x")


def test_as_many_dimensions_as_the_limit_pass():
    """The limit refuses one more than it says, on either side."""
    assert from_tensor(to_tensor(np.zeros((1,) * MAX_DIMENSIONS)), "x").shape == (1,) * MAX_DIMENSIONS
    with pytest.raises(InvalidField, match="dimensions"):
        to_tensor(np.zeros((1,) * (MAX_DIMENSIONS + 1)))


@rows(
    ("value", "dtype", "expected"),
    [
        ([1, 2], "int64", [1, 2]),
        ([0.5, -0.0], "float64", [0.5, -0.0]),
        ([True, False], "bool", [True, False]),
        ([], "float64", []),
        ([[1], [2]], "int64", [[1], [2]]),
        (range(3), "int64", [0, 1, 2]),
        (np.array([1, 2], np.int8), "int32", [1, 2]),
        (np.array([1, 2**16 - 1], np.uint16), "int32", [1, 2**16 - 1]),
        (np.array([2**32 - 1], np.uint32), "int64", [2**32 - 1]),
        (np.float32(1.5), "float32", 1.5),
    ],
)
def test_lists_and_small_integers_become_arrays(value: Any, dtype: str, expected: Any):
    """Numbers keep their value; integers that the wire lacks are widened."""
    array = as_array(value, field="x")

    assert isinstance(array, np.ndarray)
    assert array.dtype.name == dtype
    assert array.tolist() == expected


@rows(
    "value",
    [
        ["a"],
        "text",
        [None],
        [object()],
        [[1], [1, 2]],
        [2**70],
        [2**64 - 1],
        np.array([1], np.uint64),
        np.array([1j]),
        np.array(["2026-01-01"], "datetime64[D]"),
        {"a": 1},
    ],
)
def test_what_is_no_array_is_refused(value: Any):
    """Objects, text, ragged lists and numbers beyond 64 bits never reach the wire."""
    with pytest.raises(InvalidField) as caught:
        as_array(value, field='loss_fn_inputs["mask"]')

    assert caught.value.field == 'loss_fn_inputs["mask"]'


def test_objects_like_tinkers_tensor_data_are_read():
    """`to_numpy()`, or `data` with the name of a dtype and a shape that may be missing."""
    modern = python_types.SimpleNamespace(to_numpy=lambda: np.array([1.5], np.float32))
    plain = python_types.SimpleNamespace(data=[1, 2, 3, 4], dtype="int64", shape=[2, 2])
    shapeless = python_types.SimpleNamespace(data=[1.0], dtype="float32", shape=None)

    assert some.plain(as_array(modern, field="x")) == some.plain(np.array([1.5], np.float32))
    assert some.plain(as_array(plain, field="x")) == some.plain(np.array([[1, 2], [3, 4]]))
    assert some.plain(as_array(shapeless, field="x")) == some.plain(np.array([1.0], np.float32))


def test_dlpack_is_read():
    """A producer of another library needs no more than the protocol."""
    source = np.arange(3.0)
    producer = python_types.SimpleNamespace(__dlpack__=source.__dlpack__, __dlpack_device__=source.__dlpack_device__)

    class Producer:
        def __dlpack__(self, **kwargs: Any) -> Any:
            return producer.__dlpack__(**kwargs)

        def __dlpack_device__(self) -> Any:
            return producer.__dlpack_device__()

    assert some.plain(as_array(Producer(), field="x")) == some.plain(source)


def test_torch_tensors_are_read():
    """Gradients are left behind, bf16 becomes a Tensor of the same bits, layouts do not matter."""
    torch = pytest.importorskip("torch", reason=needs.MISSING["torch"])
    bfloat16 = torch.tensor([[1.5, -0.0, math.inf]], dtype=torch.bfloat16)

    assert some.plain(as_array(torch.ones(2, requires_grad=True), field="x")) == some.plain(np.ones(2, np.float32))
    tensor = as_array(bfloat16, field="x")
    assert tensor == Tensor(dtype=Dtype.BF16, shape=(1, 3), data=b"\xc0\x3f\x00\x80\x80\x7f")
    assert some.plain(as_array(bfloat16.T, field="x").shape) == [3, 1]
    with pytest.raises(InvalidField):
        as_array(torch.eye(2).to_sparse(), field="x")


def test_a_datum_takes_whatever_as_array_takes():
    """Lists and numpy arrays stand side by side; the error names the key."""
    datum = Datum(model_input=[1, 2], loss_fn_inputs={"mask": [1, 0], "w": np.ones(2)})  # type: ignore[dict-item]

    assert isinstance(datum.loss_fn_inputs["mask"], np.ndarray)
    with pytest.raises(InvalidField, match=r'loss_fn_inputs\["mask"\]'):
        Datum(model_input=[1], loss_fn_inputs={"mask": ["a"]})  # type: ignore[dict-item]


@given(some.bfloat16s())
def test_bfloat16_widens_exactly(tensor: Tensor):
    """The upper half of the float32 is the bfloat16, for NaN payloads too."""
    widened = floats(tensor, "x")

    assert widened.dtype == np.float32
    assert widened.shape == tensor.shape
    assert (widened.view(np.uint32) >> 16).astype("<u2").tobytes() == bytes(tensor.data)
    assert not (widened.view(np.uint32) & 0xFFFF).any()


@rows(
    ("dtype", "expected"),
    [
        ("<f2", "float32"),
        ("<f4", "float32"),
        ("<f8", "float64"),
        ("<i8", "float64"),
        ("?", "float64"),
        (">f4", "float32"),
    ],
)
def test_floats_are_what_arithmetic_needs(dtype: str, expected: str):
    """f16 and f32 compute as float32, everything else as float64; what is one already is not copied."""
    array = np.array([0, 1], dtype)

    result = floats(array, "x")

    assert result.dtype == expected
    assert result.tolist() == [0.0, 1.0]
    assert (result is array) == (dtype in ("<f4", "<f8"))
    assert floats(to_tensor(array), "x").dtype == expected


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_bfloat16_is_rounded_to_the_nearest(values: list[float]):
    """What is stored as bf16 is the nearer of its two neighbours there, NaN stays NaN, infinities stay."""
    torch = pytest.importorskip("torch", reason=needs.MISSING["torch"])
    numbers = np.array(values, np.float32)

    stored = stored_like(numbers, Tensor(dtype=Dtype.BF16, shape=(0,), data=b""))

    expected = torch.from_numpy(numbers).to(torch.bfloat16).to(torch.float32).numpy()
    np.testing.assert_array_equal(floats(stored, "x"), expected)


@rows(
    ("value", "bits"),
    [
        (1 + 2**-8 + 2**-40, 0x3F81),  # above the middle by less than float32 holds
        (1 + 2**-8, 0x3F80),
        (1 + 3 * 2**-8 - 2**-40, 0x3F81),
        (1 + 3 * 2**-8, 0x3F82),
        (-1 - 2**-8 - 2**-40, 0xBF81),
        (-1 - 3 * 2**-8 + 2**-40, 0xBF81),
        (2.0**-134 + 2.0**-170, 0x0001),  # subnormal
        (2.0**-134, 0x0000),
        (3.3961775292304601e38, 0x7F80),  # the middle of the largest and what would follow it
        (3.39617752923046e38 * (1 - 2**-50), 0x7F7F),
        (1e300, 0x7F80),
        (-1e300, 0xFF80),
        (math.inf, 0x7F80),
        (-math.inf, 0xFF80),
        (math.nan, 0x7FC0),
        (-0.0, 0x8000),
    ],
)
def test_float64_is_rounded_to_bfloat16_once(value: float, bits: int):
    """To the nearest of the value itself, not of the float32 next to it."""
    stored = stored_like(np.array([value]), Tensor(dtype=Dtype.BF16, shape=(1,), data=b""))

    assert isinstance(stored, Tensor)
    assert np.frombuffer(stored.data, "<u2").tolist() == [bits]
