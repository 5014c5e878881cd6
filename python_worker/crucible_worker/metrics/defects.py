"""What keeps values from having a mean, in one wording everywhere: "3 of 1,024 log-probabilities are NaN"."""

from __future__ import annotations

import dataclasses

import numpy as np

__all__ = ["BEYOND_FLOAT64", "NO_ACTION_TOKENS", "Defects", "share"]

BEYOND_FLOAT64 = "the sum is beyond float64"
"""Every value is finite, what comes of them is not."""
NO_ACTION_TOKENS = "no action tokens"
"""A mean over nothing."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Defects:
    """Values that are not finite among those that count."""

    nan: int = 0
    """NaN."""
    minus_inf: int = 0
    """-inf; as a log-probability, a token that the model holds for impossible."""
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
        """The worst of them in words; empty where there is none.

        Args:
            total: how many values count.
            what: what they are, plural.
            of: whose they are, said in parentheses.
        """
        for count, kind in ((self.nan, "NaN"), (self.minus_inf, "-inf"), (self.plus_inf, "+inf")):
            if count:
                return share(count, total, what, kind) + (f" ({of})" if of else "")
        return ""


def share(count: int, total: int, what: str, kind: str) -> str:
    """Say how many of them are so."""
    return f"{count:,} of {total:,} {what} {'is' if count == 1 else 'are'} {kind}"
