defmodule CrucibleBridge.V1.OrchestratorCall do
  @moduledoc """
  What a model that its orchestrator holds can be asked for.
  """

  use Protobuf, enum: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :ORCHESTRATOR_CALL_UNSPECIFIED, 0
  field :ORCHESTRATOR_CALL_SAMPLE, 1
  field :ORCHESTRATOR_CALL_LOGPROBS, 2
  field :ORCHESTRATOR_CALL_FORWARD, 3
end

defmodule CrucibleBridge.V1.OrchestratorQuestion do
  @moduledoc """
  Something to ask the model.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :question, 0

  field :id, 1, type: :uint64
  field :sample, 2, type: CrucibleBridge.V1.SampleQuestion, oneof: 0
  field :logprobs, 3, type: CrucibleBridge.V1.LogprobsQuestion, oneof: 0
  field :forward, 4, type: CrucibleBridge.V1.ForwardQuestion, oneof: 0
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

defmodule CrucibleBridge.V1.OrchestratorAnswer do
  @moduledoc """
  What the model answered.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :answer, 0

  field :id, 1, type: :uint64
  field :sample, 2, type: CrucibleBridge.V1.AnsweredSample, oneof: 0
  field :logprobs, 3, type: CrucibleBridge.V1.Tensor, oneof: 0
  field :forward, 4, type: CrucibleBridge.V1.AnsweredForward, oneof: 0
  field :problem, 5, type: CrucibleBridge.V1.Problem, oneof: 0
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
