"""ModelService's messages: every type survives the wire, and a malformed item costs no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crucible_bridge import codec
from crucible_bridge.codec.answer_room import RESERVED_ITEM_BYTES
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    BatchLimits,
    ForwardAnswer,
    ForwardOutput,
    ForwardRequest,
    LogprobsAnswer,
    LogprobsItem,
    LogprobsRequest,
    ModelInput,
    Problem,
    SampleAnswer,
    SampledItem,
    SampledSequence,
    SampleItem,
    SampleRequest,
    SamplingParams,
    SequenceLogprobs,
    Teacher,
)
from crucible_bridge.types.bounds import FORWARD_REQUEST_TRAIN_ON_ONE_OF
from crucible_bridge.v1 import models_pb2 as pb
from crucible_bridge.v1 import types_pb2
from tests.tables import rows
from tests.unit.bridge import strategies as some

ROOM = 1 << 20
MODEL = types_pb2.ModelRef(embedded="m")

bounds = st.builds(
    BatchLimits,
    concurrency=some.optional(some.positive),
    deadline_ms=some.optional(some.positive),
    item_timeout_ms=some.optional(some.positive),
)
items = st.builds(
    SampleItem,
    prompt=some.text | some.conversations | some.model_inputs,
    num_samples=some.positive,
    seed=some.optional(some.i64),
)
tables = hnp.arrays(np.float64, st.tuples(st.integers(0, 3), st.integers(1, 3)), elements=st.floats(width=64))
id_tables = hnp.arrays(np.int32, st.tuples(st.integers(0, 3), st.integers(1, 3)))
logprobs_items = st.builds(
    LogprobsItem,
    prompt=some.text | some.conversations | some.model_inputs,
    continuation=some.several(st.integers(0, 2**31 - 1)),
    targets=some.optional(id_tables | hnp.arrays(np.int64, st.integers(1, 3))),
    last_n=some.optional(some.positive),
)
measured_by = {
    "top_k": some.optional(some.positive),
    "last_n": some.optional(some.positive),
    "add_special_tokens": st.booleans(),
}
worded = {
    "train_on": st.sampled_from(["", *FORWARD_REQUEST_TRAIN_ON_ONE_OF]),
    "add_special_tokens": st.booleans(),
}
finite_or_not = hnp.arrays(np.float64, st.integers(0, 4), elements=st.floats(width=64))
token_ids = st.integers(0, 2**31 - 1)
sequences = (
    st.builds(
        SampledSequence,
        text=some.text,
        tokens=some.several(token_ids),
        logprobs=some.optional(some.several(some.finite)),
        stop_reason=some.text,
    )
    | st.builds(SampledSequence, text=some.text, tokens=st.just((1,)), top_tokens=id_tables, top_logprobs=tables)
    | st.builds(
        SampledSequence,
        text=some.text,
        tokens=st.just(()),
        token_count=some.positive,
        prompt_tokens=some.optional(some.positive),
    )
)
sampled_items = st.builds(
    SampledItem,
    sequences=some.several(sequences),
    prompt_tokens=some.optional(st.integers(0, 2**31 - 1)),
    seed=some.optional(some.i64),
    problem=some.optional(some.problems),
)
outputs = st.builds(
    ForwardOutput,
    logprobs=some.optional(finite_or_not),
    loss=some.optional(some.finite),
    problem=some.optional(some.problems),
    tokens=some.several(token_ids),
    weights=some.several(st.floats(width=32, allow_nan=False)),
)
logprobs = st.builds(
    SequenceLogprobs,
    logprobs=some.optional(finite_or_not),
    problem=some.optional(some.problems),
    first=st.integers(0, 2**31 - 1),
    tokens=some.several(token_ids),
    top_tokens=some.optional(id_tables),
    top_logprobs=some.optional(tables),
    target_logprobs=some.optional(tables),
)

PAIRS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sample": (
        st.builds(
            SampleRequest,
            model=some.models,
            items=some.several(items),
            sampling=some.sampling_params,
            limits=bounds,
            top_logprobs=some.optional(some.positive),
        ),
        codec.sample_request_to_v1,
        codec.sample_request_from_v1,
    ),
    "logprobs": (
        st.builds(
            LogprobsRequest, model=some.models, sequences=some.several(some.model_inputs), limits=bounds, **measured_by
        )
        | st.builds(LogprobsRequest, model=some.models, items=some.several(logprobs_items), **measured_by),
        codec.logprobs_request_to_v1,
        codec.logprobs_request_from_v1,
    ),
    "teachers": (
        st.builds(
            LogprobsRequest,
            teachers=some.several(
                st.builds(
                    Teacher,
                    model=some.models,
                    weight=st.floats(1e-300, 1e300),
                    items=some.several(st.integers(0, 2**31 - 1)),
                )
            ).filter(bool),
            sequences=some.several(some.model_inputs),
        ),
        codec.logprobs_request_to_v1,
        codec.logprobs_request_from_v1,
    ),
    "forward": (
        st.builds(ForwardRequest, model=some.models, data=some.several(some.data), limits=bounds, **worded)
        | st.builds(
            ForwardRequest,
            model=some.models,
            items=some.several(some.text | some.conversations | some.data),
            **worded,
        ),
        codec.forward_request_to_v1,
        codec.forward_request_from_v1,
    ),
    "samples": (
        st.builds(SampleAnswer, items=some.several(sampled_items), model_fingerprint=some.text),
        lambda answer: codec.sample_answer_to_v1(answer, ROOM),
        codec.sample_answer_from_v1,
    ),
    "logprobs of sequences": (
        st.builds(LogprobsAnswer, sequences=some.several(logprobs), model_fingerprint=some.text),
        lambda answer: codec.logprobs_answer_to_v1(answer, ROOM),
        codec.logprobs_answer_from_v1,
    ),
    "outputs": (
        st.builds(ForwardAnswer, outputs=some.several(outputs), model_fingerprint=some.text),
        lambda answer: codec.forward_answer_to_v1(answer, ROOM),
        codec.forward_answer_from_v1,
    ),
}


@pytest.mark.parametrize("pair", PAIRS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(values=st.data())
def test_what_is_decoded_equals_what_was_encoded(pair: str, values: st.DataObject):
    """The round trip through bytes is the identity, numbers bit by bit, absent values as None."""
    strategy, to_v1, from_v1 = PAIRS[pair]
    value = values.draw(strategy)

    message = to_v1(value)
    parsed = type(message).FromString(message.SerializeToString())

    assert some.plain(from_v1(parsed)) == some.plain(value)


def tokens(*ids: int) -> types_pb2.ModelInput:
    """Token ids as a model's input."""
    return codec.model_input_to_v1(ModelInput.of(list(ids)))


ODD_BYTES = types_pb2.Tensor(dtype=types_pb2.DTYPE_I64, data=b"123")
ODD_INPUT = types_pb2.ModelInput(chunks=[types_pb2.ModelInputChunk(tokens=ODD_BYTES)])

MALFORMED: list[tuple[Any, str, str]] = [
    (pb.SampleItem(), "items", "items[1]"),
    (pb.SampleItem(text="x", num_samples=0), "items", "items[1].num_samples"),
    (pb.SampleItem(text="x", num_samples=-1), "items", "items[1].num_samples"),
    (pb.SampleItem(model_input=ODD_INPUT), "items", "items[1].model_input.chunks[0].tokens"),
    (ODD_INPUT, "sequences", "sequences[1].chunks[0].tokens"),
    (types_pb2.Datum(), "data", "data[1].model_input"),
    (
        types_pb2.Datum(model_input=tokens(1), loss_fn_inputs={"weights": ODD_BYTES}),
        "data",
        'data[1].loss_fn_inputs["weights"]',
    ),
]


def decoded(batch: str, given: list[Any]) -> tuple[Any, ...]:
    """The items of a request of one of the three kinds."""
    if batch == "items":
        request = pb.SampleRequest(model=MODEL, items=given, sampling=types_pb2.SamplingParams(max_tokens=1))
        return codec.sample_request_from_v1(request).items
    if batch == "sequences":
        return codec.logprobs_request_from_v1(pb.ComputeLogprobsRequest(model=MODEL, sequences=given)).sequences
    return codec.forward_request_from_v1(pb.ForwardRequest(model=MODEL, data=given)).data


GOOD = {
    "items": pb.SampleItem(text="x"),
    "sequences": tokens(1, 2),
    "data": types_pb2.Datum(model_input=tokens(1)),
}


@rows(("item", "batch", "field"), MALFORMED)
def test_a_malformed_item_is_its_problem(item: Any, batch: str, field: str):
    """Its field says where; the items around it are read."""
    before, problem, after = decoded(batch, [GOOD[batch], item, GOOD[batch]])

    assert isinstance(problem, Problem)
    assert (problem.reason, problem.field, problem.retryable) == ("INVALID_FIELD", field, False)
    assert not isinstance(before, Problem)
    assert not isinstance(after, Problem)


SAMPLING = types_pb2.SamplingParams(max_tokens=1)


@rows(
    ("request_", "field"),
    [
        (pb.SampleRequest(sampling=SAMPLING), "model"),
        (pb.SampleRequest(model=types_pb2.ModelRef(), sampling=SAMPLING), "model"),
        (pb.SampleRequest(model=MODEL), "sampling"),
        (pb.SampleRequest(model=MODEL, sampling=types_pb2.SamplingParams()), "sampling.max_tokens"),
        (
            pb.SampleRequest(model=MODEL, sampling=SAMPLING, limits=pb.BatchLimits(concurrency=0)),
            "limits.concurrency",
        ),
        (
            pb.SampleRequest(model=MODEL, sampling=SAMPLING, limits=pb.BatchLimits(deadline_ms=-1)),
            "limits.deadline_ms",
        ),
        (
            pb.SampleRequest(model=MODEL, sampling=SAMPLING, limits=pb.BatchLimits(item_timeout_ms=0)),
            "limits.item_timeout_ms",
        ),
    ],
)
def test_what_holds_for_all_items_is_refused_as_a_whole(request_: pb.SampleRequest, field: str):
    """Model, sampling and limits: no item can be answered without them."""
    with pytest.raises(InvalidField) as refused:
        codec.sample_request_from_v1(request_)

    assert refused.value.field == field


def test_an_absent_number_of_samples_is_one():
    """And the temperature greedy, the limits the worker's."""
    request = codec.sample_request_from_v1(pb.SampleRequest(model=MODEL, items=[GOOD["items"]], sampling=SAMPLING))

    assert request.items == (SampleItem(prompt="x"),)
    assert request.sampling == SamplingParams(max_tokens=1)
    assert request.limits == BatchLimits()


def test_what_cannot_be_sent_is_refused_by_its_place():
    """Before anything is sent; so is an item that never was one."""
    problem = Problem(reason="INVALID_FIELD", message="is odd")
    for index, item in enumerate((SampleItem(prompt="\ud800"), problem)):
        good = (SampleItem(prompt="x"),) * index
        request = SampleRequest(
            model=some.EmbeddedModel("m"), items=(*good, item), sampling=SamplingParams(max_tokens=1)
        )
        with pytest.raises(InvalidField) as refused:
            codec.sample_request_to_v1(request)
        assert refused.value.field == f"items[{index}]"


@given(
    sizes=st.lists(st.integers(0, 2_000), min_size=1, max_size=12),
    max_bytes=st.integers(12 * RESERVED_ITEM_BYTES + 2 * RESERVED_ITEM_BYTES, 120_000),
)
@settings(max_examples=200, deadline=None)
def test_an_answer_never_outgrows_its_message(sizes: list[int], max_bytes: int):
    """What has no room left is a problem at its place; all others are there, as many as fit."""
    answer = LogprobsAnswer(
        sequences=tuple(SequenceLogprobs(logprobs=np.full(size, -1.0)) for size in sizes), model_fingerprint="f" * 64
    )

    message = codec.logprobs_answer_to_v1(answer, max_bytes)
    found = codec.logprobs_answer_from_v1(message).sequences

    assert message.ByteSize() <= max_bytes
    assert len(found) == len(sizes)
    for size, item in zip(sizes, found, strict=True):
        if item.problem is None:
            assert item.logprobs is not None
            assert item.logprobs.size == size
        else:
            assert (item.problem.reason, item.logprobs) == ("ANSWER_TOO_LARGE", None)
    if sum(size * 8 + RESERVED_ITEM_BYTES + 50 for size in sizes) < max_bytes - RESERVED_ITEM_BYTES:
        assert all(item.problem is None for item in found)


def test_a_models_broken_text_is_sendable():
    """Lone surrogates become U+FFFD."""
    answer = SampleAnswer(items=(SampledItem(sequences=(SampledSequence(text="a\udfff", tokens=(1,)),)),))

    found = codec.sample_answer_from_v1(codec.sample_answer_to_v1(answer, ROOM))

    assert found.items[0].sequences[0].text == "a\ufffd"


def test_sampled_tokens_that_are_no_integers_are_refused():
    """A reply's error names its place."""
    floats = codec.array_to_v1(np.array([1.0]))
    reply = pb.SampleResponse(items=[pb.SampledItem(sequences=[pb.SampledSequence(tokens=floats)])])

    with pytest.raises(InvalidField, match=r"items\[0\]\.sequences\[0\]\.tokens"):
        codec.sample_answer_from_v1(reply)
