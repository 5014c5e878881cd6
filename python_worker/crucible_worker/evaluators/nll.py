"""The evaluator `nll`: mean negative log-likelihood of the target tokens of a data set.

See `crucible_worker.metrics.nll` for the formula. One mean over the tokens of all samples, not a mean of means: each
sample keeps its exact sums as measurements, and `aggregate` puts them together.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, get_args

import numpy as np

from crucible_bridge.arrays import floats
from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField
from crucible_bridge.types import (
    Datum,
    EvaluatorInfo,
    EvaluatorKind,
    Goal,
    Metrics,
    ModelInput,
    Sample,
    SampleResult,
    SamplingParams,
    TokensChunk,
    Verdict,
)
from crucible_worker.backends.base import Model, SamplingClient, TrainingClient
from crucible_worker.evaluators.base import Evaluator, Outcome, SampleContext
from crucible_worker.metrics.nll import NLLParts, combine, nll_parts
from crucible_worker.rendering import RENDERER_OPTION, TrainOn, check_input, check_renderer, render_supervised

__all__ = ["CLIENT_OPTION", "NLL", "TRAIN_ON_OPTION", "NLLType", "mean_of"]

_AUTO, _TRAINING, _SAMPLING = "auto", "training", "sampling"
_TARGETS, _WEIGHTS = 'loss_fn_inputs["target_tokens"]', 'loss_fn_inputs["weights"]'

CLIENT_OPTION: Mapping[str, Any] = MappingProxyType(
    {
        "type": "string",
        "enum": [_AUTO, _TRAINING, _SAMPLING],
        "default": _AUTO,
        "description": (
            "Ask forward passes of a training client or log-probabilities of a sampling client; auto: training "
            "where the model has it."
        ),
    }
)
"""JSON schema of the option `client` of whatever measures given tokens."""

TRAIN_ON_OPTION: Mapping[str, Any] = MappingProxyType(
    {
        "type": "string",
        "enum": list(get_args(TrainOn)),
        "default": "last_assistant",
        "description": "Which messages of a conversation have weight.",
    }
)
"""JSON schema of the option `train_on`."""

_INFO = EvaluatorInfo(
    kind="nll",
    kinds=(EvaluatorKind.TRAINING, EvaluatorKind.SAMPLING),
    description="Mean negative log-likelihood of the weighted target tokens of Datums, conversations or text.",
    options_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "client": dict(CLIENT_OPTION),
            "train_on": dict(TRAIN_ON_OPTION),
            "renderer": dict(RENDERER_OPTION),
        },
        "additionalProperties": False,
    },
    keys={"nll": "nats per unit of weight"},
    score_goal=Goal.LOWER,
)


class NLLType:
    """The kind `nll`."""

    @property
    def info(self) -> EvaluatorInfo:
        """What it is."""
        return _INFO

    def create(self, options: Mapping[str, Any], sampling: SamplingParams | None) -> Evaluator:
        """Make one; nothing is sampled.

        Raises:
            FailedPrecondition: the renderer needs a library that is not installed.
        """
        check_renderer(options["renderer"])
        return NLL(client=options["client"], train_on=options["train_on"], renderer=options["renderer"])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NLL:
    """Measures samples, one model call each.

    A sample is

    - a Datum with `target_tokens` and `weights`, both of its input's length, weights as given;
    - a conversation, whose messages have weight by `train_on`;
    - text with a target (the first of several), whose tokens have weight 1, those of the input none.

    `crucible_worker.rendering` says how text and conversations become tokens.
    """

    client: str = _AUTO
    """"auto", "training" or "sampling"."""
    train_on: TrainOn = "last_assistant"
    """Which messages of a conversation have weight."""
    renderer: str = "auto"
    """How text and conversations become tokens, see `crucible_worker.rendering.renderers`."""
    kind: str = "nll"
    """Who measures, for errors."""

    @property
    def repeats(self) -> int:
        """One: there is nothing random in it."""
        return 1

    def check(self, model: Model) -> None:
        """Refuse a model without the client that is asked for.

        Raises:
            FailedPrecondition: the model lacks it (reason MISSING_CLIENT).
        """
        if self._training(model) is None and self._sampling(model) is None:
            needed = "a training or a sampling" if self.client == _AUTO else f"a {self.client}"
            raise FailedPrecondition(
                f"{self.kind} needs {needed} client, which the model lacks", reason="MISSING_CLIENT"
            )

    def check_sample(self, sample: Sample) -> None:
        """Refuse a Datum without targets or weights, or with such that do not fit its input; and what is not rendered.

        Raises:
            InvalidField: names the array, or the conversation that the renderer takes none of.
        """
        check_input(sample.input, self.renderer)
        if isinstance(sample.input, Datum):
            try:
                _structure(sample.input)
            except InvalidField as error:
                raise InvalidField(f"datum.{error.field}", error.message, reason=error.reason) from None

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Measure one sample.

        Returns:
            MEASURED with the sample's own mean as its score; without a score where it has none, as no token has weight
            or a token is impossible (-inf).

        Raises:
            InvalidField: the sample lacks targets or weights, or they do not fit its input.
            FailedPrecondition: the sample cannot be rendered for this model, or the client is missing.
            BackendError: the model answered with NaN (reason NAN_LOGPROB), +inf, or another number of values.
        """
        datum = await render_supervised(context.model.tokenizer, sample, self.train_on, self.renderer)
        return await self.measure(datum, context.model)

    async def measure(self, datum: Datum, model: Model) -> Outcome:
        """Measure what a sample was rendered to; result and errors are those of `run`."""
        targets, weights = _checked(datum)
        if (training := self._training(model)) is not None:
            logprobs, method = await _forward(training, datum, targets), "forward"
        elif (sampling := self._sampling(model)) is not None:
            logprobs, method = (
                await _compute_logprobs(sampling, datum.model_input, targets, weights),
                "compute_logprobs",
            )
        else:
            raise FailedPrecondition(f"the model lacks the client that {self.kind} needs", reason="MISSING_CLIENT")
        parts = nll_parts(logprobs, weights)
        if parts.nan or parts.plus_inf:
            reason = "NAN_LOGPROB" if parts.nan else "INFINITE_LOGPROB"
            raise BackendError(parts.undefined, reason=reason, retryable=False)
        return Outcome(
            verdict=Verdict.MEASURED,
            score=None if parts.undefined else parts.nll,
            method=method,
            measurements=_measurements(parts),
        )

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """`nll` over every measured sample; undefined where a weighted token was -inf, or nothing was measured."""
        return mean_of(results)

    def _training(self, model: Model) -> TrainingClient | None:
        return None if self.client == _SAMPLING else model.training

    def _sampling(self, model: Model) -> SamplingClient | None:
        return None if self.client == _TRAINING else model.sampling


def mean_of(results: Iterable[SampleResult]) -> Metrics:
    """`nll` of samples that were measured, from the sums that each has on record; undefined where there is none."""
    parts = [_parts(result.measurements) for result in results if result.verdict is Verdict.MEASURED]
    return combine(parts) if parts else Metrics.all_undefined(_INFO.keys, "no sample was scored")


def _checked(datum: Datum) -> tuple[np.ndarray, np.ndarray]:
    """A datum's targets and weights, each of shape (T,), the weights finite."""
    targets, weights = _structure(datum)
    if bad := int(np.count_nonzero(~np.isfinite(weights))):
        raise InvalidField(_WEIGHTS, f"holds {bad:,} values that are not finite, of {weights.size:,}")
    return targets, weights


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


async def _forward(client: TrainingClient, datum: Datum, targets: np.ndarray) -> np.ndarray:
    answers = await client.forward([datum])
    if len(answers) != 1 or np.shape(answers[0]) != targets.shape:
        got = ", ".join(str(np.shape(answer)) for answer in answers[:3]) or "none"
        raise _nonsense(f"forward answered one datum of {targets.size:,} targets with arrays of shapes: {got}")
    return np.asarray(answers[0])


async def _compute_logprobs(
    client: SamplingClient, model_input: ModelInput, targets: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Log-probabilities of the targets: those of the full sequence, input and last target, but for its first token."""
    tokens = model_input.tokens()
    if np.any((targets[:-1] != tokens[1:]) & (weights[:-1] != 0)):
        raise InvalidField(
            _TARGETS, "is not model_input moved by one token, and a sampling client knows no other targets"
        )
    sequence = np.append(tokens, targets[-1])
    answer = await client.compute_logprobs(ModelInput.of(sequence))
    if len(answer) != sequence.size:
        raise _nonsense(f"compute_logprobs answered {sequence.size:,} tokens with {len(answer):,} values")
    known = [value for value in answer[1:] if value is not None]
    if len(known) != targets.size:
        raise _nonsense(f"compute_logprobs left out {targets.size - len(known):,} values beside the first")
    return np.array(known, np.float64)


def _nonsense(message: str) -> BackendError:
    return BackendError(message, reason="BACKEND_ANSWER", retryable=False)


def _measurements(parts: NLLParts) -> dict[str, float]:
    measurements = {
        "weighted_logprob_sum": parts.weighted_logprob_sum,
        "weight_sum": parts.weight_sum,
        "weighted_tokens": float(parts.tokens),
        "minus_inf": float(parts.minus_inf),
    }
    # Measurements are finite: a sum that is not is left out, and read as NaN again.
    return {key: value for key, value in measurements.items() if math.isfinite(value)}


def _parts(measurements: Mapping[str, float]) -> NLLParts:
    return NLLParts(
        weighted_logprob_sum=measurements.get("weighted_logprob_sum", math.nan),
        weight_sum=measurements.get("weight_sum", math.nan),
        tokens=int(measurements["weighted_tokens"]),
        minus_inf=int(measurements["minus_inf"]),
    )
