"""The evaluator `next_token_accuracy`: how often the token that a model considers the likeliest is the next one.

Every token is predicted after the sample's own tokens, whatever was predicted before it (teacher forcing). Nothing is
generated: one call of a model measures all tokens of a sample.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Datum,
    Metrics,
    ModelInput,
    Sample,
    SampleResult,
    Verdict,
)
from crucible_worker.backends.base import (
    UNKNOWN_TOKEN,
    Capability,
    Model,
    Tokenizer,
)
from crucible_worker.evaluators.base import Outcome, SampleContext
from crucible_worker.evaluators.cleaning import Cleaning, CleaningSteps, Uncleanable
from crucible_worker.evaluators.declared import BaseEvaluator
from crucible_worker.evaluators.measured_tokens import (
    ROLLING,
    Intermediates,
    ReduceAdded,
    TrainOnOption,
    Windows,
    check_measured,
    checked_targets,
    keys_by,
    measured_group,
    reduced_or,
    sequence_of,
)
from crucible_worker.metrics.scores import TOKEN_ACCURACY_KEYS, Reduce, TokenHits, token_accuracy
from crucible_worker.rendering import RendererName, render_supervised
from crucible_worker.rendering.supervised import is_whole, render_whole, windows_of

__all__ = ["NextToken"]

_KIND = "next_token_accuracy"
_TOKENS, _RIGHT, _WHOLE = "tokens", "right_tokens", "right_as_a_whole"


class NextToken(BaseEvaluator, kind=_KIND, keys=dict.fromkeys(TOKEN_ACCURACY_KEYS, "fraction of 1")):
    """Share of the weighted tokens of text, conversations or Datums that the model considers the likeliest.

    It measures the same tokens as `perplexity`.
    """

    train_on: TrainOnOption = "last_assistant"
    clean: CleaningSteps = ()
    """How the text of a sample's likeliest tokens and its own text are cleaned before they are compared, for
    sample_accuracy: steps as for rollout. Without steps the tokens must be equal."""
    windows: Windows = ROLLING
    renderer: RendererName = "auto"
    reduce: ReduceAdded = Reduce.MEAN
    intermediates: Intermediates = False

    measures_likelihoods: ClassVar[bool] = True
    """See `evaluators.base.measures_likelihoods`."""

    def __post_init__(self) -> None:
        """Refuse invalid steps.

        Raises:
            InvalidField: an expression of `clean` is not valid in RE2.
        """
        super().__post_init__()
        _ = self.cleaning

    @functools.cached_property
    def cleaning(self) -> Cleaning:
        """The steps that clean the texts of a sample before they are compared; without steps tokens are compared."""
        return Cleaning.of(self.clean, 'options["clean"]')

    @classmethod
    def keys_for(cls, options: Mapping[str, Any]) -> Sequence[str]:
        """The keys that one with these options can yield."""
        return keys_by(options, TOKEN_ACCURACY_KEYS)

    def check(self, model: Model) -> None:
        """Refuse a model that does not report likeliest tokens.

        Raises:
            FailedPrecondition: it has no such client (reason MISSING_CLIENT).
        """
        _check_client(model)

    def check_sample(self, sample: Sample) -> None:
        """Refuse the same samples as `nll`.

        Raises:
            InvalidField: names the array of a Datum, or the conversation, if the renderer accepts none.
        """
        check_measured(sample, self.renderer, self.train_on)

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Measure one sample.

        Returns:
            MEASURED with the share of its own tokens as its score; without a score if no token has weight.

        Raises:
            InvalidField: targets and weights do not fit the input, or it is longer than the context and is not split.
            FailedPrecondition: the sample cannot be rendered for this model, the client is missing or does not report
                them (NO_GREEDY_TOKENS), or texts are to be compared without a tokenizer.
            BackendError: the model could not be queried, or its answer is invalid.
        """
        model = context.model
        if whole := is_whole(sample.input, sample.targets):
            datum = await render_whole(model.tokenizer, sample.input)
        else:
            datum = await render_supervised(model.tokenizer, sample, self.train_on, self.renderer)
        targets, weights = checked_targets(datum)
        counted = np.flatnonzero(weights)
        wanted = targets[counted]
        likeliest = (await self._likeliest(model, datum, rolling=self.windows == ROLLING and whole))[counted]
        right = int(np.count_nonzero(likeliest == wanted))
        same = right == wanted.size or await self._same(model.tokenizer, likeliest, wanted)
        score = right / wanted.size if wanted.size else None
        return Outcome(
            verdict=Verdict.MEASURED,
            score=score,
            method="compute_argmax",
            measurements={_TOKENS: float(wanted.size), _RIGHT: float(right), _WHOLE: float(same)},
            # Models report which token is the likeliest, not how likely it is.
            group=None if score is None or not self.intermediates else measured_group(datum, None, score),
        )

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """Accuracy over all tokens, with its standard error, and over all samples; or the result of `reduce`."""
        return reduced_or(results, self.reduce, _accuracy)

    async def _likeliest(self, model: Model, datum: Datum, *, rolling: bool) -> np.ndarray:
        """The likeliest token at the position of each target."""
        _check_client(model)
        targets, weights = checked_targets(datum)
        context = model.context_length if rolling else None
        # A prompt contains the last target, too.
        windows = windows_of(targets.size, None if context is None else context - 1)
        found: Sequence[np.ndarray] = [
            window.measured(await _argmax_tokens(model, sequence_of(window.cut(datum, targets, weights))))
            for window in windows
        ]
        return np.concatenate(found)

    async def _same(self, tokenizer: Tokenizer | None, likeliest: np.ndarray, wanted: np.ndarray) -> bool:
        """Whether different tokens are equal as cleaned texts."""
        if not self.cleaning.steps:
            return False
        if tokenizer is None:
            raise FailedPrecondition(
                "the model has no tokenizer at hand: the text of its tokens cannot be cleaned",
                reason=Reason.NO_TOKENIZER,
            )
        if UNKNOWN_TOKEN in likeliest:
            raise FailedPrecondition(
                "the model's service does not report the ids of likeliest tokens: their text cannot be cleaned",
                reason=Reason.NO_GREEDY_TOKENS,
            )
        try:
            told, own = [
                await self.cleaning.text(await tokenizer.decode(each.tolist())) for each in (likeliest, wanted)
            ]
        except Uncleanable as error:
            raise InvalidField("input", str(error)) from None
        return told == own


def _check_client(model: Model) -> None:
    if Capability.ARGMAX not in model.capabilities:
        known = ", ".join(sorted(model.capabilities)) or "nothing"
        raise FailedPrecondition(
            f"{_KIND} needs a model that answers {Capability.ARGMAX}, the likeliest token at each position; "
            f"this one answers {known}",
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


async def _argmax_tokens(model: Model, tokens: np.ndarray) -> np.ndarray:
    """Likeliest token after each of these except the last, given all before it.

    Args:
        model: what is called.
        tokens: shape (n,), int64, n at least 1.

    Returns:
        Shape (n - 1,), int64; `UNKNOWN_TOKEN` where it differs from the next one, and no more is known.

    Raises:
        FailedPrecondition: its service does not report them (NO_GREEDY_TOKENS).
        BackendError: there is no answer, or none that makes sense.
    """
    answer = await model.compute_argmax(ModelInput.of(tokens))
    if len(answer) != tokens.size:
        raise _nonsense(f"compute_argmax answered {tokens.size:,} tokens with {len(answer):,}")
    known = [token for token in answer[1:] if token is not None]
    if len(known) != tokens.size - 1:
        raise _nonsense(f"compute_argmax left out {tokens.size - 1 - len(known):,} tokens beside the first")
    return np.array(known, np.int64)


def _nonsense(message: str) -> BackendError:
    return BackendError(message, reason=Reason.BACKEND_ANSWER, retryable=False)
