"""The evaluator `preference`: does the model prefer the chosen answer of a pair, and by how much, as DPO measures it?

The log-probabilities of an answer's tokens are summed, under the model and, if the option `reference` names one, under
that model. `crucible_worker.metrics.preference` has the formulas. Without a reference, its log-probabilities are 0 and
beta is 1: the margin is the difference of the two sums, in nats.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from crucible_bridge.errors import BridgeError, InvalidField, clipped
from crucible_bridge.problems import at_field
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Datum,
    Goal,
    Metrics,
    ModelRef,
    Problem,
    Sample,
    SampleResult,
    Verdict,
    message_from_json,
)
from crucible_worker.backends.base import MAX_MESSAGES, Model
from crucible_worker.backends.continuations import concurrently
from crucible_worker.evaluators.base import Outcome, SampleContext
from crucible_worker.evaluators.measured_tokens import TrainOnOption
from crucible_worker.evaluators.nll import Client, Likelihoods
from crucible_worker.grading.judge.grader import worker_model_of
from crucible_worker.metrics.preference import dpo_margins, dpo_metrics
from crucible_worker.metrics.scores import ACCURACY_KEYS, Reduce, accuracy, reduced, scores_by_sample
from crucible_worker.rendering import RendererName, check_input, check_weights, render_supervised
from crucible_worker.rendering.prompts import messages_of, tools_of

__all__ = ["CHOSEN", "REFERENCE", "REJECTED", "Preference", "pair_of", "parted"]

# The two answers of a preference pair, as a sample holds them.
#
#     Sample(input="2+2=", metadata={"chosen": "4", "rejected": "5"})
#     Sample(input="2+2=", targets=("4",), metadata={"rejected": "5"})
#     Sample(input=conversation_with_the_chosen_answer, metadata={"rejected": '[{"role": "user", ...}, ...]'})
#
# An entry is the text of the answer, or messages as JSON. Messages that begin with the assistant follow the input;
# others are the whole conversation.

CHOSEN, REJECTED = "chosen", "rejected"
"""Keys of the metadata that hold the answers, unless options name others."""

_ASSISTANT = "assistant"
_MESSAGES = re.compile(r'\s*+\[\s*+\{\s*+"(?:role|content)"')
"""The beginning of messages as JSON."""


def pair_of(sample: Sample, chosen: str = CHOSEN, rejected: str = REJECTED) -> tuple[Sample, Sample]:
    """The chosen and the rejected answer of a sample, each as a sample whose only target is the answer.

    Without an entry for the chosen answer, it is the first target, or else the last message of the conversation.

    Args:
        sample: the sample.
        chosen: the metadata's key for the chosen answer.
        rejected: likewise, for the rejected one.

    Raises:
        InvalidField: an answer is missing, is not the assistant's, or is no messages; or the sample is a Datum.
    """
    if isinstance(sample.input, Datum):
        raise InvalidField("datum", "is tokens, and the two answers of a pair are text or messages")
    if chosen in sample.metadata:
        preferred, path = sample.metadata[chosen], _path(chosen)
    elif sample.targets:
        preferred, path = sample.targets[0], "targets[0]"
    else:
        sample, preferred = _asked(sample, chosen)
        path = "conversation"
    if rejected not in sample.metadata:
        message = "is missing: it has the answer that the chosen one is compared with"
        raise InvalidField(_path(rejected), f"{message}; {_of_column(rejected)}")
    return _answered(sample, preferred, path), _answered(sample, sample.metadata[rejected], _path(rejected))


def _asked(sample: Sample, chosen: str) -> tuple[Sample, str]:
    """The question of a conversation, and the answer with which it ends."""
    messages = sample.input.messages if isinstance(sample.input, Conversation) else ()
    if len(messages) < 2 or messages[-1].role != _ASSISTANT:
        message = "is missing, and there is no target, and no conversation that ends with the assistant's message"
        raise InvalidField(_path(chosen), f"{message}; {_of_column(chosen)}")
    before, answer = parted(messages, "conversation")
    return dataclasses.replace(sample, input=Conversation(before, tools_of(sample.input))), answer


def _answered(sample: Sample, value: str, path: str) -> Sample:
    messages = _messages_of(value, path)
    if messages is None:
        return _followed(sample, value, path)
    before, answer = parted(messages, path)
    if messages[0].role == _ASSISTANT and not before:
        return _followed(sample, answer, path)
    if messages[0].role == _ASSISTANT:
        assert not isinstance(sample.input, Datum)
        before = (*messages_of(sample.input), *before)
    return dataclasses.replace(sample, input=Conversation(before, tools_of(sample.input)), targets=(answer,))


def parted(messages: Sequence[ChatMessage], path: str) -> tuple[tuple[ChatMessage, ...], str]:
    """The messages before an answer, and the answer, with which they end.

    Raises:
        InvalidField: the last message is not the assistant's; the field is `path`.
    """
    if messages[-1].role != _ASSISTANT:
        raise InvalidField(path, f"ends with a message of {clipped(messages[-1].role)}, not of the assistant")
    if not messages[-1].is_text:
        raise InvalidField(path, "ends with images, reasoning or calls of tools: an answer is text alone")
    return tuple(messages[:-1]), messages[-1].content


def _followed(sample: Sample, answer: str, path: str) -> Sample:
    """The input, followed by an answer."""
    if isinstance(sample.input, Conversation) and sample.input.messages[-1].role == _ASSISTANT:
        raise InvalidField(path, "is one answer, and the conversation before it ends with the assistant's message")
    return dataclasses.replace(sample, targets=(answer,))


def _messages_of(value: str, path: str) -> tuple[ChatMessage, ...] | None:
    """Messages as JSON; None for text."""
    if not _MESSAGES.match(value):
        return None
    try:
        found = msgspec.json.decode(value, type=Annotated[list[Any], msgspec.Meta(max_length=MAX_MESSAGES)])
        return tuple(map(message_from_json, found))
    except (msgspec.MsgspecError, InvalidField) as error:
        said = f"{error.field} {error.message}".strip() if isinstance(error, InvalidField) else error
        message = f'begins like messages, and is no JSON list of {{"role", "content"}}: {said}'
        raise InvalidField(path, message) from None


def _of_column(key: str) -> str:
    return f"a column of a data set becomes it by ?metadata.{key}=COLUMN"


def _path(key: str) -> str:
    return f'metadata["{key}"]'


REFERENCE = "reference"
"""The option that names the reference model."""

_MARGIN, _MARGIN_STDERR = "margin", "margin_stderr"
_REWARDS = ("dpo_loss", "chosen_reward", "rejected_reward")
_PLAIN_KEYS = (*ACCURACY_KEYS, _MARGIN, _MARGIN_STDERR)
_POLICY: Sequence[str] = ("chosen_logprob", "rejected_logprob")
_REFERENCE: Sequence[str] = ("chosen_reference_logprob", "rejected_reference_logprob")
_TOKENS = ("chosen_tokens", "rejected_tokens")

T = TypeVar("T")
_KeyName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=100)]


class Preference(
    Likelihoods,
    kind="preference",
    keys={
        **dict.fromkeys(ACCURACY_KEYS, "fraction of 1"),
        **dict.fromkeys((_MARGIN, _MARGIN_STDERR, *_REWARDS), "nats"),
    },
    score_goal=Goal.HIGHER,
):
    """Compares the log-probabilities of a chosen and a rejected answer, with DPO's rewards if there is a reference."""

    client: Client = "auto"
    renderer: RendererName = "auto"
    reference: Annotated[str, Meta(examples=["local:PATH", "embedded:arithmetic@180"])] | None = None
    """The model that the policy is compared with, as in DPO, any of this worker's; if null, only the policy's own
    log-probabilities are compared."""
    beta: Annotated[float, Meta(gt=0, le=1_000_000)] = 0.1
    """DPO's beta, by which differences from the reference become rewards; without a reference it is not used."""
    train_on: TrainOnOption = "last_assistant"
    chosen: _KeyName = CHOSEN
    """Key of the sample's metadata that has the chosen answer; without it, the first target is the chosen answer."""
    rejected: _KeyName = REJECTED
    """Key of the sample's metadata that has the rejected answer."""

    measures_likelihoods: ClassVar[bool] = True
    """See `evaluators.base.measures_likelihoods`."""
    measures_auxiliary_models: ClassVar[bool] = True
    """See `evaluators.base.measures_auxiliary_models`."""

    @classmethod
    def keys_for(cls, options: Mapping[str, Any]) -> Sequence[str]:
        """The keys that one with these options can yield."""
        return _PLAIN_KEYS if options.get(REFERENCE) is None else tuple(cls.keys)

    def __post_init__(self) -> None:
        """Refuse a reference that is no model of this worker.

        Raises:
            InvalidField: names the option.
            FailedPrecondition: the renderer needs a library that is not installed.
        """
        _ = self.auxiliary_models
        super().__post_init__()

    @functools.cached_property
    def auxiliary_models(self) -> Mapping[str, ModelRef]:
        """The reference, if there is one."""
        if self.reference is None:
            return {}
        return {REFERENCE: worker_model_of(self.reference, f'options["{REFERENCE}"]', what="a reference")}

    @property
    def needs_auxiliary_models(self) -> bool:
        """True: every pair is measured with the reference."""
        return True

    def check_auxiliary_models(self, auxiliary_models: Mapping[str, Model]) -> None:
        """Refuse a reference without the requested client; raises as `check` does."""
        for model in auxiliary_models.values():
            self.check(model)

    def check_sample(self, sample: Sample) -> None:
        """Refuse a sample that is no pair.

        Raises:
            InvalidField: names the answer that is missing or cannot be used, or an input that the renderer refuses.
        """
        for answered in self._pair(sample):
            check_input(answered.input, self.renderer)
            check_weights(answered.input, self.train_on)

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Measure both answers of one sample.

        Returns:
            CORRECT with score 1 if the margin is above 0, else INCORRECT with score 0; UNDECIDED if a sum of
            log-probabilities is not finite, or an answer has no token with weight.

        Raises:
            InvalidField: what `check_sample` refuses.
            FailedPrecondition: the sample cannot be rendered for a model, or a client is missing.
            BackendError: a model answered with NaN (reason NAN_LOGPROB), +inf, or another number of values.
        """
        pair = self._pair(sample)
        reference = context.auxiliary_models.get(REFERENCE)
        if reference is None:
            outcomes = [await self._measured(pair, context.model)]
        else:
            outcomes = await concurrently(self._measured(pair, context.model), self._of_reference(pair, reference))
        found = {
            name: outcome
            for names, both in zip((_POLICY, _REFERENCE), outcomes)
            for name, outcome in zip(names, both, strict=True)
        }
        for name, outcome in found.items():
            if outcome.score is None:
                return _undecided(name, outcome)
        sums = {name: outcome.measurements["weighted_logprob_sum"] for name, outcome in found.items()}
        tokens = {name: found[of].measurements["weighted_tokens"] for name, of in zip(_TOKENS, _POLICY, strict=True)}
        (margin,) = dpo_margins(*_columns([sums]), beta=self._scale).tolist()
        outcome = Outcome.of(margin > 0, **sums, **tokens, margin=margin)
        return dataclasses.replace(outcome, method=found[_POLICY[0]].method)

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """Accuracy with its interval, and the margin with its standard error; of a reference, loss and rewards."""
        listed = list(results)
        margins = reduced([[_margin(result)] for result in listed], Reduce.MEAN)
        right = accuracy(scores_by_sample(listed))
        sums = [result.measurements for result in listed if result.verdict.scored]
        if self.reference is None:
            rewards = Metrics({})
        elif sums:
            rewards = dpo_metrics(*_columns(sums), beta=self.beta)
        else:
            rewards = Metrics.all_undefined(_REWARDS, "no sample was scored")
        # Accuracy counts unscored samples too, and the margin has a standard error: these replace the keys of DPO.
        values = {**rewards.values, **right.values, **_named(margins.values)}
        undefined = {**rewards.undefined, **right.undefined, **_named(margins.undefined)}
        return Metrics.of(values, {key: why for key, why in undefined.items() if key not in values})

    @property
    def _scale(self) -> float:
        return 1.0 if self.reference is None else self.beta

    def _pair(self, sample: Sample) -> tuple[Sample, Sample]:
        return pair_of(sample, self.chosen, self.rejected)

    async def _measured(self, pair: Sequence[Sample], model: Model) -> list[Outcome]:
        tokenizer = model.tokenizer
        data = [await render_supervised(tokenizer, answered, self.train_on, self.renderer) for answered in pair]
        return await self.measure_all(data, model)

    async def _of_reference(self, pair: Sequence[Sample], reference: Model) -> list[Outcome]:
        try:
            return await self._measured(pair, reference)
        except BridgeError as error:
            raise at_field(error, REFERENCE, own="model") from error


def _columns(sums: Sequence[Mapping[str, float]]) -> Sequence[np.ndarray]:
    """Columns for `crucible_worker.metrics.preference`, one entry per pair; 0 without a reference."""
    return [np.array([each.get(name, 0.0) for each in sums], np.float64) for name in (*_POLICY, *_REFERENCE)]


def _margin(result: SampleResult) -> float | None:
    return result.measurements[_MARGIN] if result.verdict.scored else None


def _named(reduced: Mapping[str, T]) -> dict[str, T]:
    return {_MARGIN if key == "score_mean" else _MARGIN_STDERR: value for key, value in reduced.items()}


def _undecided(name: str, outcome: Outcome) -> Outcome:
    """The outcome of a pair with an answer that has no sum of log-probabilities."""
    tokens = outcome.measurements["weighted_tokens"]
    why = "has a token that is impossible" if outcome.measurements["minus_inf"] else "has no tokens that count"
    message = f"{name} is undefined: the answer {why}, of {tokens:,.0f}"
    return Outcome(verdict=Verdict.UNDECIDED, problem=Problem(reason=Reason.UNDECIDED, message=message))
