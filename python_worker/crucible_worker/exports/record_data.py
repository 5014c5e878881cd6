"""What several formats take of an evaluation: its records as plain data, and names of data sets and of logs.

    SampleResult(sample_id="a", verdict=Verdict.CORRECT, ...)  ->  {"evaluator": ..., "sample_id": "a", ...}

A record is an object, an enum its value, an array a list of numbers, bytes are base64. A number that is not finite is
null, and half a surrogate pair is U+FFFD. The entries of a mapping are sorted, as they have no order on the wire: equal
records are equal data.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import enum
import functools
import hashlib
import math
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from crucible_bridge.types import (
    BuiltinDataset,
    Dataset,
    Evaluation,
    HubDataset,
    InlineDataset,
)
from crucible_worker.reports.plain_json import replace_surrogates

__all__ = ["dataset_name", "log_name", "record_data", "utc"]


def record_data(value: Any) -> Any:
    """A record, or a value of one, as plain data."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        entries = {replace_surrogates(str(key)): record_data(item) for key, item in value.items()}
        return dict(sorted(entries.items(), key=_key))
    if isinstance(value, list | tuple):
        return [record_data(item) for item in value]
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, np.ndarray | np.generic):
        return record_data(value.tolist())
    return {name: record_data(getattr(value, name)) for name in _names(type(value))}


def _key(entry: tuple[str, Any]) -> str:
    return entry[0]


@functools.cache
def _names(record: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(record))


# Names: of data sets and of logs; and times.

_SHOWN = 60
_UNPORTABLE = re.compile(r"[^A-Za-z0-9.-]+")


def dataset_name(dataset: Dataset) -> str:
    """A data set in a word: "arithmetic", "openai/gsm8k", the name of a file without its suffix, or "inline"."""
    match dataset.source:
        case BuiltinDataset(name):
            return name
        case HubDataset() as source:
            return source.repo_id
        case InlineDataset():
            return "inline"
        case source:
            return PurePosixPath(source.path).stem or "file"


def log_name(evaluation: Evaluation, journal: str) -> str:
    """The name of an evaluation's log in a folder of logs: no other evaluation of any journal has it.

        2026-01-31T08-15-00+00-00_arithmetic_nightly-320_1f0c9b2ad1e4.eval

    The time is that of the start. An evaluation has one name whichever attempt or worker ends it.

    Args:
        evaluation: which one.
        journal: identity of the journal's log.
    """
    began = utc(evaluation.created_unix_ns).replace(microsecond=0).isoformat().replace(":", "-")
    identity = f"{journal}\0{evaluation.evaluation_id}\0{evaluation.created_unix_ns}"
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    words = (dataset_name(evaluation.request.dataset), evaluation.evaluation_id)
    shown = [_UNPORTABLE.sub("-", word)[:_SHOWN].strip("-.") or "x" for word in words]
    return f"{'_'.join([began, *shown, digest])}.eval"


def utc(unix_ns: int) -> datetime.datetime:
    """A time of a record."""
    return datetime.datetime.fromtimestamp(unix_ns // 1_000_000_000, datetime.UTC) + datetime.timedelta(
        microseconds=unix_ns // 1_000 % 1_000_000
    )
