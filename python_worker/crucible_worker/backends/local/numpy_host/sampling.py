"""Generates a sample, token by token, as `host.sampling` does: the same random numbers choose the same tokens."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from crucible_worker.backends.local.arrays import floats_to_bytes, tokens_to_bytes
from crucible_worker.backends.local.numpy_host.characters import Characters
from crucible_worker.backends.local.numpy_host.network import Network

__all__ = ["generate", "likeliest", "normalized"]


def normalized(logits: np.ndarray) -> np.ndarray:
    """Log-probabilities of logits along the last axis, float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def likeliest(logprobs: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The likeliest tokens along the last axis, and their log-probabilities; among equal ones the lowest ids first."""
    tokens = np.argsort(-logprobs, axis=-1, kind="stable")[..., :count]
    return tokens, np.take_along_axis(logprobs, tokens, axis=-1)


def generate(
    network: Network, characters: Characters, prompt: np.ndarray, asked: dict[str, Any], index: int
) -> dict[str, Any]:
    """One of several samples of a prompt.

    Args:
        network: computes.
        characters: of the model.
        prompt: shape (n,), int64, n at least 1.
        asked: the request of the worker: max_tokens, temperature, top_p, top_k, seed, stop, top.
        index: of the sample; it draws from (seed, index).

    Returns:
        As `host.rows` returns it.
    """
    random = np.random.default_rng([secrets.randbits(128) if asked["seed"] is None else asked["seed"], index])
    stop: list[str] = asked["stop"]
    stop_tokens = network.stop_tokens | characters.special_among(stop)
    read = prompt
    tokens: list[int] = []
    logprobs: list[float] = []
    tops: list[tuple[np.ndarray, np.ndarray]] = []
    text, reason = "", "length"
    while len(tokens) < asked["max_tokens"]:
        logits = network.logits(read)[-1]
        token = _drawn(logits, asked, random) if asked["temperature"] > 0 else int(logits.argmax())
        tokens.append(token)
        distribution = normalized(logits)
        logprobs.append(float(distribution[token]))
        if asked["top"]:
            tops.append(likeliest(distribution, asked["top"]))
        text = characters.decode(tokens, special=False)
        if token in stop_tokens or any(each in text for each in stop):
            reason = "stop"
            break
        read = np.append(read, token)
    cuts = [cut for each in stop if (cut := text.find(each)) >= 0]
    return {
        "text": text[: min(cuts, default=None)],
        "tokens": tokens,
        "logprobs": logprobs,
        "stop_reason": reason,
        "top_tokens": tokens_to_bytes(np.array([tokens for tokens, _ in tops], np.int64)),
        "top_logprobs": floats_to_bytes(np.array([values for _, values in tops], np.float64)),
    }


def _drawn(logits: np.ndarray, asked: dict[str, Any], random: np.random.Generator) -> int:
    """A token drawn after temperature, top_k and top_p, in this order."""
    # The maximum is subtracted first, so that small temperatures cannot overflow.
    scaled = (logits - logits.max()).astype(np.float64) / asked["temperature"]
    top_k, top_p = asked["top_k"], asked["top_p"]
    order = np.arange(scaled.size)
    if top_p < 1 or (top_k is not None and top_k < scaled.size):
        order = np.argsort(-scaled, kind="stable")[:top_k]
    weights = np.exp(scaled[order])
    probabilities = weights / weights.sum()
    if top_p < 1:
        before = probabilities.cumsum() - probabilities
        probabilities = probabilities * (before < top_p)
    cumulative = probabilities.cumsum()
    found = int(np.searchsorted(cumulative, cumulative[-1] * random.random(), side="right"))
    # Rounding can put the point on the total; then the last token with any mass is chosen.
    return int(order[min(found, int(probabilities.nonzero()[0][-1]))])
