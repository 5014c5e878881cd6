"""Text to be measured as a whole: all its tokens and all its bytes count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Conversation, Datum, ModelInput, Sample
from crucible_worker.backends.base import Tokenizer
from crucible_worker.rendering.prompts import encode_answered, require_tokenizer
from crucible_worker.rendering.renderers import AUTO

__all__ = ["is_whole", "render_behind", "render_whole"]


def is_whole(input: str | Conversation | Datum, targets: Sequence[str]) -> TypeGuard[str]:
    """Whether the input of a sample is text without a target, which is measured as a whole."""
    return isinstance(input, str) and not targets


async def render_whole(tokenizer: Tokenizer | None, text: str) -> Datum:
    """Render a text of which all tokens count; the first one follows the token that begins a text.

    That is the model's BOS token, or else its EOS token, which separates texts in training.

    Returns:
        `target_tokens` int64 and `weights` float32, shape (n,), n the text's tokens.

    Raises:
        FailedPrecondition: the model has no tokenizer (NO_TOKENIZER), or neither of those tokens (NO_PREFIX_TOKEN).
        InvalidField: the text has no tokens.
    """
    known = require_tokenizer(tokenizer)
    begin = known.eos_token_id if known.bos_token_id is None else known.bos_token_id
    if begin is None:
        raise FailedPrecondition(
            "the model has no token that begins a text: its first token cannot be measured",
            reason=Reason.NO_PREFIX_TOKEN,
        )
    tokens = list(await known.encode_continuation(text))
    if begin == known.bos_token_id:  # with special tokens, the text itself may begin with it
        tokens = tokens[next((index for index, token in enumerate(tokens) if token != begin), len(tokens)) :]
    if not tokens:
        raise InvalidField("input", "has no tokens: there is nothing to measure")
    return _counted([begin], tokens)


async def render_behind(tokenizer: Tokenizer | None, sample: Sample, renderer: str = AUTO) -> Datum:
    """Render text with a target (the first of several): only the target's tokens count, and nothing follows them.

    The delimiter before the target counts too, and so does the space of `role_colon`.

    Raises:
        FailedPrecondition: the model has no tokenizer, or the renderer cannot be used with it.
        InvalidField: the target has no tokens.
    """
    assert not isinstance(sample.input, Datum)  # the evaluators of bytes refuse it before
    known = require_tokenizer(tokenizer)
    prompt, (answer,) = await encode_answered(known, sample.input, sample.targets[:1], renderer)
    if not answer:
        raise InvalidField("targets[0]", "has no tokens")
    return _counted(list(prompt), list(answer))


def _counted(before: list[int], tokens: list[int]) -> Datum:
    whole = np.array([*before, *tokens], np.int64)
    weights = np.zeros(whole.size - 1, np.float32)
    weights[len(before) - 1 :] = 1
    inputs = {"target_tokens": whole[1:], "weights": weights}
    return Datum(model_input=ModelInput.of(whole[:-1]), loss_fn_inputs=inputs)
