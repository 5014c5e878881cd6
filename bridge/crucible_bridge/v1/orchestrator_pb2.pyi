from crucible_bridge.v1 import types_pb2 as _types_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OrchestratorCall(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ORCHESTRATOR_CALL_UNSPECIFIED: _ClassVar[OrchestratorCall]
    ORCHESTRATOR_CALL_SAMPLE: _ClassVar[OrchestratorCall]
    ORCHESTRATOR_CALL_LOGPROBS: _ClassVar[OrchestratorCall]
    ORCHESTRATOR_CALL_FORWARD: _ClassVar[OrchestratorCall]
    ORCHESTRATOR_CALL_ARGMAX: _ClassVar[OrchestratorCall]
ORCHESTRATOR_CALL_UNSPECIFIED: OrchestratorCall
ORCHESTRATOR_CALL_SAMPLE: OrchestratorCall
ORCHESTRATOR_CALL_LOGPROBS: OrchestratorCall
ORCHESTRATOR_CALL_FORWARD: OrchestratorCall
ORCHESTRATOR_CALL_ARGMAX: OrchestratorCall

class OrchestratorQuestion(_message.Message):
    __slots__ = ("id", "sample", "logprobs", "forward", "argmax", "grade", "environment")
    ID_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FORWARD_FIELD_NUMBER: _ClassVar[int]
    ARGMAX_FIELD_NUMBER: _ClassVar[int]
    GRADE_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    id: int
    sample: SampleQuestion
    logprobs: LogprobsQuestion
    forward: ForwardQuestion
    argmax: ArgmaxQuestion
    grade: GradeQuestion
    environment: EnvironmentQuestion
    def __init__(self, id: _Optional[int] = ..., sample: _Optional[_Union[SampleQuestion, _Mapping]] = ..., logprobs: _Optional[_Union[LogprobsQuestion, _Mapping]] = ..., forward: _Optional[_Union[ForwardQuestion, _Mapping]] = ..., argmax: _Optional[_Union[ArgmaxQuestion, _Mapping]] = ..., grade: _Optional[_Union[GradeQuestion, _Mapping]] = ..., environment: _Optional[_Union[EnvironmentQuestion, _Mapping]] = ...) -> None: ...

class SampleQuestion(_message.Message):
    __slots__ = ("model_input", "text", "conversation", "num_samples", "sampling", "plain")
    MODEL_INPUT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    NUM_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    PLAIN_FIELD_NUMBER: _ClassVar[int]
    model_input: _types_pb2.ModelInput
    text: str
    conversation: _types_pb2.Conversation
    num_samples: int
    sampling: _types_pb2.SamplingParams
    plain: bool
    def __init__(self, model_input: _Optional[_Union[_types_pb2.ModelInput, _Mapping]] = ..., text: _Optional[str] = ..., conversation: _Optional[_Union[_types_pb2.Conversation, _Mapping]] = ..., num_samples: _Optional[int] = ..., sampling: _Optional[_Union[_types_pb2.SamplingParams, _Mapping]] = ..., plain: _Optional[bool] = ...) -> None: ...

class LogprobsQuestion(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: _types_pb2.ModelInput
    def __init__(self, sequence: _Optional[_Union[_types_pb2.ModelInput, _Mapping]] = ...) -> None: ...

class ForwardQuestion(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: _containers.RepeatedCompositeFieldContainer[_types_pb2.Datum]
    def __init__(self, data: _Optional[_Iterable[_Union[_types_pb2.Datum, _Mapping]]] = ...) -> None: ...

class ArgmaxQuestion(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: _types_pb2.ModelInput
    def __init__(self, sequence: _Optional[_Union[_types_pb2.ModelInput, _Mapping]] = ...) -> None: ...

class AskedSample(_message.Message):
    __slots__ = ("id", "text", "conversation", "model_input", "targets", "choices", "metadata", "choice_labels")
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
    MODEL_INPUT_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CHOICE_LABELS_FIELD_NUMBER: _ClassVar[int]
    id: str
    text: str
    conversation: _types_pb2.Conversation
    model_input: _types_pb2.ModelInput
    targets: _containers.RepeatedScalarFieldContainer[str]
    choices: _containers.RepeatedScalarFieldContainer[str]
    metadata: _containers.ScalarMap[str, str]
    choice_labels: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., text: _Optional[str] = ..., conversation: _Optional[_Union[_types_pb2.Conversation, _Mapping]] = ..., model_input: _Optional[_Union[_types_pb2.ModelInput, _Mapping]] = ..., targets: _Optional[_Iterable[str]] = ..., choices: _Optional[_Iterable[str]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., choice_labels: _Optional[_Iterable[str]] = ...) -> None: ...

class GradeQuestion(_message.Message):
    __slots__ = ("grader", "evaluator", "sample", "repeat", "response")
    GRADER_FIELD_NUMBER: _ClassVar[int]
    EVALUATOR_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    REPEAT_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    grader: str
    evaluator: str
    sample: AskedSample
    repeat: int
    response: str
    def __init__(self, grader: _Optional[str] = ..., evaluator: _Optional[str] = ..., sample: _Optional[_Union[AskedSample, _Mapping]] = ..., repeat: _Optional[int] = ..., response: _Optional[str] = ...) -> None: ...

class EnvironmentQuestion(_message.Message):
    __slots__ = ("environment", "episode", "open", "step")
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    environment: str
    episode: int
    open: OpenEpisode
    step: EpisodeAction
    def __init__(self, environment: _Optional[str] = ..., episode: _Optional[int] = ..., open: _Optional[_Union[OpenEpisode, _Mapping]] = ..., step: _Optional[_Union[EpisodeAction, _Mapping]] = ...) -> None: ...

class OpenEpisode(_message.Message):
    __slots__ = ("evaluator", "sample", "seed", "rollout", "options")
    EVALUATOR_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    evaluator: str
    sample: AskedSample
    seed: int
    rollout: int
    options: _struct_pb2.Struct
    def __init__(self, evaluator: _Optional[str] = ..., sample: _Optional[_Union[AskedSample, _Mapping]] = ..., seed: _Optional[int] = ..., rollout: _Optional[int] = ..., options: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class EpisodeAction(_message.Message):
    __slots__ = ("turn", "text", "tokens", "stop_reason")
    TURN_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    turn: int
    text: str
    tokens: _types_pb2.Tensor
    stop_reason: str
    def __init__(self, turn: _Optional[int] = ..., text: _Optional[str] = ..., tokens: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., stop_reason: _Optional[str] = ...) -> None: ...

class OrchestratorAnswer(_message.Message):
    __slots__ = ("id", "sample", "logprobs", "forward", "problem", "argmax", "grade", "environment")
    ID_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FORWARD_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    ARGMAX_FIELD_NUMBER: _ClassVar[int]
    GRADE_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    id: int
    sample: AnsweredSample
    logprobs: _types_pb2.Tensor
    forward: AnsweredForward
    problem: _types_pb2.Problem
    argmax: _types_pb2.Tensor
    grade: AnsweredGrade
    environment: AnsweredEnvironment
    def __init__(self, id: _Optional[int] = ..., sample: _Optional[_Union[AnsweredSample, _Mapping]] = ..., logprobs: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., forward: _Optional[_Union[AnsweredForward, _Mapping]] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ..., argmax: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., grade: _Optional[_Union[AnsweredGrade, _Mapping]] = ..., environment: _Optional[_Union[AnsweredEnvironment, _Mapping]] = ...) -> None: ...

class AnsweredSample(_message.Message):
    __slots__ = ("sequences",)
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    sequences: _containers.RepeatedCompositeFieldContainer[AnsweredSequence]
    def __init__(self, sequences: _Optional[_Iterable[_Union[AnsweredSequence, _Mapping]]] = ...) -> None: ...

class AnsweredSequence(_message.Message):
    __slots__ = ("text", "tokens", "logprobs", "stop_reason", "output_tokens", "prompt_tokens", "cached_prompt_tokens", "reasoning_tokens")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASONING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    text: bytes
    tokens: _types_pb2.Tensor
    logprobs: _types_pb2.Tensor
    stop_reason: str
    output_tokens: int
    prompt_tokens: int
    cached_prompt_tokens: int
    reasoning_tokens: int
    def __init__(self, text: _Optional[bytes] = ..., tokens: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., logprobs: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., stop_reason: _Optional[str] = ..., output_tokens: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., cached_prompt_tokens: _Optional[int] = ..., reasoning_tokens: _Optional[int] = ...) -> None: ...

class AnsweredForward(_message.Message):
    __slots__ = ("logprobs",)
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    logprobs: _containers.RepeatedCompositeFieldContainer[_types_pb2.Tensor]
    def __init__(self, logprobs: _Optional[_Iterable[_Union[_types_pb2.Tensor, _Mapping]]] = ...) -> None: ...

class AnsweredGrade(_message.Message):
    __slots__ = ("verdict", "score", "reason", "extracted", "measurements")
    class MeasurementsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXTRACTED_FIELD_NUMBER: _ClassVar[int]
    MEASUREMENTS_FIELD_NUMBER: _ClassVar[int]
    verdict: _types_pb2.Verdict
    score: float
    reason: str
    extracted: str
    measurements: _containers.ScalarMap[str, float]
    def __init__(self, verdict: _Optional[_Union[_types_pb2.Verdict, str]] = ..., score: _Optional[float] = ..., reason: _Optional[str] = ..., extracted: _Optional[str] = ..., measurements: _Optional[_Mapping[str, float]] = ...) -> None: ...

class AnsweredEnvironment(_message.Message):
    __slots__ = ("text", "conversation", "model_input", "reward", "done", "metrics", "stop", "stop_tokens", "tags")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    MODEL_INPUT_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    text: str
    conversation: _types_pb2.Conversation
    model_input: _types_pb2.ModelInput
    reward: float
    done: bool
    metrics: _containers.ScalarMap[str, float]
    stop: _containers.RepeatedScalarFieldContainer[str]
    stop_tokens: _containers.RepeatedScalarFieldContainer[int]
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, text: _Optional[str] = ..., conversation: _Optional[_Union[_types_pb2.Conversation, _Mapping]] = ..., model_input: _Optional[_Union[_types_pb2.ModelInput, _Mapping]] = ..., reward: _Optional[float] = ..., done: _Optional[bool] = ..., metrics: _Optional[_Mapping[str, float]] = ..., stop: _Optional[_Iterable[str]] = ..., stop_tokens: _Optional[_Iterable[int]] = ..., tags: _Optional[_Iterable[str]] = ...) -> None: ...
