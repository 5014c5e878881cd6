"""Token ids and log-probabilities between worker and host: bytes of little-endian int64 and float64."""

from __future__ import annotations

import numpy as np

__all__ = ["TOKEN_BYTES", "floats_from_bytes", "floats_to_bytes", "tokens_from_bytes", "tokens_to_bytes"]

TOKEN_BYTES = 8
"""Bytes of a token id."""


def tokens_to_bytes(tokens: np.ndarray) -> bytes:
    """Token ids of any integer type, as bytes."""
    return tokens.astype("<i8", copy=False).tobytes()


def tokens_from_bytes(data: bytes) -> np.ndarray:
    """Token ids, shape (n,), int64, read-only."""
    return np.frombuffer(data, "<i8")


def floats_to_bytes(values: np.ndarray) -> bytes:
    """Floats of any precision, as bytes of float64."""
    return values.astype("<f8", copy=False).tobytes()


def floats_from_bytes(data: bytes) -> np.ndarray:
    """Floats, shape (n,), float64, read-only."""
    return np.frombuffer(data, "<f8")
