"""The evaluator `rollout`: several answers to each sample, cleaned and graded; with tokens for reinforcement learning.

Answers are sampled and judged as in `accuracy`. One run of a sample is one answer: a sample's answers follow each
other in GetSamples, `samples_per_prompt` of them, whatever their results are.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Datum,
    Metrics,
    Sample,
    SampleResult,
    Trajectory,
    TrajectoryGroup,
    Transition,
    Turn,
)
from crucible_worker.evaluators.accuracy import MAX_SAMPLES_PER_PROMPT, Accuracy
from crucible_worker.evaluators.answering import REMOVE_THINKING, Answer, Thinking
from crucible_worker.evaluators.base import Outcome, SampleContext
from crucible_worker.evaluators.cleaning import Cleaning, CleaningSteps
from crucible_worker.metrics.scores import Reduce, reduced, reduced_keys, scores_by_sample
from crucible_worker.rendering import RendererName

__all__ = ["RolloutEvaluator"]


class RolloutEvaluator(
    Accuracy,
    kind="rollout",
    keys={"score_<reduce>": "scores, each from 0 to 1", "score_<reduce>_stderr": "likewise"},
):
    """Samples answers, cleans and grades them, and returns their tokens on request, for training."""

    samples_per_prompt: Annotated[int, Meta(ge=1, le=MAX_SAMPLES_PER_PROMPT)] = 1
    """Answers to each sample."""
    renderer: RendererName = "auto"
    thinking: Thinking = REMOVE_THINKING
    clean: CleaningSteps = ()
    reduce: Reduce = Reduce.MEAN
    """How the scores are reduced: their mean or sum over the scored answers; none: only the samples have scores,
    and there is no metric."""
    intermediates: bool = False
    """Keep the tokens of prompt and answer, and the answer's log-probabilities, of each scored answer."""

    def __post_init__(self) -> None:
        """Refuse several answers without a temperature, which would all be the same, and invalid steps.

        Raises:
            InvalidField: names it; or as for `accuracy`.
        """
        if self.samples_per_prompt > 1 and self.sampling.temperature == 0:
            raise InvalidField("sampling.temperature", "is 0: all answers to a sample would be the same")
        _ = self.cleaning
        super().__post_init__()

    @functools.cached_property
    def cleaning(self) -> Cleaning:
        """The steps that leave the part of an answer that is graded."""
        return Cleaning.of(self.clean, 'options["clean"]')

    @classmethod
    def keys_for(cls, options: Mapping[str, Any]) -> Sequence[str]:
        """The keys that one with these options can yield."""
        return reduced_keys(Reduce(options.get("reduce", Reduce.MEAN)))

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Sample one answer and grade it; record its tokens if that is requested and it has a score.

        Raises:
            FailedPrecondition: tokens should be recorded, but only the model's server has the tokenizer (NO_TOKENIZER).
            BackendError: or the model reports no tokens, or not as many log-probabilities (BACKEND_ANSWER).
            BridgeError: what `accuracy` raises.
        """
        if self.intermediates and context.model.tokenizer is None and not isinstance(sample.input, Datum):
            # Nothing is sampled that could not be recorded.
            raise FailedPrecondition(
                "the model has no tokenizer at hand, and intermediates are tokens", reason=Reason.NO_TOKENIZER
            )
        answer, outcome = await self.answered(sample, context)
        if context.keeps_turns:
            said = Turn(
                role="assistant",
                text=outcome.output,
                reward=outcome.score,
                tokens=answer.sequence.output_tokens,
                reasoning=outcome.reasoning,
                refusal=outcome.refusal,
                tool_calls=outcome.tool_calls,
                unparsed_tool_calls=outcome.unparsed_tool_calls,
            )
            outcome = dataclasses.replace(outcome, turns=(said,))
        if not self.intermediates or outcome.score is None:
            return outcome
        return dataclasses.replace(outcome, group=_recorded(answer, outcome.score))

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """Mean or sum of the scores and its standard error, clustered by sample; an unscored answer does not count."""
        return reduced(scores_by_sample(results), self.reduce)


def _recorded(answer: Answer, reward: float) -> TrajectoryGroup:
    assert answer.prompt is not None  # with a tokenizer or tokens, it was made here
    try:
        turn = Transition.of(answer.prompt, answer.sequence, reward=reward, intermediates=True)
    except InvalidField as error:
        raise BackendError(f"{error.field} {error.message}", reason=Reason.BACKEND_ANSWER, retryable=False) from error
    return TrajectoryGroup(trajectories=(Trajectory(transitions=(turn,)),))
