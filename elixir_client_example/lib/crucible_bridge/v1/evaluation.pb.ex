defmodule CrucibleBridge.V1.EvaluatorKind do
  @moduledoc """
  Which client an evaluator needs.
  """

  use Protobuf, enum: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :EVALUATOR_KIND_UNSPECIFIED, 0
  field :EVALUATOR_KIND_TRAINING, 1
  field :EVALUATOR_KIND_SAMPLING, 2
end

defmodule CrucibleBridge.V1.EvaluationState do
  @moduledoc """
  Where an evaluation is in its life; see EvaluationService.
  """

  use Protobuf, enum: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :EVALUATION_STATE_UNSPECIFIED, 0
  field :EVALUATION_STATE_QUEUED, 1
  field :EVALUATION_STATE_RUNNING, 2
  field :EVALUATION_STATE_COMPLETED, 3
  field :EVALUATION_STATE_FAILED, 4
  field :EVALUATION_STATE_CANCELLED, 5
  field :EVALUATION_STATE_INTERRUPTED, 6
end

defmodule CrucibleBridge.V1.FileFormat do
  @moduledoc """
  How a file holds rows.
  """

  use Protobuf, enum: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :FILE_FORMAT_UNSPECIFIED, 0
  field :FILE_FORMAT_JSONL, 1
  field :FILE_FORMAT_CSV, 2
  field :FILE_FORMAT_PARQUET, 3
end

defmodule CrucibleBridge.V1.Record do
  @moduledoc """
  What is recorded of samples. Metrics are the same whatever it is: evaluators see every result.
  """

  use Protobuf, enum: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :RECORD_UNSPECIFIED, 0
  field :RECORD_FULL, 1
  field :RECORD_OUTPUTS, 2
  field :RECORD_NONE, 3
end

defmodule CrucibleBridge.V1.ReportFormat do
  @moduledoc """
  Format of a report.
  """

  use Protobuf, enum: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :REPORT_FORMAT_UNSPECIFIED, 0
  field :REPORT_FORMAT_MARKDOWN, 1
  field :REPORT_FORMAT_JSON, 2
  field :REPORT_FORMAT_HTML, 3
end

defmodule CrucibleBridge.V1.SampleOrder do
  @moduledoc """
  What the results of an evaluation are sorted by.
  """

  use Protobuf, enum: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :SAMPLE_ORDER_UNSPECIFIED, 0
  field :SAMPLE_ORDER_POSITION, 1
  field :SAMPLE_ORDER_SCORE, 2
  field :SAMPLE_ORDER_OUTPUT_TOKENS, 3
  field :SAMPLE_ORDER_DURATION, 4
  field :SAMPLE_ORDER_SAMPLE_ID, 5
end

defmodule CrucibleBridge.V1.FollowPolicy do
  @moduledoc """
  Which of the checkpoints of a followed directory are evaluated.
  """

  use Protobuf, enum: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :FOLLOW_POLICY_UNSPECIFIED, 0
  field :FOLLOW_POLICY_ALL, 1
  field :FOLLOW_POLICY_LATEST, 2
  field :FOLLOW_POLICY_EVERY, 3
end

defmodule CrucibleBridge.V1.Goal do
  @moduledoc """
  Which way a number is better.
  """

  use Protobuf, enum: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :GOAL_UNSPECIFIED, 0
  field :GOAL_HIGHER, 1
  field :GOAL_LOWER, 2
end

defmodule CrucibleBridge.V1.GateTier do
  @moduledoc """
  Whether a failed metric stops the candidate.
  """

  use Protobuf, enum: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :GATE_TIER_UNSPECIFIED, 0
  field :GATE_TIER_BLOCK, 1
  field :GATE_TIER_WARN, 2
end

defmodule CrucibleBridge.V1.GateVerdict do
  @moduledoc """
  What a gate says.
  """

  use Protobuf, enum: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :GATE_VERDICT_UNSPECIFIED, 0
  field :GATE_VERDICT_PASS, 1
  field :GATE_VERDICT_WARN, 2
  field :GATE_VERDICT_BLOCK, 3
  field :GATE_VERDICT_INCONCLUSIVE, 4
end

defmodule CrucibleBridge.V1.EvaluatorSpec do
  @moduledoc """
  One evaluator of a request.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :kind, 1, type: :string
  field :name, 2, proto3_optional: true, type: :string
  field :options, 3, type: Google.Protobuf.Struct
end

defmodule CrucibleBridge.V1.Dataset.WhereEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :string
end

defmodule CrucibleBridge.V1.Dataset do
  @moduledoc """
  Samples to evaluate on.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :source, 0

  field :inline, 1, type: CrucibleBridge.V1.InlineDataset, oneof: 0
  field :jsonl_path, 2, type: :string, json_name: "jsonlPath", oneof: 0
  field :builtin, 3, type: :string, oneof: 0
  field :hub, 4, type: CrucibleBridge.V1.HubDataset, oneof: 0
  field :file, 10, type: CrucibleBridge.V1.FileDataset, oneof: 0
  field :limit, 5, proto3_optional: true, type: :int64
  field :shuffle_seed, 6, proto3_optional: true, type: :int64, json_name: "shuffleSeed"
  field :skip_malformed, 7, type: :bool, json_name: "skipMalformed"
  field :prompt, 8, type: CrucibleBridge.V1.Prompt
  field :where, 9, repeated: true, type: CrucibleBridge.V1.Dataset.WhereEntry, map: true
  field :special_tokens, 11, type: :bool, json_name: "specialTokens"
end

defmodule CrucibleBridge.V1.Prompt do
  @moduledoc """
  How a row of a data set becomes a prompt.

  Its messages are the system message, the prefix, the examples, the row and the suffix, in this order. A row whose prompt
  is one message of the user is text. A model without a chat template, and the renderer "raw", get the
  parts joined to one text: an empty line between messages, target_delimiter before an answer. docs/prompts.md shows both.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :system, 1, type: :string
  field :template, 2, type: :string
  field :prefix, 3, type: CrucibleBridge.V1.Conversation
  field :suffix, 4, type: CrucibleBridge.V1.Conversation
  field :few_shot, 5, type: CrucibleBridge.V1.FewShot, json_name: "fewShot"
  field :target_delimiter, 6, proto3_optional: true, type: :string, json_name: "targetDelimiter"
end

defmodule CrucibleBridge.V1.FewShot do
  @moduledoc """
  Examples of a prompt, rows of another split or file with their first targets as answers.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :source, 1, type: :string
  field :count, 2, type: :int32
  field :seed, 3, type: :int64
end

defmodule CrucibleBridge.V1.FileDataset.ColumnsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :string
end

defmodule CrucibleBridge.V1.FileDataset do
  @moduledoc """
  A file of rows on the worker's disk. Without columns, its rows have one of these shapes: {input, target | output |
  targets}, {question, answer}, {prompt, completion}, {messages}; or, if none of the others fits, the first that does
  of {text}, {prompt, chosen}, {chosen, rejected}. Rows of {model_input, loss_fn_inputs} or {tokens, target_tokens} are
  Datums. If two of the others fit, the file is refused. "choices", "id" and "metadata" count with each
  shape. Every other column becomes metadata.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :path, 1, type: :string
  field :format, 2, type: CrucibleBridge.V1.FileFormat, enum: true
  field :columns, 3, repeated: true, type: CrucibleBridge.V1.FileDataset.ColumnsEntry, map: true
end

defmodule CrucibleBridge.V1.HubDataset.ColumnsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :string
end

defmodule CrucibleBridge.V1.HubDataset do
  @moduledoc """
  A split of a data set of the Hugging Face hub, or of the worker's cache of it. The operator decides whether the
  worker may query the hub. No code of a data set is ever run.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :repo_id, 1, type: :string, json_name: "repoId"
  field :split, 2, type: :string
  field :config, 3, proto3_optional: true, type: :string
  field :columns, 4, repeated: true, type: CrucibleBridge.V1.HubDataset.ColumnsEntry, map: true
  field :revision, 5, proto3_optional: true, type: :string
end

defmodule CrucibleBridge.V1.InlineDataset do
  @moduledoc """
  Samples in the request.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :samples, 1, repeated: true, type: CrucibleBridge.V1.Sample
end

defmodule CrucibleBridge.V1.Sample.MetadataEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :string
end

defmodule CrucibleBridge.V1.Sample do
  @moduledoc """
  One sample.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :input, 0

  field :id, 1, type: :string
  field :text, 2, type: :string, oneof: 0
  field :conversation, 3, type: CrucibleBridge.V1.Conversation, oneof: 0
  field :datum, 4, type: CrucibleBridge.V1.Datum, oneof: 0
  field :targets, 5, repeated: true, type: :string
  field :choices, 6, repeated: true, type: :string
  field :metadata, 7, repeated: true, type: CrucibleBridge.V1.Sample.MetadataEntry, map: true
  field :choice_labels, 8, repeated: true, type: :string, json_name: "choiceLabels"
end

defmodule CrucibleBridge.V1.Limits do
  @moduledoc """
  Bounds of an evaluation. If an evaluation resumes, deadline_ms and what it may spend are the first request's; the
  others are those of the request that resumes it. WorkerInfo.limits has the worker's defaults under the names given here.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :concurrency, 1, proto3_optional: true, type: :int32
  field :deadline_ms, 2, proto3_optional: true, type: :int64, json_name: "deadlineMs"
  field :stall_timeout_ms, 3, proto3_optional: true, type: :int64, json_name: "stallTimeoutMs"
  field :sample_timeout_ms, 4, proto3_optional: true, type: :int64, json_name: "sampleTimeoutMs"

  field :max_unscored_share, 5,
    proto3_optional: true,
    type: :double,
    json_name: "maxUnscoredShare"

  field :max_unscored, 6, proto3_optional: true, type: :int64, json_name: "maxUnscored"
  field :max_cost, 7, proto3_optional: true, type: :double, json_name: "maxCost"
  field :max_output_tokens, 8, proto3_optional: true, type: :int64, json_name: "maxOutputTokens"
  field :max_run_cost, 9, proto3_optional: true, type: :double, json_name: "maxRunCost"

  field :max_run_output_tokens, 10,
    proto3_optional: true,
    type: :int64,
    json_name: "maxRunOutputTokens"
end

defmodule CrucibleBridge.V1.EvaluateRequest.LabelsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :string
end

defmodule CrucibleBridge.V1.EvaluateRequest.ModelsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :string
end

defmodule CrucibleBridge.V1.EvaluateRequest do
  @moduledoc """
  An evaluation to run.

  Its specification is model, evaluators, dataset (inline samples by content), sampling, metric_prefix, run_id, step and
  models.
  The same evaluation_id and specification is the same evaluation: one that has ended is returned unchanged, one that
  runs is joined, one that is interrupted resumes. One that has FAILED with a retryable problem, or without a score of any
  sample, begins a further attempt. The same id with another specification is ALREADY_EXISTS, with both
  fingerprints. The first request's labels, correlation_id and limits.deadline_ms stand; other limits, record and log_to
  are those of the request that resumes it.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation_id, 1, type: :string, json_name: "evaluationId"
  field :run_id, 2, type: :string, json_name: "runId"
  field :step, 3, proto3_optional: true, type: :int64
  field :model, 4, type: CrucibleBridge.V1.ModelRef
  field :evaluators, 5, repeated: true, type: CrucibleBridge.V1.EvaluatorSpec
  field :dataset, 6, type: CrucibleBridge.V1.Dataset
  field :sampling, 7, type: CrucibleBridge.V1.SamplingParams
  field :limits, 8, type: CrucibleBridge.V1.Limits
  field :metric_prefix, 9, type: :string, json_name: "metricPrefix"

  field :labels, 10,
    repeated: true,
    type: CrucibleBridge.V1.EvaluateRequest.LabelsEntry,
    map: true

  field :correlation_id, 11, type: :string, json_name: "correlationId"
  field :record, 12, type: CrucibleBridge.V1.Record, enum: true
  field :log_to, 13, repeated: true, type: :string, json_name: "logTo"

  field :models, 14,
    repeated: true,
    type: CrucibleBridge.V1.EvaluateRequest.ModelsEntry,
    map: true
end

defmodule CrucibleBridge.V1.ReadDatasetRequest do
  @moduledoc """
  Asks for the samples of a data set.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :dataset, 1, type: CrucibleBridge.V1.Dataset
  field :offset, 2, type: :int64
  field :limit, 3, proto3_optional: true, type: :int64
end

defmodule CrucibleBridge.V1.ReadDatasetResponse do
  @moduledoc """
  Some samples of a data set, in order: at most 1,000, and fewer from 8 MiB on. Sent at least once.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :samples, 1, repeated: true, type: CrucibleBridge.V1.Sample
  field :skipped, 2, repeated: true, type: CrucibleBridge.V1.SkippedLine
  field :total, 3, type: :int64
  field :dataset_fingerprint, 4, type: :string, json_name: "datasetFingerprint"
end

defmodule CrucibleBridge.V1.SkippedLine do
  @moduledoc """
  A malformed line, in place of its sample.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :id, 1, type: :string
  field :index, 2, type: :int64
  field :problem, 3, type: CrucibleBridge.V1.Problem
end

defmodule CrucibleBridge.V1.EvaluatorResult.UnscoredByReasonEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :int64
end

defmodule CrucibleBridge.V1.EvaluatorResult do
  @moduledoc """
  The result of one evaluator.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluator, 1, type: CrucibleBridge.V1.EvaluatorSpec
  field :metrics, 2, type: CrucibleBridge.V1.Metrics
  field :n, 3, type: :int64
  field :n_scored, 4, type: :int64, json_name: "nScored"
  field :n_unscored, 5, type: :int64, json_name: "nUnscored"
  field :n_errors, 6, type: :int64, json_name: "nErrors"
  field :problem, 7, type: CrucibleBridge.V1.Problem
  field :n_truncated, 8, type: :int64, json_name: "nTruncated"
  field :n_truncated_reasoning, 12, type: :int64, json_name: "nTruncatedReasoning"
  field :usage, 9, type: CrucibleBridge.V1.Usage
  field :n_correct, 10, proto3_optional: true, type: :int64, json_name: "nCorrect"

  field :unscored_by_reason, 11,
    repeated: true,
    type: CrucibleBridge.V1.EvaluatorResult.UnscoredByReasonEntry,
    json_name: "unscoredByReason",
    map: true
end

defmodule CrucibleBridge.V1.Evaluation.GradersEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: CrucibleBridge.V1.GraderVersions
end

defmodule CrucibleBridge.V1.Evaluation do
  @moduledoc """
  An evaluation as it stands.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation_id, 1, type: :string, json_name: "evaluationId"
  field :state, 2, type: CrucibleBridge.V1.EvaluationState, enum: true
  field :request, 3, type: CrucibleBridge.V1.EvaluateRequest
  field :metrics, 4, type: CrucibleBridge.V1.Metrics
  field :results, 5, repeated: true, type: CrucibleBridge.V1.EvaluatorResult
  field :done, 6, type: :int64
  field :total, 7, type: :int64
  field :dataset_fingerprint, 8, type: :string, json_name: "datasetFingerprint"
  field :created_unix_ns, 9, type: :int64, json_name: "createdUnixNs"
  field :ended_unix_ns, 10, type: :int64, json_name: "endedUnixNs"
  field :duration_ns, 11, type: :int64, json_name: "durationNs"
  field :last_sequence, 12, type: :uint64, json_name: "lastSequence"
  field :problem, 13, type: CrucibleBridge.V1.Problem
  field :attempt, 14, type: :int32
  field :model_fingerprint, 15, type: :string, json_name: "modelFingerprint"
  field :rendering, 17, repeated: true, type: CrucibleBridge.V1.EvaluatorRendering
  field :usage, 16, type: CrucibleBridge.V1.Usage
  field :engine, 18, type: CrucibleBridge.V1.ServerEngine
  field :paused, 19, type: :bool
  field :concurrency, 20, proto3_optional: true, type: :int32
  field :rules_version, 21, type: :int32, json_name: "rulesVersion"
  field :waiting_for, 22, type: :string, json_name: "waitingFor"
  field :graders, 23, repeated: true, type: CrucibleBridge.V1.Evaluation.GradersEntry, map: true
  field :servers, 24, repeated: true, type: CrucibleBridge.V1.ModelServer
end

defmodule CrucibleBridge.V1.ModelServer do
  @moduledoc """
  A server of models, as an attempt found it.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :name, 1, type: :string
  field :addresses, 2, repeated: true, type: :string
end

defmodule CrucibleBridge.V1.GraderVersions.VersionsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :int32
end

defmodule CrucibleBridge.V1.GraderVersions do
  @moduledoc """
  Versions of graders.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :versions, 1,
    repeated: true,
    type: CrucibleBridge.V1.GraderVersions.VersionsEntry,
    map: true
end

defmodule CrucibleBridge.V1.EvaluatorRendering.OthersEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :string
end

defmodule CrucibleBridge.V1.EvaluatorRendering do
  @moduledoc """
  How an evaluator renders what models get.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluator, 1, type: :string
  field :renderer, 2, type: :string

  field :others, 3,
    repeated: true,
    type: CrucibleBridge.V1.EvaluatorRendering.OthersEntry,
    map: true
end

defmodule CrucibleBridge.V1.Transition.MetricsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :double
end

defmodule CrucibleBridge.V1.Transition do
  @moduledoc """
  One turn of a rollout: an observation, and the action that followed it.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :observation_tokens, 1, type: :int32, json_name: "observationTokens"
  field :action_tokens, 2, type: :int32, json_name: "actionTokens"
  field :reward, 3, type: :double
  field :metrics, 4, repeated: true, type: CrucibleBridge.V1.Transition.MetricsEntry, map: true
  field :stop_reason, 5, type: :string, json_name: "stopReason"
  field :observation, 6, type: CrucibleBridge.V1.Tensor
  field :action, 7, type: CrucibleBridge.V1.Tensor
  field :action_logprobs, 8, type: CrucibleBridge.V1.Tensor, json_name: "actionLogprobs"

  field :cached_observation_tokens, 9,
    proto3_optional: true,
    type: :int32,
    json_name: "cachedObservationTokens"
end

defmodule CrucibleBridge.V1.Trajectory.MetricsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :double
end

defmodule CrucibleBridge.V1.Trajectory do
  @moduledoc """
  One rollout: its turns in order.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :transitions, 1, repeated: true, type: CrucibleBridge.V1.Transition
  field :final_reward, 2, type: :double, json_name: "finalReward"
  field :metrics, 3, repeated: true, type: CrucibleBridge.V1.Trajectory.MetricsEntry, map: true
end

defmodule CrucibleBridge.V1.TrajectoryGroup do
  @moduledoc """
  Rollouts of one problem, to be compared with each other. At most 8 MiB.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :trajectories, 1, repeated: true, type: CrucibleBridge.V1.Trajectory
  field :tags, 2, repeated: true, type: :string
end

defmodule CrucibleBridge.V1.SamplePrompt do
  @moduledoc """
  What a model got, in the first call of a sample.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :prompt, 0

  field :text, 1, type: :string, oneof: 0
  field :conversation, 2, type: CrucibleBridge.V1.Conversation, oneof: 0
  field :token_count, 3, type: :int64, json_name: "tokenCount", oneof: 0
end

defmodule CrucibleBridge.V1.Turn do
  @moduledoc """
  A turn of a sample's transcript: what a model got, or what it said.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :role, 1, type: :string
  field :text, 2, type: :string
  field :reward, 3, proto3_optional: true, type: :double
  field :tokens, 4, proto3_optional: true, type: :int32
  field :rollout, 5, type: :int32
  field :model, 6, type: :string
  field :token_ids, 7, type: CrucibleBridge.V1.Tensor, json_name: "tokenIds"
  field :logprobs, 8, type: CrucibleBridge.V1.Tensor
  field :reasoning, 9, type: :string
  field :refusal, 10, type: :string
  field :tool_calls, 11, repeated: true, type: CrucibleBridge.V1.ToolCall, json_name: "toolCalls"

  field :unparsed_tool_calls, 12,
    repeated: true,
    type: CrucibleBridge.V1.UnparsedToolCall,
    json_name: "unparsedToolCalls"
end

defmodule CrucibleBridge.V1.TruncatedPart do
  @moduledoc """
  A part of a sample's record that is not there whole.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :part, 1, type: :string
  field :bytes, 2, type: :int64
  field :limit, 3, type: :string
end

defmodule CrucibleBridge.V1.SampleResult.MeasurementsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :double
end

defmodule CrucibleBridge.V1.SampleResult do
  @moduledoc """
  What became of one sample, in its last run.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluator, 1, type: :string
  field :sample_id, 2, type: :string, json_name: "sampleId"
  field :repeat, 3, type: :int32
  field :verdict, 4, type: CrucibleBridge.V1.Verdict, enum: true
  field :score, 5, proto3_optional: true, type: :double
  field :output, 6, type: :string
  field :extracted, 7, type: :string
  field :method, 8, type: :string
  field :stop_reason, 9, type: :string, json_name: "stopReason"
  field :output_tokens, 10, proto3_optional: true, type: :int32, json_name: "outputTokens"
  field :duration_ns, 11, type: :int64, json_name: "durationNs"
  field :attempts, 12, type: :int32
  field :problem, 13, type: CrucibleBridge.V1.Problem

  field :measurements, 14,
    repeated: true,
    type: CrucibleBridge.V1.SampleResult.MeasurementsEntry,
    map: true

  field :group, 15, type: CrucibleBridge.V1.TrajectoryGroup
  field :sample, 16, type: CrucibleBridge.V1.Sample
  field :prompt, 17, type: CrucibleBridge.V1.SamplePrompt
  field :turns, 18, repeated: true, type: CrucibleBridge.V1.Turn
  field :usage, 19, type: CrucibleBridge.V1.Usage
  field :truncated, 20, repeated: true, type: CrucibleBridge.V1.TruncatedPart
  field :reasoning, 21, type: :string
  field :refusal, 22, type: :string
  field :tool_calls, 23, repeated: true, type: CrucibleBridge.V1.ToolCall, json_name: "toolCalls"

  field :unparsed_tool_calls, 24,
    repeated: true,
    type: CrucibleBridge.V1.UnparsedToolCall,
    json_name: "unparsedToolCalls"
end

defmodule CrucibleBridge.V1.ListEvaluatorsRequest do
  @moduledoc """
  Asks what evaluators there are.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3
end

defmodule CrucibleBridge.V1.EvaluatorInfo.KeysEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :string
end

defmodule CrucibleBridge.V1.EvaluatorInfo do
  @moduledoc """
  An evaluator the worker has.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :kind, 1, type: :string
  field :kinds, 2, repeated: true, type: CrucibleBridge.V1.EvaluatorKind, enum: true
  field :description, 3, type: :string
  field :options_schema, 4, type: :string, json_name: "optionsSchema"
  field :keys, 5, repeated: true, type: CrucibleBridge.V1.EvaluatorInfo.KeysEntry, map: true
  field :unavailable, 6, type: :string
  field :score_goal, 7, type: CrucibleBridge.V1.Goal, json_name: "scoreGoal", enum: true
end

defmodule CrucibleBridge.V1.ListEvaluatorsResponse do
  @moduledoc """
  The evaluators.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluators, 1, repeated: true, type: CrucibleBridge.V1.EvaluatorInfo
end

defmodule CrucibleBridge.V1.EvaluateResponse do
  @moduledoc """
  The answer to Evaluate.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation, 1, type: CrucibleBridge.V1.Evaluation
end

defmodule CrucibleBridge.V1.StartEvaluationRequest do
  @moduledoc """
  Starts an evaluation.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :request, 1, type: CrucibleBridge.V1.EvaluateRequest
end

defmodule CrucibleBridge.V1.StartEvaluationResponse do
  @moduledoc """
  The answer to StartEvaluation.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation, 1, type: CrucibleBridge.V1.Evaluation
  field :existed, 2, type: :bool
end

defmodule CrucibleBridge.V1.WatchEvaluationRequest do
  @moduledoc """
  Watches an evaluation.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation_id, 1, type: :string, json_name: "evaluationId"
  field :after_sequence, 2, type: :uint64, json_name: "afterSequence"
  field :without_samples, 3, type: :bool, json_name: "withoutSamples"
  field :log_id, 4, type: :string, json_name: "logId"
  field :new_kinds, 5, type: :bool, json_name: "newKinds"
  field :records, 6, type: :bool
end

defmodule CrucibleBridge.V1.GetEvaluationRequest do
  @moduledoc """
  Asks for an evaluation.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation_id, 1, type: :string, json_name: "evaluationId"
end

defmodule CrucibleBridge.V1.GetEvaluationResponse do
  @moduledoc """
  The answer to GetEvaluation.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation, 1, type: CrucibleBridge.V1.Evaluation
end

defmodule CrucibleBridge.V1.ListEvaluationsRequest do
  @moduledoc """
  Asks for evaluations, newest first.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :run_id, 1, proto3_optional: true, type: :string, json_name: "runId"
  field :states, 2, repeated: true, type: CrucibleBridge.V1.EvaluationState, enum: true
  field :from_step, 3, proto3_optional: true, type: :int64, json_name: "fromStep"
  field :to_step, 4, proto3_optional: true, type: :int64, json_name: "toStep"
  field :page_size, 5, type: :int32, json_name: "pageSize"
  field :page_token, 6, type: :string, json_name: "pageToken"
end

defmodule CrucibleBridge.V1.ListEvaluationsResponse do
  @moduledoc """
  A page of evaluations.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluations, 1, repeated: true, type: CrucibleBridge.V1.Evaluation
  field :next_page_token, 2, type: :string, json_name: "nextPageToken"
end

defmodule CrucibleBridge.V1.GetSamplesRequest do
  @moduledoc """
  Asks for the samples of an evaluation, in the data set's order.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation_id, 1, type: :string, json_name: "evaluationId"
  field :verdicts, 2, repeated: true, type: CrucibleBridge.V1.Verdict, enum: true
  field :evaluator, 3, proto3_optional: true, type: :string
  field :page_size, 4, type: :int32, json_name: "pageSize"
  field :page_token, 5, type: :string, json_name: "pageToken"
  field :without_records, 6, type: :bool, json_name: "withoutRecords"
end

defmodule CrucibleBridge.V1.GetSamplesResponse do
  @moduledoc """
  A page of samples.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :samples, 1, repeated: true, type: CrucibleBridge.V1.SampleResult
  field :next_page_token, 2, type: :string, json_name: "nextPageToken"
end

defmodule CrucibleBridge.V1.FindSamplesRequest.MetadataEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :string
end

defmodule CrucibleBridge.V1.FindSamplesRequest do
  @moduledoc """
  Looks for results of samples, for tables. Every condition must hold.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation_id, 1, type: :string, json_name: "evaluationId"
  field :search, 2, type: :string
  field :evaluator, 3, proto3_optional: true, type: :string
  field :verdicts, 4, repeated: true, type: CrucibleBridge.V1.Verdict, enum: true
  field :stop_reason, 5, proto3_optional: true, type: :string, json_name: "stopReason"
  field :changed_from, 6, proto3_optional: true, type: :string, json_name: "changedFrom"

  field :metadata, 7,
    repeated: true,
    type: CrucibleBridge.V1.FindSamplesRequest.MetadataEntry,
    map: true

  field :sample_id, 8, proto3_optional: true, type: :string, json_name: "sampleId"
  field :order_by, 9, type: CrucibleBridge.V1.SampleOrder, json_name: "orderBy", enum: true
  field :descending, 10, type: :bool
  field :offset, 11, type: :int64
  field :limit, 12, type: :int32
  field :within_ms, 13, type: :int32, json_name: "withinMs"
end

defmodule CrucibleBridge.V1.SampleRow do
  @moduledoc """
  A result of a sample as tables show it; texts have at most 300 characters.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :n, 1, type: :int64
  field :evaluator, 2, type: :string
  field :sample_id, 3, type: :string, json_name: "sampleId"
  field :repeat, 4, type: :int32
  field :verdict, 5, type: CrucibleBridge.V1.Verdict, enum: true
  field :score, 6, proto3_optional: true, type: :double
  field :input, 7, type: :string
  field :output, 8, type: :string
  field :extracted, 9, type: :string
  field :target, 10, type: :string
  field :stop_reason, 11, type: :string, json_name: "stopReason"
  field :output_tokens, 12, proto3_optional: true, type: :int64, json_name: "outputTokens"
  field :duration_ns, 13, type: :int64, json_name: "durationNs"
  field :reason, 14, type: :string
  field :page_token, 15, type: :string, json_name: "pageToken"
end

defmodule CrucibleBridge.V1.MetadataField do
  @moduledoc """
  A key of the samples' metadata.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :values, 2, repeated: true, type: :string
  field :values_left_out, 3, type: :bool, json_name: "valuesLeftOut"
end

defmodule CrucibleBridge.V1.FindSamplesResponse do
  @moduledoc """
  What was found.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :rows, 1, repeated: true, type: CrucibleBridge.V1.SampleRow
  field :matching, 2, type: :int64
  field :searched, 3, type: :int64
  field :total, 4, type: :int64
  field :fields, 5, repeated: true, type: CrucibleBridge.V1.MetadataField
end

defmodule CrucibleBridge.V1.CancelEvaluationRequest do
  @moduledoc """
  Ends an evaluation early.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation_id, 1, type: :string, json_name: "evaluationId"
  field :reason, 2, type: :string
end

defmodule CrucibleBridge.V1.CancelEvaluationResponse do
  @moduledoc """
  The answer to CancelEvaluation.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation, 1, type: CrucibleBridge.V1.Evaluation
end

defmodule CrucibleBridge.V1.PauseEvaluationRequest do
  @moduledoc """
  Pauses an evaluation.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation_id, 1, type: :string, json_name: "evaluationId"
end

defmodule CrucibleBridge.V1.PauseEvaluationResponse do
  @moduledoc """
  The answer to PauseEvaluation.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation, 1, type: CrucibleBridge.V1.Evaluation
end

defmodule CrucibleBridge.V1.ResumeEvaluationRequest do
  @moduledoc """
  Ends the pause of an evaluation.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation_id, 1, type: :string, json_name: "evaluationId"
  field :max_cost, 2, proto3_optional: true, type: :double, json_name: "maxCost"
  field :max_output_tokens, 3, proto3_optional: true, type: :int64, json_name: "maxOutputTokens"
  field :max_run_cost, 4, proto3_optional: true, type: :double, json_name: "maxRunCost"

  field :max_run_output_tokens, 5,
    proto3_optional: true,
    type: :int64,
    json_name: "maxRunOutputTokens"
end

defmodule CrucibleBridge.V1.ResumeEvaluationResponse do
  @moduledoc """
  The answer to ResumeEvaluation.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation, 1, type: CrucibleBridge.V1.Evaluation
end

defmodule CrucibleBridge.V1.SetEvaluationConcurrencyRequest do
  @moduledoc """
  Changes how many samples of an evaluation may be at work at once.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation_id, 1, type: :string, json_name: "evaluationId"
  field :concurrency, 2, proto3_optional: true, type: :int32
end

defmodule CrucibleBridge.V1.SetEvaluationConcurrencyResponse do
  @moduledoc """
  The answer to SetEvaluationConcurrency.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation, 1, type: CrucibleBridge.V1.Evaluation
end

defmodule CrucibleBridge.V1.ListRunsRequest do
  @moduledoc """
  Asks for runs, or for the checkpoints of one.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :run_id, 1, proto3_optional: true, type: :string, json_name: "runId"
  field :page_size, 2, type: :int32, json_name: "pageSize"
  field :page_token, 3, type: :string, json_name: "pageToken"
end

defmodule CrucibleBridge.V1.RunBest.GraderVersionsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :int32
end

defmodule CrucibleBridge.V1.RunBest do
  @moduledoc """
  The best value of a metric in a run, on one data set.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :metric, 1, type: :string
  field :goal, 2, type: CrucibleBridge.V1.Goal, enum: true
  field :value, 3, type: :double
  field :evaluation_id, 4, type: :string, json_name: "evaluationId"
  field :step, 5, proto3_optional: true, type: :int64
  field :dataset, 6, type: :string
  field :dataset_fingerprint, 7, type: :string, json_name: "datasetFingerprint"
  field :rules_version, 8, type: :int32, json_name: "rulesVersion"
  field :scored, 9, type: CrucibleBridge.V1.ScoredCount

  field :grader_versions, 10,
    repeated: true,
    type: CrucibleBridge.V1.RunBest.GraderVersionsEntry,
    json_name: "graderVersions",
    map: true

  field :interval_low, 11, proto3_optional: true, type: :double, json_name: "intervalLow"
  field :interval_high, 12, proto3_optional: true, type: :double, json_name: "intervalHigh"
end

defmodule CrucibleBridge.V1.ScoredCount do
  @moduledoc """
  Of how many results of samples a metric is made.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :n, 1, type: :int64
  field :n_scored, 2, type: :int64, json_name: "nScored"
end

defmodule CrucibleBridge.V1.RunInfo do
  @moduledoc """
  A run: the evaluations that bear its run_id.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :run_id, 1, type: :string, json_name: "runId"
  field :first_unix_ns, 2, type: :int64, json_name: "firstUnixNs"
  field :last_unix_ns, 3, type: :int64, json_name: "lastUnixNs"
  field :first_step, 4, proto3_optional: true, type: :int64, json_name: "firstStep"
  field :last_step, 5, proto3_optional: true, type: :int64, json_name: "lastStep"
  field :checkpoints, 6, type: :int64
  field :completed, 7, type: :int64
  field :failed, 8, type: :int64
  field :cancelled, 9, type: :int64
  field :unfinished, 10, type: :int64
  field :best, 11, repeated: true, type: CrucibleBridge.V1.RunBest
end

defmodule CrucibleBridge.V1.CheckpointResult.MetricsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :double
end

defmodule CrucibleBridge.V1.CheckpointResult.ScoredEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: CrucibleBridge.V1.ScoredCount
end

defmodule CrucibleBridge.V1.CheckpointResult.GradersEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: CrucibleBridge.V1.GraderVersions
end

defmodule CrucibleBridge.V1.CheckpointResult do
  @moduledoc """
  What one evaluation measured of a checkpoint. It is retained longer than the evaluation: run_retention_seconds.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation_id, 1, type: :string, json_name: "evaluationId"
  field :state, 2, type: CrucibleBridge.V1.EvaluationState, enum: true
  field :retained, 3, type: :bool
  field :dataset, 4, type: :string
  field :dataset_fingerprint, 5, type: :string, json_name: "datasetFingerprint"
  field :done, 6, type: :int64

  field :metrics, 7,
    repeated: true,
    type: CrucibleBridge.V1.CheckpointResult.MetricsEntry,
    map: true

  field :best, 8, repeated: true, type: :string
  field :created_unix_ns, 9, type: :int64, json_name: "createdUnixNs"
  field :ended_unix_ns, 10, type: :int64, json_name: "endedUnixNs"
  field :problem, 11, type: CrucibleBridge.V1.Problem
  field :rules_version, 12, type: :int32, json_name: "rulesVersion"
  field :superseded, 13, type: :bool

  field :scored, 14,
    repeated: true,
    type: CrucibleBridge.V1.CheckpointResult.ScoredEntry,
    map: true

  field :graders, 15,
    repeated: true,
    type: CrucibleBridge.V1.CheckpointResult.GradersEntry,
    map: true
end

defmodule CrucibleBridge.V1.Checkpoint.LabelsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :string
end

defmodule CrucibleBridge.V1.Checkpoint do
  @moduledoc """
  A checkpoint of a run: its model at a step.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :step, 1, proto3_optional: true, type: :int64
  field :model, 2, type: CrucibleBridge.V1.ModelRef
  field :base_model, 3, type: :string, json_name: "baseModel"
  field :adapter, 4, type: :string
  field :model_fingerprint, 5, type: :string, json_name: "modelFingerprint"
  field :labels, 6, repeated: true, type: CrucibleBridge.V1.Checkpoint.LabelsEntry, map: true
  field :results, 7, repeated: true, type: CrucibleBridge.V1.CheckpointResult
end

defmodule CrucibleBridge.V1.ListRunsResponse do
  @moduledoc """
  A page of runs, or of the checkpoints of one.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :runs, 1, repeated: true, type: CrucibleBridge.V1.RunInfo
  field :checkpoints, 2, repeated: true, type: CrucibleBridge.V1.Checkpoint
  field :next_page_token, 3, type: :string, json_name: "nextPageToken"
end

defmodule CrucibleBridge.V1.DeleteEvaluationRequest do
  @moduledoc """
  Deletes an evaluation.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation_id, 1, type: :string, json_name: "evaluationId"
end

defmodule CrucibleBridge.V1.DeleteEvaluationResponse do
  @moduledoc """
  The answer to DeleteEvaluation.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation, 1, type: CrucibleBridge.V1.Evaluation
end

defmodule CrucibleBridge.V1.RenderSampleRequest do
  @moduledoc """
  Asks what models would get of one sample.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :request, 1, type: CrucibleBridge.V1.EvaluateRequest
  field :sample_id, 2, type: :string, json_name: "sampleId"
end

defmodule CrucibleBridge.V1.RenderSampleResponse do
  @moduledoc """
  What the model would get of one sample.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :sample_id, 1, type: :string, json_name: "sampleId"
  field :prompts, 2, repeated: true, type: CrucibleBridge.V1.RenderedPrompt
end

defmodule CrucibleBridge.V1.RenderedPrompt do
  @moduledoc """
  What the model would get from one evaluator, in its first call.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluator, 1, type: :string
  field :renderer, 2, type: :string
  field :conversation, 3, type: CrucibleBridge.V1.Conversation
  field :text, 4, type: :string
  field :tokens, 5, repeated: true, type: :int32
  field :stop, 6, repeated: true, type: :string
  field :problem, 7, type: CrucibleBridge.V1.Problem
end

defmodule CrucibleBridge.V1.GenerateReportRequest.MetricsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :double
end

defmodule CrucibleBridge.V1.GenerateReportRequest do
  @moduledoc """
  Asks for a report: of evaluation_ids, run_id or metrics, one of the three.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation_ids, 1, repeated: true, type: :string, json_name: "evaluationIds"
  field :format, 2, type: CrucibleBridge.V1.ReportFormat, enum: true
  field :max_samples, 3, type: :int32, json_name: "maxSamples"

  field :metrics, 4,
    repeated: true,
    type: CrucibleBridge.V1.GenerateReportRequest.MetricsEntry,
    map: true

  field :title, 5, type: :string
  field :run_id, 6, type: :string, json_name: "runId"
end

defmodule CrucibleBridge.V1.GenerateReportResponse do
  @moduledoc """
  A report.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :report, 1, type: :string
end

defmodule CrucibleBridge.V1.EvaluateWithOrchestratorModelRequest do
  @moduledoc """
  What the orchestrator sends.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :frame, 0

  field :start, 1, type: CrucibleBridge.V1.OrchestratorStart, oneof: 0
  field :answer, 2, type: CrucibleBridge.V1.OrchestratorAnswer, oneof: 0
end

defmodule CrucibleBridge.V1.OrchestratorStart do
  @moduledoc """
  Starts or resumes an evaluation of which the orchestrator holds something: the model, graders, environments.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :request, 1, type: CrucibleBridge.V1.EvaluateRequest
  field :window, 2, type: :int32
  field :calls, 3, repeated: true, type: CrucibleBridge.V1.OrchestratorCall, enum: true
  field :graders, 4, repeated: true, type: :string
  field :environments, 5, repeated: true, type: :string
end

defmodule CrucibleBridge.V1.EvaluateWithOrchestratorModelResponse do
  @moduledoc """
  What the worker sends.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :frame, 0

  field :accepted, 1, type: CrucibleBridge.V1.OrchestratorAccepted, oneof: 0
  field :question, 2, type: CrucibleBridge.V1.OrchestratorQuestion, oneof: 0
  field :withdrawn, 3, type: :uint64, oneof: 0
  field :ended, 4, type: CrucibleBridge.V1.OrchestratorEnded, oneof: 0
  field :closed, 5, type: :uint64, oneof: 0
end

defmodule CrucibleBridge.V1.OrchestratorAccepted do
  @moduledoc """
  The evaluation is at work, or waits for its turn.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation, 1, type: CrucibleBridge.V1.Evaluation
  field :existed, 2, type: :bool
  field :window, 3, type: :int32
end

defmodule CrucibleBridge.V1.OrchestratorEnded do
  @moduledoc """
  The evaluation has ended.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation, 1, type: CrucibleBridge.V1.Evaluation
  field :ignored_answers, 2, type: :uint64, json_name: "ignoredAnswers"
end

defmodule CrucibleBridge.V1.PlannedEvaluation.LabelsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :string
end

defmodule CrucibleBridge.V1.PlannedEvaluation.ModelsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :string
end

defmodule CrucibleBridge.V1.PlannedEvaluation do
  @moduledoc """
  Evaluators of a plan that share a data set.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluators, 1, repeated: true, type: CrucibleBridge.V1.EvaluatorSpec
  field :dataset, 2, type: CrucibleBridge.V1.Dataset
  field :sampling, 3, type: CrucibleBridge.V1.SamplingParams
  field :limits, 4, type: CrucibleBridge.V1.Limits
  field :metric_prefix, 5, type: :string, json_name: "metricPrefix"

  field :labels, 6,
    repeated: true,
    type: CrucibleBridge.V1.PlannedEvaluation.LabelsEntry,
    map: true

  field :record, 7, type: CrucibleBridge.V1.Record, enum: true

  field :models, 8,
    repeated: true,
    type: CrucibleBridge.V1.PlannedEvaluation.ModelsEntry,
    map: true
end

defmodule CrucibleBridge.V1.EvaluationPlan do
  @moduledoc """
  What is evaluated, and how often, while a run trains. At least one evaluation, and at most 64 evaluators together, of
  which no two may yield the same key.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :plan_id, 1, type: :string, json_name: "planId"
  field :run_id, 2, type: :string, json_name: "runId"
  field :eval_every, 3, type: :int64, json_name: "evalEvery"
  field :evaluations, 4, repeated: true, type: CrucibleBridge.V1.PlannedEvaluation
  field :infrequent_eval_every, 5, type: :int64, json_name: "infrequentEvalEvery"

  field :infrequent_evaluations, 6,
    repeated: true,
    type: CrucibleBridge.V1.PlannedEvaluation,
    json_name: "infrequentEvaluations"

  field :correlation_id, 7, type: :string, json_name: "correlationId"
  field :patience, 8, type: CrucibleBridge.V1.Patience
  field :log_to, 9, repeated: true, type: :string, json_name: "logTo"
  field :best_file, 10, type: :bool, json_name: "bestFile"
end

defmodule CrucibleBridge.V1.Patience do
  @moduledoc """
  How the best step of a plan is known, and how long a better one is waited for.

  Steps count in their order, whatever order they end in. The first one is the best. A later one takes its place if it is
  credibly better than the best before it: the paired difference of the samples' scores, with its interval, lies beyond
  min_delta. A value that is better, but not distinguishable, changes nothing.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :metric, 1, type: :string
  field :goal, 2, type: CrucibleBridge.V1.Goal, enum: true
  field :patience, 3, type: :int32
  field :min_delta, 4, type: :double, json_name: "minDelta"
  field :confidence, 5, proto3_optional: true, type: :double
end

defmodule CrucibleBridge.V1.RegisterPlanRequest do
  @moduledoc """
  Registers a plan.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :plan, 1, type: CrucibleBridge.V1.EvaluationPlan
end

defmodule CrucibleBridge.V1.RegisterPlanResponse do
  @moduledoc """
  The answer to RegisterPlan.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :fingerprint, 1, type: :string
  field :existed, 2, type: :bool
end

defmodule CrucibleBridge.V1.NotifyStepRequest do
  @moduledoc """
  Tells of a training step.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :plan_id, 1, type: :string, json_name: "planId"
  field :step, 2, type: :int64
  field :model, 3, type: CrucibleBridge.V1.ModelRef
  field :last, 4, type: :bool
end

defmodule CrucibleBridge.V1.NotifyStepResponse do
  @moduledoc """
  The answer to NotifyStep.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluations, 1, repeated: true, type: CrucibleBridge.V1.StartEvaluationResponse
end

defmodule CrucibleBridge.V1.FollowRunRequest do
  @moduledoc """
  Follows a directory in which a training run saves its checkpoints.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :run_id, 1, type: :string, json_name: "runId"
  field :directory, 2, type: :string
  field :plan, 3, type: CrucibleBridge.V1.EvaluationPlan
  field :plan_id, 4, type: :string, json_name: "planId"
  field :policy, 5, type: CrucibleBridge.V1.FollowPolicy, enum: true
  field :every, 6, type: :int64
  field :name_pattern, 7, type: :string, json_name: "namePattern"
  field :marker, 8, type: :string
  field :base_model, 9, type: CrucibleBridge.V1.ModelRef, json_name: "baseModel"
  field :hold_folder, 10, type: :string, json_name: "holdFolder"
  field :mark, 11, type: :bool
end

defmodule CrucibleBridge.V1.FollowRunResponse do
  @moduledoc """
  The answer to FollowRun.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :plan_id, 1, type: :string, json_name: "planId"
  field :existed, 2, type: :bool
end

defmodule CrucibleBridge.V1.UnfollowRunRequest do
  @moduledoc """
  Ends the following of a run.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :run_id, 1, type: :string, json_name: "runId"
end

defmodule CrucibleBridge.V1.UnfollowRunResponse do
  @moduledoc """
  The answer to UnfollowRun.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :followed, 1, type: :bool
end

defmodule CrucibleBridge.V1.CompareEvaluationsRequest do
  @moduledoc """
  Compares evaluations of one data set.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation_ids, 1, repeated: true, type: :string, json_name: "evaluationIds"
  field :run_id, 2, proto3_optional: true, type: :string, json_name: "runId"
  field :dataset_fingerprint, 3, type: :string, json_name: "datasetFingerprint"
  field :baseline_id, 4, type: :string, json_name: "baselineId"
  field :evaluator, 5, proto3_optional: true, type: :string
  field :rank_by, 6, type: CrucibleBridge.V1.RankBy, json_name: "rankBy"
  field :confidence, 7, proto3_optional: true, type: :double
  field :max_listed, 8, proto3_optional: true, type: :int32, json_name: "maxListed"
  field :cluster_by, 9, type: :string, json_name: "clusterBy"
  field :across_rules, 10, type: :bool, json_name: "acrossRules"
end

defmodule CrucibleBridge.V1.RankBy do
  @moduledoc """
  A metric, and which values of it are better.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :metric, 1, type: :string
  field :goal, 2, type: CrucibleBridge.V1.Goal, enum: true
  field :min_scored_share, 3, proto3_optional: true, type: :double, json_name: "minScoredShare"
end

defmodule CrucibleBridge.V1.SampleChange do
  @moduledoc """
  A sample that two evaluations scored differently.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :sample_id, 1, type: :string, json_name: "sampleId"
  field :baseline_score, 2, type: :double, json_name: "baselineScore"
  field :score, 3, type: :double
  field :input, 4, type: :string
end

defmodule CrucibleBridge.V1.PairedComparison do
  @moduledoc """
  An evaluator's scores in an evaluation beside those in the baseline, sample by sample. A sample's score is the mean of
  its repeats that have one; only samples with a score in both count.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :baseline_id, 1, type: :string, json_name: "baselineId"
  field :evaluation_id, 2, type: :string, json_name: "evaluationId"
  field :evaluator, 3, type: :string
  field :n_matched, 4, type: :int64, json_name: "nMatched"
  field :n_baseline_only, 5, type: :int64, json_name: "nBaselineOnly"
  field :n_evaluation_only, 6, type: :int64, json_name: "nEvaluationOnly"
  field :n_improved, 7, type: :int64, json_name: "nImproved"
  field :n_regressed, 8, type: :int64, json_name: "nRegressed"
  field :metrics, 9, type: CrucibleBridge.V1.Metrics
  field :interval_method, 10, type: :string, json_name: "intervalMethod"
  field :improvements, 11, repeated: true, type: CrucibleBridge.V1.SampleChange
  field :regressions, 12, repeated: true, type: CrucibleBridge.V1.SampleChange
  field :problem, 13, type: CrucibleBridge.V1.Problem
end

defmodule CrucibleBridge.V1.MetricSeries do
  @moduledoc """
  A metric over evaluations.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :points, 2, repeated: true, type: CrucibleBridge.V1.SeriesPoint
end

defmodule CrucibleBridge.V1.SeriesPoint.GraderVersionsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :int32
end

defmodule CrucibleBridge.V1.SeriesPoint do
  @moduledoc """
  One value of a series.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluation_id, 1, type: :string, json_name: "evaluationId"
  field :step, 2, proto3_optional: true, type: :int64
  field :value, 3, type: :double
  field :rules_version, 4, type: :int32, json_name: "rulesVersion"
  field :scored, 5, type: CrucibleBridge.V1.ScoredCount

  field :grader_versions, 6,
    repeated: true,
    type: CrucibleBridge.V1.SeriesPoint.GraderVersionsEntry,
    json_name: "graderVersions",
    map: true
end

defmodule CrucibleBridge.V1.CompareEvaluationsResponse do
  @moduledoc """
  The answer to CompareEvaluations.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluations, 1, repeated: true, type: CrucibleBridge.V1.Evaluation
  field :comparisons, 2, repeated: true, type: CrucibleBridge.V1.PairedComparison
  field :series, 3, repeated: true, type: CrucibleBridge.V1.MetricSeries
  field :best_evaluation_id, 4, type: :string, json_name: "bestEvaluationId"
  field :tied_evaluation_ids, 5, repeated: true, type: :string, json_name: "tiedEvaluationIds"
  field :tied_by, 6, type: :string, json_name: "tiedBy"

  field :unranked_evaluation_ids, 7,
    repeated: true,
    type: :string,
    json_name: "unrankedEvaluationIds"
end

defmodule CrucibleBridge.V1.GateMetric do
  @moduledoc """
  How much worse a metric may be.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :max_drop, 2, proto3_optional: true, type: :double, json_name: "maxDrop"
  field :max_relative_drop, 3, proto3_optional: true, type: :double, json_name: "maxRelativeDrop"
  field :tier, 4, type: CrucibleBridge.V1.GateTier, enum: true
  field :min_n, 5, proto3_optional: true, type: :int64, json_name: "minN"
  field :direction, 6, type: CrucibleBridge.V1.Goal, enum: true
end

defmodule CrucibleBridge.V1.GatePolicy do
  @moduledoc """
  What a candidate is held to.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :metrics, 1, repeated: true, type: CrucibleBridge.V1.GateMetric
  field :confidence, 2, proto3_optional: true, type: :double
  field :cluster_by, 3, type: :string, json_name: "clusterBy"

  field :max_unscored_share, 4,
    proto3_optional: true,
    type: :double,
    json_name: "maxUnscoredShare"
end

defmodule CrucibleBridge.V1.GateRequest do
  @moduledoc """
  Asks whether a candidate may take the place of a baseline.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :baseline_id, 1, type: :string, json_name: "baselineId"
  field :candidate_id, 2, type: :string, json_name: "candidateId"
  field :policy, 3, type: CrucibleBridge.V1.GatePolicy
  field :across_rules, 4, type: :bool, json_name: "acrossRules"
end

defmodule CrucibleBridge.V1.GatedMetric do
  @moduledoc """
  What a gate says of a metric.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :tier, 2, type: CrucibleBridge.V1.GateTier, enum: true
  field :verdict, 3, type: CrucibleBridge.V1.GateVerdict, enum: true
  field :reasons, 4, repeated: true, type: :string
  field :evaluator, 5, type: :string
  field :rests_on, 6, type: :string, json_name: "restsOn"
  field :n, 7, type: :int64
  field :metrics, 8, type: CrucibleBridge.V1.Metrics
end

defmodule CrucibleBridge.V1.GateResponse do
  @moduledoc """
  The answer to Gate.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :verdict, 1, type: CrucibleBridge.V1.GateVerdict, enum: true
  field :reasons, 2, repeated: true, type: :string
  field :metrics, 3, repeated: true, type: CrucibleBridge.V1.GatedMetric
end

defmodule CrucibleBridge.V1.EvaluationService.Service do
  @moduledoc """
  Runs evaluators on models.

  The life of an evaluation: QUEUED until a worker has room for it, RUNNING, then COMPLETED, FAILED or CANCELLED.
  An attempt that ends with its worker (drain, death, a journal that cannot be written) leaves it INTERRUPTED. A request
  with the same id and specification, at any worker of the journal, makes it QUEUED for a new attempt. It does so, too, if
  it FAILED with a problem that is retryable, or without any score; COMPLETED and CANCELLED are for good. A result is
  final, unless it is a retryable error: such samples, and those without a result, run in the new attempt; all of them do
  if none has a score. A sample's result and its event are written in one transaction and survive the worker's death. Any worker
  answers reads, watches and cancels for all evaluations of the journal.

  An evaluation that fails is no failed call: the call answers with state FAILED and a problem. Errors, beside those of
  every call, stand at each.
  """

  use GRPC.Service,
    name: "crucible_bridge.v1.EvaluationService",
    protoc_gen_elixir_version: "0.15.0"

  rpc :ListEvaluators,
      CrucibleBridge.V1.ListEvaluatorsRequest,
      CrucibleBridge.V1.ListEvaluatorsResponse

  rpc :Evaluate, CrucibleBridge.V1.EvaluateRequest, CrucibleBridge.V1.EvaluateResponse

  rpc :StartEvaluation,
      CrucibleBridge.V1.StartEvaluationRequest,
      CrucibleBridge.V1.StartEvaluationResponse

  rpc :EvaluateWithOrchestratorModel,
      stream(CrucibleBridge.V1.EvaluateWithOrchestratorModelRequest),
      stream(CrucibleBridge.V1.EvaluateWithOrchestratorModelResponse)

  rpc :WatchEvaluation,
      CrucibleBridge.V1.WatchEvaluationRequest,
      stream(CrucibleBridge.V1.EventBatch)

  rpc :GetEvaluation,
      CrucibleBridge.V1.GetEvaluationRequest,
      CrucibleBridge.V1.GetEvaluationResponse

  rpc :ListEvaluations,
      CrucibleBridge.V1.ListEvaluationsRequest,
      CrucibleBridge.V1.ListEvaluationsResponse

  rpc :GetSamples, CrucibleBridge.V1.GetSamplesRequest, CrucibleBridge.V1.GetSamplesResponse

  rpc :FindSamples, CrucibleBridge.V1.FindSamplesRequest, CrucibleBridge.V1.FindSamplesResponse

  rpc :CancelEvaluation,
      CrucibleBridge.V1.CancelEvaluationRequest,
      CrucibleBridge.V1.CancelEvaluationResponse

  rpc :PauseEvaluation,
      CrucibleBridge.V1.PauseEvaluationRequest,
      CrucibleBridge.V1.PauseEvaluationResponse

  rpc :ResumeEvaluation,
      CrucibleBridge.V1.ResumeEvaluationRequest,
      CrucibleBridge.V1.ResumeEvaluationResponse

  rpc :SetEvaluationConcurrency,
      CrucibleBridge.V1.SetEvaluationConcurrencyRequest,
      CrucibleBridge.V1.SetEvaluationConcurrencyResponse

  rpc :DeleteEvaluation,
      CrucibleBridge.V1.DeleteEvaluationRequest,
      CrucibleBridge.V1.DeleteEvaluationResponse

  rpc :ListRuns, CrucibleBridge.V1.ListRunsRequest, CrucibleBridge.V1.ListRunsResponse

  rpc :GenerateReport,
      CrucibleBridge.V1.GenerateReportRequest,
      CrucibleBridge.V1.GenerateReportResponse

  rpc :ReadDataset,
      CrucibleBridge.V1.ReadDatasetRequest,
      stream(CrucibleBridge.V1.ReadDatasetResponse)

  rpc :RenderSample, CrucibleBridge.V1.RenderSampleRequest, CrucibleBridge.V1.RenderSampleResponse

  rpc :CompareEvaluations,
      CrucibleBridge.V1.CompareEvaluationsRequest,
      CrucibleBridge.V1.CompareEvaluationsResponse

  rpc :Gate, CrucibleBridge.V1.GateRequest, CrucibleBridge.V1.GateResponse

  rpc :RegisterPlan, CrucibleBridge.V1.RegisterPlanRequest, CrucibleBridge.V1.RegisterPlanResponse

  rpc :NotifyStep, CrucibleBridge.V1.NotifyStepRequest, CrucibleBridge.V1.NotifyStepResponse

  rpc :FollowRun, CrucibleBridge.V1.FollowRunRequest, CrucibleBridge.V1.FollowRunResponse

  rpc :UnfollowRun, CrucibleBridge.V1.UnfollowRunRequest, CrucibleBridge.V1.UnfollowRunResponse
end

defmodule CrucibleBridge.V1.EvaluationService.Stub do
  use GRPC.Stub, service: CrucibleBridge.V1.EvaluationService.Service
end
