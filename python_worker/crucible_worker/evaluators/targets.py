"""The tokens of a datum that are measured: what evaluators share that measure given tokens."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import numpy as np
from msgspec import Meta

from crucible_bridge.arrays import floats
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Datum, Sample, TokensChunk
from crucible_worker.rendering import TrainOn, check_input

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
"""Of the option `windows`: what is longer than the context is cut."""

TrainOnOption: TypeAlias = Annotated[TrainOn, Meta(description="Which messages of a conversation have weight.")]
"""The type of the option `train_on`."""

Windows: TypeAlias = Annotated[
    Literal["rolling", "refuse"],
    Meta(
        description=(
            "What becomes of text without a target that is longer than the context, where that is known. rolling: it "
            "is measured in windows, each token once. refuse: it is an error of that sample."
        )
    ),
]
"""The type of the option `windows` of evaluators that measure texts as a whole."""


def check_measured(sample: Sample, renderer: str) -> None:
    """Refuse a Datum without targets or weights, or with such that do not fit its input; and what is not rendered.

    Raises:
        InvalidField: names the array, or the conversation that the renderer takes none of.
    """
    check_input(sample.input, renderer)
    if isinstance(sample.input, Datum):
        try:
            _structure(sample.input)
        except InvalidField as error:
            raise InvalidField(f"datum.{error.field}", error.message, reason=error.reason) from None


def checked_targets(datum: Datum) -> tuple[np.ndarray, np.ndarray]:
    """A datum's targets and weights, each of shape (T,), the weights finite.

    Raises:
        InvalidField: one is missing, is no array of that kind, or does not fit the input.
    """
    targets, weights = _structure(datum)
    if bad := int(np.count_nonzero(~np.isfinite(weights))):
        raise InvalidField(_WEIGHTS, f"holds {bad:,} values that are not finite, of {weights.size:,}")
    return targets, weights


def sequence_of(datum: Datum, why: str = "a sampling client knows no other targets") -> np.ndarray:
    """Input and last target of a datum whose targets were checked: what a sampling client measures, shape (T + 1,).

    Args:
        datum: it.
        why: these have to be one sequence, for the error.

    Raises:
        InvalidField: a target that has weight is not the token that follows in the input, or that is no text.
    """
    targets, weights = _structure(datum)
    tokens = datum.model_input.tokens()
    if np.any((targets[:-1] != tokens[1:]) & (weights[:-1] != 0)):
        raise InvalidField(_TARGETS, f"is not model_input moved by one token, and {why}")
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
