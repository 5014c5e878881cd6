"""What an attempt still has to run, in its order: evaluator by evaluator, so that each ends as early as it can."""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterator, Mapping, Sequence

from crucible_bridge.types import EvaluatorKind
from crucible_worker.engine.preparation import Plan
from crucible_worker.evaluators.base import Evaluator, HasAuxiliaryModels, HoldsProcesses, kinds_of
from crucible_worker.journal.records import SampleKey

__all__ = ["finals_in", "in_turn", "items_left"]


def items_left(plan: Plan, before: Mapping[int, array[int]], to_run: Container[int]) -> Iterator[tuple[SampleKey, int]]:
    """Keys of samples without a final verdict, each with the number of its attempt.

    Args:
        plan: of the attempt.
        before: by evaluator, four numbers for each sample that was run before, in the data set's order: position,
            repeat, attempts, and 1 if its verdict is final.
        to_run: evaluators that have samples to run.
    """
    for index in in_turn(plan):
        if index in to_run:
            yield from _left_of(plan, index, before.get(index, ()))


def in_turn(plan: Plan) -> Sequence[int]:
    """Evaluators by index: those with the fewest steps per sample first; in the given order if they have as many.

    So a short evaluator does not wait for a long one.
    """
    return sorted(range(len(plan.evaluators)), key=lambda index: _steps(plan.evaluators[index][1]))


def finals_in(before: Sequence[int]) -> int:
    """How many of the samples of one evaluator that were run before have a final verdict."""
    return sum(before[3::4])


def _steps(evaluator: Evaluator) -> tuple[int, int]:
    # Evaluators that measure given text read each sample once. Others generate, then query judges, or run episodes in
    # processes.
    generates = EvaluatorKind.TRAINING not in kinds_of(evaluator)
    judged = isinstance(evaluator, HasAuxiliaryModels) and bool(evaluator.auxiliary_models)
    return generates + judged + isinstance(evaluator, HoldsProcesses), evaluator.repeats


def _left_of(plan: Plan, index: int, before: Sequence[int]) -> Iterator[tuple[SampleKey, int]]:
    rows = zip(*[iter(before)] * 4, strict=True)
    row = next(rows, None)
    for position in range(len(plan.samples)):
        for repeat in range(plan.evaluators[index][1].repeats):
            while row is not None and row[:2] < (position, repeat):
                row = next(rows, None)
            attempts, final = (0, False) if row is None or row[:2] != (position, repeat) else row[2:]
            if not final:
                yield SampleKey(position, index, repeat), attempts + 1
