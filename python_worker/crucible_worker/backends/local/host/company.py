"""Which parts of different requests may be computed by one pass: those that are the same bit for bit alone.

An evaluation that is resumed must equal one that was not, to the last bit, and nobody knows what else was asked at the
time. As a rule, though, a batch changes last bits: another number of rows takes another path through the matrix
kernels, and threads share the work out by it. On one thread, parts of one shape as a rule keep their bits. Whether they
do depends on processor and library, so it is tried out: the first time that so many parts of a shape come together, the
first and the last of them are computed alone as well. Company that changes either is not kept again.

On the embedded models a batch is three times as fast as one part after the other. A larger model's passes are long
enough to be worth their own call, and use all threads; its parts stay alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from crucible_worker.backends.local.host.loading import LoadedModel
from crucible_worker.backends.local.host.scoring import POSITIONS_AT_ONCE, Part, measure

__all__ = ["MAX_PARTS", "Company"]

MAX_PARTS = 64
"""Parts of different requests that one pass computes."""
_MAX_KNOWN = 10_000
"""Shapes of company that are remembered; behind them it is tried out anew."""


class Company:
    """What has shown on this machine with one model. Everything is called from one thread."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._loaded = loaded
        self._keeps_bits: dict[tuple[int, ...], bool] = {}

    def most(self, part: Part, waiting: int) -> int:
        """How many parts of this one's shape to measure by one pass, of so many that wait: a power of two.

        Few sizes have to be tried out that way.
        """
        if not self._loaded.keeps_company:
            return 1
        prompt, rows, width = part.shape
        room = POSITIONS_AT_ONCE // max(prompt, rows * width, 1)
        return 1 << max(0, min(waiting, room, MAX_PARTS).bit_length() - 1)

    def measure(self, parts: Sequence[Part]) -> list[list[bytes]]:
        """The results of parts of one shape, each the same as if it were measured alone; see `scoring.measure`."""
        if len(parts) > 1:
            shape = (*parts[0].shape, len(parts))
            known = self._keeps_bits.get(shape)
            if known is not False:
                found = measure(self._loaded, parts)
                if known or self._try_out(shape, parts, found):
                    return found
        return [result for part in parts for result in measure(self._loaded, [part])]

    def _try_out(self, shape: tuple[int, ...], parts: Sequence[Part], found: list[list[bytes]]) -> bool:
        if parts[0].greedy:
            # The likeliest token shows little of the numbers.
            parts = [dataclasses.replace(part, greedy=False) for part in parts]
            found = measure(self._loaded, parts)
        alone = [measure(self._loaded, [part])[0] for part in (parts[0], parts[-1])]
        if len(self._keeps_bits) >= _MAX_KNOWN:
            self._keeps_bits.clear()
        self._keeps_bits[shape] = alone == [found[0], found[-1]]
        return self._keeps_bits[shape]
