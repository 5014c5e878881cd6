"""The blocking client, written after the asynchronous one: `client/blocking_calls.py`.

The parameters, their types and the documentation of each method are those of the asynchronous method; its body waits
for that method on the client's own event loop.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from generator.schema import Schema
from generator.sources import CLIENT, HEADER, Module, documented, imports_of, parameters_of

__all__ = ["make"]

BRIDGE = "Bridge"
# What a plain method of the asynchronous client returns, and what waits for it.
STREAM, ITERATOR = "EventStream", "AsyncIterator"
# What it returns that is a context manager, with methods that are blocking as well.
CONTEXTS = ("ExperimentLog",)


def make(schema: Schema, into: Path) -> dict[str, str]:
    """Write the module; its text by its name."""
    module = Module(f"{CLIENT}.bridge")
    bridge = module.class_named(BRIDGE)
    spaces = tuple(_namespaces(bridge))
    names = module.names() | Module(f"{CLIENT}.loop_thread").names()
    classes: list[str] = []
    for _, called, _ in spaces:
        home = module.home_of(called)
        methods = []
        for source, method in _methods(home, home.class_named(called)):
            names |= source.names()
            methods.append(_method(method, f"{called}.{method.name}"))
        classes.append(_namespace(home.class_named(called), methods))
    for called in CONTEXTS:
        home = module.home_of(called)
        names |= home.names()
        found = _methods(home, home.class_named(called))
        methods = [_method(method, f"{called}.{method.name}") for _, method in found]
        classes.append(_context(home.class_named(called), methods))
    own = [_method(method, f"{BRIDGE}.{method.name}") for _, method in _methods(module, bridge)]
    classes.append(_connection(spaces, own))
    code = "\n\n".join(classes)
    exported = sorted(f"Blocking{called}" for called in (BRIDGE, *CONTEXTS, *(called for _, called, _ in spaces)))
    text = f'''{HEADER}
"""The blocking client, method by method: each waits for its asynchronous twin."""

from __future__ import annotations

{imports_of(code, names)}

__all__ = {exported}


{code}'''
    return {"blocking_calls.py": text}


def _namespaces(bridge: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """Each namespace: its attribute, its class, and what is said of it."""
    (create,) = (node for node in bridge.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    for node, following in zip(create.body, [*create.body[1:], ast.Pass()]):
        match node, following:
            case (
                ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Call(func=ast.Name(id=called))),
                ast.Expr(value=ast.Constant(value=str(comment))),
            ) if not name.startswith("_"):
                yield name, called, comment


def _methods(module: Module, node: ast.ClassDef) -> Iterator[tuple[Module, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The public methods of a class, its own first, each with the module that defines it."""
    for method in node.body:
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and not method.name.startswith("_"):
            yield module, method
    for base in node.bases:
        home = module.home_of(ast.unparse(base))
        yield from _methods(home, home.class_named(ast.unparse(base)))


def _namespace(node: ast.ClassDef, methods: list[str]) -> str:
    return f"""class Blocking{node.name}:
{documented(ast.get_docstring(node), "    ")}
    def __init__(self, thread: LoopThread, client: {node.name}) -> None:
        self._thread = thread
        self._client = client

{chr(10).join(methods)}"""


def _context(node: ast.ClassDef, methods: list[str]) -> str:
    return f"""class Blocking{node.name}(BlockingContext):
{documented(ast.get_docstring(node), "    ")}
    def __init__(self, thread: LoopThread, client: {node.name}) -> None:
        super().__init__(thread, client)
        self._client = client

{chr(10).join(methods)}"""


def _connection(spaces: tuple[tuple[str, str, str], ...], methods: list[str]) -> str:
    attributes = "".join(
        f"        self.{name} = Blocking{called}(thread, bridge.{name})\n{documented(comment, ' ' * 8)}"
        for name, called, comment in spaces
    )
    return f'''class Blocking{BRIDGE}(BlockingConnection):
    """A worker, as a client without an event loop sees it. Made by `connect_sync`."""

    def __init__(self, thread: LoopThread, bridge: {BRIDGE}) -> None:
        super().__init__(thread)
        self._client = bridge
{attributes}
{chr(10).join(methods)}'''


def _method(method: ast.FunctionDef | ast.AsyncFunctionDef, path: str) -> str:
    returns = ast.unparse(method.returns) if method.returns else "None"
    call = f"self._client.{method.name}({parameters_of(method)})"
    if isinstance(method, ast.AsyncFunctionDef):
        wanted, body = returns, f"self._thread.run({call})"
    elif returns == STREAM:
        # Opening one needs the running loop.
        wanted, body = "BlockingEventStream", f"BlockingEventStream(self._thread, self._thread.made(lambda: {call}))"
    elif returns in CONTEXTS:
        wanted, body = f"Blocking{returns}", f"Blocking{returns}(self._thread, {call})"
    elif returns.startswith(f"{ITERATOR}["):
        wanted, body = returns.replace(ITERATOR, "BlockingIterator", 1), f"BlockingIterator(self._thread, {call})"
    else:
        raise SystemExit(f"{path} returns {returns}: generator/blocking.py has to be taught how to wait for it")
    return (
        f"    def {method.name}({ast.unparse(method.args)}) -> {wanted}:\n"
        f"{documented(ast.get_docstring(method), ' ' * 8)}"
        f"        return {body}\n"
    )
