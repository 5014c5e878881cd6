"""Several tests at once: p-values that are corrected for their number.

Holm's method (1979). Of m p-values in ascending order, the i-th becomes

    max over j <= i of min(1, (m - j + 1) p_j)

If every hypothesis holds, the smallest corrected one is at most alpha with probability alpha or less, whatever the
dependence of the tests.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["holm"]


def holm(chances: Sequence[float]) -> tuple[float, ...]:
    """Correct p-values for their number.

    Args:
        chances: p-values, each from 0 to 1.

    Returns:
        The corrected ones, in the order given.
    """
    corrected, largest = [0.0] * len(chances), 0.0
    for rank, index in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        largest = max(largest, min(1.0, (len(chances) - rank) * chances[index]))
        corrected[index] = largest
    return tuple(corrected)
