from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LoggedMetrics(_message.Message):
    __slots__ = ("values", "step", "family", "unix_time_ns")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    VALUES_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    UNIX_TIME_NS_FIELD_NUMBER: _ClassVar[int]
    values: _containers.ScalarMap[str, float]
    step: int
    family: str
    unix_time_ns: int
    def __init__(self, values: _Optional[_Mapping[str, float]] = ..., step: _Optional[int] = ..., family: _Optional[str] = ..., unix_time_ns: _Optional[int] = ...) -> None: ...

class LoggerState(_message.Message):
    __slots__ = ("logger", "url", "through_sequence", "synced_sequence", "missed", "problem")
    LOGGER_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    THROUGH_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SYNCED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    logger: str
    url: str
    through_sequence: int
    synced_sequence: int
    missed: int
    problem: str
    def __init__(self, logger: _Optional[str] = ..., url: _Optional[str] = ..., through_sequence: _Optional[int] = ..., synced_sequence: _Optional[int] = ..., missed: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class Experiment(_message.Message):
    __slots__ = ("experiment_id", "last_sequence", "loggers", "created_unix_ns", "closed_unix_ns")
    EXPERIMENT_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LOGGERS_FIELD_NUMBER: _ClassVar[int]
    CREATED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    experiment_id: str
    last_sequence: int
    loggers: _containers.RepeatedCompositeFieldContainer[LoggerState]
    created_unix_ns: int
    closed_unix_ns: int
    def __init__(self, experiment_id: _Optional[str] = ..., last_sequence: _Optional[int] = ..., loggers: _Optional[_Iterable[_Union[LoggerState, _Mapping]]] = ..., created_unix_ns: _Optional[int] = ..., closed_unix_ns: _Optional[int] = ...) -> None: ...

class OpenExperimentRequest(_message.Message):
    __slots__ = ("experiment_id", "log_to", "config")
    EXPERIMENT_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_TO_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    experiment_id: str
    log_to: _containers.RepeatedScalarFieldContainer[str]
    config: _struct_pb2.Struct
    def __init__(self, experiment_id: _Optional[str] = ..., log_to: _Optional[_Iterable[str]] = ..., config: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class OpenExperimentResponse(_message.Message):
    __slots__ = ("experiment", "existed")
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    experiment: Experiment
    existed: bool
    def __init__(self, experiment: _Optional[_Union[Experiment, _Mapping]] = ..., existed: _Optional[bool] = ...) -> None: ...

class LogHparamsRequest(_message.Message):
    __slots__ = ("experiment_id", "hparams")
    EXPERIMENT_ID_FIELD_NUMBER: _ClassVar[int]
    HPARAMS_FIELD_NUMBER: _ClassVar[int]
    experiment_id: str
    hparams: _struct_pb2.Struct
    def __init__(self, experiment_id: _Optional[str] = ..., hparams: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class LogHparamsResponse(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class LogMetricsRequest(_message.Message):
    __slots__ = ("experiment_id", "rows")
    EXPERIMENT_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    experiment_id: str
    rows: _containers.RepeatedCompositeFieldContainer[LoggedMetrics]
    def __init__(self, experiment_id: _Optional[str] = ..., rows: _Optional[_Iterable[_Union[LoggedMetrics, _Mapping]]] = ...) -> None: ...

class LogMetricsResponse(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class LogLongTextRequest(_message.Message):
    __slots__ = ("experiment_id", "key", "text", "step")
    EXPERIMENT_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    experiment_id: str
    key: str
    text: str
    step: int
    def __init__(self, experiment_id: _Optional[str] = ..., key: _Optional[str] = ..., text: _Optional[str] = ..., step: _Optional[int] = ...) -> None: ...

class LogLongTextResponse(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class SyncRequest(_message.Message):
    __slots__ = ("experiment_id", "timeout_ms")
    EXPERIMENT_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    experiment_id: str
    timeout_ms: int
    def __init__(self, experiment_id: _Optional[str] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class SyncResponse(_message.Message):
    __slots__ = ("experiment", "synced")
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    SYNCED_FIELD_NUMBER: _ClassVar[int]
    experiment: Experiment
    synced: bool
    def __init__(self, experiment: _Optional[_Union[Experiment, _Mapping]] = ..., synced: _Optional[bool] = ...) -> None: ...

class CloseExperimentRequest(_message.Message):
    __slots__ = ("experiment_id", "timeout_ms")
    EXPERIMENT_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    experiment_id: str
    timeout_ms: int
    def __init__(self, experiment_id: _Optional[str] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class CloseExperimentResponse(_message.Message):
    __slots__ = ("experiment", "synced")
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    SYNCED_FIELD_NUMBER: _ClassVar[int]
    experiment: Experiment
    synced: bool
    def __init__(self, experiment: _Optional[_Union[Experiment, _Mapping]] = ..., synced: _Optional[bool] = ...) -> None: ...

class GetUrlRequest(_message.Message):
    __slots__ = ("experiment_id", "logger")
    EXPERIMENT_ID_FIELD_NUMBER: _ClassVar[int]
    LOGGER_FIELD_NUMBER: _ClassVar[int]
    experiment_id: str
    logger: str
    def __init__(self, experiment_id: _Optional[str] = ..., logger: _Optional[str] = ...) -> None: ...

class GetUrlResponse(_message.Message):
    __slots__ = ("url",)
    URL_FIELD_NUMBER: _ClassVar[int]
    url: str
    def __init__(self, url: _Optional[str] = ...) -> None: ...
