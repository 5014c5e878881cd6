"""Which parts of different requests may be computed by one pass: those that are the same bit for bit alone.

An evaluation that is resumed must equal one that was not, to the last bit, and nobody knows what else was asked at the
time. As a rule, though, a batch changes last bits: another number of rows takes another path through the matrix
kernels, and threads share the work out by it. On one thread, the embedded models keep the bits of parts of one shape.
Whether they do depends on processor and library, so it is tried out: the first time that so many parts of a shape come
together, the first and the last of them are computed alone as well. Where either changes, the model keeps no company
from then on.

Of other models no such trial says enough: many change a bit for some tokens of a shape, and none for others. A larger
model's passes use all threads besides, and are long enough to be worth their own call. Parts of both stay alone. On the
embedded models 64 questions take a sixth of the time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from crucible_worker.backends.local.host.loading import LoadedModel
from crucible_worker.backends.local.host.scoring import POSITIONS_AT_ONCE, Part, measure

__all__ = ["MAX_PARTS", "Company"]

_SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64)
"""How many parts of different requests one pass computes: few sizes, as each has to be tried out. A pass that is not
full repeats its last part."""
MAX_PARTS = _SIZES[-1]
"""More than that no pass computes."""
_MAX_KNOWN = 10_000
"""Shapes of company that are remembered; behind them it is tried out anew."""


class Company:
    """What has shown on this machine with one model. Everything is called from one thread."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._loaded = loaded
        self._kept = loaded.keeps_company
        self._tried: set[tuple[int, ...]] = set()

    def most(self, part: Part, waiting: int) -> int:
        """How many parts of this one's shape to measure by one pass, of so many that wait."""
        return min(waiting, self._room(part.shape))

    def measure(self, parts: Sequence[Part]) -> list[list[bytes]]:
        """The results of parts of one shape, each the same as if it were measured alone; see `scoring.measure`."""
        if len(parts) > 1 and self._kept:
            size = next(size for size in _SIZES if size >= len(parts))
            shape = (*parts[0].shape, size)
            full = [*parts, *[parts[-1]] * (size - len(parts))]
            found = measure(self._loaded, full)
            if shape in self._tried or self._try_out(shape, full, found):
                return found[: len(parts)]
        return [result for part in parts for result in measure(self._loaded, [part])]

    def _room(self, shape: tuple[int, int, int]) -> int:
        """The greatest size of a pass over parts of this shape."""
        if not self._kept:
            return 1
        prompt, rows, width = shape
        fit = POSITIONS_AT_ONCE // max(prompt, rows * width, 1)
        return max((size for size in _SIZES if size <= fit), default=1)

    def _try_out(self, shape: tuple[int, ...], parts: Sequence[Part], found: list[list[bytes]]) -> bool:
        if parts[0].greedy:
            # The likeliest token shows little of the numbers.
            parts = [dataclasses.replace(part, greedy=False) for part in parts]
            found = measure(self._loaded, parts)
        alone = [measure(self._loaded, [part])[0] for part in (parts[0], parts[-1])]
        self._kept = alone == [found[0], found[-1]]
        if len(self._tried) >= _MAX_KNOWN:
            self._tried.clear()
        if self._kept:
            self._tried.add(shape)
        return self._kept
