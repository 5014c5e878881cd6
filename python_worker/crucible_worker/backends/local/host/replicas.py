"""Concurrent passes of a small model: one pass uses one thread, so several cores compute several passes.

Each thread has a copy of the model, as models need not be thread-safe: some store tables for the longest sequence so
far. A copy is made when it is first needed; it has 10 million parameters at most.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from crucible_worker.backends.local.host.distributions import TokenDistributions
from crucible_worker.backends.local.host.loading import LoadedModel
from crucible_worker.backends.local.host.scoring import Part

__all__ = ["WORTH_A_THREAD", "Measured", "Replicas"]

WORTH_A_THREAD = 256
"""Positions from which passes are computed concurrently: a shorter one is over before a second thread runs."""
_MOST = 4
"""Most threads that measure."""

_log = logging.getLogger(__name__)

Measured = Sequence[Any] | Exception
"""The results of a part's rows, or the error."""


class Replicas:
    """Measures parts of one model. Everything is called from one thread."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._loaded = loaded
        self._copies: list[LoadedModel] = []
        self.width = min(_MOST, len(os.sched_getaffinity(0))) if loaded.single_threaded else 1
        """Number of concurrent passes."""

    def measure(self, parts: Sequence[Part | TokenDistributions]) -> list[Measured]:
        """Measure parts, at most `width` of them, each by a separate pass."""
        first, *others = parts
        copies = self._have(len(others)) if others else []
        running = [self._threads.submit(_in_thread, *each) for each in zip(copies, others)]
        own = [_measured(self._loaded, part) for part in (first, *others[len(copies) :])]
        return [own[0], *(future.result() for future in running), *own[1:]]

    def _have(self, count: int) -> list[LoadedModel]:
        """Up to `count` copies of the model; fewer if it cannot be copied, which is not tried again."""
        try:
            while len(self._copies) < count:
                copied = copy.deepcopy(self._loaded.model)
                self._copies.append(dataclasses.replace(self._loaded, model=copied))
        except Exception:  # a custom model may raise any error here
            _log.warning("a model cannot be copied: its passes are computed one after the other", exc_info=True)
            self.width = 1 + len(self._copies)
        return self._copies[:count]

    @functools.cached_property
    def _threads(self) -> ThreadPoolExecutor:
        # Started when first needed. A second thread for a pass would cost more than it saves, as for the model itself.
        return ThreadPoolExecutor(self.width - 1, "measuring", torch.set_num_threads, (1,))


@torch.inference_mode()
def _in_thread(loaded: LoadedModel, part: Part | TokenDistributions) -> Measured:
    return _measured(loaded, part)


def _measured(loaded: LoadedModel, part: Part | TokenDistributions) -> Measured:
    try:
        return part.measured(loaded)
    except Exception as error:  # any error is an answer; the host continues
        return error
