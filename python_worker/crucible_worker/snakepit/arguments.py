"""What a tool was called with: JSON values, bytes, and arrays that lie in either."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from typing import Any

import msgpack
import numpy as np
from google.protobuf.descriptor import EnumDescriptor

from crucible_bridge.arrays import MAX_DIMENSIONS, as_array, from_tensor
from crucible_bridge.codec.fields import child, entry
from crucible_bridge.errors import BridgeError, InvalidField, clipped
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Array, Dtype, Tensor

__all__ = [
    "MSGPACK",
    "NON_FINITE",
    "RESULT_FORMAT",
    "RESULT_FORMATS",
    "TENSORS",
    "Arguments",
    "Binary",
    "Fill",
    "dtype_from_json",
    "enum_words",
    "read_array",
    "read_boolean",
    "read_integer",
    "read_member",
    "read_number",
    "read_numbers",
    "read_text",
    "wrong_type",
]

# Single values of JSON: their types, and the refusal of wrong ones.

NON_FINITE: Mapping[str, float] = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""The texts in JSON for numbers that it lacks."""


def wrong_type(field: str, value: Any, needed: str) -> InvalidField:
    """The refusal of a value of the wrong type."""
    return InvalidField(field, f"is {_kind(value)}; {needed} is needed", reason=Reason.WRONG_TYPE)


def read_text(value: Any, field: str) -> str:
    """Text that a message can carry.

    Raises:
        InvalidField: it is not text, or not Unicode.
    """
    if not isinstance(value, str):
        raise wrong_type(field, value, "text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidField(field, "has half of a surrogate pair, which is not Unicode") from error
    return value


def enum_words(enum: EnumDescriptor | None) -> Mapping[str, int]:
    """Words for the values of an enum that can be sent: their names without the enum's name, in lower case.

    Args:
        enum: the type of a field that is an enum; only those of other fields are None.
    """
    assert enum is not None
    unspecified = next(value.name for value in enum.values if value.number == 0)
    prefix = unspecified.removesuffix("UNSPECIFIED")
    return {value.name.removeprefix(prefix).lower(): value.number for value in enum.values if value.number}


def read_member(value: Any, field: str, words: Mapping[str, int]) -> int:
    """An enum's number, by its word in any case; 0 for "unspecified", the word for an absent value in replies.

    Raises:
        InvalidField: it is none of the words.
    """
    word = read_text(value, field).lower()
    number = 0 if word == "unspecified" else words.get(word)
    if number is None:
        raise InvalidField(field, f"is {clipped(value)}, not one of {', '.join(words)}")
    return number


def read_integer(value: Any, field: str, low: int, high: int) -> int:
    """A whole number within inclusive bounds; 3.0 counts as whole.

    Raises:
        InvalidField: it is not one, or out of bounds.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(field, value, "an integer")
    if not low <= value <= high:
        # It may have more digits than Python converts to text.
        raise InvalidField(field, f"is out of bounds, must be within {low} and {high}")
    return value


def read_number(value: Any, field: str) -> float:
    """A number, "NaN", "Infinity" or "-Infinity".

    Raises:
        InvalidField: it is none of them.
    """
    if isinstance(value, str) and value in NON_FINITE:
        return NON_FINITE[value]
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong_type(field, value, "a number")
    try:
        return float(value)
    except OverflowError as error:
        raise InvalidField(field, "is beyond the range of a 64-bit number") from error


def read_boolean(value: Any, field: str) -> bool:
    """True or false.

    Raises:
        InvalidField: it is neither.
    """
    if not isinstance(value, bool):
        raise wrong_type(field, value, "a boolean")
    return value


def _kind(value: Any) -> str:
    """What a JSON value is, for people."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a number"
        case str():
            return "text"
        case bytes():
            return "bytes"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "an object"
        case _:
            return f"a {type(value).__name__}"


# Arrays among a tool's parameters: lists of numbers, or bytes that a JSON parameter describes.
#
# Bytes are in Snakepit's binary parameters, which have neither element type nor shape. So JSON has a description,
# `{"dtype": "f32", "shape": [512, 2048]}`, with `binary` (the parameter's name; the array's name if absent) and
# `offset` if several arrays share one parameter; or with `data`, base64, for few bytes.

_DTYPES: Mapping[str, Dtype] = {
    **{str(dtype): dtype for dtype in Dtype},
    "bfloat16": Dtype.BF16,
    "float16": Dtype.F16,
    "float32": Dtype.F32,
    "float64": Dtype.F64,
    "int32": Dtype.I32,
    "int64": Dtype.I64,
    "uint8": Dtype.U8,
}
_ITEM_BYTES: Mapping[Dtype, int] = {
    Dtype.U8: 1,
    Dtype.BOOL: 1,
    Dtype.F16: 2,
    Dtype.BF16: 2,
    Dtype.I32: 4,
    Dtype.F32: 4,
    Dtype.I64: 8,
    Dtype.F64: 8,
}
_DESCRIPTION = ("dtype", "shape", "binary", "offset", "data")

Binary = bytes | memoryview
"""A binary parameter: separate bytes, or a view of the request."""

Bytes = Callable[[str, str], Binary]
"""Returns a binary parameter's bytes, given its name and the path that refers to it."""


def dtype_from_json(value: Any, field: str) -> Dtype:
    """Read an element type: "f32", or numpy's and tinker's name, "float32".

    Raises:
        InvalidField: it is not an element type.
    """
    if not isinstance(value, str):
        raise wrong_type(field, value, "text")
    dtype = _DTYPES.get(value.lower())
    if dtype is None:
        raise InvalidField(field, f"is {clipped(value)}, not one of {', '.join(Dtype)}")
    return dtype


def read_array(value: Any, name: str, field: str, binary: Bytes) -> Array:
    """Read an array: a view of the bytes if it is binary.

    Args:
        value: numbers in lists, or a description.
        name: of the binary parameter, if the description has none.
        field: path of the array.
        binary: finds a binary parameter.

    Raises:
        InvalidField: it is neither, or its bytes do not fit.
    """
    if isinstance(value, Mapping):
        return _described(value, name, field, binary)
    if isinstance(value, list | tuple):
        return read_numbers(value, field)
    raise wrong_type(field, value, "a list of numbers, or a description with dtype and shape,")


def read_numbers(values: Any, field: str) -> np.ndarray:
    """Read lists of numbers, of any depth: int64, float64 or bool.

    Raises:
        InvalidField: the lists are of different lengths, or have something else in them.
    """
    try:
        array = np.array(values)
    except ValueError as error:
        raise InvalidField(field, "has lists of different lengths, or too many levels of lists") from error
    if array.dtype.kind not in "biuf":
        # There is text, or something that is not a number: checked one by one, so that the error names it.
        array = np.array(_spelled_out(values, field), np.float64)
    read = as_array(array, field=field)
    assert isinstance(read, np.ndarray)
    return read


def _spelled_out(value: Any, field: str, depth: int = 0) -> Any:
    if isinstance(value, list | tuple):
        if depth == MAX_DIMENSIONS:
            raise InvalidField(field, f"is inside of {depth} lists, a tensor has at most {MAX_DIMENSIONS} dimensions")
        return [_spelled_out(each, f"{field}[{index}]", depth + 1) for index, each in enumerate(value)]
    if isinstance(value, str) and value in NON_FINITE:
        return NON_FINITE[value]
    if isinstance(value, bool | int | float):
        if isinstance(value, int) and abs(value) >= 1 << 63:
            raise InvalidField(field, "is beyond 64 bits")
        return value
    raise wrong_type(field, value, "a number")


def _described(value: Mapping[Any, Any], name: str, field: str, binary: Bytes) -> Array:
    for key in value:
        if key not in _DESCRIPTION:
            known = ", ".join(_DESCRIPTION)
            raise InvalidField(
                child(field, str(key)[:60]), f"is unknown; there are {known}", reason=Reason.UNKNOWN_PARAMETER
            )
    if value.get("dtype") is None:
        raise InvalidField(child(field, "dtype"), "is missing")
    dtype = dtype_from_json(value["dtype"], child(field, "dtype"))
    shape = value.get("shape")
    if shape is not None and not (isinstance(shape, list | tuple) and all(map(_counts, shape))):
        raise wrong_type(child(field, "shape"), shape, "a list of dimensions, integers from 0,")
    if value.get("data") is not None:
        data = _base64(value["data"], child(field, "data"))
    else:
        asked = value.get("binary")
        if asked is not None and not isinstance(asked, str):
            raise wrong_type(child(field, "binary"), asked, "text")
        data = binary(asked or name, field)
        data = _part(data, value.get("offset"), None if shape is None else math.prod(shape) * _ITEM_BYTES[dtype], field)
    return from_tensor(Tensor(dtype=dtype, shape=tuple(shape or ()), data=data), field)


def _part(data: Binary, offset: Any, size: int | None, field: str) -> Binary:
    """The bytes from an offset on, as many as the shape takes; all of them without an offset."""
    if offset is None:
        return data
    path = child(field, "offset")
    if not _counts(offset):
        raise wrong_type(path, offset, "an integer from 0")
    end = len(data) if size is None else offset + size
    if offset > len(data) or end > len(data):
        raise InvalidField(path, f"is {offset}, beyond the {len(data):,} bytes")
    return memoryview(data)[offset:end]


def _base64(value: Any, field: str) -> bytes:
    if isinstance(value, bytes):  # msgpack has a bytes type
        return value
    if not isinstance(value, str):
        raise wrong_type(field, value, "base64")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise InvalidField(field, f"is not base64: {error}") from error


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


TENSORS, RESULT_FORMAT, MSGPACK = "tensors", "result_format", "msgpack"
"""Parameters that every tool has: descriptions of binary parameters; the form of the answer; and the binary parameter
that holds further parameters."""

RESULT_FORMATS = ("json", "binary", "msgpack")
"""All in JSON; tensors as separate bytes; or everything as msgpack."""

Fill = Callable[[Any, Any, str, "Arguments"], None]
"""Fills a message with a JSON value at a path; the parameters have the arrays."""


class Arguments:
    """The parameters of a tool call, and which of them have been read."""

    def __init__(
        self,
        parameters: Mapping[str, Any],
        binary: Mapping[str, Binary],
        *,
        correlation_id: str | None = None,
        max_sequences: int | None = None,
    ) -> None:
        """Take JSON values and bytes by name.

        Raises:
            InvalidField: the parameters that every tool has are wrong.
        """
        self._binary = binary
        self._read_binary: set[str] = set()
        self.values = _given(parameters)
        """The parameters that are still unread; a reader removes what it reads."""
        if MSGPACK in binary:
            self.values |= _unpacked(self, self.values)
        self.correlation_id = correlation_id
        """Correlation id of the call."""
        self.max_sequences = max_sequences
        """Limit of sequences in a call for metrics over tokens; None without a limit."""
        self.result_format = self._format(self.values.pop(RESULT_FORMAT, None))
        """One of RESULT_FORMATS."""
        tensors = self.values.pop(TENSORS, None)
        if tensors is not None and not isinstance(tensors, Mapping):
            raise wrong_type(TENSORS, tensors, "an object")
        self.tensors = _given(tensors or {})
        """Descriptions of arrays that are still to be read."""
        self._shared: dict[str, Array] = {}
        self.renamed: dict[str, str] = {}
        """Fields of the message by the caller's names for them, if these differ."""
        self.noted: dict[str, Any] = {}
        """Facts about the parameters that writing the answer needs."""

    def take(self, *names: str) -> Any:
        """The first of these parameters that is given; None if none is."""
        return next((self.values.pop(name) for name in names if name in self.values), None)

    def array(self, value: Any, name: str, field: str) -> Array:
        """The array of a value: numbers, a description, or the name of one in `tensors`."""
        if not isinstance(value, str):
            return read_array(value, name, field, self.bytes)
        if value not in self._shared:
            description = self.tensors.pop(value, None)
            if description is None:
                raise InvalidField(field, f"is {clipped(value)}, which {TENSORS} does not describe")
            self._shared[value] = read_array(description, value, entry(TENSORS, value), self.bytes)
        return self._shared[value]

    def bytes(self, name: str, field: str) -> Binary:
        """A binary parameter.

        Raises:
            InvalidField: it does not exist.
        """
        data = self._binary.get(name)
        if data is None:
            raise InvalidField(field, f"needs the binary parameter {clipped(name)}, which does not exist")
        self._read_binary.add(name)
        return data

    def named(self, error: BridgeError) -> BridgeError:
        """The error, with the caller's name for its field."""
        for ours, theirs in self.renamed.items():
            if error.field.startswith(ours):
                error.field = theirs + error.field[len(ours) :]
                break
        return error

    def refuse_unknown(self) -> None:
        """Refuse parameters that were not read.

        Raises:
            InvalidField: there is such a parameter.
        """
        for name in self.values:
            raise InvalidField(name[:60], "is not a parameter of this tool", reason=Reason.UNKNOWN_PARAMETER)
        for name in self.tensors:
            raise InvalidField(
                entry(TENSORS, str(name)[:60]), "is not used by this tool", reason=Reason.UNKNOWN_PARAMETER
            )
        for name in self._binary.keys() - self._read_binary:
            message = f"is a binary parameter that nothing refers to: describe it in {TENSORS}, or by a parameter"
            raise InvalidField(name[:60], message, reason=Reason.UNKNOWN_PARAMETER)

    def _format(self, value: Any) -> str:
        if value is None:
            return RESULT_FORMATS[0]
        if value not in RESULT_FORMATS:
            raise InvalidField(RESULT_FORMAT, f"is {clipped(str(value))}, not one of {', '.join(RESULT_FORMATS)}")
        return value


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The given values: null counts as absent."""
    return {name: value for name, value in values.items() if value is not None}


def _unpacked(arguments: Arguments, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        unpacked = msgpack.unpackb(arguments.bytes(MSGPACK, MSGPACK))
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise InvalidField(MSGPACK, "is not msgpack, or has keys that are not text") from error
    if not isinstance(unpacked, dict) or not all(isinstance(key, str) for key in unpacked):
        raise wrong_type(MSGPACK, unpacked, "a map with names as keys")
    said = _given(unpacked)
    for name in said.keys() & parameters.keys():
        raise InvalidField(name[:60], f"is both in JSON and in {MSGPACK}")
    return said
