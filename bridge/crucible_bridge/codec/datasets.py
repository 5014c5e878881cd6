"""Data sets <-> v1."""

from __future__ import annotations

from crucible_bridge.codec.content import hub_dataset_from_v1, hub_dataset_to_v1
from crucible_bridge.codec.data import sample_from_v1, sample_to_v1
from crucible_bridge.codec.fields import EnumPair, at_least, bounded_texts, child, made, of_type, sendable
from crucible_bridge.codec.prompts import prompt_from_v1, prompt_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    BuiltinDataset,
    Dataset,
    DatasetSource,
    FileDataset,
    FileFormat,
    HubDataset,
    InlineDataset,
    JsonlDataset,
    bounds,
)
from crucible_bridge.v1 import evaluation_pb2

__all__ = ["dataset_from_v1", "dataset_to_v1"]

_FILE_FORMAT = EnumPair(FileFormat, evaluation_pb2.FileFormat, "FILE_FORMAT_")


def dataset_to_v1(dataset: Dataset, field: str = "dataset") -> evaluation_pb2.Dataset:
    """Encode a data set.

    Raises:
        InvalidField: a value cannot be sent (wrong type, width, text that is no Unicode).
    """
    of_type(dataset, Dataset, field)
    message = made(
        evaluation_pb2.Dataset,
        field,
        limit=dataset.limit,
        shuffle_seed=dataset.shuffle_seed,
        skip_malformed=dataset.skip_malformed,
        where=dataset.where,
        prompt=None if dataset.prompt is None else prompt_to_v1(dataset.prompt, child(field, "prompt")),
        special_tokens=dataset.special_tokens,
    )
    if isinstance(dataset.source, InlineDataset):
        message.inline.SetInParent()
        with sendable(child(field, "inline.samples")):
            for index, sample in enumerate(dataset.source.samples):
                place = f"{field}.inline.samples[{index}]"
                with sendable(place):
                    message.inline.samples.append(sample_to_v1(sample, place))
    elif isinstance(dataset.source, JsonlDataset):
        with sendable(child(field, "jsonl_path")):
            message.jsonl_path = dataset.source.path
    elif isinstance(dataset.source, FileDataset):
        with sendable(child(field, "file")):
            message.file.CopyFrom(_file_to_v1(dataset.source, child(field, "file")))
    elif isinstance(dataset.source, HubDataset):
        with sendable(child(field, "hub")):
            message.hub.CopyFrom(hub_dataset_to_v1(dataset.source))
    else:
        with sendable(child(field, "builtin")):
            message.builtin = dataset.source.name
    return message


def dataset_from_v1(message: evaluation_pb2.Dataset, field: str) -> Dataset:
    """Decode a data set: it needs a source, and a limit of at least 1. Its reader checks that it has samples."""
    match message.WhichOneof("source"):
        case "inline":
            path = child(field, "inline")
            source: DatasetSource = InlineDataset(
                tuple(
                    sample_from_v1(sample, f"{path}.samples[{index}]")
                    for index, sample in enumerate(message.inline.samples)
                )
            )
        case "jsonl_path":
            source = JsonlDataset(message.jsonl_path)
        case "builtin":
            source = BuiltinDataset(message.builtin)
        case "hub":
            source = hub_dataset_from_v1(message.hub, child(field, "hub"))
        case "file":
            source = _file_from_v1(message.file, child(field, "file"))
        case _:
            raise InvalidField(field, "has no source")
    limit = message.limit if message.HasField("limit") else None
    if limit is not None:
        at_least(limit, 1, child(field, "limit"))
    bounded_texts(message.where, bounds.DATASET_WHERE_MAX_COUNT, bounds.DATASET_WHERE_MAX_BYTES, child(field, "where"))
    return Dataset(
        source=source,
        limit=limit,
        shuffle_seed=message.shuffle_seed if message.HasField("shuffle_seed") else None,
        skip_malformed=message.skip_malformed,
        where=dict(message.where),
        prompt=prompt_from_v1(message.prompt, child(field, "prompt")) if message.HasField("prompt") else None,
        special_tokens=message.special_tokens,
    )


def _file_to_v1(source: FileDataset, field: str) -> evaluation_pb2.FileDataset:
    return evaluation_pb2.FileDataset(
        path=source.path, format=_FILE_FORMAT.sent(source.format, child(field, "format")), columns=dict(source.columns)
    )


def _file_from_v1(message: evaluation_pb2.FileDataset, field: str) -> FileDataset | JsonlDataset:
    file_format = _FILE_FORMAT.from_v1(message.format, child(field, "format"))
    return FileDataset(message.path, format=file_format, columns=dict(message.columns)).checked(field)
