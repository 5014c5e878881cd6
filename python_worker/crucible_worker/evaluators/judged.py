"""What evaluators with an option `judge` have in common."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from crucible_bridge.types import ModelRef, SamplingParams
from crucible_worker.backends.base import Model
from crucible_worker.evaluators.answering import check_sampling_client
from crucible_worker.evaluators.base import SampleContext
from crucible_worker.evaluators.declared import SamplingEvaluator
from crucible_worker.grading.judge.grader import (
    DEFAULT_JUDGE_TOKENS,
    JUDGE,
    JudgeName,
    JudgeRenderer,
    JudgeTokens,
    judge_of,
)
from crucible_worker.grading.judge.rubric import Judge

__all__ = ["Judged"]


class Judged(SamplingEvaluator):
    """An evaluator that samples answers of the model, and lets another model judge them."""

    judge: JudgeName
    judge_max_tokens: JudgeTokens = DEFAULT_JUDGE_TOKENS
    judge_renderer: JudgeRenderer = "auto"

    def __post_init__(self) -> None:
        """Refuse a judge that is no model of this worker.

        Raises:
            InvalidField: names the option.
            FailedPrecondition: a renderer needs a library that is not installed.
        """
        _ = self.judging
        super().__post_init__()

    @functools.cached_property
    def judging(self) -> ModelRef:
        """Who judges."""
        return judge_of(self.judge, "options")

    @property
    def judge_sampling(self) -> SamplingParams:
        """How the judge is sampled: greedily."""
        return SamplingParams(max_tokens=self.judge_max_tokens, temperature=0.0)

    @property
    def auxiliary_models(self) -> Mapping[str, ModelRef]:
        """The judge."""
        return {JUDGE: self.judging}

    def check_auxiliary_models(self, auxiliary_models: Mapping[str, Model]) -> None:
        """Refuse a judge that cannot generate; raises as `check` does."""
        check_sampling_client(auxiliary_models[JUDGE], self.kind, "the judge")

    @property
    def needs_auxiliary_models(self) -> bool:
        """True: the judge decides every sample."""
        return True

    def opened_judge(self, context: SampleContext) -> Judge:
        """The judge of a sample."""
        return Judge(model=context.auxiliary_models[JUDGE], sampling=self.judge_sampling, renderer=self.judge_renderer)
