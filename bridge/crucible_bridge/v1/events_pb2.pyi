from crucible_bridge.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVENT_KIND_UNSPECIFIED: _ClassVar[EventKind]
    EVENT_KIND_EVALUATION_START: _ClassVar[EventKind]
    EVENT_KIND_EVALUATION_PROGRESS: _ClassVar[EventKind]
    EVENT_KIND_SAMPLE_COMPLETE: _ClassVar[EventKind]
    EVENT_KIND_EVALUATOR_COMPLETE: _ClassVar[EventKind]
    EVENT_KIND_EVALUATION_COMPLETE: _ClassVar[EventKind]
    EVENT_KIND_EVALUATION_STOP: _ClassVar[EventKind]
    EVENT_KIND_EVALUATION_EXCEPTION: _ClassVar[EventKind]
    EVENT_KIND_METRICS_COMPUTED: _ClassVar[EventKind]
    EVENT_KIND_GRADING_COMPLETE: _ClassVar[EventKind]
    EVENT_KIND_EVALUATION_INTERRUPT: _ClassVar[EventKind]
    EVENT_KIND_EVALUATION_RESUME: _ClassVar[EventKind]
    EVENT_KIND_EVALUATOR_EXCEPTION: _ClassVar[EventKind]
    EVENT_KIND_EVALUATOR_START: _ClassVar[EventKind]
    EVENT_KIND_RUN_BEST: _ClassVar[EventKind]
    EVENT_KIND_RUN_PLATEAU: _ClassVar[EventKind]
    EVENT_KIND_CHECKPOINT_FOUND: _ClassVar[EventKind]
    EVENT_KIND_CHECKPOINT_SKIPPED: _ClassVar[EventKind]
    EVENT_KIND_CHECKPOINT_RELEASED: _ClassVar[EventKind]
    EVENT_KIND_EVALUATION_PAUSED: _ClassVar[EventKind]
    EVENT_KIND_EVALUATION_RESUMED: _ClassVar[EventKind]
    EVENT_KIND_EVALUATION_CONCURRENCY: _ClassVar[EventKind]
EVENT_KIND_UNSPECIFIED: EventKind
EVENT_KIND_EVALUATION_START: EventKind
EVENT_KIND_EVALUATION_PROGRESS: EventKind
EVENT_KIND_SAMPLE_COMPLETE: EventKind
EVENT_KIND_EVALUATOR_COMPLETE: EventKind
EVENT_KIND_EVALUATION_COMPLETE: EventKind
EVENT_KIND_EVALUATION_STOP: EventKind
EVENT_KIND_EVALUATION_EXCEPTION: EventKind
EVENT_KIND_METRICS_COMPUTED: EventKind
EVENT_KIND_GRADING_COMPLETE: EventKind
EVENT_KIND_EVALUATION_INTERRUPT: EventKind
EVENT_KIND_EVALUATION_RESUME: EventKind
EVENT_KIND_EVALUATOR_EXCEPTION: EventKind
EVENT_KIND_EVALUATOR_START: EventKind
EVENT_KIND_RUN_BEST: EventKind
EVENT_KIND_RUN_PLATEAU: EventKind
EVENT_KIND_CHECKPOINT_FOUND: EventKind
EVENT_KIND_CHECKPOINT_SKIPPED: EventKind
EVENT_KIND_CHECKPOINT_RELEASED: EventKind
EVENT_KIND_EVALUATION_PAUSED: EventKind
EVENT_KIND_EVALUATION_RESUMED: EventKind
EVENT_KIND_EVALUATION_CONCURRENCY: EventKind

class Event(_message.Message):
    __slots__ = ("kind", "sequence", "unix_time_ns", "duration_ns", "evaluation_id", "run_id", "step", "evaluator", "measurements", "metadata", "problem", "correlation_id", "position", "sample_result")
    class MeasurementsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    UNIX_TIME_NS_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    EVALUATOR_FIELD_NUMBER: _ClassVar[int]
    MEASUREMENTS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_RESULT_FIELD_NUMBER: _ClassVar[int]
    kind: EventKind
    sequence: int
    unix_time_ns: int
    duration_ns: int
    evaluation_id: str
    run_id: str
    step: int
    evaluator: str
    measurements: _containers.ScalarMap[str, float]
    metadata: _containers.ScalarMap[str, str]
    problem: _types_pb2.Problem
    correlation_id: str
    position: int
    sample_result: bytes
    def __init__(self, kind: _Optional[_Union[EventKind, str]] = ..., sequence: _Optional[int] = ..., unix_time_ns: _Optional[int] = ..., duration_ns: _Optional[int] = ..., evaluation_id: _Optional[str] = ..., run_id: _Optional[str] = ..., step: _Optional[int] = ..., evaluator: _Optional[str] = ..., measurements: _Optional[_Mapping[str, float]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ..., correlation_id: _Optional[str] = ..., position: _Optional[int] = ..., sample_result: _Optional[bytes] = ...) -> None: ...

class EventBatch(_message.Message):
    __slots__ = ("events", "log_id", "through_sequence")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    THROUGH_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    log_id: str
    through_sequence: int
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., log_id: _Optional[str] = ..., through_sequence: _Optional[int] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("after_sequence", "kinds", "run_id", "log_id", "until_now", "new_kinds", "records")
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    UNTIL_NOW_FIELD_NUMBER: _ClassVar[int]
    NEW_KINDS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    after_sequence: int
    kinds: _containers.RepeatedScalarFieldContainer[EventKind]
    run_id: str
    log_id: str
    until_now: bool
    new_kinds: bool
    records: bool
    def __init__(self, after_sequence: _Optional[int] = ..., kinds: _Optional[_Iterable[_Union[EventKind, str]]] = ..., run_id: _Optional[str] = ..., log_id: _Optional[str] = ..., until_now: _Optional[bool] = ..., new_kinds: _Optional[bool] = ..., records: _Optional[bool] = ...) -> None: ...
