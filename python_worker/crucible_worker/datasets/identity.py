"""What identifies values: a form of plain lists and scalars in which equal ones have equal bytes, and its digest."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgpack
import numpy as np

from crucible_bridge.arrays import to_tensor
from crucible_bridge.types import (
    Conversation,
    Datum,
    EvaluationPlan,
    ImageAssetChunk,
    ImageChunk,
    InlineDataset,
    ModelInputChunk,
    PlannedEvaluation,
    Sample,
    TokensChunk,
)
from crucible_worker.datasets.spool import MalformedSample
from crucible_worker.journal.packing import pack
from crucible_worker.util.message_values import conversation_to_values

__all__ = ["SampleCache", "canonical", "dataset_fingerprint", "digest", "with_kept_samples"]

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


class SampleCache(tuple[Sample, ...]):
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
        dataset = dataclasses.replace(planned.dataset, source=InlineDataset(SampleCache(source.samples)))
        return dataclasses.replace(planned, dataset=dataset)

    return dataclasses.replace(
        plan,
        evaluations=tuple(map(kept, plan.evaluations)),
        infrequent_evaluations=tuple(map(kept, plan.infrequent_evaluations)),
    )


def digest(value: Any) -> str:
    """SHA-256 of a value in its canonical form."""
    return hashlib.sha256(pack(canonical(value))).hexdigest()


def _samples_digest(samples: Iterable[Sample]) -> str:
    # Records of MessagePack are self-delimiting: their concatenation is unambiguous, and is never in memory at once.
    content = hashlib.sha256()
    for sample in samples:
        content.update(pack(_canonical_sample(sample)))
    return content.hexdigest()


def _canonical_sample(sample: Sample) -> list[Any]:
    # Written out, as there may be many of them: it takes a fifth of the time of `canonical`.
    match sample.input:
        case str():
            asked: Any = sample.input
        case Conversation():
            asked = ["conversation", conversation_to_values(sample.input)]
        case datum:
            asked = canonical(datum)
    metadata = [list(item) for item in sorted(sample.metadata.items())]
    labels = [list(sample.choice_labels)] if sample.choice_labels else []
    return [sample.id, asked, list(sample.targets), list(sample.choices), metadata, *labels]


def canonical(value: Any) -> Any:
    """A form of plain lists and scalars in which equal values have equal bytes."""
    if isinstance(value, InlineDataset):
        samples = value.samples
        return ["InlineDataset", samples.digest if isinstance(samples, SampleCache) else _samples_digest(samples)]
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        name = type(value).__name__
        first = _FIRST_FIELDS.get(name, ())
        later = list(_later_fields(value, first)) if len(dataclasses.fields(value)) > len(first) else []
        return [name, [canonical(getattr(value, field)) for field in first], *([later] if later else [])]
    if isinstance(value, np.ndarray):
        return ["array", value.dtype.str, list(value.shape), np.ascontiguousarray(value).tobytes()]
    if isinstance(value, Mapping):
        return ["map", [[key, canonical(value[key])] for key in sorted(value)]]
    if isinstance(value, bytes | memoryview):
        return bytes(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [canonical(item) for item in value]
    return value


def _later_fields(value: Any, first: Sequence[str]) -> Iterator[list[Any]]:
    for field in dataclasses.fields(value):
        if field.name in first:
            continue
        content = canonical(getattr(value, field.name))
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if default is dataclasses.MISSING or content != canonical(default):
            yield [field.name, content]


# The fingerprint of a loaded data set; a request's digest, above, is another one.

_SAMPLES_BETWEEN = 16
"""Samples that a reading thread handles between two calls of `go_on`."""


def dataset_fingerprint(samples: Iterable[Sample | MalformedSample], go_on: Callable[[], None]) -> str:
    """SHA-256 of samples in this order.

    Args:
        samples: all of them.
        go_on: called repeatedly; it raises to stop this.
    """
    # Records of MessagePack are self-delimiting: their concatenation is unambiguous, and is never in memory at once.
    content, packer = hashlib.sha256(), msgpack.Packer(unicode_errors="surrogatepass")
    for index, sample in enumerate(samples):
        if index % _SAMPLES_BETWEEN == 0:
            go_on()
        content.update(packer.pack(_listed(sample)))
    return content.hexdigest()


def _listed(sample: Sample | MalformedSample) -> list[object]:
    if isinstance(sample, MalformedSample):
        return ["malformed", sample.id, sample.fault]
    match sample.input:
        case Conversation():
            asked: object = ["conversation", conversation_to_values(sample.input)]
        case Datum():
            asked = ["datum", *_canonical_datum(sample.input)]
        case text:
            asked = ["text", text]
    metadata = [list(item) for item in sorted(sample.metadata.items())]
    # A sample without labels has the fingerprint that it had before there were labels.
    labels = [list(sample.choice_labels)] if sample.choice_labels else []
    return ["sample", sample.id, asked, list(sample.targets), list(sample.choices), metadata, *labels]


def _canonical_datum(datum: Datum) -> list[object]:
    arrays = []
    for key, array in sorted(datum.loss_fn_inputs.items()):
        tensor = to_tensor(array)
        arrays.append([key, tensor.dtype.value, list(tensor.shape), bytes(tensor.data)])
    return [[_canonical_chunk(chunk) for chunk in datum.model_input.chunks], arrays]


def _canonical_chunk(chunk: ModelInputChunk) -> list[object]:
    match chunk:
        case TokensChunk():
            # Token ids are numbers: int32 and int64 give the same fingerprint.
            return ["tokens", chunk.tokens.astype("<i8").tobytes()]
        case ImageChunk():
            return ["image", chunk.format, bytes(chunk.data), chunk.expected_tokens]
        case ImageAssetChunk():
            return ["asset", chunk.format, chunk.location, chunk.expected_tokens]
