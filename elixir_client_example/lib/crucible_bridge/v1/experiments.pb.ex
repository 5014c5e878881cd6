defmodule CrucibleBridge.V1.LoggedMetrics.ValuesEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :double
end

defmodule CrucibleBridge.V1.LoggedMetrics do
  @moduledoc """
  Metrics of one moment.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :values, 1, repeated: true, type: CrucibleBridge.V1.LoggedMetrics.ValuesEntry, map: true
  field :step, 2, proto3_optional: true, type: :int64
  field :family, 3, type: :string
  field :unix_time_ns, 4, type: :int64, json_name: "unixTimeNs"
end

defmodule CrucibleBridge.V1.LoggerState do
  @moduledoc """
  How far a logger of an experiment has come.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :logger, 1, type: :string
  field :url, 2, type: :string
  field :through_sequence, 3, type: :uint64, json_name: "throughSequence"
  field :synced_sequence, 4, type: :uint64, json_name: "syncedSequence"
  field :missed, 5, type: :int64
  field :problem, 6, type: :string
end

defmodule CrucibleBridge.V1.Experiment do
  @moduledoc """
  An experiment as it stands.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :experiment_id, 1, type: :string, json_name: "experimentId"
  field :last_sequence, 2, type: :uint64, json_name: "lastSequence"
  field :loggers, 3, repeated: true, type: CrucibleBridge.V1.LoggerState
  field :created_unix_ns, 4, type: :int64, json_name: "createdUnixNs"
  field :closed_unix_ns, 5, type: :int64, json_name: "closedUnixNs"
end

defmodule CrucibleBridge.V1.OpenExperimentRequest do
  @moduledoc """
  Opens an experiment.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :experiment_id, 1, type: :string, json_name: "experimentId"
  field :log_to, 2, repeated: true, type: :string, json_name: "logTo"
  field :config, 3, type: Google.Protobuf.Struct
end

defmodule CrucibleBridge.V1.OpenExperimentResponse do
  @moduledoc """
  The answer to OpenExperiment.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :experiment, 1, type: CrucibleBridge.V1.Experiment
  field :existed, 2, type: :bool
end

defmodule CrucibleBridge.V1.LogHparamsRequest do
  @moduledoc """
  Logs hyperparameters.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :experiment_id, 1, type: :string, json_name: "experimentId"
  field :hparams, 2, type: Google.Protobuf.Struct
end

defmodule CrucibleBridge.V1.LogHparamsResponse do
  @moduledoc """
  The answer to LogHparams.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :sequence, 1, type: :uint64
end

defmodule CrucibleBridge.V1.LogMetricsRequest do
  @moduledoc """
  Logs metrics.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :experiment_id, 1, type: :string, json_name: "experimentId"
  field :rows, 2, repeated: true, type: CrucibleBridge.V1.LoggedMetrics
end

defmodule CrucibleBridge.V1.LogMetricsResponse do
  @moduledoc """
  The answer to LogMetrics.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :sequence, 1, type: :uint64
end

defmodule CrucibleBridge.V1.LogLongTextRequest do
  @moduledoc """
  Logs a text.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :experiment_id, 1, type: :string, json_name: "experimentId"
  field :key, 2, type: :string
  field :text, 3, type: :string
  field :step, 4, proto3_optional: true, type: :int64
end

defmodule CrucibleBridge.V1.LogLongTextResponse do
  @moduledoc """
  The answer to LogLongText.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :sequence, 1, type: :uint64
end

defmodule CrucibleBridge.V1.SyncRequest do
  @moduledoc """
  Waits for the loggers of an experiment.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :experiment_id, 1, type: :string, json_name: "experimentId"
  field :timeout_ms, 2, proto3_optional: true, type: :int64, json_name: "timeoutMs"
end

defmodule CrucibleBridge.V1.SyncResponse do
  @moduledoc """
  The answer to Sync.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :experiment, 1, type: CrucibleBridge.V1.Experiment
  field :synced, 2, type: :bool
end

defmodule CrucibleBridge.V1.CloseExperimentRequest do
  @moduledoc """
  Closes an experiment.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :experiment_id, 1, type: :string, json_name: "experimentId"
  field :timeout_ms, 2, proto3_optional: true, type: :int64, json_name: "timeoutMs"
end

defmodule CrucibleBridge.V1.CloseExperimentResponse do
  @moduledoc """
  The answer to CloseExperiment.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :experiment, 1, type: CrucibleBridge.V1.Experiment
  field :synced, 2, type: :bool
end

defmodule CrucibleBridge.V1.GetUrlRequest do
  @moduledoc """
  Asks where people look at an experiment.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :experiment_id, 1, type: :string, json_name: "experimentId"
  field :logger, 2, type: :string
end

defmodule CrucibleBridge.V1.GetUrlResponse do
  @moduledoc """
  The answer to GetUrl.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :url, 1, type: :string
end

defmodule CrucibleBridge.V1.ExperimentService.Service do
  @moduledoc """
  Experiments: the calls of CrucibleTrain.Logging.Logger.

  What a call logged is in the journal when it is answered, so it survives the death of the worker and of the caller. A
  logger gets entries in order. An entry is removed once every logger has it, or when the experiment has more than
  max_experiment_bytes: a logger that had not taken it yet counts it as missed.
  """

  use GRPC.Service,
    name: "crucible_bridge.v1.ExperimentService",
    protoc_gen_elixir_version: "0.15.0"

  rpc :OpenExperiment,
      CrucibleBridge.V1.OpenExperimentRequest,
      CrucibleBridge.V1.OpenExperimentResponse

  rpc :LogHparams, CrucibleBridge.V1.LogHparamsRequest, CrucibleBridge.V1.LogHparamsResponse

  rpc :LogMetrics, CrucibleBridge.V1.LogMetricsRequest, CrucibleBridge.V1.LogMetricsResponse

  rpc :LogLongText, CrucibleBridge.V1.LogLongTextRequest, CrucibleBridge.V1.LogLongTextResponse

  rpc :Sync, CrucibleBridge.V1.SyncRequest, CrucibleBridge.V1.SyncResponse

  rpc :CloseExperiment,
      CrucibleBridge.V1.CloseExperimentRequest,
      CrucibleBridge.V1.CloseExperimentResponse

  rpc :GetUrl, CrucibleBridge.V1.GetUrlRequest, CrucibleBridge.V1.GetUrlResponse
end

defmodule CrucibleBridge.V1.ExperimentService.Stub do
  use GRPC.Stub, service: CrucibleBridge.V1.ExperimentService.Service
end
