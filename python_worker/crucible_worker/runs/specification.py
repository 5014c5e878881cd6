"""The specification that identifies an evaluation, and what is computed from it: its fingerprint and its seeds."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Conversation,
    EvaluateRequest,
    EvaluationPlan,
    EvaluatorSpec,
    InlineDataset,
    ModelRef,
    PlannedEvaluation,
    Sample,
)
from crucible_worker.runs.journal.messages import messages_to_values
from crucible_worker.runs.journal.packing import pack

__all__ = [
    "MAX_OPTIONS_BYTES",
    "KeptSamples",
    "PlacedKeys",
    "can_yield",
    "differing_fields",
    "fingerprint",
    "metric_key",
    "plan_fingerprint",
    "refuse_equal_keys",
    "refuse_large_options",
    "sample_seed",
    "settings_fingerprint",
    "step_fingerprint",
    "with_kept_samples",
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


_FIRST_FIELDS: Mapping[str, tuple[str, ...]] = {
    "BuiltinDataset": ("name",),
    "ChatMessage": ("role", "content"),
    "Conversation": ("messages",),
    "Dataset": ("source", "limit", "shuffle_seed", "skip_malformed"),
    "Datum": ("model_input", "loss_fn_inputs"),
    "EmbeddedModel": ("name",),
    "EvaluationPlan": (
        *("plan_id", "run_id", "eval_every", "evaluations", "infrequent_eval_every", "infrequent_evaluations"),
        "correlation_id",
    ),
    "EvaluatorSpec": ("kind", "name", "options"),
    "HubDataset": ("repo_id", "split", "config", "revision", "columns"),
    "ImageAssetChunk": ("location", "format", "expected_tokens"),
    "ImageChunk": ("data", "format", "expected_tokens"),
    "JsonlDataset": ("path",),
    "Limits": (
        *("concurrency", "deadline_ms", "stall_timeout_ms", "sample_timeout_ms"),
        *("max_unscored_share", "max_unscored"),
    ),
    "LocalModel": ("path", "adapter_path", "device", "dtype"),
    "ModelInput": ("chunks",),
    "OpenAIModel": ("server", "model"),
    "OrchestratorModel": ("name",),
    "PlannedEvaluation": ("evaluators", "dataset", "sampling", "limits", "metric_prefix", "labels"),
    "SamplingParams": ("max_tokens", "temperature", "top_p", "top_k", "seed", "stop"),
    "Tensor": ("dtype", "shape", "data"),
    "TinkerModel": ("model_path", "state_path", "base_model", "service"),
    "TokensChunk": ("tokens",),
}
"""Fields by type, in the order of the first fingerprints; never changed. Later fields, and those of other types, count
only if they do not have their default: a request without them keeps its fingerprint."""


class KeptSamples(tuple[Sample, ...]):
    """Samples that many requests share, such as those of a plan: digests and data sets are computed once."""

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of their content."""
        return _samples_digest(self)

    @functools.cached_property
    def loaded(self) -> dict[tuple[Any, ...], Any]:
        """The data sets that were made of them, by limit, seed and filter."""
        return {}


def with_kept_samples(plan: EvaluationPlan) -> EvaluationPlan:
    """The same plan; what is computed from its inline samples is cached with them."""

    def kept(planned: PlannedEvaluation) -> PlannedEvaluation:
        source = planned.dataset.source
        if not isinstance(source, InlineDataset):
            return planned
        dataset = dataclasses.replace(planned.dataset, source=InlineDataset(KeptSamples(source.samples)))
        return dataclasses.replace(planned, dataset=dataset)

    return dataclasses.replace(
        plan,
        evaluations=tuple(map(kept, plan.evaluations)),
        infrequent_evaluations=tuple(map(kept, plan.infrequent_evaluations)),
    )


def fingerprint(request: EvaluateRequest) -> str:
    """SHA-256 of a specification: equal specifications have equal ones, in every process.

    It covers model, evaluators, data set (inline samples by content), sampling, metric_prefix, run_id, step and models;
    limits, labels and correlation_id may differ from one attempt to the next.
    """
    later = [(field, getattr(request, field)) for field in _LATER if getattr(request, field)]
    return _digest((*(getattr(request, field) for field in _SPECIFICATION), *later))


def differing_fields(first: EvaluateRequest, second: EvaluateRequest) -> list[str]:
    """Paths at which two specifications differ, as the journal stores their requests: without inline samples."""
    found = [
        path
        for field in (*_SPECIFICATION, *_LATER)
        for path in _differing(getattr(first, field), getattr(second, field), field)
    ]
    return found or ["dataset.inline.samples"]


def _differing(first: Any, second: Any, path: str) -> Iterator[str]:
    if _digest(first) == _digest(second):
        return
    if type(first) is not type(second) or path in _WHOLE:
        yield path
    elif dataclasses.is_dataclass(first):
        for field in dataclasses.fields(first):
            yield from _differing(getattr(first, field.name), getattr(second, field.name), f"{path}.{field.name}")
    elif isinstance(first, Mapping):
        for key in sorted(first.keys() | second.keys()):
            if key not in first or key not in second or _digest(first[key]) != _digest(second[key]):
                yield f'{path}["{key}"]'
    elif isinstance(first, Sequence) and not isinstance(first, str) and len(first) == len(second):
        for index, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from _differing(one, other, f"{path}[{index}]")
    else:
        yield path


def plan_fingerprint(plan: EvaluationPlan) -> str:
    """SHA-256 of a whole plan, inline samples by content."""
    return _digest(plan)


def settings_fingerprint(planned: PlannedEvaluation) -> str:
    """SHA-256 of a part of a plan without its evaluators: equal if one evaluation can have the evaluators of both."""
    return _digest(dataclasses.replace(planned, evaluators=()))


def step_fingerprint(plan: str, step: int, model: ModelRef, content: str = "") -> str:
    """SHA-256 of a plan, by its fingerprint, at a step with its model.

    `content` tells checkpoints apart that were written to one place at one step; empty for the first of them.
    """
    return _digest((plan, step, model, content) if content else (plan, step, model))


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


def sample_seed(evaluation_seed: int, sample_id: str, repeat: int) -> int:
    """The seed of one sample: a function of these three alone, so that every attempt draws the same."""
    text = f"{evaluation_seed}\0{repeat}\0{sample_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little") >> 1


def _digest(value: Any) -> str:
    return hashlib.sha256(pack(_canonical(value))).hexdigest()


def _samples_digest(samples: Iterable[Sample]) -> str:
    # Records of MessagePack are self-delimiting: their concatenation is unambiguous, and is never in memory at once.
    content = hashlib.sha256()
    for sample in samples:
        content.update(pack(_canonical_sample(sample)))
    return content.hexdigest()


def _canonical_sample(sample: Sample) -> list[Any]:
    # Written out, as there may be many of them: it takes a fifth of the time of `_canonical`.
    match sample.input:
        case str():
            asked: Any = sample.input
        case Conversation(messages):
            asked = ["conversation", messages_to_values(messages)]
        case datum:
            asked = _canonical(datum)
    metadata = [list(item) for item in sorted(sample.metadata.items())]
    labels = [list(sample.choice_labels)] if sample.choice_labels else []
    return [sample.id, asked, list(sample.targets), list(sample.choices), metadata, *labels]


def _canonical(value: Any) -> Any:
    """A form of plain lists and scalars in which equal values have equal bytes."""
    if isinstance(value, InlineDataset):
        samples = value.samples
        return ["InlineDataset", samples.digest if isinstance(samples, KeptSamples) else _samples_digest(samples)]
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        name = type(value).__name__
        first = _FIRST_FIELDS.get(name, ())
        later = list(_later_fields(value, first)) if len(dataclasses.fields(value)) > len(first) else []
        return [name, [_canonical(getattr(value, field)) for field in first], *([later] if later else [])]
    if isinstance(value, np.ndarray):
        return ["array", value.dtype.str, list(value.shape), np.ascontiguousarray(value).tobytes()]
    if isinstance(value, Mapping):
        return ["map", [[key, _canonical(value[key])] for key in sorted(value)]]
    if isinstance(value, bytes | memoryview):
        return bytes(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_canonical(item) for item in value]
    return value


def _later_fields(value: Any, first: Sequence[str]) -> Iterator[list[Any]]:
    for field in dataclasses.fields(value):
        if field.name in first:
            continue
        content = _canonical(getattr(value, field.name))
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if default is dataclasses.MISSING or content != _canonical(default):
            yield [field.name, content]


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
