"""Data sets: from a source to samples, all checked before anything is evaluated, with their fingerprint."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgpack

from crucible_bridge.arrays import to_tensor
from crucible_bridge.errors import InvalidField, NotFound
from crucible_bridge.types import (
    BuiltinDataset,
    Conversation,
    Dataset,
    Datum,
    ImageAssetChunk,
    ImageChunk,
    InlineDataset,
    JsonlDataset,
    ModelInputChunk,
    Problem,
    Sample,
    TokensChunk,
)
from crucible_worker.runs.jsonl import LINE_PROBLEM, Line, find_file, read_lines

__all__ = ["BUILTIN_DATASETS", "LoadedDataset", "MalformedSample", "load"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MalformedSample:
    """What stands in for a line that is no sample: it becomes ERROR with this problem."""

    id: str
    """The line's index among the file's records."""
    problem: Problem
    """What is wrong with it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadedDataset:
    """The samples to evaluate on."""

    samples: tuple[Sample | MalformedSample, ...]
    """In order; every id is there, and unique."""
    fingerprint: str
    """SHA-256 of these samples, in hexadecimal: equal for equal samples in one order, however they came."""


def load(
    dataset: Dataset,
    *,
    data_roots: Sequence[Path],
    builtins: Mapping[str, Callable[[], Sequence[Sample]]],
    go_on: Callable[[], None] = lambda: None,
) -> LoadedDataset:
    """Load a data set. It blocks: call it in a thread.

    A sample without an id gets its index in the source, from 0. Shuffling sorts by SHA-256 of seed and id, so that the
    order is the same in every version of Python and adding a sample leaves the others in their order; the limit is
    applied after it. The whole source is checked, whatever the limit.

    Args:
        dataset: what to load.
        data_roots: JSONL files lie below these.
        builtins: data sets that ship with the worker, by name.
        go_on: called for every line of a file; raises to have the loading given up.

    Raises:
        InvalidField: it is empty (reason EMPTY_DATASET), an id is there twice (DUPLICATE_SAMPLE_ID), a line is
            malformed and not to be skipped (MALFORMED_LINE), or the limit is below 1.
        NotFound: there is no such file or built-in data set.
        PermissionDenied: the path leads out of the data roots, or the file cannot be read.
        FailedPrecondition: a file is asked for, and the worker has no data root.
    """
    if dataset.limit is not None and dataset.limit < 1:
        raise InvalidField("dataset.limit", f"is {dataset.limit}, at least 1 is needed")
    match dataset.source:
        case InlineDataset(samples):
            field, loaded = "dataset.inline", _identified(samples, "dataset.inline", "sample")
        case JsonlDataset(path):
            field, loaded = "dataset.jsonl_path", _from_file(path, data_roots, go_on, skip=dataset.skip_malformed)
        case BuiltinDataset(name):
            field, loaded = "dataset.builtin", _identified(_builtin(name, builtins), "dataset.builtin", "sample")
    if not loaded:
        raise InvalidField(field, "holds no sample", reason="EMPTY_DATASET")
    if dataset.shuffle_seed is not None:
        seed = dataset.shuffle_seed
        loaded = sorted(loaded, key=lambda sample: _shuffle_key(seed, sample.id))
    samples = tuple(loaded[: dataset.limit])
    return LoadedDataset(samples=samples, fingerprint=_fingerprint(samples))


def _arithmetic() -> Sequence[Sample]:
    from crucible_worker.embedded.arithmetic import held_out  # hashes 8,100 problems: only where it is asked for

    return held_out()


BUILTIN_DATASETS: Mapping[str, Callable[[], Sequence[Sample]]] = MappingProxyType({"arithmetic": _arithmetic})
"""Data sets that ship with the worker."""


def _builtin(name: str, builtins: Mapping[str, Callable[[], Sequence[Sample]]]) -> Sequence[Sample]:
    if name not in builtins:
        known = ", ".join(builtins) or "none"
        raise NotFound(f"is {name[:60]!r}, known are: {known}", field="dataset.builtin", reason="UNKNOWN_DATASET")
    return builtins[name]()


def _identified(samples: Sequence[Sample], field: str, noun: str) -> list[Sample | MalformedSample]:
    named: list[Sample | MalformedSample] = [
        sample if sample.id else dataclasses.replace(sample, id=str(index)) for index, sample in enumerate(samples)
    ]
    _refuse_equal_ids([(sample.id, f"{noun} {index}") for index, sample in enumerate(named)], field)
    return named


def _from_file(
    path: str, data_roots: Sequence[Path], go_on: Callable[[], None], *, skip: bool
) -> list[Sample | MalformedSample]:
    field = "dataset.jsonl_path"
    lines: list[Line] = []
    for line in read_lines(find_file(path, data_roots, field), field):
        go_on()
        lines.append(line)
    bad = next((line for line in lines if line.sample is None), None)
    if bad is not None and not skip:
        raise InvalidField(field, f"line {bad.number} {bad.problem}", reason=LINE_PROBLEM)
    taken = {line.sample.id for line in lines if line.sample is not None}
    loaded: list[Sample | MalformedSample] = []
    for index, line in enumerate(lines):
        if line.sample is None:
            loaded.append(_malformed(index, line, taken, field))
        elif line.sample.id:
            loaded.append(line.sample)
        else:
            loaded.append(dataclasses.replace(line.sample, id=str(index)))
    _refuse_equal_ids([(sample.id, f"line {line.number}") for sample, line in zip(loaded, lines, strict=True)], field)
    return loaded


def _malformed(index: int, line: Line, taken: set[str], field: str) -> MalformedSample:
    # A line that is skipped must not take an id from a sample that is there.
    free = str(index) if str(index) not in taken else f"line {line.number}"
    problem = Problem(reason=LINE_PROBLEM, message=f"line {line.number} {line.problem}", field=field)
    return MalformedSample(id=free, problem=problem)


def _refuse_equal_ids(places: Sequence[tuple[str, str]], field: str) -> None:
    first: dict[str, str] = {}
    for identity, place in places:
        if identity in first:
            message = f"has the id {identity[:200]!r} twice: {first[identity]} and {place}"
            raise InvalidField(field, message, reason="DUPLICATE_SAMPLE_ID")
        first[identity] = place


def _shuffle_key(seed: int, identity: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{identity}".encode("utf-8", "surrogatepass")).digest()


def _fingerprint(samples: Sequence[Sample | MalformedSample]) -> str:
    # Records of MessagePack tell where they end: their concatenation is as good as a list, and never held at once.
    content, packer = hashlib.sha256(), msgpack.Packer(unicode_errors="surrogatepass")
    for sample in samples:
        content.update(packer.pack(_canonical(sample)))
    return content.hexdigest()


def _canonical(sample: Sample | MalformedSample) -> list[object]:
    if isinstance(sample, MalformedSample):
        return ["malformed", sample.id, sample.problem.message]
    match sample.input:
        case Conversation(messages):
            asked: object = ["conversation", [[message.role, message.content] for message in messages]]
        case Datum():
            asked = ["datum", *_canonical_datum(sample.input)]
        case text:
            asked = ["text", text]
    metadata = sorted(sample.metadata.items())
    return ["sample", sample.id, asked, list(sample.targets), list(sample.choices), [list(item) for item in metadata]]


def _canonical_datum(datum: Datum) -> list[object]:
    arrays = []
    for key, array in sorted(datum.loss_fn_inputs.items()):
        tensor = to_tensor(array)
        arrays.append([key, tensor.dtype.value, list(tensor.shape), bytes(tensor.data)])
    return [[_canonical_chunk(chunk) for chunk in datum.model_input.chunks], arrays]


def _canonical_chunk(chunk: ModelInputChunk) -> list[object]:
    match chunk:
        case TokensChunk():
            # Token ids are numbers: whether they came as int32 or int64 is no difference.
            return ["tokens", chunk.tokens.astype("<i8").tobytes()]
        case ImageChunk():
            return ["image", chunk.format, bytes(chunk.data), chunk.expected_tokens]
        case ImageAssetChunk():
            return ["asset", chunk.format, chunk.location, chunk.expected_tokens]
