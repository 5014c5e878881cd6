"""The evaluator `nll`: mean negative log-likelihood of the target tokens of a data set.

See `crucible_worker.metrics.nll` for the formula. One mean over the tokens of all samples, not a mean of means: each
sample records its exact sums as measurements, and `aggregate` combines them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import numpy as np
from msgspec import Meta

from crucible_bridge.errors import BackendError, FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Datum,
    EvaluatorKind,
    Goal,
    Metrics,
    ModelInput,
    Sample,
    SampleResult,
    Verdict,
)
from crucible_worker.backends.base import Capability, Model
from crucible_worker.backends.continuations import concurrently
from crucible_worker.evaluators.base import Outcome, SampleContext
from crucible_worker.evaluators.declared import BaseEvaluator
from crucible_worker.evaluators.measured_tokens import (
    ROLLING,
    TrainOnOption,
    Windows,
    check_measured,
    checked_targets,
    sequence_of,
)
from crucible_worker.metrics.nll import NLLParts, combine, nll_parts
from crucible_worker.rendering import RendererName, render_supervised
from crucible_worker.rendering.supervised import is_whole, render_whole, windows_of

__all__ = ["NLL", "WINDOWS_AT_ONCE", "Client", "Likelihoods", "mean_of"]

WINDOWS_AT_ONCE = 256
"""Windows of one text in a call, so that a text of any length takes bounded memory, and can be cancelled in between."""

_NLL = "nll"
_AUTO: Final = "auto"
_TRAINING, _SAMPLING = "training", "sampling"
_FORWARD = "forward"

Client: TypeAlias = Annotated[
    Literal["auto", "training", "sampling"],
    Meta(
        description=(
            "Query forward passes of a training client or log-probabilities of a sampling client; auto: training "
            "if the model has it."
        )
    ),
]
"""The type of the option `client` of evaluators that measure given tokens."""


class Likelihoods(
    BaseEvaluator, kinds=(EvaluatorKind.TRAINING, EvaluatorKind.SAMPLING), keys={}, score_goal=Goal.LOWER
):
    """Measures samples in tokens, one model call each; a base class."""

    client: Client = _AUTO
    renderer: RendererName = "auto"
    measures_likelihoods: ClassVar[bool] = True
    """See `evaluators.base.measures_likelihoods`."""

    def check(self, model: Model) -> None:
        """Refuse a model without the requested client.

        Raises:
            FailedPrecondition: the model lacks it (reason MISSING_CLIENT).
        """
        if not self._forwards(model) and not self._measures(model):
            needed = "a training or a sampling" if self.client == _AUTO else f"a {self.client}"
            raise FailedPrecondition(
                f"{self.kind} needs {needed} client, which the model lacks", reason=Reason.MISSING_CLIENT
            )

    async def measure(self, datum: Datum, model: Model, *, rolling: bool = False) -> Outcome:
        """Measure a rendered sample; result and errors are those of `run`.

        Args:
            datum: the sample in tokens.
            model: the model to query.
            rolling: measure text longer than the model's context in windows, if the context is known.
        """
        outcome, _ = await self.measure_each(datum, model, rolling=rolling)
        return outcome

    async def measure_all(self, data: Sequence[Datum], model: Model) -> list[Outcome]:
        """Like `measure` of each, with the same bits: in one call if the model takes several, else concurrently."""
        if not self._forwards(model):
            return await concurrently(*[self.measure(datum, model) for datum in data])
        weights = [checked_targets(datum)[1] for datum in data]
        answers = await _forward(model, data)
        return [_outcome(answer, each, _FORWARD) for answer, each in zip(answers, weights, strict=True)]

    async def measure_each(self, datum: Datum, model: Model, *, rolling: bool = False) -> tuple[Outcome, np.ndarray]:
        """Like `measure`, with the log-probability of each target, shape (T,), nats."""
        targets, weights = checked_targets(datum)
        context = model.context_length if rolling else None
        if self._forwards(model):
            windows, method = windows_of(targets.size, context), _FORWARD
            answers: list[np.ndarray] = []
            for at in range(0, len(windows), WINDOWS_AT_ONCE):
                some = windows[at : at + WINDOWS_AT_ONCE]
                cuts = [window.cut(datum, targets, weights) for window in some]
                answers += await _forward(model, cuts, parts=len(cuts) > 1)
        elif self._measures(model):
            # The call includes the last target, which a forward pass leaves out.
            windows, method = windows_of(targets.size, None if context is None else context - 1), "compute_logprobs"
            cuts = (window.cut(datum, targets, weights) for window in windows)
            answers = [await _compute_logprobs(model, cut) for cut in cuts]
        else:
            raise FailedPrecondition(f"the model lacks the client that {self.kind} needs", reason=Reason.MISSING_CLIENT)
        logprobs = np.concatenate([window.measured(answer) for window, answer in zip(windows, answers, strict=True)])
        return _outcome(logprobs, weights, method, len(windows)), logprobs

    def _forwards(self, model: Model) -> bool:
        return self.client != _SAMPLING and Capability.FORWARD in model.capabilities

    def _measures(self, model: Model) -> bool:
        return self.client != _TRAINING and Capability.LOGPROBS in model.capabilities


class NLL(Likelihoods, kind="nll", keys={_NLL: "nats per unit of weight"}):
    """Mean negative log-likelihood of the weighted target tokens of Datums, conversations or text.

    A sample is one of

    - a Datum with `target_tokens` and `weights`, both of its input's length, weights as given;
    - a conversation, whose messages have weight by `train_on`;
    - text with a target (the first of several), whose tokens have weight 1, those of the input none;
    - text alone, all of whose tokens have weight 1, as `perplexity` measures it.

    `crucible_worker.rendering` says how text and conversations become tokens.
    """

    client: Client = _AUTO
    train_on: TrainOnOption = "last_assistant"
    windows: Windows = ROLLING
    renderer: RendererName = "auto"

    def check_sample(self, sample: Sample) -> None:
        """Refuse a Datum whose targets or weights are missing or do not fit its input, and an unaccepted conversation.

        Raises:
            InvalidField: names the array, or the conversation, if the renderer accepts none.
        """
        check_measured(sample, self.renderer, self.train_on)

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Measure one sample.

        Returns:
            MEASURED with the sample's own mean as its score; without a score if no token has weight
            or a token is impossible (-inf).

        Raises:
            InvalidField: the sample lacks weights, or they do not fit its input; or a text has no tokens.
            FailedPrecondition: the sample cannot be rendered for this model, or the client is missing.
            BackendError: the model answered with NaN (reason NAN_LOGPROB), +inf, or another number of values.
        """
        datum = await self.rendered(sample, context.model)
        return await self.measure(datum, context.model, rolling=self.rolls(sample))

    async def rendered(self, sample: Sample, model: Model) -> Datum:
        """Render a sample for a model, text without a target as a whole; errors are those of `run`."""
        if is_whole(sample.input, sample.targets):
            return await render_whole(model.tokenizer, sample.input)
        return await render_supervised(model.tokenizer, sample, self.train_on, self.renderer)

    def rolls(self, sample: Sample) -> bool:
        """Whether a sample is measured in windows if it is longer than the context."""
        return self.windows == ROLLING and is_whole(sample.input, sample.targets)

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """`nll` over every measured sample; undefined if a weighted token was -inf, or nothing was measured."""
        return mean_of(results)


def mean_of(results: Iterable[SampleResult]) -> Metrics:
    """`nll` of measured samples, from the sums that each has recorded; undefined if there is none."""
    parts = [_parts(result.measurements) for result in results if result.verdict is Verdict.MEASURED]
    return combine(parts) if parts else Metrics.all_undefined((_NLL,), "no sample was scored")


def _outcome(logprobs: np.ndarray, weights: np.ndarray, method: str, windows: int = 1) -> Outcome:
    parts = nll_parts(logprobs, weights)
    if parts.nan or parts.plus_inf:
        reason = Reason.NAN_LOGPROB if parts.nan else Reason.INFINITE_LOGPROB
        raise BackendError(parts.undefined, reason=reason, retryable=False)
    return Outcome(
        verdict=Verdict.MEASURED,
        score=None if parts.undefined else parts.nll,
        method=method,
        measurements={**_measurements(parts), **({"windows": float(windows)} if windows > 1 else {})},
    )


async def _forward(model: Model, data: Sequence[Datum], *, parts: bool = False) -> list[np.ndarray]:
    answers = await (model.forward_parts(data) if parts else model.forward(data))
    shapes = [np.shape(datum.loss_fn_inputs["target_tokens"]) for datum in data]
    if [np.shape(answer) for answer in answers] != shapes:
        got = ", ".join(str(np.shape(answer)) for answer in answers[:3]) or "none"
        wanted = "one datum" if len(data) == 1 else f"{len(data):,} data"
        raise _nonsense(
            f"forward answered {wanted} of {sum(map(math.prod, shapes)):,} targets with arrays of shapes: {got}"
        )
    return [np.asarray(answer) for answer in answers]


async def _compute_logprobs(model: Model, datum: Datum) -> np.ndarray:
    """Log-probabilities of the targets: those of the full sequence, input and last target, except its first token."""
    sequence = sequence_of(datum)
    answer = await model.compute_logprobs(ModelInput.of(sequence))
    if len(answer) != sequence.size:
        raise _nonsense(f"compute_logprobs answered {sequence.size:,} tokens with {len(answer):,} values")
    known = [value for value in answer[1:] if value is not None]
    if len(known) != sequence.size - 1:
        raise _nonsense(f"compute_logprobs left out {sequence.size - 1 - len(known):,} values in addition to the first")
    return np.array(known, np.float64)


def _nonsense(message: str) -> BackendError:
    return BackendError(message, reason=Reason.BACKEND_ANSWER, retryable=False)


def _measurements(parts: NLLParts) -> dict[str, float]:
    measurements = {
        "weighted_logprob_sum": parts.weighted_logprob_sum,
        "weight_sum": parts.weight_sum,
        "weighted_tokens": float(parts.tokens),
        "minus_inf": float(parts.minus_inf),
    }
    # Measurements are finite: other sums are left out, and read back as NaN.
    return {key: value for key, value in measurements.items() if math.isfinite(value)}


def _parts(measurements: Mapping[str, float]) -> NLLParts:
    return NLLParts(
        weighted_logprob_sum=measurements.get("weighted_logprob_sum", math.nan),
        weight_sum=measurements.get("weight_sum", math.nan),
        tokens=int(measurements["weighted_tokens"]),
        minus_inf=int(measurements["minus_inf"]),
    )
