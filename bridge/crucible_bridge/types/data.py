"""The inputs of models: tokens, data, samples."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.types.arrays import as_array
from crucible_bridge.types.tensors import Array
from crucible_bridge.types.tools import ToolSpec

__all__ = [
    "ChatMessage",
    "Conversation",
    "Datum",
    "ImageAssetChunk",
    "ImageChunk",
    "MessagePart",
    "ModelInput",
    "ModelInputChunk",
    "ReasoningPart",
    "Sample",
    "TokensChunk",
    "ToolCall",
    "UnparsedToolCall",
]


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
        object.__setattr__(self, "model_input", ModelInput.of(model_input))
        arrays = {key: as_array(value, field=f'loss_fn_inputs["{key}"]') for key, value in loss_fn_inputs.items()}
        object.__setattr__(self, "loss_fn_inputs", arrays)


@dataclasses.dataclass(frozen=True, slots=True)
class ReasoningPart:
    """Reasoning of the assistant, as a part of a message."""

    text: str
    """The text of it, without tags."""


MessagePart = str | ImageChunk | ImageAssetChunk | ReasoningPart


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call of a tool."""

    name: str = ""
    """The tool."""
    arguments: str = ""
    """Its arguments, as JSON."""
    id: str = ""
    """The model's id of the call; empty if the format has none."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UnparsedToolCall:
    """A call of a tool that cannot be parsed."""

    text: str = ""
    """Its text."""
    error: str = ""
    """Why it cannot be parsed."""


@dataclasses.dataclass(frozen=True, slots=True)
class ChatMessage:
    """A message of a conversation."""

    role: str
    """"system", "user", "assistant" or "tool"."""
    content: str = ""
    """Its text. If there are parts: their texts, without anything between them; set from them if it is empty."""
    parts: tuple[MessagePart, ...] = ()
    """Text, images and reasoning in order, for a message with more than text. Reasoning that is all at the beginning
    becomes `reasoning`."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls of tools that a message of the assistant makes, after its text."""
    tool_call_id: str = ""
    """Of a message of a tool: the id of the call that it answers."""
    name: str = ""
    """Who writes it; of a message of a tool: the tool."""
    reasoning: str = ""
    """The reasoning before the text of a message of the assistant."""
    weight: float | None = None
    """Its weight in a training example, if `train_on` is "customized": finite, at least 0; None if it has none."""

    def __post_init__(self) -> None:
        """Set the text and the reasoning of the parts; parts that are only one text are that text.

        Raises:
            InvalidField: `content` is another text, reasoning is given twice or not the assistant's, or the weight is
                negative or not finite.
        """
        if self.weight is not None and not (math.isfinite(self.weight) and self.weight >= 0):
            raise InvalidField("weight", f"is {self.weight}, must be finite and at least 0")
        if self.parts:
            self._set_parts()
        if self.has_reasoning and self.role != "assistant":
            raise InvalidField("reasoning", f"is of the role {clipped(self.role)}: only the assistant reasons")

    def _set_parts(self) -> None:
        text = "".join(part for part in self.parts if isinstance(part, str))
        if self.content and self.content != text:
            raise InvalidField("content", "is not the text of the parts: leave it out if there are parts")
        object.__setattr__(self, "content", text)
        first, *rest = self.parts
        reasoned = [part for part in self.parts if isinstance(part, ReasoningPart)]
        if reasoned and self.reasoning:
            raise InvalidField("reasoning", "is given, and so are parts of reasoning: leave one of them out")
        if isinstance(first, ReasoningPart) and len(reasoned) == 1:
            object.__setattr__(self, "reasoning", first.text)
            object.__setattr__(self, "parts", tuple(rest))
        if all(isinstance(part, str) for part in self.parts):
            object.__setattr__(self, "parts", ())

    @property
    def images(self) -> tuple[ImageChunk | ImageAssetChunk, ...]:
        """Its images, in order."""
        return tuple(part for part in self.parts if isinstance(part, ImageChunk | ImageAssetChunk))

    @property
    def has_reasoning(self) -> bool:
        """Whether reasoning is a part of it."""
        return bool(self.reasoning) or any(isinstance(part, ReasoningPart) for part in self.parts)

    @property
    def is_text(self) -> bool:
        """Whether it has text alone: no images, no reasoning, and nothing about calls of tools."""
        return not (self.parts or self.tool_calls or self.tool_call_id or self.reasoning)

    @property
    def is_pair(self) -> bool:
        """Whether it is a role and a text, and nothing else."""
        return self.is_text and not self.name and self.weight is None


@dataclasses.dataclass(frozen=True, slots=True)
class Conversation:
    """Messages in order."""

    messages: tuple[ChatMessage, ...]
    """The messages."""
    tools: tuple[ToolSpec, ...] = ()
    """The tools that the model may call, each name once. A renderer without a form for them refuses them."""


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
    choice_labels: tuple[str, ...] = ()
    """The labels of the choices, in their order, if the data have them: a target that is a label is that choice."""

    @property
    def expected(self) -> tuple[str, ...]:
        """The targets; if there are none, the last message of a conversation that ends with the assistant's answer."""
        if self.targets or not isinstance(self.input, Conversation):
            return self.targets
        *asked, last = self.input.messages or (None,)
        if not asked or last is None or last.role != "assistant" or not (last.is_text or last.content):
            return ()
        return (last.content,)
