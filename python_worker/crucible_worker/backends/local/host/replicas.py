"""Passes of a small model side by side: it has one thread to itself, so several cores take several passes.

Each thread has a copy of the model, as nobody says that one may be asked by two threads at a time: some keep tables for
the longest sequence so far. A copy is made when it is first needed; it has 10 million parameters at most.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from crucible_worker.backends.local.host.loading import LoadedModel
from crucible_worker.backends.local.host.scoring import Part, measure

__all__ = ["WORTH_A_THREAD", "Measured", "Replicas"]

WORTH_A_THREAD = 256
"""Positions of a pass beside which another one is made: a shorter one is over before a second thread has its turn."""
_MOST = 4
"""Threads that measure."""

_log = logging.getLogger(__name__)

Measured = list[bytes] | Exception
"""The results of a part's rows, or why there are none."""


class Replicas:
    """Measures parts of one model. Everything is called from one thread."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._loaded = loaded
        self._copies: list[LoadedModel] = []
        self.width = min(_MOST, len(os.sched_getaffinity(0))) if loaded.single_threaded else 1
        """How many passes at a time."""

    def measure(self, parts: Sequence[Part]) -> list[Measured]:
        """Measure parts, at most `width` of them, each by a separate pass."""
        first, *others = parts
        copies = self._have(len(others)) if others else []
        running = [self._threads.submit(_in_thread, *each) for each in zip(copies, others)]
        own = [_measured(self._loaded, part) for part in (first, *others[len(copies) :])]
        return [own[0], *(future.result() for future in running), *own[1:]]

    def _have(self, count: int) -> list[LoadedModel]:
        """So many copies of the model; fewer where it cannot be copied, which is not tried again."""
        try:
            while len(self._copies) < count:
                copied = copy.deepcopy(self._loaded.model)
                self._copies.append(dataclasses.replace(self._loaded, model=copied))
        except Exception:  # what a model of somebody's is made of may refuse it in any way
            _log.warning("a model cannot be copied: its passes are made one after the other", exc_info=True)
            self.width = 1 + len(self._copies)
        return self._copies[:count]

    @functools.cached_property
    def _threads(self) -> ThreadPoolExecutor:
        # Started when first needed. One more thread for a pass would cost more than it brings, as for the model itself.
        return ThreadPoolExecutor(self.width - 1, "measuring", torch.set_num_threads, (1,))


@torch.inference_mode()
def _in_thread(loaded: LoadedModel, part: Part) -> Measured:
    return _measured(loaded, part)


def _measured(loaded: LoadedModel, part: Part) -> Measured:
    try:
        return measure(loaded, part)
    except Exception as error:  # whatever it is, it is answered; the host goes on
        return error
