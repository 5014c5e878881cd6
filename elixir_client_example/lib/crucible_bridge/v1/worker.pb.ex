defmodule CrucibleBridge.V1.ReplicaState do
  @moduledoc """
  Whether a replica gets requests.
  """

  use Protobuf, enum: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :REPLICA_STATE_UNSPECIFIED, 0
  field :REPLICA_STATE_SERVING, 1
  field :REPLICA_STATE_EJECTED, 2
  field :REPLICA_STATE_RESTING, 3
end

defmodule CrucibleBridge.V1.BackendInfo do
  @moduledoc """
  A kind of place where models live.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :name, 1, type: :string
  field :models, 2, repeated: true, type: :string
  field :unavailable, 3, type: :string
end

defmodule CrucibleBridge.V1.WorkerInfo.VersionsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :string
end

defmodule CrucibleBridge.V1.WorkerInfo.LimitsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :double
end

defmodule CrucibleBridge.V1.WorkerInfo do
  @moduledoc """
  A worker, as it stands.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :worker_id, 1, type: :string, json_name: "workerId"
  field :version, 2, type: :string
  field :versions, 3, repeated: true, type: CrucibleBridge.V1.WorkerInfo.VersionsEntry, map: true
  field :backends, 4, repeated: true, type: CrucibleBridge.V1.BackendInfo
  field :evaluators, 5, repeated: true, type: :string
  field :datasets, 6, repeated: true, type: :string
  field :limits, 7, repeated: true, type: CrucibleBridge.V1.WorkerInfo.LimitsEntry, map: true
  field :running, 8, type: :int32
  field :queued, 9, type: :int32
  field :calls, 10, type: :int32
  field :draining, 11, type: :bool
  field :started_unix_ns, 12, type: :int64, json_name: "startedUnixNs"
  field :log_id, 13, type: :string, json_name: "logId"
  field :last_sequence, 14, type: :uint64, json_name: "lastSequence"
  field :code_images, 15, repeated: true, type: :string, json_name: "codeImages"
  field :usage, 16, repeated: true, type: CrucibleBridge.V1.ModelUsage
  field :prices, 17, repeated: true, type: CrucibleBridge.V1.ModelPrice
  field :fleets, 18, repeated: true, type: CrucibleBridge.V1.Fleet

  field :failed_tasks, 19,
    repeated: true,
    type: CrucibleBridge.V1.BackgroundTask,
    json_name: "failedTasks"

  field :certificate_expires_unix_ns, 20, type: :int64, json_name: "certificateExpiresUnixNs"
end

defmodule CrucibleBridge.V1.BackgroundTask do
  @moduledoc """
  A task of the worker itself, such as removing what is too old.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :name, 1, type: :string
  field :failures, 2, type: :int64
  field :last_failure_unix_ns, 3, type: :int64, json_name: "lastFailureUnixNs"
  field :error_id, 4, type: :string, json_name: "errorId"
end

defmodule CrucibleBridge.V1.Replica do
  @moduledoc """
  One of several servers or devices that answer for the same models, as this worker sees it.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :address, 1, type: :string
  field :state, 2, type: CrucibleBridge.V1.ReplicaState, enum: true
  field :outstanding, 3, type: :int32
  field :done, 4, type: :int64
  field :failures, 5, type: :int64
  field :last_error, 6, type: :string, json_name: "lastError"
end

defmodule CrucibleBridge.V1.Fleet do
  @moduledoc """
  Replicas that share requests.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :backend, 1, type: :string
  field :name, 2, type: :string
  field :replicas, 3, repeated: true, type: CrucibleBridge.V1.Replica
end

defmodule CrucibleBridge.V1.ModelPrice do
  @moduledoc """
  What tokens of the models of a pattern cost, a million of each, in the operator's currency.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :pattern, 1, type: :string
  field :prompt, 2, type: :double
  field :output, 3, type: :double
  field :cached, 4, proto3_optional: true, type: :double
end

defmodule CrucibleBridge.V1.GetInfoRequest do
  @moduledoc """
  Asks what the worker is.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3
end

defmodule CrucibleBridge.V1.GetInfoResponse do
  @moduledoc """
  The answer to GetInfo.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :worker, 1, type: CrucibleBridge.V1.WorkerInfo
end

defmodule CrucibleBridge.V1.DrainRequest do
  @moduledoc """
  Sends the worker home, as SIGTERM does.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3
end

defmodule CrucibleBridge.V1.DrainResponse do
  @moduledoc """
  The answer to Drain; the process ends after it.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :interrupted, 1, repeated: true, type: :string
end

defmodule CrucibleBridge.V1.WorkerService.Service do
  @moduledoc """
  The worker itself. Its calls have no errors beside those of every call.
  """

  use GRPC.Service, name: "crucible_bridge.v1.WorkerService", protoc_gen_elixir_version: "0.15.0"

  rpc :GetInfo, CrucibleBridge.V1.GetInfoRequest, CrucibleBridge.V1.GetInfoResponse

  rpc :Drain, CrucibleBridge.V1.DrainRequest, CrucibleBridge.V1.DrainResponse
end

defmodule CrucibleBridge.V1.WorkerService.Stub do
  use GRPC.Stub, service: CrucibleBridge.V1.WorkerService.Service
end
