"""Data sets: samples in the request, in a file, on the Hugging Face hub, or with the worker."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from crucible_bridge.errors import InvalidField
from crucible_bridge.types.data import Sample
from crucible_bridge.types.files import FileDataset, FileFormat, JsonlDataset, parse_file
from crucible_bridge.types.hub import HubDataset, parse_hub
from crucible_bridge.types.items import sample_maker
from crucible_bridge.types.prompts import Prompt

__all__ = ["BuiltinDataset", "Dataset", "DatasetSource", "InlineDataset"]


@dataclasses.dataclass(frozen=True, slots=True)
class InlineDataset:
    """Samples in the request."""

    samples: tuple[Sample, ...]
    """The samples."""


@dataclasses.dataclass(frozen=True, slots=True)
class BuiltinDataset:
    """A data set that ships with the worker."""

    name: str
    """"arithmetic"."""


DatasetSource = InlineDataset | JsonlDataset | FileDataset | BuiltinDataset | HubDataset


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Samples to evaluate on."""

    source: DatasetSource
    """The source of the samples."""
    limit: int | None = None
    """At most so many samples, after shuffling; all if None."""
    shuffle_seed: int | None = None
    """Shuffle them by this seed; unshuffled if None."""
    skip_malformed: bool = False
    """A malformed line becomes a sample with verdict ERROR, in place of refusing the data set."""
    where: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Only samples whose metadata has these values, before shuffling and limit; all if empty. A sample without an id
    keeps its index in the whole data set as its id."""
    prompt: Prompt | None = None
    """How to make the model's input from a row; if None, it is the row's input."""
    special_tokens: bool = False
    """Text is read with the special tokens that it names; otherwise the name of a special token in a text is text."""

    @classmethod
    def of(cls, value: Any) -> Dataset:
        """Make one from a Dataset, a source, a list of samples, rows or Datums, or text.

        As text: "builtin:NAME", "jsonl:PATH", "csv:PATH" or "parquet:PATH" with the columns of FileDataset, or
        "hub:OWNER/NAME?split=SPLIT" with the options of HubDataset. A row is a mapping of a shape that
        `crucible_bridge.types.rows` knows, as in a file; `None` and NaN count as absent.

        Raises:
            InvalidField: it is none of them.
        """
        if isinstance(value, Dataset):
            return value
        if isinstance(value, DatasetSource):
            return cls(source=value)
        if isinstance(value, str):
            return cls(source=_parsed(value))
        if isinstance(value, Mapping) or not isinstance(value, Iterable):
            raise InvalidField("dataset", f"is a {type(value).__name__}, neither a Dataset nor a list of samples")
        sample_of = sample_maker("dataset.inline")
        return cls(source=InlineDataset(tuple(sample_of(index, item) for index, item in enumerate(value))))


def _parsed(text: str) -> DatasetSource:
    scheme, _, rest = text.partition(":")
    if scheme == "builtin" and rest:
        return BuiltinDataset(rest)
    if scheme in list(FileFormat) and rest:
        return parse_file(FileFormat(scheme), rest)
    if scheme == "hub" and rest:
        return parse_hub(rest)
    known = "builtin:NAME, jsonl:PATH, csv:PATH, parquet:PATH or hub:OWNER/NAME?split=SPLIT"
    raise InvalidField("dataset", f"is {text!r}, not {known}")
