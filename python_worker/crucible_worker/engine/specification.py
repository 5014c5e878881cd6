"""The specification that identifies an evaluation, and what is computed from it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    EvaluateRequest,
    EvaluationPlan,
    EvaluatorSpec,
    ModelRef,
    PlannedEvaluation,
)
from crucible_worker.datasets.identity import digest
from crucible_worker.journal.packing import pack

__all__ = [
    "MAX_OPTIONS_BYTES",
    "PlacedKeys",
    "can_yield",
    "differing_fields",
    "fingerprint",
    "metric_key",
    "plan_fingerprint",
    "refuse_equal_keys",
    "refuse_large_options",
    "settings_fingerprint",
    "step_fingerprint",
]

MAX_OPTIONS_BYTES = 1024 * 1024
"""Bytes of the options of all evaluators of a request, as the journal stores them; more are refused."""

_SPECIFICATION = ("model", "evaluators", "dataset", "sampling", "metric_prefix", "run_id", "step")
"""Fields of a request that identify its evaluation."""
_LATER = ("models",)
"""Further ones: they count only if they are not empty, so that a request without them keeps its fingerprint."""

_WHOLE = ("model", "dataset.source", "sampling.stop")
"""Fields that are compared as a whole: their parts are no fields of a request."""
_VARIABLE = re.compile("<[^<>]*>")
"""What the options or the data say, in a declared key."""


def fingerprint(request: EvaluateRequest) -> str:
    """SHA-256 of a specification: equal specifications have equal ones, in every process.

    It covers model, evaluators, data set (inline samples by content), sampling, metric_prefix, run_id, step and models;
    limits, labels and correlation_id may differ from one attempt to the next.
    """
    later = [(field, getattr(request, field)) for field in _LATER if getattr(request, field)]
    return digest((*(getattr(request, field) for field in _SPECIFICATION), *later))


def differing_fields(first: EvaluateRequest, second: EvaluateRequest) -> list[str]:
    """Paths at which two specifications differ, as the journal stores their requests: without inline samples."""
    found = [
        path
        for field in (*_SPECIFICATION, *_LATER)
        for path in _differing(getattr(first, field), getattr(second, field), field)
    ]
    return found or ["dataset.inline.samples"]


def _differing(first: Any, second: Any, path: str) -> Iterator[str]:
    if digest(first) == digest(second):
        return
    if type(first) is not type(second) or path in _WHOLE:
        yield path
    elif dataclasses.is_dataclass(first):
        for field in dataclasses.fields(first):
            yield from _differing(getattr(first, field.name), getattr(second, field.name), f"{path}.{field.name}")
    elif isinstance(first, Mapping):
        for key in sorted(first.keys() | second.keys()):
            if key not in first or key not in second or digest(first[key]) != digest(second[key]):
                yield f'{path}["{key}"]'
    elif isinstance(first, Sequence) and not isinstance(first, str) and len(first) == len(second):
        for index, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from _differing(one, other, f"{path}[{index}]")
    else:
        yield path


def plan_fingerprint(plan: EvaluationPlan) -> str:
    """SHA-256 of a whole plan, inline samples by content."""
    return digest(plan)


def settings_fingerprint(planned: PlannedEvaluation) -> str:
    """SHA-256 of a part of a plan without its evaluators: equal if one evaluation can have the evaluators of both."""
    return digest(dataclasses.replace(planned, evaluators=()))


def step_fingerprint(plan: str, step: int, model: ModelRef, content: str = "") -> str:
    """SHA-256 of a plan, by its fingerprint, at a step with its model.

    `content` tells checkpoints apart that were written to one place at one step; empty for the first of them.
    """
    return digest((plan, step, model, content) if content else (plan, step, model))


def metric_key(prefix: str, spec: EvaluatorSpec, key: str) -> str:
    """The full key of an evaluator's metric: prefix, then the specification's name if it has one, then the key."""
    return f"{prefix}{spec.name}/{key}" if spec.name is not None else f"{prefix}{key}"


@dataclasses.dataclass(frozen=True, slots=True)
class PlacedKeys:
    """The keys that an evaluator can yield, and its path in a request."""

    path: str
    """Path of its specification: `evaluators[1]`."""
    prefix: str
    """What is put before every key."""
    spec: EvaluatorSpec
    """The specification."""
    keys: Sequence[str]
    """Without prefix and name."""


def can_yield(placed: PlacedKeys, metric: str) -> bool:
    """Whether an evaluator can yield a metric, by its full key; `pass@<k>` yields `pass@4`."""
    patterns = (_VARIABLE.split(metric_key(placed.prefix, placed.spec, key)) for key in placed.keys)
    return any(re.fullmatch(".+".join(map(re.escape, parts)), metric, re.DOTALL) for parts in patterns)


def refuse_equal_keys(evaluators: Iterable[PlacedKeys]) -> None:
    """Refuse evaluators of which two would yield the same key.

    A key with `<...>` matches all keys with one word there: `rubric/<criterion>` may be equal to `rubric/accuracy` of
    an evaluator named `rubric`. If both keys are of that kind, or one begins with `<...>`, only the results show
    whether they are equal: see `summary.unless_taken`.

    Raises:
        InvalidField: names the second of the two and the key.
    """
    owners: dict[str, str] = {}
    patterns: list[tuple[re.Pattern[str], str]] = []
    plain: list[tuple[str, str]] = []
    for placed in evaluators:
        for key in placed.keys:
            full = metric_key(placed.prefix, placed.spec, key)
            if owners.setdefault(full, placed.path) != placed.path:
                raise _equal_keys(placed.path, owners[full], full)
            if "<" not in key:
                plain.append((full, placed.path))
            elif not key.startswith("<"):
                before = re.escape(full.removesuffix(key))
                patterns.append((re.compile(before + re.sub("<.+?>", "[^/]+", re.escape(key))), placed.path))
    paths = list(dict.fromkeys(owners.values()))
    for pattern, path in patterns:
        for full, other in plain:
            if other != path and pattern.fullmatch(full) is not None:
                first, second = sorted((path, other), key=paths.index)
                raise _equal_keys(second, first, full)


def _equal_keys(path: str, other: str, key: str) -> InvalidField:
    message = f"must differ from that of {other}: both would yield the key {key!r}"
    return InvalidField(f"{path}.name", message, reason=Reason.EQUAL_KEYS, metadata={"other": other, "key": key})


def refuse_large_options(evaluators: Sequence[EvaluatorSpec]) -> None:
    """Refuse evaluators with more than `MAX_OPTIONS_BYTES` of options together.

    Raises:
        InvalidField: they have more; the path is that of the first evaluator above the limit.
    """
    total = 0
    for index, spec in enumerate(evaluators):
        size = len(pack(dict(spec.options)))
        total += size
        if total > MAX_OPTIONS_BYTES:
            raise InvalidField(
                f"evaluators[{index}].options",
                f"has {size:,} bytes, and with the evaluators before {total:,}: at most {MAX_OPTIONS_BYTES:,} are "
                "accepted; put what belongs to samples into the data set",
            )
