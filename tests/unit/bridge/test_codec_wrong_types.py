"""Values that a field cannot have, on their way out: the error names the field and what is expected there."""

import types
from typing import Any

import pytest

from crucible_bridge.client.evaluation import request_of
from crucible_bridge.codec import (
    code_limits_to_v1,
    code_test_to_v1,
    evaluate_request_to_v1,
    math_policy_to_v1,
    sample_to_v1,
    score_options_to_v1,
)
from crucible_bridge.codec.metrics import classification_metrics_request_to_bytes
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    BuiltinDataset,
    CallTest,
    ClassificationMetricsRequest,
    CodeLimits,
    Dataset,
    EvaluatorSpec,
    InputOutputTests,
    Limits,
    MathPolicy,
    OutputComparison,
    Sample,
    SamplingParams,
    ScoreOptions,
    StdioTest,
    TextScorer,
)
from tests.tables import rows

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "text for a number": ({"step": "7"}, "step is '7', must be a whole number"),
    "a fraction for a whole number": ({"step": 7.5}, "step is 7.5, must be a whole number"),
    "a number for text": ({"run_id": 7}, "run_id is 7, must be text"),
    "what is long": ({"run_id": list(range(99))}, f"run_id is {list(range(99))!r:.200}..., must be text"),
    "a map's entry": ({"labels": {"a": "b", "c": 1}}, 'labels["c"] is 1, must be text'),
    "no map": ({"labels": "ab"}, "labels is 'ab', must be a mapping"),
    "too wide": ({"step": 2**70}, f"step cannot be sent: Value out of range: {2**70}"),
    "a dict for a message": (
        {"sampling": {"max_tokens": 7, "top": 1}},
        "sampling is dict, must be a SamplingParams, such as SamplingParams(max_tokens=7)",
    ),
    "a dict without its fields": ({"limits": {"tokens": 7}}, "limits is dict, must be a Limits"),
    "a dict for a part": (
        {"dataset": Dataset(source=BuiltinDataset("arithmetic"), prompt={"few_shot": {}})},  # pyright: ignore[reportArgumentType]
        "dataset.prompt is dict, must be a Prompt, such as Prompt(few_shot={})",
    ),
    "within sampling": (
        {"sampling": SamplingParams(max_tokens="7")},  # pyright: ignore[reportArgumentType]
        "sampling.max_tokens is '7', must be a whole number",
    ),
    "one text for several": (
        {"sampling": SamplingParams(max_tokens=7, stop="abc")},  # pyright: ignore[reportArgumentType]
        "sampling.stop is one text, must be a sequence of texts",
    ),
    "a mapping for several": (
        {"sampling": SamplingParams(max_tokens=7, stop={"abc": 1})},  # pyright: ignore[reportArgumentType]
        "sampling.stop is a dict, must be a sequence of texts: its values would be lost",
    ),
    "options that are none": ({"evaluators": {"nll": "math"}}, 'evaluators["nll"] is a str, not a mapping of options'),
    "a kind that is none": ({"evaluators": {7: {}}}, "evaluators has the key 7, must have kinds as text"),
    "a mapping among evaluators": (
        {"evaluators": ["nll", {"accuracy": {}}]},
        "evaluators[1] is a dict, neither a kind nor an EvaluatorSpec; a mapping {kind: options} stands alone",
    ),
    "a mapping for targets": (
        {"dataset": [Sample(input="a", targets={"x": 1.0})]},  # pyright: ignore[reportArgumentType]
        "dataset.inline.samples[0].targets is a dict, must be a sequence of texts: its values would be lost",
    ),
    "within limits": (
        {"limits": Limits(max_unscored_share="all")},  # pyright: ignore[reportArgumentType]
        "limits.max_unscored_share is 'all', must be a number",
    ),
    "within an evaluator": (
        {"evaluators": [EvaluatorSpec(kind="nll"), EvaluatorSpec(kind=7)]},  # pyright: ignore[reportArgumentType]
        "evaluators[1].kind is 7, must be text",
    ),
    "within a data set": (
        {"dataset": Dataset(source=BuiltinDataset("arithmetic"), limit="7")},  # pyright: ignore[reportArgumentType]
        "dataset.limit is '7', must be a whole number",
    ),
    "within a sample": (
        {"dataset": [Sample(input="a"), Sample(input="b", targets="abc")]},  # pyright: ignore[reportArgumentType]
        "dataset.inline.samples[1].targets is one text, must be a sequence of texts",
    ),
}


@rows(("fields", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_value_is_named_by_its_field(fields: dict[str, Any], said: str):
    """Whoever passed it finds it in the call, whatever stands beside it, and reads what belongs there."""
    asked = {"model": "embedded:a@1", "evaluators": ["nll"], "dataset": "builtin:arithmetic", **fields}

    with pytest.raises(InvalidField) as refused:
        evaluate_request_to_v1(request_of(**asked))

    assert str(refused.value) == said


def test_a_mapping_of_kinds_keeps_their_options():
    """A mapping of evaluators by kind keeps the options of each; none at all is an empty mapping or None."""
    evaluators = {"accuracy": {"grader": "numeric", "grader_options": {"tolerance": 0.1}}, "nll": {}, "rollout": None}

    request = request_of(model="embedded:a@1", evaluators=evaluators, dataset="builtin:arithmetic")

    assert request.evaluators == (
        EvaluatorSpec(kind="accuracy", options={"grader": "numeric", "grader_options": {"tolerance": 0.1}}),
        EvaluatorSpec(kind="nll"),
        EvaluatorSpec(kind="rollout"),
    )


@pytest.mark.parametrize("name", ["predictions", "targets"])
def test_one_text_is_not_its_letters(name: str):
    """A list that was forgotten would be three labels of a letter each."""
    fields: dict[str, Any] = {"predictions": ["a", "b", "c"], "targets": ["a", "b", "c"], name: "abc"}

    with pytest.raises(InvalidField, match=f"{name} is one text, must be a sequence of texts"):
        classification_metrics_request_to_bytes(ClassificationMetricsRequest(**fields))


def test_any_mapping_is_one():
    """What cannot be changed, as defaults are, is sent like a dict."""
    message = sample_to_v1(Sample(input="a", metadata=types.MappingProxyType({"b": "c"})))

    assert dict(message.metadata) == {"b": "c"}


GRADING: dict[str, tuple[Any, str]] = {
    "text for a rule": (
        lambda: math_policy_to_v1(MathPolicy(degrees="no")),  # pyright: ignore[reportArgumentType]
        "policy.degrees is 'no', must be true or false",
    ),
    "text for digits": (
        lambda: math_policy_to_v1(MathPolicy(rounding_digits="3")),  # pyright: ignore[reportArgumentType]
        "policy.rounding_digits is '3', must be a whole number",
    ),
    "a fraction for digits": (
        lambda: math_policy_to_v1(MathPolicy(rounding_digits=2.5)),  # pyright: ignore[reportArgumentType]
        "policy.rounding_digits is 2.5, must be a whole number",
    ),
    "a mapping for a policy": (
        lambda: math_policy_to_v1({"degrees": False}),  # pyright: ignore[reportArgumentType]
        "policy is dict, must be a MathPolicy, such as MathPolicy(degrees=False)",
    ),
    "a scorer with options by its name": (
        lambda: score_options_to_v1(ScoreOptions(scorer=TextScorer(kind="numeric"))),  # pyright: ignore
        "options is 'numeric', which is no scorer by name; known are: exact_match, contains, f1, bleu, rouge, "
        "regex as RegexScorer(...), numeric as NumericScorer(...), multiple_choice as ChoiceScorer(...), "
        "format as FormatScorer(...)",
    ),
    "a comparison that is none": (
        lambda: score_options_to_v1(ScoreOptions(scorer=TextScorer(kind="exact_match", compare="set"))),  # pyright: ignore
        "options.exact_match.compare is 'set', known are: text, number, list, json",
    ),
    "text for a test": (
        lambda: code_test_to_v1("assert f()", "tests[0]"),  # pyright: ignore[reportArgumentType]
        "tests[0] is 'assert f()', which is no test; known are: Assertions, StdioTest, CallTest, InputOutputTests",
    ),
    "a mapping for a comparison": (
        lambda: code_test_to_v1(StdioTest(stdout="1", comparison={"by_token": True}), "tests[0]"),  # pyright: ignore
        "tests[0].stdio.comparison is dict, must be an OutputComparison, such as OutputComparison(by_token=True)",
    ),
    "text for a tolerance": (
        lambda: code_test_to_v1(
            InputOutputTests(json="{}", comparison=OutputComparison(absolute_tolerance="1e-6")),  # pyright: ignore
            "tests[0]",
        ),
        "tests[0].input_output.comparison.absolute_tolerance is '1e-6', must be a number",
    ),
    "a value for the JSON of a call": (
        lambda: code_test_to_v1(CallTest(function="f", expected_json=[1]), "tests[0]"),  # pyright: ignore
        "tests[0].call.expected_json is [1], must be text",
    ),
    "a mapping for tests as APPS has them": (
        lambda: code_test_to_v1(InputOutputTests(json={"inputs": []}), "tests[0]"),  # pyright: ignore
        "tests[0].input_output.json is {'inputs': []}, must be text",
    ),
    "a mapping for limits": (
        lambda: code_limits_to_v1({"timeout_ms": 5}),  # pyright: ignore[reportArgumentType]
        "limits is dict, must be a CodeLimits, such as CodeLimits(memory_mb=256)",
    ),
    "text for a limit": (
        lambda: code_limits_to_v1(CodeLimits(timeout_ms="5")),  # pyright: ignore[reportArgumentType]
        "limits.timeout_ms is '5', must be a whole number",
    ),
}


@rows("case", GRADING)
def test_an_option_of_grading_with_a_wrong_value_is_named(case: str):
    """The error names the option as it is written in Python, with what is expected there."""
    encode, says = GRADING[case]

    with pytest.raises(InvalidField) as refused:
        encode()

    assert str(refused.value) == says
