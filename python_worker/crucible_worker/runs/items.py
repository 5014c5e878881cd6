"""What an attempt still has to run, in its order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from crucible_worker.runs.lifecycle import Place
from crucible_worker.runs.preparation import Plan

__all__ = ["items_left"]


def items_left(plan: Plan, before: Iterable[int]) -> Iterator[tuple[Place, int]]:
    """Places without a final verdict, each with the number of its attempt.

    Args:
        plan: of the attempt.
        before: of every place that was run before, in their order: position, evaluator, repeat, attempts, and 1 if its
            verdict is final.
    """
    rows = zip(*[iter(before)] * 5, strict=True)
    row = next(rows, None)
    for place in _places(plan):
        key = (place.position, place.evaluator, place.repeat)
        while row is not None and row[:3] < key:
            row = next(rows, None)
        attempts, final = (0, False) if row is None or row[:3] != key else row[3:]
        if not final:
            yield place, attempts + 1


def _places(plan: Plan) -> Iterator[Place]:
    # Sample by sample, so that several evaluators advance side by side on the one client.
    for position in range(len(plan.samples)):
        for index, (_, evaluator) in enumerate(plan.evaluators):
            if index not in plan.refused:
                for repeat in range(evaluator.repeats):
                    yield Place(position, index, repeat)
