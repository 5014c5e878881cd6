"""Which training clients take the windows of one text together."""

from __future__ import annotations

import functools
from typing import TypeGuard

from crucible_worker.backends.base import TrainingClient, WindowsClient

__all__ = ["takes_windows"]


def takes_windows(client: TrainingClient) -> TypeGuard[WindowsClient]:
    """Whether a client is faster with the windows of one text than with data that have nothing in common."""
    return _is_windows_client(type(client))


@functools.cache
def _is_windows_client(kind: type[TrainingClient]) -> bool:
    # A protocol takes 10 us to look for its methods, and every sample has a client of its own.
    return issubclass(kind, WindowsClient)
