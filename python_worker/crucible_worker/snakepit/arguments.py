"""What a tool was called with: JSON values, bytes, and arrays that lie in either."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgpack

from crucible_bridge.codec.fields import entry
from crucible_bridge.errors import BridgeError, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Array
from crucible_worker.snakepit.tools_arrays import Binary, read_array
from crucible_worker.snakepit.tools_values import wrong_type

__all__ = ["MSGPACK", "RESULT_FORMAT", "RESULT_FORMATS", "TENSORS", "Arguments", "Fill"]

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
                raise InvalidField(field, f"is {value[:60]!r}, which {TENSORS} does not describe")
            self._shared[value] = read_array(description, value, entry(TENSORS, value), self.bytes)
        return self._shared[value]

    def bytes(self, name: str, field: str) -> Binary:
        """A binary parameter.

        Raises:
            InvalidField: it does not exist.
        """
        data = self._binary.get(name)
        if data is None:
            raise InvalidField(field, f"needs the binary parameter {name[:60]!r}, which does not exist")
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
            raise InvalidField(RESULT_FORMAT, f"is {str(value)[:60]!r}, not one of {', '.join(RESULT_FORMATS)}")
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
