"""The option `reduce` of evaluators that measure given tokens: what becomes of the scores of the samples.

mean    the evaluator's own keys: one mean over all tokens, bytes or samples
sum     `score_sum`, the sum of the samples' scores, in place of them; where scores do not add up, as mean
none    no key: the samples' scores are the result
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from msgspec import Meta

from crucible_bridge.types import Metrics, SampleResult
from crucible_worker.metrics.scores import Reduce, reduced, reduced_keys, scores_by_sample

__all__ = ["ReduceAdded", "ReduceMean", "keys_by", "reduced_or"]

ReduceAdded: TypeAlias = Annotated[
    Reduce,
    Meta(
        description=(
            "What becomes of the samples' scores. mean: the evaluator's keys. sum: score_sum and its standard error in "
            "place of them. none: the scores stand with the samples alone, and there is no metric."
        )
    ),
]
"""The type of the option, of evaluators whose scores can be added."""
ReduceMean: TypeAlias = Annotated[
    Reduce,
    Meta(
        description=(
            "What becomes of the samples' scores. mean and sum: the evaluator's key, one number over all that was "
            "measured, as scores of this kind do not add up. none: the scores stand with the samples alone, and there "
            "is no metric."
        )
    ),
]
"""The type of the option, of evaluators whose scores have no meaningful sum."""


def reduced_or(
    results: Iterable[SampleResult], reduce: Reduce, own: Callable[[Iterable[SampleResult]], Metrics]
) -> Metrics:
    """Metrics of results, where `own` makes those of `mean`; of an evaluator whose scores can be added."""
    if reduce is Reduce.MEAN:
        return own(results)
    return reduced(scores_by_sample(results), reduce)


def keys_by(options: Mapping[str, Any], own: Sequence[str], *, added: bool = True) -> Sequence[str]:
    """The keys that an evaluator can yield.

    Args:
        options: its own, which are valid.
        own: those of `mean`.
        added: whether it is `ReduceAdded`, else `ReduceMean`.
    """
    reduce = Reduce(options.get("reduce", Reduce.MEAN))
    if reduce is Reduce.MEAN or (reduce is Reduce.SUM and not added):
        return own
    return reduced_keys(reduce)
