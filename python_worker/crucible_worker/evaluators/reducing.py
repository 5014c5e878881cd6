"""The option `reduce` of evaluators that measure given tokens: how the samples' scores are reduced.

mean    the evaluator's own keys: one mean over all tokens, bytes or samples
sum     `score_sum`, the sum of the samples' scores, instead; if scores do not add up, the same as mean
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
            "How the samples' scores are reduced. mean: the evaluator's keys. sum: score_sum and its standard error "
            "instead. none: only the samples have scores, and there is no metric."
        )
    ),
]
"""The type of the option for evaluators with scores that can be added."""
ReduceMean: TypeAlias = Annotated[
    Reduce,
    Meta(
        description=(
            "How the samples' scores are reduced. mean and sum: the evaluator's key, one number over everything "
            "measured, as scores of this kind do not add up. none: only the samples have scores, and there "
            "is no metric."
        )
    ),
]
"""The type of the option for evaluators with scores that have no meaningful sum."""


def reduced_or(
    results: Iterable[SampleResult], reduce: Reduce, own: Callable[[Iterable[SampleResult]], Metrics]
) -> Metrics:
    """Metrics of results, for an evaluator with scores that can be added; `own` computes those of `mean`."""
    if reduce is Reduce.MEAN:
        return own(results)
    return reduced(scores_by_sample(results), reduce)


def keys_by(options: Mapping[str, Any], own: Sequence[str], *, added: bool = True) -> Sequence[str]:
    """The keys that an evaluator can yield.

    Args:
        options: the evaluator's, which are valid.
        own: the keys for `mean`.
        added: whether the option's type is `ReduceAdded`, not `ReduceMean`.
    """
    reduce = Reduce(options.get("reduce", Reduce.MEAN))
    if reduce is Reduce.MEAN or (reduce is Reduce.SUM and not added):
        return own
    return reduced_keys(reduce)
