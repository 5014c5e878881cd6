"""The measured tokens of a datum: shared by the evaluators that measure given tokens."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import numpy as np
from msgspec import Meta

from crucible_bridge.arrays import floats
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Datum, Sample, TokensChunk
from crucible_worker.rendering import TrainOn, check_input, check_weights

__all__ = [
    "ROLLING",
    "TrainOnOption",
    "Windows",
    "check_measured",
    "checked_targets",
    "sequence_of",
]

_TARGETS, _WEIGHTS = 'loss_fn_inputs["target_tokens"]', 'loss_fn_inputs["weights"]'

ROLLING: Final = "rolling"
"""Value of the option `windows`: text longer than the context is split."""

TrainOnOption: TypeAlias = Annotated[TrainOn, Meta(description="Which messages of a conversation have weight.")]
"""The type of the option `train_on`."""

Windows: TypeAlias = Annotated[
    Literal["rolling", "refuse"],
    Meta(
        description=(
            "How text without a target is handled if it is longer than the context, and that is known. rolling: it "
            "is measured in windows, each token once. refuse: it is an error of that sample."
        )
    ),
]
"""The type of the option `windows` of evaluators that measure texts as a whole."""


def check_measured(sample: Sample, renderer: str, train_on: str) -> None:
    """Refuse a Datum whose targets or weights are missing or do not fit its input, and an unaccepted conversation.

    Raises:
        InvalidField: names the array, or the conversation, if the renderer accepts none, or the weight of a message
            that would not count.
    """
    check_input(sample.input, renderer)
    check_weights(sample.input, train_on)
    if isinstance(sample.input, Datum):
        try:
            _structure(sample.input)
        except InvalidField as error:
            raise InvalidField(f"datum.{error.field}", error.message, reason=error.reason) from None


def checked_targets(datum: Datum) -> tuple[np.ndarray, np.ndarray]:
    """A datum's targets and weights, each of shape (T,), the weights finite.

    Raises:
        InvalidField: one is missing, is not such an array, or does not fit the input.
    """
    targets, weights = _structure(datum)
    if bad := int(np.count_nonzero(~np.isfinite(weights))):
        raise InvalidField(_WEIGHTS, f"holds {bad:,} values that are not finite, of {weights.size:,}")
    return targets, weights


def sequence_of(datum: Datum, why: str = "a sampling client measures no other targets") -> np.ndarray:
    """Input and last target of a datum with checked targets: the sequence for a sampling client, shape (T + 1,).

    Args:
        datum: the datum.
        why: the reason why it must be one sequence, for the error.

    Raises:
        InvalidField: a target that has weight is not the token that follows in the input, or the input is not text.
    """
    targets, weights = _structure(datum)
    tokens = datum.model_input.tokens()
    if np.any((targets[:-1] != tokens[1:]) & (weights[:-1] != 0)):
        raise InvalidField(_TARGETS, f"is not model_input shifted by one token, and {why}")
    return np.append(tokens, targets[-1])


def _structure(datum: Datum) -> tuple[np.ndarray, np.ndarray]:
    """A datum's targets and weights, each of shape (T,), whatever their values."""
    arrays = []
    for key, field in (("target_tokens", _TARGETS), ("weights", _WEIGHTS)):
        if key not in datum.loss_fn_inputs:
            raise InvalidField(field, "is missing")
        arrays.append(datum.loss_fn_inputs[key])
    targets, weights = arrays[0], floats(arrays[1], _WEIGHTS)
    if not isinstance(targets, np.ndarray) or targets.dtype.kind not in "iu":
        raise InvalidField(_TARGETS, f"holds {targets.dtype}, not token ids")
    if targets.ndim != 1 or targets.size == 0:
        raise InvalidField(_TARGETS, f"has shape {targets.shape}, one dimension with at least one token is needed")
    if weights.shape != targets.shape:
        raise InvalidField(_WEIGHTS, f"has shape {weights.shape}, target_tokens {targets.shape}")
    if all(isinstance(chunk, TokensChunk) for chunk in datum.model_input.chunks):
        length = datum.model_input.tokens().size
        if length != targets.size:
            raise InvalidField(_TARGETS, f"has {targets.size:,} tokens, model_input {length:,}")
    return targets, weights
