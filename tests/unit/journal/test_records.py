"""Records of the journal: what is packed comes back equal, bit for bit."""

import dataclasses

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.client import request_of
from crucible_bridge.types import (
    EvaluatorResult,
    EvaluatorSpec,
    InlineDataset,
    Metrics,
    Problem,
    SampleResult,
    ServerEngine,
    ToolCall,
    UnparsedToolCall,
    Usage,
    Verdict,
)
from crucible_worker.journal.contents import reply_to_record, with_reply
from crucible_worker.journal.records import (
    MAX_ROW_BYTES,
    Ended,
    apart_to_record,
    evaluator_result_from_record,
    evaluator_result_to_record,
    pack,
    reply_of_usage,
    request_from_record,
    request_to_record,
    result_from_record,
    result_to_record,
    sample_from_record,
    sample_to_record,
    usage_to_record,
)
from tests.tables import rows
from tests.unit.bridge.strategies import (
    engines,
    evaluator_results,
    metrics,
    optional,
    plain,
    problems,
    sample_results,
    several,
    usages,
)
from tests.unit.bridge.strategies import requests as any_requests


@given(any_requests)
def test_requests(request):
    """A request comes back as it was; an inline data set comes back empty, as its samples are not kept."""
    kept = request
    if isinstance(request.dataset.source, InlineDataset):
        kept = dataclasses.replace(request, dataset=dataclasses.replace(request.dataset, source=InlineDataset(())))
    assert plain(request_from_record(request_to_record(request), apart_to_record(request))) == plain(kept)


def large(size=10 * MAX_ROW_BYTES):
    """A request of three evaluators, two of them with large options, and large labels."""
    options = [{"text": "x" * size}, {"choices": ["y" * size, {"z": 1}]}, {"grader": "numeric"}]
    specs = [EvaluatorSpec(kind="accuracy", name=str(index), options=each) for index, each in enumerate(options)]
    labels = {f"label {index}": "v" * 500 for index in range(20)}
    return request_of(model="embedded:m", evaluators=specs, dataset=[], labels=labels, models={"grader": "local:a"})


def test_what_is_large_is_kept_apart():
    """A request's row has small options as they are and digests of large ones; with the rest it is whole again."""
    request = large()
    record, apart = request_to_record(request), apart_to_record(request)
    assert len(record) < 4 * MAX_ROW_BYTES
    assert request_from_record(record, apart) == request
    alone = request_from_record(record)
    assert alone.evaluators[2] == request.evaluators[2]
    assert alone.evaluators[0].options != alone.evaluators[1].options
    assert apart_to_record(alone) is None
    assert request_to_record(alone) == record


def test_results_have_the_options_of_their_request():
    """What an evaluation ended with repeats no large options, and has them when it is read."""
    request = large()
    results = [EvaluatorResult(evaluator=spec, metrics=Metrics({})) for spec in request.evaluators]
    record = result_to_record(Ended(metrics=Metrics({}), results=tuple(results)))
    assert len(record) < 4 * MAX_ROW_BYTES
    assert result_from_record(record, apart_to_record(request)).results == tuple(results)


def test_what_is_small_stays_in_the_row():
    """Nothing is kept apart of a request as they usually are."""
    request = dataclasses.replace(large(10), labels={"a": "b"}, models={})
    assert apart_to_record(request) is None
    assert request_from_record(request_to_record(request)) == request


@given(sample_results)
def test_samples(sample):
    """A result comes back as it was, with the columns that stand beside its record."""
    usage = usage_to_record(sample.usage)
    found = sample_from_record(sample.evaluator, sample.verdict.value, sample_to_record(sample), usage)
    if sample.usage and sample.output_tokens == 0 and sample.usage.calls and sample.usage.output_tokens is None:
        sample = dataclasses.replace(sample, output_tokens=None)  # no release records that now: a server reported none
    assert plain(found) == plain(sample)


ends = st.builds(
    Ended,
    metrics=metrics,
    results=several(evaluator_results),
    problem=optional(problems),
    usage=optional(usages),
    engine=optional(engines),
)


@given(ends)
def test_results(ended):
    """What an evaluation ended with comes back as it was."""
    assert plain(result_from_record(result_to_record(ended))) == plain(ended)


def test_earlier_releases_read_the_engine_that_they_know():
    """They accept three fields; what was added since lies apart, and a record without it is read."""
    engine = ServerEngine(
        name="vllm",
        requested_name="m",
        served_names=("big", "m"),
        listed_names=("big",),
        sampling_defaults="sent",
        probe_prompt_tokens=9,
        stop_strings="applied",
        probe_problem=Problem(reason="BACKEND_TIMEOUT", message="late", retryable=True),
    )
    record = result_to_record(Ended(metrics=Metrics({}), engine=engine))
    assert result_from_record(record).engine == engine
    data = msgpack.unpackb(record)
    assert data["engine"] == {"name": "vllm", "version": "", "fingerprint": ""}
    del data["served"]
    assert result_from_record(pack(data)).engine == ServerEngine(name="vllm")


def test_records_of_releases_before_have_no_usage():
    """A record without usage is read, and what it took is not known, which is not 0."""
    spec = EvaluatorSpec(kind="accuracy")
    sample = SampleResult(evaluator="accuracy", sample_id="s", verdict=Verdict.CORRECT, usage=Usage(calls=1))
    result = EvaluatorResult(evaluator=spec, metrics=Metrics({}), usage=Usage(calls=1))
    ended = Ended(metrics=Metrics({}), results=(result,), usage=Usage(calls=1), engine=ServerEngine(name="vllm"))

    assert sample_from_record("accuracy", "correct", sample_to_record(sample)).usage is None
    assert evaluator_result_from_record(spec, evaluator_result_to_record(result)).usage is None
    data = msgpack.unpackb(result_to_record(ended))
    for name in ("usage", "usages", "engine"):
        del data[name]
    read = result_from_record(pack(data))
    assert (read.usage, read.results[0].usage, read.engine) == (None, None, None)


@rows(
    ("output", "reasoning", "refusal", "calls", "unparsed"),
    [
        ("46", "", "", (), ()),
        ("<think>12+34</think>46", "12+34", "", (), ()),
        ("12+34 is 46", "12+34 is 46", "", (), ()),
        ("46", "12+34", "no", (ToolCall(name="add", arguments="{}", id="c"), ToolCall(name="", arguments="[")), ()),
        ("46", "", "", (ToolCall(name="add"),), (UnparsedToolCall(text="{", error="is not JSON"),)),
        ("46", "", "", (), (UnparsedToolCall(text="{", error="is not JSON"),)),
    ],
)
def test_what_an_answer_has_besides_its_text_is_recorded(output, reasoning, refusal, calls, unparsed):
    """With the usage, where earlier releases do not look; reasoning of the output is not stored a second time."""
    usage = Usage(calls=1, prompt_tokens=2, output_tokens=3)
    sample = SampleResult(
        evaluator="accuracy",
        sample_id="s",
        verdict=Verdict.CORRECT,
        score=1.0,
        output=output,
        reasoning=reasoning,
        refusal=refusal,
        tool_calls=calls,
        unparsed_tool_calls=unparsed,
    )

    record = usage_to_record(usage, reply_to_record(sample, ()))
    bare = sample_from_record(sample.evaluator, sample.verdict.value, sample_to_record(sample), record)
    found, _ = with_reply(bare, reply_of_usage(record))

    assert found == dataclasses.replace(sample, usage=usage)
    assert bare.reasoning == bare.refusal == ""
