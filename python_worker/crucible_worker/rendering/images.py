"""Images in a rendered conversation: chunks of the model's input, in the place where the template has them.

<|vision_start|> -1 <|vision_end|> What is this?      tokens as a tokenizer returns them
tokens, image, tokens                                  chunks of the input, the image as the caller sent it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Datum,
    ImageAssetChunk,
    ImageChunk,
    ModelInput,
    ModelInputChunk,
    TokensChunk,
)

__all__ = ["images_of", "input_of", "shifted", "weights_of"]

Image = ImageChunk | ImageAssetChunk

MAX_IMAGE_TOKENS = 1_000_000
"""Most tokens that the images of one input take together, for an example: targets and weights are made for each."""


def images_of(input: str | Conversation) -> tuple[Image, ...]:
    """The images of a conversation, in order."""
    messages: Iterable[ChatMessage] = input.messages if isinstance(input, Conversation) else ()
    return tuple(image for message in messages for image in message.images)


def input_of(tokens: Sequence[int] | np.ndarray, images: Sequence[Image]) -> ModelInput:
    """The input of rendered tokens, with each image in its place.

    Args:
        tokens: shape (n,); -1 is the place of the first image, -2 of the second one.
        images: all of them.
    """
    if not images:
        return ModelInput.of(tokens)
    ids = np.asarray(tokens, np.int64)
    chunks: list[ModelInputChunk] = []
    start = 0
    for place in np.flatnonzero(ids < 0).tolist():
        if place > start:
            chunks.append(TokensChunk(tokens=ids[start:place]))
        chunks.append(images[-int(ids[place]) - 1])
        start = place + 1
    if start < len(ids):
        chunks.append(TokensChunk(tokens=ids[start:]))
    return ModelInput(tuple(chunks))


def weights_of(tokens: np.ndarray, weights: np.ndarray, images: Sequence[Image]) -> np.ndarray:
    """The weights of an input with images: 0 for each token that an image takes.

    Raises:
        InvalidField: an image does not say how many tokens it takes, or all take more than `MAX_IMAGE_TOKENS`.
    """
    if not images:
        return weights
    lengths = np.ones(len(tokens), np.int64)
    weights = np.where(tokens < 0, 0, weights)
    places = np.flatnonzero(tokens < 0)
    lengths[places] = [_length(images[-place - 1]) for place in tokens[places].tolist()]
    if (taken := int(lengths[places].sum())) > MAX_IMAGE_TOKENS:
        message = f"has images that take {taken:,} tokens together, at most {MAX_IMAGE_TOKENS:,} are accepted"
        raise InvalidField("input.messages", message)
    return np.repeat(weights, lengths).astype(np.float32)


def shifted(whole: ModelInput, weights: np.ndarray) -> Datum:
    """An input and its weights as a Datum: the input without its last token, targets and weights without the first one.

    The targets of images are 0, and so are their weights, as in tinker-cookbook.

    Raises:
        InvalidField: the input ends with an image, which cannot be a target.
    """
    *earlier, last = whole.chunks
    if not isinstance(last, TokensChunk):
        raise InvalidField("input.messages", "renders to an input that ends with an image: nothing can be predicted")
    rest = [TokensChunk(tokens=last.tokens[:-1])] if len(last.tokens) > 1 or not earlier else []
    targets = np.concatenate(list(_targets(whole.chunks)))
    return Datum(
        model_input=ModelInput((*earlier, *rest)),
        loss_fn_inputs={"target_tokens": targets[1:], "weights": weights[1:]},
    )


def _targets(chunks: Iterable[ModelInputChunk]) -> Iterator[np.ndarray]:
    for chunk in chunks:
        yield chunk.tokens if isinstance(chunk, TokensChunk) else np.zeros(_length(chunk), np.int64)


def _length(image: Image) -> int:
    if (count := image.expected_tokens) is None or count < 1:
        given = "without `expected_tokens`" if count is None else f"with `expected_tokens` of {count}"
        message = f"has an image {given}: weights need the number of tokens that it takes, at least 1"
        raise InvalidField("input.messages", message)
    return count
