"""The evaluator `rollout`: several answers to each sample, cleaned and graded; with their tokens for reinforcement.

Answers are sampled and judged as `accuracy` does it. One run of a sample is one answer: those of a sample stand one
after the other in GetSamples, `samples_per_prompt` of them, whatever became of them.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Datum,
    EvaluatorInfo,
    EvaluatorKind,
    Metrics,
    Sample,
    SampleResult,
    SamplingParams,
    Trajectory,
    TrajectoryGroup,
    Transition,
    Turn,
)
from crucible_worker.evaluators.accuracy import AccuracyType, AsAccuracy
from crucible_worker.evaluators.answering import Answer
from crucible_worker.evaluators.base import Outcome, SampleContext
from crucible_worker.evaluators.cleaning import CLEAN_OPTION, Cleaning
from crucible_worker.evaluators.graded import scores_by_sample
from crucible_worker.metrics.scores import Reduce, reduced, reduced_keys

if TYPE_CHECKING:
    from crucible_worker.grading.parts import GradingParts

__all__ = ["Rollout", "RolloutType"]

_OWN = ("clean", "reduce", "intermediates")


def _options_schema() -> Mapping[str, Any]:
    schema = copy.deepcopy(dict(AccuracyType().info.options_schema))
    schema["properties"]["samples_per_prompt"]["description"] = "Answers to each sample."
    schema["properties"] |= {
        "clean": dict(CLEAN_OPTION),
        "reduce": {
            "type": "string",
            "enum": [str(reduce) for reduce in Reduce],
            "default": Reduce.MEAN,
            "description": (
                "What becomes of the scores: their mean or sum over the scored answers; none: they stand with the "
                "samples alone, and there is no metric."
            ),
        },
        "intermediates": {
            "type": "boolean",
            "default": False,
            "description": (
                "Keep the tokens of prompt and answer, and the answer's log-probabilities, with each scored answer."
            ),
        },
    }
    return schema


_INFO = EvaluatorInfo(
    kind="rollout",
    kinds=(EvaluatorKind.SAMPLING,),
    description="Samples answers, cleans and grades them, and returns their tokens on request, for training.",
    options_schema=_options_schema(),
    keys={"score_<reduce>": "scores, each from 0 to 1", "score_<reduce>_stderr": "likewise"},
)


class RolloutType:
    """The kind `rollout`."""

    @property
    def info(self) -> EvaluatorInfo:
        """What it is."""
        return _INFO

    def keys_by(self, options: Mapping[str, Any]) -> Sequence[str]:
        """The keys that one with these options can yield."""
        return reduced_keys(Reduce(options.get("reduce", Reduce.MEAN)))

    def create(self, options: Mapping[str, Any], sampling: SamplingParams | None, *, grading: GradingParts) -> Rollout:
        """Make one.

        Raises:
            InvalidField: several answers are asked for without a temperature, which would all be the same; an
                expression of `clean` is none of RE2; and whatever `accuracy` refuses.
            FailedPrecondition: as of `accuracy`.
        """
        if sampling is None:
            raise InvalidField("sampling", "is missing, and rollout samples answers: give at least max_tokens")
        if options["samples_per_prompt"] > 1 and sampling.temperature == 0:
            raise InvalidField("sampling.temperature", "is 0: all answers to a sample would be the same")
        clean = Cleaning.of(options["clean"], 'options["clean"]')
        shared = {key: value for key, value in options.items() if key not in _OWN}
        return Rollout(
            answering=dataclasses.replace(AccuracyType().create(shared, sampling, grading=grading), clean=clean),
            reduce=Reduce(options["reduce"]),
            intermediates=options["intermediates"],
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rollout(AsAccuracy):
    """Asks and judges as `accuracy` does, and keeps what a learner needs."""

    KIND = "rollout"

    reduce: Reduce = Reduce.MEAN
    """What becomes of the scores."""
    intermediates: bool = False
    """Whether tokens and log-probabilities are kept."""

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Sample one answer and grade it; keep its tokens where that is asked for and it has a score.

        Raises:
            FailedPrecondition: tokens are to be kept, and the tokenizer lies with the model's server (NO_TOKENIZER).
            BackendError: or it tells no tokens, or not as many log-probabilities (BACKEND_ANSWER).
            BridgeError: what `accuracy` raises.
        """
        if self.intermediates and context.model.tokenizer is None and not isinstance(sample.input, Datum):
            # Nothing is sampled that could not be kept.
            raise FailedPrecondition(
                "the model has no tokenizer at hand, and intermediates are tokens", reason=Reason.NO_TOKENIZER
            )
        answer, outcome = await self.answering.answered(sample, context)
        if context.keeps_turns:
            said = Turn(
                role="assistant", text=answer.output, reward=outcome.score, tokens=answer.sequence.output_tokens
            )
            outcome = dataclasses.replace(outcome, turns=(said,))
        if not self.intermediates or outcome.score is None:
            return outcome
        return dataclasses.replace(outcome, group=_kept(answer, outcome.score))

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """Mean or sum of the scores and its standard error, clustered by sample; an unscored answer does not count."""
        return reduced(scores_by_sample(results), self.reduce)


def _kept(answer: Answer, reward: float) -> TrajectoryGroup:
    assert answer.prompt is not None  # with a tokenizer at hand, or tokens, it was made here
    try:
        turn = Transition.of(answer.prompt, answer.sequence, reward=reward, intermediates=True)
    except InvalidField as error:
        raise BackendError(f"{error.field} {error.message}", reason=Reason.BACKEND_ANSWER, retryable=False) from error
    return TrajectoryGroup(trajectories=(Trajectory(transitions=(turn,)),))
