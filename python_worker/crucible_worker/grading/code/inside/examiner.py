"""Runs tests, in a child of a zygote that never runs a program: a function of the program is a proxy here.

A call of it goes through the worker, and a plain value comes back. So the value that is compared with the expected one
is always of Python's own types, or an `Opaque`, which equals nothing and can do nothing. A name that the tests
themselves use as a class gives an `Instance`, which has only methods, and these are proxies as well.
"""

from __future__ import annotations

import array
import ast
import collections
import itertools
import random
import socket
import sys
import threading
import types
import weakref
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from crucible_worker.grading.code.inside import rewriting, wire
from crucible_worker.grading.code.inside.objects import (
    Failed,
    Function,
    Instance,
    Opaque,
    ProgramClass,
    ProgramObject,
    Unpassable,
    become,
    program_class,
)

__all__ = ["examine", "rehearse"]

# Runs tests without any program: do they end by themselves?
#
# Everything that they take from the program is unknown, and so are the results. A loop over an unknown value ends at
# once. Tests that use very many unknown values, and so may be waiting for one, are ended.

_MAX_USES = 10_000


class _Enough(BaseException):
    """The limit of uses of unknown values is reached."""


class _Unknown:
    """An unknown value; every operation on it gives another unknown value."""

    __slots__ = ("_uses",)

    def __init__(self) -> None:
        self._uses = 0

    def _used(self, *arguments: object, **named: object) -> Any:
        self._uses += 1
        if self._uses > _MAX_USES:
            raise _Enough
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._used()

    def __bool__(self) -> bool:
        return bool(self._used() is self)

    def __contains__(self, item: object) -> bool:
        return bool(self)

    def __len__(self) -> int:
        self._used()
        return 0

    def __iter__(self) -> Any:
        self._used()
        return iter(())

    def __next__(self) -> NoReturn:
        self._used()
        raise StopIteration

    def __int__(self) -> int:
        self._used()
        return 0

    def __float__(self) -> float:
        self._used()
        return 0.0

    def __str__(self) -> str:
        self._used()
        return ""

    def __exit__(self, *arguments: object) -> None:
        self._used()

    __index__ = __hash__ = __int__
    __repr__ = __str__


for _name in (
    *("eq", "ne", "lt", "le", "gt", "ge", "getitem", "setitem", "delitem", "call", "enter", "neg", "pos", "abs"),
    *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod"),
    *("pow", "rpow", "divmod", "rdivmod", "and", "rand", "or", "ror", "xor", "rxor", "lshift", "rlshift", "rshift"),
    *("rrshift", "invert", "round", "mro_entries"),
):
    setattr(_Unknown, f"__{_name}__", _Unknown._used)


def rehearse(sources: Iterable[str], names: Iterable[str], module: types.ModuleType) -> str:
    """Run tests without a program.

    Args:
        sources: the tests.
        names: the names that they take from the program.
        module: the module in which they run.

    Returns:
        The name of the exception that ended them; empty if they ran to their end. An exception that another program
        might not have caused ends only its statement.
    """
    for name in names:
        setattr(module, name, _Unknown())
    for source in sources:
        tree = ast.parse(source, "<tests>")
        for node in ast.walk(tree):
            for field in ("body", "orelse", "finalbody"):
                if isinstance(block := getattr(node, field, None), list):
                    block[:] = [_evaluated(statement) for statement in block]
        for statement in tree.body:
            code = compile(ast.Module(body=[statement], type_ignores=[]), "<tests>", "exec")
            try:
                exec(code, module.__dict__)
            except (_Enough, MemoryError) as error:
                return type(error).__name__
            except BaseException:
                continue
    return ""


def _evaluated(statement: ast.stmt) -> ast.stmt:
    """Compute an assertion without letting it fail."""
    if isinstance(statement, ast.Assert):
        return ast.copy_location(ast.Expr(value=statement.test), statement)
    return statement


_MAX_MESSAGE_CHARS = 300
_MAX_ITEMS = 100_000  # items of an iterator that the tests pass
_ONE_BY_ONE = 256
_MAX_AT_ONCE = 1024


def examine(channel: socket.socket) -> None:
    """Run tests, and report how they ended."""
    order = wire.receive(channel)
    guards = rewriting.Guards(order["names"])
    module = types.ModuleType("tests")
    sys.modules["tests"] = module
    random.seed(0)  # the same program, the same grade
    if order["rehearse"]:
        ended = rehearse(order["sources"], order["names"], module)
        wire.send(channel, {"nonce": order["nonce"], "failed": ended})
        return
    caller = _ProgramCaller(channel, order["nonce"], guards, module, frozenset(order["helpers"]))
    try:
        codes = [rewriting.compiled(source, guards) for source in order["sources"]]
        for name, is_class in order["names"].items():
            setattr(module, name, guards.classes.get(name) or caller.proxy(name, is_class=is_class))
        for name, given in (
            (rewriting.GUARDS, guards),
            (rewriting.TYPE_OF, caller.type_of),
            (rewriting.SAME, caller.same),
        ):
            setattr(module, name, given)
        for code in codes:
            exec(code, module.__dict__)
        told: dict[str, Any] = {"passed": True}
    except Unpassable as error:
        told = {"unpassable": str(error)}
    except BaseException as error:
        native, own = rewriting.native_of(error), rewriting.is_own(error)
        told = {"failed": type(native).__name__, "message": _message(native), "line": _line(error), "own": own}
        if own and isinstance(error, SystemExit) and error.code in (None, 0):
            told = {"passed": True}
        if own and isinstance(error, ImportError) and str(error.name).partition(".")[0] in guards.modules:
            told = {"bad": f"the tests import a missing module: {told['message']}"}
    caller.tell(told)


class _ProgramCaller:
    """Carries calls to the program."""

    def __init__(
        self,
        channel: socket.socket,
        nonce: str,
        guards: rewriting.Guards,
        module: types.ModuleType,
        helpers: frozenset[str],
    ) -> None:
        self._channel, self._nonce, self._guards, self._module = channel, nonce, guards, module
        self._helpers = helpers
        self._nodes = wire.Nodes(self.named, first=0)
        self._classes: dict[str, ProgramClass] = {}
        self._other_classes: dict[str, type[Any]] = {}  # classes that the tests do not name
        self._held: dict[str, int] = {}  # the numbers of classes
        self._iterators: weakref.WeakKeyDictionary[Iterator[Any], int] = weakref.WeakKeyDictionary()
        self._verdict: Mapping[str, Any] | None = None
        self._turn = threading.Lock()  # tests may have threads

    def tell(self, verdict: Mapping[str, Any]) -> None:
        """Report how the tests ended; a verdict is final, even if the tests have caught its exception."""
        with self._turn:
            wire.send(self._channel, {"nonce": self._nonce, **(self._verdict or verdict)})

    def proxy(self, name: str, *, is_class: bool) -> Any:
        """The proxy of a function or a class of the program."""
        if is_class:
            return self._classes.setdefault(name, program_class(self, name))

        def call(*arguments: Any, **named: Any) -> Any:
            return self.call(name, arguments, named)

        def refuse(bases: object) -> NoReturn:
            self.give_up(f"the tests define a class below {name}, and classes cannot pass")

        call.__name__ = call.__qualname__ = name
        vars(call)["__mro_entries__"] = refuse
        return call

    def held(self, name: str) -> int:
        """The number of a class of the program."""
        if name not in self._held:
            answer = self._asked(name, {"object": None, "held": name})
            if answer.get("missing"):
                self._fail_without(name)
            if type(answer.get("object")) is not int:
                self.fail(f"{name} sent something that is not a class")
            self._held[name] = answer["object"]
        return self._held[name]

    def class_of(self, lineage: Sequence[str]) -> ProgramClass | None:
        """The first of these classes that the tests name."""
        return next((self._classes[name] for name in lineage if name in self._classes), None)

    def is_instance(self, kind: ProgramClass, value: Any) -> bool:
        """Whether a value of the tests is an instance of a class of the program, by `isinstance` there."""
        name, number = kind.__name__, self.held(kind.__name__)
        if isinstance(value, Iterator) and not isinstance(value, ProgramObject):  # its items must not be consumed
            if (of_program := self._iterators.get(value) if isinstance(value, Generator) else None) is None:
                return False
            value = Opaque(self, name, "an iterator", of_program)
        try:
            written = wire.encode(value, 0, self)
        except wire.NotPlain:
            return False  # of a class of the tests
        found = self.operate(name, number, "is_instance", value)
        if found is None and not (isinstance(written, dict) and written.keys() <= {"object", "node"}):
            self.give_up(f"the tests want to know whether {type(value).__name__} was {name} before it passed")
        if found is True and isinstance(value, Opaque):
            become(value, self.class_of(value._proxy_lineage) or kind)
        return found is True

    def operate(self, owner: str, number: int, operation: str, *arguments: Any) -> Any:
        """Let the program do something to one of its objects."""
        return self.call(operation, arguments, {}, of=number, operation=owner)

    def rest(self, number: int) -> Iterator[Any]:
        """The remaining items of an iterator of the program."""
        return self._items(number)

    def attribute(self, owner: str, number: int, name: str) -> Any:
        """An attribute of an object of the program: a value, or a proxy of a method."""
        answer = self._asked(owner, {"object": number, "attribute": name})
        if "method" not in answer:
            return self._value(f"{owner}.{name}", answer)

        def method(*arguments: Any, **named: Any) -> Any:
            return self.call(name, arguments, named, of=number)

        return method

    def write(self, value: Any) -> Any:
        """Iterators cross with all of their items; see `wire.ObjectTable`."""
        if isinstance(value, ProgramObject):
            return {"object": value._proxy_number}
        if isinstance(value, ProgramClass):
            return {"object": self.held(value.__name__)}
        if wire.is_node(value):
            return {"node": self._nodes.write(value)}
        if isinstance(value, Iterator):
            items = list(itertools.islice(value, _MAX_ITEMS + 1))
            if len(items) <= _MAX_ITEMS:
                return {"iterator": [wire.encode(item, 1, self) for item in items]}
            raise wire.NotPlain(f"an iterator of more than {_MAX_ITEMS:,} items")
        raise wire.NotPlain(type(value).__name__)

    def read(self, mark: str, content: Any) -> Any:
        """Iterators stay with the program, which is queried for their items."""
        if mark == "node":
            return self._nodes.find(content)
        if mark == "iterator" and type(content) is int:
            items = self._items(content)
            self._iterators[items] = content
            return items
        if mark == "object" and isinstance(content, dict):
            return self._opaque("the program", "an object", content)
        raise ValueError(f"no written value has the mark {mark!r:.20}")

    def named(self, name: str) -> Any:
        """The object of the tests by a name."""
        known = vars(self._module).get(name)
        return None if isinstance(known, ProgramClass) else known

    def fail(self, reason: str) -> NoReturn:
        """The program fails, finally."""
        self._verdict = self._verdict or {"failed": "Failed", "message": reason, "line": 0, "own": False}
        raise Failed(reason)

    def give_up(self, reason: str) -> NoReturn:
        """Whether the program passes cannot be known."""
        self._verdict = self._verdict or {"unpassable": reason}
        raise Unpassable(reason)

    def call(
        self,
        name: str,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        *,
        of: int | None = None,
        itself: bool = False,
        is_class: bool = False,
        operation: str = "",
    ) -> Any:
        """Let the program call one of its functions.

        Args:
            name: the function's name.
            arguments: its arguments.
            named: its keyword arguments.
            of: an object of the program that has it as a method.
            itself: whether this object itself is called, or awaited.
            is_class: whether it makes objects.
            operation: for an operation on the object that is not a method, the name of what made the object.
        """
        outer = self._nodes.begin()  # a written value may be an iterator that calls the program
        try:
            written = wire.encode(list(arguments), 0, self), wire.encode(named, 0, self)
            table = self._nodes.table(lambda part: wire.encode(part, 1, self))
        except wire.NotPlain as error:
            self.give_up(f"the tests give {name} an argument that cannot be passed: {error}")
        finally:
            self._nodes.end(outer)
        asked = wire.asking(None if itself else name, *written, of=of, keep=is_class, changes=True)
        asked["operation"] = bool(operation)
        name = operation or name
        answer = self._asked(name, {**asked, "nodes": table})
        if is_class and "object" in answer and "opaque" not in answer:
            return become(Opaque(self, name, "an object", answer["object"]), self._classes[name])
        try:
            value = self._value(name, answer)
        finally:
            if "changed" in answer:
                try:
                    _change((arguments, named), wire.decode(answer["changed"], self))
                except (ValueError, TypeError, RecursionError):
                    self.fail(f"{name} changed its arguments to something that is not a plain value")
        return value

    def _items(self, number: int) -> Iterator[Any]:
        """The items of an iterator of the program, on demand: it may be endless, or slow."""
        name, count, given = "an iterator of the program", 1, 0
        while True:
            answer = self._asked(name, {"object": number, "next": count})
            for item in answer.get("items", ()):
                given += 1
                value = self._value(name, item if isinstance(item, dict) else {})
                try:
                    sent = yield value
                except Exception as error:
                    self.give_up(f"the tests throw {type(error).__name__} into a generator of the program")
                if sent is not None:
                    self.give_up("the tests send a value to a generator of the program")
            if "done" in answer:
                return
            if "raised" in answer or "opaque" in answer or not answer.get("items"):
                yield self._value(name, answer)
            if given >= _ONE_BY_ONE:
                count = min(2 * count, _MAX_AT_ONCE)

    def _fail_without(self, name: str) -> NoReturn:
        """The program lacks a name that it should have defined, or that only the tests could define."""
        if name in self._helpers:
            self._verdict = self._verdict or {"bad": f"the tests use {name}, which they do not define"}
            raise Unpassable(name)
        self.fail(f"the program does not define {name}")

    def _asked(self, name: str, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._turn:
            wire.send(self._channel, {"nonce": self._nonce, "call": asked})
            answer = wire.receive(self._channel)
        if answer is None:
            self.fail(f"the program does not answer for {name}")
        return answer

    def _value(self, name: str, answer: Mapping[str, Any]) -> Any:
        try:
            self._nodes.read(answer.get("nodes", ()), lambda written: wire.decode(written, self))
            if "value" not in answer:
                return self._without_value(name, answer)
            return wire.decode(answer["value"], self)
        except (ValueError, TypeError, RecursionError) as error:
            self.fail(f"{name} sent something that is not a plain value: {type(error).__name__}")

    def _opaque(self, name: str, kind: str, told: Mapping[str, Any]) -> Opaque:
        """The proxy of an object that a program has described like this."""
        number = told.get("object")
        lineage, gives = ([str(each) for each in told.get(key, ())] for key in ("lineage", "gives"))
        shown = Function if told.get("callable") is True else Opaque
        return shown(self, name, kind, number if type(number) is int else None, lineage, gives)

    def type_of(self, value: Any) -> type[Any]:
        """The result of `type(value)` for the tests."""
        if isinstance(value, Opaque) and value._proxy_lineage:
            name = value._proxy_lineage[0]
            if name in self._classes:
                become(value, self._classes[name])
            else:
                return self._other_classes.setdefault(name, type(name, (), {}))
        bare = self._nodes.is_met(value) and self._classes.get(type(value).__name__)
        return bare or type(value)

    def same(self, value: Any, other: Any) -> bool:
        """The result of `value is other` for the tests."""
        if value is other or not (isinstance(value, ProgramObject) and isinstance(other, ProgramObject)):
            return value is other
        if value._proxy_number != other._proxy_number:
            return False
        if not (isinstance(value, Instance) and isinstance(other, Instance)):
            self.give_up(f"the tests want to know whether what {value._proxy_name} returned is another object")
        return True

    def _without_value(self, name: str, answer: Mapping[str, Any]) -> Any:
        if "raised" in answer:
            raise self._guards.error(answer, _arguments(answer))
        if answer.get("missing"):
            self._fail_without(name)
        if "opaque" in answer:
            kind = str(answer["opaque"])[:_MAX_MESSAGE_CHARS]
            if kind == "coroutine":
                return _awaited(self, name, answer.get("object"))
            return self._opaque(name, kind, answer)
        return self.fail(f"{name} returned more than is allowed to pass")


async def _awaited(caller: _ProgramCaller, name: str, number: int | None) -> Any:
    """The result of a coroutine of the program, which runs there."""
    return caller.call(name, (), {}, of=number, itself=True)


def _arguments(answer: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """The arguments of an exception, if they are plain values."""
    try:
        arguments = wire.decode(answer.get("arguments"))
    except (ValueError, TypeError, RecursionError):
        return None
    return tuple(arguments) if isinstance(arguments, list) else None


def _change(given: tuple[tuple[Any, ...], dict[str, Any]], after: Any) -> None:
    """Apply the program's changes of its arguments to the arguments here."""
    arguments, named = after
    for old, new in (*zip(given[0], arguments), *((given[1][key], named[key]) for key in given[1] if key in named)):
        if type(old) is not type(new):
            continue
        if isinstance(old, list | array.array | bytearray):
            old[:] = new
        elif wire.is_ndarray(old):
            if old.shape == new.shape:
                old[...] = new
        elif isinstance(old, collections.deque):
            old.clear()
            old.extend(new)
        elif isinstance(old, dict | set):
            old.clear()
            old.update(new)


def _message(error: BaseException) -> str:
    try:
        return str(error)[:_MAX_MESSAGE_CHARS]
    except Exception:  # the tests' own exception, whose `__str__` fails: it has no text
        return ""


def _line(error: BaseException) -> int:
    """The line at which the tests were, or 0."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<tests>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
