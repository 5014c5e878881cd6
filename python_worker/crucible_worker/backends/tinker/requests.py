"""Checks of requests before they are sent: the library checks nothing, and a service checks late."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Datum, ModelInput, SamplingParams
from crucible_worker.backends.distributions import NO_TOKEN
from crucible_worker.backends.sampling_checks import check_sampling

__all__ = ["MAX_SEED", "MAX_TOKEN", "check_target_rows", "check_targets", "each_seeded", "pairs_of", "tokens_of"]

MAX_TOKEN = (1 << 31) - 1
"""Token ids have 32 bits on the wire."""

MAX_SEED = (1 << 31) - 1
"""Seeds are reduced to this range, which every server accepts."""


def each_seeded(params: SamplingParams, num_samples: int) -> list[tuple[SamplingParams, int]]:
    """Split a request for samples into those to send, each with its number of samples.

    One request is enough, unless there is a seed: then each sample has its own request with a different seed.

    Raises:
        InvalidField: a parameter is out of range.
    """
    check_sampling(params, num_samples)
    if "" in params.stop:
        raise InvalidField(f"sampling.stop[{params.stop.index('')}]", "is empty")
    if params.seed is None:
        return [(params, num_samples)]
    seeds = [(params.seed + index) & MAX_SEED for index in range(num_samples)]
    if params.temperature == 0:
        return [(dataclasses.replace(params, seed=seeds[0]), num_samples)]
    return [(dataclasses.replace(params, seed=seed), 1) for seed in seeds]


def tokens_of(prompt: ModelInput) -> list[int]:
    """The tokens of a prompt, at least one.

    Raises:
        InvalidField: there is none, or an image, or an invalid token id.
    """
    tokens: list[int] = _tokens(prompt, "prompt").tolist()
    return tokens


def check_targets(count: int, targets: Sequence[tuple[int, int]]) -> None:
    """Refuse targets outside a prompt of `count` tokens.

    Raises:
        InvalidField: there is none, or one is no token id or is outside the prompt.
    """
    if not targets:
        raise InvalidField("targets", "is empty")
    if not all(0 < place < count for place, _ in targets):
        raise InvalidField("targets", f"has positions outside of 1 to {count - 1}")
    _known(np.array([token for _, token in targets], np.int64), "targets")


def check_target_rows(targets: np.ndarray) -> None:
    """Refuse targets that are no token ids, but for `NO_TOKEN`.

    Raises:
        InvalidField: names the first one.
    """
    unknown = (targets < NO_TOKEN) | (targets > MAX_TOKEN)
    if unknown.any():
        row, column = np.unravel_index(int(unknown.argmax()), targets.shape)
        raise InvalidField(f"targets[{row}][{column}]", f"is {targets[row, column]}, which is no token id")


def pairs_of(data: Sequence[Datum]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Input and `target_tokens` of each datum, int64 and of one shape.

    Raises:
        InvalidField: names the datum, and what is missing, is no token id, or has another length.
    """
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    for index, datum in enumerate(data):
        field = f'data[{index}].loss_fn_inputs["target_tokens"]'
        tokens = _tokens(datum.model_input, f"data[{index}].model_input")
        targets = datum.loss_fn_inputs.get("target_tokens")
        if targets is None:
            raise InvalidField(field, "is missing")
        if not isinstance(targets, np.ndarray) or targets.dtype.kind not in "iu":
            raise InvalidField(field, f"holds {targets.dtype}, not token ids")
        if targets.shape != tokens.shape:
            raise InvalidField(field, f"has shape {targets.shape}, model_input {tokens.shape}")
        pairs.append((tokens, _known(targets, field).astype(np.int64, copy=False)))
    return pairs


def _tokens(model_input: ModelInput, field: str) -> np.ndarray:
    try:
        tokens = model_input.tokens()
    except InvalidField as error:  # an image; the error has only the path within the input
        raise InvalidField(error.field.replace("model_input", field, 1), error.message) from None
    if tokens.size == 0:
        raise InvalidField(field, "is empty: a model needs at least one token")
    return _known(tokens, field)


def _known(tokens: np.ndarray, field: str) -> np.ndarray:
    unknown = (tokens < 0) | (tokens > MAX_TOKEN)
    if unknown.any():
        index = int(unknown.argmax())
        raise InvalidField(f"{field}[{index}]", f"is {tokens[index]}, which is no token id")
    return tokens
