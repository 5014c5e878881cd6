"""The evaluator `accuracy`: the share of samples that a model answers right, as judged by a grader.

`crucible_worker.metrics.scores` defines the keys.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from crucible_bridge.types import Datum, Metrics, Sample, SampleResult, Verdict
from crucible_worker.evaluators.answering import REMOVE_THINKING, Answer, Answering, Thinking
from crucible_worker.evaluators.base import Outcome, SampleContext
from crucible_worker.evaluators.cleaning import NO_CLEANING, Cleaning, Uncleanable
from crucible_worker.evaluators.graded import Graded, check_question, grade_answer, problem_of_grade
from crucible_worker.grading.base import Grade, excerpt
from crucible_worker.metrics.scores import ACCURACY_KEYS, accuracy, scores_by_sample
from crucible_worker.rendering import RendererName, check_input

__all__ = ["MAX_SAMPLES_PER_PROMPT", "Accuracy"]

MAX_SAMPLES_PER_PROMPT = 1_000
"""Answers to one sample."""


class Accuracy(Graded, kind="accuracy", keys=dict.fromkeys(ACCURACY_KEYS, "fraction of 1")):
    """Samples answers and reports the share that a grader judges right, with its uncertainty."""

    samples_per_prompt: Annotated[int, Meta(ge=1, le=MAX_SAMPLES_PER_PROMPT)] = 1
    """Answers to each sample; uncertainty is then clustered by sample."""
    renderer: RendererName = "auto"
    thinking: Thinking = REMOVE_THINKING

    @property
    def repeats(self) -> int:
        """Answers to each sample."""
        return self.samples_per_prompt

    @functools.cached_property
    def answering(self) -> Answering:
        """How the model is queried."""
        return Answering(sampling=self.sampling, renderer=self.renderer, thinking=self.thinking)

    @functools.cached_property
    def cleaning(self) -> Cleaning:
        """The steps that leave the part of an answer that is graded."""
        return NO_CLEANING

    def check_sample(self, sample: Sample) -> None:
        """Refuse a conversation if the renderer accepts none, and tokens if a judge has to read them.

        Any other sample that cannot be queried becomes an ERROR.

        Raises:
            InvalidField: names the conversation or the datum.
        """
        check_input(sample.input, self.renderer)
        check_question(self.judging, sample)

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Sample one answer, with the sample's own seed if sampling is random, and grade it.

        Raises:
            InvalidField: the prompt is empty, or longer than the context.
            FailedPrecondition: the sample cannot be rendered for this model, or the client is missing.
            BackendError: the model, or a judge, could not be queried, or gave no answer.
            InternalError: the grader gave an invalid score (reason BAD_SCORE).
        """
        _, outcome = await self.answered(sample, context)
        return outcome

    async def answered(self, sample: Sample, context: SampleContext) -> tuple[Answer, Outcome]:
        """Do the same as `run`, and return the answer with its outcome."""
        if isinstance(sample.input, Datum):
            check_question(self.judging, sample)
        answer = await self.answering.answer(context.model, sample.input, context.seed)
        grade = await self._graded(answer, sample, context)
        scored = grade.verdict.scored
        return answer, Outcome(
            verdict=grade.verdict,
            score=grade.score if scored else None,
            extracted=excerpt(grade.extracted),  # the whole response is recorded next to it
            method=grade.method,
            problem=None if scored else problem_of_grade(grade),
            measurements={**grade.measurements, **answer.counted},
            **answer.recorded,
        )

    async def _graded(self, answer: Answer, sample: Sample, context: SampleContext) -> Grade:
        if self.cleaning.steps:
            try:
                text = await self.cleaning.answer(answer.text)
            except Uncleanable as error:
                return Grade(verdict=Verdict.UNDECIDED, reason=str(error))
            answer = dataclasses.replace(answer, text=text)
        return await grade_answer(self.judging, answer, sample, context)

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """The keys of `ACCURACY_KEYS`; unscored answers count as wrong only in `accuracy_strict`."""
        return accuracy(scores_by_sample(results))
