"""Every type survives the wire: encoded, serialised, parsed and decoded it is what it was."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crucible_bridge import codec
from crucible_bridge.codec import sequences
from crucible_bridge.types import (
    Conversation,
    Datum,
    EvaluateRequest,
    ModelInput,
    ParsedResponse,
    SampledSequence,
    ToolCall,
    Turn,
    UnparsedToolCall,
)
from tests.unit.bridge import strategies as some

PAIRS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "array": (some.arrays, codec.array_to_v1, lambda m: codec.array_from_v1(m, "x")),
    "model_input": (some.model_inputs, codec.model_input_to_v1, lambda m: codec.model_input_from_v1(m, "x")),
    "datum": (some.data, codec.datum_to_v1, lambda m: codec.datum_from_v1(m, "x")),
    "conversation": (some.conversations, codec.conversation_to_v1, lambda m: codec.conversation_from_v1(m, "x")),
    "sample": (some.samples, codec.sample_to_v1, lambda m: codec.sample_from_v1(m, "x")),
    "dataset": (some.datasets, codec.dataset_to_v1, lambda m: codec.dataset_from_v1(m, "x")),
    "model_ref": (some.models, codec.model_ref_to_v1, lambda m: codec.model_ref_from_v1(m, "x")),
    "sampling": (some.sampling_params, codec.sampling_params_to_v1, lambda m: codec.sampling_params_from_v1(m, "x")),
    "options": (some.options, lambda v: codec.options_to_v1(v, "x"), lambda m: codec.options_from_v1(m, "x")),
    "spec": (some.specs, codec.evaluator_spec_to_v1, lambda m: codec.evaluator_spec_from_v1(m, "x")),
    "limits": (some.limits, codec.limits_to_v1, lambda m: codec.limits_from_v1(m, "x")),
    "request": (some.requests, codec.evaluate_request_to_v1, codec.evaluate_request_from_v1),
    "plan": (some.plans, codec.evaluation_plan_to_v1, codec.evaluation_plan_from_v1),
    "info": (some.evaluator_infos, codec.evaluator_info_to_v1, lambda m: codec.evaluator_info_from_v1(m, "x")),
    "problem": (some.problems, codec.problem_to_v1, codec.problem_from_v1),
    "metrics": (some.metrics, codec.metrics_to_v1, lambda m: codec.metrics_from_v1(m, "x")),
    "sample_result": (some.sample_results, codec.sample_result_to_v1, lambda m: codec.sample_result_from_v1(m, "x")),
    "evaluator_result": (
        some.evaluator_results,
        codec.evaluator_result_to_v1,
        lambda m: codec.evaluator_result_from_v1(m, "x"),
    ),
    "evaluation": (some.evaluations, codec.evaluation_to_v1, lambda m: codec.evaluation_from_v1(m, "x")),
    "event": (some.events, codec.event_to_v1, codec.event_from_v1),
    "backend_info": (some.backend_infos, codec.backend_info_to_v1, codec.backend_info_from_v1),
    "worker_info": (some.worker_infos, codec.worker_info_to_v1, codec.worker_info_from_v1),
    "drain_report": (some.drain_reports, codec.drain_report_to_v1, codec.drain_report_from_v1),
}


@pytest.mark.parametrize("pair", PAIRS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(values=st.data())
def test_what_is_decoded_equals_what_was_encoded(pair: str, values: st.DataObject):
    """The round trip through bytes is the identity, tensors bit by bit, absent values as None."""
    strategy, to_v1, from_v1 = PAIRS[pair]
    value = values.draw(strategy)

    message = to_v1(value)
    parsed = type(message).FromString(message.SerializeToString())

    assert some.plain(from_v1(parsed)) == some.plain(value)


@settings(max_examples=200, deadline=None)
@given(st.lists(some.events, max_size=4), some.text, some.u64)
def test_journal_records_become_the_events_they_were(events: list[Any], log_id: str, through: int):
    """A page of records decodes to the events with the journal's sequences, whatever their own was."""
    records = [(sequence, codec.event_to_record(event)) for sequence, event in enumerate(events, start=7)]

    message = codec.page_to_v1(records, log_id, through)
    batch = codec.batch_from_v1(type(message).FromString(message.SerializeToString()))

    expected = [dataclasses.replace(event, sequence=sequence) for sequence, event in enumerate(events, start=7)]
    assert [some.plain(event) for event in batch.events] == [some.plain(event) for event in expected]
    assert [codec.event_to_record(event) for event in batch.events] == [record for _, record in records]
    assert [codec.event_from_record(*record) for record in records] == expected
    assert (batch.log_id, batch.through_sequence) == (log_id, through)


def test_a_tensor_on_the_wire_is_not_copied_again():
    """Decoding gives a read-only view of the message's bytes."""
    array = codec.array_from_v1(codec.array_to_v1(np.arange(5.0)), "x")

    assert isinstance(array, np.ndarray)
    assert not array.flags.owndata
    assert not array.flags.writeable


def test_an_integral_option_is_an_int_again():
    """A Struct knows doubles only; what was an int is one, so that a schema's "integer" holds."""
    decoded = codec.options_from_v1(codec.options_to_v1({"k": 3, "x": 0.5, "b": True, "big": 2**53}, "o"), "o")

    assert {key: type(value) for key, value in decoded.items()} == {"k": int, "x": float, "b": bool, "big": int}


def test_a_request_without_limits_has_the_default_ones():
    """An absent message and default values are the same."""
    request = EvaluateRequest(**_minimal())

    assert not codec.evaluate_request_to_v1(request).HasField("limits")
    assert codec.evaluate_request_from_v1(codec.evaluate_request_to_v1(request)) == request


def test_inputs_keep_their_kind():
    """Empty text, a conversation and a datum are told apart."""
    inputs = ["", Conversation(messages=()), Datum(model_input=ModelInput.of([1]), loss_fn_inputs={})]
    kinds = [
        codec.sample_to_v1(codec_sample).WhichOneof("input") for codec_sample in (some.Sample(input=i) for i in inputs)
    ]

    assert kinds == ["text", "conversation", "datum"]


def test_surrogates_in_results_become_replacement_characters():
    """A model's or a data file's broken text never makes a result unsendable."""
    result = some.SampleResult(evaluator="e", sample_id="a\ud800", verdict=some.Verdict.ERROR, output="\udfffb")

    decoded = codec.sample_result_from_v1(codec.sample_result_to_v1(result), "x")

    assert (decoded.sample_id, decoded.output) == ("a\ufffd", "\ufffdb")


def test_surrogates_in_calls_of_tools_become_replacement_characters():
    """Wherever a model's calls are sent: in results, turns, sampled sequences and parsed responses."""
    calls: dict[str, Any] = {
        "tool_calls": (ToolCall(name="f\ud800", arguments='{"a": "\ud800"}', id="\ud800"),),
        "unparsed_tool_calls": (UnparsedToolCall(text="\ud800", error="\ud800"),),
    }
    result = some.SampleResult(evaluator="e", sample_id="a", verdict=some.Verdict.ERROR, **calls)
    sequence = SampledSequence(text="", tokens=(), **calls)
    for sent in (
        codec.sample_result_from_v1(codec.sample_result_to_v1(result), "x"),
        codec.turn_from_v1(codec.turn_to_v1(Turn(role="assistant", text="", **calls)), "x"),
        sequences.sampled_sequence_from_v1(sequences.sampled_sequence_to_v1(sequence), "x"),
        codec.parsed_response_from_v1(codec.parsed_response_to_v1(ParsedResponse(**calls)), "x"),
    ):
        assert sent.tool_calls == (ToolCall(name="f\ufffd", arguments='{"a": "\ufffd"}', id="\ufffd"),)
        assert sent.unparsed_tool_calls == (UnparsedToolCall(text="\ufffd", error="\ufffd"),)


def _minimal() -> dict[str, Any]:
    return {
        "model": some.EmbeddedModel("arithmetic@320"),
        "evaluators": (some.EvaluatorSpec(kind="nll"),),
        "dataset": some.Dataset.of("builtin:arithmetic"),
    }
