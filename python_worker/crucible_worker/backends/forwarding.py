"""Which training clients take the parts of one sample together."""

from __future__ import annotations

import functools
from typing import TypeGuard

from crucible_worker.backends.base import PartsClient, TrainingClient

__all__ = ["takes_parts"]


def takes_parts(client: TrainingClient) -> TypeGuard[PartsClient]:
    """Whether a client is faster with the parts of one sample than with data that have nothing in common."""
    return _is_parts_client(type(client))


@functools.cache
def _is_parts_client(kind: type[TrainingClient]) -> bool:
    # A protocol takes 10 us to look for its methods, and every sample has a client of its own.
    return issubclass(kind, PartsClient)
