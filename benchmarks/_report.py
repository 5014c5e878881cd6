"""What the benchmarks share: `--json`, medians, and one way to print a claim beside what was measured."""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
from collections.abc import Sequence

__all__ = ["Claim", "arguments", "report"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One measured claim."""

    name: str
    """What is measured."""
    ours: Sequence[float]
    """Our runs."""
    rival: Sequence[float] = ()
    """The rival's, in the same process and in turn with ours; empty where a figure stands alone."""
    unit: str
    """Of both."""
    ratio: float | None = None
    """How many times better than the rival, by medians."""
    claim: str
    """What the README says."""


def arguments(description: str | None) -> argparse.Namespace:
    """Parse `--json` and `--runs`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=int, default=5, help="runs of each side, of which the median is told")
    return parser.parse_args()


def report(claims: Sequence[Claim], *, as_json: bool) -> None:
    """Print claims, one line each, or as one JSON object."""
    if as_json:
        print(json.dumps({claim.name: _row(claim) for claim in claims}, indent=2))
        return
    for claim in claims:
        row = _row(claim)
        rival = "" if row["rival"] is None else f", rival {row['rival']:,.4g} {claim.unit}"
        ratio = "" if claim.ratio is None else f", ratio {claim.ratio:.2f}"
        print(f"{claim.name}: {row['ours']:,.4g} {claim.unit}{rival}{ratio}   (claim: {claim.claim})")


def _row(claim: Claim) -> dict[str, object]:
    return {
        "ours": statistics.median(claim.ours),
        "rival": statistics.median(claim.rival) if claim.rival else None,
        "unit": claim.unit,
        "ratio": claim.ratio,
        "claim": claim.claim,
        "runs": len(claim.ours),
    }
