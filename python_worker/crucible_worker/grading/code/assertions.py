"""What assertions need: calls with known values, or tests that must be run, with the names that they lack.

`assert f(1) == 2` needs no test to be run: the call is made, and its result is compared with 2 outside the program's
sandbox. The same is true of tests like HumanEval's, if `check(candidate)` contains only such lines. All other tests run
in a separate sandbox, with proxies for what they take from the program.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import re
import symtable
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crucible_bridge.types.code_tests import BadTests
from crucible_worker.grading.code.inside.wire import NotPlain, encode

__all__ = ["AssertedCall", "Plain", "Proxied", "helpers_of", "read_assertions", "with_body", "with_modules"]


# Names that tests use, and should define themselves but do not.
#
# `assert f(3) == slow(3)`: what an assertion calls on its left side belongs to the program, and `slow` can only be a
# helper that the tests lack. A name is a helper's if it occurs only in values that results are compared with: in right
# sides of assertions, and in what only those use. Every other name is the program's, which then fails.

_MAX_STEPS = 8  # from an assertion back to the name, by assignments and functions


def helpers_of(tests: ast.Module, taken: frozenset[str]) -> frozenset[str]:
    """The helpers among names that tests take from the program.

    Args:
        tests: the tests.
        taken: names that they use and do not define.
    """
    nodes = list(ast.walk(tests))
    bound = _bindings(nodes)
    known = _known(nodes, bound)
    compared: set[int] = set()
    for node in nodes:
        match node:
            case ast.Assert(test=ast.Compare(left=left, comparators=right)) if not _names_in(left) <= known:
                for part in right:
                    compared.update(map(id, ast.walk(part)))
    loads: dict[str, list[int]] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            loads.setdefault(node.id, []).append(id(node))
    for _ in range(_MAX_STEPS):
        found = [name for name in bound if name in loads and compared.issuperset(loads[name])]
        if not found:
            break
        for name in found:
            for part in bound.pop(name):
                compared.update(map(id, ast.walk(part)))
    helpers = frozenset(name for name in taken if name in loads and compared.issuperset(loads[name]))
    return frozenset() if helpers == taken else helpers


def _bindings(nodes: Sequence[ast.AST]) -> dict[str, list[ast.AST]]:
    """Functions and variables of the tests, with what they are made of."""
    bound: dict[str, list[ast.AST]] = {}
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                bound.setdefault(name, []).append(value)
            case ast.FunctionDef(name=name):
                bound.setdefault(name, []).append(node)
            case _:
                pass
    return bound


def _known(nodes: Sequence[ast.AST], bound: dict[str, list[ast.AST]]) -> set[str]:
    """Names in which there is nothing of a program: builtins, modules, and variables made of such alone."""
    known = set(_BUILTINS)
    stored: dict[str, int] = {}
    for node in nodes:
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                known.update((name.asname or name.name).partition(".")[0] for name in names)
            case ast.Name(id=name, ctx=ast.Store()):
                stored[name] = stored.get(name, 0) + 1
            case _:
                pass
    for _ in range(_MAX_STEPS):
        # Bound by assignments alone, not by loops or the like.
        found = [
            name
            for name, parts in bound.items()
            if name not in known and stored.get(name) == len(parts) and all(_names_in(part) <= known for part in parts)
        ]
        if not found:
            break
        known.update(found)
    return known


def _names_in(part: ast.AST) -> set[str]:
    return set(_loaded(part))


def _loaded(part: ast.AST) -> Iterator[str]:
    return (node.id for node in ast.walk(part) if isinstance(node, ast.Name))


_BUILTINS = frozenset(dir(builtins))
_MAX_ONE_HASH = 16
_OF_KINDS = frozenset({"isinstance", "issubclass", "assertIsInstance", "assertNotIsInstance"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AssertedCall:
    """A call with a known value."""

    function: str
    """The name in the program."""
    arguments: Sequence[Any]
    """The arguments, as `wire.encode` writes them."""
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


# Modules of the standard library that tests use, and that only the program imports.
#
#     import math                                             the program
#     assert math.isclose(area(1), math.pi)                   its tests
#
# In one process the tests would find the program's `math`. Here they run apart from the program, and import it again.
# Names from a module count if only right sides of assertions use them: a `gcd` that is called on the left must come
# from the program. An import under another name is ignored: a program could import a mock by the name of a module.

_IMPORT = re.compile(r"^import[ \t]+([^\n#;]{1,500})", re.MULTILINE)
_FROM = re.compile(r"^from[ \t]+([\w.]{1,100})[ \t]+import[ \t]+([^\n#;]{1,500})", re.MULTILINE)


def with_modules(tests: Proxied, program: str) -> Proxied:
    """The tests, with imports of names from modules that the program imports. Linear; the program is not run.

    Args:
        tests: from `read_assertions`.
        program: Python, or not.
    """
    modules = tests.classes.keys() & sys.stdlib_module_names
    if not modules and not tests.helpers:
        return tests
    imports = {name: f"import {name}" for name in _modules(program) if name in modules}
    imports |= {name: line for name, line in _named(program) if name in tests.helpers}
    classes = {name: is_class for name, is_class in tests.classes.items() if name not in imports}
    if not imports or not classes:
        return tests
    lines = "\n".join(imports[name] for name in sorted(imports))
    return dataclasses.replace(
        tests, sources=(lines, *tests.sources), classes=classes, helpers=tests.helpers - imports.keys()
    )


def _modules(program: str) -> Iterator[str]:
    for found in _IMPORT.finditer(program):
        for part in found[1].split(","):
            yield part.strip().partition(".")[0] if " as " not in part else ""


def _named(program: str) -> Iterator[tuple[str, str]]:
    for found in _FROM.finditer(program):
        if found[1].partition(".")[0] in sys.stdlib_module_names:
            for name in (part.strip(" \t\r()") for part in found[2].split(",")):
                yield name, f"from {found[1]} import {name}"
