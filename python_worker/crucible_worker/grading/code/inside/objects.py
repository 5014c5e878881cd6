"""What stands in the tests for objects that stay with the program.

`Opaque` is what a function returned that is no plain value: its word is worth nothing, so that it has none. `Instance`
is an object that the tests made of a class of the program's: its methods are the program's, and that is all there is to
it. Both can be handed back to the program.
"""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

from crucible_worker.grading.code.inside import values

__all__ = ["Failed", "Function", "Instance", "Opaque", "Unpassable"]

_PLAIN_TYPES = (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, range)
_PLAIN_ATTRIBUTES = frozenset(name for kind in _PLAIN_TYPES for name in dir(kind))


class Failed(BaseException):
    """The program fails its test, whatever the test would make of it: no `except Exception` holds it up."""


class Unpassable(BaseException):
    """The test needs what cannot be passed between program and test."""


class _Caller(values.Kept, Protocol):
    """Who speaks to the program."""

    def fail(self, reason: str) -> NoReturn: ...
    def give_up(self, reason: str) -> NoReturn: ...
    def attribute(self, owner: str, number: int, name: str) -> Any: ...
    def call(
        self,
        name: str,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        *,
        of: int | None = None,
        itself: bool = False,
        is_class: bool = False,
    ) -> Any: ...


class Opaque:
    """What a program returned that is no plain value."""

    __slots__ = ("_caller", "_function", "_kind", "_number")

    def __init__(self, caller: _Caller, function: str, kind: str, number: int | None) -> None:
        for name, value in zip(Opaque.__slots__, (caller, function, kind, number)):
            object.__setattr__(self, name, value)

    def _fail(self, *arguments: object) -> Any:
        self._caller.fail(f"{self._function} returned {self._kind}, which is no plain value")

    def _give_up(self, *arguments: object) -> Any:
        self._caller.give_up(f"{self._function} returned {self._kind}, of which the tests need more than a value")

    def _compared(self, other: object) -> Any:
        # A plain value is never equal to it; what is none either might be.
        return self._fail() if _is_plain(other) else self._give_up()

    def __getattr__(self, name: str) -> Any:
        # No plain value has it: then the tests want an object, and it is not the program that is to blame.
        if name not in _PLAIN_ATTRIBUTES and not name.startswith("__"):
            self._caller.give_up(f"the tests use .{name} of what {self._function} returned, and objects cannot pass")
        return self._fail()

    __setattr__ = __delattr__ = _give_up
    __hash__ = _fail


class Function(Opaque):
    """What a program returned that can be called: what comes of that crosses as any other value."""

    __slots__ = ()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Have the program call it."""
        return self._caller.call(self._function, arguments, named, of=self._number, itself=True)


class Instance:
    """An object that the tests made of a class of the program's."""

    __slots__ = ("_caller", "_class", "_number")

    def __init__(self, caller: _Caller, name: str, number: int) -> None:
        for slot, value in zip(Instance.__slots__, (caller, name, number)):
            object.__setattr__(self, slot, value)

    def _give_up(self, *arguments: object) -> Any:
        self._caller.give_up(f"the tests use an object of {self._class} for more than its methods")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            return self._give_up()
        return self._caller.attribute(self._class, self._number, name)

    def _compared(self, other: object) -> Any:
        # Where a plain value is expected, an object is as wrong as what any function returns that is none.
        if _is_plain(other):
            self._caller.fail(f"{self._class} gave an object, which is no plain value")
        return self._give_up()

    __setattr__ = __delattr__ = _give_up
    __hash__ = _give_up


def _is_plain(value: object) -> bool:
    if type(value).__module__.startswith("_pytest."):
        return True  # pytest.approx, which stands for numbers
    try:
        values.encode(value)
    except values.NotPlain:
        return False
    return True


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_OF_OBJECTS = ("enter", "exit", "await", "aenter", "aexit", "aiter", "anext")  # no plain value has them
_OTHERS = (
    *("bool", "len", "iter", "next", "contains", "getitem", "setitem", "delitem", "reversed"),
    *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod"),
    *("pow", "rpow", "divmod", "rdivmod", "and", "rand", "or", "ror", "xor", "rxor", "lshift", "rlshift", "rshift"),
    *("rrshift", "neg", "pos", "abs", "invert", "int", "float", "complex", "index", "round", "str", "repr", "format"),
    "bytes",
)
for _name in _COMPARISONS:
    setattr(Opaque, f"__{_name}__", Opaque._compared)
    setattr(Instance, f"__{_name}__", Instance._compared)
for _name in _OF_OBJECTS:
    setattr(Opaque, f"__{_name}__", Opaque._give_up)
    setattr(Instance, f"__{_name}__", Instance._give_up)
for _name in _OTHERS:
    setattr(Opaque, f"__{_name}__", Opaque._fail)
    setattr(Instance, f"__{_name}__", Instance._give_up)
