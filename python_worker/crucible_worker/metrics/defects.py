"""Reasons why values have no mean, with the same wording everywhere: "3 of 1,024 log-probabilities are NaN"."""

from __future__ import annotations

import dataclasses

import numpy as np

__all__ = ["BEYOND_FLOAT64", "NO_ACTION_TOKENS", "Defects", "share"]

BEYOND_FLOAT64 = "the sum is beyond float64"
"""Every value is finite, but the result is not."""
NO_ACTION_TOKENS = "no action tokens"
"""A mean over nothing."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Defects:
    """Values that are not finite among those that count."""

    nan: int = 0
    """NaN."""
    minus_inf: int = 0
    """-inf; as a log-probability, a token that the model considers impossible."""
    plus_inf: int = 0
    """+inf; no distribution has such a log-probability."""

    @classmethod
    def among(cls, values: np.ndarray) -> Defects:
        """Count them in floats of any shape."""
        return cls(
            nan=int(np.count_nonzero(np.isnan(values))),
            minus_inf=int(np.count_nonzero(np.isneginf(values))),
            plus_inf=int(np.count_nonzero(np.isposinf(values))),
        )

    def __add__(self, other: Defects) -> Defects:
        return Defects(
            nan=self.nan + other.nan,
            minus_inf=self.minus_inf + other.minus_inf,
            plus_inf=self.plus_inf + other.plus_inf,
        )

    def reason(self, total: int, what: str = "log-probabilities", *, of: str = "") -> str:
        """The worst of them in words; empty if there is none.

        Args:
            total: how many values count.
            what: the noun for the values, plural.
            of: their owner, added in parentheses.
        """
        for count, kind in ((self.nan, "NaN"), (self.minus_inf, "-inf"), (self.plus_inf, "+inf")):
            if count:
                return share(count, total, what, kind) + (f" ({of})" if of else "")
        return ""


def share(count: int, total: int, what: str, kind: str) -> str:
    """How many of them are of this kind, in words."""
    return f"{count:,} of {total:,} {what} {'is' if count == 1 else 'are'} {kind}"
