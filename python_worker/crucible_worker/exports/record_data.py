"""Records as plain data for JSON: each field of a record under its name, in the order of its type.

    SampleResult(sample_id="a", verdict=Verdict.CORRECT, ...)  ->  {"evaluator": ..., "sample_id": "a", ...}

A record is an object, an enum its value, an array a list of numbers, bytes are base64. A number that is not finite is
null, and half a surrogate pair is U+FFFD. The entries of a mapping are sorted, as they have no order on the wire: equal
records are equal data.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from crucible_worker.reports.plain import replace_surrogates

__all__ = ["record_data"]


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
