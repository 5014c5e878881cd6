"""The evaluator `pass_at_k`: how likely one of k answers to a sample is right.

See `crucible_worker.metrics.pass_at_k` for the estimator. Answers are sampled and judged as in `accuracy`.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence
from typing import Annotated, TypeAlias

import numpy as np
from msgspec import Meta

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Metrics, SampleResult, Verdict
from crucible_worker.evaluators.accuracy import MAX_SAMPLES_PER_PROMPT, Accuracy
from crucible_worker.evaluators.answering import REMOVE_THINKING, Thinking
from crucible_worker.metrics.pass_at_k import MAX_KS, pass_at_k
from crucible_worker.rendering import RendererName

__all__ = ["DEFAULT_SAMPLES_PER_PROMPT", "PassAtK"]

DEFAULT_SAMPLES_PER_PROMPT = 8
"""Default number of answers to each sample."""

_K: TypeAlias = Annotated[int, Meta(ge=1)]


class PassAtK(Accuracy, kind="pass_at_k", keys={"pass@<k>": "fraction of 1"}):
    """Samples several answers and estimates how likely one of k is right, as a grader judges it."""

    samples_per_prompt: Annotated[int, Meta(ge=1, le=MAX_SAMPLES_PER_PROMPT)] = DEFAULT_SAMPLES_PER_PROMPT
    """Answers to each sample, n of the estimator."""
    renderer: RendererName = "auto"
    thinking: Thinking = REMOVE_THINKING
    ks: Annotated[Sequence[_K], Meta(min_length=1, max_length=MAX_KS, extra_json_schema={"uniqueItems": True})] = (1,)
    """Values of k, at most samples_per_prompt."""

    def __post_init__(self) -> None:
        """Refuse a k above samples_per_prompt, and several answers without a temperature: all would be the same.

        Raises:
            InvalidField: names it; or as for `accuracy`.
        """
        for index, k in enumerate(self.ks):
            if k > self.samples_per_prompt:
                raise InvalidField(
                    f'options["ks"][{index}]', f"is {k}, samples_per_prompt is {self.samples_per_prompt}"
                )
        if self.samples_per_prompt > 1 and self.sampling.temperature == 0:
            message = "is 0: all answers to a sample would be the same, and every pass@k pass@1"
            raise InvalidField("sampling.temperature", message)
        super().__post_init__()

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """`pass@<k>` over the samples with k scored answers: CORRECT is right, an unscored answer was not drawn."""
        drawn: list[int] = []
        right: list[int] = []
        for _, answers in itertools.groupby(results, key=operator.attrgetter("sample_id")):
            verdicts = [answer.verdict for answer in answers if answer.verdict.scored]
            if verdicts:
                drawn.append(len(verdicts))
                right.append(verdicts.count(Verdict.CORRECT))
        if not drawn:
            return Metrics.all_undefined([f"pass@{k}" for k in self.ks], "no sample was scored")
        return pass_at_k(np.array(drawn, np.int64), np.array(right, np.int64), self.ks)
