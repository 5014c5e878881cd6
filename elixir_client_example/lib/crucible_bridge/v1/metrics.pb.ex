defmodule CrucibleBridge.V1.ComputeKLSampleTrainRequest do
  @moduledoc """
  Data with the log-probabilities of a second policy.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :data, 1, repeated: true, type: CrucibleBridge.V1.Datum

  field :training_logprobs, 2,
    repeated: true,
    type: CrucibleBridge.V1.Tensor,
    json_name: "trainingLogprobs"

  field :extended, 3, type: :bool
  field :columns, 4, type: CrucibleBridge.V1.Columns
end

defmodule CrucibleBridge.V1.ComputeKLSampleTrainResponse.PerSequenceEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: CrucibleBridge.V1.Tensor
end

defmodule CrucibleBridge.V1.ComputeKLSampleTrainResponse do
  @moduledoc """
  optim/kl_sample_train_v1, optim/kl_sample_train_v2, optim/entropy.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :metrics, 1, type: CrucibleBridge.V1.Metrics
  field :action_tokens, 2, type: :int64, json_name: "actionTokens"

  field :per_sequence, 3,
    repeated: true,
    type: CrucibleBridge.V1.ComputeKLSampleTrainResponse.PerSequenceEntry,
    json_name: "perSequence",
    map: true
end

defmodule CrucibleBridge.V1.LogprobSource do
  @moduledoc """
  Where the log-probabilities of another policy come from.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :source, 0

  field :given, 1, type: CrucibleBridge.V1.TensorList, oneof: 0
  field :model, 2, type: CrucibleBridge.V1.ModelRef, oneof: 0
end

defmodule CrucibleBridge.V1.TensorList do
  @moduledoc """
  Tensors in order.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :tensors, 1, repeated: true, type: CrucibleBridge.V1.Tensor
end

defmodule CrucibleBridge.V1.ComputeKLPostUpdateRequest do
  @moduledoc """
  Data before an update, and the policy after it.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :data, 1, repeated: true, type: CrucibleBridge.V1.Datum
  field :updated, 2, type: CrucibleBridge.V1.LogprobSource
  field :deadline_ms, 3, proto3_optional: true, type: :int64, json_name: "deadlineMs"
  field :columns, 4, type: CrucibleBridge.V1.Columns
end

defmodule CrucibleBridge.V1.ComputeKLPostUpdateResponse do
  @moduledoc """
  kl_pre_post_v1, kl_pre_post_v2.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :metrics, 1, type: CrucibleBridge.V1.Metrics
  field :action_tokens, 2, type: :int64, json_name: "actionTokens"
  field :usage, 3, type: CrucibleBridge.V1.Usage
end

defmodule CrucibleBridge.V1.IncorporateKLPenaltyRequest do
  @moduledoc """
  Data whose advantages take a penalty for leaving the base policy.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :data, 1, repeated: true, type: CrucibleBridge.V1.Datum
  field :base, 2, type: CrucibleBridge.V1.LogprobSource
  field :kl_penalty_coef, 3, type: :double, json_name: "klPenaltyCoef"
  field :kl_discount_factor, 4, type: :double, json_name: "klDiscountFactor"
  field :deadline_ms, 5, proto3_optional: true, type: :int64, json_name: "deadlineMs"
  field :columns, 6, type: CrucibleBridge.V1.Columns
  field :reverse_kl, 7, type: :bool, json_name: "reverseKl"
  field :datasets, 8, repeated: true, type: :string
end

defmodule CrucibleBridge.V1.IncorporateKLPenaltyResponse do
  @moduledoc """
  kl_policy_base, or teacher_kl, and the new advantages.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :metrics, 1, type: CrucibleBridge.V1.Metrics
  field :advantages, 2, repeated: true, type: CrucibleBridge.V1.Tensor
  field :usage, 3, type: CrucibleBridge.V1.Usage
  field :without_penalty, 4, repeated: true, type: :string, json_name: "withoutPenalty"
end

defmodule CrucibleBridge.V1.ComputeMeanNLLRequest do
  @moduledoc """
  Log-probabilities with weights.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :logprobs, 1, repeated: true, type: CrucibleBridge.V1.Tensor
  field :weights, 2, repeated: true, type: CrucibleBridge.V1.Tensor
  field :columns, 3, type: CrucibleBridge.V1.Columns
end

defmodule CrucibleBridge.V1.ComputeMeanNLLResponse do
  @moduledoc """
  nll, perplexity.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :metrics, 1, type: CrucibleBridge.V1.Metrics
  field :total_weight, 2, type: :double, json_name: "totalWeight"
end

defmodule CrucibleBridge.V1.TrajectoryBatch.TransitionMetricsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: CrucibleBridge.V1.Tensor
end

defmodule CrucibleBridge.V1.TrajectoryBatch.TrajectoryMetricsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: CrucibleBridge.V1.Tensor
end

defmodule CrucibleBridge.V1.TrajectoryBatch.TransitionMetricPresentEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: CrucibleBridge.V1.Tensor
end

defmodule CrucibleBridge.V1.TrajectoryBatch.TrajectoryMetricPresentEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: CrucibleBridge.V1.Tensor
end

defmodule CrucibleBridge.V1.TrajectoryBatch do
  @moduledoc """
  Trajectories in columns: groups hold trajectories, trajectories hold transitions.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :trajectories_per_group, 1,
    type: CrucibleBridge.V1.Tensor,
    json_name: "trajectoriesPerGroup"

  field :transitions_per_trajectory, 2,
    type: CrucibleBridge.V1.Tensor,
    json_name: "transitionsPerTrajectory"

  field :action_tokens, 3, type: CrucibleBridge.V1.Tensor, json_name: "actionTokens"
  field :observation_tokens, 4, type: CrucibleBridge.V1.Tensor, json_name: "observationTokens"
  field :rewards, 5, type: CrucibleBridge.V1.Tensor
  field :final_rewards, 6, type: CrucibleBridge.V1.Tensor, json_name: "finalRewards"

  field :transition_metrics, 7,
    repeated: true,
    type: CrucibleBridge.V1.TrajectoryBatch.TransitionMetricsEntry,
    json_name: "transitionMetrics",
    map: true

  field :trajectory_metrics, 8,
    repeated: true,
    type: CrucibleBridge.V1.TrajectoryBatch.TrajectoryMetricsEntry,
    json_name: "trajectoryMetrics",
    map: true

  field :tags, 9, repeated: true, type: CrucibleBridge.V1.Tags

  field :transition_metric_present, 10,
    repeated: true,
    type: CrucibleBridge.V1.TrajectoryBatch.TransitionMetricPresentEntry,
    json_name: "transitionMetricPresent",
    map: true

  field :trajectory_metric_present, 11,
    repeated: true,
    type: CrucibleBridge.V1.TrajectoryBatch.TrajectoryMetricPresentEntry,
    json_name: "trajectoryMetricPresent",
    map: true

  field :cached_observation_tokens, 12,
    type: CrucibleBridge.V1.Tensor,
    json_name: "cachedObservationTokens"
end

defmodule CrucibleBridge.V1.Tags do
  @moduledoc """
  The tags of a group.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :tags, 1, repeated: true, type: :string
end

defmodule CrucibleBridge.V1.ComputeTrajectoryMetricsRequest do
  @moduledoc """
  Trajectories to summarise.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :batch, 1, type: CrucibleBridge.V1.TrajectoryBatch
  field :good_threshold, 2, proto3_optional: true, type: :double, json_name: "goodThreshold"
end

defmodule CrucibleBridge.V1.ComputeTrajectoryMetricsResponse do
  @moduledoc """
  env/all/... and env/<tag>/...
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :metrics, 1, type: CrucibleBridge.V1.Metrics
end

defmodule CrucibleBridge.V1.PreferencePair do
  @moduledoc """
  Two answers to one prompt.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :chosen, 1, type: CrucibleBridge.V1.Conversation
  field :rejected, 2, type: CrucibleBridge.V1.Conversation
end

defmodule CrucibleBridge.V1.ComputeDPOMetricsRequest do
  @moduledoc """
  Preference pairs: log-probabilities, or models to query for them.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :chosen_logprobs, 1, type: CrucibleBridge.V1.Tensor, json_name: "chosenLogprobs"
  field :rejected_logprobs, 2, type: CrucibleBridge.V1.Tensor, json_name: "rejectedLogprobs"

  field :chosen_reference_logprobs, 3,
    type: CrucibleBridge.V1.Tensor,
    json_name: "chosenReferenceLogprobs"

  field :rejected_reference_logprobs, 4,
    type: CrucibleBridge.V1.Tensor,
    json_name: "rejectedReferenceLogprobs"

  field :dpo_beta, 5, type: :double, json_name: "dpoBeta"
  field :policy, 6, type: CrucibleBridge.V1.ModelRef
  field :reference, 7, type: CrucibleBridge.V1.ModelRef
  field :pairs, 8, repeated: true, type: CrucibleBridge.V1.PreferencePair
  field :deadline_ms, 9, proto3_optional: true, type: :int64, json_name: "deadlineMs"
end

defmodule CrucibleBridge.V1.ComputeDPOMetricsResponse do
  @moduledoc """
  dpo_loss, accuracy, margin, chosen_reward, rejected_reward.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :metrics, 1, type: CrucibleBridge.V1.Metrics
  field :policy_usage, 2, type: CrucibleBridge.V1.Usage, json_name: "policyUsage"
  field :reference_usage, 3, type: CrucibleBridge.V1.Usage, json_name: "referenceUsage"
  field :chosen_logprobs, 4, type: CrucibleBridge.V1.Tensor, json_name: "chosenLogprobs"
  field :rejected_logprobs, 5, type: CrucibleBridge.V1.Tensor, json_name: "rejectedLogprobs"

  field :chosen_reference_logprobs, 6,
    type: CrucibleBridge.V1.Tensor,
    json_name: "chosenReferenceLogprobs"

  field :rejected_reference_logprobs, 7,
    type: CrucibleBridge.V1.Tensor,
    json_name: "rejectedReferenceLogprobs"
end

defmodule CrucibleBridge.V1.ComputeSamplingClientMetricsRequest do
  @moduledoc """
  Which training step sampled each group, and how long that took.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :sampling_client_steps, 1,
    type: CrucibleBridge.V1.Tensor,
    json_name: "samplingClientSteps"

  field :sampling_seconds, 2, type: CrucibleBridge.V1.Tensor, json_name: "samplingSeconds"
end

defmodule CrucibleBridge.V1.ComputeSamplingClientMetricsResponse do
  @moduledoc """
  sampling_client/step_max|min|mean, time/sampling_time_max|min|mean.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :metrics, 1, type: CrucibleBridge.V1.Metrics
end

defmodule CrucibleBridge.V1.ComputeClassificationMetricsRequest do
  @moduledoc """
  Predicted and true labels.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :predictions, 1, repeated: true, type: :string
  field :targets, 2, repeated: true, type: :string
  field :positive, 3, proto3_optional: true, type: :string
end

defmodule CrucibleBridge.V1.ComputeClassificationMetricsResponse do
  @moduledoc """
  accuracy, precision, recall, f1, and per class.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :metrics, 1, type: CrucibleBridge.V1.Metrics
end

defmodule CrucibleBridge.V1.ComputePassAtKRequest do
  @moduledoc """
  Samples and successes per problem.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :samples, 1, type: CrucibleBridge.V1.Tensor
  field :successes, 2, type: CrucibleBridge.V1.Tensor
  field :k, 3, repeated: true, type: :int32
end

defmodule CrucibleBridge.V1.ComputePassAtKResponse do
  @moduledoc """
  pass@<k>.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :metrics, 1, type: CrucibleBridge.V1.Metrics
end

defmodule CrucibleBridge.V1.MetricsService.Service do
  @moduledoc """
  Training metrics. Nothing is kept: a call that failed is made again. What has no value is undefined, with the reason,
  and no error; INVALID_FIELD names what cannot be computed with, such as lengths that differ.
  """

  use GRPC.Service, name: "crucible_bridge.v1.MetricsService", protoc_gen_elixir_version: "0.15.0"

  rpc :ComputeKLSampleTrain,
      CrucibleBridge.V1.ComputeKLSampleTrainRequest,
      CrucibleBridge.V1.ComputeKLSampleTrainResponse

  rpc :ComputeKLPostUpdate,
      CrucibleBridge.V1.ComputeKLPostUpdateRequest,
      CrucibleBridge.V1.ComputeKLPostUpdateResponse

  rpc :IncorporateKLPenalty,
      CrucibleBridge.V1.IncorporateKLPenaltyRequest,
      CrucibleBridge.V1.IncorporateKLPenaltyResponse

  rpc :ComputeMeanNLL,
      CrucibleBridge.V1.ComputeMeanNLLRequest,
      CrucibleBridge.V1.ComputeMeanNLLResponse

  rpc :ComputeTrajectoryMetrics,
      CrucibleBridge.V1.ComputeTrajectoryMetricsRequest,
      CrucibleBridge.V1.ComputeTrajectoryMetricsResponse

  rpc :ComputeDPOMetrics,
      CrucibleBridge.V1.ComputeDPOMetricsRequest,
      CrucibleBridge.V1.ComputeDPOMetricsResponse

  rpc :ComputeSamplingClientMetrics,
      CrucibleBridge.V1.ComputeSamplingClientMetricsRequest,
      CrucibleBridge.V1.ComputeSamplingClientMetricsResponse

  rpc :ComputeClassificationMetrics,
      CrucibleBridge.V1.ComputeClassificationMetricsRequest,
      CrucibleBridge.V1.ComputeClassificationMetricsResponse

  rpc :ComputePassAtK,
      CrucibleBridge.V1.ComputePassAtKRequest,
      CrucibleBridge.V1.ComputePassAtKResponse
end

defmodule CrucibleBridge.V1.MetricsService.Stub do
  use GRPC.Stub, service: CrucibleBridge.V1.MetricsService.Service
end
