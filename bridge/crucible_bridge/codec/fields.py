"""Paths of fields, as errors show them, and the checks that every message needs.

Paths read like `evaluators[1].options["k"]`; the path of a request itself is empty.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import chain
from typing import Any, Generic, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from crucible_bridge import types
from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.problems import shorten

__all__ = [
    "EnumPair",
    "above_to",
    "at_least",
    "at_most_bytes",
    "at_most_chars",
    "at_most_count",
    "bounded",
    "bounded_texts",
    "child",
    "each_decoded",
    "each_encoded",
    "encoded",
    "entry",
    "exactly_made",
    "finite_from_zero",
    "finite_map",
    "made",
    "none_empty",
    "numbers",
    "of_type",
    "one_of",
    "sendable",
    "several",
    "unicode_text",
    "within",
]

E = TypeVar("E", bound=enum.StrEnum)
M = TypeVar("M", bound=Message)
N = TypeVar("N", int, float)
T = TypeVar("T")

MAX_MEMBERS = 1_000
"""Members of an enumeration in one field."""
SLICE = 65_536
"""Numbers that are read before other threads may run."""
_MAX_EXAMPLE_BYTES = 60
_REFUSED = (TypeError, ValueError, AttributeError, OverflowError)
"""What protobuf raises for a value that a field cannot have."""

_TEXT = "text"

_WANTED = {
    FieldDescriptor.CPPTYPE_INT32: "a whole number",
    FieldDescriptor.CPPTYPE_INT64: "a whole number",
    FieldDescriptor.CPPTYPE_UINT32: "a whole number from 0",
    FieldDescriptor.CPPTYPE_UINT64: "a whole number from 0",
    FieldDescriptor.CPPTYPE_DOUBLE: "a number",
    FieldDescriptor.CPPTYPE_FLOAT: "a number",
    FieldDescriptor.CPPTYPE_BOOL: "true or false",
    FieldDescriptor.CPPTYPE_STRING: _TEXT,
}
"""Descriptions of types, by the C++ type of a field."""


class EnumPair(Generic[E]):
    """One of our enums and the wire's, matched by their names."""

    def __init__(self, ours: type[E], wire: Any, prefix: str) -> None:
        self.to_number: Mapping[E, Any] = {member: wire.Value(prefix + member.name) for member in ours}
        self.from_number: Mapping[int, E] = {number: member for member, number in self.to_number.items()}

    def to_v1(self, member: E) -> Any:
        """The wire's number."""
        return self.to_number[member]

    def sent(self, member: E | None, field: str) -> Any:
        """The wire's number of what a caller gave; None stays None.

        Raises:
            InvalidField: it is no member.
        """
        try:
            return None if member is None else self.to_number[member]
        except (KeyError, TypeError) as error:
            words = ", ".join(str(known) for known in self.to_number)
            raise InvalidField(field, f"is {clipped(member)}, must be one of {words}") from error

    def all_sent(self, members: Iterable[E], field: str) -> list[Any]:
        """The wire's numbers of what a caller gave; raises InvalidField like `sent`."""
        several(members, field)
        return [self.sent(member, f"{field}[{index}]") for index, member in enumerate(members)]

    def from_v1(self, number: int, field: str) -> E:
        """Our member.

        Raises:
            InvalidField: the number is UNSPECIFIED, or one that this version does not know.
        """
        member = self.from_number.get(number)
        if member is None:
            raise InvalidField(field, "is not given" if number == 0 else f"is {number}, which is none of its values")
        return member

    def all_from_v1(self, numbers: Sequence[int], field: str) -> tuple[E, ...]:
        """Our members, in order; raises InvalidField like `from_v1`, or if there are more than `MAX_MEMBERS`."""
        if len(numbers) > MAX_MEMBERS:
            raise InvalidField(field, f"has {len(numbers):,} entries, at most {MAX_MEMBERS:,} are accepted")
        return tuple(self.from_v1(number, f"{field}[{index}]") for index, number in enumerate(numbers))


def child(field: str, name: str) -> str:
    """Path of a field inside of a message."""
    return f"{field}.{name}" if field else name


def entry(field: str, key: str) -> str:
    """Path of a map's entry."""
    return f'{field}["{key}"]'


def at_least(value: int | float, minimum: int | float, field: str) -> None:
    """Refuse a number below a minimum; NaN is always refused.

    Raises:
        InvalidField: it is smaller.
    """
    if not value >= minimum:
        raise InvalidField(field, f"is {value}, must be at least {minimum}")


def within(value: int | float, least: int | float, most: int | float, field: str) -> None:
    """Refuse a number that is not from a minimum to a maximum, both included.

    Raises:
        InvalidField: it is not.
    """
    if not least <= value <= most:
        raise InvalidField(field, f"is {value:,}, must be from {least:,} to {most:,}")


def above_to(value: float, above: float, most: float, field: str) -> None:
    """Refuse a number that is not above one and at most another.

    Raises:
        InvalidField: it is not.
    """
    if not above < value <= most:
        raise InvalidField(field, f"is {value}, must be above {above:g} and at most {most:g}")


def finite_map(values: Mapping[str, float], field: str) -> dict[str, float]:
    """The numbers of a map, keys in alphabetical order.

    Raises:
        InvalidField: one is not finite.
    """
    numbers = dict(sorted(values.items()))
    for key, value in numbers.items():
        if not math.isfinite(value):
            raise InvalidField(entry(field, key), f"is {value}, must be finite")
    return numbers


def finite_from_zero(value: float, field: str) -> float:
    """A number that is finite and at least 0, as tolerances are.

    Raises:
        InvalidField: it is not.
    """
    if not (math.isfinite(value) and value >= 0):
        raise InvalidField(field, f"is {value}, must be finite and at least 0")
    return value


def at_most_bytes(text: str | bytes, limit: int, field: str) -> None:
    """Refuse text that is too long as UTF-8, or too many bytes.

    Raises:
        InvalidField: it has more bytes.
    """
    if len(text) > limit or not (isinstance(text, bytes) or text.isascii() or len(text.encode()) <= limit):
        size = len(text if isinstance(text, bytes) else text.encode())
        raise InvalidField(field, f"has {size} bytes, at most {limit} are accepted")


def at_most_count(values: Sized, limit: int, field: str) -> None:
    """Refuse too many entries.

    Raises:
        InvalidField: there are more than the limit.
    """
    if len(values) > limit:
        raise InvalidField(field, f"has {len(values)} entries, at most {limit} are accepted")


def at_most_chars(text: str, limit: int, field: str) -> None:
    """Refuse a text that is too long.

    Raises:
        InvalidField: it has more characters.
    """
    if len(text) > limit:
        raise InvalidField(field, f"has {len(text):,} characters, at most {limit:,} are accepted")


def one_of(text: str, words: Sequence[str], field: str) -> None:
    """Refuse a text that is not in a list.

    Raises:
        InvalidField: it is not.
    """
    if text not in words:
        raise InvalidField(field, f"is {clipped(text)}, must be one of {', '.join(words)}")


def bounded(
    value: float,
    field: str,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
    finite: bool = False,
) -> None:
    """Refuse a number that is not within the bounds that are given; NaN is never within any.

    Raises:
        InvalidField: it is.
    """
    if finite and not math.isfinite(value):
        raise InvalidField(field, f"is {value}, must be finite")
    if not (least <= value <= most) or (above > -math.inf and not value > above):
        ends = [("at least", least), ("above", above), ("at most", most)]
        wanted = " and ".join(f"{words} {end:g}" for words, end in ends if math.isfinite(end))
        raise InvalidField(field, f"is {value}, must be {wanted}")


def none_empty(texts: Iterable[str], field: str) -> None:
    """Refuse texts if one is empty.

    Raises:
        InvalidField: names the first of them.
    """
    for index, text in enumerate(texts):
        if not text:
            raise InvalidField(f"{field}[{index}]", "is empty")


def bounded_texts(texts: Mapping[str, str], count: int, size: int, field: str) -> None:
    """Refuse a map of too many entries, or with a key or value that is too long.

    Raises:
        InvalidField: there are more than `count`, or one has more than `size` bytes.
    """
    at_most_count(texts, count, field)
    for key, value in texts.items():
        at_most_bytes(key, size, entry(field, key))
        at_most_bytes(value, size, entry(field, key))


@contextlib.contextmanager
def sendable(field: str) -> Iterator[None]:
    """Turn protobuf's refusals of a value into ours, at a field.

    Raises:
        InvalidField: a value has the wrong type, does not fit its width, or is text that UTF-8 cannot carry.
    """
    try:
        yield
    except _REFUSED as error:
        raise InvalidField(field, f"cannot be sent: {error}") from error


def encoded(encode: Callable[[T, str], M], value: T, field: str) -> M:
    """The message of a value at a field.

    Raises:
        InvalidField: it is of another type, or a value in it cannot be sent.
    """
    with sendable(field):
        return encode(value, field)


def each_encoded(encode: Callable[[T, str], M], values: Iterable[T], field: str) -> list[M]:
    """The messages of several values at a field.

    Raises:
        InvalidField: they are no sequence, or one of them cannot be sent.
    """
    with sendable(field):
        return [encode(value, f"{field}[{index}]") for index, value in enumerate(values)]


def each_decoded(decode: Callable[[M, str], T], messages: Iterable[M], field: str) -> tuple[T, ...]:
    """The values of several messages at a field; raises InvalidField like decoding one."""
    return tuple([decode(message, f"{field}[{index}]") for index, message in enumerate(messages)])


def numbers(values: Sequence[N]) -> tuple[N, ...]:
    """The numbers of a repeated field: at once all of a large one would hold the interpreter for a second."""
    if len(values) <= SLICE:
        return tuple(values)
    return tuple(chain.from_iterable(values[start : start + SLICE] for start in range(0, len(values), SLICE)))


def made(kind: Callable[..., M], field: str, /, **values: Any) -> M:
    """A message with these values.

    Args:
        kind: the message's class.
        field: its own path; empty for a request.
        **values: its fields by name.

    Raises:
        InvalidField: a value does not fit its field; it has the field's path, and what is expected there.
    """
    try:
        return kind(**values)
    except _REFUSED as refused:
        for name, value in values.items():
            _check_alone(kind, name, value, child(field, name))
        raise InvalidField(field, f"cannot be sent: {refused}") from refused


def exactly_made(kind: Callable[..., M], field: str, /, **values: Any) -> M:
    """A message with these values, like `made`, but a bool is not accepted as a number, nor a number as a bool."""
    fields = kind().DESCRIPTOR.fields_by_name
    for name, value in values.items():
        truth = fields[name].cpp_type == FieldDescriptor.CPPTYPE_BOOL
        if isinstance(value, bool) is not truth:
            raise InvalidField(child(field, name), f"is {clipped(value)}, must be {_WANTED[fields[name].cpp_type]}")
    return made(kind, field, **values)


def of_type(value: object, kind: type, field: str, example: str = "") -> None:
    """Refuse a value of another type, with an example of what is wanted: of a mapping, the type with its entries.

    Raises:
        InvalidField: it is.
    """
    if isinstance(value, kind):
        return
    name = kind.__name__
    if not example and isinstance(value, Mapping) and dataclasses.is_dataclass(kind):
        known = [
            f"{one.name}={_given_as(value[one.name], one)}" for one in dataclasses.fields(kind) if one.name in value
        ]
        example = shorten(f"{name}({', '.join(known)})", _MAX_EXAMPLE_BYTES) if known else ""
    wanted = f"{'an' if name[0] in 'AEIOU' else 'a'} {name}{example and f', such as {example}'}"
    raise InvalidField(field, f"is {type(value).__name__}, must be {wanted}")


def _given_as(value: object, field: dataclasses.Field[Any]) -> str:
    """A value as a field of a dataclass can have it: of another of our types, only that type."""
    wanted = getattr(types, str(field.type), None)
    if isinstance(wanted, type) and dataclasses.is_dataclass(wanted) and not isinstance(value, wanted):
        return f"{wanted.__name__}(...)"
    return repr(value)


def _check_alone(kind: Callable[..., Message], name: str, value: Any, path: str) -> None:
    """Refuse a value that its field cannot have; for a map, the error names the first such entry."""
    try:
        kind(**{name: value})
    except _REFUSED as error:
        empty = kind()
        descriptor = empty.DESCRIPTOR.fields_by_name[name]
        if descriptor.message_type is not None and descriptor.message_type.GetOptions().map_entry:
            if not isinstance(value, Mapping):
                raise InvalidField(path, f"is {clipped(value)}, must be a mapping") from error
            for key, item in value.items():
                with _refusing(entry(path, str(key)), item, descriptor.message_type.fields_by_name["value"]):
                    kind(**{name: {key: item}})
        repeated = hasattr(getattr(empty, name), "extend")
        with _refusing(path, value, None if repeated else descriptor):
            raise


@contextlib.contextmanager
def _refusing(path: str, value: Any, descriptor: Any) -> Iterator[None]:
    """Turn protobuf's refusal of a value into ours; if its type is wrong, it says what is expected."""
    try:
        yield
    except _REFUSED as error:
        wanted = None if descriptor is None else _WANTED.get(descriptor.cpp_type)
        fits = isinstance(value, str | bytes) if wanted == _TEXT else isinstance(value, int)
        if wanted is None or fits:  # too wide, not Unicode, or something within it
            raise InvalidField(path, f"cannot be sent: {error}") from error
        raise InvalidField(path, f"is {clipped(value)}, must be {wanted}") from error


def several(texts: Iterable[str], field: str) -> Iterable[str]:
    """A list of texts. A single one would be read as its characters, a mapping without its values.

    Raises:
        InvalidField: it is a single text, or a mapping.
    """
    if isinstance(texts, str | bytes):
        raise InvalidField(field, "is one text, must be a sequence of texts")
    if isinstance(texts, Mapping):
        raise InvalidField(field, f"is a {type(texts).__name__}, must be a sequence of texts: its values would be lost")
    return texts


def unicode_text(text: str) -> str:
    """Text that UTF-8 can carry: lone surrogates, as JSON escapes can make them, become U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
