"""Runs a program that nobody trusts, in a child of the zygote.

The program shares this interpreter and can do anything to it, this module included. All that leaves is values and names
of exceptions; what they are worth is judged elsewhere, by processes that the program never sees.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import random
import socket
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_worker.grading.code.inside import frames, values

__all__ = ["LOADED", "run_script", "serve_calls"]

LOADED = "loaded"
"""Key of the message that says that a program was loaded."""

_MAX_MESSAGE_CHARS = 300
_MAX_NAME_CHARS = 60
_MAX_LINEAGE = 16  # classes above that of an exception
_MAX_ARGUMENTS_BYTES = 4096  # of an exception


def serve_calls(channel: socket.socket) -> None:
    """Load a program, then call its functions as the channel asks, until nobody asks any more."""
    order = frames.receive(channel)
    nonce, limit = order["nonce"], order["max_bytes"]
    module = _module("program")
    reply = _loaded(module, order["source"])
    frames.send(channel, {"nonce": nonce, **reply})
    kept: list[Any] = []
    while (asked := frames.receive(channel)) is not None:
        if LOADED not in reply:
            continue  # what is not read would make the socket's end an error, and the reply might be lost over it
        answer = _answered(module, kept, asked)
        message = frames.pack({"nonce": nonce, **answer})
        if len(message) > limit and _exceeds(answer, limit):
            message = frames.pack({"nonce": nonce, "large": len(message)})
        channel.sendall(message)


def _exceeds(answer: Mapping[str, Any], limit: int) -> bool:
    return any(len(frames.written(answer[part])) > limit for part in ("value", "changed") if part in answer)


def run_script(channel: socket.socket) -> None:
    """Run a program as Python runs a script, to the end of its threads, with its own standard input and output."""
    order = frames.receive(channel)
    module = _module("__main__")
    reply = _loaded(module, order["source"])
    # In the interpreter's order; it ignores what is raised here, too.
    with contextlib.suppress(BaseException):
        vars(threading)["_shutdown"]()
    atexit._run_exitfuncs()
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except Exception as error:
        reply = _raised(error)
    _emptied(module)
    # Whoever reads the output waits for its end: with it the message has come, too.
    frames.send(channel, {"nonce": order["nonce"], **reply})


def _emptied(module: types.ModuleType) -> None:
    """Take a module's objects away as the interpreter does at its end: open files write what they hold."""
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    names = vars(module)
    for private in (True, False):
        for name in [name for name in names if (name[:1] == "_" and name[1:2] != "_") or not private]:
            if name != "__builtins__":
                names[name] = None
    gc.collect()
    if sys.__stdout__ is not None and not sys.__stdout__.closed:
        sys.__stdout__.flush()


def _module(name: str) -> types.ModuleType:
    module = types.ModuleType(name)
    sys.modules[name] = module
    random.seed(0)  # the same program, the same grade
    return module


def _loaded(module: types.ModuleType, source: str) -> Mapping[str, Any]:
    try:
        exec(compile(source, "<program>", "exec"), module.__dict__)
    except SystemExit as end:
        if module.__name__ == "__main__" and end.code in (None, 0):
            return {LOADED: True}
        return _raised(end)
    except BaseException as error:
        return _raised(error)
    return {LOADED: True}


def _answered(module: types.ModuleType, kept: list[Any], asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """Do what is asked of the program, or of an object of it that is kept for the tests."""
    holder = module if asked["object"] is None else kept[asked["object"]]
    if "attribute" in asked:
        return _attribute(holder, asked["attribute"])
    return _called(holder, kept if asked["keep"] else None, asked)


def _attribute(holder: Any, name: str) -> Mapping[str, Any]:
    try:
        value = getattr(holder, name)
        return {"method": True} if callable(value) else {"value": values.encode(value)}
    except values.NotPlain as error:
        return {"opaque": str(error)}
    except BaseException as error:
        return _raised(error)


def _called(holder: Any, kept: list[Any] | None, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """Call a function; its value, and what became of arguments that it changed."""
    arguments: Sequence[Any] = values.decode(asked["arguments"])
    named: Mapping[str, Any] = values.decode(asked["named"])
    value = None
    try:
        value = _function(holder, asked)(*arguments, **named)
        if kept is not None and type(value).__module__ != "builtins":  # a class of the program's, a list or not
            raise values.NotPlain(type(value).__name__)
        answer: dict[str, Any] = {"value": values.encode(value)}
    except values.NotPlain as error:
        answer = {"opaque": str(error)} if kept is None else {"object": len(kept)}
        if kept is not None:
            kept.append(value)
    except BaseException as error:
        answer = dict(_raised(error))
    if asked["changes"]:
        try:
            after = values.encode([list(arguments), dict(named)])
        except values.NotPlain as error:
            return {"opaque": f"{error} put into an argument"}
        if after != [asked["arguments"], asked["named"]]:
            answer["changed"] = after
    return answer


def _function(holder: Any, asked: Mapping[str, Any]) -> Any:
    """What is called: a function, or a method of LeetCode's class where that may be meant."""
    name = asked["function"]
    if asked["solution"] and not hasattr(holder, name) and hasattr(holder, values.SOLUTION):
        holder = getattr(holder, values.SOLUTION)()
    return getattr(holder, name)


def _raised(error: BaseException) -> Mapping[str, Any]:
    kind = type(error)
    try:
        message = str(error)[:_MAX_MESSAGE_CHARS]
    except BaseException:
        message = ""
    # The tests know Python's own of these classes, and those that they name.
    lineage = [base.__name__[:_MAX_NAME_CHARS] for base in kind.__mro__[:_MAX_LINEAGE]]
    return {"raised": lineage[0], "lineage": lineage, "message": message, **_arguments(error)}


def _arguments(error: BaseException) -> Mapping[str, Any]:
    """Those of an exception, where they are plain and short."""
    try:
        written = values.encode(list(error.args))
        return {"arguments": written} if len(frames.pack(written)) <= _MAX_ARGUMENTS_BYTES else {}
    except Exception:
        return {}
