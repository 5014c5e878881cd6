"""The inputs of models: tokens, tensors, data, samples, data sets."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from crucible_bridge.errors import InvalidField
from crucible_bridge.types.files import FileDataset, FileFormat, JsonlDataset, parse_file
from crucible_bridge.types.hub import HubDataset, parse_hub

if TYPE_CHECKING:
    from crucible_bridge.types.generated import Prompt

__all__ = [
    "Array",
    "BuiltinDataset",
    "ChatMessage",
    "Conversation",
    "Dataset",
    "DatasetSource",
    "Datum",
    "Dtype",
    "ImageAssetChunk",
    "ImageChunk",
    "InlineDataset",
    "ModelInput",
    "ModelInputChunk",
    "Sample",
    "Tensor",
    "TokensChunk",
]


class Dtype(enum.StrEnum):
    """Element type of a tensor on the wire."""

    U8 = "u8"
    BOOL = "bool"
    I32 = "i32"
    I64 = "i64"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A dense array in its wire form: little-endian bytes, never interpreted, so that every bit survives.

    `crucible_bridge.arrays` turns it into numpy and back without copying; only bf16, which numpy does not have, stays
    in this form inside a Datum.
    """

    dtype: Dtype
    """Element type."""
    shape: tuple[int, ...]
    """Dimensions, row-major."""
    data: bytes | memoryview
    """Elements, little-endian."""


Array = np.ndarray | Tensor
"""An array of a Datum: numpy's, or a Tensor if numpy has no such element type (bf16)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokensChunk:
    """Token ids."""

    tokens: np.ndarray
    """Shape (n,), int32 or int64."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ImageChunk:
    """An encoded image inside a model's input."""

    data: bytes
    """The encoded bytes, not base64."""
    format: str
    """"png" or "jpeg"."""
    expected_tokens: int | None = None
    """Tokens that the image takes, if known."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ImageAssetChunk:
    """A reference to an image that the model's service already has."""

    location: str
    """Its location."""
    format: str
    """"png" or "jpeg"."""
    expected_tokens: int | None = None
    """Tokens that the image takes, if known."""


ModelInputChunk = TokensChunk | ImageChunk | ImageAssetChunk


@dataclasses.dataclass(frozen=True, slots=True)
class ModelInput:
    """A model's input: chunks in order."""

    chunks: tuple[ModelInputChunk, ...]
    """The chunks."""

    @classmethod
    def of(cls, tokens: ModelInput | Sequence[int] | np.ndarray) -> ModelInput:
        """Make one from token ids (int64); a ModelInput is returned unchanged."""
        if isinstance(tokens, ModelInput):
            return tokens
        array = np.asarray(tokens)
        if array.size == 0:
            array = array.astype(np.int64)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise InvalidField("model_input", f"holds {array.dtype} of shape {array.shape}, not a list of token ids")
        if array.dtype not in (np.int32, np.int64):
            array = array.astype(np.int64)
        return cls((TokensChunk(tokens=array),))

    def tokens(self) -> np.ndarray:
        """Its token ids, shape (n,), int64.

        Raises:
            InvalidField: it holds an image.
        """
        parts: list[np.ndarray] = []
        for index, chunk in enumerate(self.chunks):
            if not isinstance(chunk, TokensChunk):
                raise InvalidField(f"model_input.chunks[{index}]", "is an image, but only tokens are accepted")
            parts.append(chunk.tokens)
        return np.concatenate(parts).astype(np.int64, copy=False) if parts else np.empty(0, np.int64)


@dataclasses.dataclass(frozen=True, slots=True, init=False, eq=False)
class Datum:
    """One training or evaluation example, one-to-one with the Elixir and the tinker type."""

    model_input: ModelInput
    """The input, without the last target."""
    loss_fn_inputs: Mapping[str, Array]
    """"target_tokens", "weights", "logprobs", "mask", "advantages", ...: arrays of the input's length."""

    def __init__(
        self, *, model_input: ModelInput | Sequence[int] | np.ndarray, loss_fn_inputs: Mapping[str, Any]
    ) -> None:
        """Also accept token ids as model input, and as arrays whatever `crucible_bridge.arrays.as_array` accepts.

        Raises:
            InvalidField: the input is not a list of token ids, or a value of `loss_fn_inputs` is not an array.
        """
        from crucible_bridge.arrays import as_array  # arrays needs Tensor from here

        object.__setattr__(self, "model_input", ModelInput.of(model_input))
        arrays = {key: as_array(value, field=f'loss_fn_inputs["{key}"]') for key, value in loss_fn_inputs.items()}
        object.__setattr__(self, "loss_fn_inputs", arrays)


@dataclasses.dataclass(frozen=True, slots=True)
class ChatMessage:
    """A message of a conversation."""

    role: str
    """"system", "user", "assistant" or "tool"."""
    content: str
    """Its text."""


@dataclasses.dataclass(frozen=True, slots=True)
class Conversation:
    """Messages in order."""

    messages: tuple[ChatMessage, ...]
    """The messages."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sample of a data set."""

    id: str = ""
    """Unique in the data set, at most 1,000 bytes; the index, from 0, if empty."""
    input: str | Conversation | Datum
    """What the model gets: plain text (one user message), a conversation, or tokens with targets and weights."""
    targets: tuple[str, ...] = ()
    """Right answers: any of these. For nll, the first one is the continuation of the text."""
    choices: tuple[str, ...] = ()
    """Choices, for multiple choice."""
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Further values that an evaluator's options can name."""

    @property
    def expected(self) -> tuple[str, ...]:
        """The targets; if there are none, the last message of a conversation that ends with the assistant's answer."""
        if self.targets or not isinstance(self.input, Conversation):
            return self.targets
        *asked, last = self.input.messages or (None,)
        return (last.content,) if asked and last is not None and last.role == "assistant" else ()


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
        from crucible_bridge.types.items import sample_maker  # which needs Sample from here

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
