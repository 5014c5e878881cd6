"""Runs tests without any program: do they end by themselves?

Everything that they take from the program is unknown, and so are the results. A loop over an unknown value ends at
once. Tests that use very many unknown values, and so may be waiting for one, are ended.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterable
from typing import Any, NoReturn

__all__ = ["rehearse"]

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
