"""Graders of users: found by entry point in installed distributions, and kept from doing harm by mistake."""

import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.types import Verdict
from crucible_worker.grading import custom, registry
from crucible_worker.grading.base import Grade
from tests.distributions import lay_out

Install = Callable[..., None]

GRADER = """
from crucible_worker.grading.base import Grade, GraderType, Verdict

class Says:
    def __init__(self, word):
        self.word = word

    async def grade(self, response, targets, choices=()):
        right = self.word in response
        return Grade(verdict=Verdict.CORRECT if right else Verdict.INCORRECT, score=float(right), method="says")

SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string", "default": "please"}},
    "additionalProperties": False,
}
SAYS = GraderType(
    name="says", description="It says a word.", options_schema=SCHEMA, make=lambda options: Says(**options)
)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution with a module and entry points of the group, as pip lays them out."""
    monkeypatch.syspath_prepend(tmp_path)

    def distribution(module: str, source: str, **points: str) -> None:
        lay_out(tmp_path, module, textwrap.dedent(source), custom.GROUP, points)
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, module, raising=False)

    return distribution


def _create(name: str, **options: object) -> custom.GuardedGrader:
    made = registry.create(name, options, name_field="grader", options_field="options")
    assert isinstance(made, custom.GuardedGrader)
    return made


async def test_an_installed_grader_is_found_by_its_name(install: Install) -> None:
    """It grades with its options, whose defaults are filled in."""
    install("users_words", GRADER, says="users_words:SAYS")

    grade = await _create("says", word="thanks").grade("many thanks", ["x"])
    default = await _create("says").grade("many thanks", ["x"])

    assert grade == Grade(verdict=Verdict.CORRECT, score=1.0, method="says")
    assert default.verdict is Verdict.INCORRECT


async def test_the_example_works(install: Install) -> None:
    """The module's docstring shows a whole grader, and that one is found and grades."""
    shown = inspect.cleandoc(custom.__doc__ or "")
    code = "\n".join(line[4:] for line in shown.splitlines() if line.startswith("    ") or not line)
    name, value = next(line for line in code.splitlines() if "my_package:" in line).strip("# ").split(" = ")
    install("my_package", code, **{name: value.strip('"')})

    assert (await _create("in_order").grade("a b c", [])).verdict is Verdict.CORRECT
    assert (await _create("in_order").grade("b a c", [])).verdict is Verdict.INCORRECT


def test_nothing_is_loaded_before_it_is_asked_for(install: Install) -> None:
    """An error about an unknown name tells the installed ones too, without importing any."""
    install("users_bad", "raise RuntimeError('loaded')", broken="users_bad:IT")

    with pytest.raises(InvalidField, match=r"known are: exact_match, .*, broken") as caught:
        _create("bleurt")

    assert (caught.value.field, caught.value.reason) == ("grader", "UNKNOWN_GRADER")
    assert "users_bad" not in sys.modules


def test_wrong_options_are_named(install: Install) -> None:
    """The schema of the grader is held, at the path of the request."""
    install("users_words", GRADER, says="users_words:SAYS")

    with pytest.raises(InvalidField) as caught:
        _create("says", wrod="x")

    assert (caught.value.field, caught.value.reason) == ('options["wrod"]', "UNKNOWN_OPTION")


def test_ours_cannot_be_replaced(install: Install) -> None:
    """A name of ours means ours, whatever is installed, and is told once."""
    install("users_words", GRADER, exact_match="users_words:SAYS")

    made = registry.create("exact_match", {}, name_field="grader", options_field="options")

    assert not isinstance(made, custom.GuardedGrader)
    with pytest.raises(InvalidField) as caught:
        _create("bleurt")
    assert caught.value.message.count("exact_match") == 1


@pytest.mark.parametrize(
    ("source", "value", "says"),
    [
        ("raise RuntimeError('no luck')", "users_it:IT", "cannot be loaded from 'users_it:IT': RuntimeError: no luck"),
        ("", "users_it:IT", "cannot be loaded from 'users_it:IT': AttributeError"),
        ("", "users_nowhere:IT", "cannot be loaded from 'users_nowhere:IT': ModuleNotFoundError"),
        ("IT = 5", "users_it:IT", "is a int at 'users_it:IT', not a GraderType"),
        (GRADER + "IT = GraderType(name='it', description='.', make=lambda options: 5)", "users_it:IT", "makes a int"),
        (
            GRADER + "IT = GraderType(name='it', description='.', make=lambda options: 1 / 0)",
            "users_it:IT",
            "cannot be made: Zero",
        ),
        (
            GRADER + "IT = GraderType(name='it', description='.', options_schema={'type': 5}, make=Says)",
            "users_it:IT",
            "has options that are no JSON schema",
        ),
    ],
)
def test_a_grader_that_cannot_be_used_says_why(install: Install, source: str, value: str, says: str) -> None:
    """The error names the grader, where it comes from, and what is wrong with it."""
    install("users_it", source, it=value)

    with pytest.raises(FailedPrecondition, match="the grader 'it'") as caught:
        _create("it")

    assert says in caught.value.message
    assert caught.value.reason == "BAD_GRADER"


def test_a_name_that_two_announce_is_nobodys(install: Install) -> None:
    """Which one is meant cannot be known: the error names both."""
    install("users_one", GRADER, says="users_one:SAYS")
    install("users_two", GRADER, says="users_two:SAYS")

    with pytest.raises(FailedPrecondition, match="announced twice: users_one:SAYS, users_two:SAYS"):
        _create("says")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise ValueError('oh')", "failed: ValueError: oh"),
        ("return True", "gave a bool, not a Grade"),
        ("return Grade(verdict=Verdict.CORRECT)", "said correct with score None"),
        ("return Grade(verdict=Verdict.CORRECT, score=2.0)", "said correct with score 2.0"),
        ("return Grade(verdict=Verdict.PARTIAL, score=float('nan'))", "said partial with score nan"),
        ("return Grade(verdict=Verdict.MEASURED, score=0.5)", "gave the verdict"),
    ],
)
async def test_a_grader_that_fails_makes_an_error(install: Install, body: str, says: str) -> None:
    """Its mistake is the ERROR of that response, never a wrong answer and never the end of the evaluation."""
    source = f"""
        from crucible_worker.grading.base import Grade, GraderType, Verdict
        class It:
            async def grade(self, response, targets, choices=()):
                {body}
        IT = GraderType(name="it", description=".", make=lambda options: It())
    """
    install("users_it", source, it="users_it:IT")

    grade = await _create("it").grade("a", ["a"])

    assert (grade.verdict, grade.score) == (Verdict.ERROR, None)
    assert says in grade.reason
