"""The evaluators `perplexity` and `bits_per_byte`: how well a model predicts text, by token and by byte.

    perplexity     exp(-sum of log-probabilities / weights of the tokens), that is exp(nll)
    bits_per_byte  -sum of log-probabilities / ln 2 / UTF-8 bytes of the measured text

One mean over all samples, not a mean of means. Perplexities of models with different tokenizers do not compare; bits
per byte do.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Conversation, Datum, Metrics, Sample, SampleResult, Verdict
from crucible_worker.evaluators.base import Outcome, SampleContext
from crucible_worker.evaluators.measured_tokens import (
    ROLLING,
    Intermediates,
    ReduceMean,
    TrainOnOption,
    Windows,
    keys_by,
    measured_group,
)
from crucible_worker.evaluators.nll import NLL, Client, Likelihoods, mean_of
from crucible_worker.metrics.scores import Reduce
from crucible_worker.metrics.sequences import exact_sum
from crucible_worker.rendering import RendererName, check_input
from crucible_worker.rendering.prompts import Prompted, measured_text, require_tokenizer
from crucible_worker.rendering.supervised import render_behind, render_whole

__all__ = ["BitsPerByte", "Perplexity"]

_PERPLEXITY, _BITS, _BYTES = "perplexity", "bits_per_byte", "bytes"


class _WholeTexts(Likelihoods, keys={}):
    """Measures like `nll`, and text without a target as a whole."""

    windows: Windows = ROLLING
    reduce: ReduceMean = Reduce.MEAN
    intermediates: Intermediates = False

    @classmethod
    def keys_for(cls, options: Mapping[str, Any]) -> Sequence[str]:
        """The keys that one with these options can yield."""
        return keys_by(options, tuple(cls.keys), added=False)


class Perplexity(_WholeTexts, NLL, kind=_PERPLEXITY, keys={_PERPLEXITY: "exp of nats per unit of weight"}):
    """Perplexity of text, of targets after it, of conversations or of the weighted targets of Datums."""

    client: Client = "auto"
    train_on: TrainOnOption = "last_assistant"
    windows: Windows = ROLLING
    renderer: RendererName = "auto"
    reduce: ReduceMean = Reduce.MEAN
    intermediates: Intermediates = False

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Measure one sample.

        Returns:
            MEASURED with the sample's own perplexity as its score; without a score if it has none.

        Raises:
            BridgeError: as for `NLL.run`.
        """
        model = context.model
        datum = await self.rendered(sample, model)
        outcome, logprobs = await self.measure_each(datum, model, rolling=self.rolls(sample))
        own = None if outcome.score is None else _exp(outcome.score)
        kept = None if own is None or not self.intermediates else measured_group(datum, logprobs, own)
        return dataclasses.replace(outcome, score=own, group=kept)

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """`perplexity` over every measured sample; undefined if `nll` is, or if it is beyond float64."""
        if self.reduce is Reduce.NONE:
            return Metrics({})
        metrics = mean_of(results)
        if "nll" not in metrics.values:
            return Metrics.all_undefined((_PERPLEXITY,), metrics.undefined["nll"])
        nll = metrics.values["nll"]
        perplexity = _exp(nll)
        if perplexity is None:
            return Metrics.all_undefined((_PERPLEXITY,), f"exp({nll:g}) is beyond float64")
        return Metrics.of({_PERPLEXITY: perplexity})


class BitsPerByte(_WholeTexts, kind=_BITS, keys={_BITS: "bits per UTF-8 byte"}):
    """Bits that a model needs for a byte of text, or of targets after it.

    The end-of-sequence token has no bytes.
    """

    client: Client = "auto"
    windows: Windows = ROLLING
    renderer: RendererName = "auto"
    reduce: ReduceMean = Reduce.MEAN
    intermediates: Intermediates = False

    def check_sample(self, sample: Sample) -> None:
        """Refuse a sample without bytes to count.

        Raises:
            InvalidField: the sample is a conversation or a Datum, or its text is empty.
        """
        check_input(sample.input, self.renderer)
        for kind, field in ((Conversation, "conversation"), (Datum, "datum")):
            # The bytes of a row's target can be counted, whatever prompt is made of the row.
            counted = isinstance(sample.input, Prompted) and bool(sample.targets)
            if isinstance(sample.input, kind) and not counted:
                raise InvalidField(field, "is not text, so there are no bytes to count")
        if not _measured(sample):
            raise InvalidField("targets[0]" if sample.targets else "text", "is empty: there is nothing to measure")

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Measure one sample.

        Returns:
            MEASURED with the sample's own bits per byte as its score; without a score if a token is impossible.

        Raises:
            InvalidField: the sample is not text, or is longer than the context and must not be split.
            FailedPrecondition: it cannot be rendered for this model, or the client is missing.
            BackendError: the model answered with NaN (reason NAN_LOGPROB), +inf, or another number of values.
        """
        self.check_sample(sample)
        if sample.targets:
            datum = await render_behind(context.model.tokenizer, sample, self.renderer)
        else:
            assert isinstance(sample.input, str)  # only text passes the check
            datum = await render_whole(context.model.tokenizer, sample.input)
        rolling = self.windows == ROLLING and not sample.targets
        outcome, logprobs = await self.measure_each(datum, context.model, rolling=rolling)
        text = _measured(sample)
        if sample.targets:
            assert not isinstance(sample.input, Datum)
            tokenizer = require_tokenizer(context.model.tokenizer)
            text = measured_text(tokenizer, sample.input, text, self.renderer)
        size = len(text.encode("utf-8", "surrogatepass"))
        total = outcome.measurements.get("weighted_logprob_sum")
        own = None if total is None else _bits(total, size)
        return dataclasses.replace(
            outcome,
            score=own,
            measurements={**outcome.measurements, _BYTES: float(size)},
            group=None if own is None or not self.intermediates else measured_group(datum, logprobs, own),
        )

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """`bits_per_byte` over every measured sample; undefined if `nll` is."""
        if self.reduce is Reduce.NONE:
            return Metrics({})
        measured = [result for result in results if result.verdict is Verdict.MEASURED]
        metrics = mean_of(measured)
        if metrics.undefined:
            return Metrics.all_undefined((_BITS,), metrics.undefined["nll"])
        total = exact_sum(result.measurements["weighted_logprob_sum"] for result in measured)
        return Metrics.of({_BITS: _bits(total, exact_sum(result.measurements[_BYTES] for result in measured))})


def _measured(sample: Sample) -> str:
    """The text with the bytes that count."""
    return sample.targets[0] if sample.targets else str(sample.input)


def _bits(logprob: float, size: float) -> float:
    return -logprob / math.log(2) / size


def _exp(nll: float) -> float | None:
    """None beyond float64."""
    try:
        return math.exp(nll)
    except OverflowError:
        return None
