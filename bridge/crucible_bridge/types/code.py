"""Programs to run against tests, and the results."""

from __future__ import annotations

import dataclasses

from crucible_bridge.types.generated import CallTest, CodeLimits, InputOutputTests, StdioTest

__all__ = ["Assertions", "CodeItem", "CodeTest", "ExtractCodeRequest", "GradeCodeRequest"]


@dataclasses.dataclass(frozen=True, slots=True)
class Assertions:
    """Python that raises if the program is wrong; passes as a whole. May end with `check(f)`, like HumanEval's."""

    source: str
    """A test of the program; the program cannot see it."""


CodeTest = Assertions | StdioTest | CallTest | InputOutputTests
"""A test of a program, passed or not; or several."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CodeItem:
    """A model's response, and the tests of the program in it."""

    id: str = ""
    """Echoed."""
    response: str
    """The whole response. The program is a fenced block of it, or all of it."""
    prefix: str = ""
    """Put before the program: the head of a function, as in HumanEval. Functions complete in it are used unchanged."""
    tests: tuple[CodeTest, ...]
    """One or more."""
    problem_id: str = ""
    """Samples of one problem have the same; for pass@k."""
    replaced: int = 0
    """U+FFFD in the response that stand for bytes that were not UTF-8. It travels as bytes; the worker counts them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GradeCodeRequest:
    """Request to grade programs by their tests."""

    items: tuple[CodeItem, ...]
    """One or more."""
    limits: CodeLimits = CodeLimits()
    """Limits of each test."""
    k: tuple[int, ...] = ()
    """Values of k for pass@k."""
    image: str = ""
    """Packages that programs and tests can import in addition to Python's own modules: a name that `get_info` lists."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExtractCodeRequest:
    """Request for the programs in responses."""

    responses: tuple[str, ...]
    """One or more."""
    names: tuple[str, ...] = ()
    """What the programs must define: the last block that defines one of these is extracted."""
    replaced: tuple[int, ...] = ()
    """For each response, the number of U+FFFD that stand for bytes that were not UTF-8; all 0 if empty."""
