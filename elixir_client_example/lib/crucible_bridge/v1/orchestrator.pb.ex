defmodule CrucibleBridge.V1.OrchestratorCall do
  @moduledoc """
  What a model that its orchestrator holds can be asked for.
  """

  use Protobuf, enum: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :ORCHESTRATOR_CALL_UNSPECIFIED, 0
  field :ORCHESTRATOR_CALL_SAMPLE, 1
  field :ORCHESTRATOR_CALL_LOGPROBS, 2
  field :ORCHESTRATOR_CALL_FORWARD, 3
  field :ORCHESTRATOR_CALL_ARGMAX, 4
end

defmodule CrucibleBridge.V1.OrchestratorQuestion do
  @moduledoc """
  Something to ask the model, a grader or an environment.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :question, 0

  field :id, 1, type: :uint64
  field :sample, 2, type: CrucibleBridge.V1.SampleQuestion, oneof: 0
  field :logprobs, 3, type: CrucibleBridge.V1.LogprobsQuestion, oneof: 0
  field :forward, 4, type: CrucibleBridge.V1.ForwardQuestion, oneof: 0
  field :argmax, 20, type: CrucibleBridge.V1.ArgmaxQuestion, oneof: 0
  field :grade, 5, type: CrucibleBridge.V1.GradeQuestion, oneof: 0
  field :environment, 6, type: CrucibleBridge.V1.EnvironmentQuestion, oneof: 0
end

defmodule CrucibleBridge.V1.SampleQuestion do
  @moduledoc """
  Asks for continuations of a prompt.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :prompt, 0

  field :model_input, 1, type: CrucibleBridge.V1.ModelInput, json_name: "modelInput", oneof: 0
  field :text, 2, type: :string, oneof: 0
  field :conversation, 3, type: CrucibleBridge.V1.Conversation, oneof: 0
  field :num_samples, 4, type: :int32, json_name: "numSamples"
  field :sampling, 5, type: CrucibleBridge.V1.SamplingParams
  field :plain, 6, type: :bool
end

defmodule CrucibleBridge.V1.LogprobsQuestion do
  @moduledoc """
  Asks for log-probabilities of a sequence.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :sequence, 1, type: CrucibleBridge.V1.ModelInput
end

defmodule CrucibleBridge.V1.ForwardQuestion do
  @moduledoc """
  Asks for a forward pass.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :data, 1, repeated: true, type: CrucibleBridge.V1.Datum
end

defmodule CrucibleBridge.V1.ArgmaxQuestion do
  @moduledoc """
  Asks for the likeliest token at every position of a sequence, given the sequence's own tokens before it.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :sequence, 1, type: CrucibleBridge.V1.ModelInput
end

defmodule CrucibleBridge.V1.AskedSample.MetadataEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :string
end

defmodule CrucibleBridge.V1.AskedSample do
  @moduledoc """
  A sample, as graders and environments of the orchestrator see it.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :input, 0

  field :id, 1, type: :string
  field :text, 2, type: :string, oneof: 0
  field :conversation, 3, type: CrucibleBridge.V1.Conversation, oneof: 0
  field :model_input, 4, type: CrucibleBridge.V1.ModelInput, json_name: "modelInput", oneof: 0
  field :targets, 5, repeated: true, type: :string
  field :choices, 6, repeated: true, type: :string
  field :metadata, 7, repeated: true, type: CrucibleBridge.V1.AskedSample.MetadataEntry, map: true
  field :choice_labels, 8, repeated: true, type: :string, json_name: "choiceLabels"
end

defmodule CrucibleBridge.V1.GradeQuestion do
  @moduledoc """
  Asks for the grade of one answer. The same answer may be asked for again after a retryable problem, and on another
  stream where its grade was not recorded.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :grader, 1, type: :string
  field :evaluator, 2, type: :string
  field :sample, 3, type: CrucibleBridge.V1.AskedSample
  field :repeat, 4, type: :int32
  field :response, 5, type: :string
end

defmodule CrucibleBridge.V1.EnvironmentQuestion do
  @moduledoc """
  Asks an environment. Questions of one episode follow each other; episodes are independent of each other.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :question, 0

  field :environment, 1, type: :string
  field :episode, 2, type: :uint64
  field :open, 3, type: CrucibleBridge.V1.OpenEpisode, oneof: 0
  field :step, 4, type: CrucibleBridge.V1.EpisodeAction, oneof: 0
end

defmodule CrucibleBridge.V1.OpenEpisode do
  @moduledoc """
  Begins an episode.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :evaluator, 1, type: :string
  field :sample, 2, type: CrucibleBridge.V1.AskedSample
  field :seed, 3, type: :uint64
  field :rollout, 4, type: :int32
  field :options, 5, type: Google.Protobuf.Struct
end

defmodule CrucibleBridge.V1.EpisodeAction do
  @moduledoc """
  What the model did in an episode.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :turn, 1, type: :int32
  field :text, 2, type: :string
  field :tokens, 3, type: CrucibleBridge.V1.Tensor
  field :stop_reason, 4, type: :string, json_name: "stopReason"
end

defmodule CrucibleBridge.V1.OrchestratorAnswer do
  @moduledoc """
  What the model, the grader or the environment answered.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :answer, 0

  field :id, 1, type: :uint64
  field :sample, 2, type: CrucibleBridge.V1.AnsweredSample, oneof: 0
  field :logprobs, 3, type: CrucibleBridge.V1.Tensor, oneof: 0
  field :forward, 4, type: CrucibleBridge.V1.AnsweredForward, oneof: 0
  field :problem, 5, type: CrucibleBridge.V1.Problem, oneof: 0
  field :argmax, 20, type: CrucibleBridge.V1.Tensor, oneof: 0
  field :grade, 6, type: CrucibleBridge.V1.AnsweredGrade, oneof: 0
  field :environment, 7, type: CrucibleBridge.V1.AnsweredEnvironment, oneof: 0
end

defmodule CrucibleBridge.V1.AnsweredSample do
  @moduledoc """
  Continuations of a prompt.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :sequences, 1, repeated: true, type: CrucibleBridge.V1.AnsweredSequence
end

defmodule CrucibleBridge.V1.AnsweredSequence do
  @moduledoc """
  A continuation.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :text, 1, type: :bytes
  field :tokens, 2, type: CrucibleBridge.V1.Tensor
  field :logprobs, 3, type: CrucibleBridge.V1.Tensor
  field :stop_reason, 4, type: :string, json_name: "stopReason"
  field :output_tokens, 5, proto3_optional: true, type: :int32, json_name: "outputTokens"
  field :prompt_tokens, 6, proto3_optional: true, type: :int32, json_name: "promptTokens"

  field :cached_prompt_tokens, 7,
    proto3_optional: true,
    type: :int32,
    json_name: "cachedPromptTokens"

  field :reasoning_tokens, 8, proto3_optional: true, type: :int32, json_name: "reasoningTokens"
end

defmodule CrucibleBridge.V1.AnsweredForward do
  @moduledoc """
  The outputs of a forward pass.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :logprobs, 1, repeated: true, type: CrucibleBridge.V1.Tensor
end

defmodule CrucibleBridge.V1.AnsweredGrade.MeasurementsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :double
end

defmodule CrucibleBridge.V1.AnsweredGrade do
  @moduledoc """
  The grade of an answer: a verdict, a score, or both.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :verdict, 1, type: CrucibleBridge.V1.Verdict, enum: true
  field :score, 2, proto3_optional: true, type: :double
  field :reason, 3, type: :string
  field :extracted, 4, type: :string

  field :measurements, 5,
    repeated: true,
    type: CrucibleBridge.V1.AnsweredGrade.MeasurementsEntry,
    map: true
end

defmodule CrucibleBridge.V1.AnsweredEnvironment.MetricsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :double
end

defmodule CrucibleBridge.V1.AnsweredEnvironment do
  @moduledoc """
  What follows in an episode. A first answer that is `done` is an episode in which the model is not asked.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :observation, 0

  field :text, 1, type: :string, oneof: 0
  field :conversation, 2, type: CrucibleBridge.V1.Conversation, oneof: 0
  field :model_input, 3, type: CrucibleBridge.V1.ModelInput, json_name: "modelInput", oneof: 0
  field :reward, 4, type: :double
  field :done, 5, type: :bool

  field :metrics, 6,
    repeated: true,
    type: CrucibleBridge.V1.AnsweredEnvironment.MetricsEntry,
    map: true

  field :stop, 7, repeated: true, type: :string
  field :stop_tokens, 8, repeated: true, type: :int32, json_name: "stopTokens"
  field :tags, 9, repeated: true, type: :string
end
