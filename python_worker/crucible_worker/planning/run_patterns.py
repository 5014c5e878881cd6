"""Plans for runs that are not known yet, by patterns of run ids: "lab-*" fits "lab-7" and "lab-".

A "*" stands for any text, an empty one included; every other character stands for itself.
"""

from __future__ import annotations

import dataclasses

from crucible_bridge.types import EvaluationPlan
from crucible_bridge.types.bounds import EVALUATION_PLAN_PLAN_ID_MAX_BYTES

__all__ = ["PatternPlan", "fits"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PatternPlan:
    """A plan for every run whose id fits a pattern."""

    runs: str
    """The pattern."""
    plan: EvaluationPlan
    """The plan; its plan_id and run_id are replaced by the run's id."""

    def fits(self, run_id: str) -> bool:
        """Whether this is the plan of a run; its id must be able to be the id of a plan."""
        return len(run_id.encode()) <= EVALUATION_PLAN_PLAN_ID_MAX_BYTES and fits(self.runs, run_id)

    def of(self, run_id: str) -> EvaluationPlan:
        """The plan of a run."""
        return dataclasses.replace(self.plan, plan_id=run_id, run_id=run_id)


def fits(pattern: str, text: str) -> bool:
    """Whether a text fits a pattern; each part between two stars is searched for once, from left to right."""
    first, *others = pattern.split("*")
    if not others:
        return text == pattern
    *middle, last = others
    start, end = len(first), len(text) - len(last)
    if end < start or not (text.startswith(first) and text.endswith(last)):
        return False
    for part in middle:
        found = text.find(part, start, end)
        if found < 0:
            return False
        start = found + len(part)
    return True
