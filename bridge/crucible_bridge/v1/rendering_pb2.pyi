from crucible_bridge.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Termination(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TERMINATION_UNSPECIFIED: _ClassVar[Termination]
    TERMINATION_STOP: _ClassVar[Termination]
    TERMINATION_EOS: _ClassVar[Termination]
    TERMINATION_TRUNCATED: _ClassVar[Termination]
    TERMINATION_MALFORMED: _ClassVar[Termination]
TERMINATION_UNSPECIFIED: Termination
TERMINATION_STOP: Termination
TERMINATION_EOS: Termination
TERMINATION_TRUNCATED: Termination
TERMINATION_MALFORMED: Termination

class RendererInfo(_message.Message):
    __slots__ = ("name", "description", "unavailable")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    unavailable: str
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., unavailable: _Optional[str] = ...) -> None: ...

class ListRenderersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRenderersResponse(_message.Message):
    __slots__ = ("renderers",)
    RENDERERS_FIELD_NUMBER: _ClassVar[int]
    renderers: _containers.RepeatedCompositeFieldContainer[RendererInfo]
    def __init__(self, renderers: _Optional[_Iterable[_Union[RendererInfo, _Mapping]]] = ...) -> None: ...

class BuildGenerationPromptRequest(_message.Message):
    __slots__ = ("model", "conversations", "renderer")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CONVERSATIONS_FIELD_NUMBER: _ClassVar[int]
    RENDERER_FIELD_NUMBER: _ClassVar[int]
    model: _types_pb2.ModelRef
    conversations: _containers.RepeatedCompositeFieldContainer[_types_pb2.Conversation]
    renderer: str
    def __init__(self, model: _Optional[_Union[_types_pb2.ModelRef, _Mapping]] = ..., conversations: _Optional[_Iterable[_Union[_types_pb2.Conversation, _Mapping]]] = ..., renderer: _Optional[str] = ...) -> None: ...

class GenerationPrompt(_message.Message):
    __slots__ = ("tokens", "problem", "model_input")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    MODEL_INPUT_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    problem: _types_pb2.Problem
    model_input: _types_pb2.ModelInput
    def __init__(self, tokens: _Optional[_Iterable[int]] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ..., model_input: _Optional[_Union[_types_pb2.ModelInput, _Mapping]] = ...) -> None: ...

class BuildGenerationPromptResponse(_message.Message):
    __slots__ = ("items", "stop")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[GenerationPrompt]
    stop: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, items: _Optional[_Iterable[_Union[GenerationPrompt, _Mapping]]] = ..., stop: _Optional[_Iterable[str]] = ...) -> None: ...

class BuildSupervisedExampleRequest(_message.Message):
    __slots__ = ("model", "conversations", "train_on", "renderer")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CONVERSATIONS_FIELD_NUMBER: _ClassVar[int]
    TRAIN_ON_FIELD_NUMBER: _ClassVar[int]
    RENDERER_FIELD_NUMBER: _ClassVar[int]
    model: _types_pb2.ModelRef
    conversations: _containers.RepeatedCompositeFieldContainer[_types_pb2.Conversation]
    train_on: str
    renderer: str
    def __init__(self, model: _Optional[_Union[_types_pb2.ModelRef, _Mapping]] = ..., conversations: _Optional[_Iterable[_Union[_types_pb2.Conversation, _Mapping]]] = ..., train_on: _Optional[str] = ..., renderer: _Optional[str] = ...) -> None: ...

class SupervisedExample(_message.Message):
    __slots__ = ("tokens", "weights", "datum", "problem", "model_input")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    DATUM_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    MODEL_INPUT_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    weights: _containers.RepeatedScalarFieldContainer[float]
    datum: _types_pb2.Datum
    problem: _types_pb2.Problem
    model_input: _types_pb2.ModelInput
    def __init__(self, tokens: _Optional[_Iterable[int]] = ..., weights: _Optional[_Iterable[float]] = ..., datum: _Optional[_Union[_types_pb2.Datum, _Mapping]] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ..., model_input: _Optional[_Union[_types_pb2.ModelInput, _Mapping]] = ...) -> None: ...

class BuildSupervisedExampleResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[SupervisedExample]
    def __init__(self, items: _Optional[_Iterable[_Union[SupervisedExample, _Mapping]]] = ...) -> None: ...

class RawResponse(_message.Message):
    __slots__ = ("text", "tokens", "stop_reason")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    text: str
    tokens: _containers.RepeatedScalarFieldContainer[int]
    stop_reason: str
    def __init__(self, text: _Optional[str] = ..., tokens: _Optional[_Iterable[int]] = ..., stop_reason: _Optional[str] = ...) -> None: ...

class ParseResponseRequest(_message.Message):
    __slots__ = ("model", "responses", "renderer")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    RENDERER_FIELD_NUMBER: _ClassVar[int]
    model: _types_pb2.ModelRef
    responses: _containers.RepeatedCompositeFieldContainer[RawResponse]
    renderer: str
    def __init__(self, model: _Optional[_Union[_types_pb2.ModelRef, _Mapping]] = ..., responses: _Optional[_Iterable[_Union[RawResponse, _Mapping]]] = ..., renderer: _Optional[str] = ...) -> None: ...

class ParsedResponse(_message.Message):
    __slots__ = ("text", "reasoning", "tool_calls", "unparsed_tool_calls", "termination", "problem")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    UNPARSED_TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    TERMINATION_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    text: str
    reasoning: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[_types_pb2.ToolCall]
    unparsed_tool_calls: _containers.RepeatedCompositeFieldContainer[_types_pb2.UnparsedToolCall]
    termination: Termination
    problem: _types_pb2.Problem
    def __init__(self, text: _Optional[str] = ..., reasoning: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[_types_pb2.ToolCall, _Mapping]]] = ..., unparsed_tool_calls: _Optional[_Iterable[_Union[_types_pb2.UnparsedToolCall, _Mapping]]] = ..., termination: _Optional[_Union[Termination, str]] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ...) -> None: ...

class ParseResponseResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ParsedResponse]
    def __init__(self, items: _Optional[_Iterable[_Union[ParsedResponse, _Mapping]]] = ...) -> None: ...

class GetStopSequencesRequest(_message.Message):
    __slots__ = ("model", "renderer")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    RENDERER_FIELD_NUMBER: _ClassVar[int]
    model: _types_pb2.ModelRef
    renderer: str
    def __init__(self, model: _Optional[_Union[_types_pb2.ModelRef, _Mapping]] = ..., renderer: _Optional[str] = ...) -> None: ...

class GetStopSequencesResponse(_message.Message):
    __slots__ = ("stop", "stop_tokens", "eos_token")
    STOP_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_FIELD_NUMBER: _ClassVar[int]
    stop: _containers.RepeatedScalarFieldContainer[str]
    stop_tokens: _containers.RepeatedScalarFieldContainer[int]
    eos_token: int
    def __init__(self, stop: _Optional[_Iterable[str]] = ..., stop_tokens: _Optional[_Iterable[int]] = ..., eos_token: _Optional[int] = ...) -> None: ...

class TokenizeRequest(_message.Message):
    __slots__ = ("model", "texts", "add_special_tokens")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    ADD_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    model: _types_pb2.ModelRef
    texts: _containers.RepeatedScalarFieldContainer[str]
    add_special_tokens: bool
    def __init__(self, model: _Optional[_Union[_types_pb2.ModelRef, _Mapping]] = ..., texts: _Optional[_Iterable[str]] = ..., add_special_tokens: _Optional[bool] = ...) -> None: ...

class Tokenized(_message.Message):
    __slots__ = ("tokens", "problem")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    problem: _types_pb2.Problem
    def __init__(self, tokens: _Optional[_Iterable[int]] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ...) -> None: ...

class TokenizeResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Tokenized]
    def __init__(self, items: _Optional[_Iterable[_Union[Tokenized, _Mapping]]] = ...) -> None: ...

class TokenSequence(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, tokens: _Optional[_Iterable[int]] = ...) -> None: ...

class DetokenizeRequest(_message.Message):
    __slots__ = ("model", "sequences", "skip_special_tokens")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    SKIP_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    model: _types_pb2.ModelRef
    sequences: _containers.RepeatedCompositeFieldContainer[TokenSequence]
    skip_special_tokens: bool
    def __init__(self, model: _Optional[_Union[_types_pb2.ModelRef, _Mapping]] = ..., sequences: _Optional[_Iterable[_Union[TokenSequence, _Mapping]]] = ..., skip_special_tokens: _Optional[bool] = ...) -> None: ...

class Detokenized(_message.Message):
    __slots__ = ("text", "problem")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    text: str
    problem: _types_pb2.Problem
    def __init__(self, text: _Optional[str] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ...) -> None: ...

class DetokenizeResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Detokenized]
    def __init__(self, items: _Optional[_Iterable[_Union[Detokenized, _Mapping]]] = ...) -> None: ...
