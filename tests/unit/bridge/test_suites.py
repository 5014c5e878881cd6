"""Suites as files: what they say, and what is refused of them, with its path."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import InvalidField
from crucible_bridge.suites import Suite, load_plan, load_suite, parse_plan, parse_suite
from crucible_bridge.types import (
    Dataset,
    EvaluatorSpec,
    Goal,
    HubDataset,
    JsonlDataset,
    Limits,
    Patience,
    PlannedEvaluation,
    SamplingParams,
)
from tests.tables import rows

WHOLE = """
name = "mine"
description = "Two of them"

[[evaluations]]
name = "sums"
dataset = "jsonl:sums.jsonl"
evaluators = ["nll", { kind = "accuracy", name = "loose", options = { grader = "contains" } }]
sampling = { max_tokens = 8, temperature = 0.5, top_p = 0.9, top_k = 4, seed = 1, stop = ["\\n"] }
limits = { concurrency = 2, max_unscored_share = 0.5, max_unscored = 3, sample_timeout_ms = 9, deadline_ms = 8 }
metric_prefix = "test/"
labels = { owner = "me" }

[[evaluations]]
name = "gsm8k"

[evaluations.dataset]
source = "hub:openai/gsm8k?config=main&split=test&input=question&target=answer"
limit = 20
shuffle_seed = 7
skip_malformed = true

[[evaluations.evaluators]]
kind = "perplexity"
"""
SMALL = """
name = "s"
[[evaluations]]
name = "a"
dataset = "jsonl:a"
evaluators = ["nll"]
sampling = { max_tokens = 8, temperature = 0 }
labels = { owner = "me" }
limits = { max_unscored_share = 0.5 }
"""


def test_everything_that_a_file_can_say_is_read():
    """Data sets and evaluators in either form, sampling, limits, prefix and labels."""
    suite = parse_suite(WHOLE)

    assert (suite.name, suite.description) == ("mine", "Two of them")
    assert [member.name for member in suite.members] == ["sums", "gsm8k"]
    assert suite.evaluations == (
        PlannedEvaluation(
            evaluators=(
                EvaluatorSpec(kind="nll"),
                EvaluatorSpec(kind="accuracy", name="loose", options={"grader": "contains"}),
            ),
            dataset=Dataset(source=JsonlDataset("sums.jsonl")),
            sampling=SamplingParams(max_tokens=8, temperature=0.5, top_p=0.9, top_k=4, seed=1, stop=("\n",)),
            limits=Limits(concurrency=2, max_unscored_share=0.5, max_unscored=3, sample_timeout_ms=9, deadline_ms=8),
            metric_prefix="test/",
            labels={"suite": "mine", "evaluation": "sums", "owner": "me"},
        ),
        PlannedEvaluation(
            evaluators=(EvaluatorSpec(kind="perplexity"),),
            dataset=Dataset(
                source=HubDataset(
                    "openai/gsm8k", split="test", config="main", columns={"input": "question", "target": "answer"}
                ),
                limit=20,
                shuffle_seed=7,
                skip_malformed=True,
            ),
            metric_prefix="gsm8k/",
            labels={"suite": "mine", "evaluation": "gsm8k"},
        ),
    )


@rows(
    ("line", "instead", "path", "told"),
    [
        ('name = "s"', "", "name", "is missing"),
        ('name = "s"', 'name = "a/b"', "name", "not a name of up to 60 letters"),
        ('name = "s"', 'name = "s"\nauthor = "me"', "author", "is unknown; there are name, description, evaluations"),
        ('name = "a"', "name = 3", "evaluations[0].name", "is 3, not a name"),
        ('name = "a"', "", "evaluations[0].name", "is missing"),
        ("dataset =", "data =", "evaluations[0].data", "is unknown; there are name, dataset"),
        ('"jsonl:a"', '"xlsx:a"', "evaluations[0].dataset", "is 'xlsx:a', not builtin:NAME"),
        ('"jsonl:a"', '"csv:a?question=b"', "evaluations[0].dataset", "columns has the key 'question'"),
        (
            '"jsonl:a"',
            '{ source = "csv:a", where = { k = 1 } }',
            'evaluations[0].dataset.where["k"]',
            "is 1, not a text",
        ),
        ('"jsonl:a"', '"hub:a/b"', "evaluations[0].dataset", "names no split: write hub:a/b?split=test"),
        ('"jsonl:a"', "3", "evaluations[0].dataset", "is 3, not a table"),
        ('"jsonl:a"', '{ source = "jsonl:a", limit = -1 }', "evaluations[0].dataset.limit", "is -1"),
        ('"jsonl:a"', "{ limit = 1 }", "evaluations[0].dataset.source", "is missing"),
        ('"jsonl:a"', "{ source = 3 }", "evaluations[0].dataset.source", "is 3, not a text"),
        ('"jsonl:a"', '{ source = "jsonl:a", skip_malformed = 1 }', "evaluations[0].dataset.skip_malformed", "is 1"),
        *(
            ('"jsonl:a"', f'{{ source = "jsonl:a", prompt = {prompt} }}', f"evaluations[0].dataset.prompt{path}", told)
            for prompt, path, told in (
                ('"x"', "", "is 'x', not a table"),
                ("{ role = 1 }", ".role", "is unknown; there are system, template, prefix, suffix, few_shot"),
                ("{ system = 1 }", ".system", "is 1, not a text"),
                ('{ prefix = "x" }', ".prefix", "is 'x', not a list"),
                ('{ prefix = [{ role = "user" }] }', ".prefix[0].content", "is missing"),
                ('{ few_shot = { source = "jsonl:t" } }', ".few_shot.count", "is missing"),
                ('{ few_shot = { source = "jsonl:t", count = 0 } }', ".few_shot.count", "is 0"),
                ('{ few_shot = { source = "", count = 1 } }', ".few_shot.source", "is empty"),
            )
        ),
        ('["nll"]', "[]", "evaluations[0].evaluators", "is empty"),
        ('["nll"]', '"nll"', "evaluations[0].evaluators", "is 'nll', not a list"),
        ('["nll"]', '["nll", 3]', "evaluations[0].evaluators[1]", "is 3, not a table"),
        ('["nll"]', "[{}]", "evaluations[0].evaluators[0].kind", "is missing"),
        ('["nll"]', '[""]', "evaluations[0].evaluators[0].kind", "is empty"),
        ('["nll"]', '[{ kind = "nll", option = {} }]', "evaluations[0].evaluators[0].option", "is unknown"),
        (
            '["nll"]',
            '[{ kind = "nll", options = { since = 2020-01-01 } }]',
            'evaluations[0].evaluators[0].options["since"]',
            "is a date, which JSON does not have",
        ),
        (
            '["nll"]',
            '[{ kind = "nll", options = { share = nan } }]',
            'evaluations[0].evaluators[0].options["share"]',
            "is nan",
        ),
        ("max_tokens = 8", "max_tokens = 0", "evaluations[0].sampling.max_tokens", "is 0, must be at least 1"),
        ("max_tokens = 8", "max_tokens = true", "evaluations[0].sampling.max_tokens", "is True, not a whole number"),
        ("max_tokens = 8", "stop = []", "evaluations[0].sampling.max_tokens", "is missing"),
        ("temperature = 0", 'temperature = "0"', "evaluations[0].sampling.temperature", "is '0', not a number"),
        ("temperature = 0", "temperature = -1", "evaluations[0].sampling.temperature", "is -1.0"),
        ("temperature = 0", "stop = [1]", "evaluations[0].sampling.stop[0]", "is 1, not a text"),
        ('owner = "me"', "owner = 1", 'evaluations[0].labels["owner"]', "is 1, not a text"),
        ("max_unscored_share = 0.5", "max_unscored_share = 2", "evaluations[0].limits.max_unscored_share", "is 2.0"),
        ("max_unscored_share = 0.5", "deadline = 2", "evaluations[0].limits.deadline", "is unknown"),
    ],
)
def test_what_is_wrong_is_refused_at_its_path(line: str, instead: str, path: str, told: str):
    """Whoever edits a file learns where in it the mistake is."""
    assert SMALL.count(line) == 1

    with pytest.raises(InvalidField) as caught:
        parse_suite(SMALL.replace(line, instead))

    assert caught.value.field == path
    assert told in caught.value.message


def test_a_suite_has_an_evaluation():
    """A file that asks for nothing is a mistake."""
    with pytest.raises(InvalidField, match="evaluations is empty"):
        parse_suite('name = "s"\nevaluations = []')


def test_names_are_unique():
    """Two evaluations of one name could not be told apart in any result."""
    twice = SMALL + SMALL[SMALL.index("[[evaluations]]") :]

    with pytest.raises(InvalidField, match=r"evaluations\[1\].name is also the name of evaluations\[0\]"):
        parse_suite(twice)


def test_a_file_is_utf8_and_toml(tmp_path: Path):
    """Other files are refused as a whole, missing ones by the system's own error."""
    file = tmp_path / "suite.toml"
    file.write_text(SMALL)
    assert load_suite(file) == parse_suite(SMALL)

    file.write_bytes(b"name = '\xff'")
    with pytest.raises(InvalidField, match="suite is not UTF-8, at byte 8"):
        load_suite(file)
    file.write_text("name: s")
    with pytest.raises(InvalidField, match="suite is not TOML"):
        load_suite(file)
    with pytest.raises(FileNotFoundError):
        load_suite(tmp_path / "absent.toml")


@pytest.mark.parametrize("value", ["[" * 20_000 + "]" * 20_000, "9" * 5_000], ids=["deep", "long"])
def test_what_python_itself_cannot_read_is_refused(value: str):
    """Not as whatever Python raises."""
    with pytest.raises(InvalidField, match="suite is not TOML"):
        parse_suite(f"name = {value}")


@given(st.text(max_size=80) | st.text(alphabet='[]{}="\n.,#nameevaluations 01', max_size=80))
def test_no_text_breaks_the_reader(text: str):
    """Whatever stands in a file, it is a suite or an InvalidField."""
    assert isinstance(_read(text), Suite | InvalidField)


_JSON = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["name", "dataset", "evaluators", "sampling", "limits", "labels", "metric_prefix"]), _JSON)
def test_a_value_of_any_kind_is_read_or_refused_at_its_place(key: str, value: object):
    """A key of an evaluation with a value of a wrong kind names that key."""
    lines = {"name": '"a"', "dataset": '"jsonl:a"', "evaluators": '["nll"]'} | {key: _toml(value)}
    document = 'name = "s"\n[[evaluations]]\n' + "\n".join(f"{name} = {text}" for name, text in lines.items())

    read = _read(document)

    assert isinstance(read, Suite) or read.field.startswith(f"evaluations[0].{key}")


def _read(text: str) -> Suite | InvalidField:
    try:
        return parse_suite(text)
    except InvalidField as error:
        return error


def _toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case str():
            return '"' + "".join(f"\\U{ord(character):08x}" for character in value) + '"'
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case dict():
            return "{" + ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    raise AssertionError(value)


def test_the_file_of_the_page_is_a_suite():
    """What is copied from the docs is read."""
    page = (Path(__file__).parents[3] / "docs" / "suites.md").read_text()

    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert [member.name for member in parse_suite(example).members] == ["likelihood", "answers"]


PLAN = """
eval_every = 500
infrequent_eval_every = 1000
best_file = true
log_to = ["jsonl:mine"]
patience = { metric = "quick/nll", goal = "lower", patience = 3, min_delta = 0.5 }

[[evaluations]]
name = "quick"
dataset = "builtin:arithmetic"
evaluators = ["nll"]

[[infrequent_evaluations]]
name = "slow"
dataset = "builtin:arithmetic"
evaluators = ["perplexity"]
"""


def test_a_plan_is_read_with_its_intervals(tmp_path: Path):
    """Its evaluations are those of a suite, without the suite's label; ids are the caller's."""
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    plan = load_plan(path, plan_id="p", run_id="r")

    assert plan == parse_plan(PLAN, plan_id="p", run_id="r")
    assert (plan.plan_id, plan.run_id, plan.eval_every, plan.infrequent_eval_every) == ("p", "r", 500, 1000)
    assert [each.labels for each in plan.evaluations] == [{"evaluation": "quick"}]
    patience = Patience(metric="quick/nll", goal=Goal.LOWER, patience=3, min_delta=0.5)
    assert (plan.patience, plan.best_file, plan.log_to) == (patience, True, ("jsonl:mine",))
    assert [each.metric_prefix for each in plan.infrequent_evaluations] == ["slow/"]
    every_step = parse_plan(PLAN.replace("eval_every = 500\n", "", 1), plan_id="p", run_id="r")
    assert every_step.eval_every == 1


@rows(
    ("line", "instead", "field"),
    [
        ("eval_every = 500", 'eval_every = "often"', "eval_every"),
        ("eval_every = 500", "eval_every = -1", "eval_every"),
        ("eval_every = 500", "every = 500", "every"),
        ('goal = "lower"', 'goal = "up"', "patience.goal"),
        ("patience = 3,", "", "patience.patience"),
        ('["jsonl:mine"]', "[3]", "log_to[0]"),
        ('name = "slow"', "name = 3", "infrequent_evaluations[0].name"),
        ('evaluators = ["perplexity"]', "", "infrequent_evaluations[0].evaluators"),
        (PLAN, "", "evaluations"),
        (PLAN, "[", "plan"),
    ],
)
def test_a_plan_is_read_strictly(line: str, instead: str, field: str):
    """What is wrong has its path in the file."""
    with pytest.raises(InvalidField) as caught:
        parse_plan(PLAN.replace(line, instead, 1), plan_id="p", run_id="r")

    assert caught.value.field == field
