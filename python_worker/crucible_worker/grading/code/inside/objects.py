"""Proxies in the tests for objects and classes that stay with the program, and for their items.

`Opaque` is a returned object that is not a plain value: what it reports cannot be trusted, so it reports nothing. If it
can be iterated or indexed, it has `Items`, read once. `Instance` is an object that the tests expect to be an object:
they made it from a class of the program, checked its class by `isinstance`, or use what no plain value has. Its methods
are the program's, and so are its length and its items. All can be passed back to the program.

`ProgramClass` is the type of the classes, which are types in the tests as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, Protocol

from crucible_worker.grading.code.inside import wire
from crucible_worker.grading.code.inside.rewriting import ProgramError

__all__ = [
    "Failed",
    "Function",
    "Instance",
    "Items",
    "Opaque",
    "ProgramClass",
    "ProgramObject",
    "Unpassable",
    "become",
    "program_class",
]

# The items of an object that a function of the program returned, for tests that iterate over it or index it.
#
# Every item is read once, and the length is their number: such an object can express no more than a list or a dict of
# the same items. An object that gave other items at each access could pass tests that no value passes.


class _ItemCaller(wire.ObjectTable, Protocol):
    """Queries the program."""

    def fail(self, reason: str) -> NoReturn: ...
    def give_up(self, reason: str) -> NoReturn: ...
    def operate(self, owner: str, number: int, operation: str, *arguments: Any) -> Any: ...


class Items:
    """The items of one object.

    Args:
        caller: queries the program.
        name: the function that returned the object.
        number: of the object.
        gives: those of `iter`, `len`, `getitem` and `keys` that its class has.
    """

    def __init__(self, caller: _ItemCaller, name: str, number: int, gives: Sequence[str]) -> None:
        self._caller, self._name, self._number = caller, name, number
        self._iterates, self._counts, self._indexes, self._maps = (
            each in gives for each in ("iter", "len", "getitem", "keys")
        )
        self._taken: list[Any] = []
        self._source: Iterator[Any] | None = None
        self._end: BaseException | None = None
        """The exception after the last item."""
        self._values: dict[bytes, Any] = {}  # by key
        self._length: int | None = None

    def __iter__(self) -> Iterator[Any]:
        at = 0
        while self._has(at):
            yield self._taken[at]
            at += 1

    def length(self) -> int:
        """The number of items."""
        if self._iterates:
            return sum(1 for _ in self)
        if self._length is None:
            length = self._caller.operate(self._name, self._number, "len")
            if type(length) is not int or length < 0:
                self._caller.fail(f"{self._name} returned an object whose length is not a number of items")
            self._length = length
        return self._length

    def at(self, key: Any) -> Any:
        """The item at an index, or of a key."""
        if self._maps or not self._iterates or not isinstance(key, int | slice):
            return self._by_key(key)
        if isinstance(key, slice):
            return [*self][key]
        if not self._has(key if key >= 0 else self.length() + key):
            raise ProgramError(IndexError(f"what {self._name} returned has no item {key}"))
        return self._taken[key]

    def _by_key(self, key: Any) -> Any:
        try:
            known = wire.written(wire.encode(key, 0, self._caller))
        except wire.NotPlain as error:
            self._caller.give_up(f"the tests use a key of what {self._name} returned that cannot be passed: {error}")
        if known not in self._values:
            self._values[known] = self._caller.operate(self._name, self._number, "getitem", key)
        return self._values[known]

    def _has(self, at: int) -> bool:
        if at < 0:
            return False
        if self._source is None:
            self._source = self._all()
        while len(self._taken) <= at and self._end is None:
            try:
                self._taken.append(next(self._source))
            except BaseException as error:  # every later access raises it as well
                self._end = error
        if len(self._taken) > at:
            return True
        if not isinstance(self._end, StopIteration) and self._end is not None:
            raise self._end
        return False

    def _all(self) -> Iterator[Any]:
        if self._iterates:
            yield from self._caller.operate(self._name, self._number, "iter")
            return
        at = 0
        while not self._counts or at < self.length():
            try:
                item = self._by_key(at)
            except ProgramError as error:
                if isinstance(error.native, IndexError):
                    return
                raise
            yield item
            at += 1


_PLAIN_TYPES = (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, range)
_PLAIN_ATTRIBUTES = frozenset(name for kind in _PLAIN_TYPES for name in dir(kind))


class Failed(BaseException):
    """The program fails its test, whatever the test does: no `except Exception` catches it."""


class Unpassable(BaseException):
    """The test needs something that cannot be passed between program and test."""


class _ObjectCaller(wire.ObjectTable, Protocol):
    """Queries the program."""

    def fail(self, reason: str) -> NoReturn: ...
    def give_up(self, reason: str) -> NoReturn: ...
    def attribute(self, owner: str, number: int, name: str) -> Any: ...
    def held(self, name: str) -> int: ...
    def operate(self, owner: str, number: int, operation: str, *arguments: Any) -> Any: ...
    def rest(self, number: int) -> Iterator[Any]: ...
    def class_of(self, lineage: Sequence[str]) -> ProgramClass | None: ...
    def is_instance(self, kind: ProgramClass, value: Any) -> bool: ...
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


class ProgramObject:
    """An object that stays with the program. Tests may use any of its names, so the slots have a prefix."""

    __slots__ = (
        "_proxy_caller",
        "_proxy_gives",
        "_proxy_items",
        "_proxy_kind",
        "_proxy_lineage",
        "_proxy_name",
        "_proxy_number",
    )

    def __init__(
        self,
        caller: _ObjectCaller,
        name: str,
        kind: str,
        number: int | None,
        lineage: Sequence[str] = (),
        gives: Sequence[str] = (),
    ) -> None:
        given = (caller, gives, None, kind, lineage, name, number)
        for slot, value in zip(ProgramObject.__slots__, given):
            object.__setattr__(self, slot, value)


class Opaque(ProgramObject):
    """A returned object that is not a plain value."""

    __slots__ = ()

    def _proxy_fail(self, *arguments: object) -> Any:
        self._proxy_caller.fail(f"{self._proxy_name} returned {self._proxy_kind}, which is not a plain value")

    def _proxy_give_up(self, *arguments: object) -> Any:
        self._proxy_caller.give_up(
            f"{self._proxy_name} returned {self._proxy_kind}, of which the tests need more than a value"
        )

    def _proxy_compared(self, other: object) -> Any:
        # A plain value is never equal to it; another object might be.
        return self._proxy_fail() if _is_plain(other) else self._proxy_give_up()

    def _proxy_taken(self, *needed: str) -> Items:
        """Its items, if its class has one of these methods."""
        if not any(name in self._proxy_gives for name in needed):
            self._proxy_fail()
        items: Items | None = self._proxy_items
        if items is None:
            items = Items(self._proxy_caller, self._proxy_name, self._proxy_number, self._proxy_gives)
            object.__setattr__(self, "_proxy_items", items)
        return items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._proxy_taken("iter", "getitem"))

    def __len__(self) -> int:
        if "len" not in self._proxy_gives and ("iter" in self._proxy_gives or "getitem" in self._proxy_gives):
            raise TypeError(f"{self._proxy_kind} has no len()")  # list() queries it
        return self._proxy_taken("len").length()

    def __bool__(self) -> bool:
        return self._proxy_taken("len").length() > 0

    def __getitem__(self, key: Any) -> Any:
        return self._proxy_taken("getitem").at(key)

    def __contains__(self, item: object) -> bool:
        return any(each is item or each == item for each in self._proxy_taken("iter", "getitem"))

    def __reversed__(self) -> Iterator[Any]:
        return reversed([*self._proxy_taken("reversed", "len")])

    def __getattr__(self, name: str) -> Any:
        # No plain value has it: the tests need an object, so this is not the program's fault.
        wanted = name not in _PLAIN_ATTRIBUTES and not name.startswith("__")
        kind = self._proxy_caller.class_of(self._proxy_lineage)
        if wanted and kind is not None:
            become(self, kind)
            return getattr(self, name)
        if wanted or (kind is not None and not name.startswith("__")):
            self._proxy_caller.give_up(
                f"the tests use .{name} of what {self._proxy_name} returned, and objects cannot pass"
            )
        return self._proxy_fail()

    __setattr__ = __delattr__ = _proxy_give_up
    __hash__ = _proxy_fail


class Function(Opaque):
    """A returned object that can be called; its results pass like any other value."""

    __slots__ = ()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Let the program call it."""
        return self._proxy_caller.call(self._proxy_name, arguments, named, of=self._proxy_number, itself=True)


class Instance(ProgramObject):
    """An object that the tests expect to be one of a class of the program's."""

    __slots__ = ()

    def _proxy_give_up(self, *arguments: object) -> Any:
        self._proxy_caller.give_up(f"the tests use an object of {self._proxy_name} for more than its methods")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            return self._proxy_give_up()
        return self._proxy_caller.attribute(self._proxy_name, self._proxy_number, name)

    def _proxy_compared(self, other: object) -> Any:
        # If a plain value is expected, an object is as wrong as any other value that is not plain.
        if _is_plain(other):
            self._proxy_caller.fail(f"{self._proxy_name} gave an object, which is not a plain value")
        return self._proxy_give_up()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Let the program call it."""
        return self._proxy_caller.call(self._proxy_name, arguments, named, of=self._proxy_number, itself=True)

    def __len__(self) -> int:
        try:
            return self._proxy_caller.operate(self._proxy_name, self._proxy_number, "len")
        except ProgramError as error:
            if isinstance(error.native, TypeError):
                raise error.native from None  # list() then assumes that there is no length
            raise

    def __next__(self) -> Any:
        if self._proxy_items is None:
            object.__setattr__(self, "_proxy_items", self._proxy_caller.rest(self._proxy_number))
        return next(self._proxy_items)

    __setattr__ = __delattr__ = _proxy_give_up
    __hash__ = _proxy_give_up


class ProgramClass(type):
    """The type of the program's classes, which `program_class` makes. Questions about one go to the program."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> ProgramClass:
        """Tests that define a class below one cannot be run."""
        if bases != (Instance,):
            base = next(base for base in bases if isinstance(base, ProgramClass))
            base._class_caller().give_up(f"the tests define a class below {base.__name__}, and classes cannot pass")
        caller = namespace.pop("_class_caller")
        made = super().__new__(mcs, name, bases, namespace)
        type.__setattr__(made, "_class_of", caller)
        return made

    def __init__(cls, *given: Any) -> None:
        """Nothing to do."""

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        """Let the program make an object."""
        return cls._class_caller().call(cls.__name__, arguments, named, is_class=True)

    def __getattr__(cls, name: str) -> Any:
        """An attribute of the class, or a static or class method."""
        if name.startswith("__"):
            raise AttributeError(f"the tests have no {name} of {cls.__name__}")
        caller = cls._class_caller()
        return caller.attribute(cls.__name__, caller.held(cls.__name__), name)

    def __setattr__(cls, name: str, value: object) -> None:
        cls._class_give_up(f"the tests set .{name} of {cls.__name__}, which stays with the program")

    def __instancecheck__(cls, instance: Any) -> bool:
        if type(instance) is cls:
            return True
        return cls._class_caller().is_instance(cls, instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        if subclass is cls or not isinstance(subclass, ProgramClass):
            return subclass is cls
        return cls._class_operate("is_subclass", subclass) is True

    def __iter__(cls) -> Iterator[Any]:
        return cls._class_operate("iter")

    def __len__(cls) -> int:
        return cls._class_operate("len")

    def __getitem__(cls, key: Any) -> Any:
        return cls._class_operate("getitem", key)

    def __contains__(cls, item: Any) -> bool:
        return cls._class_operate("contains", item)

    def __bool__(cls) -> bool:
        return True

    def __eq__(cls, other: object) -> bool:
        if cls is not other and not isinstance(other, type):
            cls._class_give_up(f"the tests use {cls.__name__} as a value, and only classes and functions can pass")
        return cls is other

    __hash__ = type.__hash__

    def _class_caller(cls) -> _ObjectCaller:
        return type.__getattribute__(cls, "_class_of")

    def _class_operate(cls, operation: str, *arguments: Any) -> Any:
        caller = cls._class_caller()
        return caller.operate(cls.__name__, caller.held(cls.__name__), operation, *arguments)

    def _class_give_up(cls, reason: str) -> NoReturn:
        caller = cls._class_caller()
        caller.held(cls.__name__)  # a program that lacks it fails
        caller.give_up(reason)


def program_class(caller: _ObjectCaller, name: str) -> ProgramClass:
    """The class with this name in the program."""
    return ProgramClass(name, (Instance,), {"__slots__": (), "_class_caller": caller})


def become(value: Opaque, kind: ProgramClass) -> Any:
    """Treat an object as an instance of a class in the tests from now on; returns the object."""
    object.__setattr__(value, "_proxy_items", None)
    object.__setattr__(value, "_proxy_name", kind.__name__)
    object.__setattr__(value, "__class__", kind)
    return value


def _is_plain(value: object) -> bool:
    if type(value).__module__.startswith("_pytest."):
        return True  # pytest.approx, which stands for numbers
    try:
        wire.encode(value)
    except wire.NotPlain:
        return False
    return True


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_OF_OBJECTS = (
    "enter",
    "exit",
    "await",
    "aenter",
    "aexit",
    "aiter",
    "anext",
    "copy",
    "deepcopy",
)  # methods that no plain value has
_BY_PROGRAM = ("iter", "getitem", "setitem", "delitem", "contains", "reversed", "bool", "str", "repr")
_OTHERS = (
    *("next", "setitem", "delitem", "str", "repr"),
    *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod"),
    *("pow", "rpow", "divmod", "rdivmod", "and", "rand", "or", "ror", "xor", "rxor", "lshift", "rlshift", "rshift"),
    *("rrshift", "neg", "pos", "abs", "invert", "int", "float", "complex", "index", "round", "format", "bytes"),
)


def _operated(operation: str) -> Any:
    def operate(self: Instance, *arguments: Any) -> Any:
        return self._proxy_caller.operate(self._proxy_name, self._proxy_number, operation, *arguments)

    return operate


for _name in _COMPARISONS:
    setattr(Opaque, f"__{_name}__", Opaque._proxy_compared)
    setattr(Instance, f"__{_name}__", Instance._proxy_compared)
for _name in _OF_OBJECTS:
    setattr(Opaque, f"__{_name}__", Opaque._proxy_give_up)
    setattr(Instance, f"__{_name}__", Instance._proxy_give_up)
for _name in _OTHERS:
    setattr(Opaque, f"__{_name}__", Opaque._proxy_fail)
    if _name not in ("next", *_BY_PROGRAM):
        setattr(Instance, f"__{_name}__", Instance._proxy_give_up)
for _name in _BY_PROGRAM:
    setattr(Instance, f"__{_name}__", _operated(_name))
