"""What crosses the wall of a sandbox: messages in frames, plain values as JSON, nodes. Nothing else does.

Both sides use it, the worker and the process in the sandbox.
"""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import fractions
import json
import math
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from crucible_worker.children.frames import frame
from crucible_worker.children.frames import receive as receive_body

__all__ = [
    "ENVELOPE_BYTES",
    "ITEM_TYPES",
    "MAX_DEPTH",
    "MAX_ORDER_BYTES",
    "READY",
    "SCRATCH",
    "SIZED",
    "SOLUTION",
    "Nodes",
    "NotPlain",
    "ObjectTable",
    "asking",
    "decode",
    "encode",
    "is_bare",
    "is_ndarray",
    "is_node",
    "most_bytes",
    "pack",
    "receive",
    "send",
    "written",
]

# Linked lists, trees and graphs in LeetCode's form, which pass between a program and its tests.
#
# A node is an instance of a class `ListNode`, `TreeNode` or `Node` that has only LeetCode's attributes: `val` with
# `next`, `left`, `right` and the like. Each has a number, the same on both sides during the whole run: a node that
# comes back is the one that was sent, with its changes. So a node can be identified by `is`, a list can be changed in
# place, and cycles are possible. A message with nodes has a table of all nodes that are reachable from it.
#
# On either side a node is an instance of the class with its name there, or of a bare class if there is none.

_CLASSES = frozenset({"ListNode", "TreeNode", "Node"})
_ATTRIBUTES = frozenset({"val", "next", "prev", "random", "child", "left", "right", "parent", "children", "neighbors"})


class Nodes:
    """The nodes that have been sent or received.

    Args:
        named: finds an object of this side by name; its classes, or None.
        first: the number of the first node found on this side: 0 or 1; the other side has the other.
    """

    def __init__(self, named: Callable[[str], Any], first: int) -> None:
        self._named, self._next = named, first
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}  # by identity; `_objects` keeps them alive
        self._reached: set[int] = set()
        self._waiting: list[int] = []
        self._bare: dict[str, type[Any]] = {}

    def write(self, node: Any) -> int:
        """The number of a node, for the current message."""
        number = self._numbers.get(id(node))
        if number is None:
            number, self._next = self._next, self._next + 2
            self._remember(number, node)
        if number not in self._reached:
            self._reached.add(number)
            self._waiting.append(number)
        return number

    def begin(self) -> tuple[set[int], list[int]]:
        """Begin to write a message; returns the argument for `end`, in case another message was being written."""
        outer = self._reached, self._waiting
        self._reached, self._waiting = set(), []
        return outer

    def end(self, outer: tuple[set[int], list[int]]) -> None:
        """End the current message, written or not."""
        self._reached, self._waiting = outer

    def table(self, encode: Callable[[Any], Any]) -> list[Any]:
        """All nodes that are reachable from the written message."""
        rows: list[Any] = []
        for number in self._waiting:  # it grows meanwhile
            node = self._objects[number]
            attributes = [[name, encode(value)] for name, value in (_attributes(node) or {}).items()]
            rows.append([number, type(node).__name__, attributes])
        return rows

    def read(self, table: Sequence[Any], decode: Callable[[Any], Any]) -> None:
        """Update nodes, and make new ones.

        Raises:
            ValueError: it is not a table of nodes.
        """
        try:
            for number, name, attributes in table:
                if number not in self._objects:
                    self._remember(number, object.__new__(self._class(name)))
                if any(attribute not in _ATTRIBUTES for attribute, _ in attributes):
                    raise ValueError("a node has an unknown attribute")
            for number, _, attributes in table:
                for attribute, written in attributes:
                    setattr(self._objects[number], attribute, decode(written))
        except (TypeError, AttributeError) as error:
            raise ValueError(f"not a table of nodes: {error}") from None

    def find(self, number: Any) -> Any:
        """A node.

        Raises:
            ValueError: there is no node with this number.
        """
        if type(number) is not int or number not in self._objects:
            raise ValueError("a node that is in no table")
        return self._objects[number]

    def is_met(self, value: Any) -> bool:
        """Whether a value is a node that was sent or received."""
        return id(value) in self._numbers

    def _remember(self, number: Any, node: Any) -> None:
        if type(number) is not int:
            raise ValueError("a node's number is an integer")
        self._objects[number] = node
        self._numbers[id(node)] = number

    def _class(self, name: Any) -> type[Any]:
        if name not in _CLASSES:
            raise ValueError("an unknown class of nodes")
        known = self._named(name)
        return known if isinstance(known, type) else self._bare.setdefault(name, type(name, (), {}))


def _attributes(value: Any) -> dict[str, Any] | None:
    """The attributes of a node; None if the value is not a node."""
    names = list(vars(value)) if hasattr(value, "__dict__") else [name for name in _ATTRIBUTES if hasattr(value, name)]
    if "val" not in names or not _ATTRIBUTES.issuperset(names):
        return None
    return {name: getattr(value, name) for name in sorted(names)}


def is_node(value: Any) -> bool:
    """Whether a value is a node."""
    return type(value).__name__ in _CLASSES and _attributes(value) is not None


def is_bare(value: Any) -> bool:
    """Whether a node's class has no methods except Python's own, like LeetCode's."""
    kind = type(value)
    return not any(callable(getattr(kind, name, None)) for name in dir(kind) if not name.startswith("_"))


# Messages between the worker and the process in a sandbox: JSON in UTF-8, in frames.
#
# Half of a surrogate pair, which a program's text may contain, is written as its three bytes.

MAX_ORDER_BYTES = 4096
"""Bytes of a message on a zygote's control socket, in either direction."""
ENVELOPE_BYTES = 8192
"""Bytes of an answer without its values, at most: the nonce and the description of an exception."""
SIZED = ("value", "changed", "nodes")
"""Parts of an answer that count against the limit on returned values, each separately."""
READY = b"ready"
"""The first message of a zygote."""
SCRATCH = "/tmp"
"""The only writable folder of a sandbox."""


def pack(message: Any) -> bytes:
    """A message as a frame."""
    return frame(written(message))


def written(value: Any) -> bytes:
    """A value as written in a message; this length counts against the limit on returned values."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def most_bytes(answer: Mapping[str, Any], limit: int) -> int:
    """The length limit of an answer in which each of `SIZED` may have so many bytes."""
    return limit * (1 + sum(part in answer for part in SIZED[1:])) + ENVELOPE_BYTES


def send(channel: socket.socket, message: Any) -> None:
    """Send a message; blocks."""
    channel.sendall(pack(message))


def receive(channel: socket.socket) -> Any:
    """Wait for a message; None if there will be none."""
    body = receive_body(channel)
    return None if body is None else json.loads(body)


# Plain values as JSON: other values do not cross the wall.
#
#     null, true, 1, 1.5, "text"      themselves
#     [...]                           a list
#     {"t": [...]}                    a tuple; "s" a set, "z" a frozenset
#     {"d": [[key, value], ...]}      a dict
#     {"i": "ff"}, {"f": "nan"}       an integer beyond 64 bits, a float that is not finite
#     {"b": "00ff"}, {"c": [1.0, 2.0]}, {"q": ["1", "2"]}, {"m": "1.50"}, {"r": [0, 9, 2]}
#                                     bytes, complex, Fraction and Decimal, range
#     {"named": ["Point", ["x", "y"], [1, 2]]}            a named tuple
#     {"counter": [[key, value], ...]}                    a Counter; "ordered" an OrderedDict
#     {"default": ["int", [[key, value], ...]]}           a defaultdict, and its factory if that is a type of Python
#     {"keys": [...]}, {"values": [...]}, {"items": [[key, value], ...]}          views of a dict
#     {"deque": [[...], 9]}, {"array": ["i", [...]]}, {"bytearray": "00ff"}
#     {"ndarray": ["int64", [2, 3], [...]]}               an array of numpy: its type, shape and items, in rows
#     {"date": "2026-11-23"}, {"datetime": ...}, {"time": ...}, {"delta": [days, seconds, microseconds]}
#
# A number of numpy is written as Python's own.
#
# Objects that are not values are written by an `ObjectTable`, which recognises them: iterators, nodes of lists and
# trees, and objects that stay with the program.
#
# An instance of any other subclass is written as its plain base class. Whatever a program reports, only values of types
# that are read here arrive at the other side.

MAX_DEPTH = 100
"""Levels of containers."""

SOLUTION = "Solution"
"""The class that has LeetCode's functions as methods."""

ITEM_TYPES: Mapping[str, type[Any]] = {
    "bool": bool,
    **dict.fromkeys((f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), int),
    **dict.fromkeys(("float16", "float32", "float64"), float),
    **dict.fromkeys(("complex64", "complex128"), complex),
}
"""Types of numpy that pass, and the types of Python for their items."""

_WORD_BITS = 63
_MAX_FIELDS = 255
_FACTORIES: Mapping[str, Callable[[], Any]] = {
    kind.__name__: kind for kind in (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict)
}


class NotPlain(Exception):
    """A value cannot be written: an object of some other type, or one with too many levels."""


class ObjectTable(Protocol):
    """Objects of a run that one side keeps, so that more than values can pass."""

    def write(self, value: Any) -> Any:
        """Write an object that `encode` cannot write, or raise `NotPlain`."""
        ...

    def read(self, mark: str, content: Any) -> Any:
        """Read the output of the other side's `write`, or raise `ValueError`."""
        ...

    def named(self, name: str) -> Any:
        """The object with this name on this side, or None."""
        ...


def asking(
    function: str | None,
    arguments: Any,
    named: Any,
    *,
    of: int | None = None,
    keep: bool = False,
    changes: bool = False,
    solution: bool = False,
) -> dict[str, Any]:
    """The message that makes a program call a function.

    Args:
        function: its name; None if an object itself is called or awaited.
        arguments: an encoded list.
        named: an encoded dict.
        of: the object, kept by the program; the program itself if None.
        keep: whether to keep a resulting object.
        changes: whether to report changes of the arguments.
        solution: whether the function may be a method of the class `SOLUTION`, if the program has no such function.
    """
    return {
        "function": function,
        "arguments": arguments,
        "named": named,
        "object": of,
        "keep": keep,
        "changes": changes,
        "solution": solution,
    }


def encode(value: Any, depth: int = 0, kept: ObjectTable | None = None) -> Any:
    """Write a value as JSON.

    Raises:
        NotPlain: the value, or one in it, is not plain; the text names its type.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _WORD_BITS else {"i": format(int(value), "x")}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"f": repr(float(value))}
    if isinstance(value, str):
        return str(value)
    if depth == MAX_DEPTH:
        raise NotPlain(f"a value with more than {MAX_DEPTH} levels")
    below = depth + 1
    if isinstance(value, list):
        return [encode(item, below, kept) for item in value]
    if isinstance(value, tuple):
        return _encode_tuple(value, below, kept)
    for kind, name in ((set, "s"), (frozenset, "z")):
        if isinstance(value, kind):
            return {name: [_encode_key(item, below, kept) for item in value]}
    if isinstance(value, dict):
        return _encode_dict(value, below, kept)
    if (written := _encode_rare(value)) is None and (written := _encode_container(value, below, kept)) is None:
        if (written := _encode_numpy(value)) is None and kept is None:
            raise NotPlain(_name(value))
        return kept.write(value) if written is None and kept is not None else written
    return written


def decode(written: Any, kept: ObjectTable | None = None) -> Any:
    """Read the output of `encode`.

    Raises:
        ValueError: it is not a form that `encode` writes.
    """
    if isinstance(written, list):
        return [decode(item, kept) for item in written]
    if not isinstance(written, dict):
        return written
    if len(written) != 1:
        raise ValueError("a written value has one mark")
    ((mark, content),) = written.items()
    reader = _READERS.get(mark)
    try:
        if reader is not None:
            return reader(content, kept)
        if kept is not None:
            return kept.read(mark, content)
    except (TypeError, ArithmeticError, LookupError) as error:
        raise ValueError(f"malformed after the mark {mark!r}: {error}") from None
    raise ValueError(f"no written value has the mark {mark!r:.20}")


def _encode_tuple(value: tuple[Any, ...], below: int, kept: ObjectTable | None) -> Any:
    items = [encode(item, below, kept) for item in value]
    fields = getattr(type(value), "_fields", None)
    if not isinstance(fields, tuple) or not 0 < len(fields) == len(items) <= _MAX_FIELDS:
        return {"t": items}
    return {"named": [_name(value), [str(field) for field in fields], items]}


def _encode_dict(value: dict[Any, Any], below: int, kept: ObjectTable | None) -> Any:
    items = [[_encode_key(key, below, kept), encode(item, below, kept)] for key, item in value.items()]
    if isinstance(value, collections.Counter):
        return {"counter": items}
    if isinstance(value, collections.OrderedDict):
        return {"ordered": items}
    if isinstance(value, collections.defaultdict):
        factory = value.default_factory
        return {"default": [next((name for name, kind in _FACTORIES.items() if kind is factory), None), items]}
    return {"d": items}


def _encode_key(value: Any, below: int, kept: ObjectTable | None) -> Any:
    """A key of a dict or an element of a set. An object cannot be one, as it has no hash there."""
    written = encode(value, below, kept)
    waiting = [written] if isinstance(written, dict) else []
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict) and "object" in part:
            raise NotPlain(_name(value))
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return written


def _encode_container(value: Any, below: int, kept: ObjectTable | None) -> Any:
    if isinstance(value, collections.deque):
        return {"deque": [[encode(item, below, kept) for item in value], value.maxlen]}
    if isinstance(value, array.array):
        return {"array": [value.typecode, [encode(item) for item in value]]}
    if isinstance(value, _KEYS):
        return {"keys": [_encode_key(item, below, kept) for item in value]}
    if isinstance(value, _VALUES):
        return {"values": [encode(item, below, kept) for item in value]}
    if isinstance(value, _ITEMS):
        return {"items": [[_encode_key(key, below, kept), encode(item, below, kept)] for key, item in value]}
    return None


def _encode_numpy(value: Any) -> Any:
    """A number or an array of numpy, if it is loaded; None for anything else."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.generic | numpy.ndarray) or value.dtype.name not in ITEM_TYPES:
        return None
    if isinstance(value, numpy.generic):
        return encode(value.item())
    if not is_ndarray(value):  # a matrix multiplies differently, a masked array lacks some values
        return None
    return {"ndarray": [value.dtype.name, list(value.shape), [encode(item) for item in value.ravel().tolist()]]}


def is_ndarray(value: Any) -> bool:
    """Whether a value is an array of numpy, not of a subclass."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray


def _encode_rare(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"b": value.hex()}
    if isinstance(value, bytearray):
        return {"bytearray": value.hex()}
    if isinstance(value, complex):
        return {"c": [encode(value.real), encode(value.imag)]}
    if isinstance(value, fractions.Fraction):
        return {"q": [format(value.numerator, "x"), format(value.denominator, "x")]}
    if isinstance(value, decimal.Decimal):
        return {"m": str(value)}
    if isinstance(value, range):
        return {"r": [encode(value.start), encode(value.stop), encode(value.step)]}
    return _encode_time(value)


def _encode_time(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return {"delta": [value.days, value.seconds, value.microseconds]}
    zone = value.tzinfo if isinstance(value, datetime.datetime | datetime.time) else None
    if zone is not None and not isinstance(zone, datetime.timezone):
        raise NotPlain(f"a time with the zone {_name(zone)}")
    if isinstance(value, datetime.datetime):
        return {"datetime": datetime.datetime.isoformat(value)}
    if isinstance(value, datetime.time):
        return {"time": datetime.time.isoformat(value)}
    return {"date": datetime.date.isoformat(value)} if isinstance(value, datetime.date) else None


def _name(value: Any) -> str:
    return type(value).__name__[:60]


def _named(content: Any, kept: ObjectTable | None) -> tuple[Any, ...]:
    """A named tuple: of this side's class with its name and fields, or of a new class."""
    name, fields, written = content
    items = decode(written, kept)
    known = None if kept is None else kept.named(name)
    if isinstance(known, type) and issubclass(known, tuple) and getattr(known, "_fields", None) == tuple(fields):
        return tuple.__new__(known, items)
    if len(items) != len(fields) or len(fields) > _MAX_FIELDS:
        raise ValueError("a named tuple has as many items as fields")
    return tuple.__new__(collections.namedtuple(name, fields), items)  # it refuses invalid names


def _pairs(content: Any, kept: ObjectTable | None) -> Iterator[tuple[Any, Any]]:
    return ((decode(key, kept), decode(item, kept)) for key, item in content)


def _each(content: Sequence[Any], kept: ObjectTable | None) -> Iterator[Any]:
    return (decode(item, kept) for item in content)


def _ordered(content: Any, kept: ObjectTable | None) -> dict[Any, Any]:
    return collections.OrderedDict(_pairs(content, kept))


def _default(content: Any, kept: ObjectTable | None) -> dict[Any, Any]:
    name, items = content
    return collections.defaultdict(None if name is None else _FACTORIES[name], _pairs(items, kept))


def _deque(content: Any, kept: ObjectTable | None) -> collections.deque[Any]:
    items, length = content
    return collections.deque(_each(items, kept), length)


def _array(content: Any, kept: ObjectTable | None) -> Any:
    kind, items = content
    return array.array(kind, [decode(item) for item in items])


def _ndarray(content: Any, kept: ObjectTable | None) -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        raise ValueError("an array, but numpy is not loaded")
    name, shape, items = content
    kind = ITEM_TYPES[name]
    decoded = [decode(item) for item in items]
    if any(type(item) is not kind for item in decoded):
        raise ValueError(f"an array of {name!r} has an item of another type")
    return numpy.array(decoded, dtype=name).reshape(shape)


_KEYS, _VALUES, _ITEMS = type({}.keys()), type({}.values()), type({}.items())
_READERS: Mapping[str, Callable[[Any, ObjectTable | None], Any]] = {
    "t": lambda content, kept: tuple(_each(content, kept)),
    "s": lambda content, kept: set(_each(content, kept)),
    "z": lambda content, kept: frozenset(_each(content, kept)),
    "d": lambda content, kept: dict(_pairs(content, kept)),
    "i": lambda content, kept: int(content, 16),
    "f": lambda content, kept: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[content],
    "b": lambda content, kept: bytes.fromhex(content),
    "c": lambda content, kept: complex(*_each(content, kept)),
    "q": lambda content, kept: fractions.Fraction(*(int(part, 16) for part in content)),
    "m": lambda content, kept: decimal.Decimal(content),
    "r": lambda content, kept: range(*_each(content, kept)),
    "named": _named,
    "counter": lambda content, kept: collections.Counter(dict(_pairs(content, kept))),
    "ordered": _ordered,
    "default": _default,
    "keys": lambda content, kept: dict.fromkeys(_each(content, kept)).keys(),
    "values": lambda content, kept: dict(enumerate(_each(content, kept))).values(),
    "items": lambda content, kept: dict(_pairs(content, kept)).items(),
    "deque": _deque,
    "array": _array,
    "ndarray": _ndarray,
    "bytearray": lambda content, kept: bytearray.fromhex(content),
    "date": lambda content, kept: datetime.date.fromisoformat(content),
    "datetime": lambda content, kept: datetime.datetime.fromisoformat(content),
    "time": lambda content, kept: datetime.time.fromisoformat(content),
    "delta": lambda content, kept: datetime.timedelta(*content),
}
