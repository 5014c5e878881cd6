"""The evaluator `pass_at_k`: how likely one of k answers to a sample is right.

See `crucible_worker.metrics.pass_at_k` for the estimator. Answers are sampled and judged as `accuracy` does it.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    EvaluatorInfo,
    EvaluatorKind,
    Metrics,
    Sample,
    SampleResult,
    SamplingParams,
    Verdict,
)
from crucible_worker.evaluators.accuracy import AccuracyType, AsAccuracy
from crucible_worker.evaluators.base import Evaluator, Outcome, SampleContext
from crucible_worker.metrics.pass_at_k import MAX_KS, pass_at_k

if TYPE_CHECKING:
    from crucible_worker.grading.parts import GradingParts

__all__ = ["DEFAULT_SAMPLES_PER_PROMPT", "PassAtK", "PassAtKType"]

DEFAULT_SAMPLES_PER_PROMPT = 8
"""Answers to each sample where the options do not say."""


def _options_schema() -> Mapping[str, Any]:
    schema = copy.deepcopy(dict(AccuracyType().info.options_schema))
    schema["properties"]["samples_per_prompt"] |= {
        "default": DEFAULT_SAMPLES_PER_PROMPT,
        "description": "Answers to each sample, n of the estimator.",
    }
    schema["properties"]["ks"] = {
        "type": "array",
        "items": {"type": "integer", "minimum": 1},
        "minItems": 1,
        "maxItems": MAX_KS,
        "uniqueItems": True,
        "default": [1],
        "description": "Values of k, at most samples_per_prompt.",
    }
    return schema


_INFO = EvaluatorInfo(
    kind="pass_at_k",
    kinds=(EvaluatorKind.SAMPLING,),
    description="Samples several answers and estimates how likely one of k is right, as a grader judges it.",
    options_schema=_options_schema(),
    keys={"pass@<k>": "fraction of 1"},
)


class PassAtKType:
    """The kind `pass_at_k`."""

    @property
    def info(self) -> EvaluatorInfo:
        """What it is."""
        return _INFO

    def create(
        self, options: Mapping[str, Any], sampling: SamplingParams | None, *, grading: GradingParts
    ) -> Evaluator:
        """Make one.

        Raises:
            InvalidField: a k is above samples_per_prompt, several answers are asked for without a temperature, which
                would all be the same; and whatever `accuracy` refuses.
            FailedPrecondition: as of `accuracy`.
        """
        ks = tuple(int(k) for k in options["ks"])
        n = options["samples_per_prompt"]
        for index, k in enumerate(ks):
            if k > n:
                raise InvalidField(f'options["ks"][{index}]', f"is {k}, samples_per_prompt is {n:g}")
        if sampling is None:
            raise InvalidField("sampling", "is missing, and pass_at_k samples answers: give at least max_tokens")
        if n > 1 and sampling.temperature == 0:
            message = "is 0: all answers to a sample would be the same, and every pass@k pass@1"
            raise InvalidField("sampling.temperature", message)
        shared = {key: value for key, value in options.items() if key != "ks"}
        accuracy = AccuracyType().create(shared, sampling, grading=grading)
        return PassAtK(answering=accuracy, ks=ks)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PassAtK(AsAccuracy):
    """Asks and judges as `accuracy` does, and counts right answers by sample."""

    KIND = "pass_at_k"

    ks: Sequence[int]
    """Values of k, each once."""

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Sample one answer and grade it; raises what `accuracy` raises."""
        return await self.answering.run(sample, context)

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
