from crucible_bridge.v1 import types_pb2 as _types_pb2
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
ORCHESTRATOR_CALL_UNSPECIFIED: OrchestratorCall
ORCHESTRATOR_CALL_SAMPLE: OrchestratorCall
ORCHESTRATOR_CALL_LOGPROBS: OrchestratorCall
ORCHESTRATOR_CALL_FORWARD: OrchestratorCall

class OrchestratorQuestion(_message.Message):
    __slots__ = ("id", "sample", "logprobs", "forward")
    ID_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FORWARD_FIELD_NUMBER: _ClassVar[int]
    id: int
    sample: SampleQuestion
    logprobs: LogprobsQuestion
    forward: ForwardQuestion
    def __init__(self, id: _Optional[int] = ..., sample: _Optional[_Union[SampleQuestion, _Mapping]] = ..., logprobs: _Optional[_Union[LogprobsQuestion, _Mapping]] = ..., forward: _Optional[_Union[ForwardQuestion, _Mapping]] = ...) -> None: ...

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
    def __init__(self, model_input: _Optional[_Union[_types_pb2.ModelInput, _Mapping]] = ..., text: _Optional[str] = ..., conversation: _Optional[_Union[_types_pb2.Conversation, _Mapping]] = ..., num_samples: _Optional[int] = ..., sampling: _Optional[_Union[_types_pb2.SamplingParams, _Mapping]] = ..., plain: bool = ...) -> None: ...

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

class OrchestratorAnswer(_message.Message):
    __slots__ = ("id", "sample", "logprobs", "forward", "problem")
    ID_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FORWARD_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    id: int
    sample: AnsweredSample
    logprobs: _types_pb2.Tensor
    forward: AnsweredForward
    problem: _types_pb2.Problem
    def __init__(self, id: _Optional[int] = ..., sample: _Optional[_Union[AnsweredSample, _Mapping]] = ..., logprobs: _Optional[_Union[_types_pb2.Tensor, _Mapping]] = ..., forward: _Optional[_Union[AnsweredForward, _Mapping]] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ...) -> None: ...

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
