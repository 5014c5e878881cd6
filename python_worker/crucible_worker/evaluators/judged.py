"""What evaluators have in common that name a judge of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from crucible_bridge.types import ModelRef, SamplingParams
from crucible_worker.backends.base import Model
from crucible_worker.evaluators.answering import check_sampling_client
from crucible_worker.evaluators.base import SampleContext
from crucible_worker.grading.judge.asking import Judge
from crucible_worker.grading.judge.options import JUDGE

__all__ = ["Judged"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """An evaluator that samples answers of the model, and has another model judge them."""

    KIND: ClassVar[str]
    """What it is called in errors."""
    wants_answers: ClassVar[bool] = True
    """See `evaluators.base.wants_answers`."""
    judge: ModelRef
    """Who judges."""
    judge_sampling: SamplingParams
    """How the judge is sampled: its likeliest answer."""
    judge_renderer: str
    """How it is asked."""

    @property
    def others(self) -> Mapping[str, ModelRef]:
        """The judge."""
        return {JUDGE: self.judge}

    def check(self, model: Model) -> None:
        """Refuse a model that cannot generate.

        Raises:
            FailedPrecondition: it lacks a sampling client (reason MISSING_CLIENT).
        """
        check_sampling_client(model, self.KIND)

    def check_others(self, others: Mapping[str, Model]) -> None:
        """Refuse a judge that cannot generate; raises as `check` does."""
        check_sampling_client(others[JUDGE], self.KIND, "the judge")

    @property
    def needs_others(self) -> bool:
        """It does: the judge has the say in every sample."""
        return True

    def opened_judge(self, context: SampleContext) -> Judge:
        """The judge of a sample."""
        return Judge(model=context.others[JUDGE], sampling=self.judge_sampling, renderer=self.judge_renderer)
