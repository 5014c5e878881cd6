"""MetricsService, typed.

Arrays are whatever `crucible_bridge.arrays.as_array` accepts: numpy arrays, torch tensors, lists, tinker's TensorData.
Data are our Datums or tinker's; only the parts that the call reads are sent.
"""

# The timeout is not measured here: it travels to the worker as gRPC's deadline.
# ruff: noqa: ASYNC109

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from crucible_bridge.arrays import as_array, floats
from crucible_bridge.client.calls import Calls
from crucible_bridge.client.given import ArrayLike, DatumLike, as_model
from crucible_bridge.client.plain_calls import PlainMetricsCalls
from crucible_bridge.codec import metric_results as results
from crucible_bridge.codec import metrics as codec
from crucible_bridge.codec import token_metrics as token_codec
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    Array,
    ClassificationMetricsRequest,
    Datum,
    DPOMetrics,
    DPOMetricsRequest,
    KLPenalty,
    KLPenaltyRequest,
    KLPostUpdate,
    KLPostUpdateRequest,
    KLSampleTrain,
    KLSampleTrainRequest,
    LogprobSource,
    MeanNLL,
    MeanNLLRequest,
    Metrics,
    ModelRef,
    PassAtKRequest,
    PreferencePair,
    SamplingClientMetricsRequest,
    Teacher,
    TrajectoryBatch,
    TrajectoryMetricsRequest,
    parse_model,
)
from crucible_bridge.v1 import metrics_pb2 as pb

__all__ = ["MetricsClient"]

_SERVICE = pb.DESCRIPTOR.services_by_name["MetricsService"].full_name
_PLAIN = frozenset(map(np.dtype, ("?", "u1", "<i4", "<i8", "<f2", "<f4", "<f8")))

T = TypeVar("T")


class MetricsClient(PlainMetricsCalls):
    """Training metrics, computed by the worker."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._methods: dict[str, Any] = {}

    async def compute_kl_sample_train(
        self,
        data: Sequence[DatumLike],
        training_logprobs: Sequence[ArrayLike],
        extended: bool = False,
        *,
        timeout: float | None = None,
    ) -> KLSampleTrain:
        """KL divergence between the policy that sampled and the policy that trains.

        Args:
            data: Datums with "logprobs" (of the sampling policy) and "mask" (a token counts if it is above 0).
            training_logprobs: of the training policy, one array per datum, of its length.
            extended: also v3, standard errors, per-sequence values, effective sample size, clip fraction.
            timeout: seconds for the call.

        Raises:
            InvalidField: something is missing, or lengths do not fit; the field names it.
        """
        request = KLSampleTrainRequest(
            logprobs=_column(data, "logprobs"),
            masks=_masks(data),
            training_logprobs=_arrays(training_logprobs, "training_logprobs"),
            extended=extended,
        )
        message = token_codec.kl_sample_train_request_to_bytes(request)
        return await self._call("ComputeKLSampleTrain", message, results.kl_sample_train_from_bytes, timeout)

    async def compute_kl_post_update(
        self,
        data: Sequence[DatumLike],
        updated: Sequence[ArrayLike] | ModelRef | str,
        deadline_ms: int | None = None,
        *,
        timeout: float | None = None,
    ) -> KLPostUpdate:
        """KL divergence between a policy before and after an update.

        Args:
            data: Datums with "logprobs" (before) and "mask"; if a model is queried, also the input and "target_tokens".
            updated: log-probabilities after the update, one array per datum; or the model to query: a reference,
                "embedded:NAME", "local:PATH", "openai:SERVER/MODEL" or "tinker:...".
            deadline_ms: milliseconds that the worker has for querying the model.
            timeout: seconds for the call.

        Raises:
            InvalidField: something is missing, or lengths do not fit; the field names it.
            DeadlineExceeded: the model took longer than `deadline_ms`.
            BackendError: the model could not be queried.
        """
        source = _source(updated, "updated")
        request = KLPostUpdateRequest(
            logprobs=_column(data, "logprobs"),
            masks=_masks(data),
            updated=source,
            data=_sequences(data) if isinstance(source, ModelRef) else (),
            deadline_ms=deadline_ms,
        )
        message = token_codec.kl_post_update_request_to_bytes(request)
        return await self._call("ComputeKLPostUpdate", message, results.kl_post_update_from_bytes, timeout)

    async def incorporate_kl_penalty(
        self,
        data: Sequence[DatumLike],
        base_logprobs: Sequence[ArrayLike] | ModelRef | str,
        *,
        coef: float,
        discount: float = 0.0,
        reverse_kl: bool = False,
        datasets: Iterable[str] = (),
        deadline_ms: int | None = None,
        timeout: float | None = None,
    ) -> KLPenalty:
        """Advantages with a penalty for leaving the base policy; the data are not changed.

        With `reverse_kl` the base policy is a teacher, and the penalty that of on-policy distillation:

            answer = await bridge.models.compute_logprobs(teacher, sequences)
            logprobs = [sequence.logprobs for sequence in answer.sequences]
            result = await bridge.metrics.incorporate_kl_penalty(data, logprobs, coef=1.0, reverse_kl=True)

        Args:
            data: Datums with "logprobs", "mask" and "advantages"; if a model is queried, also the input and
                "target_tokens".
            base_logprobs: of the base policy, one array per datum; or the model to query: a reference, "embedded:NAME",
                "local:PATH", "openai:SERVER/MODEL" or "tinker:...".
            coef: scales the penalty.
            discount: above 0, discounted sums of future penalties.
            reverse_kl: whether the penalty of a token is `coef` times its reverse KL, without the mean, and the metric
                `teacher_kl`.
            datasets: with `reverse_kl`, the data set of each datum, for `teacher_kl/dataset_<name>`.
            deadline_ms: milliseconds that the worker has for querying the model.
            timeout: seconds for the call.

        Raises:
            InvalidField: something is missing, or lengths do not fit; the field names it.
            DeadlineExceeded: the model took longer than `deadline_ms`.
            BackendError: the model could not be queried.
        """
        source = _source(base_logprobs, "base_logprobs")
        request = KLPenaltyRequest(
            logprobs=_column(data, "logprobs"),
            masks=_column(data, "mask"),
            advantages=_column(data, "advantages"),
            base=source,
            coef=coef,
            discount=discount,
            data=_sequences(data) if isinstance(source, ModelRef) else (),
            deadline_ms=deadline_ms,
            reverse_kl=reverse_kl,
            datasets=_names(datasets),
        )
        message = token_codec.kl_penalty_request_to_bytes(request)
        lengths = [array.shape[0] if array.shape else 1 for array in request.advantages]
        decode = functools.partial(results.penalty_of, lengths)
        return await self._call("IncorporateKLPenalty", message, decode, timeout)

    async def compute_mean_nll(
        self, logprobs: Sequence[ArrayLike], weights: Sequence[ArrayLike], *, timeout: float | None = None
    ) -> MeanNLL:
        """Mean negative log-likelihood and perplexity, over all tokens by their weights.

        Args:
            logprobs: one array per sequence, nats.
            weights: one array per sequence, of its length.
            timeout: seconds for the call.
        """
        request = MeanNLLRequest(logprobs=_arrays(logprobs, "logprobs"), weights=_arrays(weights, "weights"))
        message = token_codec.mean_nll_request_to_bytes(request)
        return await self._call("ComputeMeanNLL", message, results.mean_nll_from_bytes, timeout)

    async def compute_trajectory_metrics(
        self, batch: TrajectoryBatch, good_threshold: float | None = None, *, timeout: float | None = None
    ) -> Metrics:
        """A summary of a batch of trajectories: `env/all/...`, and `env/<tag>/...`.

        Args:
            batch: see `TrajectoryBatch.of`.
            good_threshold: the reward from which a group with one common reward is good; 0.5 if None.
            timeout: seconds for the call.
        """
        request = TrajectoryMetricsRequest(batch=batch, good_threshold=good_threshold)
        message = codec.trajectory_metrics_request_to_bytes(request)
        return await self._metrics("ComputeTrajectoryMetrics", pb.ComputeTrajectoryMetricsResponse, message, timeout)

    async def compute_dpo_metrics(
        self,
        chosen: ArrayLike,
        rejected: ArrayLike,
        chosen_reference: ArrayLike,
        rejected_reference: ArrayLike,
        *,
        beta: float,
        timeout: float | None = None,
    ) -> Metrics:
        """Metrics of preference pairs: dpo_loss, accuracy, margin, chosen_reward, rejected_reward.

        Args:
            chosen: the policy's weighted sum of log-probabilities of each chosen answer, shape (pairs,), nats.
            rejected: likewise, of the rejected answers.
            chosen_reference: the reference's, of the chosen answers.
            rejected_reference: the reference's, of the rejected answers.
            beta: above 0.
            timeout: seconds for the call.
        """
        request = DPOMetricsRequest(
            chosen=_unread(chosen),
            rejected=_unread(rejected),
            chosen_reference=_unread(chosen_reference),
            rejected_reference=_unread(rejected_reference),
            beta=beta,
        )
        message = codec.dpo_metrics_request_to_bytes(request)
        return await self._metrics("ComputeDPOMetrics", pb.ComputeDPOMetricsResponse, message, timeout)

    async def compute_dpo_metrics_of_models(
        self,
        pairs: Iterable[PreferencePair],
        policy: ModelRef | str,
        reference: ModelRef | str | tuple[ArrayLike, ArrayLike],
        *,
        beta: float,
        deadline_ms: int | None = None,
        timeout: float | None = None,
    ) -> DPOMetrics:
        """Metrics of preference pairs that models are queried for: those of `compute_dpo_metrics`.

        Args:
            pairs: two conversations each, which end with the chosen and the rejected answer of the assistant.
            policy: the model: a reference, "embedded:NAME", "local:PATH", "openai:SERVER/MODEL" or "tinker:...".
            reference: the model that the policy is compared with; or its log-probabilities of an earlier call,
                `chosen_reference` and `rejected_reference`.
            beta: above 0.
            deadline_ms: milliseconds that the worker has for querying the models.
            timeout: seconds for the call.

        Raises:
            InvalidField: a conversation does not end with the assistant's message, or lengths do not fit.
            DeadlineExceeded: the models took longer than `deadline_ms`.
            BackendError: a model could not be queried; the field names it, or the conversation.
        """
        given = reference if isinstance(reference, tuple) else (None, None)
        request = DPOMetricsRequest(
            chosen_reference=_unread(given[0]),
            rejected_reference=_unread(given[1]),
            beta=beta,
            policy=as_model(policy, "policy"),
            reference=None if isinstance(reference, tuple) else as_model(reference, "reference"),
            pairs=tuple(pairs),
            deadline_ms=deadline_ms,
        )
        message = codec.dpo_metrics_request_to_bytes(request)
        return await self._call("ComputeDPOMetrics", message, results.dpo_metrics_from_bytes, timeout)

    async def compute_sampling_client_metrics(
        self, steps: ArrayLike, seconds: ArrayLike, *, timeout: float | None = None
    ) -> Metrics:
        """How stale samples are and how long sampling took.

        Args:
            steps: training step of each group's sampling client, integers.
            seconds: sampling time of each group.
            timeout: seconds for the call.
        """
        message = codec.sampling_client_metrics_request_to_bytes(
            SamplingClientMetricsRequest(steps=_unread(steps), seconds=_unread(seconds))
        )
        response = pb.ComputeSamplingClientMetricsResponse
        return await self._metrics("ComputeSamplingClientMetrics", response, message, timeout)

    async def compute_classification_metrics(
        self,
        predictions: Sequence[str],
        targets: Sequence[str],
        positive: str | None = None,
        *,
        timeout: float | None = None,
    ) -> Metrics:
        """Accuracy, precision, recall and f1 of predicted labels.

        Args:
            predictions: one per sample.
            targets: one per sample.
            positive: the positive label; macro averages over all labels if None.
            timeout: seconds for the call.
        """
        message = codec.classification_metrics_request_to_bytes(
            ClassificationMetricsRequest(predictions=predictions, targets=targets, positive=positive)
        )
        response = pb.ComputeClassificationMetricsResponse
        return await self._metrics("ComputeClassificationMetrics", response, message, timeout)

    async def compute_pass_at_k(
        self, samples: ArrayLike, successes: ArrayLike, k: Iterable[int], *, timeout: float | None = None
    ) -> Metrics:
        """`pass@<k>`: how likely one of k samples is right.

        Args:
            samples: samples of each problem, integers.
            successes: right ones among them.
            k: values of k.
            timeout: seconds for the call.
        """
        request = PassAtKRequest(samples=_unread(samples), successes=_unread(successes), k=tuple(k))
        message = codec.pass_at_k_request_to_bytes(request)
        return await self._metrics("ComputePassAtK", pb.ComputePassAtKResponse, message, timeout)

    async def _metrics(self, name: str, response: type[Any], message: bytes, timeout: float | None) -> Metrics:
        decode = functools.partial(results.metrics_from_bytes, response)
        return await self._call(name, message, decode, timeout)

    async def _call(self, name: str, message: bytes, decode: Callable[[bytes], T], timeout: float | None) -> T:
        method = self._methods.get(name)
        if method is None:
            # Not the generated stub: it takes messages, and these are already bytes.
            method = self._methods[name] = self._calls.channel.unary_unary(f"/{_SERVICE}/{name}", None, None)
        return await self._calls.unary(method, message, decode, timeout)


def _unread(values: ArrayLike | None) -> Any:
    """An array, unchanged: the codec reads it, and names its field in errors."""
    return values


def _names(datasets: Iterable[str]) -> tuple[str, ...]:
    """Names of data sets; text alone is refused, whose letters would be names."""
    if isinstance(datasets, str):
        raise InvalidField("datasets", "is text, not a name for each datum")
    return tuple(map(str, datasets))


def _source(value: Any, field: str) -> LogprobSource:
    if isinstance(value, str):
        return parse_model(value)
    if isinstance(value, list | tuple):
        for index, each in enumerate(value):
            if isinstance(each, Teacher):
                raise InvalidField(
                    f"{field}[{index}]",
                    "is a Teacher: call bridge.models.compute_logprobs with the teachers, and pass the logprobs of its "
                    "sequences",
                )
    return value if isinstance(value, ModelRef) else _arrays(value, field)


def _array(value: Any) -> np.ndarray | None:
    """The array of a value of a usual type, found without building a path for an error; None for other values."""
    if type(value) is not np.ndarray:
        convert = getattr(value, "to_numpy", None) or getattr(value, "numpy", None)
        if convert is None:
            return None
        try:
            value = convert()
        except (TypeError, RuntimeError):
            return None  # a torch tensor that needs conversion: on a device, with a gradient, bf16
    return value if type(value) is np.ndarray and value.dtype in _PLAIN else None


def _arrays(values: Sequence[Any], field: str) -> list[Array]:
    return [
        as_array(value, field=f"{field}[{index}]") if (array := _array(value)) is None else array
        for index, value in enumerate(values)
    ]


def _column(data: Sequence[Any], key: str) -> list[Array]:
    column: list[Array] = []
    for index, datum in enumerate(data):
        try:
            value = datum.loss_fn_inputs[key]
        except AttributeError:
            raise InvalidField(f"data[{index}]", f"is a {type(datum).__name__}, not a Datum") from None
        except KeyError:
            raise InvalidField(_path(index, key), "is missing") from None
        array = _array(value)
        column.append(as_array(value, field=_path(index, key)) if array is None else array)
    return column


def _masks(data: Sequence[Any]) -> list[Array]:
    """Masks of which only the sign is read: one byte a token."""
    return [_flags(array, index) for index, array in enumerate(_column(data, "mask"))]


def _flags(array: Array, index: int) -> np.ndarray:
    numbers = array if isinstance(array, np.ndarray) else floats(array, _path(index, "mask"))
    if numbers.dtype.itemsize > 1:
        numbers = numbers > 0
    return numbers.view(np.uint8)


def _sequences(data: Sequence[Any]) -> tuple[Datum, ...]:
    """The tokens of data, to query a model with."""
    targets = _column(data, "target_tokens")
    return tuple(
        datum if isinstance(datum, Datum) else _sequence(datum, tokens, index)
        for index, (datum, tokens) in enumerate(zip(data, targets))
    )


def _sequence(datum: Any, targets: Array, index: int) -> Datum:
    try:
        tokens = datum.model_input.to_ints()
    except (AttributeError, ValueError) as error:
        raise InvalidField(f"data[{index}].model_input", f"holds more than tokens: {error}") from error
    return Datum(model_input=tokens, loss_fn_inputs={"target_tokens": targets})  # pyright: ignore[reportArgumentType]


def _path(index: int, key: str) -> str:
    return f'data[{index}].loss_fn_inputs["{key}"]'
