"""What makes an evaluation the same evaluation, and what follows from that: its fingerprint and its seeds."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import EvaluateRequest, EvaluatorSpec
from crucible_worker.runs.journal.records import pack

__all__ = ["fingerprint", "metric_key", "refuse_equal_keys", "sample_seed"]


def fingerprint(request: EvaluateRequest) -> str:
    """SHA-256 of a specification: equal for equal ones, in every process.

    It covers model, evaluators, data set (inline samples by content), sampling, metric_prefix, run_id and step; limits,
    labels and correlation_id may differ from one attempt to the next.
    """
    specification = (
        request.model,
        request.evaluators,
        request.dataset,
        request.sampling,
        request.metric_prefix,
        request.run_id,
        request.step,
    )
    return hashlib.sha256(pack(_canonical(specification))).hexdigest()


def metric_key(prefix: str, spec: EvaluatorSpec, key: str) -> str:
    """The full key of an evaluator's metric: prefix, then the specification's name where it carries one."""
    return f"{prefix}{spec.name}/{key}" if spec.name is not None else f"{prefix}{key}"


def refuse_equal_keys(prefix: str, evaluators: Sequence[tuple[EvaluatorSpec, Sequence[str]]]) -> None:
    """Refuse evaluators of which two would yield the same key.

    Args:
        prefix: the request's `metric_prefix`.
        evaluators: each specification with the bare keys that it can yield.

    Raises:
        InvalidField: names the second of the two and the key.
    """
    owners: dict[str, int] = {}
    for index, (spec, keys) in enumerate(evaluators):
        for key in keys:
            full = metric_key(prefix, spec, key)
            if owners.setdefault(full, index) != index:
                raise InvalidField(
                    f"evaluators[{index}].name",
                    f"must differ from that of evaluators[{owners[full]}]: both would yield the key {full!r}",
                    reason="EQUAL_KEYS",
                )


def sample_seed(evaluation_seed: int, sample_id: str, repeat: int) -> int:
    """The seed of one sample: a function of these three alone, so that every attempt draws the same."""
    text = f"{evaluation_seed}\0{repeat}\0{sample_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little") >> 1


def _canonical(value: Any) -> Any:
    """A form of plain lists and scalars in which equal values are equal bytes."""
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        fields = [_canonical(getattr(value, field.name)) for field in dataclasses.fields(value)]
        return [type(value).__name__, fields]
    if isinstance(value, np.ndarray):
        return ["array", value.dtype.str, list(value.shape), np.ascontiguousarray(value).tobytes()]
    if isinstance(value, Mapping):
        return ["map", [[key, _canonical(value[key])] for key in sorted(value)]]
    if isinstance(value, bytes | memoryview):
        return bytes(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_canonical(item) for item in value]
    return value
