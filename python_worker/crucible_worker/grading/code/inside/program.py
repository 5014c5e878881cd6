"""Runs an untrusted program, in a child of the zygote.

The program shares this interpreter and can do anything to it, this module included. Only values and names
of exceptions leave; they are judged elsewhere, by processes that the program never sees.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import operator
import random
import socket
import sys
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crucible_worker.grading.code.inside import wire
from crucible_worker.grading.code.inside.given_names import builtins_with_names

__all__ = ["LOADED", "run_script", "serve_calls"]

LOADED = "loaded"
"""Key of the message that says that a program was loaded."""

_MAX_MESSAGE_CHARS = 300
_MAX_NAME_CHARS = 60
_MAX_LINEAGE = 16  # base classes of an exception's class
_MAX_ARGUMENTS_BYTES = 4096  # bytes of an exception's arguments
_GIVES = {
    **{name: f"__{name}__" for name in ("iter", "len", "getitem", "reversed")},
    "keys": "keys",
}
_ITEMS_BYTES = 64 * 1024  # approximate size of iterator items that are sent at once


def serve_calls(channel: socket.socket) -> None:
    """Load a program, then call its functions for the requests of the channel, until it closes."""
    order = wire.receive(channel)
    nonce, limit = order["nonce"], order["max_bytes"]
    module = _module("program")
    if order["given_names"]:
        vars(module)["__builtins__"] = builtins_with_names()
    reply = _loaded(module, order["source"])
    wire.send(channel, {"nonce": nonce, **reply})
    kept = _Kept(module)
    while (asked := wire.receive(channel)) is not None:
        if LOADED not in reply:
            continue  # unread data would make closing the socket an error, and the reply might be lost
        answer = _answered(module, kept, asked)
        message = wire.pack({"nonce": nonce, **answer})
        if len(message) > limit and _exceeds(answer, limit):
            message = wire.pack({"nonce": nonce, "large": len(message)})
        channel.sendall(message)


def _exceeds(answer: Mapping[str, Any], limit: int) -> bool:
    return any(len(wire.written(answer[part])) > limit for part in (*wire.SIZED, "items") if part in answer)


class _Kept:
    """Objects of a run that stay here; the tests have their numbers."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}  # by identity
        self._nodes: wire.Nodes | None = None  # most runs have none

    def add(self, value: Any) -> int:
        """Keep an object; returns its number."""
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)
        return number

    def told(self, value: Any) -> Mapping[str, Any]:
        """Keep an object; returns a description for the tests."""
        bases = type(value).__mro__[:_MAX_LINEAGE]
        return {
            "object": self.add(value),
            "callable": callable(value),
            "lineage": [_name(value), *(base.__name__ for base in bases if self.named(base.__name__) is base)],
            "gives": [name for name, method in _GIVES.items() if hasattr(type(value), method)],
        }

    def find(self, number: int) -> Any:
        """A kept object."""
        return self._objects[number]

    def take(self, table: Sequence[Any]) -> None:
        """Update the nodes that arrived with a message."""
        if table:
            self._known().read(table, lambda written: wire.decode(written, self))

    def table(self) -> Mapping[str, Any]:
        """The nodes of the written message."""
        if self._nodes is None:
            return {}
        try:
            rows = self._nodes.table(lambda part: wire.encode(part, 1, self))
        finally:
            self._nodes.begin()
        return {"nodes": rows} if rows else {}

    def _known(self) -> wire.Nodes:
        if self._nodes is None:
            self._nodes = wire.Nodes(self.named, first=1)
        return self._nodes

    def write(self, value: Any) -> Any:
        """Iterators stay here, and give their items on request; see `wire.ObjectTable`."""
        if wire.is_node(value):
            return {"node": self._known().write(value)}
        if hasattr(type(value), "__next__") and hasattr(type(value), "__iter__"):
            return {"iterator": self.add(value)}
        return {"object": self.told(value)}

    def read(self, mark: str, content: Any) -> Any:
        """Iterators of the tests come with all of their items."""
        if mark == "node":
            return self._known().find(content)
        if mark == "iterator":
            return iter([wire.decode(item, self) for item in content])
        if mark == "object":
            return self._objects[content]
        raise ValueError(f"no written value has the mark {mark!r:.20}")

    def named(self, name: str) -> Any:
        """The object of the program by a name."""
        return vars(self._module).get(name)


def run_script(channel: socket.socket) -> None:
    """Run a program as Python runs a script, to the end of its threads, with its own standard input and output."""
    order = wire.receive(channel)
    module = _module("__main__")
    reply = _loaded(module, order["source"])
    # In the interpreter's order; the interpreter also ignores exceptions here.
    with contextlib.suppress(BaseException):
        vars(threading)["_shutdown"]()
    atexit._run_exitfuncs()
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except Exception as error:
        reply = _raised(error)
    _emptied(module)
    # The reader of the output waits for its end: then the message has arrived, too.
    wire.send(channel, {"nonce": order["nonce"], **reply})


def _emptied(module: types.ModuleType) -> None:
    """Clear a module's objects like the interpreter at its end: open files write their buffers."""
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    names = vars(module)
    for private in (True, False):
        for name in [name for name in names if (name[:1] == "_" and name[1:2] != "_") or not private]:
            if name != "__builtins__":
                names[name] = None
    gc.collect()
    if sys.__stdout__ is not None and not sys.__stdout__.closed:
        sys.__stdout__.flush()


def _module(name: str) -> types.ModuleType:
    module = types.ModuleType(name)
    sys.modules[name] = module
    random.seed(0)  # the same program, the same grade
    return module


def _loaded(module: types.ModuleType, source: str) -> Mapping[str, Any]:
    try:
        exec(compile(source, "<program>", "exec"), module.__dict__)
    except SystemExit as end:
        if module.__name__ == "__main__" and end.code in (None, 0):
            return {LOADED: True}
        return _raised(end)
    except BaseException as error:
        return _raised(error)
    return {LOADED: True}


def _answered(module: types.ModuleType, kept: _Kept, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """Handle a request to the program, or to one of its objects that is kept for the tests."""
    holder = module if asked["object"] is None else kept.find(asked["object"])
    if "held" in asked:
        return _number_of(module, kept, asked["held"])
    if "attribute" in asked:
        return _attribute(holder, kept, asked["attribute"])
    if "next" in asked:
        return _items(holder, kept, asked["next"])
    return _called(holder, kept, asked)


def _number_of(module: types.ModuleType, kept: _Kept, name: str) -> Mapping[str, Any]:
    """The number of a named object of the program."""
    return {"object": kept.add(getattr(module, name))} if hasattr(module, name) else {"missing": True}


def _attribute(holder: Any, kept: _Kept, name: str) -> Mapping[str, Any]:
    try:
        value = getattr(holder, name)
        return {"method": True} if callable(value) else _written(value, kept)
    except BaseException as error:
        return _raised(error)


def _items(holder: Any, kept: _Kept, count: int) -> Mapping[str, Any]:
    """The next items of an iterator, at most so many; fewer if they are large, end, or end with an exception."""
    items: list[Any] = []
    last: Mapping[str, Any] = {}
    size = 0
    while len(items) < count and size < _ITEMS_BYTES and not last:
        try:
            item = next(holder)
        except StopIteration:
            last = {"done": True}
        except BaseException as error:
            last = _raised(error)
        else:
            written = _written(item, kept)
            if "value" not in written:
                last = written
                break
            items.append(written)
            size += len(str(written))
    return {**last, "items": items}


def _called(holder: Any, kept: _Kept, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """Call a function; returns its value, and the arguments that it changed."""
    kept.take(asked.get("nodes", ()))
    arguments: Sequence[Any] = wire.decode(asked["arguments"], kept)
    named: Mapping[str, Any] = wire.decode(asked["named"], kept)
    if asked["object"] is None and not _defined(holder, asked):
        return {"missing": True}
    try:
        called = _callable(holder, asked)
        value = called(*arguments, **named) if callable(called) else _awaited(called)
        answer = _made(value, kept) if asked["keep"] else _written(value, kept)
    except BaseException as error:
        answer = _raised(error)
    if not asked["changes"]:
        return answer
    changes = _changes([list(arguments), dict(named)], answer, asked, kept)
    return changes if "opaque" in changes else {**answer, **changes}


def _changes(
    given: Sequence[Any], answer: Mapping[str, Any], asked: Mapping[str, Any], kept: _Kept
) -> Mapping[str, Any]:
    """The arguments after the call. Objects that stay here are not examined."""
    stay = [isinstance(each, dict) and "object" in each for each in asked["arguments"]]
    now = [None if here else argument for here, argument in zip(stay, given[0])]
    before = [None if here else argument for here, argument in zip(stay, asked["arguments"])]
    after = _written([now, given[1]], kept)
    if "value" not in after:
        return {"opaque": f"{after['opaque']} put into an argument"}
    rows = {row[0]: row for row in (*answer.get("nodes", ()), *after.get("nodes", ()))}
    changed = {"nodes": [*rows.values()]} if rows else {}
    return changed if after["value"] == [before, asked["named"]] else {**changed, "changed": after["value"]}


def _written(value: Any, kept: _Kept) -> Mapping[str, Any]:
    """A value, or the description of one that does not pass."""
    try:
        written = wire.encode(value, 0, kept)
    except wire.NotPlain as error:
        return {"opaque": f"{_name(value)} with {error}", **kept.told(value)}
    if isinstance(written, dict) and "object" in written:
        return {"opaque": _name(value), **kept.told(value)}
    return {"value": written, **kept.table()}


def _name(value: Any) -> str:
    return type(value).__name__[:_MAX_NAME_CHARS]


def _awaited(coroutine: Any) -> Any:
    import asyncio  # rarely needed

    return asyncio.run(coroutine)


def _made(value: Any, kept: _Kept) -> Mapping[str, Any]:
    """An instance that a class made: it stays here as an object, even if it is a list too."""
    if type(value).__module__ == "builtins" or (wire.is_node(value) and wire.is_bare(value)):
        return _written(value, kept)
    return {"object": kept.add(value)}


def _defined(module: types.ModuleType, asked: Mapping[str, Any]) -> bool:
    names = [asked["function"], *([wire.SOLUTION] if asked["solution"] else [])]
    return any(hasattr(module, name) for name in names)


def _callable(holder: Any, asked: Mapping[str, Any]) -> Any:
    """The callable or awaitable: an object, an operation on it, or a function by its name."""
    if asked.get("operation"):
        return functools.partial(_OPERATIONS[asked["function"]], holder)
    return holder if asked["function"] is None else _function(holder, asked)


def _function(holder: Any, asked: Mapping[str, Any]) -> Any:
    """The callable: a function, or a method of LeetCode's class if that may be meant."""
    name = asked["function"]
    if asked["solution"] and not hasattr(holder, name) and hasattr(holder, wire.SOLUTION):
        holder = getattr(holder, wire.SOLUTION)()
    return getattr(holder, name)


def _is_instance(kind: Any, value: Any) -> bool | None:
    """Whether a value is an instance; None if its class is no longer known, after it passed as its base class."""
    if isinstance(value, kind):
        return True
    return None if isinstance(kind, type) and kind is not type(value) and issubclass(kind, type(value)) else False


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "iter": lambda holder: (item for item in holder),
    "is_instance": _is_instance,
    "is_subclass": lambda kind, other: issubclass(other, kind),
    **{name: getattr(operator, name) for name in ("getitem", "setitem", "delitem", "contains")},
    **{kind.__name__: kind for kind in (len, reversed, bool, str, repr)},
}
"""An operation of tests on an object that names no method."""


def _raised(error: BaseException) -> Mapping[str, Any]:
    kind = type(error)
    try:
        message = str(error)[:_MAX_MESSAGE_CHARS]
    except BaseException:  # the program's own `__str__` may raise anything: the exception then has no message
        message = ""
    # The tests know Python's own of these classes, and those that they name.
    lineage = [base.__name__[:_MAX_NAME_CHARS] for base in kind.__mro__[:_MAX_LINEAGE]]
    return {"raised": lineage[0], "lineage": lineage, "message": message, **_arguments(error)}


def _arguments(error: BaseException) -> Mapping[str, Any]:
    """The arguments of an exception, if they are plain and short."""
    try:
        written = wire.encode(list(error.args))
        return {"arguments": written} if len(wire.pack(written)) <= _MAX_ARGUMENTS_BYTES else {}
    except Exception:  # the program's own objects, or values that do not pass: the exception passes without them
        return {}
