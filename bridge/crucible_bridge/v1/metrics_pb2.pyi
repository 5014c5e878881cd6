from crucible_bridge.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ComputeKLSampleTrainRequest(_message.Message):
    __slots__ = ("data", "training_logprobs", "extended", "columns")
    DATA_FIELD_NUMBER: _ClassVar[int]
    TRAINING_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    EXTENDED_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    data: _containers.RepeatedCompositeFieldContainer[_types_pb2.Datum]
    training_logprobs: _containers.RepeatedCompositeFieldContainer[_types_pb2.Tensor]
    extended: bool
    columns: _types_pb2.Columns
    def __init__(self, data: _Optional[_Iterable[_Union[_types_pb2.Datum, _Mapping]]] = ..., training_logprobs: _Optional[_Iterable[_Union[_types_pb2.Tensor, _Mapping]]] = ..., extended: _Optional[bool] = ..., columns: _Optional[_Union[_types_pb2.Columns, _Mapping]] = ...) -> None: ...

class ComputeKLSampleTrainResponse(_message.Message):
    __slots__ = ("metrics", "action_tokens", "per_sequence")
    class PerSequenceEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _types_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ...) -> None: ...
    METRICS_FIELD_NUMBER: _ClassVar[int]
    ACTION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    metrics: _types_pb2.Metrics
    action_tokens: int
    per_sequence: _containers.MessageMap[str, _types_pb2.Tensor]
    def __init__(self, metrics: _Optional[_Union[_types_pb2.Metrics, _Mapping]] = ..., action_tokens: _Optional[int] = ..., per_sequence: _Optional[_Mapping[str, _types_pb2.Tensor]] = ...) -> None: ...

class LogprobSource(_message.Message):
    __slots__ = ("given", "model")
    GIVEN_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    given: TensorList
    model: _types_pb2.ModelRef
    def __init__(self, given: _Optional[_Union[TensorList, _Mapping]] = ..., model: _Optional[_Union[_types_pb2.ModelRef, _Mapping]] = ...) -> None: ...

class TensorList(_message.Message):
    __slots__ = ("tensors",)
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    tensors: _containers.RepeatedCompositeFieldContainer[_types_pb2.Tensor]
    def __init__(self, tensors: _Optional[_Iterable[_Union[_types_pb2.Tensor, _Mapping]]] = ...) -> None: ...

class ComputeKLPostUpdateRequest(_message.Message):
    __slots__ = ("data", "updated", "deadline_ms", "columns")
    DATA_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    data: _containers.RepeatedCompositeFieldContainer[_types_pb2.Datum]
    updated: LogprobSource
    deadline_ms: int
    columns: _types_pb2.Columns
    def __init__(self, data: _Optional[_Iterable[_Union[_types_pb2.Datum, _Mapping]]] = ..., updated: _Optional[_Union[LogprobSource, _Mapping]] = ..., deadline_ms: _Optional[int] = ..., columns: _Optional[_Union[_types_pb2.Columns, _Mapping]] = ...) -> None: ...

class ComputeKLPostUpdateResponse(_message.Message):
    __slots__ = ("metrics", "action_tokens", "usage")
    METRICS_FIELD_NUMBER: _ClassVar[int]
    ACTION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    metrics: _types_pb2.Metrics
    action_tokens: int
    usage: _types_pb2.Usage
    def __init__(self, metrics: _Optional[_Union[_types_pb2.Metrics, _Mapping]] = ..., action_tokens: _Optional[int] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ...) -> None: ...

class IncorporateKLPenaltyRequest(_message.Message):
    __slots__ = ("data", "base", "kl_penalty_coef", "kl_discount_factor", "deadline_ms", "columns", "reverse_kl", "datasets")
    DATA_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    KL_PENALTY_COEF_FIELD_NUMBER: _ClassVar[int]
    KL_DISCOUNT_FACTOR_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    REVERSE_KL_FIELD_NUMBER: _ClassVar[int]
    DATASETS_FIELD_NUMBER: _ClassVar[int]
    data: _containers.RepeatedCompositeFieldContainer[_types_pb2.Datum]
    base: LogprobSource
    kl_penalty_coef: float
    kl_discount_factor: float
    deadline_ms: int
    columns: _types_pb2.Columns
    reverse_kl: bool
    datasets: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, data: _Optional[_Iterable[_Union[_types_pb2.Datum, _Mapping]]] = ..., base: _Optional[_Union[LogprobSource, _Mapping]] = ..., kl_penalty_coef: _Optional[float] = ..., kl_discount_factor: _Optional[float] = ..., deadline_ms: _Optional[int] = ..., columns: _Optional[_Union[_types_pb2.Columns, _Mapping]] = ..., reverse_kl: _Optional[bool] = ..., datasets: _Optional[_Iterable[str]] = ...) -> None: ...

class IncorporateKLPenaltyResponse(_message.Message):
    __slots__ = ("metrics", "advantages", "usage", "without_penalty")
    METRICS_FIELD_NUMBER: _ClassVar[int]
    ADVANTAGES_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_PENALTY_FIELD_NUMBER: _ClassVar[int]
    metrics: _types_pb2.Metrics
    advantages: _containers.RepeatedCompositeFieldContainer[_types_pb2.Tensor]
    usage: _types_pb2.Usage
    without_penalty: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, metrics: _Optional[_Union[_types_pb2.Metrics, _Mapping]] = ..., advantages: _Optional[_Iterable[_Union[_types_pb2.Tensor, _Mapping]]] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., without_penalty: _Optional[_Iterable[str]] = ...) -> None: ...

class ComputeMeanNLLRequest(_message.Message):
    __slots__ = ("logprobs", "weights", "columns")
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    logprobs: _containers.RepeatedCompositeFieldContainer[_types_pb2.Tensor]
    weights: _containers.RepeatedCompositeFieldContainer[_types_pb2.Tensor]
    columns: _types_pb2.Columns
    def __init__(self, logprobs: _Optional[_Iterable[_Union[_types_pb2.Tensor, _Mapping]]] = ..., weights: _Optional[_Iterable[_Union[_types_pb2.Tensor, _Mapping]]] = ..., columns: _Optional[_Union[_types_pb2.Columns, _Mapping]] = ...) -> None: ...

class ComputeMeanNLLResponse(_message.Message):
    __slots__ = ("metrics", "total_weight")
    METRICS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    metrics: _types_pb2.Metrics
    total_weight: float
    def __init__(self, metrics: _Optional[_Union[_types_pb2.Metrics, _Mapping]] = ..., total_weight: _Optional[float] = ...) -> None: ...

class TrajectoryBatch(_message.Message):
    __slots__ = ("trajectories_per_group", "transitions_per_trajectory", "action_tokens", "observation_tokens", "rewards", "final_rewards", "transition_metrics", "trajectory_metrics", "tags", "transition_metric_present", "trajectory_metric_present", "cached_observation_tokens")
    class TransitionMetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _types_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ...) -> None: ...
    class TrajectoryMetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _types_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ...) -> None: ...
    class TransitionMetricPresentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _types_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ...) -> None: ...
    class TrajectoryMetricPresentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _types_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ...) -> None: ...
    TRAJECTORIES_PER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TRANSITIONS_PER_TRAJECTORY_FIELD_NUMBER: _ClassVar[int]
    ACTION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    FINAL_REWARDS_FIELD_NUMBER: _ClassVar[int]
    TRANSITION_METRICS_FIELD_NUMBER: _ClassVar[int]
    TRAJECTORY_METRICS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    TRANSITION_METRIC_PRESENT_FIELD_NUMBER: _ClassVar[int]
    TRAJECTORY_METRIC_PRESENT_FIELD_NUMBER: _ClassVar[int]
    CACHED_OBSERVATION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    trajectories_per_group: _types_pb2.Tensor
    transitions_per_trajectory: _types_pb2.Tensor
    action_tokens: _types_pb2.Tensor
    observation_tokens: _types_pb2.Tensor
    rewards: _types_pb2.Tensor
    final_rewards: _types_pb2.Tensor
    transition_metrics: _containers.MessageMap[str, _types_pb2.Tensor]
    trajectory_metrics: _containers.MessageMap[str, _types_pb2.Tensor]
    tags: _containers.RepeatedCompositeFieldContainer[Tags]
    transition_metric_present: _containers.MessageMap[str, _types_pb2.Tensor]
    trajectory_metric_present: _containers.MessageMap[str, _types_pb2.Tensor]
    cached_observation_tokens: _types_pb2.Tensor
    def __init__(self, trajectories_per_group: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., transitions_per_trajectory: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., action_tokens: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., observation_tokens: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., rewards: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., final_rewards: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., transition_metrics: _Optional[_Mapping[str, _types_pb2.Tensor]] = ..., trajectory_metrics: _Optional[_Mapping[str, _types_pb2.Tensor]] = ..., tags: _Optional[_Iterable[_Union[Tags, _Mapping]]] = ..., transition_metric_present: _Optional[_Mapping[str, _types_pb2.Tensor]] = ..., trajectory_metric_present: _Optional[_Mapping[str, _types_pb2.Tensor]] = ..., cached_observation_tokens: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Tags(_message.Message):
    __slots__ = ("tags",)
    TAGS_FIELD_NUMBER: _ClassVar[int]
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tags: _Optional[_Iterable[str]] = ...) -> None: ...

class ComputeTrajectoryMetricsRequest(_message.Message):
    __slots__ = ("batch", "good_threshold")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    GOOD_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    batch: TrajectoryBatch
    good_threshold: float
    def __init__(self, batch: _Optional[_Union[TrajectoryBatch, _Mapping]] = ..., good_threshold: _Optional[float] = ...) -> None: ...

class ComputeTrajectoryMetricsResponse(_message.Message):
    __slots__ = ("metrics",)
    METRICS_FIELD_NUMBER: _ClassVar[int]
    metrics: _types_pb2.Metrics
    def __init__(self, metrics: _Optional[_Union[_types_pb2.Metrics, _Mapping]] = ...) -> None: ...

class PreferencePair(_message.Message):
    __slots__ = ("chosen", "rejected")
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    chosen: _types_pb2.Conversation
    rejected: _types_pb2.Conversation
    def __init__(self, chosen: _Optional[_Union[_types_pb2.Conversation, _Mapping]] = ..., rejected: _Optional[_Union[_types_pb2.Conversation, _Mapping]] = ...) -> None: ...

class ComputeDPOMetricsRequest(_message.Message):
    __slots__ = ("chosen_logprobs", "rejected_logprobs", "chosen_reference_logprobs", "rejected_reference_logprobs", "dpo_beta", "policy", "reference", "pairs", "deadline_ms")
    CHOSEN_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    REJECTED_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_REFERENCE_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    REJECTED_REFERENCE_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    DPO_BETA_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    chosen_logprobs: _types_pb2.Tensor
    rejected_logprobs: _types_pb2.Tensor
    chosen_reference_logprobs: _types_pb2.Tensor
    rejected_reference_logprobs: _types_pb2.Tensor
    dpo_beta: float
    policy: _types_pb2.ModelRef
    reference: _types_pb2.ModelRef
    pairs: _containers.RepeatedCompositeFieldContainer[PreferencePair]
    deadline_ms: int
    def __init__(self, chosen_logprobs: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., rejected_logprobs: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., chosen_reference_logprobs: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., rejected_reference_logprobs: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., dpo_beta: _Optional[float] = ..., policy: _Optional[_Union[_types_pb2.ModelRef, _Mapping]] = ..., reference: _Optional[_Union[_types_pb2.ModelRef, _Mapping]] = ..., pairs: _Optional[_Iterable[_Union[PreferencePair, _Mapping]]] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class ComputeDPOMetricsResponse(_message.Message):
    __slots__ = ("metrics", "policy_usage", "reference_usage", "chosen_logprobs", "rejected_logprobs", "chosen_reference_logprobs", "rejected_reference_logprobs")
    METRICS_FIELD_NUMBER: _ClassVar[int]
    POLICY_USAGE_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_USAGE_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    REJECTED_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_REFERENCE_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    REJECTED_REFERENCE_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    metrics: _types_pb2.Metrics
    policy_usage: _types_pb2.Usage
    reference_usage: _types_pb2.Usage
    chosen_logprobs: _types_pb2.Tensor
    rejected_logprobs: _types_pb2.Tensor
    chosen_reference_logprobs: _types_pb2.Tensor
    rejected_reference_logprobs: _types_pb2.Tensor
    def __init__(self, metrics: _Optional[_Union[_types_pb2.Metrics, _Mapping]] = ..., policy_usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., reference_usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., chosen_logprobs: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., rejected_logprobs: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., chosen_reference_logprobs: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., rejected_reference_logprobs: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ...) -> None: ...

class ComputeSamplingClientMetricsRequest(_message.Message):
    __slots__ = ("sampling_client_steps", "sampling_seconds")
    SAMPLING_CLIENT_STEPS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_SECONDS_FIELD_NUMBER: _ClassVar[int]
    sampling_client_steps: _types_pb2.Tensor
    sampling_seconds: _types_pb2.Tensor
    def __init__(self, sampling_client_steps: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., sampling_seconds: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ...) -> None: ...

class ComputeSamplingClientMetricsResponse(_message.Message):
    __slots__ = ("metrics",)
    METRICS_FIELD_NUMBER: _ClassVar[int]
    metrics: _types_pb2.Metrics
    def __init__(self, metrics: _Optional[_Union[_types_pb2.Metrics, _Mapping]] = ...) -> None: ...

class ComputeClassificationMetricsRequest(_message.Message):
    __slots__ = ("predictions", "targets", "positive")
    PREDICTIONS_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_FIELD_NUMBER: _ClassVar[int]
    predictions: _containers.RepeatedScalarFieldContainer[str]
    targets: _containers.RepeatedScalarFieldContainer[str]
    positive: str
    def __init__(self, predictions: _Optional[_Iterable[str]] = ..., targets: _Optional[_Iterable[str]] = ..., positive: _Optional[str] = ...) -> None: ...

class ComputeClassificationMetricsResponse(_message.Message):
    __slots__ = ("metrics",)
    METRICS_FIELD_NUMBER: _ClassVar[int]
    metrics: _types_pb2.Metrics
    def __init__(self, metrics: _Optional[_Union[_types_pb2.Metrics, _Mapping]] = ...) -> None: ...

class ComputePassAtKRequest(_message.Message):
    __slots__ = ("samples", "successes", "k")
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SUCCESSES_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    samples: _types_pb2.Tensor
    successes: _types_pb2.Tensor
    k: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, samples: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., successes: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., k: _Optional[_Iterable[int]] = ...) -> None: ...

class ComputePassAtKResponse(_message.Message):
    __slots__ = ("metrics",)
    METRICS_FIELD_NUMBER: _ClassVar[int]
    metrics: _types_pb2.Metrics
    def __init__(self, metrics: _Optional[_Union[_types_pb2.Metrics, _Mapping]] = ...) -> None: ...
