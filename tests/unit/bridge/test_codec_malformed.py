"""What is malformed is refused with the path of its field, and with nothing but InvalidField."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible_bridge import codec
from crucible_bridge.errors import InternalError, InvalidField
from crucible_bridge.types import (
    Dataset,
    Datum,
    EmbeddedModel,
    EvaluateRequest,
    EvaluatorSpec,
    InlineDataset,
    Sample,
    SamplingParams,
)
from crucible_bridge.v1 import evaluation_pb2, events_pb2, types_pb2
from tests.tables import rows
from tests.unit.bridge import strategies as some


def a_request() -> evaluation_pb2.EvaluateRequest:
    """A request that is right, with everything in it."""
    datum = Datum(model_input=[1, 2], loss_fn_inputs={"mask": np.ones(2, np.float32)})  # type: ignore[arg-type]
    return codec.evaluate_request_to_v1(
        EvaluateRequest(
            evaluation_id="e",
            model=EmbeddedModel("arithmetic@320"),
            evaluators=(EvaluatorSpec(kind="nll", options={"a": {"b": [1]}}), EvaluatorSpec(kind="accuracy", name="n")),
            dataset=Dataset.of([Sample(input="x"), Sample(input=datum)]),
            sampling=SamplingParams(max_tokens=4, top_k=3),
            labels={"k": "v"},
        )
    )


def set_path(path: str, value: Any) -> Callable[[Any], None]:
    """A change that assigns to a dotted path."""

    def change(message: Any) -> None:
        *parents, last = path.split(".")
        for parent in parents:
            message = getattr(message, parent)
        setattr(message, last, value)

    return change


def mask(message: Any) -> types_pb2.Tensor:
    """The tensor of the second sample."""
    return message.dataset.inline.samples[1].datum.loss_fn_inputs["mask"]


MASK = 'dataset.inline.samples[1].datum.loss_fn_inputs["mask"]'
DATUM = "dataset.inline.samples[1].datum"
CASES: list[tuple[str, Callable[[Any], Any]]] = [
    ("model", lambda m: m.ClearField("model")),
    ("model", lambda m: m.model.ClearField("embedded")),
    ("model.embedded", set_path("model.embedded", "")),
    ("model.local.path", set_path("model.local.path", "")),
    ("model.local.adapter_path", lambda m: m.model.local.MergeFrom(types_pb2.LocalModel(path="p", adapter_path=""))),
    ("model.local.device", lambda m: m.model.local.MergeFrom(types_pb2.LocalModel(path="p", device="tpu"))),
    ("model.local.dtype", lambda m: m.model.local.MergeFrom(types_pb2.LocalModel(path="p", dtype="int8"))),
    ("model.openai.server", set_path("model.openai.server", "")),
    ("model.openai.server", lambda m: m.model.openai.MergeFrom(types_pb2.OpenAIModel(server="a/b", model="c"))),
    ("model.openai.model", set_path("model.openai.server", "a")),
    ("model.tinker", set_path("model.tinker.service", "a")),
    ("model.tinker.base_model", set_path("model.tinker.base_model", "")),
    ("model.tinker.base_model", set_path("model.tinker.base_model", "tinker://run/weights/1")),
    ("model.tinker.model_path", set_path("model.tinker.model_path", "/weights")),
    ("model.tinker.state_path", set_path("model.tinker.state_path", "run/weights/1")),
    ("model.tinker.service", lambda m: m.model.tinker.MergeFrom(types_pb2.TinkerModel(base_model="b", service=""))),
    (
        "model.tinker",
        lambda m: m.model.tinker.MergeFrom(types_pb2.TinkerModel(base_model="b", state_path="tinker://c")),
    ),
    ("dataset", lambda m: m.ClearField("dataset")),
    ("dataset", lambda m: m.dataset.ClearField("inline")),
    ("dataset.limit", set_path("dataset.limit", 0)),
    ("dataset.hub.repo_id", lambda m: m.dataset.hub.MergeFrom(evaluation_pb2.HubDataset(repo_id="a", split="b"))),
    ("dataset.hub.split", lambda m: m.dataset.hub.MergeFrom(evaluation_pb2.HubDataset(repo_id="a/b"))),
    ("evaluators", lambda m: m.ClearField("evaluators")),
    ("evaluators", lambda m: m.evaluators.extend([m.evaluators[0]] * (codec.MAX_EVALUATORS - 1))),
    ("evaluators[1].kind", lambda m: m.evaluators[1].ClearField("kind")),
    ("evaluators[1].kind", lambda m: setattr(m.evaluators[1], "kind", "k" * (codec.MAX_NAME_BYTES + 1))),
    ("evaluators[1].name", lambda m: setattr(m.evaluators[1], "name", "")),
    ("evaluators[1].name", lambda m: setattr(m.evaluators[1], "name", "n" * (codec.MAX_NAME_BYTES + 1))),
    (
        'evaluators[0].options["a"]["b"][1]',
        lambda m: m.evaluators[0].options.fields["a"].struct_value.fields["b"].list_value.values.add(),
    ),
    (
        'evaluators[1].options["x"]',
        lambda m: setattr(m.evaluators[1].options.fields["x"], "number_value", math.nan),
    ),
    ("sampling.max_tokens", set_path("sampling.max_tokens", 0)),
    ("sampling.temperature", set_path("sampling.temperature", -0.1)),
    ("sampling.temperature", set_path("sampling.temperature", math.nan)),
    ("sampling.temperature", set_path("sampling.temperature", math.inf)),
    ("sampling.top_p", set_path("sampling.top_p", 0.0)),
    ("sampling.top_p", set_path("sampling.top_p", 1.01)),
    ("sampling.top_p", set_path("sampling.top_p", math.nan)),
    ("sampling.top_k", set_path("sampling.top_k", 0)),
    ("sampling.stop[1]", lambda m: m.sampling.stop.extend(["\n", ""])),
    ("limits.concurrency", set_path("limits.concurrency", 0)),
    ("limits.deadline_ms", set_path("limits.deadline_ms", 0)),
    ("limits.stall_timeout_ms", set_path("limits.stall_timeout_ms", -1)),
    ("limits.sample_timeout_ms", set_path("limits.sample_timeout_ms", 0)),
    ("limits.max_unscored_share", set_path("limits.max_unscored_share", 1.01)),
    ("limits.max_unscored_share", set_path("limits.max_unscored_share", math.nan)),
    ("limits.max_unscored", set_path("limits.max_unscored", -1)),
    ("evaluation_id", set_path("evaluation_id", "é" * (codec.MAX_ID_BYTES // 2 + 1))),
    ("run_id", set_path("run_id", "r" * (codec.MAX_ID_BYTES + 1))),
    ("correlation_id", set_path("correlation_id", "c" * (codec.MAX_ID_BYTES + 1))),
    ("metric_prefix", set_path("metric_prefix", "p" * (codec.MAX_NAME_BYTES + 1))),
    ('labels["k"]', lambda m: m.labels.update({"k": "v" * (codec.MAX_LABEL_BYTES + 1)})),
    ("labels", lambda m: m.labels.update({str(n): "" for n in range(codec.MAX_LABELS)})),
    (
        "dataset.inline.samples[0].id",
        lambda m: setattr(m.dataset.inline.samples[0], "id", "i" * (codec.MAX_SAMPLE_ID_BYTES + 1)),
    ),
    ("dataset.inline.samples[0]", lambda m: m.dataset.inline.samples[0].ClearField("text")),
    ("dataset.inline.samples[0].choice_labels", lambda m: m.dataset.inline.samples[0].choice_labels.append("A")),
    (
        "dataset.inline.samples[0].choice_labels",
        lambda m: m.dataset.inline.samples[0].MergeFrom(
            evaluation_pb2.Sample(choices=["x", "y"], choice_labels=["A", "A"])
        ),
    ),
    (
        "dataset.inline.samples[0].conversation.messages",
        lambda m: m.dataset.inline.samples[0].conversation.SetInParent(),
    ),
    (
        "dataset.inline.samples[0].conversation.messages[0].role",
        lambda m: m.dataset.inline.samples[0].conversation.messages.add(content="hello"),
    ),
    (f"{DATUM}.model_input", lambda m: m.dataset.inline.samples[1].datum.ClearField("model_input")),
    (
        f"{DATUM}.model_input.chunks[1]",
        lambda m: m.dataset.inline.samples[1].datum.model_input.chunks.add(),
    ),
    (
        f"{DATUM}.model_input.chunks[0].tokens",
        lambda m: m.dataset.inline.samples[1].datum.model_input.chunks[0].tokens.CopyFrom(mask(m)),
    ),
    (
        f"{DATUM}.model_input.chunks[1].image.format",
        lambda m: m.dataset.inline.samples[1].datum.model_input.chunks.add(image=types_pb2.ImageChunk(format="gif")),
    ),
    (
        f"{DATUM}.model_input.chunks[1].image_asset.format",
        lambda m: m.dataset.inline.samples[1].datum.model_input.chunks.add().image_asset.SetInParent(),
    ),
    (f"{MASK}.dtype", lambda m: setattr(mask(m), "dtype", 0)),
    (f"{MASK}.dtype", lambda m: setattr(mask(m), "dtype", 99)),
    (MASK, lambda m: setattr(mask(m), "data", b"\0" * 7)),
    (MASK, lambda m: mask(m).shape.append(-1)),
    (MASK, lambda m: mask(m).shape.extend([2**62, 2**62, 0])),
    (MASK, lambda m: mask(m).shape.extend([1] * 40)),
]


@rows(("field", "change"), CASES, ids=[f"{n}-{field}" for n, (field, _) in enumerate(CASES)])
def test_the_error_names_the_field(field: str, change: Callable[[Any], Any]):
    """One thing wrong in a request that is right otherwise: the path leads to it."""
    message = a_request()
    assert codec.evaluate_request_from_v1(message).evaluation_id == "e"

    change(message)

    with pytest.raises(InvalidField) as caught:
        codec.evaluate_request_from_v1(message)
    assert caught.value.field == field


@rows(
    "change",
    [
        set_path("evaluation_id", "é" * (codec.MAX_ID_BYTES // 2)),
        set_path("run_id", "r" * codec.MAX_ID_BYTES),
        set_path("metric_prefix", "p" * codec.MAX_NAME_BYTES),
        set_path("sampling.top_p", 1.0),
        set_path("limits.max_unscored_share", 0.0),
        set_path("dataset.limit", 1),
        lambda m: m.labels.update({str(n): "" for n in range(codec.MAX_LABELS - 1)}),
        lambda m: m.labels.update({"k": "v" * codec.MAX_LABEL_BYTES}),
        lambda m: m.evaluators.extend([m.evaluators[0]] * (codec.MAX_EVALUATORS - 2)),
        lambda m: setattr(m.dataset.inline.samples[0], "id", "i" * codec.MAX_SAMPLE_ID_BYTES),
    ],
)
def test_what_is_at_the_limit_is_accepted(change: Callable[[Any], Any]):
    """A limit refuses what is beyond it, not what reaches it."""
    message = a_request()

    change(message)

    assert codec.evaluate_request_to_v1(codec.evaluate_request_from_v1(message)) == message


def nested(depth: int) -> Any:
    """Lists inside of each other."""
    return [nested(depth - 1)] if depth > 1 else 1


def test_options_nest_up_to_their_limit():
    """A recursion is bounded before protobuf or Python give up."""
    deep = {"k": nested(codec.MAX_OPTION_DEPTH)}
    assert codec.options_from_v1(codec.options_to_v1(deep, "o"), "o") == deep

    with pytest.raises(InvalidField, match="nested more than"):
        codec.options_to_v1({"k": nested(codec.MAX_OPTION_DEPTH + 1)}, "o")


@rows(
    ("field", "fields"),
    [
        ("evaluators[0].options", {"evaluators": (EvaluatorSpec(kind="k", options={1: 2}),)}),  # type: ignore[dict-item]
        ('evaluators[0].options["k"]', {"evaluators": (EvaluatorSpec(kind="k", options={"k": object()}),)}),
        ('evaluators[0].options["k"]', {"evaluators": (EvaluatorSpec(kind="k", options={"k": math.inf}),)}),
        ('evaluators[0].options["k"]', {"evaluators": (EvaluatorSpec(kind="k", options={"k": 2**53 + 1}),)}),
        ('evaluators[0].options["k"]', {"evaluators": (EvaluatorSpec(kind="k", options={"k": "\ud800"}),)}),
        ("evaluators[0].kind", {"evaluators": (EvaluatorSpec(kind="\ud800"),)}),
        ("dataset.inline.samples[1]", {"dataset": Dataset.of([Sample(input="a"), Sample(input="\ud800")])}),
        ("dataset.inline.samples[0]", {"dataset": Dataset(source=InlineDataset(("not a sample",)))}),  # type: ignore[arg-type]
        ("dataset.inline.samples", {"dataset": Dataset(source=InlineDataset(5))}),  # type: ignore[arg-type]
        ("dataset.inline.samples[0].targets", {"dataset": Dataset.of([Sample(input="40+2=", targets="42")])}),  # type: ignore[arg-type]
        ("dataset.inline.samples[0].choices", {"dataset": Dataset.of([Sample(input="?", choices="yes")])}),  # type: ignore[arg-type]
        ("evaluators", {"evaluators": 5}),
        ("dataset.limit", {"dataset": Dataset(source=Dataset.of("builtin:x").source, limit=2**63)}),
        ("sampling.max_tokens", {"sampling": SamplingParams(max_tokens=2**31)}),
        ("sampling.stop", {"sampling": SamplingParams(max_tokens=1, stop="ab")}),  # type: ignore[arg-type]
        ("step", {"step": "three"}),
    ],
)
def test_what_cannot_be_sent_is_refused_by_its_sender(field: str, fields: dict[str, Any]):
    """Encoding a request raises InvalidField, never an exception of protobuf's."""
    right: dict[str, Any] = {
        "model": EmbeddedModel("m"),
        "evaluators": (EvaluatorSpec(kind="nll"),),
        "dataset": Dataset.of("builtin:arithmetic"),
    }

    with pytest.raises(InvalidField) as caught:
        codec.evaluate_request_to_v1(EvaluateRequest(**{**right, **fields}))

    assert caught.value.field == field


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_metrics_and_scores_are_finite(value: float):
    """A number that is none never passes for a metric."""
    with pytest.raises(InvalidField, match=r'm.values\["nll"\]'):
        codec.metrics_from_v1(types_pb2.Metrics(values={"nll": value}), "m")
    with pytest.raises(InvalidField, match=r"s.score"):
        codec.sample_result_from_v1(evaluation_pb2.SampleResult(score=value, verdict=types_pb2.VERDICT_CORRECT), "s")


@pytest.mark.parametrize("number", [0, 99])
def test_unknown_enums_are_refused(number: int):
    """UNSPECIFIED and numbers of a later version are no values."""
    with pytest.raises(InvalidField, match=r"s.verdict"):
        codec.sample_result_from_v1(evaluation_pb2.SampleResult(verdict=number), "s")  # type: ignore[arg-type]
    with pytest.raises(InvalidField, match=r"kind"):
        codec.event_from_v1(events_pb2.Event(kind=number))  # type: ignore[arg-type]
    with pytest.raises(InvalidField, match=r"states\[1\]"):
        codec.states_from_v1([1, number], "states")


def test_a_list_of_enums_is_bounded():
    """A thousand are enough for any of them; each would be a parameter of a query."""
    assert len(codec.states_from_v1([1] * 1_000, "states")) == 1_000
    with pytest.raises(InvalidField, match="has 1,001 entries, at most 1,000"):
        codec.states_from_v1([1] * 1_001, "states")


@rows("schema", ["", "{", "[]", "[" * 100_000])
def test_a_schema_is_a_json_object(schema: str):
    """Anything else in its place is refused."""
    with pytest.raises(InvalidField, match=r"e.options_schema"):
        codec.evaluator_info_from_v1(evaluation_pb2.EvaluatorInfo(options_schema=schema), "e")


def test_a_damaged_record_is_an_error_of_ours():
    """A journal that lies is no fault of the request."""
    with pytest.raises(InternalError, match="event 8"):
        codec.page_to_v1([(7, b""), (8, b"\xff\xff")], "log", 8)


def sites(message: Message) -> Iterator[tuple[Any, Any]]:
    """Every field of a message and of those inside of it that are set, each with the message that has it."""
    for field in message.DESCRIPTOR.fields:
        yield message, field
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            inner = [value[key] for key in value] if field.message_type.fields_by_name["value"].message_type else []
        else:
            inner = list(value) if field.is_repeated else [value]
        for one in inner:
            yield from sites(one)


SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.CPPTYPE_INT32: some.i32,
    FieldDescriptor.CPPTYPE_INT64: some.i64,
    FieldDescriptor.CPPTYPE_UINT64: some.u64,
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_ENUM: st.integers(-1, 20),
}


def scalar(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    """Any value that the wire can carry in a field."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return st.binary(max_size=9) if field.type == FieldDescriptor.TYPE_BYTES else some.text
    return SCALARS[field.cpp_type]


def damage(message: Message, data: st.DataObject) -> None:
    """Empty one field of a message, or put something else into it."""
    owner, field = data.draw(st.sampled_from(list(sites(message))))
    if data.draw(st.booleans()):
        owner.ClearField(field.name)
    elif field.message_type is None:
        value = data.draw(scalar(field))
        if field.is_repeated:
            getattr(owner, field.name).append(value)
        else:
            setattr(owner, field.name, value)
    elif field.message_type.GetOptions().map_entry:
        key, value = data.draw(some.text), field.message_type.fields_by_name["value"]
        if value.message_type is None:
            getattr(owner, field.name)[key] = data.draw(scalar(value))
        else:
            getattr(owner, field.name)[key].SetInParent()
    elif field.is_repeated:
        getattr(owner, field.name).add()
    else:
        getattr(owner, field.name).Clear()
        getattr(owner, field.name).SetInParent()


# What is sent, how it is encoded, how it is decoded.
PAIRS: list[tuple[st.SearchStrategy[Any], Callable[[Any], Any], Callable[[Any], Any]]] = [
    (some.data, codec.datum_to_v1, lambda m: codec.datum_from_v1(m, "x")),
    (some.requests, codec.evaluate_request_to_v1, codec.evaluate_request_from_v1),
    (some.evaluations, codec.evaluation_to_v1, lambda m: codec.evaluation_from_v1(m, "x")),
    (some.sample_results, codec.sample_result_to_v1, lambda m: codec.sample_result_from_v1(m, "x")),
    (some.evaluator_infos, codec.evaluator_info_to_v1, lambda m: codec.evaluator_info_from_v1(m, "x")),
    (some.events, codec.event_to_v1, codec.event_from_v1),
    (some.worker_infos, codec.worker_info_to_v1, codec.worker_info_from_v1),
]


@pytest.mark.parametrize(
    ("values", "encode", "decode"), PAIRS, ids=["datum", "request", "evaluation", "sample", "info", "event", "worker"]
)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_damaged_message_never_raises_anything_else(
    values: st.SearchStrategy[Any], encode: Callable[[Any], Any], decode: Callable[[Any], Any], data: st.DataObject
):
    """A valid message, some of its fields emptied or replaced, is decoded or refused as InvalidField."""
    message = encode(data.draw(values))
    decode(message)
    for _ in range(data.draw(st.integers(1, 3))):
        damage(message, data)

    with contextlib.suppress(InvalidField):
        decode(type(message).FromString(message.SerializeToString()))
