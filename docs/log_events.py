"""Finds the events of the worker's log in its source: their names, levels and keys.

An event is a call of a structlog logger with a constant name, as `_log.info("serving", address=...)`. A function or a
constructor with a parameter `event` may log what its callers name. What cannot be read from the source is refused: the
table of events would lack it.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Found", "Unreadable", "events_of"]

LEVELS = ("debug", "info", "warning", "error")
TRACEBACK = "exception"
"""The key of a traceback: of `exc_info=`, and of the level `exception`."""

_METHODS = {**{level: level for level in LEVELS}, "exception": "error"}
_REFUSED = ("critical", "fatal", "log", "msg", "warn", *(f"a{method}" for method in _METHODS))

_Key = tuple[str, str, str]
"""Of a forwarder: its module if its name is private, its kind, and its name."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Unreadable(Exception):
    """A line of the log that its source does not name in a readable way."""


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """An event, wherever it is written."""

    levels: tuple[str, ...]
    """The lowest one first."""
    keys: tuple[str, ...]
    """Those of any of its lines, except those of every line."""

    def joined(self, other: Found) -> Found:
        """Both, as one event that is written in two places."""
        levels = {*self.levels, *other.levels}
        return Found(
            tuple(level for level in LEVELS if level in levels), tuple(dict.fromkeys((*self.keys, *other.keys)))
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Call:
    """A call that logs, or may log, an event."""

    path: str
    node: ast.Call
    levels: tuple[str, ...]
    """None of them if it is no call of a logger."""
    keys: tuple[str, ...]
    owner: ast.ClassDef | None
    function: _Function | None


@dataclasses.dataclass(frozen=True, slots=True)
class _Forwarder:
    """A function, a method or a constructor that logs an event that its callers name."""

    found: Found
    parameters: tuple[str, ...]
    """Without `self`. Other keywords are keys of the line."""


def events_of(sources: Iterable[tuple[str, str]]) -> dict[str, Found]:
    """The events of modules by name, in alphabetical order.

    Args:
        sources: the path and the text of each module.

    Raises:
        Unreadable: the name, the keys or the level of a line are not constant.
    """
    events: dict[str, Found] = {}
    others: list[_Call] = []
    forwarders: dict[_Key, _Forwarder] = {}
    for path, text in sources:
        module = ast.parse(text)
        for name, found in _written_out(module):
            _add(events, [name], found)
        for call in _calls(path, module):
            if not call.levels:
                others.append(call)
            elif _passes_on(call.node.args[0]):
                _add_forwarder(forwarders, call, Found(call.levels, call.keys))
            else:
                _add(events, _names(call, call.node.args[0]), Found(call.levels, call.keys))
    passed: list[tuple[_Call, _Forwarder]] = []
    for call in others:
        forwarder = forwarders.get(_called(call))
        if forwarder is not None and _passes_on(_event(call, forwarder)):
            _add_forwarder(forwarders, call, forwarder.found)
        elif forwarder is not None:
            passed.append((call, forwarder))
    for call, _ in passed:
        forwarder = forwarders[_called(call)]
        own = [word for word in call.node.keywords if word.arg not in (*forwarder.parameters, "exc_info")]
        found = forwarder.found.joined(Found((), _keys(call.path, own, call.function)))
        _add(events, _names(call, _event(call, forwarder)), found)
    return dict(sorted(events.items()))


def _written_out(module: ast.Module) -> Iterator[tuple[str, Found]]:
    """Lines that are written without a logger, as {"event": "name", "level": "warning"}."""
    for node in ast.walk(module):
        if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
            line = {ast.literal_eval(key): value for key, value in zip(node.keys, node.values) if key is not None}
            if isinstance(line.get("event"), ast.Constant) and isinstance(line.get("level"), ast.Constant):
                keys = tuple(key for key in line if key not in ("event", "level"))
                yield ast.literal_eval(line["event"]), Found((ast.literal_eval(line["level"]),), keys)


def _calls(
    path: str, node: ast.AST, owner: ast.ClassDef | None = None, function: _Function | None = None
) -> Iterator[_Call]:
    """All calls of a module; a function within a function is a part of it."""
    for child in ast.iter_child_nodes(node):
        inside = owner, function
        match child:
            case ast.ClassDef():
                inside = child, None
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                inside = owner, function or child
            case ast.Call(func=called):
                levels = _levels(path, called)
                keys = _keys(path, child.keywords, function) if levels else ()
                if isinstance(called, ast.Attribute) and called.attr == "exception" and levels:
                    keys = (*keys, TRACEBACK)
                if levels and not child.args:
                    raise _refusal(path, child, "a line without a name")
                yield _Call(path, child, levels, keys, owner, function)
                if levels:  # the method was looked at
                    given = [*child.args, *(word.value for word in child.keywords)]
                    yield from _calls(path, ast.Tuple(given), *inside)
                    continue
            case ast.Attribute(attr=method) if _is_logger(child.value) and method in (*_METHODS, *_REFUSED):
                raise _refusal(path, child, f"{ast.unparse(child)} is not called where it is written")
            case _:
                pass
        yield from _calls(path, child, *inside)


def _levels(path: str, called: ast.expr) -> tuple[str, ...]:
    """At which a call logs: that of the method, or those of both methods of a condition."""
    match called:
        case ast.IfExp(body=one, orelse=other):
            found = {*_levels(path, one), *_levels(path, other)}
            return tuple(level for level in LEVELS if level in found)
        case ast.Attribute(value=value, attr=method) if _is_logger(value) and method in _METHODS:
            return (_METHODS[method],)
        case _:
            return ()


def _is_logger(value: ast.expr) -> bool:
    text = ast.unparse(value)
    return text in ("log", "_log", "self._log") or text.startswith("structlog.get_logger(")


def _passes_on(name: ast.expr) -> bool:
    """Whether the name of an event is that of a caller."""
    return ast.unparse(name) in ("event", "self._event")


def _names(call: _Call, name: ast.expr) -> list[str]:
    match name:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.IfExp(body=one, orelse=other):
            return [*_names(call, one), *_names(call, other)]
        case _:
            raise _refusal(call.path, name, f"the name {ast.unparse(name)} is not constant")


def _keys(path: str, words: Sequence[ast.keyword], function: _Function | None) -> tuple[str, ...]:
    passed = ["self._fields"] if function is None or function.args.kwarg is None else [function.args.kwarg.arg]
    keys: list[str] = []
    for word in words:
        if word.arg is not None:
            keys.append(TRACEBACK if word.arg == "exc_info" else word.arg)
        elif ast.unparse(word.value) not in (*passed, "self._fields"):  # those are the keys of a caller
            raise _refusal(path, word.value, f"the keys of **{ast.unparse(word.value)} are not written there")
    return tuple(keys)


def _called(call: _Call) -> _Key:
    """The key of the forwarder that a call may call."""
    if isinstance(call.node.func, ast.Attribute):
        return _key(call.path, "method", call.node.func.attr)
    return _key(call.path, "function", ast.unparse(call.node.func))


def _key(path: str, kind: str, name: str) -> _Key:
    return path if name.startswith("_") else "", kind, name


def _event(call: _Call, forwarder: _Forwarder) -> ast.expr:
    """What a call gives a forwarder as `event`."""
    given = [word.value for word in call.node.keywords if word.arg == "event"]
    at = forwarder.parameters.index("event")
    given += call.node.args[at : at + 1]
    if len(given) != 1:
        raise _refusal(call.path, call.node, "no event is given")
    return given[0]


def _add_forwarder(forwarders: dict[_Key, _Forwarder], call: _Call, found: Found) -> None:
    """The function that a call is in, or the constructor of its class if that has the event."""
    owner, function = call.owner, call.function
    kind = "function" if owner is None else "method"
    if owner is not None and not (function is not None and "event" in _parameters(function)):
        made = [each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        function, kind = (made or [None])[0], "function"
    if function is None or "event" not in _parameters(function):
        raise _refusal(call.path, call.node, "`event` is not a parameter")
    name = owner.name if owner is not None and kind == "function" else function.name
    key = _key(call.path, kind, name)
    if (before := forwarders.get(key)) is not None:
        found = before.found.joined(found)
    forwarders[key] = _Forwarder(found, _parameters(function))


def _parameters(function: _Function) -> tuple[str, ...]:
    all_of_them = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return tuple(each.arg for each in all_of_them if each.arg != "self")


def _add(events: dict[str, Found], names: Sequence[str], found: Found) -> None:
    for name in names:
        events[name] = events[name].joined(found) if name in events else found


def _refusal(path: str, node: ast.expr, why: str) -> Unreadable:
    return Unreadable(f"{path}:{node.lineno}: {why}")
