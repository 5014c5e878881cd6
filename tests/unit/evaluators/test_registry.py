"""The registry of evaluators: what is known, what is refused, and at which path."""

import importlib.util
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.types import EvaluatorSpec, SampleResult, SamplingParams, Verdict
from crucible_worker.evaluators import registry
from crucible_worker.evaluators.accuracy import MAX_SAMPLES_PER_PROMPT
from tests import needs
from tests.tables import rows

SAMPLING = SamplingParams(max_tokens=4, temperature=1.0)


REQUIRED: dict[str, dict[str, Any]] = {
    "classification": {"labels": ["x", "y"]},
    "comparison": {"judge": "openai:s/m"},
    "rubric": {"judge": "openai:s/m", "criteria": [{"name": "clear", "description": "Is it?"}]},
}
"""Options without a default, by kind."""
ALLOWED_BY_OPERATORS = {"inspect"}
"""Kinds that are there only where an operator allows something."""
TOLD_BY_RUNS = {"<task>/<scorer>/<metric>", "env/<tag>/total_cached_ob_tokens"}
"""Keys of which nothing is known before something ran."""


def _create(kind: str, **options: Any) -> Any:
    return registry.create(EvaluatorSpec(kind=kind, options=REQUIRED.get(kind, {}) | options), 2, SAMPLING)


def test_an_unknown_kind_is_refused_with_those_that_are_known() -> None:
    """The error names the field and every kind that there is."""
    with pytest.raises(
        InvalidField,
        match="'bleu', known are: accuracy, bits_per_byte, classification, comparison, inspect, multiple_choice, "
        "next_token_accuracy, nll, pass_at_k, perplexity, preference, rl_test_set, rollout, "
        "rubric",
    ) as caught:
        _create("bleu")

    assert (caught.value.field, caught.value.reason) == ("evaluators[2].kind", "UNKNOWN_EVALUATOR")
    with pytest.raises(InvalidField):
        registry.info("bleu")


@rows(
    ("kind", "options", "field"),
    [
        ("accuracy", {"max_tokens": 3}, 'evaluators[2].options["max_tokens"]'),
        ("accuracy", {"samples_per_prompt": 0}, 'evaluators[2].options["samples_per_prompt"]'),
        ("accuracy", {"samples_per_prompt": MAX_SAMPLES_PER_PROMPT + 1}, 'evaluators[2].options["samples_per_prompt"]'),
        ("accuracy", {"grader": "oracle"}, 'evaluators[2].options["grader"]'),
        (
            "accuracy",
            {"grader": "format", "grader_options": {"form": "marks"}},
            'evaluators[2].options["grader_options"]["marks"]',
        ),
        ("accuracy", {"grader_options": []}, 'evaluators[2].options["grader_options"]'),
        ("accuracy", {"grader_options": {"x": 1}}, 'evaluators[2].options["grader_options"]["x"]'),
        (
            "accuracy",
            {"grader": "numeric", "grader_options": {"relative_tolerance": -1}},
            'evaluators[2].options["grader_options"]["relative_tolerance"]',
        ),
        ("accuracy", {"renderer": "chatml"}, 'evaluators[2].options["renderer"]'),
        ("accuracy", {"renderer": "tinker:"}, 'evaluators[2].options["renderer"]'),
        ("accuracy", {"renderer": "raw\n"}, 'evaluators[2].options["renderer"]'),
        ("accuracy", {"thinking": "hide"}, 'evaluators[2].options["thinking"]'),
        ("nll", {"renderer": "tinker:a b"}, 'evaluators[2].options["renderer"]'),
        ("nll", {"thinking": "keep"}, 'evaluators[2].options["thinking"]'),
        ("nll", {"client": "both"}, 'evaluators[2].options["client"]'),
        ("nll", {"train_on": "user"}, 'evaluators[2].options["train_on"]'),
        ("pass_at_k", {"ks": []}, 'evaluators[2].options["ks"]'),
        ("pass_at_k", {"ks": [1, 1]}, 'evaluators[2].options["ks"]'),
        ("pass_at_k", {"ks": [1, 9]}, 'evaluators[2].options["ks"][1]'),
        ("pass_at_k", {"grader": "oracle"}, 'evaluators[2].options["grader"]'),
        ("nll", {"client": None}, 'evaluators[2].options["client"]'),
        ("rollout", {"clean": ["trim"]}, 'evaluators[2].options["clean"][0]'),
        ("rollout", {"clean": [["strip"]]}, 'evaluators[2].options["clean"][0]'),
        ("rollout", {"clean": [{}]}, 'evaluators[2].options["clean"][0]'),
        ("rollout", {"clean": [{"after": "a", "until": "b"}]}, 'evaluators[2].options["clean"][0]'),
        ("rollout", {"clean": [{"lower": "a"}]}, 'evaluators[2].options["clean"][0]["lower"]'),
        ("rollout", {"clean": [{"after": ""}]}, 'evaluators[2].options["clean"][0]["after"]'),
        ("rollout", {"clean": [{"extract": "all"}]}, 'evaluators[2].options["clean"][0]["extract"]'),
        ("rollout", {"clean": [{"regex": "("}]}, 'evaluators[2].options["clean"][0]["regex"]'),
        ("rollout", {"clean": [{"strip": ""}] * 9}, 'evaluators[2].options["clean"]'),
        ("rollout", {"reduce": "max"}, 'evaluators[2].options["reduce"]'),
        ("rollout", {"intermediates": 1}, 'evaluators[2].options["intermediates"]'),
        ("rollout", {"grader": "bleurt"}, 'evaluators[2].options["grader"]'),
        ("perplexity", {"train_on": "user"}, 'evaluators[2].options["train_on"]'),
        ("perplexity", {"client": "both"}, 'evaluators[2].options["client"]'),
        ("bits_per_byte", {"train_on": "all"}, 'evaluators[2].options["train_on"]'),
        ("bits_per_byte", {"windows": "sliding"}, 'evaluators[2].options["windows"]'),
        ("next_token_accuracy", {"client": "sampling"}, 'evaluators[2].options["client"]'),
        ("next_token_accuracy", {"clean": ["trim"]}, 'evaluators[2].options["clean"][0]'),
        ("next_token_accuracy", {"clean": ["strip", {"regex": "("}]}, 'evaluators[2].options["clean"][1]["regex"]'),
        ("next_token_accuracy", {"renderer": "tinker:"}, 'evaluators[2].options["renderer"]'),
        ("next_token_accuracy", {"train_on": "user"}, 'evaluators[2].options["train_on"]'),
        ("classification", {"labels": ["x"]}, 'evaluators[2].options["labels"]'),
        ("classification", {"labels": ["x", "x"]}, 'evaluators[2].options["labels"]'),
        ("classification", {"labels": ["x", " "]}, 'evaluators[2].options["labels"][1]'),
        ("classification", {"labels": ["x", "y\n"]}, 'evaluators[2].options["labels"][1]'),
        ("classification", {"positive": "z"}, 'evaluators[2].options["positive"]'),
        ("classification", {"by": "chance"}, 'evaluators[2].options["by"]'),
        (
            "classification",
            {"by": "generation", "labels": [f"label {index}" for index in range(27)]},
            'evaluators[2].options["labels"]',
        ),
        ("comparison", {"judge": ""}, 'evaluators[2].options["judge"]'),
        ("comparison", {"judge_renderer": "tinker:"}, 'evaluators[2].options["judge_renderer"]'),
        ("inspect", {"limit": 0}, 'evaluators[2].options["limit"]'),
        ("inspect", {"task_args": []}, 'evaluators[2].options["task_args"]'),
        ("inspect", {"judge": ""}, 'evaluators[2].options["judge"]'),
        ("multiple_choice", {"measure": "mean"}, 'evaluators[2].options["measure"]'),
        ("multiple_choice", {"form": "numbers"}, 'evaluators[2].options["form"]'),
        ("multiple_choice", {"delimiter": "x" * 101}, 'evaluators[2].options["delimiter"]'),
        ("multiple_choice", {"client": "both"}, 'evaluators[2].options["client"]'),
        ("multiple_choice", {"renderer": "tinker:"}, 'evaluators[2].options["renderer"]'),
    ],
)
def test_wrong_options_are_named_by_their_path(kind: str, options: dict[str, Any], field: str) -> None:
    """An option that is unknown or wrong is refused at its path in the request."""
    with pytest.raises(InvalidField) as caught:
        _create(kind, **options)

    assert caught.value.field == field


@rows("kind", ["accuracy", "multiple_choice", "nll"])
@rows("renderer", ["auto", "chat_template", "role_colon", "raw", "tinker:qwen3_5"])
def test_every_renderer_can_be_chosen(kind: str, renderer: str) -> None:
    """By name, for whatever renders."""
    if renderer.startswith("tinker:"):
        pytest.importorskip("tinker_cookbook", reason=needs.MISSING["tinker_cookbook"])

    assert _create(kind, renderer=renderer).renderer == renderer


@pytest.mark.parametrize("kind", ["accuracy", "multiple_choice", "nll"])
def test_a_renderer_of_what_is_not_installed_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first sample, with what to install."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(FailedPrecondition, match="pip install tinker-cookbook") as caught:
        _create(kind, renderer="tinker:qwen3")
    assert caught.value.reason == "EXTRA_NOT_INSTALLED"


@pytest.mark.parametrize("count", [1, MAX_SAMPLES_PER_PROMPT, 4.0])
def test_repeats_within_the_limit_are_accepted(count: float) -> None:
    """From 1 to the limit, also as the doubles of google.protobuf.Struct."""
    assert _create("accuracy", samples_per_prompt=count).repeats == count


@rows("kind", registry.EVALUATORS)
def test_every_kind_describes_itself(kind: str) -> None:
    """A listing holds a valid schema that refuses unknown options, and its own defaults pass it."""
    info = registry.info(kind)

    Draft202012Validator.check_schema(info.options_schema)
    required = REQUIRED.get(kind, {})
    assert set(info.options_schema.get("required", ())) == set(required)
    rules = info.options_schema["properties"].items()
    defaults = {key: rule["default"] for key, rule in rules if key not in required}
    Draft202012Validator(dict(info.options_schema)).validate(required | defaults)
    assert info.options_schema["additionalProperties"] is False
    assert info.kind == kind
    assert info.kinds
    assert info.description.endswith(".")
    assert bool(info.unavailable) is (kind in ALLOWED_BY_OPERATORS)


@rows("kind", registry.EVALUATORS)
@rows("verdict", [Verdict.ERROR, Verdict.UNDECIDED])
@rows("reduce", [None, "mean", "sum", "none"])
def test_keys_are_those_that_are_announced(kind: str, verdict: Verdict, reduce: str | None) -> None:
    """Whatever became of the samples, each announced key has a value or a reason, and there is no other."""
    if reduce is not None and "reduce" not in registry.info(kind).options_schema["properties"]:
        return
    options = {} if reduce is None else {"reduce": reduce}
    results = [SampleResult(evaluator=kind, sample_id=name, verdict=verdict) for name in "ab"]

    metrics = _create(kind, **options).aggregate(results)

    found = {*metrics.values, *metrics.undefined}
    listed = registry.keys_of(EvaluatorSpec(kind=kind, options=options))
    if reduce is None and kind not in ("rollout", "preference"):  # they describe the keys of all their options
        assert list(listed) == list(registry.info(kind).keys)
    announced = {key: re.sub("<.+?>", "[^/]+", re.escape(key)) for key in listed}
    assert all(any(re.fullmatch(pattern, key) for pattern in announced.values()) for key in found)
    missing = {name for name, pattern in announced.items() if not any(re.fullmatch(pattern, key) for key in found)}
    assert missing <= TOLD_BY_RUNS
