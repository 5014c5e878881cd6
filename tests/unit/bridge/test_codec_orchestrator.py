"""The frames of EvaluateWithOrchestratorModel: every type survives the wire, and what is malformed says where."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crucible_bridge import codec
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    AnsweredEnvironment,
    AnsweredGrade,
    ArgmaxQuestion,
    Datum,
    EnvironmentQuestion,
    EpisodeAction,
    Forwarded,
    ForwardQuestion,
    GradeQuestion,
    HeldAccepted,
    HeldEnded,
    HeldStart,
    LikeliestTokens,
    LogprobsQuestion,
    OpenEpisode,
    OrchestratorCall,
    OrchestratorModel,
    Sample,
    SampledSequence,
    SampleQuestion,
    SamplingParams,
    Verdict,
)
from crucible_bridge.v1 import evaluation_pb2, types_pb2
from crucible_bridge.v1 import orchestrator_pb2 as pb
from tests.tables import rows
from tests.unit.bridge import strategies as some

floats = hnp.arrays(st.sampled_from([np.float32, np.float64]), st.integers(0, 4))
tokens_of_sequences = hnp.arrays(st.sampled_from([np.int32, np.int64]), st.integers(0, 4))
token_ids = st.integers(-(2**63), 2**63 - 1)


@st.composite
def sequences(draw: st.DrawFn) -> SampledSequence:
    """A continuation; where it has tokens and log-probabilities, as many."""
    tokens = draw(some.several(token_ids))
    size = len(tokens) if tokens else draw(st.integers(0, 3))
    logprobs = draw(some.optional(st.lists(some.finite, min_size=size, max_size=size).map(tuple)))
    return SampledSequence(
        text=draw(some.text),
        tokens=tokens,
        logprobs=logprobs,
        stop_reason=draw(st.sampled_from(["stop", "length"])),
        token_count=draw(some.optional(st.integers(0, 2**31 - 1))),
    )


samples = st.builds(
    Sample,
    id=some.text,
    input=some.text
    | some.conversations
    | some.model_inputs.map(lambda tokens: Datum(model_input=tokens, loss_fn_inputs={})),
    targets=some.several(some.text),
    choices=some.several(some.text),
    choice_labels=some.several(some.text),
    metadata=st.dictionaries(some.text, some.text, max_size=2),
)
small_ints = st.integers(0, 2**31 - 1)
numbers = st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), some.finite, max_size=3)
grade_questions = st.builds(
    GradeQuestion, grader=some.text, evaluator=some.text, sample=samples, response=some.text, repeat=small_ints
)
openings = st.builds(OpenEpisode, evaluator=some.text, sample=samples, seed=some.u64, rollout=small_ints)
actions = st.builds(
    EpisodeAction,
    turn=small_ints,
    text=some.text,
    tokens=some.several(small_ints),
    stop_reason=st.sampled_from(["stop", "length"]),
)
environment_questions = st.builds(
    EnvironmentQuestion, environment=some.text, episode=some.u64, question=openings | actions
)
grades = st.builds(
    AnsweredGrade,
    verdict=some.optional(st.sampled_from(Verdict)),
    score=some.optional(st.floats(0, 1)),
    reason=some.text,
    extracted=some.text,
    measurements=numbers,
)
steps = st.builds(
    AnsweredEnvironment,
    observation=some.text | some.conversations | some.model_inputs,
    reward=some.finite,
    done=st.booleans(),
    metrics=numbers,
    stop=st.tuples(st.just("\n"), st.just(3)) | st.just(()),
    tags=st.just(()) | st.just(("a", "b")),
)
questions = (
    st.builds(
        SampleQuestion,
        prompt=some.text | some.conversations | some.model_inputs,
        sampling=some.sampling_params,
        num_samples=some.positive,
        plain=st.booleans(),
    )
    | st.builds(LogprobsQuestion, sequence=some.model_inputs)
    | st.builds(ForwardQuestion, data=some.several(some.data))
    | st.builds(ArgmaxQuestion, sequence=some.model_inputs)
    | grade_questions
    | environment_questions
)
answers = (
    some.several(sequences())
    | floats
    | st.builds(Forwarded, st.lists(floats, max_size=3).map(tuple))
    | st.builds(LikeliestTokens, tokens_of_sequences)
    | some.problems
    | grades
    | steps
)
starts = st.builds(
    HeldStart,
    request=st.builds(
        lambda request, name: dataclasses.replace(request, model=OrchestratorModel(name)), some.requests, some.name
    ),
    window=some.positive,
    calls=st.frozensets(st.sampled_from(OrchestratorCall), min_size=1),
)
accepted = st.builds(HeldAccepted, evaluation=some.evaluations, existed=st.booleans(), window=some.positive)
ended = st.builds(HeldEnded, evaluation=some.evaluations, ignored_answers=some.u64)

PAIRS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "start": (starts, codec.start_to_v1, codec.start_from_v1),
    "accepted": (accepted, codec.accepted_to_v1, codec.accepted_from_v1),
    "question": (questions, lambda value: codec.question_to_v1(7, value), codec.question_from_v1),
    "answer": (answers, lambda value: codec.answer_to_v1(7, value), codec.answer_from_v1),
    "ended": (ended, codec.ended_to_v1, codec.ended_from_v1),
}


@pytest.mark.parametrize("pair", PAIRS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(values=st.data())
def test_what_is_decoded_equals_what_was_encoded(pair: str, values: st.DataObject):
    """The round trip through bytes is the identity, numbers bit by bit, absent values as None."""
    strategy, to_v1, from_v1 = PAIRS[pair]
    value = values.draw(strategy)

    message = to_v1(value)
    parsed = type(message).FromString(message.SerializeToString())

    assert some.plain(from_v1(parsed)) == some.plain(value)
    if pair in ("question", "answer"):
        assert parsed.id == 7


INTEGERS = codec.array_to_v1(np.array([1, 2]))
FLOATS = codec.array_to_v1(np.array([0.5, 0.5]))
SQUARE = codec.array_to_v1(np.zeros((2, 2)))
ODD = types_pb2.Tensor(dtype=types_pb2.DTYPE_F64, data=b"123")


def sampled(**fields: Any) -> pb.OrchestratorAnswer:
    """An answer with one continuation."""
    return pb.OrchestratorAnswer(sample=pb.AnsweredSample(sequences=[pb.AnsweredSequence(**fields)]))


@rows(
    ("message", "field"),
    [
        (pb.OrchestratorAnswer(id=1), "answer"),
        (pb.OrchestratorAnswer(logprobs=INTEGERS), "answer.logprobs"),
        (pb.OrchestratorAnswer(logprobs=SQUARE), "answer.logprobs"),
        (pb.OrchestratorAnswer(logprobs=ODD), "answer.logprobs"),
        (pb.OrchestratorAnswer(argmax=FLOATS), "answer.argmax"),
        (pb.OrchestratorAnswer(argmax=ODD), "answer.argmax"),
        (pb.OrchestratorAnswer(forward=pb.AnsweredForward(logprobs=[FLOATS, ODD])), "answer.forward.logprobs[1]"),
        (sampled(stop_reason=""), "answer.sample.sequences[0].stop_reason"),
        (sampled(stop_reason="stop", tokens=FLOATS), "answer.sample.sequences[0].tokens"),
        (sampled(stop_reason="stop", logprobs=INTEGERS), "answer.sample.sequences[0].logprobs"),
        (
            sampled(stop_reason="stop", tokens=INTEGERS, logprobs=codec.array_to_v1(np.zeros(3))),
            "answer.sample.sequences[0].logprobs",
        ),
        (sampled(stop_reason="stop", output_tokens=-1), "answer.sample.sequences[0].output_tokens"),
    ],
)
def test_a_malformed_answer_says_where(message: pb.OrchestratorAnswer, field: str):
    """Whatever is wrong with an answer is an InvalidField with its path."""
    with pytest.raises(InvalidField) as caught:
        codec.answer_from_v1(message)
    assert caught.value.field == field


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=60))
def test_an_answer_of_any_bytes_is_decoded_or_refused(data: bytes):
    """Decoding raises InvalidField, and nothing else, for what protobuf takes for an answer."""
    try:
        message = pb.OrchestratorAnswer.FromString(data)
    except DecodeError:
        return
    refused = ""
    try:
        codec.answer_from_v1(message)
    except InvalidField as error:
        refused = error.field
    assert refused == "" or refused.startswith("answer")


def test_text_that_is_no_utf_8_is_replaced():
    """Model output is bytes: what is none of UTF-8 becomes U+FFFD, and costs nothing else."""
    answer = codec.answer_from_v1(sampled(text=b"a\xff", stop_reason="stop"))
    assert isinstance(answer, tuple)
    assert answer[0].text == "a\N{REPLACEMENT CHARACTER}"


@rows(
    ("change", "field"),
    [
        (lambda start: start.request.model.Clear(), "model"),
        (lambda start: setattr(start.request.model, "embedded", "m"), "model"),
        (lambda start: setattr(start.request.model.orchestrator, "name", ""), "model.orchestrator.name"),
        (lambda start: setattr(start.request.model.orchestrator, "name", "x" * 201), "model.orchestrator.name"),
        (lambda start: setattr(start, "window", 0), "start.window"),
        (lambda start: start.ClearField("calls"), "start.calls"),
        (lambda start: start.calls.append(99), "start.calls[1]"),
    ],
)
def test_a_malformed_start_says_where(change: Callable[[Any], object], field: str):
    """A start without a model that its orchestrator holds, a window or calls is refused at its field."""
    start = evaluation_pb2.OrchestratorStart(
        request=evaluation_pb2.EvaluateRequest(
            model=types_pb2.ModelRef(orchestrator=types_pb2.OrchestratorModel(name="policy")),
            evaluators=[evaluation_pb2.EvaluatorSpec(kind="nll")],
            dataset=evaluation_pb2.Dataset(builtin="arithmetic"),
        ),
        window=4,
        calls=[pb.ORCHESTRATOR_CALL_SAMPLE],
    )
    codec.start_from_v1(start)
    change(start)
    with pytest.raises(InvalidField) as caught:
        codec.start_from_v1(start)
    assert caught.value.field == field


@rows(
    ("message", "field"),
    [
        (pb.OrchestratorQuestion(id=1), "question"),
        (pb.OrchestratorQuestion(sample=pb.SampleQuestion()), "question.sample"),
        (pb.OrchestratorQuestion(sample=pb.SampleQuestion(text="x")), "question.sample.num_samples"),
        (
            pb.OrchestratorQuestion(sample=pb.SampleQuestion(text="x", num_samples=1)),
            "question.sample.sampling.max_tokens",
        ),
    ],
)
def test_a_malformed_question_says_where(message: pb.OrchestratorQuestion, field: str):
    """A question that asks nothing, or not enough, is refused at its field."""
    with pytest.raises(InvalidField) as caught:
        codec.question_from_v1(message)
    assert caught.value.field == field


def test_what_cannot_be_sent_is_refused_here():
    """A question that no message can hold is the sender's InvalidField."""
    question = SampleQuestion(prompt="x", sampling=SamplingParams(max_tokens=2**40))
    with pytest.raises(InvalidField):
        codec.question_to_v1(1, question)


def test_a_token_that_no_width_holds_cannot_be_sent():
    """An answer of a model that counts beyond 64 bits is an error of its field, like any other that does not fit."""
    with pytest.raises(InvalidField):
        codec.answer_to_v1(1, (SampledSequence(text="x", tokens=(2**70,)),))
