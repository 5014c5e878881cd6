"""Names that tests use, and should define themselves but do not.

`assert f(3) == slow(3)`: what an assertion calls on its left side belongs to the program, and `slow` can only be a
helper that the tests lack. A name is a helper's if it occurs only in values that results are compared with: in right
sides of assertions, and in what only those use. Every other name is the program's, which then fails.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence

__all__ = ["helpers_of"]

_BUILTINS = frozenset(dir(builtins))
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
            case ast.Assert(test=ast.Compare(left=left, comparators=right)) if not _names(left) <= known:
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
            if name not in known and stored.get(name) == len(parts) and all(_names(part) <= known for part in parts)
        ]
        if not found:
            break
        known.update(found)
    return known


def _names(part: ast.AST) -> set[str]:
    return set(_loaded(part))


def _loaded(part: ast.AST) -> Iterator[str]:
    return (node.id for node in ast.walk(part) if isinstance(node, ast.Name))
