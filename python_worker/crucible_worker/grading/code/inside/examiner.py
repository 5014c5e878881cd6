"""Runs tests, in a child of a zygote that never runs a program: a function of the program is a proxy here.

A call of it travels out through the worker, and a plain value comes back. What is compared with what was expected is
therefore always a value of Python's own types, or an `Opaque`, which equals nothing and can do nothing. What the tests
themselves use as a class gives an `Instance`: its methods are proxies as well, and that is all there is to it.
"""

from __future__ import annotations

import random
import socket
import sys
import threading
import types
from collections.abc import Mapping
from typing import Any, NoReturn

from crucible_worker.grading.code.inside import errors, frames, values

__all__ = ["Failed", "Instance", "Opaque", "Unpassable", "examine"]

_MAX_MESSAGE_CHARS = 300
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_PLAIN_TYPES = (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, range)
_PLAIN_ATTRIBUTES = frozenset(name for kind in _PLAIN_TYPES for name in dir(kind))


class Failed(BaseException):
    """The program fails its test, whatever the test would make of it: no `except Exception` holds it up."""


class Unpassable(BaseException):
    """The test needs what cannot be passed between program and test."""


def examine(channel: socket.socket) -> None:
    """Run tests, and say how they ended."""
    order = frames.receive(channel)
    guards = errors.Guards(order["names"])
    caller = _Caller(channel, order["nonce"], guards)
    module = types.ModuleType("tests")
    sys.modules["tests"] = module
    random.seed(0)  # the same program, the same grade
    try:
        codes = [errors.compiled(source, guards) for source in order["sources"]]
        for name, is_class in order["names"].items():
            setattr(module, name, guards.classes.get(name) or caller.proxy(name, is_class=is_class))
        setattr(module, errors.GUARDS, guards)
        for code in codes:
            exec(code, module.__dict__)
        told: dict[str, Any] = {"passed": True}
    except Unpassable as error:
        told = {"unpassable": str(error)}
    except BaseException as error:
        native = errors.native_of(error)
        told = {"failed": type(native).__name__, "message": _message(native), "line": _line(error)}
        if errors.is_own(error) and isinstance(error, SystemExit) and error.code in (None, 0):
            told = {"passed": True}
    caller.tell(told)


class Opaque:
    """What a program returned that is no plain value: its word is worth nothing, so that it has none."""

    __slots__ = ("_caller", "_function", "_kind")

    def __init__(self, caller: _Caller, function: str, kind: str) -> None:
        self._caller, self._function, self._kind = caller, function, kind

    def _fail(self, *arguments: object) -> Any:
        self._caller.fail(f"{self._function} returned {self._kind}, which is no plain value")

    def __getattr__(self, name: str) -> Any:
        # No plain value has it: then the tests want an object, and it is not the program that is to blame.
        if name not in _PLAIN_ATTRIBUTES and not name.startswith("__"):
            self._caller.give_up(f"the tests use .{name} of what {self._function} returned, and objects cannot pass")
        return self._fail()

    __hash__ = _fail


class Instance:
    """An object that the tests made of a class of the program's; it stays there."""

    __slots__ = ("_caller", "_class", "_number")

    def __init__(self, caller: _Caller, name: str, number: int) -> None:
        self._caller, self._class, self._number = caller, name, number

    def _fail(self, *arguments: object) -> Any:
        self._caller.give_up(f"the tests use an object of {self._class} for more than its methods")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            return self._fail()
        return self._caller.attribute(self._class, self._number, name)

    def _compared(self, other: object) -> Any:
        # Where a plain value is expected, an object is as wrong as what any function returns that is none.
        if not isinstance(other, Instance):
            self._caller.fail(f"{self._class} gave an object, which is no plain value")
        return self._fail()

    __hash__ = _fail


for _name in (
    *("eq", "ne", "lt", "le", "gt", "ge", "bool", "len", "iter", "next", "contains", "getitem", "setitem", "call"),
    *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod"),
    *("pow", "rpow", "divmod", "rdivmod", "and", "rand", "or", "ror", "xor", "rxor", "lshift", "rlshift", "rshift"),
    *("rrshift", "neg", "pos", "abs", "invert", "int", "float", "complex", "index", "round", "str", "repr", "format"),
    *("bytes", "reversed", "enter", "exit", "await", "delitem"),
):
    setattr(Opaque, f"__{_name}__", Opaque._fail)
    setattr(Instance, f"__{_name}__", Instance._compared if _name in _COMPARISONS else Instance._fail)


class _Caller:
    """Carries calls to the program."""

    def __init__(self, channel: socket.socket, nonce: str, guards: errors.Guards) -> None:
        self._channel, self._nonce, self._guards = channel, nonce, guards
        self._verdict: Mapping[str, Any] | None = None
        self._turn = threading.Lock()  # tests may have threads

    def tell(self, verdict: Mapping[str, Any]) -> None:
        """Say how the tests ended; what was once seen stays true, whatever they have caught since."""
        with self._turn:
            frames.send(self._channel, {"nonce": self._nonce, **(self._verdict or verdict)})

    def proxy(self, name: str, *, is_class: bool) -> Any:
        """What stands for a function of the program."""

        def call(*arguments: Any, **named: Any) -> Any:
            return self._call(name, arguments, named, is_class=is_class)

        call.__name__ = call.__qualname__ = name
        return call

    def attribute(self, owner: str, number: int, name: str) -> Any:
        """What an object of the program has under a name: a value, or a proxy of a method."""
        answer = self._asked(owner, {"object": number, "attribute": name})
        if "method" not in answer:
            return self._value(f"{owner}.{name}", answer)

        def method(*arguments: Any, **named: Any) -> Any:
            return self._call(name, arguments, named, of=number)

        return method

    def fail(self, reason: str) -> NoReturn:
        """The program fails, for good."""
        self._verdict = self._verdict or {"failed": "Failed", "message": reason, "line": 0}
        raise Failed(reason)

    def give_up(self, reason: str) -> NoReturn:
        """Nobody can tell whether the program passes."""
        self._verdict = self._verdict or {"unpassable": reason}
        raise Unpassable(reason)

    def _call(
        self,
        name: str,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        *,
        of: int | None = None,
        is_class: bool = False,
    ) -> Any:
        for argument in (*arguments, *named.values()):
            if isinstance(argument, Opaque | Instance):
                argument._fail()
        try:
            written = values.encode(list(arguments)), values.encode(named)
        except values.NotPlain as error:
            self.give_up(f"the tests give {name} an argument that cannot be passed: {error}")
        answer = self._asked(name, values.asking(name, *written, of=of, keep=is_class, changes=True))
        if is_class and "object" in answer:
            return Instance(self, name, answer["object"])
        value = self._value(name, answer)
        if "changed" in answer:
            try:
                _change((arguments, named), values.decode(answer["changed"]))
            except (ValueError, TypeError, RecursionError):
                self.fail(f"{name} changed its arguments to what is no plain value")
        return value

    def _asked(self, name: str, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._turn:
            frames.send(self._channel, {"nonce": self._nonce, "call": asked})
            answer = frames.receive(self._channel)
        if answer is None:
            self.fail(f"nobody answers for {name}")
        return answer

    def _value(self, name: str, answer: Mapping[str, Any]) -> Any:
        if "value" not in answer:
            return self._without_value(name, answer)
        try:
            return values.decode(answer["value"])
        except (ValueError, TypeError, RecursionError) as error:
            self.fail(f"{name} sent what is no plain value: {type(error).__name__}")

    def _without_value(self, name: str, answer: Mapping[str, Any]) -> Any:
        if "raised" in answer:
            raise self._guards.error(answer, _arguments(answer))
        if "opaque" in answer:
            return Opaque(self, name, str(answer["opaque"])[:_MAX_MESSAGE_CHARS])
        return self.fail(f"{name} returned more than may pass")


def _arguments(answer: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Those of an exception, where they are plain."""
    try:
        arguments = values.decode(answer.get("arguments"))
    except (ValueError, TypeError, RecursionError):
        return None
    return tuple(arguments) if isinstance(arguments, list) else None


def _change(given: tuple[tuple[Any, ...], dict[str, Any]], after: Any) -> None:
    """Do to the arguments here what the program did to its own."""
    arguments, named = after
    for old, new in (*zip(given[0], arguments), *((given[1][key], named[key]) for key in given[1] if key in named)):
        if type(old) is not type(new):
            continue
        if isinstance(old, list):
            old[:] = new
        elif isinstance(old, dict | set):
            old.clear()
            old.update(new)


def _message(error: BaseException) -> str:
    try:
        return str(error)[:_MAX_MESSAGE_CHARS]
    except Exception:  # the tests' own exception, whose text fails too: it has none
        return ""


def _line(error: BaseException) -> int:
    """Where the tests were, or 0."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<tests>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
