"""The frames of EvaluateWithOrchestratorModel <-> v1."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from crucible_bridge.codec.bulk import vector_from_v1
from crucible_bridge.codec.caller_questions import (
    environment_answer_from_v1,
    environment_answer_to_v1,
)
from crucible_bridge.codec.enums import ORCHESTRATOR_CALL_PAIR
from crucible_bridge.codec.evaluation import evaluate_request_from_v1, evaluate_request_to_v1
from crucible_bridge.codec.fields import (
    at_least,
    at_most_bytes,
    at_most_count,
    child,
    one_of,
    sendable,
)
from crucible_bridge.codec.generated import (
    answered_grade_from_v1,
    answered_grade_to_v1,
    held_accepted_from_v1,
    held_accepted_to_v1,
    held_ended_from_v1,
    held_ended_to_v1,
    orchestrator_question_from_v1,
    orchestrator_question_to_v1,
)
from crucible_bridge.codec.results import problem_from_v1, problem_to_v1
from crucible_bridge.codec.tensors import array_to_v1
from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.types import (
    Answer,
    AnsweredEnvironment,
    AnsweredGrade,
    Forwarded,
    HeldAccepted,
    HeldEnded,
    HeldStart,
    LikeliestTokens,
    OrchestratorModel,
    Problem,
    Question,
    SampledSequence,
    bounds,
)
from crucible_bridge.v1 import evaluation_pb2, types_pb2
from crucible_bridge.v1 import orchestrator_pb2 as pb

__all__ = [
    "STOP_REASONS",
    "accepted_from_v1",
    "accepted_to_v1",
    "answer_from_v1",
    "answer_to_v1",
    "caller_names",
    "ended_from_v1",
    "ended_to_v1",
    "question_from_v1",
    "question_to_v1",
    "start_from_v1",
    "start_to_v1",
]

STOP_REASONS = bounds.ANSWERED_SEQUENCE_STOP_REASON_ONE_OF
"""Reasons for which a continuation can end."""

_NAME = re.compile(r"[\w./-]++", re.ASCII)


def start_to_v1(start: HeldStart) -> evaluation_pb2.OrchestratorStart:
    """Encode the first frame of an orchestrator.

    Raises:
        InvalidField: a value cannot be sent.
    """
    request = evaluate_request_to_v1(start.request)
    with sendable("start"):
        calls = sorted(ORCHESTRATOR_CALL_PAIR.to_v1(call) for call in start.calls)
        return evaluation_pb2.OrchestratorStart(
            request=request,
            window=start.window,
            calls=calls,
            graders=start.graders,
            environments=start.environments,
        )


def start_from_v1(message: evaluation_pb2.OrchestratorStart) -> HeldStart:
    """Decode the first frame of an orchestrator; paths begin at the fields of the evaluation's request.

    Raises:
        InvalidField: a field is missing or wrong, or the caller holds nothing.
    """
    request = evaluate_request_from_v1(message.request)
    held = isinstance(request.model, OrchestratorModel)
    if not held and not message.graders and not message.environments:
        kind = type(request.model).__name__
        raise InvalidField(
            "model", f"is a {kind}: this call needs an OrchestratorModel, or graders or environments of the caller"
        )
    at_least(message.window, 1, "start.window")
    if held and not message.calls:
        raise InvalidField("start.calls", "is empty, at least one is needed")
    if message.calls and not held:
        kind = type(request.model).__name__
        raise InvalidField("start.calls", f"is for an OrchestratorModel, and the model is a {kind}: leave it empty")
    calls = frozenset(ORCHESTRATOR_CALL_PAIR.all_from_v1(message.calls, "start.calls"))
    most, size = bounds.ORCHESTRATOR_START_GRADERS_MAX_COUNT, bounds.ORCHESTRATOR_START_GRADERS_MAX_BYTES
    graders = caller_names(message.graders, most, size, "start.graders")
    most, size = bounds.ORCHESTRATOR_START_ENVIRONMENTS_MAX_COUNT, bounds.ORCHESTRATOR_START_ENVIRONMENTS_MAX_BYTES
    environments = caller_names(message.environments, most, size, "start.environments")
    return HeldStart(request=request, window=message.window, calls=calls, graders=graders, environments=environments)


def caller_names(names: Iterable[str], most: int, size: int, field: str) -> tuple[str, ...]:
    """Names of graders or environments of a caller.

    Raises:
        InvalidField: one is no name, occurs twice, or they are too many.
    """
    found = tuple(names)
    at_most_count(found, most, field)
    for index, name in enumerate(found):
        path = f"{field}[{index}]"
        at_most_bytes(name, size, path)
        if not _NAME.fullmatch(name):
            message = f"is {clipped(name)}, must be letters, digits, and _ . - /"
            raise InvalidField(path, message)
        if name in found[:index]:
            raise InvalidField(path, f"is {clipped(name)}, which is given twice")
    return found


accepted_to_v1, ended_to_v1 = held_accepted_to_v1, held_ended_to_v1


def accepted_from_v1(message: evaluation_pb2.OrchestratorAccepted) -> HeldAccepted:
    """Decode the frame that says that an evaluation runs."""
    return held_accepted_from_v1(message, "accepted")


def ended_from_v1(message: evaluation_pb2.OrchestratorEnded) -> HeldEnded:
    """Decode the frame with an ended evaluation."""
    return held_ended_from_v1(message, "ended")


def question_to_v1(number: int, question: Question) -> pb.OrchestratorQuestion:
    """Encode a question, with its id.

    Raises:
        InvalidField: a value cannot be sent.
    """
    with sendable("question"):
        message = orchestrator_question_to_v1(question)
        message.id = number
        return message


def question_from_v1(message: pb.OrchestratorQuestion) -> Question:
    """Decode a question.

    Raises:
        InvalidField: it has no question, or something in it is wrong.
    """
    return orchestrator_question_from_v1(message, "question")


def answer_to_v1(number: int, answer: Answer) -> pb.OrchestratorAnswer:
    """Encode the model's answer to the question of this id.

    Raises:
        InvalidField: a value cannot be sent.
    """
    with sendable("answer"):
        match answer:
            case Problem():
                return pb.OrchestratorAnswer(id=number, problem=problem_to_v1(answer))
            case np.ndarray():
                return pb.OrchestratorAnswer(id=number, logprobs=array_to_v1(answer))
            case Forwarded(logprobs):
                return pb.OrchestratorAnswer(id=number, forward=pb.AnsweredForward(logprobs=map(array_to_v1, logprobs)))
            case LikeliestTokens(tokens):
                return pb.OrchestratorAnswer(id=number, argmax=array_to_v1(tokens))
            case AnsweredGrade():
                return pb.OrchestratorAnswer(id=number, grade=answered_grade_to_v1(answer))
            case AnsweredEnvironment():
                return pb.OrchestratorAnswer(id=number, environment=environment_answer_to_v1(answer))
            case _:
                sample = pb.AnsweredSample(sequences=map(_sequence_to_v1, answer))
                return pb.OrchestratorAnswer(id=number, sample=sample)


def answer_from_v1(message: pb.OrchestratorAnswer) -> Answer:
    """Decode the model's answer; arrays are views of the message's bytes.

    Raises:
        InvalidField: it has no answer, or the answer is malformed.
    """
    match message.WhichOneof("answer"):
        case "sample":
            return tuple(
                _sequence_from_v1(sequence, f"answer.sample.sequences[{index}]")
                for index, sequence in enumerate(message.sample.sequences)
            )
        case "logprobs":
            return _floats_from_v1(message.logprobs, "answer.logprobs")
        case "forward":
            arrays = (
                _floats_from_v1(array, f"answer.forward.logprobs[{index}]")
                for index, array in enumerate(message.forward.logprobs)
            )
            return Forwarded(tuple(arrays))
        case "argmax":
            return LikeliestTokens(_token_ids_from_v1(message.argmax, "answer.argmax"))
        case "grade":
            return answered_grade_from_v1(message.grade, "answer.grade")
        case "environment":
            return environment_answer_from_v1(message.environment, "answer.environment")
        case "problem":
            return problem_from_v1(message.problem)
        case _:
            raise InvalidField("answer", "holds none")


def _sequence_to_v1(sequence: SampledSequence) -> pb.AnsweredSequence:
    logprobs = None if sequence.logprobs is None else array_to_v1(np.array(sequence.logprobs, np.float64))
    tokens = array_to_v1(np.array(sequence.tokens, np.int64)) if sequence.tokens else None
    return pb.AnsweredSequence(
        text=sequence.text.encode("utf-8", "surrogatepass"),
        tokens=tokens,
        logprobs=logprobs,
        stop_reason=sequence.stop_reason,
        output_tokens=sequence.token_count,
        prompt_tokens=sequence.prompt_tokens,
        cached_prompt_tokens=sequence.cached_prompt_tokens,
        reasoning_tokens=sequence.reasoning_tokens,
    )


def _sequence_from_v1(message: pb.AnsweredSequence, field: str) -> SampledSequence:
    tokens: tuple[int, ...] = ()
    if message.HasField("tokens"):
        tokens = tuple(_token_ids_from_v1(message.tokens, child(field, "tokens")).tolist())
    logprobs = None
    if message.HasField("logprobs"):
        logprobs = tuple(_floats_from_v1(message.logprobs, child(field, "logprobs")).tolist())
        if tokens and len(logprobs) != len(tokens):
            raise InvalidField(child(field, "logprobs"), f"has {len(logprobs):,} values for {len(tokens):,} tokens")
    one_of(message.stop_reason, STOP_REASONS, child(field, "stop_reason"))
    return SampledSequence(
        text=message.text.decode(errors="replace"),
        tokens=tokens,
        logprobs=logprobs,
        stop_reason=message.stop_reason,
        token_count=_count(message, "output_tokens", field),
        prompt_tokens=_count(message, "prompt_tokens", field),
        cached_prompt_tokens=_count(message, "cached_prompt_tokens", field),
        reasoning_tokens=_count(message, "reasoning_tokens", field),
    )


def _count(message: pb.AnsweredSequence, name: str, field: str) -> int | None:
    """A number of tokens; None if it is not given."""
    if not message.HasField(name):
        return None
    count: int = getattr(message, name)
    at_least(count, 0, child(field, name))
    return count


def _token_ids_from_v1(message: types_pb2.Tensor, field: str) -> np.ndarray:
    array = vector_from_v1(message, field)
    if array.dtype.name not in ("int32", "int64"):
        raise InvalidField(field, f"holds {array.dtype}, not token ids")
    return array


def _floats_from_v1(message: types_pb2.Tensor, field: str) -> np.ndarray:
    array = vector_from_v1(message, field)
    if array.dtype.kind != "f":
        raise InvalidField(field, f"holds {array.dtype}, not log-probabilities")
    return array
