"""Programs to be run against tests, and what is found of them."""

from __future__ import annotations

import dataclasses

from crucible_bridge.types.generated import CallTest, CodeLimits, InputOutputTests, StdioTest

__all__ = ["Assertions", "CodeItem", "CodeTest", "ExtractCodeRequest", "GradeCodeRequest"]


@dataclasses.dataclass(frozen=True, slots=True)
class Assertions:
    """Python that raises where the program is wrong; passes as a whole. `check(f)` at its end, as HumanEval has it."""

    source: str
    """What the program must stand up to; it sees none of it."""


CodeTest = Assertions | StdioTest | CallTest | InputOutputTests
"""A test of a program, passed or not; or several of them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CodeItem:
    """What a model said, and what the program in it must do."""

    id: str = ""
    """Echoed."""
    response: str
    """The whole response. The program is a fenced block of it, or all of it."""
    prefix: str = ""
    """Put before the program: the head of a function, as in HumanEval. Tests see what it defines whole as it is."""
    tests: tuple[CodeTest, ...]
    """One or more."""
    problem_id: str = ""
    """Samples of one problem have the same; for pass@k."""
    replaced: int = 0
    """U+FFFD in the response that stand for bytes that were not UTF-8; it travels as bytes, and the worker counts."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GradeCodeRequest:
    """Asks whether programs do what they must."""

    items: tuple[CodeItem, ...]
    """One or more."""
    limits: CodeLimits = CodeLimits()
    """Bounds of each."""
    k: tuple[int, ...] = ()
    """Values of k for pass@k."""
    image: str = ""
    """Packages that programs and tests can import in addition to Python's own modules: a name that `get_info` lists."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExtractCodeRequest:
    """Asks for the programs inside responses."""

    responses: tuple[str, ...]
    """One or more."""
    names: tuple[str, ...] = ()
    """What the programs must define: the last block that defines one of these is taken."""
    replaced: tuple[int, ...] = ()
    """For each response, U+FFFD in it that stand for bytes that were not UTF-8; none counted if empty."""
