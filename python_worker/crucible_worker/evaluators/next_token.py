"""The evaluator `next_token_accuracy`: how often the token that a model holds for the likeliest is what follows.

Every token is foretold behind the sample's own tokens, whatever was foretold before it (teacher forcing). Nothing is
generated: one call of a model tells of all tokens of a sample.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Datum,
    EvaluatorInfo,
    EvaluatorKind,
    Metrics,
    Sample,
    SampleResult,
    SamplingParams,
    Verdict,
)
from crucible_worker.backends.base import (
    UNKNOWN_TOKEN,
    Capability,
    Model,
    Tokenizer,
)
from crucible_worker.backends.greedy import greedy_tokens
from crucible_worker.evaluators.base import Evaluator, Outcome, SampleContext
from crucible_worker.evaluators.cleaning import CLEAN_OPTION, NO_CLEANING, Cleaning, Uncleanable
from crucible_worker.evaluators.measured_tokens import INTERMEDIATES_OPTION, measured_group
from crucible_worker.evaluators.reducing import ADDED_OPTION, REDUCE, keys_by, reduced_or
from crucible_worker.evaluators.targets import (
    ROLLING,
    TRAIN_ON_OPTION,
    WINDOWS_OPTION,
    check_measured,
    checked_targets,
    sequence_of,
)
from crucible_worker.metrics.scores import Reduce
from crucible_worker.metrics.token_accuracy import TOKEN_ACCURACY_KEYS, TokenHits, token_accuracy
from crucible_worker.rendering import RENDERER_OPTION, TrainOn, check_renderer, render_supervised
from crucible_worker.rendering.whole import is_whole, render_whole
from crucible_worker.rendering.windows import windows_of

__all__ = ["NextToken", "NextTokenType"]

_KIND = "next_token_accuracy"
_TOKENS, _RIGHT, _WHOLE = "tokens", "right_tokens", "right_as_a_whole"

_INFO = EvaluatorInfo(
    kind=_KIND,
    kinds=(EvaluatorKind.SAMPLING,),
    description="Share of the weighted tokens of text, conversations or Datums that the model holds for the likeliest.",
    options_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "train_on": dict(TRAIN_ON_OPTION),
            "clean": {
                **CLEAN_OPTION,
                "description": (
                    "How the text of a sample's likeliest tokens and that of its own are cleaned before they are "
                    "compared, for sample_accuracy: steps as of rollout. Empty: the tokens have to be the same."
                ),
            },
            "windows": dict(WINDOWS_OPTION),
            "renderer": dict(RENDERER_OPTION),
            REDUCE: dict(ADDED_OPTION),
            "intermediates": dict(INTERMEDIATES_OPTION),
        },
        "additionalProperties": False,
    },
    keys=dict.fromkeys(TOKEN_ACCURACY_KEYS, "fraction of 1"),
)


class NextTokenType:
    """The kind `next_token_accuracy`."""

    @property
    def info(self) -> EvaluatorInfo:
        """What it is."""
        return _INFO

    def keys_by(self, options: Mapping[str, Any]) -> Sequence[str]:
        """The keys that one with these options can yield."""
        return keys_by(options, TOKEN_ACCURACY_KEYS)

    def create(self, options: Mapping[str, Any], sampling: SamplingParams | None) -> Evaluator:
        """Make one; nothing is sampled.

        Raises:
            FailedPrecondition: the renderer needs a library that is not installed.
            InvalidField: an expression of `clean` is none of RE2.
        """
        check_renderer(options["renderer"])
        return NextToken(
            train_on=options["train_on"],
            clean=Cleaning.of(options["clean"], 'options["clean"]'),
            rolling=options["windows"] == ROLLING,
            renderer=options["renderer"],
            reduce=Reduce(options[REDUCE]),
            intermediates=options["intermediates"],
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NextToken:
    """Asks for the likeliest token in place of each that is measured: those that `perplexity` measures."""

    train_on: TrainOn = "last_assistant"
    """Which messages of a conversation have weight."""
    clean: Cleaning = NO_CLEANING
    """What is done to the texts of a sample before they are compared; without steps tokens are."""
    rolling: bool = True
    """Whether text without a target is measured in windows where it is longer than the context."""
    renderer: str = "auto"
    """How text and conversations become tokens, see `crucible_worker.rendering.renderers`."""
    reduce: Reduce = Reduce.MEAN
    """What becomes of the samples' scores."""
    intermediates: bool = False
    """Whether tokens are kept."""

    @property
    def measures_likelihoods(self) -> bool:
        """It asks for log-probabilities of what is there."""
        return True

    @property
    def repeats(self) -> int:
        """One: there is nothing random in it."""
        return 1

    def check(self, model: Model) -> None:
        """Refuse a model that tells no likeliest tokens.

        Raises:
            FailedPrecondition: it has no such client (reason MISSING_CLIENT).
        """
        _check_client(model)

    def check_sample(self, sample: Sample) -> None:
        """Refuse what `nll` refuses.

        Raises:
            InvalidField: names the array of a Datum, or the conversation that the renderer takes none of.
        """
        check_measured(sample, self.renderer)

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Measure one sample.

        Returns:
            MEASURED with the share of its own tokens as its score; without a score where no token has weight.

        Raises:
            InvalidField: targets and weights do not fit the input, or it is more than the context holds and not cut.
            FailedPrecondition: the sample cannot be rendered for this model, the client is missing or does not tell
                (NO_GREEDY_TOKENS), or texts are to be compared and there is no tokenizer at hand.
            BackendError: the model could not be asked, or its answer makes no sense.
        """
        model = context.model
        if whole := is_whole(sample.input, sample.targets):
            datum = await render_whole(model.tokenizer, sample.input)
        else:
            datum = await render_supervised(model.tokenizer, sample, self.train_on, self.renderer)
        targets, weights = checked_targets(datum)
        counted = np.flatnonzero(weights)
        wanted = targets[counted]
        likeliest = (await self._likeliest(model, datum, rolling=self.rolling and whole))[counted]
        right = int(np.count_nonzero(likeliest == wanted))
        same = right == wanted.size or await self._same(model.tokenizer, likeliest, wanted)
        score = right / wanted.size if wanted.size else None
        return Outcome(
            verdict=Verdict.MEASURED,
            score=score,
            method="compute_greedy",
            measurements={_TOKENS: float(wanted.size), _RIGHT: float(right), _WHOLE: float(same)},
            # Which token is the likeliest is told, and not how likely it is.
            group=None if score is None or not self.intermediates else measured_group(datum, None, score),
        )

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """Accuracy over all tokens, with its standard error, and over all samples; or what `reduce` says."""
        return reduced_or(results, self.reduce, _accuracy)

    async def _likeliest(self, model: Model, datum: Datum, *, rolling: bool) -> np.ndarray:
        """In place of each target."""
        _check_client(model)
        targets, weights = checked_targets(datum)
        context = model.context_length if rolling else None
        # A prompt holds the last target, too.
        windows = windows_of(targets.size, None if context is None else context - 1)
        found: Sequence[np.ndarray] = [
            window.measured(await greedy_tokens(model, sequence_of(window.cut(datum, targets, weights))))
            for window in windows
        ]
        return np.concatenate(found)

    async def _same(self, tokenizer: Tokenizer | None, likeliest: np.ndarray, wanted: np.ndarray) -> bool:
        """Whether tokens that are not the same are so as cleaned texts."""
        if not self.clean.steps:
            return False
        if tokenizer is None:
            raise FailedPrecondition(
                "the model has no tokenizer at hand: the text of its tokens cannot be cleaned",
                reason=Reason.NO_TOKENIZER,
            )
        if UNKNOWN_TOKEN in likeliest:
            raise FailedPrecondition(
                "the model's service does not tell likeliest tokens by their ids: their text cannot be cleaned",
                reason=Reason.NO_GREEDY_TOKENS,
            )
        try:
            told, own = [await self.clean.text(await tokenizer.decode(each.tolist())) for each in (likeliest, wanted)]
        except Uncleanable as error:
            raise InvalidField("input", str(error)) from None
        return told == own


def _check_client(model: Model) -> None:
    if Capability.GREEDY not in model.capabilities:
        raise FailedPrecondition(
            f"{_KIND} needs a sampling client that tells likeliest tokens, which the model lacks",
            reason=Reason.MISSING_CLIENT,
        )


def _accuracy(results: Iterable[SampleResult]) -> Metrics:
    return token_accuracy([_hits(result.measurements) for result in results if result.verdict is Verdict.MEASURED])


def _hits(measurements: Mapping[str, float]) -> TokenHits:
    return TokenHits(
        tokens=int(measurements[_TOKENS]),
        right=int(measurements[_RIGHT]),
        whole=bool(measurements[_WHOLE]),
    )
