"""Parameters that are a request's fields by their own names, as most tools have them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from crucible_bridge.codec.evaluation import MAX_ID_BYTES
from crucible_bridge.errors import InvalidField
from crucible_bridge.v1 import types_pb2
from crucible_worker.snakepit.arguments import Arguments
from crucible_worker.snakepit.parameters import fill

__all__ = ["fields_reader", "take_fields"]

_TENSOR = types_pb2.Tensor.DESCRIPTOR


def fields_reader(
    request: Callable[[], Any],
    *,
    part: str = "",
    names: Mapping[str, tuple[str, ...]] | None = None,
    single: Collection[str] = (),
    correlated: bool = False,
) -> Callable[[Arguments], Any]:
    """A function that reads parameters into a request.

    Args:
        request: makes an empty one.
        part: the field of the request that the parameters fill, if they do not fill the request itself.
        names: other names for fields.
        single: list fields that also accept a single value.
        correlated: give the call's correlation id to a request without one.
    """

    def read(arguments: Arguments) -> Any:
        message = request()
        target = message
        if part:
            target = getattr(message, part)
            target.SetInParent()
        given = take_fields(arguments, target.DESCRIPTOR.fields, names or {})
        for field in single:
            if isinstance(given.get(field), str | Mapping):
                given[field] = [given[field]]
        fill(target, given, "", arguments)
        if correlated and not target.correlation_id:
            target.correlation_id = _short_enough(arguments.correlation_id or "")
        return message

    return read


def take_fields(arguments: Arguments, fields: Any, names: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """The parameters that are these fields, under the fields' own names; arrays also from descriptions in `tensors`.

    Raises:
        InvalidField: one is given under two names.
    """
    given: dict[str, Any] = {}
    for field in fields:
        asked = (field.name, *names.get(field.name, ()))
        found = [(name, value) for name in asked if (value := arguments.take(name)) is not None]
        if not found and field.message_type is _TENSOR and not field.is_repeated and field.name in arguments.tensors:
            found = [(field.name, field.name)]
        if len(found) > 1:
            raise InvalidField(found[1][0], f"is given with {found[0][0]}, which is the same")
        for name, value in found:
            given[field.name] = value
            if name != field.name:
                arguments.renamed[field.name] = name
    return given


def _short_enough(correlation_id: str) -> str:
    """The call's correlation id; one that is too long for events is left out, and the request is still valid."""
    return correlation_id if len(correlation_id.encode("utf-8", "replace")) <= MAX_ID_BYTES else ""
