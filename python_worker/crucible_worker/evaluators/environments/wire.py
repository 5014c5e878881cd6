"""What the worker and a process of environments say to each other: maps in msgpack, in frames.

They hold nothing but data. The process runs foreign code, so what it says is checked as it becomes types of the
vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from crucible_bridge.arrays import from_tensor, to_tensor
from crucible_bridge.errors import BridgeError, InvalidField
from crucible_bridge.types import (
    Array,
    ChatMessage,
    Conversation,
    Datum,
    Dtype,
    ImageAssetChunk,
    ImageChunk,
    ModelInput,
    Sample,
    SampledSequence,
    Tensor,
    TokensChunk,
    Transition,
    message_from_json,
    message_to_json,
)
from crucible_worker.children.messages import error_from_map, pack_text, unpack
from crucible_worker.evaluators.answering import Answer
from crucible_worker.evaluators.base import Outcome
from crucible_worker.evaluators.environments.episode import SentObservation
from crucible_worker.evaluators.environments.group import FailurePolicy, GroupState

__all__ = [
    "MAX_FRAME_BYTES",
    "course_from_map",
    "course_to_map",
    "error_from_foreign_map",
    "observation_from_map",
    "observation_to_map",
    "order",
    "outcome_from_map",
    "outcome_to_map",
    "pack",
    "received",
    "stops_from",
    "stops_of",
]

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""Bytes of one message of a process: an observation, or a group's result."""

_DTYPES = ("<i4", "<i8", "<f4")
_CHUNKS = {kind.__name__: kind for kind in (TokensChunk, ImageChunk, ImageAssetChunk)}
_T = TypeVar("_T")


def order(message: Mapping[str, Any]) -> bytes:
    """A frame of the worker: of its values, `_WORKERS` have types of the vocabulary."""
    return pack_text({name: _as(0, name, value) for name, value in message.items()})


def received(body: bytes) -> dict[str, Any]:
    """The message that `order` was given, in a process that the worker has started."""
    return {name: _as(1, name, value) for name, value in unpack(body).items()}


def _as(way: int, name: str, value: Any) -> Any:
    return value if value is None or name not in _WORKERS else _WORKERS[name][way](value)


def pack(message: Mapping[str, Any]) -> bytes:
    """A frame of a process; text may contain invalid Unicode.

    Raises:
        TooLong: it would be longer than `MAX_FRAME_BYTES`.
    """
    return pack_text(message, MAX_FRAME_BYTES)


def observation_to_map(shown: SentObservation) -> dict[str, Any]:
    """An observation.

    Raises:
        TypeError: a message is not text, or an input has a wrong chunk.
    """
    if isinstance(shown, str):
        return {"text": str(shown)}
    if isinstance(shown, ModelInput):
        fields = {"chunks": [_chunk_to_list(chunk) for chunk in shown.chunks]}
        observation_from_map(fields)
        return fields
    return {"messages": [_message_to_map(message) for message in shown.messages]}


def observation_from_map(fields: Mapping[str, Any]) -> SentObservation:
    """What `observation_to_map` converted; raises ValueError, TypeError or LookupError if it is invalid."""
    if "text" in fields:
        return _text(fields["text"])
    if "chunks" in fields:
        return _input_from_map(fields)
    try:
        return Conversation(tuple(map(message_from_json, fields["messages"])))
    except InvalidField as error:
        raise TypeError(f"a message is none: {error}") from error


def _message_to_map(message: ChatMessage) -> dict[str, Any]:
    role, content = _text(message.role), _text(message.content)
    if getattr(message, "is_pair", True):  # an environment may show messages of another class
        return {"role": role, "content": content}
    return message_to_json(message)


def _input_from_map(fields: Mapping[str, Any]) -> ModelInput:
    return ModelInput(tuple(_chunk_from_list(*chunk) for chunk in fields["chunks"]))


def course_to_map(course: GroupState) -> dict[str, Any]:
    """The state of a group."""
    return _fields_of(course)


def course_from_map(fields: Mapping[str, Any]) -> GroupState:
    """The state that `course_to_map` converted; raises ValueError or TypeError if it is invalid."""
    return _converted(fields, GroupState)


def outcome_to_map(outcome: Outcome) -> dict[str, Any]:
    """The outcome of a sample."""
    return _fields_of(outcome)


def outcome_from_map(fields: Mapping[str, Any]) -> Outcome:
    """The outcome that `outcome_to_map` converted; raises ValueError or TypeError if it is invalid."""
    outcome = _converted(fields, Outcome)
    if outcome.verdict.scored is (outcome.score is None) or outcome.verdict.scored is (outcome.group is None):
        raise ValueError("a verdict without what it needs")
    for trajectory in () if outcome.group is None else outcome.group.trajectories:
        for turn in trajectory.transitions:
            _check_arrays(turn)
    return outcome


def error_from_foreign_map(fields: Mapping[str, Any]) -> BridgeError:
    """The error that a process has packed like the worker; raises TypeError or LookupError if it is invalid."""
    texts = {name: _text(fields[name]) for name in ("kind", "message", "field", "reason")}
    return error_from_map({**texts, "retryable": bool(fields["retryable"])})


def stops_of(stop: Sequence[str | int]) -> list[str | int]:
    """A stop condition in a form that can be sent."""
    return [str(each) if isinstance(each, str) else int(each) for each in stop]


def stops_from(stop: Sequence[Any]) -> list[str | int]:
    """The stop condition that `stops_of` converted; raises TypeError if it is invalid."""
    if any(type(each) not in (str, int) for each in stop):
        raise TypeError("a stop that is neither a text nor a token")
    return list(stop)


def _sample_to_map(sample: Sample) -> dict[str, Any]:
    asked = sample.input
    if isinstance(asked, Datum):
        arrays = {name: _fields_of(to_tensor(array)) for name, array in asked.loss_fn_inputs.items()}
        shown = {"model_input": observation_to_map(asked.model_input), "loss_fn_inputs": arrays}
    else:
        shown = observation_to_map(asked)
    return {**_fields_of(dataclasses.replace(sample, input="")), "input": shown}


def _sample_from_map(fields: Mapping[str, Any]) -> Sample:
    shown = fields["input"]
    if "model_input" not in shown:
        asked = observation_from_map(shown)
    else:
        arrays = {name: _any_array(name, **tensor) for name, tensor in shown["loss_fn_inputs"].items()}
        asked = Datum(model_input=_input_from_map(shown["model_input"]), loss_fn_inputs=arrays)
    rest = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    return Sample(**{**rest, "input": asked})


def _any_array(name: str, *, dtype: str, shape: Sequence[int], data: bytes) -> Array:
    return from_tensor(Tensor(dtype=Dtype(dtype), shape=tuple(shape), data=data), name)


def _answer_to_map(answer: Answer) -> dict[str, Any]:
    prompt = None if answer.prompt is None else observation_to_map(answer.prompt)
    return {**_fields_of(dataclasses.replace(answer, prompt=None)), "prompt": prompt}


def _answer_from_map(fields: Mapping[str, Any]) -> Answer:
    prompt = None if fields["prompt"] is None else _input_from_map(fields["prompt"])
    return Answer(**{**fields, "prompt": prompt, "sequence": msgspec.convert(fields["sequence"], SampledSequence)})


def _chunk_to_list(chunk: Any) -> list[Any]:
    kind = type(chunk).__name__
    if kind not in _CHUNKS:
        raise TypeError(f"an input with a {kind}")
    if isinstance(chunk, TokensChunk):
        tokens = np.asarray(chunk.tokens)
        chunk = TokensChunk(tokens=tokens.astype(_DTYPES[tokens.dtype.itemsize > 4], copy=False))
    return [kind, _fields_of(chunk)]


def _chunk_from_list(kind: str, fields: Any) -> TokensChunk | ImageChunk | ImageAssetChunk:
    chunk = _converted(fields, _CHUNKS[kind])
    if isinstance(chunk, TokensChunk) and chunk.tokens.dtype.kind != "i":
        raise TypeError("tokens that are not whole numbers")
    return chunk


def _fields_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass, and of those in it: plain values, and bytes for arrays."""
    return msgspec.to_builtins(value, enc_hook=_plain, builtin_types=(bytes, memoryview))


def _plain(value: Any) -> Any:
    match value:
        case np.ndarray():
            dtype = _DTYPES[2 if value.dtype.kind == "f" else value.dtype.itemsize > 4]
            return [dtype, value.astype(dtype, copy=False).tobytes()]
        case np.generic():
            return value.item()
        case str():
            return str(value)
        case Mapping():
            return dict(value)
        case float() | int():
            return (float if isinstance(value, float) else int)(value)
    raise TypeError(f"an input with a {type(value).__name__}")


def _converted(fields: Any, kind: type[_T]) -> _T:
    """A value of a type; its numbers are finite, and its counts from 0."""
    _check_numbers(fields)
    try:
        return msgspec.convert(fields, kind, dec_hook=_array)
    except msgspec.ValidationError as error:
        raise TypeError(str(error)) from error


def _check_numbers(fields: Any) -> None:
    waiting = [fields]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value
        elif isinstance(value, int | float) and not (math.isfinite(value) and (value >= 0 or isinstance(value, float))):
            raise ValueError(f"the number {value}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} where text should be")
    return str(value)


def _array(kind: type, fields: Any) -> Any:
    dtype, data = fields
    if kind is not np.ndarray or dtype not in _DTYPES:
        raise TypeError(f"an array of {dtype!r:.20}")
    return np.frombuffer(data, dtype)


def _check_arrays(turn: Transition) -> None:
    for array, dtype, length in (
        (turn.observation, np.int32, turn.observation_tokens),
        (turn.action, np.int32, turn.action_tokens),
        (turn.action_logprobs, np.float32, turn.action_tokens),
    ):
        if array is not None and (array.dtype != dtype or array.size != length):
            raise ValueError("an array of another length or type than declared")


_WORKERS: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sample": (_sample_to_map, _sample_from_map),
    "options": (json.dumps, json.loads),  # integers of JSON have no bound, those of msgpack 64 bits
    "tolerance": (_fields_of, functools.partial(_converted, kind=FailurePolicy)),
    "course": (course_to_map, course_from_map),
    "answer": (_answer_to_map, _answer_from_map),
}
"""Of the worker's values those that are more than plain data, how they become that, and how they become themselves."""
