"""Modules of the standard library that tests use, and that only the program imports.

    import math                                             the program
    assert math.isclose(area(1), math.pi)                   its tests

In one process the tests would find the program's `math`. Here they run apart from the program, and import it again.
Names from a module count if only right sides of assertions use them: a `gcd` that is called on the left must come from
the program. An import under another name is ignored: a program could import a mock by the name of a module.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterator

from crucible_worker.grading.code.assertions import Proxied

__all__ = ["with_modules"]

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
