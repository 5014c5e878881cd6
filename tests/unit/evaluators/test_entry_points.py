"""Evaluators of users: found by entry point in installed distributions, described, and refused where they are none."""

import importlib
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from crucible_bridge.errors import BridgeError, FailedPrecondition, InvalidField
from crucible_bridge.types import EvaluatorSpec, Goal, Sample, SampleResult, SamplingParams, Verdict
from crucible_worker.evaluators import installed, registry
from crucible_worker.evaluators.installed import GuardedEvaluator
from crucible_worker.evaluators.registry import EvaluatorParts
from tests.distributions import EVALUATOR_PACKAGE, lay_out, lay_out_evaluator_package
from tests.unit.evaluators.doubles import Double, Sampling, context

DOCS = Path(__file__).parents[3] / "docs"
SAMPLING = SamplingParams(max_tokens=4, temperature=1.0)

Install = Callable[..., None]

IT = """
from crucible_bridge.types import EvaluatorInfo, EvaluatorKind, Metrics
from crucible_worker.evaluators.base import Outcome

SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}

def told(**changed):
    fields = {"kind": "it", "kinds": (EvaluatorKind.SAMPLING,), "description": "It.", "options_schema": SCHEMA}
    return EvaluatorInfo(**{**fields, "keys": {"it": "ones"}, **changed})

class Evaluator:
    repeats = 1
    def check(self, model): pass
    def check_sample(self, sample): pass
    async def run(self, sample, context): return Outcome()
    def aggregate(self, results): return Metrics({})

class Type:
    def __init__(self, **changed): self.info = told(**changed)
    def create(self, options, sampling): return Evaluator()

"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution with a module and entry points of the group, as pip lays them out."""
    monkeypatch.syspath_prepend(tmp_path)

    def distribution(module: str, source: str, **points: str) -> None:
        lay_out(tmp_path, module, textwrap.dedent(source), installed.GROUP, points)
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, module, raising=False)

    return distribution


@pytest.fixture
def brevity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the example package."""
    monkeypatch.syspath_prepend(tmp_path)
    lay_out_evaluator_package(tmp_path)
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, "brevity", raising=False)


def _create(kind: str, **options: object) -> GuardedEvaluator:
    made = registry.create(EvaluatorSpec(kind=kind, options=options), 2, SAMPLING)
    assert isinstance(made, GuardedEvaluator)
    return made


@pytest.mark.usefixtures("brevity")
async def test_the_example_package_is_an_evaluator() -> None:
    """It is asked for by the name of its entry point, takes options, and judges and counts as it says."""
    evaluator = _create("brevity", max_words=2)
    model = Double(sampling=Sampling(answers=("one two",)))
    evaluator.check(model)
    outcome = await evaluator.run(Sample(input="a"), context(model))

    metrics = evaluator.aggregate(
        [
            SampleResult(
                evaluator="brevity", sample_id="a", verdict=outcome.verdict, score=1.0, measurements={"words": 2}
            ),
            SampleResult(evaluator="brevity", sample_id="b", verdict=Verdict.ERROR),
            SampleResult(
                evaluator="brevity", sample_id="c", verdict=Verdict.INCORRECT, score=0.0, measurements={"words": 4}
            ),
        ]
    )

    assert (outcome.verdict, outcome.score, outcome.measurements) == (Verdict.CORRECT, 1.0, {"words": 2.0})
    assert metrics.values == {"brevity": 0.5, "words": 3.0}


@pytest.mark.usefixtures("brevity")
def test_the_example_package_refuses_as_ours_do() -> None:
    """Its schema is held at the path of the request, and its own refusals stand as they are."""
    with pytest.raises(InvalidField) as option:
        _create("brevity", max_wrods=2)
    with pytest.raises(InvalidField) as sampling:
        registry.create(EvaluatorSpec(kind="brevity"), 0, None)
    with pytest.raises(FailedPrecondition) as client:
        _create("brevity").check(Double())

    assert (option.value.field, option.value.reason) == ('evaluators[2].options["max_wrods"]', "UNKNOWN_OPTION")
    assert sampling.value.field == "sampling"
    assert client.value.reason == "MISSING_CLIENT"


@pytest.mark.usefixtures("brevity")
def test_an_installed_evaluator_is_listed_behind_ours() -> None:
    """With its schema, its keys and the goal of its scores."""
    listed = registry.infos(EvaluatorParts())

    assert [info.kind for info in listed] == [*registry.EVALUATORS, "brevity"] == list(registry.kinds())
    assert listed[-1].keys == {"brevity": "fraction of 1", "words": "words"}
    assert listed[-1].options_schema["properties"].keys() == {"renderer", "max_words"}
    assert not listed[-1].unavailable
    assert registry.info("brevity").score_goal is Goal.HIGHER


def test_the_page_shows_the_example_package() -> None:
    """What a user copies from the page is what is tested."""
    page = (DOCS / "evaluators.md").read_text()

    assert (EVALUATOR_PACKAGE / "brevity.py").read_text() in page
    assert 'brevity = "brevity:Brevity"' in page
    assert 'brevity = "brevity:Brevity"' in (EVALUATOR_PACKAGE / "pyproject.toml").read_text()


def test_nothing_is_loaded_before_it_is_asked_for(install: Install) -> None:
    """An error about an unknown kind tells the installed ones too, without importing any."""
    install("users_bad", "raise RuntimeError('loaded')", broken="users_bad:IT")

    with pytest.raises(InvalidField, match=r"known are: accuracy, .*, broken") as caught:
        _create("nowhere")

    assert caught.value.reason == "UNKNOWN_EVALUATOR"
    assert registry.kinds()[-1] == "broken"
    assert "users_bad" not in sys.modules


def test_ours_cannot_be_replaced(install: Install) -> None:
    """A kind of ours means ours, whatever is installed, and is told once."""
    install("users_it", IT + "IT = Type(kind='nll')", nll="users_it:IT")

    assert not isinstance(registry.create(EvaluatorSpec(kind="nll"), 0, None), GuardedEvaluator)
    assert list(registry.kinds()) == list(registry.EVALUATORS)


def test_a_kind_that_two_announce_is_nobodys(install: Install) -> None:
    """Which one is meant cannot be known: the error names both."""
    install("users_one", IT + "IT = Type()", it="users_one:IT")
    install("users_two", IT + "IT = Type()", it="users_two:IT")

    with pytest.raises(FailedPrecondition, match="announced twice: users_one:IT, users_two:IT"):
        _create("it")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise RuntimeError('no luck')", "cannot be loaded from 'users_it:IT': RuntimeError: no luck"),
        ("raise SystemExit(1)", "cannot be loaded from 'users_it:IT': SystemExit: 1"),
        ("", "cannot be loaded from 'users_it:IT': AttributeError"),
        ("IT = 5", "is a int at 'users_it:IT', without an EvaluatorInfo"),
        ("IT = Type", "is the class Type at 'users_it:IT', not an instance"),
        ("IT = Type(kind='other')", "calls itself 'other'"),
        ("IT = Type(kinds=())", "no kinds"),
        ("IT = Type(kinds=('sampling',))", "not of the types it declares"),
        ("IT = Type(description=None)", "not of the types it declares"),
        ("IT = Type(score_goal='higher')", "not of the types it declares"),
        ("IT = Type(keys={})", "announces no keys"),
        ("IT = Type(keys={'it': 1})", "announces no keys, or some that are no text"),
        ("IT = Type(options_schema={'type': 5})", "not of the type object"),
        ("IT = Type(options_schema=SCHEMA | {'properties': 5})", "has options that are no JSON schema"),
        ("IT = Type(options_schema=SCHEMA | {'default': object()})", "has options that are no JSON schema: TypeError"),
        ("IT = Type(options_schema={'type': 'object'})", "not described one by one"),
        ("IT = Type(options_schema=SCHEMA | {'properties': {'x': True}})", "not described one by one"),
        ("Type.info = property(lambda self: 1 / 0)\nIT = object.__new__(Type)", "does not describe itself: ZeroDiv"),
    ],
)
def test_an_evaluator_that_is_none_says_why(install: Install, source: str, says: str) -> None:
    """To whoever asks for it, as an error; in a listing, as why it is unavailable."""
    install("users_it", IT + source, it="users_it:IT")

    with pytest.raises(FailedPrecondition, match="the evaluator 'it'") as caught:
        _create("it")

    assert says in caught.value.message
    assert caught.value.reason == "BAD_EVALUATOR"
    assert registry.infos(EvaluatorParts())[-1].kind == "it"
    assert says in registry.infos(EvaluatorParts())[-1].unavailable
    assert registry.info_if_known("it") is None


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("Type.create = lambda *given: 5\nIT = Type()", "makes a int, which has no check"),
        ("Type.create = lambda *given: 1 / 0\nIT = Type()", "cannot be made: ZeroDivisionError"),
        ("Evaluator.repeats = 0\nIT = Type()", "has repeats 0"),
        ("Evaluator.repeats = 1.5\nIT = Type()", "has repeats 1.5"),
        ("del Evaluator.aggregate\nIT = Type()", "makes a Evaluator, which has no aggregate"),
        ("IT = Type(unavailable='needs a GPU')", "cannot be used here: needs a GPU"),
    ],
)
def test_an_evaluator_that_cannot_be_made_says_why(install: Install, source: str, says: str) -> None:
    """Before anything starts, with its name."""
    install("users_it", IT + source, it="users_it:IT")

    with pytest.raises(FailedPrecondition, match="the evaluator 'it'") as caught:
        _create("it")

    assert says in caught.value.message
    assert caught.value.reason == "BAD_EVALUATOR"


def test_an_evaluator_tells_itself_that_it_is_unavailable(install: Install) -> None:
    """Its own reason stands in the listing, beside its schema and keys."""
    install("users_it", IT + "IT = Type(unavailable='needs a GPU')", it="users_it:IT")

    listed = registry.infos(EvaluatorParts())[-1]

    assert (listed.kind, listed.unavailable, listed.keys) == ("it", "needs a GPU", {"it": "ones"})


def test_a_library_that_is_missing_is_named(install: Install) -> None:
    """What is to be installed is another matter than a mistake in the distribution."""
    install("users_it", "import library_of_nobody.part", it="users_it:IT")
    install("users_gone", "", gone="users_nowhere.part:IT")

    with pytest.raises(BridgeError) as missing:
        _create("it")
    with pytest.raises(BridgeError) as gone:
        _create("gone")

    assert (missing.value.reason, gone.value.reason) == ("EXTRA_NOT_INSTALLED", "BAD_EVALUATOR")
    assert "needs 'library_of_nobody', which is not installed" in missing.value.message
