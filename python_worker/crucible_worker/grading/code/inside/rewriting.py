"""How tests are rewritten before they run apart from the program: its exceptions, and its types and objects."""

from __future__ import annotations

import ast
import builtins
import contextlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["GUARDS", "SAME", "TYPE_OF", "Guards", "ProgramError", "compiled", "is_own", "native_of", "rewrite"]

# Questions of tests about the type and the identity of values that may be objects of the program.
#
# `type(x)`, `x.__class__` and `x is y` cannot be answered by the proxy of an object in the tests, so they are rewritten
# to calls of functions that can answer them.

TYPE_OF = "__program_type_of__"
"""The name of the function that answers `type(x)` in rewritten tests."""
SAME = "__program_same__"
"""The name of the function that answers `x is y` in them."""


def rewrite(tree: ast.Module) -> bool:
    """Rewrite the expressions in place; returns whether there are any. Not recursive."""
    nodes = list(ast.walk(tree))
    if any(isinstance(node, ast.Name) and node.id == "type" and not isinstance(node.ctx, ast.Load) for node in nodes):
        return False  # a name of the tests' own
    found = False
    for node in reversed(nodes):  # inner expressions first
        for name, value in list(ast.iter_fields(node)):
            if isinstance(value, list):
                for at, part in enumerate(value):
                    if (new := _asked(part)) is not None:
                        value[at], found = new, True
            elif (new := _asked(value)) is not None:
                setattr(node, name, new)
                found = True
    return found


def _asked(node: object) -> ast.expr | None:
    """The replacement of an expression; None if it stays."""
    match node:
        case ast.Call(func=ast.Name(id="type"), args=[ast.expr() as value], keywords=[]):
            return _call(node, TYPE_OF, value)
        case ast.Attribute(value=value, attr="__class__", ctx=ast.Load()):
            return _call(node, TYPE_OF, value)
        case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() as operator], comparators=[right]):
            if any(isinstance(side, ast.Constant) for side in (left, right)):
                return None
            same = _call(node, SAME, left, right)
            return same if isinstance(operator, ast.Is) else ast.copy_location(ast.UnaryOp(ast.Not(), same), node)
        case _:
            return None


def _call(at: ast.expr, name: str, *arguments: ast.expr) -> ast.expr:
    function = ast.copy_location(ast.Name(id=name, ctx=ast.Load()), at)
    return ast.copy_location(ast.Call(func=function, args=[*arguments], keywords=[]), at)


# Exceptions of a program, as its tests see them.
#
# All of them reach the tests as one kind of exception, `ProgramError`, which no protocol of Python swallows. If `f`
# raises StopIteration, `all(map(f, cases))` would otherwise stop at the first case and pass. So would a loop over a
# `__getitem__` that calls `f` at an IndexError, and `hasattr` at an AttributeError.
#
# Only the tests' own `try` and `with` statements see the exception by its type. `compiled` puts each of them between
# two guards: inside, a `ProgramError` becomes the exception it stands for; when this exception leaves the statement, it
# becomes a `ProgramError` again. `assertRaises(ValueError, f, 1)` is guarded likewise.

GUARDS = "__program_errors__"
"""The name by which rewritten tests find their `Guards`."""

_RAISING = frozenset({"assertRaises", "assertRaisesRegex", "raises"})
_RECURSION = 20_000  # Python's compiler limits the levels of trees, its parser does not

_Trial = ast.Try | ast.TryStar


class ProgramError(Exception):
    """A program raised; `native` is the exception by its type."""

    def __init__(self, native: BaseException) -> None:
        super().__init__(*native.args)
        self.native = native
        native.__dict__["program_error"] = self

    def __getattribute__(self, name: str) -> Any:
        # For isinstance in libraries; no protocol uses it.
        return type(self.native) if name == "__class__" else super().__getattribute__(name)

    def __str__(self) -> str:
        return str(self.native)


class Guards:
    """The guards around the `try` and `with` statements of tests.

    Args:
        names: the names that tests take from the program; those that they catch are exceptions here.
    """

    def __init__(self, names: Mapping[str, bool]) -> None:
        self._names = names
        self.classes: dict[str, type[Exception]] = {}
        """Stand-ins for exceptions that the program defines, by name."""
        self.modules: set[str] = set()
        """The modules that tests import."""

    @property
    def native(self) -> contextlib.AbstractContextManager[None]:
        """Converts a `ProgramError` to the exception it stands for."""
        return _Native()

    @property
    def back(self) -> contextlib.AbstractContextManager[None]:
        """Converts an exception from `native` back to its `ProgramError`."""
        return _Back()

    def calling(self, raises: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a helper that calls a function and expects it to raise."""

        def guarded(function: Any) -> Any:
            def call(*given: Any, **given_named: Any) -> Any:
                with self.native:
                    return function(*given, **given_named)

            return call

        with self.back:
            return raises(*(_guarded(argument, guarded) for argument in arguments), **named)

    def error(self, answer: Mapping[str, Any], arguments: tuple[Any, ...] | None) -> ProgramError:
        """The exception that an answer of the program describes.

        Args:
            answer: the program's answer.
            arguments: those of the exception, if they are plain values.
        """
        lineage = [name for name in answer.get("lineage", ()) if isinstance(name, str)]
        named = dict.fromkeys(self.classes[name] for name in lineage if name in self.classes)
        kind = _kind(str(answer.get("raised")), [*named], _builtin_kinds(lineage))
        return ProgramError(_instance(kind, str(answer.get("message")), arguments))

    def look(self, tree: ast.Module) -> None:
        """Note which modules tests import, and which of the program's names they catch."""
        for node in ast.walk(tree):
            caught: list[ast.expr | None] = []
            match node:
                case ast.ExceptHandler(type=kind):
                    caught = [kind]
                case ast.Call() if _called_name(node) in _RAISING:
                    caught = list(node.args[:1])
                case ast.Import(names=names):
                    self.modules.update(name.name.partition(".")[0] for name in names)
                case ast.ImportFrom(module=str(module)):
                    self.modules.add(module.partition(".")[0])
                case _:
                    pass
            for part in caught:
                for name in part.elts if isinstance(part, ast.Tuple) else [part]:
                    if isinstance(name, ast.Name) and name.id in self._names and name.id not in self.classes:
                        self.classes[name.id] = type(name.id, (Exception,), {})


class _Native(contextlib.AbstractContextManager[None]):
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is ProgramError and error is not None:
            raise native_of(error).with_traceback(trace) from None


class _Back(contextlib.AbstractContextManager[None]):
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(found := vars(error).get("program_error") if error is not None else None, Exception):
            raise found.with_traceback(trace) from None


def native_of(error: BaseException) -> BaseException:
    """The exception that a `ProgramError` stands for; any other is unchanged."""
    return vars(error)["native"] if type(error) is ProgramError else error


def is_own(error: BaseException) -> bool:
    """Whether the tests raised an exception themselves."""
    return type(error) is not ProgramError and "program_error" not in vars(error)


def compiled(source: str, guards: Guards) -> types.CodeType:
    """Compile tests, with guards around statements that catch exceptions, and calls for questions about types."""
    tree = ast.parse(source, "<tests>")
    guards.look(tree)
    asks = rewrite(tree)
    if not _guard(tree) and not asks:
        return compile(source, "<tests>", "exec")
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(_RECURSION)
    try:
        return compile(tree, "<tests>", "exec")
    finally:
        sys.setrecursionlimit(before)


def _guard(tree: ast.Module) -> bool:
    """Rewrite the statements and calls that catch exceptions; returns whether there are any. Not recursive."""
    found = False
    for node in list(ast.walk(tree)):
        for block in _blocks(node):
            for at, statement in enumerate(block):
                if isinstance(statement, _Trial | ast.AsyncWith):
                    block[at] = _with(statement, "back", [statement])
                    found = True
        match node:
            case ast.Try() | ast.TryStar() | ast.AsyncWith():
                node.body = [_with(node, "native", node.body)]
            case ast.With():
                node.items = [_item(node, "back"), *node.items, _item(node, "native")]
                found = True
            case ast.Call() if _called_name(node) in _RAISING and len(node.args) > 1:
                node.args.insert(0, node.func)
                node.func = _guard_name(node, "calling")
                found = True
    return found


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block


def _called_name(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _with(at: ast.stmt, guard: str, body: list[ast.stmt]) -> ast.With:
    return ast.copy_location(ast.With(items=[_item(at, guard)], body=body), at)


def _item(at: ast.stmt, guard: str) -> ast.withitem:
    return ast.withitem(context_expr=_guard_name(at, guard))


def _guard_name(at: ast.stmt | ast.expr, guard: str) -> ast.expr:
    name = ast.copy_location(ast.Name(id=GUARDS, ctx=ast.Load()), at)
    return ast.copy_location(ast.Attribute(value=name, attr=guard, ctx=ast.Load()), at)


def _guarded(argument: Any, guarded: Callable[[Any], Any]) -> Any:
    wanted = isinstance(argument, type) and issubclass(argument, BaseException)
    return guarded(argument) if callable(argument) and not wanted else argument


def _builtin_kinds(lineage: Sequence[str]) -> list[type[BaseException]]:
    """Python's own exceptions among them, without base classes of others."""
    kinds = [kind for name in dict.fromkeys(lineage) if isinstance(kind := getattr(builtins, name, None), type)]
    known = [kind for kind in kinds if issubclass(kind, BaseException) and kind is not BaseException]
    return [kind for kind in known if not any(issubclass(other, kind) for other in known if other is not kind)]


def _kind(name: str, named: Sequence[type[Exception]], kinds: Sequence[type[BaseException]]) -> type[BaseException]:
    """A class with this name below all of these bases that are compatible."""
    if not named and len(kinds) == 1 and name == kinds[0].__name__:
        return kinds[0]
    shown = name if name.isidentifier() else "ProgramError"
    try:
        return types.new_class(shown, (*named, *(kinds or [Exception])))
    except TypeError:  # incompatible layouts
        return types.new_class(shown, (*named, *kinds[:1]))


def _instance(kind: type[BaseException], message: str, arguments: tuple[Any, ...] | None) -> BaseException:
    """An exception with these arguments if they give it its message, otherwise with only the message."""
    for given in (arguments, (message,)):
        if given is None:
            continue
        try:
            error = kind(*given)
            if str(error) == message or given == (message,):
                return error
        except Exception:  # some need more arguments than a text
            continue
    bare = kind.__new__(kind)
    bare.args = (message,)
    return bare
