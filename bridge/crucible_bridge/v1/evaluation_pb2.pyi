from crucible_bridge.v1 import events_pb2 as _events_pb2
from crucible_bridge.v1 import orchestrator_pb2 as _orchestrator_pb2
from crucible_bridge.v1 import types_pb2 as _types_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EvaluatorKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVALUATOR_KIND_UNSPECIFIED: _ClassVar[EvaluatorKind]
    EVALUATOR_KIND_TRAINING: _ClassVar[EvaluatorKind]
    EVALUATOR_KIND_SAMPLING: _ClassVar[EvaluatorKind]

class EvaluationState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVALUATION_STATE_UNSPECIFIED: _ClassVar[EvaluationState]
    EVALUATION_STATE_QUEUED: _ClassVar[EvaluationState]
    EVALUATION_STATE_RUNNING: _ClassVar[EvaluationState]
    EVALUATION_STATE_COMPLETED: _ClassVar[EvaluationState]
    EVALUATION_STATE_FAILED: _ClassVar[EvaluationState]
    EVALUATION_STATE_CANCELLED: _ClassVar[EvaluationState]
    EVALUATION_STATE_INTERRUPTED: _ClassVar[EvaluationState]

class FileFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FILE_FORMAT_UNSPECIFIED: _ClassVar[FileFormat]
    FILE_FORMAT_JSONL: _ClassVar[FileFormat]
    FILE_FORMAT_CSV: _ClassVar[FileFormat]
    FILE_FORMAT_PARQUET: _ClassVar[FileFormat]

class Record(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECORD_UNSPECIFIED: _ClassVar[Record]
    RECORD_FULL: _ClassVar[Record]
    RECORD_OUTPUTS: _ClassVar[Record]
    RECORD_NONE: _ClassVar[Record]

class SampleOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SAMPLE_ORDER_UNSPECIFIED: _ClassVar[SampleOrder]
    SAMPLE_ORDER_POSITION: _ClassVar[SampleOrder]
    SAMPLE_ORDER_SCORE: _ClassVar[SampleOrder]
    SAMPLE_ORDER_OUTPUT_TOKENS: _ClassVar[SampleOrder]
    SAMPLE_ORDER_DURATION: _ClassVar[SampleOrder]
    SAMPLE_ORDER_SAMPLE_ID: _ClassVar[SampleOrder]

class ReportFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPORT_FORMAT_UNSPECIFIED: _ClassVar[ReportFormat]
    REPORT_FORMAT_MARKDOWN: _ClassVar[ReportFormat]
    REPORT_FORMAT_JSON: _ClassVar[ReportFormat]
    REPORT_FORMAT_HTML: _ClassVar[ReportFormat]

class FollowPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FOLLOW_POLICY_UNSPECIFIED: _ClassVar[FollowPolicy]
    FOLLOW_POLICY_ALL: _ClassVar[FollowPolicy]
    FOLLOW_POLICY_LATEST: _ClassVar[FollowPolicy]
    FOLLOW_POLICY_EVERY: _ClassVar[FollowPolicy]

class Goal(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GOAL_UNSPECIFIED: _ClassVar[Goal]
    GOAL_HIGHER: _ClassVar[Goal]
    GOAL_LOWER: _ClassVar[Goal]

class GateTier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GATE_TIER_UNSPECIFIED: _ClassVar[GateTier]
    GATE_TIER_BLOCK: _ClassVar[GateTier]
    GATE_TIER_WARN: _ClassVar[GateTier]

class GateVerdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GATE_VERDICT_UNSPECIFIED: _ClassVar[GateVerdict]
    GATE_VERDICT_PASS: _ClassVar[GateVerdict]
    GATE_VERDICT_WARN: _ClassVar[GateVerdict]
    GATE_VERDICT_BLOCK: _ClassVar[GateVerdict]
    GATE_VERDICT_INCONCLUSIVE: _ClassVar[GateVerdict]
EVALUATOR_KIND_UNSPECIFIED: EvaluatorKind
EVALUATOR_KIND_TRAINING: EvaluatorKind
EVALUATOR_KIND_SAMPLING: EvaluatorKind
EVALUATION_STATE_UNSPECIFIED: EvaluationState
EVALUATION_STATE_QUEUED: EvaluationState
EVALUATION_STATE_RUNNING: EvaluationState
EVALUATION_STATE_COMPLETED: EvaluationState
EVALUATION_STATE_FAILED: EvaluationState
EVALUATION_STATE_CANCELLED: EvaluationState
EVALUATION_STATE_INTERRUPTED: EvaluationState
FILE_FORMAT_UNSPECIFIED: FileFormat
FILE_FORMAT_JSONL: FileFormat
FILE_FORMAT_CSV: FileFormat
FILE_FORMAT_PARQUET: FileFormat
RECORD_UNSPECIFIED: Record
RECORD_FULL: Record
RECORD_OUTPUTS: Record
RECORD_NONE: Record
SAMPLE_ORDER_UNSPECIFIED: SampleOrder
SAMPLE_ORDER_POSITION: SampleOrder
SAMPLE_ORDER_SCORE: SampleOrder
SAMPLE_ORDER_OUTPUT_TOKENS: SampleOrder
SAMPLE_ORDER_DURATION: SampleOrder
SAMPLE_ORDER_SAMPLE_ID: SampleOrder
REPORT_FORMAT_UNSPECIFIED: ReportFormat
REPORT_FORMAT_MARKDOWN: ReportFormat
REPORT_FORMAT_JSON: ReportFormat
REPORT_FORMAT_HTML: ReportFormat
FOLLOW_POLICY_UNSPECIFIED: FollowPolicy
FOLLOW_POLICY_ALL: FollowPolicy
FOLLOW_POLICY_LATEST: FollowPolicy
FOLLOW_POLICY_EVERY: FollowPolicy
GOAL_UNSPECIFIED: Goal
GOAL_HIGHER: Goal
GOAL_LOWER: Goal
GATE_TIER_UNSPECIFIED: GateTier
GATE_TIER_BLOCK: GateTier
GATE_TIER_WARN: GateTier
GATE_VERDICT_UNSPECIFIED: GateVerdict
GATE_VERDICT_PASS: GateVerdict
GATE_VERDICT_WARN: GateVerdict
GATE_VERDICT_BLOCK: GateVerdict
GATE_VERDICT_INCONCLUSIVE: GateVerdict

class EvaluatorSpec(_message.Message):
    __slots__ = ("kind", "name", "options")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    options: _struct_pb2.Struct
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., options: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Dataset(_message.Message):
    __slots__ = ("inline", "jsonl_path", "builtin", "hub", "file", "limit", "shuffle_seed", "skip_malformed", "prompt", "where", "special_tokens")
    class WhereEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    INLINE_FIELD_NUMBER: _ClassVar[int]
    JSONL_PATH_FIELD_NUMBER: _ClassVar[int]
    BUILTIN_FIELD_NUMBER: _ClassVar[int]
    HUB_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_SEED_FIELD_NUMBER: _ClassVar[int]
    SKIP_MALFORMED_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    inline: InlineDataset
    jsonl_path: str
    builtin: str
    hub: HubDataset
    file: FileDataset
    limit: int
    shuffle_seed: int
    skip_malformed: bool
    prompt: Prompt
    where: _containers.ScalarMap[str, str]
    special_tokens: bool
    def __init__(self, inline: _Optional[_Union[InlineDataset, _Mapping]] = ..., jsonl_path: _Optional[str] = ..., builtin: _Optional[str] = ..., hub: _Optional[_Union[HubDataset, _Mapping]] = ..., file: _Optional[_Union[FileDataset, _Mapping]] = ..., limit: _Optional[int] = ..., shuffle_seed: _Optional[int] = ..., skip_malformed: _Optional[bool] = ..., prompt: _Optional[_Union[Prompt, _Mapping]] = ..., where: _Optional[_Mapping[str, str]] = ..., special_tokens: _Optional[bool] = ...) -> None: ...

class Prompt(_message.Message):
    __slots__ = ("system", "template", "prefix", "suffix", "few_shot", "target_delimiter")
    SYSTEM_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    SUFFIX_FIELD_NUMBER: _ClassVar[int]
    FEW_SHOT_FIELD_NUMBER: _ClassVar[int]
    TARGET_DELIMITER_FIELD_NUMBER: _ClassVar[int]
    system: str
    template: str
    prefix: _types_pb2.Conversation
    suffix: _types_pb2.Conversation
    few_shot: FewShot
    target_delimiter: str
    def __init__(self, system: _Optional[str] = ..., template: _Optional[str] = ..., prefix: _Optional[_Union[_types_pb2.Conversation, _Mapping]] = ..., suffix: _Optional[_Union[_types_pb2.Conversation, _Mapping]] = ..., few_shot: _Optional[_Union[FewShot, _Mapping]] = ..., target_delimiter: _Optional[str] = ...) -> None: ...

class FewShot(_message.Message):
    __slots__ = ("source", "count", "seed")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    source: str
    count: int
    seed: int
    def __init__(self, source: _Optional[str] = ..., count: _Optional[int] = ..., seed: _Optional[int] = ...) -> None: ...

class FileDataset(_message.Message):
    __slots__ = ("path", "format", "columns")
    class ColumnsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PATH_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    path: str
    format: FileFormat
    columns: _containers.ScalarMap[str, str]
    def __init__(self, path: _Optional[str] = ..., format: _Optional[_Union[FileFormat, str]] = ..., columns: _Optional[_Mapping[str, str]] = ...) -> None: ...

class HubDataset(_message.Message):
    __slots__ = ("repo_id", "split", "config", "columns", "revision")
    class ColumnsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REPO_ID_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    repo_id: str
    split: str
    config: str
    columns: _containers.ScalarMap[str, str]
    revision: str
    def __init__(self, repo_id: _Optional[str] = ..., split: _Optional[str] = ..., config: _Optional[str] = ..., columns: _Optional[_Mapping[str, str]] = ..., revision: _Optional[str] = ...) -> None: ...

class InlineDataset(_message.Message):
    __slots__ = ("samples",)
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    samples: _containers.RepeatedCompositeFieldContainer[Sample]
    def __init__(self, samples: _Optional[_Iterable[_Union[Sample, _Mapping]]] = ...) -> None: ...

class Sample(_message.Message):
    __slots__ = ("id", "text", "conversation", "datum", "targets", "choices", "metadata", "choice_labels")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    DATUM_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CHOICE_LABELS_FIELD_NUMBER: _ClassVar[int]
    id: str
    text: str
    conversation: _types_pb2.Conversation
    datum: _types_pb2.Datum
    targets: _containers.RepeatedScalarFieldContainer[str]
    choices: _containers.RepeatedScalarFieldContainer[str]
    metadata: _containers.ScalarMap[str, str]
    choice_labels: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., text: _Optional[str] = ..., conversation: _Optional[_Union[_types_pb2.Conversation, _Mapping]] = ..., datum: _Optional[_Union[_types_pb2.Datum, _Mapping]] = ..., targets: _Optional[_Iterable[str]] = ..., choices: _Optional[_Iterable[str]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., choice_labels: _Optional[_Iterable[str]] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("concurrency", "deadline_ms", "stall_timeout_ms", "sample_timeout_ms", "max_unscored_share", "max_unscored", "max_cost", "max_output_tokens", "max_run_cost", "max_run_output_tokens")
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    STALL_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_UNSCORED_SHARE_FIELD_NUMBER: _ClassVar[int]
    MAX_UNSCORED_FIELD_NUMBER: _ClassVar[int]
    MAX_COST_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_RUN_COST_FIELD_NUMBER: _ClassVar[int]
    MAX_RUN_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    concurrency: int
    deadline_ms: int
    stall_timeout_ms: int
    sample_timeout_ms: int
    max_unscored_share: float
    max_unscored: int
    max_cost: float
    max_output_tokens: int
    max_run_cost: float
    max_run_output_tokens: int
    def __init__(self, concurrency: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., stall_timeout_ms: _Optional[int] = ..., sample_timeout_ms: _Optional[int] = ..., max_unscored_share: _Optional[float] = ..., max_unscored: _Optional[int] = ..., max_cost: _Optional[float] = ..., max_output_tokens: _Optional[int] = ..., max_run_cost: _Optional[float] = ..., max_run_output_tokens: _Optional[int] = ...) -> None: ...

class EvaluateRequest(_message.Message):
    __slots__ = ("evaluation_id", "run_id", "step", "model", "evaluators", "dataset", "sampling", "limits", "metric_prefix", "labels", "correlation_id", "record", "log_to", "models")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ModelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    EVALUATORS_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    METRIC_PREFIX_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    LOG_TO_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    evaluation_id: str
    run_id: str
    step: int
    model: _types_pb2.ModelRef
    evaluators: _containers.RepeatedCompositeFieldContainer[EvaluatorSpec]
    dataset: Dataset
    sampling: _types_pb2.SamplingParams
    limits: Limits
    metric_prefix: str
    labels: _containers.ScalarMap[str, str]
    correlation_id: str
    record: Record
    log_to: _containers.RepeatedScalarFieldContainer[str]
    models: _containers.ScalarMap[str, str]
    def __init__(self, evaluation_id: _Optional[str] = ..., run_id: _Optional[str] = ..., step: _Optional[int] = ..., model: _Optional[_Union[_types_pb2.ModelRef, _Mapping]] = ..., evaluators: _Optional[_Iterable[_Union[EvaluatorSpec, _Mapping]]] = ..., dataset: _Optional[_Union[Dataset, _Mapping]] = ..., sampling: _Optional[_Union[_types_pb2.SamplingParams, _Mapping]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., metric_prefix: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., correlation_id: _Optional[str] = ..., record: _Optional[_Union[Record, str]] = ..., log_to: _Optional[_Iterable[str]] = ..., models: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ReadDatasetRequest(_message.Message):
    __slots__ = ("dataset", "offset", "limit")
    DATASET_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    dataset: Dataset
    offset: int
    limit: int
    def __init__(self, dataset: _Optional[_Union[Dataset, _Mapping]] = ..., offset: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ReadDatasetResponse(_message.Message):
    __slots__ = ("samples", "skipped", "total", "dataset_fingerprint")
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    DATASET_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    samples: _containers.RepeatedCompositeFieldContainer[Sample]
    skipped: _containers.RepeatedCompositeFieldContainer[SkippedLine]
    total: int
    dataset_fingerprint: str
    def __init__(self, samples: _Optional[_Iterable[_Union[Sample, _Mapping]]] = ..., skipped: _Optional[_Iterable[_Union[SkippedLine, _Mapping]]] = ..., total: _Optional[int] = ..., dataset_fingerprint: _Optional[str] = ...) -> None: ...

class SkippedLine(_message.Message):
    __slots__ = ("id", "index", "problem")
    ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    id: str
    index: int
    problem: _types_pb2.Problem
    def __init__(self, id: _Optional[str] = ..., index: _Optional[int] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ...) -> None: ...

class EvaluatorResult(_message.Message):
    __slots__ = ("evaluator", "metrics", "n", "n_scored", "n_unscored", "n_errors", "problem", "n_truncated", "n_truncated_reasoning", "usage", "n_correct", "unscored_by_reason")
    class UnscoredByReasonEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    EVALUATOR_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    N_SCORED_FIELD_NUMBER: _ClassVar[int]
    N_UNSCORED_FIELD_NUMBER: _ClassVar[int]
    N_ERRORS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    N_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    N_TRUNCATED_REASONING_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    N_CORRECT_FIELD_NUMBER: _ClassVar[int]
    UNSCORED_BY_REASON_FIELD_NUMBER: _ClassVar[int]
    evaluator: EvaluatorSpec
    metrics: _types_pb2.Metrics
    n: int
    n_scored: int
    n_unscored: int
    n_errors: int
    problem: _types_pb2.Problem
    n_truncated: int
    n_truncated_reasoning: int
    usage: _types_pb2.Usage
    n_correct: int
    unscored_by_reason: _containers.ScalarMap[str, int]
    def __init__(self, evaluator: _Optional[_Union[EvaluatorSpec, _Mapping]] = ..., metrics: _Optional[_Union[_types_pb2.Metrics, _Mapping]] = ..., n: _Optional[int] = ..., n_scored: _Optional[int] = ..., n_unscored: _Optional[int] = ..., n_errors: _Optional[int] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ..., n_truncated: _Optional[int] = ..., n_truncated_reasoning: _Optional[int] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., n_correct: _Optional[int] = ..., unscored_by_reason: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Evaluation(_message.Message):
    __slots__ = ("evaluation_id", "state", "request", "metrics", "results", "done", "total", "dataset_fingerprint", "created_unix_ns", "ended_unix_ns", "duration_ns", "last_sequence", "problem", "attempt", "model_fingerprint", "rendering", "usage", "engine", "paused", "concurrency", "rules_version", "waiting_for", "graders", "servers")
    class GradersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: GraderVersions
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[GraderVersions, _Mapping]] = ...) -> None: ...
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    DATASET_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    CREATED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    ENDED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    RENDERING_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    RULES_VERSION_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    GRADERS_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    evaluation_id: str
    state: EvaluationState
    request: EvaluateRequest
    metrics: _types_pb2.Metrics
    results: _containers.RepeatedCompositeFieldContainer[EvaluatorResult]
    done: int
    total: int
    dataset_fingerprint: str
    created_unix_ns: int
    ended_unix_ns: int
    duration_ns: int
    last_sequence: int
    problem: _types_pb2.Problem
    attempt: int
    model_fingerprint: str
    rendering: _containers.RepeatedCompositeFieldContainer[EvaluatorRendering]
    usage: _types_pb2.Usage
    engine: _types_pb2.ServerEngine
    paused: bool
    concurrency: int
    rules_version: int
    waiting_for: str
    graders: _containers.MessageMap[str, GraderVersions]
    servers: _containers.RepeatedCompositeFieldContainer[ModelServer]
    def __init__(self, evaluation_id: _Optional[str] = ..., state: _Optional[_Union[EvaluationState, str]] = ..., request: _Optional[_Union[EvaluateRequest, _Mapping]] = ..., metrics: _Optional[_Union[_types_pb2.Metrics, _Mapping]] = ..., results: _Optional[_Iterable[_Union[EvaluatorResult, _Mapping]]] = ..., done: _Optional[int] = ..., total: _Optional[int] = ..., dataset_fingerprint: _Optional[str] = ..., created_unix_ns: _Optional[int] = ..., ended_unix_ns: _Optional[int] = ..., duration_ns: _Optional[int] = ..., last_sequence: _Optional[int] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ..., attempt: _Optional[int] = ..., model_fingerprint: _Optional[str] = ..., rendering: _Optional[_Iterable[_Union[EvaluatorRendering, _Mapping]]] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., engine: _Optional[_Union[_types_pb2.ServerEngine, _Mapping]] = ..., paused: _Optional[bool] = ..., concurrency: _Optional[int] = ..., rules_version: _Optional[int] = ..., waiting_for: _Optional[str] = ..., graders: _Optional[_Mapping[str, GraderVersions]] = ..., servers: _Optional[_Iterable[_Union[ModelServer, _Mapping]]] = ...) -> None: ...

class ModelServer(_message.Message):
    __slots__ = ("name", "addresses")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    name: str
    addresses: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., addresses: _Optional[_Iterable[str]] = ...) -> None: ...

class GraderVersions(_message.Message):
    __slots__ = ("versions",)
    class VersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.ScalarMap[str, int]
    def __init__(self, versions: _Optional[_Mapping[str, int]] = ...) -> None: ...

class EvaluatorRendering(_message.Message):
    __slots__ = ("evaluator", "renderer", "others")
    class OthersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    EVALUATOR_FIELD_NUMBER: _ClassVar[int]
    RENDERER_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    evaluator: str
    renderer: str
    others: _containers.ScalarMap[str, str]
    def __init__(self, evaluator: _Optional[str] = ..., renderer: _Optional[str] = ..., others: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Transition(_message.Message):
    __slots__ = ("observation_tokens", "action_tokens", "reward", "metrics", "stop_reason", "observation", "action", "action_logprobs", "cached_observation_tokens")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    OBSERVATION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ACTION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    ACTION_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    CACHED_OBSERVATION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    observation_tokens: int
    action_tokens: int
    reward: float
    metrics: _containers.ScalarMap[str, float]
    stop_reason: str
    observation: _types_pb2.Tensor
    action: _types_pb2.Tensor
    action_logprobs: _types_pb2.Tensor
    cached_observation_tokens: int
    def __init__(self, observation_tokens: _Optional[int] = ..., action_tokens: _Optional[int] = ..., reward: _Optional[float] = ..., metrics: _Optional[_Mapping[str, float]] = ..., stop_reason: _Optional[str] = ..., observation: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., action: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., action_logprobs: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., cached_observation_tokens: _Optional[int] = ...) -> None: ...

class Trajectory(_message.Message):
    __slots__ = ("transitions", "final_reward", "metrics")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    TRANSITIONS_FIELD_NUMBER: _ClassVar[int]
    FINAL_REWARD_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    transitions: _containers.RepeatedCompositeFieldContainer[Transition]
    final_reward: float
    metrics: _containers.ScalarMap[str, float]
    def __init__(self, transitions: _Optional[_Iterable[_Union[Transition, _Mapping]]] = ..., final_reward: _Optional[float] = ..., metrics: _Optional[_Mapping[str, float]] = ...) -> None: ...

class TrajectoryGroup(_message.Message):
    __slots__ = ("trajectories", "tags")
    TRAJECTORIES_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    trajectories: _containers.RepeatedCompositeFieldContainer[Trajectory]
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, trajectories: _Optional[_Iterable[_Union[Trajectory, _Mapping]]] = ..., tags: _Optional[_Iterable[str]] = ...) -> None: ...

class SamplePrompt(_message.Message):
    __slots__ = ("text", "conversation", "token_count")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    text: str
    conversation: _types_pb2.Conversation
    token_count: int
    def __init__(self, text: _Optional[str] = ..., conversation: _Optional[_Union[_types_pb2.Conversation, _Mapping]] = ..., token_count: _Optional[int] = ...) -> None: ...

class Turn(_message.Message):
    __slots__ = ("role", "text", "reward", "tokens", "rollout", "model", "token_ids", "logprobs", "reasoning", "refusal", "tool_calls", "unparsed_tool_calls")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    UNPARSED_TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    role: str
    text: str
    reward: float
    tokens: int
    rollout: int
    model: str
    token_ids: _types_pb2.Tensor
    logprobs: _types_pb2.Tensor
    reasoning: str
    refusal: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[_types_pb2.ToolCall]
    unparsed_tool_calls: _containers.RepeatedCompositeFieldContainer[_types_pb2.UnparsedToolCall]
    def __init__(self, role: _Optional[str] = ..., text: _Optional[str] = ..., reward: _Optional[float] = ..., tokens: _Optional[int] = ..., rollout: _Optional[int] = ..., model: _Optional[str] = ..., token_ids: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., logprobs: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., reasoning: _Optional[str] = ..., refusal: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[_types_pb2.ToolCall, _Mapping]]] = ..., unparsed_tool_calls: _Optional[_Iterable[_Union[_types_pb2.UnparsedToolCall, _Mapping]]] = ...) -> None: ...

class TruncatedPart(_message.Message):
    __slots__ = ("part", "bytes", "limit")
    PART_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    part: str
    bytes: int
    limit: str
    def __init__(self, part: _Optional[str] = ..., bytes: _Optional[int] = ..., limit: _Optional[str] = ...) -> None: ...

class SampleResult(_message.Message):
    __slots__ = ("evaluator", "sample_id", "repeat", "verdict", "score", "output", "extracted", "method", "stop_reason", "output_tokens", "duration_ns", "attempts", "problem", "measurements", "group", "sample", "prompt", "turns", "usage", "truncated", "reasoning", "refusal", "tool_calls", "unparsed_tool_calls")
    class MeasurementsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    EVALUATOR_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    REPEAT_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    EXTRACTED_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    MEASUREMENTS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    UNPARSED_TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    evaluator: str
    sample_id: str
    repeat: int
    verdict: _types_pb2.Verdict
    score: float
    output: str
    extracted: str
    method: str
    stop_reason: str
    output_tokens: int
    duration_ns: int
    attempts: int
    problem: _types_pb2.Problem
    measurements: _containers.ScalarMap[str, float]
    group: TrajectoryGroup
    sample: Sample
    prompt: SamplePrompt
    turns: _containers.RepeatedCompositeFieldContainer[Turn]
    usage: _types_pb2.Usage
    truncated: _containers.RepeatedCompositeFieldContainer[TruncatedPart]
    reasoning: str
    refusal: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[_types_pb2.ToolCall]
    unparsed_tool_calls: _containers.RepeatedCompositeFieldContainer[_types_pb2.UnparsedToolCall]
    def __init__(self, evaluator: _Optional[str] = ..., sample_id: _Optional[str] = ..., repeat: _Optional[int] = ..., verdict: _Optional[_Union[_types_pb2.Verdict, str]] = ..., score: _Optional[float] = ..., output: _Optional[str] = ..., extracted: _Optional[str] = ..., method: _Optional[str] = ..., stop_reason: _Optional[str] = ..., output_tokens: _Optional[int] = ..., duration_ns: _Optional[int] = ..., attempts: _Optional[int] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ..., measurements: _Optional[_Mapping[str, float]] = ..., group: _Optional[_Union[TrajectoryGroup, _Mapping]] = ..., sample: _Optional[_Union[Sample, _Mapping]] = ..., prompt: _Optional[_Union[SamplePrompt, _Mapping]] = ..., turns: _Optional[_Iterable[_Union[Turn, _Mapping]]] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., truncated: _Optional[_Iterable[_Union[TruncatedPart, _Mapping]]] = ..., reasoning: _Optional[str] = ..., refusal: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[_types_pb2.ToolCall, _Mapping]]] = ..., unparsed_tool_calls: _Optional[_Iterable[_Union[_types_pb2.UnparsedToolCall, _Mapping]]] = ...) -> None: ...

class ListEvaluatorsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EvaluatorInfo(_message.Message):
    __slots__ = ("kind", "kinds", "description", "options_schema", "keys", "unavailable", "score_goal")
    class KeysEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    SCORE_GOAL_FIELD_NUMBER: _ClassVar[int]
    kind: str
    kinds: _containers.RepeatedScalarFieldContainer[EvaluatorKind]
    description: str
    options_schema: str
    keys: _containers.ScalarMap[str, str]
    unavailable: str
    score_goal: Goal
    def __init__(self, kind: _Optional[str] = ..., kinds: _Optional[_Iterable[_Union[EvaluatorKind, str]]] = ..., description: _Optional[str] = ..., options_schema: _Optional[str] = ..., keys: _Optional[_Mapping[str, str]] = ..., unavailable: _Optional[str] = ..., score_goal: _Optional[_Union[Goal, str]] = ...) -> None: ...

class ListEvaluatorsResponse(_message.Message):
    __slots__ = ("evaluators",)
    EVALUATORS_FIELD_NUMBER: _ClassVar[int]
    evaluators: _containers.RepeatedCompositeFieldContainer[EvaluatorInfo]
    def __init__(self, evaluators: _Optional[_Iterable[_Union[EvaluatorInfo, _Mapping]]] = ...) -> None: ...

class EvaluateResponse(_message.Message):
    __slots__ = ("evaluation",)
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    evaluation: Evaluation
    def __init__(self, evaluation: _Optional[_Union[Evaluation, _Mapping]] = ...) -> None: ...

class StartEvaluationRequest(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: EvaluateRequest
    def __init__(self, request: _Optional[_Union[EvaluateRequest, _Mapping]] = ...) -> None: ...

class StartEvaluationResponse(_message.Message):
    __slots__ = ("evaluation", "existed")
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    evaluation: Evaluation
    existed: bool
    def __init__(self, evaluation: _Optional[_Union[Evaluation, _Mapping]] = ..., existed: _Optional[bool] = ...) -> None: ...

class WatchEvaluationRequest(_message.Message):
    __slots__ = ("evaluation_id", "after_sequence", "without_samples", "log_id", "new_kinds", "records")
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    NEW_KINDS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    evaluation_id: str
    after_sequence: int
    without_samples: bool
    log_id: str
    new_kinds: bool
    records: bool
    def __init__(self, evaluation_id: _Optional[str] = ..., after_sequence: _Optional[int] = ..., without_samples: _Optional[bool] = ..., log_id: _Optional[str] = ..., new_kinds: _Optional[bool] = ..., records: _Optional[bool] = ...) -> None: ...

class GetEvaluationRequest(_message.Message):
    __slots__ = ("evaluation_id",)
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    evaluation_id: str
    def __init__(self, evaluation_id: _Optional[str] = ...) -> None: ...

class GetEvaluationResponse(_message.Message):
    __slots__ = ("evaluation",)
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    evaluation: Evaluation
    def __init__(self, evaluation: _Optional[_Union[Evaluation, _Mapping]] = ...) -> None: ...

class ListEvaluationsRequest(_message.Message):
    __slots__ = ("run_id", "states", "from_step", "to_step", "page_size", "page_token")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    TO_STEP_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    states: _containers.RepeatedScalarFieldContainer[EvaluationState]
    from_step: int
    to_step: int
    page_size: int
    page_token: str
    def __init__(self, run_id: _Optional[str] = ..., states: _Optional[_Iterable[_Union[EvaluationState, str]]] = ..., from_step: _Optional[int] = ..., to_step: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListEvaluationsResponse(_message.Message):
    __slots__ = ("evaluations", "next_page_token")
    EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    evaluations: _containers.RepeatedCompositeFieldContainer[Evaluation]
    next_page_token: str
    def __init__(self, evaluations: _Optional[_Iterable[_Union[Evaluation, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetSamplesRequest(_message.Message):
    __slots__ = ("evaluation_id", "verdicts", "evaluator", "page_size", "page_token", "without_records")
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    EVALUATOR_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_RECORDS_FIELD_NUMBER: _ClassVar[int]
    evaluation_id: str
    verdicts: _containers.RepeatedScalarFieldContainer[_types_pb2.Verdict]
    evaluator: str
    page_size: int
    page_token: str
    without_records: bool
    def __init__(self, evaluation_id: _Optional[str] = ..., verdicts: _Optional[_Iterable[_Union[_types_pb2.Verdict, str]]] = ..., evaluator: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., without_records: _Optional[bool] = ...) -> None: ...

class GetSamplesResponse(_message.Message):
    __slots__ = ("samples", "next_page_token")
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    samples: _containers.RepeatedCompositeFieldContainer[SampleResult]
    next_page_token: str
    def __init__(self, samples: _Optional[_Iterable[_Union[SampleResult, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class FindSamplesRequest(_message.Message):
    __slots__ = ("evaluation_id", "search", "evaluator", "verdicts", "stop_reason", "changed_from", "metadata", "sample_id", "order_by", "descending", "offset", "limit", "within_ms")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    EVALUATOR_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FROM_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    ORDER_BY_FIELD_NUMBER: _ClassVar[int]
    DESCENDING_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    WITHIN_MS_FIELD_NUMBER: _ClassVar[int]
    evaluation_id: str
    search: str
    evaluator: str
    verdicts: _containers.RepeatedScalarFieldContainer[_types_pb2.Verdict]
    stop_reason: str
    changed_from: str
    metadata: _containers.ScalarMap[str, str]
    sample_id: str
    order_by: SampleOrder
    descending: bool
    offset: int
    limit: int
    within_ms: int
    def __init__(self, evaluation_id: _Optional[str] = ..., search: _Optional[str] = ..., evaluator: _Optional[str] = ..., verdicts: _Optional[_Iterable[_Union[_types_pb2.Verdict, str]]] = ..., stop_reason: _Optional[str] = ..., changed_from: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., sample_id: _Optional[str] = ..., order_by: _Optional[_Union[SampleOrder, str]] = ..., descending: _Optional[bool] = ..., offset: _Optional[int] = ..., limit: _Optional[int] = ..., within_ms: _Optional[int] = ...) -> None: ...

class SampleRow(_message.Message):
    __slots__ = ("n", "evaluator", "sample_id", "repeat", "verdict", "score", "input", "output", "extracted", "target", "stop_reason", "output_tokens", "duration_ns", "reason", "page_token")
    N_FIELD_NUMBER: _ClassVar[int]
    EVALUATOR_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    REPEAT_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    EXTRACTED_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    n: int
    evaluator: str
    sample_id: str
    repeat: int
    verdict: _types_pb2.Verdict
    score: float
    input: str
    output: str
    extracted: str
    target: str
    stop_reason: str
    output_tokens: int
    duration_ns: int
    reason: str
    page_token: str
    def __init__(self, n: _Optional[int] = ..., evaluator: _Optional[str] = ..., sample_id: _Optional[str] = ..., repeat: _Optional[int] = ..., verdict: _Optional[_Union[_types_pb2.Verdict, str]] = ..., score: _Optional[float] = ..., input: _Optional[str] = ..., output: _Optional[str] = ..., extracted: _Optional[str] = ..., target: _Optional[str] = ..., stop_reason: _Optional[str] = ..., output_tokens: _Optional[int] = ..., duration_ns: _Optional[int] = ..., reason: _Optional[str] = ..., page_token: _Optional[str] = ...) -> None: ...

class MetadataField(_message.Message):
    __slots__ = ("key", "values", "values_left_out")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    VALUES_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    key: str
    values: _containers.RepeatedScalarFieldContainer[str]
    values_left_out: bool
    def __init__(self, key: _Optional[str] = ..., values: _Optional[_Iterable[str]] = ..., values_left_out: _Optional[bool] = ...) -> None: ...

class FindSamplesResponse(_message.Message):
    __slots__ = ("rows", "matching", "searched", "total", "fields")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    MATCHING_FIELD_NUMBER: _ClassVar[int]
    SEARCHED_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[SampleRow]
    matching: int
    searched: int
    total: int
    fields: _containers.RepeatedCompositeFieldContainer[MetadataField]
    def __init__(self, rows: _Optional[_Iterable[_Union[SampleRow, _Mapping]]] = ..., matching: _Optional[int] = ..., searched: _Optional[int] = ..., total: _Optional[int] = ..., fields: _Optional[_Iterable[_Union[MetadataField, _Mapping]]] = ...) -> None: ...

class CancelEvaluationRequest(_message.Message):
    __slots__ = ("evaluation_id", "reason")
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    evaluation_id: str
    reason: str
    def __init__(self, evaluation_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CancelEvaluationResponse(_message.Message):
    __slots__ = ("evaluation",)
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    evaluation: Evaluation
    def __init__(self, evaluation: _Optional[_Union[Evaluation, _Mapping]] = ...) -> None: ...

class PauseEvaluationRequest(_message.Message):
    __slots__ = ("evaluation_id",)
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    evaluation_id: str
    def __init__(self, evaluation_id: _Optional[str] = ...) -> None: ...

class PauseEvaluationResponse(_message.Message):
    __slots__ = ("evaluation",)
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    evaluation: Evaluation
    def __init__(self, evaluation: _Optional[_Union[Evaluation, _Mapping]] = ...) -> None: ...

class ResumeEvaluationRequest(_message.Message):
    __slots__ = ("evaluation_id", "max_cost", "max_output_tokens", "max_run_cost", "max_run_output_tokens")
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_COST_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_RUN_COST_FIELD_NUMBER: _ClassVar[int]
    MAX_RUN_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    evaluation_id: str
    max_cost: float
    max_output_tokens: int
    max_run_cost: float
    max_run_output_tokens: int
    def __init__(self, evaluation_id: _Optional[str] = ..., max_cost: _Optional[float] = ..., max_output_tokens: _Optional[int] = ..., max_run_cost: _Optional[float] = ..., max_run_output_tokens: _Optional[int] = ...) -> None: ...

class ResumeEvaluationResponse(_message.Message):
    __slots__ = ("evaluation",)
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    evaluation: Evaluation
    def __init__(self, evaluation: _Optional[_Union[Evaluation, _Mapping]] = ...) -> None: ...

class SetEvaluationConcurrencyRequest(_message.Message):
    __slots__ = ("evaluation_id", "concurrency")
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    evaluation_id: str
    concurrency: int
    def __init__(self, evaluation_id: _Optional[str] = ..., concurrency: _Optional[int] = ...) -> None: ...

class SetEvaluationConcurrencyResponse(_message.Message):
    __slots__ = ("evaluation",)
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    evaluation: Evaluation
    def __init__(self, evaluation: _Optional[_Union[Evaluation, _Mapping]] = ...) -> None: ...

class ListRunsRequest(_message.Message):
    __slots__ = ("run_id", "page_size", "page_token")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    page_size: int
    page_token: str
    def __init__(self, run_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class RunBest(_message.Message):
    __slots__ = ("metric", "goal", "value", "evaluation_id", "step", "dataset", "dataset_fingerprint", "rules_version", "scored", "grader_versions", "interval_low", "interval_high")
    class GraderVersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    METRIC_FIELD_NUMBER: _ClassVar[int]
    GOAL_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    DATASET_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    RULES_VERSION_FIELD_NUMBER: _ClassVar[int]
    SCORED_FIELD_NUMBER: _ClassVar[int]
    GRADER_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_LOW_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_HIGH_FIELD_NUMBER: _ClassVar[int]
    metric: str
    goal: Goal
    value: float
    evaluation_id: str
    step: int
    dataset: str
    dataset_fingerprint: str
    rules_version: int
    scored: ScoredCount
    grader_versions: _containers.ScalarMap[str, int]
    interval_low: float
    interval_high: float
    def __init__(self, metric: _Optional[str] = ..., goal: _Optional[_Union[Goal, str]] = ..., value: _Optional[float] = ..., evaluation_id: _Optional[str] = ..., step: _Optional[int] = ..., dataset: _Optional[str] = ..., dataset_fingerprint: _Optional[str] = ..., rules_version: _Optional[int] = ..., scored: _Optional[_Union[ScoredCount, _Mapping]] = ..., grader_versions: _Optional[_Mapping[str, int]] = ..., interval_low: _Optional[float] = ..., interval_high: _Optional[float] = ...) -> None: ...

class ScoredCount(_message.Message):
    __slots__ = ("n", "n_scored")
    N_FIELD_NUMBER: _ClassVar[int]
    N_SCORED_FIELD_NUMBER: _ClassVar[int]
    n: int
    n_scored: int
    def __init__(self, n: _Optional[int] = ..., n_scored: _Optional[int] = ...) -> None: ...

class RunInfo(_message.Message):
    __slots__ = ("run_id", "first_unix_ns", "last_unix_ns", "first_step", "last_step", "checkpoints", "completed", "failed", "cancelled", "unfinished", "best")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    LAST_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    BEST_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    first_unix_ns: int
    last_unix_ns: int
    first_step: int
    last_step: int
    checkpoints: int
    completed: int
    failed: int
    cancelled: int
    unfinished: int
    best: _containers.RepeatedCompositeFieldContainer[RunBest]
    def __init__(self, run_id: _Optional[str] = ..., first_unix_ns: _Optional[int] = ..., last_unix_ns: _Optional[int] = ..., first_step: _Optional[int] = ..., last_step: _Optional[int] = ..., checkpoints: _Optional[int] = ..., completed: _Optional[int] = ..., failed: _Optional[int] = ..., cancelled: _Optional[int] = ..., unfinished: _Optional[int] = ..., best: _Optional[_Iterable[_Union[RunBest, _Mapping]]] = ...) -> None: ...

class CheckpointResult(_message.Message):
    __slots__ = ("evaluation_id", "state", "retained", "dataset", "dataset_fingerprint", "done", "metrics", "best", "created_unix_ns", "ended_unix_ns", "problem", "rules_version", "superseded", "scored", "graders")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class ScoredEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: ScoredCount
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[ScoredCount, _Mapping]] = ...) -> None: ...
    class GradersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: GraderVersions
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[GraderVersions, _Mapping]] = ...) -> None: ...
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    DATASET_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    BEST_FIELD_NUMBER: _ClassVar[int]
    CREATED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    ENDED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    RULES_VERSION_FIELD_NUMBER: _ClassVar[int]
    SUPERSEDED_FIELD_NUMBER: _ClassVar[int]
    SCORED_FIELD_NUMBER: _ClassVar[int]
    GRADERS_FIELD_NUMBER: _ClassVar[int]
    evaluation_id: str
    state: EvaluationState
    retained: bool
    dataset: str
    dataset_fingerprint: str
    done: int
    metrics: _containers.ScalarMap[str, float]
    best: _containers.RepeatedScalarFieldContainer[str]
    created_unix_ns: int
    ended_unix_ns: int
    problem: _types_pb2.Problem
    rules_version: int
    superseded: bool
    scored: _containers.MessageMap[str, ScoredCount]
    graders: _containers.MessageMap[str, GraderVersions]
    def __init__(self, evaluation_id: _Optional[str] = ..., state: _Optional[_Union[EvaluationState, str]] = ..., retained: _Optional[bool] = ..., dataset: _Optional[str] = ..., dataset_fingerprint: _Optional[str] = ..., done: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ..., best: _Optional[_Iterable[str]] = ..., created_unix_ns: _Optional[int] = ..., ended_unix_ns: _Optional[int] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ..., rules_version: _Optional[int] = ..., superseded: _Optional[bool] = ..., scored: _Optional[_Mapping[str, ScoredCount]] = ..., graders: _Optional[_Mapping[str, GraderVersions]] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("step", "model", "base_model", "adapter", "model_fingerprint", "labels", "results")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    STEP_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    BASE_MODEL_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    step: int
    model: _types_pb2.ModelRef
    base_model: str
    adapter: str
    model_fingerprint: str
    labels: _containers.ScalarMap[str, str]
    results: _containers.RepeatedCompositeFieldContainer[CheckpointResult]
    def __init__(self, step: _Optional[int] = ..., model: _Optional[_Union[_types_pb2.ModelRef, _Mapping]] = ..., base_model: _Optional[str] = ..., adapter: _Optional[str] = ..., model_fingerprint: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., results: _Optional[_Iterable[_Union[CheckpointResult, _Mapping]]] = ...) -> None: ...

class ListRunsResponse(_message.Message):
    __slots__ = ("runs", "checkpoints", "next_page_token")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[RunInfo]
    checkpoints: _containers.RepeatedCompositeFieldContainer[Checkpoint]
    next_page_token: str
    def __init__(self, runs: _Optional[_Iterable[_Union[RunInfo, _Mapping]]] = ..., checkpoints: _Optional[_Iterable[_Union[Checkpoint, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteEvaluationRequest(_message.Message):
    __slots__ = ("evaluation_id",)
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    evaluation_id: str
    def __init__(self, evaluation_id: _Optional[str] = ...) -> None: ...

class DeleteEvaluationResponse(_message.Message):
    __slots__ = ("evaluation",)
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    evaluation: Evaluation
    def __init__(self, evaluation: _Optional[_Union[Evaluation, _Mapping]] = ...) -> None: ...

class RenderSampleRequest(_message.Message):
    __slots__ = ("request", "sample_id")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    request: EvaluateRequest
    sample_id: str
    def __init__(self, request: _Optional[_Union[EvaluateRequest, _Mapping]] = ..., sample_id: _Optional[str] = ...) -> None: ...

class RenderSampleResponse(_message.Message):
    __slots__ = ("sample_id", "prompts")
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    sample_id: str
    prompts: _containers.RepeatedCompositeFieldContainer[RenderedPrompt]
    def __init__(self, sample_id: _Optional[str] = ..., prompts: _Optional[_Iterable[_Union[RenderedPrompt, _Mapping]]] = ...) -> None: ...

class RenderedPrompt(_message.Message):
    __slots__ = ("evaluator", "renderer", "conversation", "text", "tokens", "stop", "problem")
    EVALUATOR_FIELD_NUMBER: _ClassVar[int]
    RENDERER_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    evaluator: str
    renderer: str
    conversation: _types_pb2.Conversation
    text: str
    tokens: _containers.RepeatedScalarFieldContainer[int]
    stop: _containers.RepeatedScalarFieldContainer[str]
    problem: _types_pb2.Problem
    def __init__(self, evaluator: _Optional[str] = ..., renderer: _Optional[str] = ..., conversation: _Optional[_Union[_types_pb2.Conversation, _Mapping]] = ..., text: _Optional[str] = ..., tokens: _Optional[_Iterable[int]] = ..., stop: _Optional[_Iterable[str]] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ...) -> None: ...

class GenerateReportRequest(_message.Message):
    __slots__ = ("evaluation_ids", "format", "max_samples", "metrics", "title", "run_id")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    EVALUATION_IDS_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    MAX_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    evaluation_ids: _containers.RepeatedScalarFieldContainer[str]
    format: ReportFormat
    max_samples: int
    metrics: _containers.ScalarMap[str, float]
    title: str
    run_id: str
    def __init__(self, evaluation_ids: _Optional[_Iterable[str]] = ..., format: _Optional[_Union[ReportFormat, str]] = ..., max_samples: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ..., title: _Optional[str] = ..., run_id: _Optional[str] = ...) -> None: ...

class GenerateReportResponse(_message.Message):
    __slots__ = ("report",)
    REPORT_FIELD_NUMBER: _ClassVar[int]
    report: str
    def __init__(self, report: _Optional[str] = ...) -> None: ...

class EvaluateWithOrchestratorModelRequest(_message.Message):
    __slots__ = ("start", "answer")
    START_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    start: OrchestratorStart
    answer: _orchestrator_pb2.OrchestratorAnswer
    def __init__(self, start: _Optional[_Union[OrchestratorStart, _Mapping]] = ..., answer: _Optional[_Union[_orchestrator_pb2.OrchestratorAnswer, _Mapping]] = ...) -> None: ...

class OrchestratorStart(_message.Message):
    __slots__ = ("request", "window", "calls", "graders", "environments")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    GRADERS_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENTS_FIELD_NUMBER: _ClassVar[int]
    request: EvaluateRequest
    window: int
    calls: _containers.RepeatedScalarFieldContainer[_orchestrator_pb2.OrchestratorCall]
    graders: _containers.RepeatedScalarFieldContainer[str]
    environments: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request: _Optional[_Union[EvaluateRequest, _Mapping]] = ..., window: _Optional[int] = ..., calls: _Optional[_Iterable[_Union[_orchestrator_pb2.OrchestratorCall, str]]] = ..., graders: _Optional[_Iterable[str]] = ..., environments: _Optional[_Iterable[str]] = ...) -> None: ...

class EvaluateWithOrchestratorModelResponse(_message.Message):
    __slots__ = ("accepted", "question", "withdrawn", "ended", "closed")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    accepted: OrchestratorAccepted
    question: _orchestrator_pb2.OrchestratorQuestion
    withdrawn: int
    ended: OrchestratorEnded
    closed: int
    def __init__(self, accepted: _Optional[_Union[OrchestratorAccepted, _Mapping]] = ..., question: _Optional[_Union[_orchestrator_pb2.OrchestratorQuestion, _Mapping]] = ..., withdrawn: _Optional[int] = ..., ended: _Optional[_Union[OrchestratorEnded, _Mapping]] = ..., closed: _Optional[int] = ...) -> None: ...

class OrchestratorAccepted(_message.Message):
    __slots__ = ("evaluation", "existed", "window")
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    evaluation: Evaluation
    existed: bool
    window: int
    def __init__(self, evaluation: _Optional[_Union[Evaluation, _Mapping]] = ..., existed: _Optional[bool] = ..., window: _Optional[int] = ...) -> None: ...

class OrchestratorEnded(_message.Message):
    __slots__ = ("evaluation", "ignored_answers")
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    IGNORED_ANSWERS_FIELD_NUMBER: _ClassVar[int]
    evaluation: Evaluation
    ignored_answers: int
    def __init__(self, evaluation: _Optional[_Union[Evaluation, _Mapping]] = ..., ignored_answers: _Optional[int] = ...) -> None: ...

class PlannedEvaluation(_message.Message):
    __slots__ = ("evaluators", "dataset", "sampling", "limits", "metric_prefix", "labels", "record", "models")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ModelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    EVALUATORS_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    METRIC_PREFIX_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    evaluators: _containers.RepeatedCompositeFieldContainer[EvaluatorSpec]
    dataset: Dataset
    sampling: _types_pb2.SamplingParams
    limits: Limits
    metric_prefix: str
    labels: _containers.ScalarMap[str, str]
    record: Record
    models: _containers.ScalarMap[str, str]
    def __init__(self, evaluators: _Optional[_Iterable[_Union[EvaluatorSpec, _Mapping]]] = ..., dataset: _Optional[_Union[Dataset, _Mapping]] = ..., sampling: _Optional[_Union[_types_pb2.SamplingParams, _Mapping]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., metric_prefix: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., record: _Optional[_Union[Record, str]] = ..., models: _Optional[_Mapping[str, str]] = ...) -> None: ...

class EvaluationPlan(_message.Message):
    __slots__ = ("plan_id", "run_id", "eval_every", "evaluations", "infrequent_eval_every", "infrequent_evaluations", "correlation_id", "patience", "log_to", "best_file")
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    EVAL_EVERY_FIELD_NUMBER: _ClassVar[int]
    EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    INFREQUENT_EVAL_EVERY_FIELD_NUMBER: _ClassVar[int]
    INFREQUENT_EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_FIELD_NUMBER: _ClassVar[int]
    LOG_TO_FIELD_NUMBER: _ClassVar[int]
    BEST_FILE_FIELD_NUMBER: _ClassVar[int]
    plan_id: str
    run_id: str
    eval_every: int
    evaluations: _containers.RepeatedCompositeFieldContainer[PlannedEvaluation]
    infrequent_eval_every: int
    infrequent_evaluations: _containers.RepeatedCompositeFieldContainer[PlannedEvaluation]
    correlation_id: str
    patience: Patience
    log_to: _containers.RepeatedScalarFieldContainer[str]
    best_file: bool
    def __init__(self, plan_id: _Optional[str] = ..., run_id: _Optional[str] = ..., eval_every: _Optional[int] = ..., evaluations: _Optional[_Iterable[_Union[PlannedEvaluation, _Mapping]]] = ..., infrequent_eval_every: _Optional[int] = ..., infrequent_evaluations: _Optional[_Iterable[_Union[PlannedEvaluation, _Mapping]]] = ..., correlation_id: _Optional[str] = ..., patience: _Optional[_Union[Patience, _Mapping]] = ..., log_to: _Optional[_Iterable[str]] = ..., best_file: _Optional[bool] = ...) -> None: ...

class Patience(_message.Message):
    __slots__ = ("metric", "goal", "patience", "min_delta", "confidence")
    METRIC_FIELD_NUMBER: _ClassVar[int]
    GOAL_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_FIELD_NUMBER: _ClassVar[int]
    MIN_DELTA_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    metric: str
    goal: Goal
    patience: int
    min_delta: float
    confidence: float
    def __init__(self, metric: _Optional[str] = ..., goal: _Optional[_Union[Goal, str]] = ..., patience: _Optional[int] = ..., min_delta: _Optional[float] = ..., confidence: _Optional[float] = ...) -> None: ...

class RegisterPlanRequest(_message.Message):
    __slots__ = ("plan",)
    PLAN_FIELD_NUMBER: _ClassVar[int]
    plan: EvaluationPlan
    def __init__(self, plan: _Optional[_Union[EvaluationPlan, _Mapping]] = ...) -> None: ...

class RegisterPlanResponse(_message.Message):
    __slots__ = ("fingerprint", "existed")
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    fingerprint: str
    existed: bool
    def __init__(self, fingerprint: _Optional[str] = ..., existed: _Optional[bool] = ...) -> None: ...

class NotifyStepRequest(_message.Message):
    __slots__ = ("plan_id", "step", "model", "last")
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    plan_id: str
    step: int
    model: _types_pb2.ModelRef
    last: bool
    def __init__(self, plan_id: _Optional[str] = ..., step: _Optional[int] = ..., model: _Optional[_Union[_types_pb2.ModelRef, _Mapping]] = ..., last: _Optional[bool] = ...) -> None: ...

class NotifyStepResponse(_message.Message):
    __slots__ = ("evaluations",)
    EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    evaluations: _containers.RepeatedCompositeFieldContainer[StartEvaluationResponse]
    def __init__(self, evaluations: _Optional[_Iterable[_Union[StartEvaluationResponse, _Mapping]]] = ...) -> None: ...

class FollowRunRequest(_message.Message):
    __slots__ = ("run_id", "directory", "plan", "plan_id", "policy", "every", "name_pattern", "marker", "base_model", "hold_folder", "mark")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    NAME_PATTERN_FIELD_NUMBER: _ClassVar[int]
    MARKER_FIELD_NUMBER: _ClassVar[int]
    BASE_MODEL_FIELD_NUMBER: _ClassVar[int]
    HOLD_FOLDER_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    directory: str
    plan: EvaluationPlan
    plan_id: str
    policy: FollowPolicy
    every: int
    name_pattern: str
    marker: str
    base_model: _types_pb2.ModelRef
    hold_folder: str
    mark: bool
    def __init__(self, run_id: _Optional[str] = ..., directory: _Optional[str] = ..., plan: _Optional[_Union[EvaluationPlan, _Mapping]] = ..., plan_id: _Optional[str] = ..., policy: _Optional[_Union[FollowPolicy, str]] = ..., every: _Optional[int] = ..., name_pattern: _Optional[str] = ..., marker: _Optional[str] = ..., base_model: _Optional[_Union[_types_pb2.ModelRef, _Mapping]] = ..., hold_folder: _Optional[str] = ..., mark: _Optional[bool] = ...) -> None: ...

class FollowRunResponse(_message.Message):
    __slots__ = ("plan_id", "existed")
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    plan_id: str
    existed: bool
    def __init__(self, plan_id: _Optional[str] = ..., existed: _Optional[bool] = ...) -> None: ...

class UnfollowRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class UnfollowRunResponse(_message.Message):
    __slots__ = ("followed",)
    FOLLOWED_FIELD_NUMBER: _ClassVar[int]
    followed: bool
    def __init__(self, followed: _Optional[bool] = ...) -> None: ...

class CompareEvaluationsRequest(_message.Message):
    __slots__ = ("evaluation_ids", "run_id", "dataset_fingerprint", "baseline_id", "evaluator", "rank_by", "confidence", "max_listed", "cluster_by", "across_rules")
    EVALUATION_IDS_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    DATASET_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    BASELINE_ID_FIELD_NUMBER: _ClassVar[int]
    EVALUATOR_FIELD_NUMBER: _ClassVar[int]
    RANK_BY_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    MAX_LISTED_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_BY_FIELD_NUMBER: _ClassVar[int]
    ACROSS_RULES_FIELD_NUMBER: _ClassVar[int]
    evaluation_ids: _containers.RepeatedScalarFieldContainer[str]
    run_id: str
    dataset_fingerprint: str
    baseline_id: str
    evaluator: str
    rank_by: RankBy
    confidence: float
    max_listed: int
    cluster_by: str
    across_rules: bool
    def __init__(self, evaluation_ids: _Optional[_Iterable[str]] = ..., run_id: _Optional[str] = ..., dataset_fingerprint: _Optional[str] = ..., baseline_id: _Optional[str] = ..., evaluator: _Optional[str] = ..., rank_by: _Optional[_Union[RankBy, _Mapping]] = ..., confidence: _Optional[float] = ..., max_listed: _Optional[int] = ..., cluster_by: _Optional[str] = ..., across_rules: _Optional[bool] = ...) -> None: ...

class RankBy(_message.Message):
    __slots__ = ("metric", "goal", "min_scored_share")
    METRIC_FIELD_NUMBER: _ClassVar[int]
    GOAL_FIELD_NUMBER: _ClassVar[int]
    MIN_SCORED_SHARE_FIELD_NUMBER: _ClassVar[int]
    metric: str
    goal: Goal
    min_scored_share: float
    def __init__(self, metric: _Optional[str] = ..., goal: _Optional[_Union[Goal, str]] = ..., min_scored_share: _Optional[float] = ...) -> None: ...

class SampleChange(_message.Message):
    __slots__ = ("sample_id", "baseline_score", "score", "input")
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    BASELINE_SCORE_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    sample_id: str
    baseline_score: float
    score: float
    input: str
    def __init__(self, sample_id: _Optional[str] = ..., baseline_score: _Optional[float] = ..., score: _Optional[float] = ..., input: _Optional[str] = ...) -> None: ...

class PairedComparison(_message.Message):
    __slots__ = ("baseline_id", "evaluation_id", "evaluator", "n_matched", "n_baseline_only", "n_evaluation_only", "n_improved", "n_regressed", "metrics", "interval_method", "improvements", "regressions", "problem")
    BASELINE_ID_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    EVALUATOR_FIELD_NUMBER: _ClassVar[int]
    N_MATCHED_FIELD_NUMBER: _ClassVar[int]
    N_BASELINE_ONLY_FIELD_NUMBER: _ClassVar[int]
    N_EVALUATION_ONLY_FIELD_NUMBER: _ClassVar[int]
    N_IMPROVED_FIELD_NUMBER: _ClassVar[int]
    N_REGRESSED_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_METHOD_FIELD_NUMBER: _ClassVar[int]
    IMPROVEMENTS_FIELD_NUMBER: _ClassVar[int]
    REGRESSIONS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    baseline_id: str
    evaluation_id: str
    evaluator: str
    n_matched: int
    n_baseline_only: int
    n_evaluation_only: int
    n_improved: int
    n_regressed: int
    metrics: _types_pb2.Metrics
    interval_method: str
    improvements: _containers.RepeatedCompositeFieldContainer[SampleChange]
    regressions: _containers.RepeatedCompositeFieldContainer[SampleChange]
    problem: _types_pb2.Problem
    def __init__(self, baseline_id: _Optional[str] = ..., evaluation_id: _Optional[str] = ..., evaluator: _Optional[str] = ..., n_matched: _Optional[int] = ..., n_baseline_only: _Optional[int] = ..., n_evaluation_only: _Optional[int] = ..., n_improved: _Optional[int] = ..., n_regressed: _Optional[int] = ..., metrics: _Optional[_Union[_types_pb2.Metrics, _Mapping]] = ..., interval_method: _Optional[str] = ..., improvements: _Optional[_Iterable[_Union[SampleChange, _Mapping]]] = ..., regressions: _Optional[_Iterable[_Union[SampleChange, _Mapping]]] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ...) -> None: ...

class MetricSeries(_message.Message):
    __slots__ = ("key", "points")
    KEY_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    key: str
    points: _containers.RepeatedCompositeFieldContainer[SeriesPoint]
    def __init__(self, key: _Optional[str] = ..., points: _Optional[_Iterable[_Union[SeriesPoint, _Mapping]]] = ...) -> None: ...

class SeriesPoint(_message.Message):
    __slots__ = ("evaluation_id", "step", "value", "rules_version", "scored", "grader_versions")
    class GraderVersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    RULES_VERSION_FIELD_NUMBER: _ClassVar[int]
    SCORED_FIELD_NUMBER: _ClassVar[int]
    GRADER_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    evaluation_id: str
    step: int
    value: float
    rules_version: int
    scored: ScoredCount
    grader_versions: _containers.ScalarMap[str, int]
    def __init__(self, evaluation_id: _Optional[str] = ..., step: _Optional[int] = ..., value: _Optional[float] = ..., rules_version: _Optional[int] = ..., scored: _Optional[_Union[ScoredCount, _Mapping]] = ..., grader_versions: _Optional[_Mapping[str, int]] = ...) -> None: ...

class CompareEvaluationsResponse(_message.Message):
    __slots__ = ("evaluations", "comparisons", "series", "best_evaluation_id", "tied_evaluation_ids", "tied_by", "unranked_evaluation_ids")
    EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    COMPARISONS_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    BEST_EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    TIED_EVALUATION_IDS_FIELD_NUMBER: _ClassVar[int]
    TIED_BY_FIELD_NUMBER: _ClassVar[int]
    UNRANKED_EVALUATION_IDS_FIELD_NUMBER: _ClassVar[int]
    evaluations: _containers.RepeatedCompositeFieldContainer[Evaluation]
    comparisons: _containers.RepeatedCompositeFieldContainer[PairedComparison]
    series: _containers.RepeatedCompositeFieldContainer[MetricSeries]
    best_evaluation_id: str
    tied_evaluation_ids: _containers.RepeatedScalarFieldContainer[str]
    tied_by: str
    unranked_evaluation_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, evaluations: _Optional[_Iterable[_Union[Evaluation, _Mapping]]] = ..., comparisons: _Optional[_Iterable[_Union[PairedComparison, _Mapping]]] = ..., series: _Optional[_Iterable[_Union[MetricSeries, _Mapping]]] = ..., best_evaluation_id: _Optional[str] = ..., tied_evaluation_ids: _Optional[_Iterable[str]] = ..., tied_by: _Optional[str] = ..., unranked_evaluation_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class GateMetric(_message.Message):
    __slots__ = ("key", "max_drop", "max_relative_drop", "tier", "min_n", "direction")
    KEY_FIELD_NUMBER: _ClassVar[int]
    MAX_DROP_FIELD_NUMBER: _ClassVar[int]
    MAX_RELATIVE_DROP_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    MIN_N_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    key: str
    max_drop: float
    max_relative_drop: float
    tier: GateTier
    min_n: int
    direction: Goal
    def __init__(self, key: _Optional[str] = ..., max_drop: _Optional[float] = ..., max_relative_drop: _Optional[float] = ..., tier: _Optional[_Union[GateTier, str]] = ..., min_n: _Optional[int] = ..., direction: _Optional[_Union[Goal, str]] = ...) -> None: ...

class GatePolicy(_message.Message):
    __slots__ = ("metrics", "confidence", "cluster_by", "max_unscored_share")
    METRICS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_BY_FIELD_NUMBER: _ClassVar[int]
    MAX_UNSCORED_SHARE_FIELD_NUMBER: _ClassVar[int]
    metrics: _containers.RepeatedCompositeFieldContainer[GateMetric]
    confidence: float
    cluster_by: str
    max_unscored_share: float
    def __init__(self, metrics: _Optional[_Iterable[_Union[GateMetric, _Mapping]]] = ..., confidence: _Optional[float] = ..., cluster_by: _Optional[str] = ..., max_unscored_share: _Optional[float] = ...) -> None: ...

class GateRequest(_message.Message):
    __slots__ = ("baseline_id", "candidate_id", "policy", "across_rules")
    BASELINE_ID_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_ID_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    ACROSS_RULES_FIELD_NUMBER: _ClassVar[int]
    baseline_id: str
    candidate_id: str
    policy: GatePolicy
    across_rules: bool
    def __init__(self, baseline_id: _Optional[str] = ..., candidate_id: _Optional[str] = ..., policy: _Optional[_Union[GatePolicy, _Mapping]] = ..., across_rules: _Optional[bool] = ...) -> None: ...

class GatedMetric(_message.Message):
    __slots__ = ("key", "tier", "verdict", "reasons", "evaluator", "rests_on", "n", "metrics")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    EVALUATOR_FIELD_NUMBER: _ClassVar[int]
    RESTS_ON_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    key: str
    tier: GateTier
    verdict: GateVerdict
    reasons: _containers.RepeatedScalarFieldContainer[str]
    evaluator: str
    rests_on: str
    n: int
    metrics: _types_pb2.Metrics
    def __init__(self, key: _Optional[str] = ..., tier: _Optional[_Union[GateTier, str]] = ..., verdict: _Optional[_Union[GateVerdict, str]] = ..., reasons: _Optional[_Iterable[str]] = ..., evaluator: _Optional[str] = ..., rests_on: _Optional[str] = ..., n: _Optional[int] = ..., metrics: _Optional[_Union[_types_pb2.Metrics, _Mapping]] = ...) -> None: ...

class GateResponse(_message.Message):
    __slots__ = ("verdict", "reasons", "metrics")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    verdict: GateVerdict
    reasons: _containers.RepeatedScalarFieldContainer[str]
    metrics: _containers.RepeatedCompositeFieldContainer[GatedMetric]
    def __init__(self, verdict: _Optional[_Union[GateVerdict, str]] = ..., reasons: _Optional[_Iterable[str]] = ..., metrics: _Optional[_Iterable[_Union[GatedMetric, _Mapping]]] = ...) -> None: ...
