"""JSON parameters and the messages that they become."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import hypothesis.strategies as st
import jsonschema
import msgpack
import pytest
from hypothesis import given

from crucible_bridge.errors import InvalidField
from crucible_bridge.v1 import evaluation_pb2, grading_pb2, metrics_pb2, models_pb2, types_pb2
from crucible_worker.snakepit.arguments import Arguments
from crucible_worker.snakepit.catalogue import TOOLS, parameters_schema
from crucible_worker.snakepit.parameters import SHORT_FORMS, fill
from crucible_worker.snakepit.results import Output, to_json
from tests.tables import rows
from tests.unit.snakepit.strategies import TEXTS, messages_of

REQUESTS = (
    evaluation_pb2.EvaluateRequest,
    evaluation_pb2.EvaluationPlan,
    evaluation_pb2.ListEvaluationsRequest,
    grading_pb2.GradeMathRequest,
    grading_pb2.ScoreRequest,
    metrics_pb2.ComputeKLPostUpdateRequest,
    metrics_pb2.ComputeTrajectoryMetricsRequest,
    models_pb2.SampleRequest,
    types_pb2.SamplingParams,
)


def filled(request: Any, value: Any, binary: dict[str, bytes] | None = None) -> Any:
    """A message, filled with JSON."""
    arguments = Arguments({}, binary or {})
    message = request()
    fill(message, value, "", arguments)
    return message


@given(st.sampled_from(REQUESTS).flatmap(lambda request: messages_of(request.DESCRIPTOR)))
def test_a_message_comes_back_from_its_json(message: Any):
    """What is written of a message, through JSON or msgpack, is read as that message."""
    packed = msgpack.unpackb(msgpack.packb(to_json(message, Output("msgpack"))))
    assert filled(type(message), packed) == message

    listed = to_json(message, Output("json"))
    assert json.loads(json.dumps(listed, allow_nan=False)) == listed


@given(
    st.sampled_from(REQUESTS),
    st.recursive(
        st.none() | st.booleans() | st.floats() | TEXTS,
        lambda x: (
            st.lists(x, max_size=2)
            | st.dictionaries(
                TEXTS
                | st.sampled_from(["model", "items", "dataset", "limits", "data", "sampling", "evaluators", "step"]),
                x,
                max_size=3,
            )
        ),
        max_leaves=8,
    ),
)
def test_whatever_is_no_message_is_refused_with_its_path(request: Any, value: Any):
    """Any JSON is a message, or refused as an InvalidField; nothing else is raised."""
    with contextlib.suppress(InvalidField):
        assert isinstance(filled(request, value), request)


SHORT = [
    ("model", "embedded:m", {"embedded": "m"}),
    ("model", "tinker://r/weights/w", {"tinker": {"state_path": "tinker://r/weights/w"}}),
    ("evaluators", ["nll"], [{"kind": "nll"}]),
    ("dataset", "builtin:arithmetic", {"builtin": "arithmetic"}),
    ("dataset", "jsonl:a.jsonl", {"jsonl_path": "a.jsonl"}),
    (
        "dataset",
        [{"input": "1+1=", "target": "2"}, {"input": [{"role": "user", "content": "x"}], "targets": ["a", "b"]}],
        {
            "inline": {
                "samples": [
                    {"text": "1+1=", "targets": ["2"]},
                    {"conversation": {"messages": [{"role": "user", "content": "x"}]}, "targets": ["a", "b"]},
                ]
            }
        },
    ),
]


@rows(("field", "short", "whole"), SHORT)
def test_short_forms_stand_for_whole_ones(field: str, short: Any, whole: Any):
    """A short form is read as what it stands for, and the schema of a tool has both."""
    request = evaluation_pb2.EvaluateRequest
    (tool,) = [tool for tool in TOOLS if tool.name == "evaluate"]
    schema = jsonschema.Draft202012Validator(parameters_schema(tool))

    assert filled(request, {field: short}) == filled(request, {field: whole})
    for value in (short, whole):
        schema.validate(
            {"model": "embedded:arithmetic@320", "evaluators": "nll", "dataset": "builtin:arithmetic", field: value}
        )


def test_short_forms_of_grading_stand_for_whole_ones():
    """Items, scorers and choices have short forms as well, and a JSON schema may be an object."""
    request = grading_pb2.ScoreRequest
    short = {"items": [{"id": 7, "pred": "a", "gold": "b"}], "options": {"multiple_choice": ["a", "b"]}}
    whole = {
        "items": [{"id": "7", "answer": "a", "targets": ["b"]}],
        "options": {"multiple_choice": {"choices": ["a", "b"]}},
    }
    form = filled(request, {"options": {"format": {"json_schema": {"type": "null"}}}})

    assert filled(request, short) == filled(request, whole)
    assert filled(request, {"options": "f1"}) == filled(request, {"options": {"f1": {}}})
    assert form.options.format.json_schema == '{"type": "null"}'


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [("text", "text"), ([1, 2], "model_input"), ([{"role": "user", "content": "x"}], "conversation")],
)
def test_a_prompt_is_what_it_looks_like(prompt: Any, kind: str):
    """Text, tokens or messages are a prompt, alone or as one of an item."""
    request = models_pb2.SampleRequest
    alone, inside = filled(request, {"items": [prompt]}), filled(request, {"items": [{"prompt": prompt, "seed": 3}]})

    assert alone.items[0].WhichOneof("prompt") == inside.items[0].WhichOneof("prompt") == kind
    assert inside.items[0].seed == 3


REFUSED = [
    ({"stpe": 3}, "stpe", "UNKNOWN_PARAMETER"),
    ({"limits": {"concurency": 3}}, "limits.concurency", "UNKNOWN_PARAMETER"),
    ({"step": "3"}, "step", "WRONG_TYPE"),
    ({"step": True}, "step", "WRONG_TYPE"),
    ({"step": 1.5}, "step", "WRONG_TYPE"),
    ({"step": 1 << 63}, "step", "INVALID_FIELD"),
    ({"run_id": 3}, "run_id", "WRONG_TYPE"),
    ({"run_id": "\ud800"}, "run_id", "INVALID_FIELD"),
    ({"labels": {"a": 1}}, 'labels["a"]', "WRONG_TYPE"),
    ({"model": 3}, "model", "WRONG_TYPE"),
    ({"model": "Embedded:m"}, "model", "INVALID_FIELD"),
    ({"model": {"embedded": "m", "local": {}}}, "model.local", "INVALID_FIELD"),
    ({"evaluators": [3]}, "evaluators[0]", "WRONG_TYPE"),
    ({"evaluators": [{"kind": "nll", "options": []}]}, "evaluators[0].options", "WRONG_TYPE"),
    ({"dataset": [{"input": 3}]}, "dataset.inline.samples[0].datum", "WRONG_TYPE"),
    ({"dataset": [{"input": "a", "text": "b"}]}, "dataset.inline.samples[0].text", "INVALID_FIELD"),
    ({"dataset": "nothing"}, "dataset", "INVALID_FIELD"),
    ({"sampling": {"temperature": "hot"}}, "sampling.temperature", "WRONG_TYPE"),
    ({"sampling": {"max_tokens": 1 << 31}}, "sampling.max_tokens", "INVALID_FIELD"),
    ({"dataset": {"skip_malformed": 1}}, "dataset.skip_malformed", "WRONG_TYPE"),
]


@rows(("value", "field", "reason"), REFUSED)
def test_what_is_wrong_is_named(value: Any, field: str, reason: str):
    """An unknown field, a wrong type or a value out of bounds is refused, with its path."""
    with pytest.raises(InvalidField) as refused:
        filled(evaluation_pb2.EvaluateRequest, value)

    assert (refused.value.field, refused.value.reason) == (field, reason)


def test_null_is_as_if_absent():
    """A null says nothing, wherever a field is."""
    request = evaluation_pb2.EvaluateRequest

    assert filled(request, {"step": None, "limits": {"deadline_ms": None}}) == filled(request, {"limits": {}})


@pytest.mark.parametrize(
    ("request_type", "given", "same"),
    [
        (
            grading_pb2.ScoreRequest,
            {"items": [{"id": None, "gold": "1", "target": None, "targets": None, "pred": "2", "answer": None}]},
            {"items": [{"gold": "1", "pred": "2"}]},
        ),
        (
            evaluation_pb2.EvaluateRequest,
            {"dataset": [{"input": "a", "text": None, "target": "b", "targets": None, "messages": None}]},
            {"dataset": [{"input": "a", "target": "b"}]},
        ),
        (
            models_pb2.SampleRequest,
            {"items": [{"prompt": "a", "text": None, "conversation": None}]},
            {"items": ["a"]},
        ),
    ],
)
def test_null_is_no_other_name(request_type: Any, given: Any, same: Any):
    """Of several names for one field, those that are null do not count: structs have them all."""
    assert filled(request_type, given) == filled(request_type, same)


def test_a_schema_is_json():
    """A JSON schema that came as msgpack, and holds what JSON has not, is refused."""
    with pytest.raises(InvalidField, match=r"options\.format\.json_schema has values that JSON does not have"):
        filled(grading_pb2.ScoreRequest, {"options": {"format": {"json_schema": {"const": b"x"}}}})


def test_enums_are_words_in_any_case():
    """A word of an enum is read in any case, without the enum's name."""
    request = evaluation_pb2.ListEvaluationsRequest

    assert filled(request, {"states": ["COMPLETED", "failed"]}).states == [3, 4]
    with pytest.raises(InvalidField, match=r"states\[0\] is 'done', not one of queued, running"):
        filled(request, {"states": ["done"]})


@rows(
    ("given", "expected"),
    [
        ("é", "é".encode()),
        ({"base64": "/w=="}, b"\xff"),
        ({"binary": "b"}, b"raw"),
        ("\ud800", b"\xed\xa0\x80"),
        (b"x", b"x"),
    ],
)
def test_bytes_are_text_or_what_text_cannot_be(given: Any, expected: bytes):
    """Bytes are text, base64, a binary parameter, or msgpack's own; half of a surrogate pair is no UTF-8."""
    message = filled(grading_pb2.ExtractAnswerRequest, {"responses": [given]}, {"b": b"raw"})

    assert message.responses == [expected]


def test_short_forms_are_of_messages_that_there_are():
    """Every short form belongs to a message of the protos, by its full name."""
    known = {
        message.full_name
        for module in (types_pb2, evaluation_pb2, grading_pb2, metrics_pb2, models_pb2)
        for message in module.DESCRIPTOR.message_types_by_name.values()
    }

    assert SHORT_FORMS.keys() - known == {"google.protobuf.Struct"}
