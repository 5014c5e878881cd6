"""A user's own file on the command line: what it may hold, what is said of others, and that no call can name one."""

import textwrap
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import EvaluatorSpec, SamplingParams, Verdict
from crucible_worker.cli.custom_files import CustomFilesReader, custom_files_of
from crucible_worker.cli.evaluate import EvaluateOptions
from crucible_worker.cli.requests import evaluations_to_run
from crucible_worker.evaluators import registry
from crucible_worker.evaluators.installed import GuardedEvaluator
from crucible_worker.evaluators.registry import EvaluatorParts
from crucible_worker.grading import registry as graders
from crucible_worker.grading.registry import GradingParts
from tests.distributions import EVALUATOR_PACKAGE, RELEASE_BEFORE

BREVITY = f"{EVALUATOR_PACKAGE / 'brevity.py'}:Brevity"
NEAR = f"{EVALUATOR_PACKAGE.with_name('own_files') / 'near.py'}:near"
DOCS = Path(__file__).parents[3] / "docs"

MINE = """
from crucible_worker.evaluators.accuracy import Accuracy
from crucible_worker.evaluators.declared import AnswerEvaluator, BaseEvaluator

class Other:
    pass

class Nll(AnswerEvaluator):
    def judge(self, answer, sample): ...

class Odd(AnswerEvaluator):
    thing: bytes = b""

class Strict(Accuracy):
    '''Accuracy, by numbers.'''
    grader: str = "numeric"

def math(response, targets): return True

def one(response): return True
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A file of the user's."""
    path = tmp_path / "mine.py"
    path.write_text(textwrap.dedent(MINE))
    return path


def test_a_class_of_a_file_is_an_evaluator() -> None:
    """By its kind, which stands in place of the file, with the name that metrics get; it is kept from doing harm."""
    files = CustomFilesReader()

    assert [files.evaluator(text) for text in ("nll", f"short={BREVITY}")] == ["nll", "short=brevity"]
    parts = EvaluatorParts(custom_evaluators=files.evaluators)
    made = registry.create(EvaluatorSpec(kind="brevity"), 0, SamplingParams(max_tokens=1), parts)
    assert isinstance(made, GuardedEvaluator)
    assert registry.kinds(parts) == [*registry.EVALUATORS, "brevity"]
    assert registry.infos(parts)[-1].kind == registry.info("brevity", parts).kind == "brevity"


def test_an_object_of_the_release_before_is_one_too() -> None:
    """As its entry point named it."""
    files = CustomFilesReader()

    assert files.evaluator(f"{RELEASE_BEFORE / 'evaluator_package' / 'brevity.py'}:BREVITY") == "brevity"


async def test_a_function_of_a_file_is_a_grader() -> None:
    """By its name, with its options."""
    files = CustomFilesReader()
    name, parts = files.grader(NEAR), GradingParts(custom_graders=files.graders)
    fields: dict[str, Any] = {"name_field": "grader", "options_field": "options"}

    found = [
        (await graders.create(name, options, parts, **fields).grade("so 6", ["5", "1"])).verdict
        for options in ({}, {"within": 0.5})
    ]

    assert (name, files.grader("math")) == ("near", "math")
    assert found == [Verdict.CORRECT, Verdict.INCORRECT]
    with pytest.raises(InvalidField, match="at least 0 is needed"):
        graders.create(name, {"within": -1}, parts, **fields)


def test_the_page_shows_the_files() -> None:
    """What a user copies from the page is what is tested."""
    page = (DOCS / "evaluators.md").read_text()

    assert Path(NEAR.partition(":")[0]).read_text() in page
    assert Path(BREVITY.partition(":")[0]).read_text() in page


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nowhere.py:It", "there is no file 'nowhere.py'"),
        ("brevity:Brevity", "'brevity:Brevity' names no file: write brevity.py:Brevity for your own, or a name that"),
        ("short=my.brevity:Brevity", "'my.brevity:Brevity' names no file: write my/brevity.py:Brevity"),
        ("{mine}", "names no class of the file: {mine}:CLASS"),
        ("{mine}:", "names no class of the file"),
        ("{mine}:Strikt", "the file has no 'Strikt'; did you mean Strict?"),
        ("{mine}:zzz", "the file has no 'zzz'; it has Other, Nll, Odd, Strict, math, one"),
        ("{mine}:Other", "is the class Other, not a class that extends"),
        ("{mine}:math", "is a function, not a class that extends"),
        ("{mine}:Nll", "is called 'nll', like one that comes with the worker"),
        ("{mine}:Odd", "has the option 'thing' of the type bytes, which no JSON value has"),
    ],
)
def test_what_is_no_evaluator_says_why(mine: Path, text: str, says: str) -> None:
    """At the flag, with the text as it was typed."""
    with pytest.raises(InvalidField) as caught:
        CustomFilesReader().evaluator(text.format(mine=mine))

    assert caught.value.field == "--evaluator"
    assert says.format(mine=mine) in caught.value.message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nowhere.py:it", "there is no file 'nowhere.py'"),
        ("{mine}:math", "is called 'math', like one that comes with the worker"),
        ("{mine}:one", "takes (response) at '{mine}:one': a grader takes (response, targets)"),
        ("{mine}:Other", "which has no method grade"),
    ],
)
def test_what_is_no_grader_says_why(mine: Path, text: str, says: str) -> None:
    """At the flag."""
    with pytest.raises(InvalidField) as caught:
        CustomFilesReader().grader(text.format(mine=mine))

    assert caught.value.field == "--grader"
    assert says.format(mine=mine) in caught.value.message


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("1 / 0", "cannot be imported: ZeroDivisionError: division by zero"),
        ("def", "cannot be imported: SyntaxError"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        ("import library_of_nobody", "cannot be imported: ModuleNotFoundError: No module named 'library_of_nobody'"),
    ],
)
def test_a_file_that_cannot_be_imported_says_why(tmp_path: Path, source: str, says: str) -> None:
    """Whatever it does, the command ends with a sentence."""
    (tmp_path / "bad.py").write_text(source)

    with pytest.raises(InvalidField) as caught:
        CustomFilesReader().evaluator(f"{tmp_path / 'bad.py'}:It")

    assert says in caught.value.message


def test_a_file_may_import_those_beside_it(tmp_path: Path) -> None:
    """As when Python runs it; and it is imported once, whatever the flags name of it."""
    (tmp_path / "beside_it.py").write_text("SEEN = []")
    (tmp_path / "it.py").write_text(
        "import beside_it\nbeside_it.SEEN.append(1)\n"
        "def count(response, targets): return len(beside_it.SEEN) == 1\n"
        "def other(response, targets): return True\n"
    )
    files = CustomFilesReader()

    names = [files.grader(f"{tmp_path / 'it.py'}:{name}") for name in ("count", "other")]

    assert names == ["count", "other"]
    assert files.graders["count"].description == "A grader without a description."


def _typed(**given: Any) -> EvaluateOptions:
    return EvaluateOptions(model=("embedded:arithmetic@320",), data="builtin:arithmetic", **given)


def test_a_grader_is_for_evaluators_that_have_one() -> None:
    """Those whose own option says nothing else; it is refused if there are none, and if there is no such grader."""
    given = _typed(evaluator=("nll", "accuracy", "own=accuracy"), option=("own.grader=numeric",), grader=NEAR)
    typed, own = custom_files_of(given)
    _, (asked,) = evaluations_to_run(typed, own.evaluator_parts)

    assert [dict(spec.options) for spec in asked.request.evaluators] == [{}, {"grader": "near"}, {"grader": "numeric"}]
    with pytest.raises(
        InvalidField, match="evaluators that have a grader are accuracy, pass_at_k, rl_test_set, rollout"
    ):
        evaluations_to_run(_typed(evaluator=("nll",), grader="math"))
    with pytest.raises(InvalidField, match=r"is 'nera', known are: exact_match, .*, rubric, near") as caught:
        evaluations_to_run(_typed(evaluator=("accuracy",), grader="nera"), own.evaluator_parts)
    assert caught.value.field == "--grader"


def test_an_own_evaluator_may_have_a_grader(mine: Path) -> None:
    """One that extends ours has its options."""
    typed, own = custom_files_of(_typed(evaluator=(f"{mine}:Strict",), grader="math"))
    _, (asked,) = evaluations_to_run(typed, own.evaluator_parts)

    assert [(spec.kind, dict(spec.options)) for spec in asked.request.evaluators] == [("strict", {"grader": "math"})]


def test_a_worker_elsewhere_gets_no_file() -> None:
    """What runs there is what is installed there."""
    with pytest.raises(InvalidField, match="runs only in this process"):
        custom_files_of(_typed(evaluator=(BREVITY,)), "127.0.0.1:50051")


def test_no_request_can_name_a_file() -> None:
    """The kind of an evaluator, and the name of a grader, are names: a path is unknown, and nothing is imported."""
    sampling = SamplingParams(max_tokens=1)
    with pytest.raises(InvalidField) as evaluator:
        registry.create(EvaluatorSpec(kind=BREVITY), 0, sampling, EvaluatorParts())
    with pytest.raises(InvalidField) as grader:
        registry.create(EvaluatorSpec(kind="accuracy", options={"grader": NEAR}), 0, sampling, EvaluatorParts())

    assert (evaluator.value.reason, grader.value.reason) == ("UNKNOWN_EVALUATOR", "UNKNOWN_GRADER")
