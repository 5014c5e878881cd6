"""The names that LeetCode, and the test programs for problems of its form, give to every program.

They are those of `from collections import *` and the like, and the modules themselves. A program finds them as it finds
Python's own `len`: what it defines or imports itself comes first, and they are no names of its module. So a program
that lacks the function of the tests does not have it from here.
"""

from __future__ import annotations

import builtins
import functools
import importlib
from collections.abc import Mapping
from typing import Any

__all__ = ["MODULES", "builtins_with_names"]

MODULES = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "typing"),
)
"""Where the names are from; of two with one name, the later is given."""


@functools.cache
def _names() -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    modules = {name: importlib.import_module(name) for name in MODULES}
    for module in modules.values():
        public = [name for name in vars(module) if not name.startswith("_")]
        found.update({name: getattr(module, name) for name in getattr(module, "__all__", public)})
    return {name: value for name, value in {**found, **modules}.items() if not hasattr(builtins, name)}


def builtins_with_names() -> dict[str, Any]:
    """Python's built-in names, which stay as they are, with the given ones."""
    return {**_names(), **vars(builtins)}
