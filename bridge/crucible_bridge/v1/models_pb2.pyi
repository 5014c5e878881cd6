from crucible_bridge.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BatchLimits(_message.Message):
    __slots__ = ("concurrency", "deadline_ms", "item_timeout_ms")
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    ITEM_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    concurrency: int
    deadline_ms: int
    item_timeout_ms: int
    def __init__(self, concurrency: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., item_timeout_ms: _Optional[int] = ...) -> None: ...

class SampleItem(_message.Message):
    __slots__ = ("model_input", "text", "conversation", "num_samples", "seed", "tool_choice")
    MODEL_INPUT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    NUM_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    model_input: _types_pb2.ModelInput
    text: str
    conversation: _types_pb2.Conversation
    num_samples: int
    seed: int
    tool_choice: str
    def __init__(self, model_input: _Optional[_Union[_types_pb2.ModelInput, _Mapping]] = ..., text: _Optional[str] = ..., conversation: _Optional[_Union[_types_pb2.Conversation, _Mapping]] = ..., num_samples: _Optional[int] = ..., seed: _Optional[int] = ..., tool_choice: _Optional[str] = ...) -> None: ...

class SampleRequest(_message.Message):
    __slots__ = ("model", "items", "sampling", "limits", "top_logprobs")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    model: _types_pb2.ModelRef
    items: _containers.RepeatedCompositeFieldContainer[SampleItem]
    sampling: _types_pb2.SamplingParams
    limits: BatchLimits
    top_logprobs: int
    def __init__(self, model: _Optional[_Union[_types_pb2.ModelRef, _Mapping]] = ..., items: _Optional[_Iterable[_Union[SampleItem, _Mapping]]] = ..., sampling: _Optional[_Union[_types_pb2.SamplingParams, _Mapping]] = ..., limits: _Optional[_Union[BatchLimits, _Mapping]] = ..., top_logprobs: _Optional[int] = ...) -> None: ...

class SampledSequence(_message.Message):
    __slots__ = ("text", "tokens", "logprobs", "stop_reason", "output_tokens", "prompt_tokens", "cached_prompt_tokens", "reasoning_tokens", "top_tokens", "top_logprobs", "reasoning", "refusal", "tool_calls", "unparsed_tool_calls")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASONING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    UNPARSED_TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    text: str
    tokens: _types_pb2.Tensor
    logprobs: _types_pb2.Tensor
    stop_reason: str
    output_tokens: int
    prompt_tokens: int
    cached_prompt_tokens: int
    reasoning_tokens: int
    top_tokens: _types_pb2.Tensor
    top_logprobs: _types_pb2.Tensor
    reasoning: str
    refusal: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[_types_pb2.ToolCall]
    unparsed_tool_calls: _containers.RepeatedCompositeFieldContainer[_types_pb2.UnparsedToolCall]
    def __init__(self, text: _Optional[str] = ..., tokens: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., logprobs: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., stop_reason: _Optional[str] = ..., output_tokens: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., cached_prompt_tokens: _Optional[int] = ..., reasoning_tokens: _Optional[int] = ..., top_tokens: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., top_logprobs: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., reasoning: _Optional[str] = ..., refusal: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[_types_pb2.ToolCall, _Mapping]]] = ..., unparsed_tool_calls: _Optional[_Iterable[_Union[_types_pb2.UnparsedToolCall, _Mapping]]] = ...) -> None: ...

class SampledItem(_message.Message):
    __slots__ = ("sequences", "prompt_tokens", "seed", "problem")
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    sequences: _containers.RepeatedCompositeFieldContainer[SampledSequence]
    prompt_tokens: int
    seed: int
    problem: _types_pb2.Problem
    def __init__(self, sequences: _Optional[_Iterable[_Union[SampledSequence, _Mapping]]] = ..., prompt_tokens: _Optional[int] = ..., seed: _Optional[int] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ...) -> None: ...

class SampleResponse(_message.Message):
    __slots__ = ("items", "model_fingerprint", "usage")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[SampledItem]
    model_fingerprint: str
    usage: _types_pb2.Usage
    def __init__(self, items: _Optional[_Iterable[_Union[SampledItem, _Mapping]]] = ..., model_fingerprint: _Optional[str] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ...) -> None: ...

class LogprobsItem(_message.Message):
    __slots__ = ("model_input", "text", "conversation", "continuation", "targets", "last_n")
    MODEL_INPUT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    CONTINUATION_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    LAST_N_FIELD_NUMBER: _ClassVar[int]
    model_input: _types_pb2.ModelInput
    text: str
    conversation: _types_pb2.Conversation
    continuation: _containers.RepeatedScalarFieldContainer[int]
    targets: _types_pb2.Tensor
    last_n: int
    def __init__(self, model_input: _Optional[_Union[_types_pb2.ModelInput, _Mapping]] = ..., text: _Optional[str] = ..., conversation: _Optional[_Union[_types_pb2.Conversation, _Mapping]] = ..., continuation: _Optional[_Iterable[int]] = ..., targets: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., last_n: _Optional[int] = ...) -> None: ...

class Teacher(_message.Message):
    __slots__ = ("model", "weight", "items")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    model: _types_pb2.ModelRef
    weight: float
    items: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, model: _Optional[_Union[_types_pb2.ModelRef, _Mapping]] = ..., weight: _Optional[float] = ..., items: _Optional[_Iterable[int]] = ...) -> None: ...

class ComputeLogprobsRequest(_message.Message):
    __slots__ = ("model", "sequences", "limits", "items", "top_k", "last_n", "add_special_tokens", "teachers")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    LAST_N_FIELD_NUMBER: _ClassVar[int]
    ADD_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEACHERS_FIELD_NUMBER: _ClassVar[int]
    model: _types_pb2.ModelRef
    sequences: _containers.RepeatedCompositeFieldContainer[_types_pb2.ModelInput]
    limits: BatchLimits
    items: _containers.RepeatedCompositeFieldContainer[LogprobsItem]
    top_k: int
    last_n: int
    add_special_tokens: bool
    teachers: _containers.RepeatedCompositeFieldContainer[Teacher]
    def __init__(self, model: _Optional[_Union[_types_pb2.ModelRef, _Mapping]] = ..., sequences: _Optional[_Iterable[_Union[_types_pb2.ModelInput, _Mapping]]] = ..., limits: _Optional[_Union[BatchLimits, _Mapping]] = ..., items: _Optional[_Iterable[_Union[LogprobsItem, _Mapping]]] = ..., top_k: _Optional[int] = ..., last_n: _Optional[int] = ..., add_special_tokens: _Optional[bool] = ..., teachers: _Optional[_Iterable[_Union[Teacher, _Mapping]]] = ...) -> None: ...

class SequenceLogprobs(_message.Message):
    __slots__ = ("logprobs", "problem", "first", "tokens", "top_tokens", "top_logprobs", "target_logprobs")
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TARGET_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    logprobs: _types_pb2.Tensor
    problem: _types_pb2.Problem
    first: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    top_tokens: _types_pb2.Tensor
    top_logprobs: _types_pb2.Tensor
    target_logprobs: _types_pb2.Tensor
    def __init__(self, logprobs: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ..., first: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., top_tokens: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., top_logprobs: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., target_logprobs: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ...) -> None: ...

class TeacherAnswer(_message.Message):
    __slots__ = ("model_fingerprint", "usage")
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    model_fingerprint: str
    usage: _types_pb2.Usage
    def __init__(self, model_fingerprint: _Optional[str] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ...) -> None: ...

class ComputeLogprobsResponse(_message.Message):
    __slots__ = ("sequences", "model_fingerprint", "usage", "teachers")
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TEACHERS_FIELD_NUMBER: _ClassVar[int]
    sequences: _containers.RepeatedCompositeFieldContainer[SequenceLogprobs]
    model_fingerprint: str
    usage: _types_pb2.Usage
    teachers: _containers.RepeatedCompositeFieldContainer[TeacherAnswer]
    def __init__(self, sequences: _Optional[_Iterable[_Union[SequenceLogprobs, _Mapping]]] = ..., model_fingerprint: _Optional[str] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., teachers: _Optional[_Iterable[_Union[TeacherAnswer, _Mapping]]] = ...) -> None: ...

class ForwardItem(_message.Message):
    __slots__ = ("datum", "text", "conversation")
    DATUM_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    datum: _types_pb2.Datum
    text: str
    conversation: _types_pb2.Conversation
    def __init__(self, datum: _Optional[_Union[_types_pb2.Datum, _Mapping]] = ..., text: _Optional[str] = ..., conversation: _Optional[_Union[_types_pb2.Conversation, _Mapping]] = ...) -> None: ...

class ForwardRequest(_message.Message):
    __slots__ = ("model", "data", "limits", "items", "train_on", "add_special_tokens")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    TRAIN_ON_FIELD_NUMBER: _ClassVar[int]
    ADD_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    model: _types_pb2.ModelRef
    data: _containers.RepeatedCompositeFieldContainer[_types_pb2.Datum]
    limits: BatchLimits
    items: _containers.RepeatedCompositeFieldContainer[ForwardItem]
    train_on: str
    add_special_tokens: bool
    def __init__(self, model: _Optional[_Union[_types_pb2.ModelRef, _Mapping]] = ..., data: _Optional[_Iterable[_Union[_types_pb2.Datum, _Mapping]]] = ..., limits: _Optional[_Union[BatchLimits, _Mapping]] = ..., items: _Optional[_Iterable[_Union[ForwardItem, _Mapping]]] = ..., train_on: _Optional[str] = ..., add_special_tokens: _Optional[bool] = ...) -> None: ...

class ForwardOutput(_message.Message):
    __slots__ = ("logprobs", "loss", "problem", "tokens", "weights")
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    logprobs: _types_pb2.Tensor
    loss: float
    problem: _types_pb2.Problem
    tokens: _containers.RepeatedScalarFieldContainer[int]
    weights: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, logprobs: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., loss: _Optional[float] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ..., tokens: _Optional[_Iterable[int]] = ..., weights: _Optional[_Iterable[float]] = ...) -> None: ...

class ForwardResponse(_message.Message):
    __slots__ = ("outputs", "model_fingerprint", "usage")
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    outputs: _containers.RepeatedCompositeFieldContainer[ForwardOutput]
    model_fingerprint: str
    usage: _types_pb2.Usage
    def __init__(self, outputs: _Optional[_Iterable[_Union[ForwardOutput, _Mapping]]] = ..., model_fingerprint: _Optional[str] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ...) -> None: ...
