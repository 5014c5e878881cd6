"""Modules keep no state: what a worker needs is handed to it, so that two workers in one process are apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCES = (ROOT / "bridge" / "crucible_bridge", ROOT / "python_worker" / "crucible_worker")

_CHANGES = {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "put"}
_CHANGES |= {"remove", "set", "setdefault", "update"}
_MADE = {"BoundedSemaphore", "Condition", "ContextVar", "Event", "Lock", "Queue", "RLock", "Semaphore", "WeakSet"}
_MADE |= {"WeakKeyDictionary", "WeakValueDictionary", "count", "defaultdict", "deque", "local"}

ALLOWED = {
    "crucible_bridge/buffers.py: keep_large_buffers": "of the allocator, of which a process has one",
    "crucible_bridge/rewards/process.py: _inherited": "of the parent of a fork, kept as they are",
    "crucible_bridge/rewards/process.py: _lock": "of the next",
    "crucible_bridge/rewards/process.py: _processes": "processes that grade, one of each kind for all rewards of the"
    " program, which trainers copy and pickle",
    "crucible_worker/children/process.py: _abandoned": "children of the process, only waited for",
    "crucible_worker/util/options.py: _parsing": "of the interpreter, whose parser fails in several threads",
    "crucible_worker/grading/code/sandbox.py: _numbers": "shared so that sandboxes of several workers get different"
    " user ids",
    "crucible_worker/grading/pool.py: _servers": "fork servers, which every pool of the process uses: a pool"
    " starts in 20 ms in place of 1.3 s, and the test kit starts a worker for each test",
    "crucible_worker/grading/pool.py: _starting": "likewise",
    "crucible_worker/snakepit/adapter.py: _lock": "Snakepit makes an adapter for each session and hands it nothing:"
    " they share the worker of their process",
    "crucible_worker/snakepit/adapter.py: _worker": "likewise",
}
"""Where it lies, and why it belongs to the process."""


def _state(tree: ast.Module) -> Iterator[str]:
    """Names of a module that functions change, that hold what is there to be changed, or that act once."""
    yield from (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _acts_once(node))
    made: dict[str, ast.expr] = {}
    for statement in tree.body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(name)], value=value)
                | ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value)
            ):
                made[name] = value
    yield from (name for name, value in made.items() if isinstance(value, ast.Call) and _called(value) in _MADE)
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        for node in ast.walk(function):
            match node:
                case ast.Global(names):
                    yield from names
                case ast.Call(func=ast.Attribute(value=ast.Name(name), attr=change)):
                    if name in made and change in _CHANGES and not _is_frozen(made[name]):
                        yield name
                case (
                    ast.Subscript(value=ast.Name(name), ctx=ast.Store() | ast.Del())
                    | ast.Attribute(value=ast.Name(name), ctx=ast.Store() | ast.Del())
                ) if name in made:
                    yield name
                case _:
                    pass


def _acts_once(function: ast.FunctionDef) -> bool:
    """Whether a function without a result is cached: what it has done is then state."""
    caches = any("cache" in ast.unparse(decorator) for decorator in function.decorator_list)
    return caches and isinstance(function.returns, ast.Constant) and function.returns.value is None


def _called(call: ast.Call) -> str:
    """The last name of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_frozen(value: ast.expr) -> bool:
    """Whether a value has operations by these names that change nothing: a context of decimals adds."""
    return isinstance(value, ast.Call) and _called(value) == "Context"


def _found() -> set[str]:
    return {
        f"{path.relative_to(source.parent)}: {name}"
        for source in SOURCES
        for path in source.rglob("*.py")
        for name in _state(ast.parse(path.read_text(encoding="utf-8")))
    }


@pytest.mark.long
def test_no_module_keeps_state():
    """A name of a module is not changed after the import, except for the few that belong to the process by nature."""
    assert _found() == set(ALLOWED)


def test_state_is_found():
    """Whatever way a function changes a name of its module, and what is only there to be changed."""
    changed = {
        "x = {}\ndef f(): x['a'] = 1": "x",
        "x = []\ndef f(): x.append(1)": "x",
        "x = None\ndef f():\n    global x\n    x = 1": "x",
        "import threading\nx = threading.Lock()": "x",
        "x: dict[str, str] = {}\ndef f(): del x['a']": "x",
        "class C: pass\nx = C()\nasync def f(): x.y = 1": "x",
        "import functools\n@functools.cache\ndef x() -> None: print('once')": "x",
    }
    wrong = [code for code, name in changed.items() if set(_state(ast.parse(code))) != {name}]

    assert wrong == []
    assert set(_state(ast.parse("x = {}\ndef f(x): return {}\ny = [1]\ndef g(): return y[0]"))) == set()
