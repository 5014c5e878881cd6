"""What assertions need of a program: calls with known values, or tests that must be run.

`assert f(1) == 2` needs no test to be run: the call is made, and its result is compared with 2 outside the program's
sandbox. The same is true of tests like HumanEval's, if `check(candidate)` contains only such lines. All other tests run
in a separate sandbox, with proxies for what they take from the program.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import symtable
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crucible_worker.grading.code.inside.values import NotPlain, encode
from crucible_worker.grading.code.missing_helpers import helpers_of

__all__ = ["AssertedCall", "BadTests", "Plain", "Proxied", "read_assertions", "with_body"]


_BUILTINS = frozenset(dir(builtins))
_MAX_ONE_HASH = 16
_OF_KINDS = frozenset({"isinstance", "issubclass", "assertIsInstance", "assertNotIsInstance"})


class BadTests(Exception):
    """The assertions are unusable for every program; the text says why."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AssertedCall:
    """A call with a known value."""

    function: str
    """The name in the program."""
    arguments: Sequence[Any]
    """The arguments, as `values.encode` writes them."""
    named: Any
    """The keyword arguments, a dict, likewise."""
    expected: Any
    """The value that must be returned, of Python's built-in types."""
    line: int
    """Of the assertion."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """Assertions that are calls."""

    calls: Sequence[AssertedCall]
    """In order."""

    @property
    def names(self) -> frozenset[str]:
        """What the program must define."""
        return frozenset(call.function for call in self.calls)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Proxied:
    """Tests to be run with proxies."""

    sources: Sequence[str]
    """Python: what the prefix defines, and the tests."""
    classes: Mapping[str, bool]
    """Names that refer to the program, and whether they are written like classes."""
    helpers: frozenset[str] = frozenset()
    """Those of them that belong to the tests: if the program does not define them, the tests are at fault."""

    @property
    def names(self) -> frozenset[str]:
        """What the program must define."""
        return frozenset(self.classes)


class _NotPlainTest(Exception):
    """A statement is more than a call with a known value."""


def read_assertions(source: str, prefix: str = "") -> Plain | Proxied:
    """Read what tests need of a program.

    Args:
        source: the tests.
        prefix: text before the program; the tests get the functions and constants that are complete in it as well.

    Raises:
        BadTests: they are not Python, or take nothing from the program.
    """
    try:
        module = ast.parse(source)
        calls = tuple(_plain_calls(module))
    except _NotPlainTest:
        return _proxied(source, prefix)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadTests(f"the tests are not Python: {error}") from None
    if not calls:
        raise BadTests("the tests use nothing of the program: do they call check?")
    return Plain(calls=calls)


def _plain_calls(module: ast.Module) -> Iterator[AssertedCall]:
    checks: dict[str, ast.FunctionDef] = {}
    for statement in module.body:
        match statement:
            case ast.Assert():
                yield from _call(statement)
            case ast.FunctionDef(decorator_list=[]) if _one_parameter(statement):
                checks[statement.name] = statement
            case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=[ast.Name(id=function)], keywords=[])):
                if name not in checks:
                    raise _NotPlainTest
                yield from _checked(checks[name], function)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name not in checks:
                _literal(value)  # of no use to plain calls, such as HumanEval's METADATA
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case _:
                raise _NotPlainTest


def _one_parameter(function: ast.FunctionDef) -> bool:
    given = function.args
    return len(given.args) == 1 and not (given.posonlyargs or given.vararg or given.kwonlyargs or given.kwarg)


def _checked(check: ast.FunctionDef, function: str) -> Iterator[AssertedCall]:
    parameter = check.args.args[0].arg
    for statement in check.body:
        match statement:
            case ast.Assert():
                for call in _call(statement):
                    if call.function != parameter:
                        raise _NotPlainTest
                    yield dataclasses.replace(call, function=function)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case _:
                raise _NotPlainTest


def _call(statement: ast.Assert) -> Iterator[AssertedCall]:
    match statement.test:
        case ast.Constant(value=value) if value:
            return  # not a test: it makes no call
        case ast.Compare(left=ast.Call() as call, ops=[ast.Eq()], comparators=[expected]):
            pass
        case ast.Compare(left=expected, ops=[ast.Eq()], comparators=[ast.Call() as call]):
            pass
        case _:
            raise _NotPlainTest
    if not isinstance(call.func, ast.Name) or call.func.id in _BUILTINS:
        raise _NotPlainTest
    named = {keyword.arg: _literal(keyword.value) for keyword in call.keywords}
    if None in named:
        raise _NotPlainTest
    try:
        yield AssertedCall(
            function=call.func.id,
            arguments=[encode(_literal(argument)) for argument in call.args],
            named=encode(named),
            expected=_literal(expected),
            line=statement.lineno,
        )
    except NotPlain:
        raise _NotPlainTest from None


def _literal(node: ast.expr) -> Any:
    try:
        for part in ast.walk(node):
            if isinstance(part, ast.Set | ast.Dict):
                _check_hashes(part.elts if isinstance(part, ast.Set) else part.keys)
        return ast.literal_eval(node)
    except (ValueError, TypeError, ArithmeticError):
        raise _NotPlainTest from None


def _check_hashes(keys: Sequence[ast.expr | None]) -> None:
    """Leave a set or dict to the sandbox if many of its keys have one hash: each is compared with all before it."""
    if len(keys) <= _MAX_ONE_HASH:
        return
    hashes = sorted(hash(ast.literal_eval(key)) for key in keys if key is not None)
    if any(first == last for first, last in zip(hashes, hashes[_MAX_ONE_HASH:])):
        raise _NotPlainTest


def _proxied(source: str, prefix: str) -> Proxied:
    try:
        whole, stubs = _prefix_parts(prefix)
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadTests(f"the prefix cannot be given to the tests: {error}") from None
    sources = [text for text in (whole, source) if text]
    taken: dict[str, bool] = {}
    try:
        known = _BUILTINS.union(*(_names(text)[0] for text in sources))
        for text in sources:
            kinds = _kinds(ast.parse(text))
            for name in sorted(_names(text)[1] - known):
                is_class = stubs.get(name, name[:1].isupper()) or name in kinds
                taken[name] = taken.get(name, False) or is_class
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadTests(f"the tests are not Python: {error}") from None
    if not taken:
        raise BadTests("the tests take nothing from the program")
    helpers = helpers_of(ast.parse(source), frozenset(taken)) - stubs.keys()
    return Proxied(sources=sources, classes=taken, helpers=helpers)


def _kinds(tests: ast.Module) -> set[str]:
    """Names that tests use as classes, though they begin with a small letter."""
    kinds: set[str] = set()
    for node in ast.walk(tests):
        match node:
            case ast.Call(func=ast.Name(id=asked) | ast.Attribute(attr=asked), args=[_, kind, *_]) if (
                asked in _OF_KINDS
            ):
                waiting = [kind]
                while waiting:
                    match waiting.pop():
                        case ast.Name(id=name):
                            kinds.add(name)
                        case ast.Tuple(elts=parts):
                            waiting += parts
                        case ast.BinOp(left=left, right=right):
                            waiting += left, right
                        case _:
                            pass
            case ast.Compare(left=ast.Call(func=ast.Name(id="type")), comparators=[ast.Name(id=name)]):
                kinds.add(name)
            case _:
                pass
    return kinds


def _names(source: str) -> tuple[set[str], set[str]]:
    """Names that Python code binds at module level, and those that it uses from there."""
    top = symtable.symtable(source, "<tests>", "exec")
    bound = {name.get_name() for name in top.get_symbols() if name.is_assigned() or name.is_imported()}
    used = {name.get_name() for name in top.get_symbols() if name.is_referenced()}
    waiting = list(top.get_children())
    while waiting:
        table = waiting.pop()
        waiting += table.get_children()
        for name in table.get_symbols():
            if name.is_declared_global() and name.is_assigned():
                bound.add(name.get_name())
            if name.is_global() and name.is_referenced():
                used.add(name.get_name())
    return bound, used


def with_body(prefix: str) -> str:
    """A prefix with a body after its last line, as if that were the head of a function."""
    return f"{prefix.rstrip()}\n    pass\n"


def _prefix_parts(prefix: str) -> tuple[str, Mapping[str, bool]]:
    """The complete part of a prefix, as Python, and the names left to the program: whether each is a class."""
    module = None
    for text in (prefix, with_body(prefix)):
        try:
            module = ast.parse(text)
            break
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # a head without a body, or no Python at all: nothing that the tests can use
    whole: list[ast.stmt] = []
    stubs: dict[str, bool] = {}
    for statement in [] if module is None else module.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and _is_stub(statement):
            stubs[statement.name] = isinstance(statement, ast.ClassDef)
        else:
            whole.append(statement)
    if not whole:
        return "", stubs
    return ast.unparse(ast.Module(body=whole, type_ignores=[])), stubs


def _is_stub(definition: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    for statement in definition.body:
        match statement:
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Raise(exc=ast.Name(id="NotImplementedError") | ast.Call(func=ast.Name(id="NotImplementedError"))):
                pass
            case ast.FunctionDef() | ast.AsyncFunctionDef() if isinstance(definition, ast.ClassDef):
                if not _is_stub(statement):
                    return False
            case _:
                return False
    return True
