"""Paths of fields as errors name them, and the checks that every message needs.

Paths read like `evaluators[1].options["k"]`; the path of a request itself is empty.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from crucible_bridge.errors import InvalidField

__all__ = ["EnumPair", "at_least", "at_most_bytes", "child", "entry", "sendable", "several", "unicode_text"]

E = TypeVar("E", bound=enum.StrEnum)


class EnumPair(Generic[E]):
    """An enum of ours and its twin on the wire, joined by their names."""

    def __init__(self, ours: type[E], wire: Any, prefix: str) -> None:
        self.to_number: Mapping[E, Any] = {member: wire.Value(prefix + member.name) for member in ours}
        self.from_number: Mapping[int, E] = {number: member for member, number in self.to_number.items()}

    def to_v1(self, member: E) -> Any:
        """The wire's number."""
        return self.to_number[member]

    def from_v1(self, number: int, field: str) -> E:
        """Our member.

        Raises:
            InvalidField: the number is UNSPECIFIED, or one that this version does not know.
        """
        member = self.from_number.get(number)
        if member is None:
            raise InvalidField(field, "is not given" if number == 0 else f"is {number}, which is none of its values")
        return member

    def all_from_v1(self, numbers: Iterable[int], field: str) -> tuple[E, ...]:
        """Our members, in order; raises InvalidField like `from_v1`."""
        return tuple(self.from_v1(number, f"{field}[{index}]") for index, number in enumerate(numbers))


def child(field: str, name: str) -> str:
    """Path of a field inside of a message."""
    return f"{field}.{name}" if field else name


def entry(field: str, key: str) -> str:
    """Path of a map's entry."""
    return f'{field}["{key}"]'


def at_least(value: int | float, minimum: int, field: str) -> None:
    """Refuse a number below a minimum; NaN is below everything.

    Raises:
        InvalidField: it is smaller.
    """
    if not value >= minimum:
        raise InvalidField(field, f"is {value}, must be at least {minimum}")


def at_most_bytes(text: str, limit: int, field: str) -> None:
    """Refuse text that is too long.

    Raises:
        InvalidField: it has more bytes of UTF-8 than the limit.
    """
    if len(text) > limit or (not text.isascii() and len(text.encode()) > limit):
        raise InvalidField(field, f"has {len(text.encode())} bytes, at most {limit} are accepted")


@contextlib.contextmanager
def sendable(field: str) -> Iterator[None]:
    """Turn protobuf's refusals of a value into ours, at a field.

    Raises:
        InvalidField: a value has the wrong type, does not fit its width, or is text that UTF-8 cannot carry.
    """
    try:
        yield
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidField(field, f"cannot be sent: {error}") from error


def several(texts: Iterable[str], name: str) -> Iterable[str]:
    """The texts, where several are asked for: a single one would be taken for its characters.

    Raises:
        TypeError: it is a single text; `sendable` makes an InvalidField of it.
    """
    if isinstance(texts, str):
        raise TypeError(f"{name} is one text, not a sequence of texts")
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
