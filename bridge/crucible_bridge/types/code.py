"""Programs to be run against tests, and what is found of them."""

from __future__ import annotations

import dataclasses

from crucible_bridge.types.grading import Grade
from crucible_bridge.types.metrics import Metrics
from crucible_bridge.types.results import Problem

__all__ = [
    "Assertions",
    "CallTest",
    "CodeGrades",
    "CodeItem",
    "CodeLimits",
    "CodeTest",
    "ExtractCodeRequest",
    "ExtractedProgram",
    "GradeCodeRequest",
    "InputOutputTests",
    "OutputComparison",
    "ProblemCounts",
    "StdioTest",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Assertions:
    """Python that raises where the program is wrong; passes as a whole. `check(f)` at its end, as HumanEval has it."""

    source: str
    """What the program must stand up to; it sees none of it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OutputComparison:
    """How a program's output is compared with what is expected."""

    by_token: bool = False
    """Token by token: blanks and line ends only divide. Otherwise lines and the blanks within them count."""
    absolute_tolerance: float = 0.0
    """Two decimal numbers, one of them with a point or an exponent, are the same where
    |output - expected| <= absolute_tolerance + relative_tolerance * |expected|; at least 0."""
    relative_tolerance: float = 0.0
    """At least 0."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StdioTest:
    """What the program must write for what it reads."""

    stdin: str = ""
    """Standard input."""
    stdout: str
    """Standard output, compared by line without blanks at the ends of lines, nor empty lines at the end."""
    comparison: OutputComparison = OutputComparison()
    """How it is compared otherwise."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CallTest:
    """A call of a function and its value, both as JSON: a tuple counts as an array there."""

    function: str
    """The function's name."""
    arguments_json: str = "[]"
    """A JSON array."""
    expected_json: str
    """A JSON value."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InputOutputTests:
    """Several tests, as APPS has them in its column `input_output`."""

    json: str
    """A JSON object of `inputs` and `outputs`, and `fn_name` where the program's function is called."""
    comparison: OutputComparison = OutputComparison()
    """How outputs are compared; not those of calls."""


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
class CodeLimits:
    """Bounds of a program, in each of its tests."""

    timeout_ms: int = 6_000
    """Wall clock."""
    memory_mb: int = 512
    """Address space beyond what Python itself takes, in MiB."""
    output_bytes: int = 1_000_000
    """Of what it writes, and of each value that it returns, written as JSON in UTF-8."""


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
class ProblemCounts:
    """What became of the samples of one problem."""

    problem_id: str
    """Which."""
    samples: int
    """Those that were scored."""
    correct: int
    """Those that passed every test."""
    unscored: int
    """Those that are UNDECIDED or ERROR."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CodeGrades:
    """What was found of programs."""

    grades: tuple[Grade, ...]
    """In the order of the items. The score is the share of tests that were passed."""
    problems: tuple[ProblemCounts, ...] = ()
    """Those that items name, in their order."""
    metrics: Metrics = Metrics.of({}, {})
    """`pass@<k>` over the problems, for each k that was asked for; unscored samples count as none."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExtractCodeRequest:
    """Asks for the programs inside responses."""

    responses: tuple[str, ...]
    """One or more."""
    names: tuple[str, ...] = ()
    """What the programs must define: the last block that defines one of these is taken."""
    replaced: tuple[int, ...] = ()
    """For each response, U+FFFD in it that stand for bytes that were not UTF-8; none counted if empty."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedProgram:
    """The program inside a response."""

    program: str = ""
    """The program."""
    extraction: str = ""
    """"block", "whole"; empty where there is none."""
    reason: str = ""
    """Why there is none, where that is not plain; and what had to be done to read the response."""
    problem: Problem | None = None
    """What failed, where something did."""
