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

from crucible_worker.backends.local.host.company import Company
from crucible_worker.backends.local.host.loading import LoadedModel
from crucible_worker.backends.local.host.scoring import Part

__all__ = ["WORTH_A_THREAD", "Measured", "SideBySide"]

WORTH_A_THREAD = 256
"""Positions of a pass beside which another one is made: a shorter one is over before a second thread has its turn."""
_MOST = 4
"""Threads that measure."""

_log = logging.getLogger(__name__)

Measured = list[bytes] | Exception
"""The results of a part's rows, or why there are none."""


class SideBySide:
    """Measures parts of one model. Everything is called from one thread."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._own = Company(loaded)
        self._copies: list[Company] = []
        self._loaded = loaded
        self.width = min(_MOST, len(os.sched_getaffinity(0))) if loaded.single_threaded else 1
        """How many passes at a time."""

    def most(self, part: Part, waiting: int) -> int:
        """See `Company.most`."""
        return self._own.most(part, waiting)

    def measure(self, groups: Sequence[Sequence[Part]]) -> list[list[Measured]]:
        """Measure groups of parts, those of a group by one pass if they may be, at most `width` groups.

        Only its own fault is a part's end: where a pass fails, its parts are measured one by one.
        """
        first, *others = groups
        copies = self._have(len(others)) if others else []
        running = [self._threads.submit(_in_thread, *each) for each in zip(copies, others)]
        own = [_measured(self._own, group) for group in (first, *others[len(copies) :])]
        return [own[0], *(future.result() for future in running), *own[1:]]

    def _have(self, count: int) -> list[Company]:
        """So many copies of the model; fewer where it cannot be copied, which is not tried again."""
        try:
            while len(self._copies) < count:
                copied = copy.deepcopy(self._loaded.model)
                self._copies.append(Company(dataclasses.replace(self._loaded, model=copied)))
        except Exception:  # what a model of somebody's is made of may refuse it in any way
            _log.warning("a model cannot be copied: its passes are made one after the other", exc_info=True)
            self.width = 1 + len(self._copies)
        return self._copies[:count]

    @functools.cached_property
    def _threads(self) -> ThreadPoolExecutor:
        # Started when first needed. One more thread for a pass would cost more than it brings, as for the model itself.
        return ThreadPoolExecutor(self.width - 1, "measuring", torch.set_num_threads, (1,))


@torch.inference_mode()
def _in_thread(company: Company, parts: Sequence[Part]) -> list[Measured]:
    return _measured(company, parts)


def _measured(company: Company, parts: Sequence[Part]) -> list[Measured]:
    try:
        return [*company.measure(parts)]
    except Exception as error:  # whatever it is, it is answered; the host goes on
        if len(parts) == 1:
            return [error]
        return [result for part in parts for result in _measured(company, [part])]
