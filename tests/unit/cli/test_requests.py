"""What flags and suites ask for, and what of it is refused before anything runs."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.suites import parse_suite
from crucible_bridge.types import (
    Dataset,
    EmbeddedModel,
    EvaluatorSpec,
    HubDataset,
    InlineDataset,
    JsonlDataset,
    Sample,
    SamplingParams,
)
from crucible_worker import suites
from crucible_worker.cli.evaluate import EvaluateOptions
from crucible_worker.cli.requests import allowing, check_allowed, evaluations_to_run
from crucible_worker.config import Settings
from tests.tables import rows

MODEL = "embedded:arithmetic@600"
PLAIN = EvaluateOptions(model=(MODEL,), data="builtin:arithmetic", evaluator=("nll",))
SUITE = """
name = "mine"

[[evaluations]]
name = "likelihood"
dataset = { source = "builtin:arithmetic", limit = 8 }
evaluators = ["nll"]

[[evaluations]]
name = "sums"
dataset = "builtin:arithmetic"
evaluators = ["accuracy"]
sampling = { max_tokens = 4 }
"""


@pytest.fixture
def typed(tmp_path: Path) -> EvaluateOptions:
    """Flags that name a suite."""
    file = tmp_path / "mine.toml"
    file.write_text(SUITE)
    return EvaluateOptions(model=(MODEL,), suite=str(file))


def test_flags_have_defaults():
    """Greedy, with 256 tokens."""
    _, (asked,) = evaluations_to_run(PLAIN)

    assert asked.request.sampling == SamplingParams(max_tokens=256, temperature=0.0)
    assert (asked.name, asked.path, asked.request.evaluation_id) == ("", "", "")


TASKS = EvaluateOptions(model=(MODEL,), task=("a.py@x", "evals/y"), evaluator=("inspect",))


def test_tasks_are_a_data_set_of_their_names():
    """Each is a sample that it names, too; how a model is sampled is theirs to say, unless a flag says so."""
    _, (asked,) = evaluations_to_run(TASKS)
    _, (ruled,) = evaluations_to_run(TASKS.replace(temperature=0.5, samples=7))

    assert asked.request.dataset.source == InlineDataset(
        (Sample(id="a.py@x", input="a.py@x"), Sample(id="evals/y", input="evals/y"))
    )
    assert asked.request.sampling is None
    assert asked.request.evaluators == (EvaluatorSpec(kind="inspect"),)
    assert ruled.request.sampling == SamplingParams(max_tokens=256, temperature=0.5)
    assert ruled.request.evaluators == (EvaluatorSpec(kind="inspect", options={"limit": 7}),)
    assert ruled.request.dataset.limit is None


@rows(
    ("changes", "flag"),
    [
        ({"task": ("x",)}, "--task"),
        ({"task": ("a.py@x", "a.py@x")}, "--task"),
        ({"data": "builtin:arithmetic"}, "--task"),
        ({"suite": "math", "evaluator": ()}, "--task"),
        ({"evaluator": ("inspect", "nll")}, "evaluators[1]"),
        ({"samples": 3, "option": ("inspect.limit=4",)}, 'evaluators[0].options["limit"]'),
        ({"option": ("inspect.keep_log=true",), "no_keep": True}, "--no-keep"),
        ({"task": (), "evaluator": ()}, "--data"),
    ],
)
def test_tasks_that_make_no_request_are_refused(changes: dict[str, Any], flag: str):
    """At the flag, before anything runs."""
    with pytest.raises(InvalidField) as caught:
        evaluations_to_run(TASKS.replace(**changes))

    assert caught.value.field == flag


def test_a_log_is_kept_where_there_is_a_state_directory():
    """Without one it would go with the evaluation."""
    _, (asked,) = evaluations_to_run(TASKS.replace(option=("inspect.keep_log=true",)))

    assert asked.request.evaluators[0].options == {"keep_log": True}


def test_what_is_typed_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Files below the current folder and the packages that are named, unless the operator names some."""
    monkeypatch.chdir(tmp_path)
    plain = Settings(state_dir=tmp_path)
    both = allowing(("a.py@x", "evals/y", "evals/z", "nothing"), plain)
    own = Settings(state_dir=tmp_path, inspect_packages=("others",))

    assert (both.inspect_roots, both.inspect_packages) == ((tmp_path,), ("evals",))
    assert allowing(("evals/y",), plain).inspect_roots == ()
    assert allowing(("a.py@x",), plain).inspect_packages == ()
    assert allowing((), plain) == plain
    assert allowing(("a.py@x",), own) == own


def test_a_task_that_is_not_there_is_refused_at_its_flag(tmp_path: Path):
    """So is one outside of what is allowed."""
    (tmp_path / "a.py").touch()
    settings = Settings(state_dir=tmp_path, inspect_roots=(tmp_path,), inspect_packages=("evals",))

    check_allowed(("a.py@x", "evals/y"), settings)
    for task, reason in [
        ("b.py@x", "TASK_NOT_FOUND"),
        ("../b.py@x", "PATH_OUT_OF_ROOT"),
        ("others/y", "TASK_NOT_ALLOWED"),
    ]:
        with pytest.raises(InvalidField) as caught:
            check_allowed((task,), settings)
        assert (caught.value.field, caught.value.reason) == ("--task", reason)
        assert repr(task) in str(caught.value)


def test_a_suite_is_a_request_for_each_evaluation(typed: EvaluateOptions):
    """All of one model, each with what its file says."""
    name, asked = evaluations_to_run(typed)

    assert name == "mine"
    assert [(each.name, each.path) for each in asked] == [("likelihood", "evaluations[0]"), ("sums", "evaluations[1]")]
    assert {each.request.model for each in asked} == {EmbeddedModel("arithmetic@600")}
    assert [each.request.metric_prefix for each in asked] == ["likelihood/", "sums/"]
    assert asked[1].request.sampling == SamplingParams(max_tokens=4)
    assert asked[1].request.labels == {"suite": "mine", "evaluation": "sums"}


def test_samples_are_at_most_those_of_the_suite(typed: EvaluateOptions):
    """--samples shortens a data set, and never lengthens it."""
    _, asked = evaluations_to_run(typed.replace(samples=10))

    assert [each.request.dataset.limit for each in asked] == [8, 10]


def test_an_id_is_that_of_each_evaluation(typed: EvaluateOptions):
    """ID-NAME in a suite, the id itself without; none is made up here."""
    _, several = evaluations_to_run(typed.replace(evaluation_id="run-7"))
    _, (one,) = evaluations_to_run(PLAIN.replace(evaluation_id="run-7"))

    assert [each.request.evaluation_id for each in several] == ["run-7-likelihood", "run-7-sums"]
    assert one.request.evaluation_id == "run-7"
    assert evaluations_to_run(typed)[1][0].request.evaluation_id == ""


def test_several_models_are_a_request_each(typed: EvaluateOptions):
    """Model by model, each by every evaluation, under an id that names the model too."""
    models = (MODEL, "embedded:arithmetic@240")
    _, plain = evaluations_to_run(PLAIN.replace(model=models, evaluation_id="run-7"))
    _, suite = evaluations_to_run(typed.replace(model=models, evaluation_id="run-7"))

    assert [each.request.model for each in plain] == [EmbeddedModel("arithmetic@600"), EmbeddedModel("arithmetic@240")]
    assert [each.request.evaluation_id for each in plain] == [f"run-7-{model}" for model in models]
    assert [(each.model, each.name) for each in suite] == [
        (model, name) for model in models for name in ("likelihood", "sums")
    ]
    assert suite[-1].request.evaluation_id == "run-7-embedded:arithmetic@240-sums"


def test_only_takes_some(typed: EvaluateOptions):
    """In the suite's order, with their places in its file."""
    _, asked = evaluations_to_run(typed.replace(only=("sums",)))

    assert [(each.name, each.path) for each in asked] == [("sums", "evaluations[1]")]


@rows(
    ("changes", "told"),
    [
        ({"model": (MODEL, MODEL)}, "--model 'embedded:arithmetic@600' is given twice"),
        (
            {"option": ("nll.train_on=all", 'nll.train_on="last_assistant"')},
            "--option nll.train_on is given twice",
        ),
        ({"data": None}, "--data is needed, unless --suite"),
        ({"evaluator": ()}, "--evaluator is needed, unless --suite"),
        ({"only": ("sums",)}, "--only names evaluations of a suite"),
        ({"evaluation_id": "run-7", "no_keep": True}, "--id and --no-keep exclude each other"),
        ({"evaluation_id": ""}, "--id is empty"),
        ({"evaluation_id": "x" * 201}, "--id makes 'xxx.*at most 200 bytes"),
    ],
)
def test_flags_that_make_no_sense_are_named(changes: dict[str, Any], told: str):
    """The flag stands first in what is said."""
    with pytest.raises(InvalidField, match=f"^{told}"):
        evaluations_to_run(PLAIN.replace(**changes))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"data": "builtin:arithmetic"}, "--data belongs in the suite's file"),
        ({"evaluator": ("nll",)}, "--evaluator belongs in"),
        ({"option": ("nll.client=auto",)}, "--option belongs in"),
        ({"max_tokens": 8}, "--max-tokens belongs in"),
        ({"temperature": 0.0}, "--temperature belongs in"),
        ({"seed": 0}, "--seed belongs in"),
        ({"stop": ("x",)}, "--stop belongs in"),
        ({"max_unscored": 0}, "--max-unscored belongs in"),
        ({"only": ("gsm8k",)}, "--only is 'gsm8k'; mine has likelihood, sums"),
        ({"suite": "maths"}, "--suite is 'maths', neither a file .* nor one of chat, code, math, tool_use"),
        ({"suite": "absent.toml"}, "--suite is 'absent.toml': No such file or directory"),
    ],
)
def test_flags_do_not_overrule_a_suite(changes: dict[str, Any], told: str, typed: EvaluateOptions):
    """One place says what an evaluation is."""
    with pytest.raises(InvalidField, match=f"^{told}"):
        evaluations_to_run(typed.replace(**changes))


@pytest.mark.parametrize(
    ("line", "instead", "field"),
    [
        ('["nll"]', '["charm"]', "evaluations[0].evaluators[0].kind"),
        ('["nll"]', '[{ kind = "nll", options = { n = 1 } }]', 'evaluations[0].evaluators[0].options["n"]'),
        ("sampling = { max_tokens = 4 }", "", "evaluations[1].sampling"),
        ('["nll"]', '["nll", "nll"]', "evaluations[0].evaluators[1].name"),
    ],
    ids=["kind", "option", "no sampling", "equal keys"],
)
def test_a_mistake_anywhere_refuses_the_suite(line: str, instead: str, field: str, tmp_path: Path):
    """Before the first evaluation runs, not when its turn comes."""
    file = tmp_path / "mine.toml"
    file.write_text(SUITE.replace(line, instead))

    with pytest.raises(InvalidField) as caught:
        evaluations_to_run(EvaluateOptions(model=(MODEL,), suite=str(file)))

    assert caught.value.field == field


@rows("name", suites.names())
def test_a_suite_that_ships_can_run_as_it_is(name: str):
    """Every kind, grader and option is known, no key is there twice; no part needs a file or a judge of the user."""
    suite = parse_suite(suites.text(name))
    asked_name, asked = evaluations_to_run(EvaluateOptions(model=(MODEL,), suite=name))

    assert suite.name == asked_name == name
    assert suite.description
    assert [each.name for each in asked] == [member.name for member in suite.members]
    assert {type(each.request.dataset.source) for each in asked} == {HubDataset}
    assert not [spec for each in asked for spec in each.request.evaluators if "judge" in spec.options]


@pytest.mark.parametrize("name", suites.names())
def test_the_parts_that_need_files_of_the_user_can_run_once_they_are_uncommented(name: str, tmp_path: Path):
    """They are in the copy to edit: without their # the file is a suite whose every evaluator and option is known."""
    file = tmp_path / "my.toml"
    file.write_text(re.sub(r"^#(?! \S)", "", suites.text(name), flags=re.MULTILINE))

    _, asked = evaluations_to_run(EvaluateOptions(model=(MODEL,), suite=str(file)))

    own = [each for each in asked if isinstance(each.request.dataset.source, JsonlDataset)]
    assert "training" in [each.name for each in own]
    assert len(asked) == len(own) + len(parse_suite(suites.text(name)).members)


def test_a_suite_that_does_not_ship_has_no_text():
    """Nothing but a name of the list is looked up as a file."""
    with pytest.raises(KeyError):
        suites.text("../suites/math")


def test_the_data_set_is_that_of_the_flag():
    """Read as everywhere else."""
    _, (asked,) = evaluations_to_run(PLAIN.replace(samples=3))

    assert asked.request.dataset == dataclasses.replace(Dataset.of("builtin:arithmetic"), limit=3)


@rows(
    ("option", "value", "says"),
    [
        ("seed", 2**63, "must be from"),
        ("shuffle_seed", -(2**63) - 1, "must be from"),
        ("max_tokens", 2**64, "must be from"),
        ("max_unscored", 2**64, "must be from"),
        ("step", 2**63, "must be from"),
        ("temperature", float("nan"), "is not a number"),
        ("run_id", "bad\udcff", "not UTF-8"),
        ("prefix", "bad\udcff", "not UTF-8"),
        ("evaluation_id", "bad\udcff", "not UTF-8"),
        ("label", ["a=bad\udcff"], "not UTF-8"),
        ("where", ["a=bad\udcff"], "not UTF-8"),
        ("stop", ["bad\udcff"], "not UTF-8"),
        ("option", ["nll.a=bad\udcff"], "not UTF-8"),
    ],
)
def test_what_no_request_carries_is_refused_by_its_flag(option: str, value: object, says: str):
    """Numbers beyond 64 bits, NaN and texts that are not UTF-8 name their option."""
    given: dict[str, Any] = {"data": "builtin:arithmetic", "evaluator": ["nll"], option: value}
    typed = EvaluateOptions(model=["embedded:m@1"], **given)

    with pytest.raises(InvalidField, match=says) as refused:
        evaluations_to_run(typed)

    assert refused.value.field == {"evaluation_id": "--id"}.get(option, f"--{option.replace('_', '-')}")
