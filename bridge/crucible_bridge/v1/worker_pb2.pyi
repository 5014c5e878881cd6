from crucible_bridge.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReplicaState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPLICA_STATE_UNSPECIFIED: _ClassVar[ReplicaState]
    REPLICA_STATE_SERVING: _ClassVar[ReplicaState]
    REPLICA_STATE_EJECTED: _ClassVar[ReplicaState]
    REPLICA_STATE_RESTING: _ClassVar[ReplicaState]
REPLICA_STATE_UNSPECIFIED: ReplicaState
REPLICA_STATE_SERVING: ReplicaState
REPLICA_STATE_EJECTED: ReplicaState
REPLICA_STATE_RESTING: ReplicaState

class BackendInfo(_message.Message):
    __slots__ = ("name", "models", "unavailable")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    name: str
    models: _containers.RepeatedScalarFieldContainer[str]
    unavailable: str
    def __init__(self, name: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ..., unavailable: _Optional[str] = ...) -> None: ...

class WorkerInfo(_message.Message):
    __slots__ = ("worker_id", "version", "versions", "backends", "evaluators", "datasets", "limits", "running", "queued", "calls", "draining", "started_unix_ns", "log_id", "last_sequence", "code_images", "usage", "prices", "fleets", "failed_tasks", "certificate_expires_unix_ns")
    class VersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class LimitsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    BACKENDS_FIELD_NUMBER: _ClassVar[int]
    EVALUATORS_FIELD_NUMBER: _ClassVar[int]
    DATASETS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    STARTED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CODE_IMAGES_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    PRICES_FIELD_NUMBER: _ClassVar[int]
    FLEETS_FIELD_NUMBER: _ClassVar[int]
    FAILED_TASKS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_EXPIRES_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    version: str
    versions: _containers.ScalarMap[str, str]
    backends: _containers.RepeatedCompositeFieldContainer[BackendInfo]
    evaluators: _containers.RepeatedScalarFieldContainer[str]
    datasets: _containers.RepeatedScalarFieldContainer[str]
    limits: _containers.ScalarMap[str, float]
    running: int
    queued: int
    calls: int
    draining: bool
    started_unix_ns: int
    log_id: str
    last_sequence: int
    code_images: _containers.RepeatedScalarFieldContainer[str]
    usage: _containers.RepeatedCompositeFieldContainer[_types_pb2.ModelUsage]
    prices: _containers.RepeatedCompositeFieldContainer[ModelPrice]
    fleets: _containers.RepeatedCompositeFieldContainer[Fleet]
    failed_tasks: _containers.RepeatedCompositeFieldContainer[BackgroundTask]
    certificate_expires_unix_ns: int
    def __init__(self, worker_id: _Optional[str] = ..., version: _Optional[str] = ..., versions: _Optional[_Mapping[str, str]] = ..., backends: _Optional[_Iterable[_Union[BackendInfo, _Mapping]]] = ..., evaluators: _Optional[_Iterable[str]] = ..., datasets: _Optional[_Iterable[str]] = ..., limits: _Optional[_Mapping[str, float]] = ..., running: _Optional[int] = ..., queued: _Optional[int] = ..., calls: _Optional[int] = ..., draining: _Optional[bool] = ..., started_unix_ns: _Optional[int] = ..., log_id: _Optional[str] = ..., last_sequence: _Optional[int] = ..., code_images: _Optional[_Iterable[str]] = ..., usage: _Optional[_Iterable[_Union[_types_pb2.ModelUsage, _Mapping]]] = ..., prices: _Optional[_Iterable[_Union[ModelPrice, _Mapping]]] = ..., fleets: _Optional[_Iterable[_Union[Fleet, _Mapping]]] = ..., failed_tasks: _Optional[_Iterable[_Union[BackgroundTask, _Mapping]]] = ..., certificate_expires_unix_ns: _Optional[int] = ...) -> None: ...

class BackgroundTask(_message.Message):
    __slots__ = ("name", "failures", "last_failure_unix_ns", "error_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    LAST_FAILURE_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    ERROR_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    failures: int
    last_failure_unix_ns: int
    error_id: str
    def __init__(self, name: _Optional[str] = ..., failures: _Optional[int] = ..., last_failure_unix_ns: _Optional[int] = ..., error_id: _Optional[str] = ...) -> None: ...

class Replica(_message.Message):
    __slots__ = ("address", "state", "outstanding", "done", "failures", "last_error")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OUTSTANDING_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    address: str
    state: ReplicaState
    outstanding: int
    done: int
    failures: int
    last_error: str
    def __init__(self, address: _Optional[str] = ..., state: _Optional[_Union[ReplicaState, str]] = ..., outstanding: _Optional[int] = ..., done: _Optional[int] = ..., failures: _Optional[int] = ..., last_error: _Optional[str] = ...) -> None: ...

class Fleet(_message.Message):
    __slots__ = ("backend", "name", "replicas")
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    backend: str
    name: str
    replicas: _containers.RepeatedCompositeFieldContainer[Replica]
    def __init__(self, backend: _Optional[str] = ..., name: _Optional[str] = ..., replicas: _Optional[_Iterable[_Union[Replica, _Mapping]]] = ...) -> None: ...

class ModelPrice(_message.Message):
    __slots__ = ("pattern", "prompt", "output", "cached")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    pattern: str
    prompt: float
    output: float
    cached: float
    def __init__(self, pattern: _Optional[str] = ..., prompt: _Optional[float] = ..., output: _Optional[float] = ..., cached: _Optional[float] = ...) -> None: ...

class GetInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetInfoResponse(_message.Message):
    __slots__ = ("worker",)
    WORKER_FIELD_NUMBER: _ClassVar[int]
    worker: WorkerInfo
    def __init__(self, worker: _Optional[_Union[WorkerInfo, _Mapping]] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("interrupted",)
    INTERRUPTED_FIELD_NUMBER: _ClassVar[int]
    interrupted: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, interrupted: _Optional[_Iterable[str]] = ...) -> None: ...
