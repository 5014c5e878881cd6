"""What the benchmarks share: `--json`, medians, and one way to print a claim next to its measurement, and to fail."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import statistics
import sys
from collections.abc import Sequence

__all__ = ["Claim", "arguments", "report"]

_OF_A_MACHINE = re.compile(r"^([num]?s|[kMG]?B)$|/s$")
"""Units of times, rates and sizes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One measured claim."""

    name: str
    """What is measured."""
    ours: Sequence[float]
    """Our runs."""
    baseline: Sequence[float] = ()
    """Those of the baseline, measured in the same run, alternating with ours; empty without a baseline."""
    unit: str
    """Of both."""
    ratio: float | None = None
    """Of the two, as the claim states it."""
    claim: str
    """The promise in words, or that there is none."""
    at_least: float | None = None
    """The claim as a number: of the ratio if there is one, else of our median. Without a ratio only counts and shares
    are bounded: times, rates and sizes are those of one machine."""
    at_most: float | None = None
    """The same from above. A figure with neither bound is printed, not promised."""

    def __post_init__(self) -> None:
        """Refuse a bound that depends on the machine."""
        bounded = self.at_least is not None or self.at_most is not None
        if bounded and self.ratio is None and _OF_A_MACHINE.search(self.unit):
            raise ValueError(f"{self.name}: {self.unit} of a machine are printed; bound a ratio to a baseline")

    @property
    def figure(self) -> float:
        """The figure that the bounds apply to."""
        return statistics.median(self.ours) if self.ratio is None else self.ratio

    @property
    def missed(self) -> str:
        """How the claim is missed; empty if it holds. NaN misses every bound."""
        told = f"{self.name}: {'ratio ' if self.ratio is not None else ''}{self.figure:,.4g}"
        if self.at_least is not None and not self.figure >= self.at_least:
            return f"{told}, at least {self.at_least:,.4g} is claimed"
        if self.at_most is not None and not self.figure <= self.at_most:
            return f"{told}, at most {self.at_most:,.4g} is claimed"
        return ""


def arguments(description: str | None, *, device: bool = False) -> argparse.Namespace:
    """Parse `--json` and `--runs`; also `--device` of a benchmark that has a `device`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=int, default=5, help="runs of each side; the median is reported")
    if device:
        parser.add_argument("--device", default="cpu", help="of both sides: cpu, cuda or cuda:N")
    return parser.parse_args()


def report(claims: Sequence[Claim], *, as_json: bool) -> None:
    """Print claims, one line each, or as one JSON object; a missed claim is reported on stderr, and exits with 1.

    Raises:
        SystemExit: a claim is missed.
    """
    if as_json:
        print(json.dumps({claim.name: _row(claim) for claim in claims}, indent=2))
    else:
        for claim in claims:
            print(_line(claim))
    if missed := [claim.missed for claim in claims if claim.missed]:
        print(*(f"missed: {what}" for what in missed), sep="\n", file=sys.stderr)
        raise SystemExit(1)


def _line(claim: Claim) -> str:
    row = _row(claim)
    baseline = "" if row["baseline"] is None else f", baseline {row['baseline']:,.4g} {claim.unit}"
    ratio = "" if claim.ratio is None else f", ratio {claim.ratio:.3g}"
    return f"{claim.name}: {row['ours']:,.4g} {claim.unit}{baseline}{ratio}   (claim: {claim.claim})"


def _row(claim: Claim) -> dict[str, object]:
    return {
        "ours": statistics.median(claim.ours),
        "baseline": statistics.median(claim.baseline) if claim.baseline else None,
        "unit": claim.unit,
        "ratio": claim.ratio,
        "claim": claim.claim,
        "at_least": claim.at_least,
        "at_most": claim.at_most,
        "holds": not claim.missed,
        "runs": len(claim.ours),
    }
