defmodule CrucibleBridge.V1.EventKind do
  @moduledoc """
  The closed catalogue. Each kind has one :telemetry name, fixed here, so that no consumer makes atoms from strings.
  Below each name: the keys of its measurements and of its metadata; where a line is missing, there are none.
  """

  use Protobuf, enum: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :EVENT_KIND_UNSPECIFIED, 0
  field :EVENT_KIND_EVALUATION_START, 1
  field :EVENT_KIND_EVALUATION_PROGRESS, 2
  field :EVENT_KIND_SAMPLE_COMPLETE, 3
  field :EVENT_KIND_EVALUATOR_COMPLETE, 4
  field :EVENT_KIND_EVALUATION_COMPLETE, 5
  field :EVENT_KIND_EVALUATION_STOP, 6
  field :EVENT_KIND_EVALUATION_EXCEPTION, 7
  field :EVENT_KIND_METRICS_COMPUTED, 8
  field :EVENT_KIND_GRADING_COMPLETE, 9
  field :EVENT_KIND_EVALUATION_INTERRUPT, 10
  field :EVENT_KIND_EVALUATION_RESUME, 11
  field :EVENT_KIND_EVALUATOR_EXCEPTION, 12
  field :EVENT_KIND_EVALUATOR_START, 13
  field :EVENT_KIND_RUN_BEST, 14
  field :EVENT_KIND_RUN_PLATEAU, 15
  field :EVENT_KIND_CHECKPOINT_FOUND, 16
  field :EVENT_KIND_CHECKPOINT_SKIPPED, 17
  field :EVENT_KIND_CHECKPOINT_RELEASED, 18
  field :EVENT_KIND_EVALUATION_PAUSED, 19
  field :EVENT_KIND_EVALUATION_RESUMED, 20
  field :EVENT_KIND_EVALUATION_CONCURRENCY, 21
end

defmodule CrucibleBridge.V1.Event.MeasurementsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :double
end

defmodule CrucibleBridge.V1.Event.MetadataEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :string
end

defmodule CrucibleBridge.V1.Event do
  @moduledoc """
  One event.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :kind, 1, type: CrucibleBridge.V1.EventKind, enum: true
  field :sequence, 2, type: :uint64
  field :unix_time_ns, 3, type: :int64, json_name: "unixTimeNs"
  field :duration_ns, 4, type: :int64, json_name: "durationNs"
  field :evaluation_id, 5, type: :string, json_name: "evaluationId"
  field :run_id, 6, type: :string, json_name: "runId"
  field :step, 7, proto3_optional: true, type: :int64
  field :evaluator, 8, type: :string

  field :measurements, 9,
    repeated: true,
    type: CrucibleBridge.V1.Event.MeasurementsEntry,
    map: true

  field :metadata, 10, repeated: true, type: CrucibleBridge.V1.Event.MetadataEntry, map: true
  field :problem, 11, type: CrucibleBridge.V1.Problem
  field :correlation_id, 12, type: :string, json_name: "correlationId"
  field :position, 13, type: :int64
  field :sample_result, 14, type: :bytes, json_name: "sampleResult"
end

defmodule CrucibleBridge.V1.EventBatch do
  @moduledoc """
  Events in order; what a stream carries.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :events, 1, repeated: true, type: CrucibleBridge.V1.Event
  field :log_id, 2, type: :string, json_name: "logId"
  field :through_sequence, 3, type: :uint64, json_name: "throughSequence"
end

defmodule CrucibleBridge.V1.SubscribeRequest do
  @moduledoc """
  Subscribes to the event log.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :after_sequence, 1, type: :uint64, json_name: "afterSequence"
  field :kinds, 2, repeated: true, type: CrucibleBridge.V1.EventKind, enum: true
  field :run_id, 3, proto3_optional: true, type: :string, json_name: "runId"
  field :log_id, 5, type: :string, json_name: "logId"
  field :until_now, 4, type: :bool, json_name: "untilNow"
  field :new_kinds, 6, type: :bool, json_name: "newKinds"
  field :records, 7, type: :bool
end

defmodule CrucibleBridge.V1.TelemetryService.Service do
  @moduledoc """
  The event log of all evaluations of the journal, whichever worker runs them.
  """

  use GRPC.Service,
    name: "crucible_bridge.v1.TelemetryService",
    protoc_gen_elixir_version: "0.15.0"

  rpc :Subscribe, CrucibleBridge.V1.SubscribeRequest, stream(CrucibleBridge.V1.EventBatch)
end

defmodule CrucibleBridge.V1.TelemetryService.Stub do
  use GRPC.Stub, service: CrucibleBridge.V1.TelemetryService.Service
end
