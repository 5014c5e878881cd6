"""Values that a field cannot have, on their way out: the error names the field and what is expected there."""

import types
from typing import Any

import pytest

from crucible_bridge.client.evaluation import request_of
from crucible_bridge.codec import evaluate_request_to_v1, sample_to_v1
from crucible_bridge.codec.metrics import classification_metrics_request_to_bytes
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    BuiltinDataset,
    ClassificationMetricsRequest,
    Dataset,
    EvaluatorSpec,
    Limits,
    Sample,
    SamplingParams,
)

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "text for a number": ({"step": "7"}, "step is '7', must be a whole number"),
    "a fraction for a whole number": ({"step": 7.5}, "step is 7.5, must be a whole number"),
    "a number for text": ({"run_id": 7}, "run_id is 7, must be text"),
    "what is long": ({"run_id": list(range(99))}, f"run_id is {list(range(99))!r:.60}..., must be text"),
    "a map's entry": ({"labels": {"a": "b", "c": 1}}, 'labels["c"] is 1, must be text'),
    "no map": ({"labels": "ab"}, "labels is 'ab', must be a mapping"),
    "too wide": ({"step": 2**70}, f"step cannot be sent: Value out of range: {2**70}"),
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


@pytest.mark.parametrize(("fields", "said"), WRONG.values(), ids=WRONG)
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
