from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Dtype(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DTYPE_UNSPECIFIED: _ClassVar[Dtype]
    DTYPE_U8: _ClassVar[Dtype]
    DTYPE_BOOL: _ClassVar[Dtype]
    DTYPE_I32: _ClassVar[Dtype]
    DTYPE_I64: _ClassVar[Dtype]
    DTYPE_F16: _ClassVar[Dtype]
    DTYPE_BF16: _ClassVar[Dtype]
    DTYPE_F32: _ClassVar[Dtype]
    DTYPE_F64: _ClassVar[Dtype]

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERDICT_CORRECT: _ClassVar[Verdict]
    VERDICT_INCORRECT: _ClassVar[Verdict]
    VERDICT_PARTIAL: _ClassVar[Verdict]
    VERDICT_UNDECIDED: _ClassVar[Verdict]
    VERDICT_ERROR: _ClassVar[Verdict]
    VERDICT_MEASURED: _ClassVar[Verdict]
DTYPE_UNSPECIFIED: Dtype
DTYPE_U8: Dtype
DTYPE_BOOL: Dtype
DTYPE_I32: Dtype
DTYPE_I64: Dtype
DTYPE_F16: Dtype
DTYPE_BF16: Dtype
DTYPE_F32: Dtype
DTYPE_F64: Dtype
VERDICT_UNSPECIFIED: Verdict
VERDICT_CORRECT: Verdict
VERDICT_INCORRECT: Verdict
VERDICT_PARTIAL: Verdict
VERDICT_UNDECIDED: Verdict
VERDICT_ERROR: Verdict
VERDICT_MEASURED: Verdict

class Tensor(_message.Message):
    __slots__ = ("dtype", "shape", "data")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    dtype: Dtype
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, dtype: _Optional[_Union[Dtype, str]] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class ModelInputChunk(_message.Message):
    __slots__ = ("tokens", "image", "image_asset")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    IMAGE_ASSET_FIELD_NUMBER: _ClassVar[int]
    tokens: Tensor
    image: ImageChunk
    image_asset: ImageAssetChunk
    def __init__(self, tokens: _Optional[_Union[Tensor, _Mapping]] = ..., image: _Optional[_Union[ImageChunk, _Mapping]] = ..., image_asset: _Optional[_Union[ImageAssetChunk, _Mapping]] = ...) -> None: ...

class ImageChunk(_message.Message):
    __slots__ = ("data", "format", "expected_tokens")
    DATA_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    format: str
    expected_tokens: int
    def __init__(self, data: _Optional[bytes] = ..., format: _Optional[str] = ..., expected_tokens: _Optional[int] = ...) -> None: ...

class ImageAssetChunk(_message.Message):
    __slots__ = ("location", "format", "expected_tokens")
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    location: str
    format: str
    expected_tokens: int
    def __init__(self, location: _Optional[str] = ..., format: _Optional[str] = ..., expected_tokens: _Optional[int] = ...) -> None: ...

class ModelInput(_message.Message):
    __slots__ = ("chunks",)
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    chunks: _containers.RepeatedCompositeFieldContainer[ModelInputChunk]
    def __init__(self, chunks: _Optional[_Iterable[_Union[ModelInputChunk, _Mapping]]] = ...) -> None: ...

class Datum(_message.Message):
    __slots__ = ("model_input", "loss_fn_inputs")
    class LossFnInputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...
    MODEL_INPUT_FIELD_NUMBER: _ClassVar[int]
    LOSS_FN_INPUTS_FIELD_NUMBER: _ClassVar[int]
    model_input: ModelInput
    loss_fn_inputs: _containers.MessageMap[str, Tensor]
    def __init__(self, model_input: _Optional[_Union[ModelInput, _Mapping]] = ..., loss_fn_inputs: _Optional[_Mapping[str, Tensor]] = ...) -> None: ...

class Columns(_message.Message):
    __slots__ = ("lengths", "values")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    lengths: Tensor
    values: _containers.MessageMap[str, Tensor]
    def __init__(self, lengths: _Optional[_Union[Tensor, _Mapping]] = ..., values: _Optional[_Mapping[str, Tensor]] = ...) -> None: ...

class Conversation(_message.Message):
    __slots__ = ("messages", "tools")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ChatMessage]
    tools: _containers.RepeatedCompositeFieldContainer[ToolSpec]
    def __init__(self, messages: _Optional[_Iterable[_Union[ChatMessage, _Mapping]]] = ..., tools: _Optional[_Iterable[_Union[ToolSpec, _Mapping]]] = ...) -> None: ...

class ToolSpec(_message.Message):
    __slots__ = ("name", "description", "parameters", "strict", "returns")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    RETURNS_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    parameters: str
    strict: bool
    returns: str
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., parameters: _Optional[str] = ..., strict: _Optional[bool] = ..., returns: _Optional[str] = ...) -> None: ...

class ChatMessage(_message.Message):
    __slots__ = ("role", "content", "parts", "tool_calls", "tool_call_id", "name", "reasoning", "weight")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    parts: _containers.RepeatedCompositeFieldContainer[MessagePart]
    tool_calls: _containers.RepeatedCompositeFieldContainer[ToolCall]
    tool_call_id: str
    name: str
    reasoning: str
    weight: float
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[MessagePart, _Mapping]]] = ..., tool_calls: _Optional[_Iterable[_Union[ToolCall, _Mapping]]] = ..., tool_call_id: _Optional[str] = ..., name: _Optional[str] = ..., reasoning: _Optional[str] = ..., weight: _Optional[float] = ...) -> None: ...

class MessagePart(_message.Message):
    __slots__ = ("text", "image", "image_asset", "reasoning")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    IMAGE_ASSET_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    text: str
    image: ImageChunk
    image_asset: ImageAssetChunk
    reasoning: str
    def __init__(self, text: _Optional[str] = ..., image: _Optional[_Union[ImageChunk, _Mapping]] = ..., image_asset: _Optional[_Union[ImageAssetChunk, _Mapping]] = ..., reasoning: _Optional[str] = ...) -> None: ...

class ToolCall(_message.Message):
    __slots__ = ("name", "arguments", "id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    arguments: str
    id: str
    def __init__(self, name: _Optional[str] = ..., arguments: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class UnparsedToolCall(_message.Message):
    __slots__ = ("text", "error")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    text: str
    error: str
    def __init__(self, text: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class ModelRef(_message.Message):
    __slots__ = ("embedded", "local", "tinker", "openai", "orchestrator", "hub", "installed")
    EMBEDDED_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    TINKER_FIELD_NUMBER: _ClassVar[int]
    OPENAI_FIELD_NUMBER: _ClassVar[int]
    ORCHESTRATOR_FIELD_NUMBER: _ClassVar[int]
    HUB_FIELD_NUMBER: _ClassVar[int]
    INSTALLED_FIELD_NUMBER: _ClassVar[int]
    embedded: str
    local: LocalModel
    tinker: TinkerModel
    openai: OpenAIModel
    orchestrator: OrchestratorModel
    hub: HubModel
    installed: InstalledModel
    def __init__(self, embedded: _Optional[str] = ..., local: _Optional[_Union[LocalModel, _Mapping]] = ..., tinker: _Optional[_Union[TinkerModel, _Mapping]] = ..., openai: _Optional[_Union[OpenAIModel, _Mapping]] = ..., orchestrator: _Optional[_Union[OrchestratorModel, _Mapping]] = ..., hub: _Optional[_Union[HubModel, _Mapping]] = ..., installed: _Optional[_Union[InstalledModel, _Mapping]] = ...) -> None: ...

class LocalModel(_message.Message):
    __slots__ = ("path", "adapter_path", "device", "dtype")
    PATH_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_PATH_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    path: str
    adapter_path: str
    device: str
    dtype: str
    def __init__(self, path: _Optional[str] = ..., adapter_path: _Optional[str] = ..., device: _Optional[str] = ..., dtype: _Optional[str] = ...) -> None: ...

class HubModel(_message.Message):
    __slots__ = ("repo_id", "revision", "adapter_path", "device", "dtype")
    REPO_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_PATH_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    repo_id: str
    revision: str
    adapter_path: str
    device: str
    dtype: str
    def __init__(self, repo_id: _Optional[str] = ..., revision: _Optional[str] = ..., adapter_path: _Optional[str] = ..., device: _Optional[str] = ..., dtype: _Optional[str] = ...) -> None: ...

class TinkerModel(_message.Message):
    __slots__ = ("model_path", "state_path", "base_model", "service")
    MODEL_PATH_FIELD_NUMBER: _ClassVar[int]
    STATE_PATH_FIELD_NUMBER: _ClassVar[int]
    BASE_MODEL_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    model_path: str
    state_path: str
    base_model: str
    service: str
    def __init__(self, model_path: _Optional[str] = ..., state_path: _Optional[str] = ..., base_model: _Optional[str] = ..., service: _Optional[str] = ...) -> None: ...

class OpenAIModel(_message.Message):
    __slots__ = ("server", "model")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    server: str
    model: str
    def __init__(self, server: _Optional[str] = ..., model: _Optional[str] = ...) -> None: ...

class OrchestratorModel(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class InstalledModel(_message.Message):
    __slots__ = ("scheme", "name")
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    scheme: str
    name: str
    def __init__(self, scheme: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class SamplingParams(_message.Message):
    __slots__ = ("max_tokens", "temperature", "top_p", "top_k", "seed", "stop")
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    seed: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, max_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., seed: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ...) -> None: ...

class Metrics(_message.Message):
    __slots__ = ("values", "undefined")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class UndefinedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VALUES_FIELD_NUMBER: _ClassVar[int]
    UNDEFINED_FIELD_NUMBER: _ClassVar[int]
    values: _containers.ScalarMap[str, float]
    undefined: _containers.ScalarMap[str, str]
    def __init__(self, values: _Optional[_Mapping[str, float]] = ..., undefined: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("reason", "message", "field", "retryable")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    message: str
    field: str
    retryable: bool
    def __init__(self, reason: _Optional[str] = ..., message: _Optional[str] = ..., field: _Optional[str] = ..., retryable: _Optional[bool] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "cached_prompt_tokens", "reasoning_tokens", "output_tokens", "calls", "unreported_calls", "cost", "judges")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASONING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    UNREPORTED_CALLS_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    JUDGES_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    cached_prompt_tokens: int
    reasoning_tokens: int
    output_tokens: int
    calls: int
    unreported_calls: int
    cost: float
    judges: _containers.RepeatedCompositeFieldContainer[ModelUsage]
    def __init__(self, prompt_tokens: _Optional[int] = ..., cached_prompt_tokens: _Optional[int] = ..., reasoning_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., calls: _Optional[int] = ..., unreported_calls: _Optional[int] = ..., cost: _Optional[float] = ..., judges: _Optional[_Iterable[_Union[ModelUsage, _Mapping]]] = ...) -> None: ...

class ModelUsage(_message.Message):
    __slots__ = ("model", "usage")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    model: str
    usage: Usage
    def __init__(self, model: _Optional[str] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ...) -> None: ...

class ServerEngine(_message.Message):
    __slots__ = ("name", "version", "fingerprint", "requested_name", "served_names", "listed_names", "sampling_defaults", "probe_prompt_tokens", "stop_strings", "logprobs", "probe_problem", "not_applied", "sent_as")
    class SentAsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_NAME_FIELD_NUMBER: _ClassVar[int]
    SERVED_NAMES_FIELD_NUMBER: _ClassVar[int]
    LISTED_NAMES_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    PROBE_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_STRINGS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROBE_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    NOT_APPLIED_FIELD_NUMBER: _ClassVar[int]
    SENT_AS_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    fingerprint: str
    requested_name: str
    served_names: _containers.RepeatedScalarFieldContainer[str]
    listed_names: _containers.RepeatedScalarFieldContainer[str]
    sampling_defaults: str
    probe_prompt_tokens: int
    stop_strings: str
    logprobs: str
    probe_problem: Problem
    not_applied: _containers.RepeatedScalarFieldContainer[str]
    sent_as: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., fingerprint: _Optional[str] = ..., requested_name: _Optional[str] = ..., served_names: _Optional[_Iterable[str]] = ..., listed_names: _Optional[_Iterable[str]] = ..., sampling_defaults: _Optional[str] = ..., probe_prompt_tokens: _Optional[int] = ..., stop_strings: _Optional[str] = ..., logprobs: _Optional[str] = ..., probe_problem: _Optional[_Union[Problem, _Mapping]] = ..., not_applied: _Optional[_Iterable[str]] = ..., sent_as: _Optional[_Mapping[str, str]] = ...) -> None: ...
