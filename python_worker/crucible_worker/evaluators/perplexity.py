"""The evaluators `perplexity` and `bits_per_byte`: how well a model foretells text, by token and by byte.

    perplexity     exp(-sum of log-probabilities / weights of the tokens), that is exp(nll)
    bits_per_byte  -sum of log-probabilities / ln 2 / UTF-8 bytes of the text that they are of

One mean over all samples, not a mean of means. Perplexities of models with different tokenizers do not compare; bits
per byte do.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    Conversation,
    Datum,
    EvaluatorInfo,
    EvaluatorKind,
    Goal,
    Metrics,
    Sample,
    SampleResult,
    SamplingParams,
    Verdict,
)
from crucible_worker.backends.base import Model
from crucible_worker.evaluators.base import Evaluator, Outcome, SampleContext
from crucible_worker.evaluators.measured_tokens import INTERMEDIATES_OPTION, measured_group
from crucible_worker.evaluators.nll import CLIENT_OPTION, NLL, mean_of
from crucible_worker.evaluators.reducing import MEAN_OPTION, REDUCE, keys_by
from crucible_worker.evaluators.targets import ROLLING, TRAIN_ON_OPTION, WINDOWS_OPTION
from crucible_worker.metrics.scores import Reduce
from crucible_worker.metrics.sums import exact_sum
from crucible_worker.rendering import RENDERER_OPTION, check_input, check_renderer
from crucible_worker.rendering.whole import is_whole, render_behind, render_whole

__all__ = ["BitsPerByte", "BitsPerByteType", "Perplexity", "PerplexityType"]

_PERPLEXITY, _BITS, _BYTES = "perplexity", "bits_per_byte", "bytes"


def _info(kind: str, unit: str, description: str, further: Mapping[str, Any]) -> EvaluatorInfo:
    return EvaluatorInfo(
        kind=kind,
        kinds=(EvaluatorKind.TRAINING, EvaluatorKind.SAMPLING),
        description=description,
        options_schema={
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "client": dict(CLIENT_OPTION),
                **further,
                "windows": dict(WINDOWS_OPTION),
                "renderer": dict(RENDERER_OPTION),
                REDUCE: dict(MEAN_OPTION),
                "intermediates": dict(INTERMEDIATES_OPTION),
            },
            "additionalProperties": False,
        },
        keys={kind: unit},
        score_goal=Goal.LOWER,
    )


class PerplexityType:
    """The kind `perplexity`."""

    @property
    def info(self) -> EvaluatorInfo:
        """What it is."""
        return _info(
            _PERPLEXITY,
            "exp of nats per unit of weight",
            "Perplexity of text, of targets behind it, of conversations or of the weighted targets of Datums.",
            {"train_on": dict(TRAIN_ON_OPTION)},
        )

    def keys_by(self, options: Mapping[str, Any]) -> Sequence[str]:
        """The keys that one with these options can yield."""
        return keys_by(options, (_PERPLEXITY,), added=False)

    def create(self, options: Mapping[str, Any], sampling: SamplingParams | None) -> Evaluator:
        """Make one; nothing is sampled.

        Raises:
            FailedPrecondition: the renderer needs a library that is not installed.
        """
        check_renderer(options["renderer"])
        measured = {name: options[name] for name in ("client", "train_on", "renderer")}
        return Perplexity(NLL(**measured, kind=_PERPLEXITY), **_further(options))


class BitsPerByteType:
    """The kind `bits_per_byte`."""

    @property
    def info(self) -> EvaluatorInfo:
        """What it is."""
        return _info(
            _BITS, "bits per UTF-8 byte", "Bits that a model needs for a byte of text, or of targets behind it.", {}
        )

    def keys_by(self, options: Mapping[str, Any]) -> Sequence[str]:
        """The keys that one with these options can yield."""
        return keys_by(options, (_BITS,), added=False)

    def create(self, options: Mapping[str, Any], sampling: SamplingParams | None) -> Evaluator:
        """Make one; nothing is sampled.

        Raises:
            FailedPrecondition: the renderer needs a library that is not installed.
        """
        check_renderer(options["renderer"])
        nll = NLL(client=options["client"], renderer=options["renderer"], kind=_BITS)
        return BitsPerByte(nll, **_further(options))


def _further(options: Mapping[str, Any]) -> dict[str, Any]:
    """What both have besides."""
    return {
        "rolling": options["windows"] == ROLLING,
        "reduce": Reduce(options[REDUCE]),
        "intermediates": options["intermediates"],
    }


@dataclasses.dataclass(frozen=True, slots=True)
class Perplexity:
    """Measures as `nll` does; and text without a target as a whole."""

    nll: NLL
    """What is asked, and how."""
    rolling: bool = True
    """Whether such a text is measured in windows where it is longer than the context."""
    reduce: Reduce = Reduce.MEAN
    """What becomes of the samples' scores; a sum of perplexities says nothing."""
    intermediates: bool = False
    """Whether tokens and log-probabilities are kept."""

    @property
    def repeats(self) -> int:
        """One: there is nothing random in it."""
        return 1

    def check(self, model: Model) -> None:
        """Refuse a model without the client that is asked for.

        Raises:
            FailedPrecondition: the model lacks it (reason MISSING_CLIENT).
        """
        self.nll.check(model)

    def check_sample(self, sample: Sample) -> None:
        """Refuse what `nll` refuses.

        Raises:
            InvalidField: as `NLL.check_sample` says.
        """
        self.nll.check_sample(sample)

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Measure one sample.

        Returns:
            MEASURED with the sample's own perplexity as its score; without a score where it has none.

        Raises:
            BridgeError: as `NLL.run` says; or a text has no tokens, or the model none to put before it.
        """
        model = context.model
        if whole := is_whole(sample.input, sample.targets):
            datum = await render_whole(model.tokenizer, sample.input)
        else:
            datum = await self.nll.rendered(sample, model)
        outcome, logprobs = await self.nll.measure_each(datum, model, rolling=self.rolling and whole)
        own = None if outcome.score is None else _exp(outcome.score)
        kept = None if own is None or not self.intermediates else measured_group(datum, logprobs, own)
        return dataclasses.replace(outcome, score=own, group=kept)

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """`perplexity` over every measured sample; undefined where `nll` is, or where it is beyond float64."""
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


@dataclasses.dataclass(frozen=True, slots=True)
class BitsPerByte:
    """Measures text, or the first target behind it, and counts its bytes; what ends a sequence is none of them."""

    nll: NLL
    """What is asked, and how."""
    rolling: bool = True
    """Whether text without a target is measured in windows where it is longer than the context."""
    reduce: Reduce = Reduce.MEAN
    """What becomes of the samples' scores; a sum of bits per byte says nothing."""
    intermediates: bool = False
    """Whether tokens and log-probabilities are kept."""

    @property
    def repeats(self) -> int:
        """One: there is nothing random in it."""
        return 1

    def check(self, model: Model) -> None:
        """Refuse a model without the client that is asked for.

        Raises:
            FailedPrecondition: the model lacks it (reason MISSING_CLIENT).
        """
        self.nll.check(model)

    def check_sample(self, sample: Sample) -> None:
        """Refuse what has no bytes to count.

        Raises:
            InvalidField: the sample is a conversation or a Datum, or its text is empty.
        """
        check_input(sample.input, self.nll.renderer)
        for kind, field in ((Conversation, "conversation"), (Datum, "datum")):
            if isinstance(sample.input, kind):
                raise InvalidField(field, "is no text, the bytes of which could be counted")
        if not _measured(sample):
            raise InvalidField("targets[0]" if sample.targets else "text", "is empty: there is nothing to measure")

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Measure one sample.

        Returns:
            MEASURED with the sample's own bits per byte as its score; without a score where a token is impossible.

        Raises:
            InvalidField: the sample is no text, or more than the context holds and not to be cut.
            FailedPrecondition: it cannot be rendered for this model, or the client is missing.
            BackendError: the model answered with NaN (reason NAN_LOGPROB), +inf, or another number of values.
        """
        self.check_sample(sample)
        assert isinstance(sample.input, str)  # nothing else passes the check
        if sample.targets:
            datum = await render_behind(context.model.tokenizer, sample, self.nll.renderer)
        else:
            datum = await render_whole(context.model.tokenizer, sample.input)
        rolling = self.rolling and not sample.targets
        outcome, logprobs = await self.nll.measure_each(datum, context.model, rolling=rolling)
        size = len(_measured(sample).encode("utf-8", "surrogatepass"))
        total = outcome.measurements.get("weighted_logprob_sum")
        own = None if total is None else _bits(total, size)
        return dataclasses.replace(
            outcome,
            score=own,
            measurements={**outcome.measurements, _BYTES: float(size)},
            group=None if own is None or not self.intermediates else measured_group(datum, logprobs, own),
        )

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """`bits_per_byte` over every measured sample; undefined where `nll` is."""
        if self.reduce is Reduce.NONE:
            return Metrics({})
        measured = [result for result in results if result.verdict is Verdict.MEASURED]
        metrics = mean_of(measured)
        if metrics.undefined:
            return Metrics.all_undefined((_BITS,), metrics.undefined["nll"])
        total = exact_sum(result.measurements["weighted_logprob_sum"] for result in measured)
        return Metrics.of({_BITS: _bits(total, exact_sum(result.measurements[_BYTES] for result in measured))})


def _measured(sample: Sample) -> str:
    """The text whose bytes count."""
    return sample.targets[0] if sample.targets else str(sample.input)


def _bits(logprob: float, size: float) -> float:
    return -logprob / math.log(2) / size


def _exp(nll: float) -> float | None:
    """None beyond float64."""
    try:
        return math.exp(nll)
    except OverflowError:
        return None
