"""Questions of tests about the type and the identity of values that may be objects of the program.

`type(x)`, `x.__class__` and `x is y` cannot be answered by the proxy of an object in the tests, so they are
rewritten to calls of functions that can answer them.
"""

from __future__ import annotations

import ast

__all__ = ["SAME", "TYPE_OF", "rewrite"]

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
