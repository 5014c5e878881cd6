"""Parameters of tools in the forms of a training loop: arrays over tokens, and groups of trajectories."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from crucible_bridge.arrays import to_tensor
from crucible_bridge.codec.bulk import PLAIN_DTYPES, Encoder
from crucible_bridge.codec.fields import child, entry
from crucible_bridge.codec.metrics import trajectory_metrics_request_to_bytes
from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Array, Tensor, TrajectoryBatch, TrajectoryMetricsRequest
from crucible_bridge.v1 import metrics_pb2, types_pb2
from crucible_worker.snakepit.arguments import (
    NON_FINITE,
    Arguments,
    read_integer,
    read_number,
    read_numbers,
    read_text,
    wrong_type,
)
from crucible_worker.snakepit.parameters import fields_reader, fill, take_fields
from crucible_worker.snakepit.results import Output, to_json

__all__ = [
    "GROUP_NAMES",
    "LENGTHS",
    "TRAJECTORY_NAMES",
    "TRANSITION_NAMES",
    "columns_reader",
    "read_trajectories",
    "write_penalty",
]

# Parameters of metrics over tokens: arrays by name, one sequence or many, without a Datum around them.
#
# An array of one sequence is a list of numbers, arrays of many are a list of lists, or one array with two dimensions,
# or one with separate `lengths`. They become the columns of a request, written with one copy of their bytes.

LENGTHS = "lengths"
"""The parameter with the length of each sequence, for arrays that are stored end to end."""

_LENGTHS, _VALUES = types_pb2.Columns.LENGTHS_FIELD_NUMBER, types_pb2.Columns.VALUES_FIELD_NUMBER
_WHOLE = ("data", "columns")
"""Parameters that make the tool read the request in the protos' form."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _SequenceColumn:
    """An array of all sequences."""

    name: str
    """The caller's name for it."""
    parts: Sequence[Array]
    """Its values, end to end."""
    lengths: np.ndarray | None
    """Values of each sequence; None if the array does not show it."""


def columns_reader(
    request: Any, columns: Mapping[str, tuple[str, ...]], *, names: Mapping[str, tuple[str, ...]] | None = None
) -> Callable[[Arguments], Any]:
    """A function that reads arrays by name into a request's columns; with `data` or `columns`, the request's fields.

    Args:
        request: the message.
        columns: by the name of a column, other names for it.
        names: other names for the request's further fields.
    """
    whole = fields_reader(request, names=names)
    scalars = [field for field in request.DESCRIPTOR.fields if field.message_type is None]

    def read(arguments: Arguments) -> Any:
        if any(name in arguments.values for name in _WHOLE):
            return whole(arguments)
        found = {key: _column(arguments, (key, *others)) for key, others in columns.items()}
        lengths = _lengths(arguments, list(found.values()))
        arguments.renamed |= {entry("columns.values", key): column.name for key, column in found.items()}
        arguments.renamed[f"columns.{LENGTHS}"] = LENGTHS
        inner, outer = Encoder(), Encoder()
        inner.add_tensors(_LENGTHS, [lengths])
        for key, column in found.items():
            _add(inner, key, column)
        outer.add_encoded(request.COLUMNS_FIELD_NUMBER, inner)
        rest = request()
        fill(rest, take_fields(arguments, scalars, names or {}), "", arguments)
        return outer.joined(rest)

    return read


def _column(arguments: Arguments, names: Sequence[str]) -> _SequenceColumn:
    given = [name for name in names if name in arguments.values]
    described = [name for name in names if name in arguments.tensors]
    if len(given) + len(described) > 1:
        raise InvalidField((given + described)[1], f"is given with {(given + described)[0]}, which is the same")
    if not given and not described:
        raise InvalidField(names[0], "is not given")
    name = (given or described)[0]
    value = arguments.take(name) if given else name
    if isinstance(value, list | tuple) and value and not _is_number(arguments, value[0]):
        return _rows(arguments, name, value)
    array = arguments.array(value, name, name)
    match array.shape:
        case (_,):
            return _SequenceColumn(name=name, parts=[array], lengths=None)
        case (count, length):
            # Checked here already: rows without a value take no bytes, so their number is not limited by the message.
            if (limit := arguments.max_sequences) is not None and count > limit:
                raise InvalidField(name, f"has {count:,} sequences, at most {limit:,} are accepted")
            return _SequenceColumn(name=name, parts=[_flat(array)], lengths=np.full(count, length))
        case _:
            raise InvalidField(name, f"has shape {list(array.shape)}, one or two dimensions are needed")


def _is_number(arguments: Arguments, value: Any) -> bool:
    """Whether a list that begins with this value has numbers; "NaN" may also be the name of an array."""
    if isinstance(value, str):
        return value in NON_FINITE and value not in arguments.tensors
    return isinstance(value, int | float)


def _rows(arguments: Arguments, name: str, rows: Sequence[Any]) -> _SequenceColumn:
    """An array for each sequence."""
    if all(isinstance(row, list | tuple) for row in rows):
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        values = list(itertools.chain.from_iterable(rows))
        if all(isinstance(value, int | float) for value in values):
            return _SequenceColumn(name=name, parts=[read_numbers(values, name)], lengths=lengths)
    parts = [arguments.array(row, f"{name}[{index}]", f"{name}[{index}]") for index, row in enumerate(rows)]
    for index, part in enumerate(parts):
        if len(part.shape) != 1:
            raise InvalidField(f"{name}[{index}]", f"has shape {list(part.shape)}, one dimension is needed")
    return _SequenceColumn(name=name, parts=parts, lengths=np.array([part.shape[0] for part in parts], np.int64))


def _flat(array: Array) -> Array:
    if isinstance(array, np.ndarray):
        return array.reshape(-1)
    return Tensor(dtype=array.dtype, shape=(array.shape[0] * array.shape[1],), data=array.data)


def _lengths(arguments: Arguments, columns: Sequence[_SequenceColumn]) -> np.ndarray:
    """Values of each sequence, which all columns must agree on."""
    asked = arguments.take(LENGTHS)
    if asked is None and LENGTHS in arguments.tensors:
        asked = LENGTHS
    known = [column for column in columns if column.lengths is not None]
    arguments.noted["nested"] = bool(known)
    if asked is not None:
        lengths = arguments.array(asked, LENGTHS, LENGTHS)
        if not isinstance(lengths, np.ndarray) or lengths.ndim != 1 or lengths.dtype.kind not in "iu":
            raise InvalidField(LENGTHS, "is not a list of integers")
        first = LENGTHS
    elif known:
        lengths, first = known[0].lengths, known[0].name
        assert lengths is not None
    else:
        lengths, first = np.array([sum(part.shape[0] for part in columns[0].parts)]), columns[0].name
    for column in known:
        assert column.lengths is not None
        if len(column.lengths) != len(lengths):
            raise InvalidField(column.name, f"has {len(column.lengths):,} sequences, {first} has {len(lengths):,}")
        if (wrong := np.flatnonzero(column.lengths != lengths)).size:
            at = int(wrong[0])
            raise InvalidField(f"{column.name}[{at}]", f"has {column.lengths[at]:,} values, {first} {lengths[at]:,}")
    lengths = lengths.astype(np.int64)
    arguments.noted[LENGTHS] = lengths
    return lengths


def _add(pieces: Encoder, key: str, column: _SequenceColumn) -> None:
    parts = column.parts
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts) and {part.dtype for part in arrays} <= PLAIN_DTYPES:
        if len({part.dtype for part in arrays}) == 1:
            return pieces.add_column(_VALUES, key, [np.ascontiguousarray(part) for part in arrays])
        return pieces.add_entry(_VALUES, key, np.concatenate(arrays))
    tensors = [to_tensor(part) for part in parts]
    if len({tensor.dtype for tensor in tensors}) > 1:
        raise InvalidField(column.name, "mixes element types")
    size = sum(tensor.shape[0] for tensor in tensors)
    joined = Tensor(dtype=tensors[0].dtype, shape=(size,), data=b"".join(tensor.data for tensor in tensors))
    return pieces.add_entry(_VALUES, key, joined)


def write_penalty(arguments: Arguments, message: Any, output: Output) -> dict[str, Any]:
    """Write the result of a KL penalty: advantages in the form in which they were given."""
    value = to_json(message, output)
    lengths = arguments.noted.get(LENGTHS)
    if lengths is None or not value["advantages"]:
        return value
    (advantages,) = value["advantages"]
    if not output.plain:
        return {**value, "advantages": advantages, LENGTHS: lengths.tolist()}
    if not arguments.noted["nested"]:
        return {**value, "advantages": advantages}
    ends = np.cumsum(lengths).tolist()
    return {**value, "advantages": [advantages[end - size : end] for end, size in zip(ends, lengths.tolist())]}


GROUP_NAMES: Mapping[str, str] = {
    "trajectories": "trajectories",
    "trajectories_G": "trajectories",
    "final_rewards": "final_rewards",
    "final_rewards_G": "final_rewards",
    "metrics": "metrics",
    "metrics_G": "metrics",
    "tags": "tags",
}
"""The entries of a group, by all their names."""

TRAJECTORY_NAMES: Mapping[str, str] = {"transitions": "transitions", "final_ob": "final_ob"}
"""The entries of a trajectory; its last observation is not a turn, and is not counted."""

TRANSITION_NAMES: Mapping[str, str] = {
    "ob": "ob",
    "ac": "ac",
    "reward": "reward",
    "metrics": "metrics",
    "cached_observation_tokens": "cached_observation_tokens",
    "episode_done": "episode_done",
}
"""The entries of a transition."""

# Trajectories: groups of trajectories of transitions, with tokens or their numbers.

_MAX_TOKENS = (1 << 31) - 1

_of_columns = fields_reader(metrics_pb2.ComputeTrajectoryMetricsRequest)


def read_trajectories(arguments: Arguments) -> Any:
    """Read `groups` of trajectories, or the columns of `batch`."""
    groups = arguments.take("groups")
    if groups is None:
        return _of_columns(arguments)
    arguments.renamed["trajectory_groups"] = "groups"
    read = [_group(group, f"groups[{index}]") for index, group in enumerate(_listed(groups, "groups"))]
    tags = [group.tags for group in read]
    threshold = arguments.take("good_threshold")
    request = TrajectoryMetricsRequest(
        batch=TrajectoryBatch.of(read, tags if any(tags) else ()),
        good_threshold=None if threshold is None else read_number(threshold, "good_threshold"),
    )
    return trajectory_metrics_request_to_bytes(request)


def _group(value: Any, field: str) -> SimpleNamespace:
    """A group in a form that TrajectoryBatch.of accepts."""
    known = _known(value, field, GROUP_NAMES)
    trajectories = [
        _trajectory(each, path) for path, each in _numbered(known.get("trajectories"), child(field, "trajectories"))
    ]
    rewards, metrics = known.get("final_rewards"), known.get("metrics")
    return SimpleNamespace(
        trajectories_G=trajectories,
        final_rewards_G=[0.0] * len(trajectories)
        if rewards is None
        else [read_number(each, path) for path, each in _numbered(rewards, child(field, "final_rewards"))],
        metrics_G=[{}] * len(trajectories)
        if metrics is None
        else [_metrics(each, path) for path, each in _numbered(metrics, child(field, "metrics"))],
        tags=[read_text(each, path) for path, each in _numbered(known.get("tags") or [], child(field, "tags"))],
    )


def _trajectory(value: Any, field: str) -> SimpleNamespace:
    transitions = _known(value, field, TRAJECTORY_NAMES).get("transitions")
    return SimpleNamespace(
        transitions=[_transition(each, path) for path, each in _numbered(transitions, child(field, "transitions"))]
    )


def _transition(value: Any, field: str) -> SimpleNamespace:
    known = _known(value, field, TRANSITION_NAMES)
    return SimpleNamespace(
        # Only the length of the tokens is used.
        ob=range(_tokens(known.get("ob"), child(field, "ob"))),
        ac=range(_tokens(known.get("ac"), child(field, "ac"))),
        reward=read_number(known.get("reward"), child(field, "reward")),
        metrics=_metrics(known.get("metrics") or {}, child(field, "metrics")),
        cached_observation_tokens=_cached(known, field),
    )


def _cached(known: Mapping[str, Any], field: str) -> int | None:
    value = known.get("cached_observation_tokens")
    return None if value is None else read_integer(value, child(field, "cached_observation_tokens"), 0, _MAX_TOKENS)


def _tokens(value: Any, field: str) -> int:
    """The number of tokens: given as a number, as a list, or inside an object."""
    match value:
        case list() | tuple():
            return len(value)
        case {"chunks": list() as chunks}:
            return sum(_tokens(chunk, path) for path, chunk in _numbered(chunks, child(field, "chunks")))
        case {"tokens": tokens}:
            return _tokens(tokens, child(field, "tokens"))
        case {"expected_tokens": tokens}:
            return read_integer(tokens, child(field, "expected_tokens"), 0, _MAX_TOKENS)
        case _:
            return read_integer(value, field, 0, _MAX_TOKENS)


def _metrics(value: Any, field: str) -> dict[str, float | None]:
    if not isinstance(value, Mapping):
        raise wrong_type(field, value, "an object")
    return {
        read_text(key, field): None if item is None else read_number(item, entry(field, key))
        for key, item in value.items()
    }


def _known(value: Any, field: str, names: Mapping[str, str]) -> dict[str, Any]:
    """The entries of an object by their canonical names."""
    if not isinstance(value, Mapping):
        raise wrong_type(field, value, "an object")
    known: dict[str, Any] = {}
    for key, item in value.items():
        if key not in names:
            message = f"is unknown; there are {', '.join(names)}"
            raise InvalidField(child(field, str(key)[:60]), message, reason=Reason.UNKNOWN_PARAMETER)
        if item is None:
            continue
        if names[key] in known:
            raise InvalidField(child(field, key), f"is given with {names[key]}, which is the same")
        known[names[key]] = item
    return known


def _numbered(value: Any, field: str) -> list[tuple[str, Any]]:
    return [(f"{field}[{index}]", each) for index, each in enumerate(_listed(value, field))]


def _listed(value: Any, field: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise wrong_type(field, value, "a list")
    return value
