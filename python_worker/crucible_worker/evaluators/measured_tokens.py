"""What evaluators share that measure given tokens: which tokens, and the options `intermediates` and `reduce`.

`intermediates` returns the measured tokens in the form for training.

A sample becomes a group as of `rollout`: the measured tokens are the action after all tokens before them, though
nothing was generated. If they have gaps, as with several answers of a conversation, each stretch is a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import numpy as np
from msgspec import Meta

from crucible_bridge.arrays import floats
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    Datum,
    Metrics,
    Sample,
    SampleResult,
    TokensChunk,
    Trajectory,
    TrajectoryGroup,
    Transition,
)
from crucible_worker.metrics.scores import Reduce, reduced, reduced_keys, scores_by_sample
from crucible_worker.rendering import TrainOn, check_input, check_weights

__all__ = [
    "ROLLING",
    "Intermediates",
    "ReduceAdded",
    "ReduceMean",
    "TrainOnOption",
    "Windows",
    "check_measured",
    "checked_targets",
    "choice_group",
    "keys_by",
    "measured_group",
    "reduced_or",
    "sequence_of",
]

# The measured tokens of a datum: shared by the evaluators that measure given tokens.

_TARGETS, _WEIGHTS = 'loss_fn_inputs["target_tokens"]', 'loss_fn_inputs["weights"]'

ROLLING: Final = "rolling"
"""Value of the option `windows`: text longer than the context is split."""

TrainOnOption: TypeAlias = Annotated[TrainOn, Meta(description="Which messages of a conversation have weight.")]
"""The type of the option `train_on`."""

Windows: TypeAlias = Annotated[
    Literal["rolling", "refuse"],
    Meta(
        description=(
            "How text without a target is handled if it is longer than the context, and that is known. rolling: it "
            "is measured in windows, each token once. refuse: it is an error of that sample."
        )
    ),
]
"""The type of the option `windows` of evaluators that measure texts as a whole."""


def check_measured(sample: Sample, renderer: str, train_on: str) -> None:
    """Refuse a Datum whose targets or weights are missing or do not fit its input, and an unaccepted conversation.

    Raises:
        InvalidField: names the array, or the conversation, if the renderer accepts none, or the weight of a message
            that would not count.
    """
    check_input(sample.input, renderer)
    check_weights(sample.input, train_on)
    if isinstance(sample.input, Datum):
        try:
            _structure(sample.input)
        except InvalidField as error:
            raise InvalidField(f"datum.{error.field}", error.message, reason=error.reason) from None


def checked_targets(datum: Datum) -> tuple[np.ndarray, np.ndarray]:
    """A datum's targets and weights, each of shape (T,), the weights finite.

    Raises:
        InvalidField: one is missing, is not such an array, or does not fit the input.
    """
    targets, weights = _structure(datum)
    if bad := int(np.count_nonzero(~np.isfinite(weights))):
        raise InvalidField(_WEIGHTS, f"holds {bad:,} values that are not finite, of {weights.size:,}")
    return targets, weights


def sequence_of(datum: Datum, why: str = "a sampling client measures no other targets") -> np.ndarray:
    """Input and last target of a datum with checked targets: the sequence for a sampling client, shape (T + 1,).

    Args:
        datum: the datum.
        why: the reason why it must be one sequence, for the error.

    Raises:
        InvalidField: a target that has weight is not the token that follows in the input, or the input is not text.
    """
    targets, weights = _structure(datum)
    tokens = datum.model_input.tokens()
    if np.any((targets[:-1] != tokens[1:]) & (weights[:-1] != 0)):
        raise InvalidField(_TARGETS, f"is not model_input shifted by one token, and {why}")
    return np.append(tokens, targets[-1])


def _structure(datum: Datum) -> tuple[np.ndarray, np.ndarray]:
    """A datum's targets and weights, each of shape (T,), whatever their values."""
    arrays = []
    for key, field in (("target_tokens", _TARGETS), ("weights", _WEIGHTS)):
        if key not in datum.loss_fn_inputs:
            raise InvalidField(field, "is missing")
        arrays.append(datum.loss_fn_inputs[key])
    targets, weights = arrays[0], floats(arrays[1], _WEIGHTS)
    if not isinstance(targets, np.ndarray) or targets.dtype.kind not in "iu":
        raise InvalidField(_TARGETS, f"holds {targets.dtype}, not token ids")
    if targets.ndim != 1 or targets.size == 0:
        raise InvalidField(_TARGETS, f"has shape {targets.shape}, one dimension with at least one token is needed")
    if weights.shape != targets.shape:
        raise InvalidField(_WEIGHTS, f"has shape {weights.shape}, target_tokens {targets.shape}")
    if all(isinstance(chunk, TokensChunk) for chunk in datum.model_input.chunks):
        length = datum.model_input.tokens().size
        if length != targets.size:
            raise InvalidField(_TARGETS, f"has {targets.size:,} tokens, model_input {length:,}")
    return targets, weights


# The option `reduce` of evaluators that measure given tokens: how the samples' scores are reduced.
#
#     mean    the evaluator's own keys: one mean over all tokens, bytes or samples
#     sum     `score_sum`, the sum of the samples' scores, instead; if scores do not add up, the same as mean
#     none    no key: the samples' scores are the result

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


Intermediates: TypeAlias = Annotated[
    bool,
    Meta(
        description=(
            "Keep the tokens of each scored sample, which of them were measured, and their log-probabilities where "
            "the model gives some."
        )
    ),
]
"""The type of the option."""


def measured_group(datum: Datum, logprobs: np.ndarray | None, score: float) -> TrajectoryGroup:
    """The tokens of one sample, as one rollout whose reward is its score.

    Args:
        datum: the sample in tokens; tokens with weight were measured.
        logprobs: log-probability of each target, shape (T,), nats; None if there are none.
        score: the score of the sample.

    Raises:
        InvalidField: a target with weight is not the token that follows in the input, or that one is no text: then
            input and targets are not one sequence of tokens.
    """
    sequence = sequence_of(datum, "intermediates are one sequence of tokens").astype(np.int32)
    _, weights = checked_targets(datum)
    stretches = list(_stretches(weights))
    turns = tuple(
        _turn(
            sequence[: first + 1],
            sequence[first + 1 : end + 1],
            None if logprobs is None else logprobs[first:end],
            # The last turn has the reward: the sum over the turns is then the score.
            score if end == stretches[-1][1] else 0.0,
        )
        for first, end in stretches
    )
    return TrajectoryGroup(trajectories=(Trajectory(transitions=turns),))


def choice_group(
    prompt: Sequence[int],
    continuations: Sequence[Sequence[int]],
    logprobs: Sequence[np.ndarray],
    right: frozenset[int],
) -> TrajectoryGroup:
    """A question with each of its choices, as one rollout each: its reward is 1 if the choice is right, else 0.

    Args:
        prompt: token ids of the question.
        continuations: token ids of each choice.
        logprobs: log-probabilities of the tokens of each, nats.
        right: indices of the choices that a target names.
    """
    asked = np.array(prompt, np.int32)
    return TrajectoryGroup(
        trajectories=tuple(
            Trajectory(transitions=(_turn(asked, np.array(tokens, np.int32), each, 1.0 if index in right else 0.0),))
            for index, (tokens, each) in enumerate(zip(continuations, logprobs, strict=True))
        )
    )


def _turn(observation: np.ndarray, action: np.ndarray, logprobs: np.ndarray | None, reward: float) -> Transition:
    return Transition(
        observation_tokens=observation.size,
        action_tokens=action.size,
        reward=reward,
        observation=observation,
        action=action,
        action_logprobs=None if logprobs is None else logprobs.astype(np.float32),
    )


def _stretches(weights: np.ndarray) -> Iterator[tuple[int, int]]:
    """Runs of weights other than 0: the first index of each run, and the index after its last."""
    marked = np.concatenate(([False], weights != 0, [False]))
    edges = np.flatnonzero(marked[1:] != marked[:-1])
    return zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
