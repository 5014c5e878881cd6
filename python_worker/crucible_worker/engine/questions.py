"""Progress of samples that have many questions each, such as a task of Inspect."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType

from crucible_worker.journal.records import SampleKey

__all__ = ["Questions"]

_NONE: Mapping[str, float] = MappingProxyType({})


class Questions:
    """Counts the questions of one attempt, those of samples that have ended included."""

    def __init__(self) -> None:
        self._counts: dict[SampleKey, tuple[int, int]] = {}

    def of(self, place: SampleKey) -> Callable[[int, int], None]:
        """The function that a sample calls with the number of its questions that are done, and of all."""
        return functools.partial(self._count, place)

    @property
    def measurements(self) -> Mapping[str, float]:
        """`questions_done` and `questions_total` of the samples that have begun; empty if none has questions."""
        if not self._counts:
            return _NONE
        done, total = map(sum, zip(*self._counts.values()))
        return {"questions_done": float(done), "questions_total": float(total)}

    def _count(self, place: SampleKey, done: int, total: int) -> None:
        self._counts[place] = (done, total)
