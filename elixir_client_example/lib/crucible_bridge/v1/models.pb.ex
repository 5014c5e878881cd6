defmodule CrucibleBridge.V1.BatchLimits do
  @moduledoc """
  Bounds of a batch. The worker's defaults stand in WorkerInfo.limits under the names given here.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :concurrency, 1, proto3_optional: true, type: :int32
  field :deadline_ms, 2, proto3_optional: true, type: :int64, json_name: "deadlineMs"
  field :item_timeout_ms, 3, proto3_optional: true, type: :int64, json_name: "itemTimeoutMs"
end

defmodule CrucibleBridge.V1.SampleItem do
  @moduledoc """
  A prompt to continue.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :prompt, 0

  field :model_input, 1, type: CrucibleBridge.V1.ModelInput, json_name: "modelInput", oneof: 0
  field :text, 2, type: :string, oneof: 0
  field :conversation, 3, type: CrucibleBridge.V1.Conversation, oneof: 0
  field :num_samples, 4, proto3_optional: true, type: :int32, json_name: "numSamples"
  field :seed, 5, proto3_optional: true, type: :int64
  field :tool_choice, 6, type: :string, json_name: "toolChoice"
end

defmodule CrucibleBridge.V1.SampleRequest do
  @moduledoc """
  Samples continuations from a model.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :model, 1, type: CrucibleBridge.V1.ModelRef
  field :items, 2, repeated: true, type: CrucibleBridge.V1.SampleItem
  field :sampling, 3, type: CrucibleBridge.V1.SamplingParams
  field :limits, 4, type: CrucibleBridge.V1.BatchLimits
  field :top_logprobs, 5, proto3_optional: true, type: :int32, json_name: "topLogprobs"
end

defmodule CrucibleBridge.V1.SampledSequence do
  @moduledoc """
  A continuation.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :text, 1, type: :string
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
  field :top_tokens, 9, type: CrucibleBridge.V1.Tensor, json_name: "topTokens"
  field :top_logprobs, 10, type: CrucibleBridge.V1.Tensor, json_name: "topLogprobs"
  field :reasoning, 11, type: :string
  field :refusal, 12, type: :string
  field :tool_calls, 13, repeated: true, type: CrucibleBridge.V1.ToolCall, json_name: "toolCalls"

  field :unparsed_tool_calls, 14,
    repeated: true,
    type: CrucibleBridge.V1.UnparsedToolCall,
    json_name: "unparsedToolCalls"
end

defmodule CrucibleBridge.V1.SampledItem do
  @moduledoc """
  What became of an item.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :sequences, 1, repeated: true, type: CrucibleBridge.V1.SampledSequence
  field :prompt_tokens, 2, proto3_optional: true, type: :int32, json_name: "promptTokens"
  field :seed, 3, proto3_optional: true, type: :int64
  field :problem, 4, type: CrucibleBridge.V1.Problem
end

defmodule CrucibleBridge.V1.SampleResponse do
  @moduledoc """
  The answer to Sample.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :items, 1, repeated: true, type: CrucibleBridge.V1.SampledItem
  field :model_fingerprint, 2, type: :string, json_name: "modelFingerprint"
  field :usage, 3, type: CrucibleBridge.V1.Usage
end

defmodule CrucibleBridge.V1.LogprobsItem do
  @moduledoc """
  A sequence to measure.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :prompt, 0

  field :model_input, 1, type: CrucibleBridge.V1.ModelInput, json_name: "modelInput", oneof: 0
  field :text, 2, type: :string, oneof: 0
  field :conversation, 3, type: CrucibleBridge.V1.Conversation, oneof: 0
  field :continuation, 4, repeated: true, type: :int32
  field :targets, 5, type: CrucibleBridge.V1.Tensor
  field :last_n, 6, proto3_optional: true, type: :int32, json_name: "lastN"
end

defmodule CrucibleBridge.V1.Teacher do
  @moduledoc """
  One of the models that sequences are measured by together.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :model, 1, type: CrucibleBridge.V1.ModelRef
  field :weight, 2, proto3_optional: true, type: :double
  field :items, 3, repeated: true, type: :int32
end

defmodule CrucibleBridge.V1.ComputeLogprobsRequest do
  @moduledoc """
  Computes how likely sequences are for a model, or for teachers together.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :model, 1, type: CrucibleBridge.V1.ModelRef
  field :sequences, 2, repeated: true, type: CrucibleBridge.V1.ModelInput
  field :limits, 3, type: CrucibleBridge.V1.BatchLimits
  field :items, 4, repeated: true, type: CrucibleBridge.V1.LogprobsItem
  field :top_k, 5, proto3_optional: true, type: :int32, json_name: "topK"
  field :last_n, 6, proto3_optional: true, type: :int32, json_name: "lastN"
  field :add_special_tokens, 7, type: :bool, json_name: "addSpecialTokens"
  field :teachers, 8, repeated: true, type: CrucibleBridge.V1.Teacher
end

defmodule CrucibleBridge.V1.SequenceLogprobs do
  @moduledoc """
  What became of a sequence.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :logprobs, 1, type: CrucibleBridge.V1.Tensor
  field :problem, 2, type: CrucibleBridge.V1.Problem
  field :first, 3, type: :int32
  field :tokens, 4, repeated: true, type: :int32
  field :top_tokens, 5, type: CrucibleBridge.V1.Tensor, json_name: "topTokens"
  field :top_logprobs, 6, type: CrucibleBridge.V1.Tensor, json_name: "topLogprobs"
  field :target_logprobs, 7, type: CrucibleBridge.V1.Tensor, json_name: "targetLogprobs"
end

defmodule CrucibleBridge.V1.TeacherAnswer do
  @moduledoc """
  What a teacher took.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :model_fingerprint, 1, type: :string, json_name: "modelFingerprint"
  field :usage, 2, type: CrucibleBridge.V1.Usage
end

defmodule CrucibleBridge.V1.ComputeLogprobsResponse do
  @moduledoc """
  The answer to ComputeLogprobs.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :sequences, 1, repeated: true, type: CrucibleBridge.V1.SequenceLogprobs
  field :model_fingerprint, 2, type: :string, json_name: "modelFingerprint"
  field :usage, 3, type: CrucibleBridge.V1.Usage
  field :teachers, 4, repeated: true, type: CrucibleBridge.V1.TeacherAnswer
end

defmodule CrucibleBridge.V1.ForwardItem do
  @moduledoc """
  What a forward pass reads.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :input, 0

  field :datum, 1, type: CrucibleBridge.V1.Datum, oneof: 0
  field :text, 2, type: :string, oneof: 0
  field :conversation, 3, type: CrucibleBridge.V1.Conversation, oneof: 0
end

defmodule CrucibleBridge.V1.ForwardRequest do
  @moduledoc """
  A forward pass of a model: no gradients, and the model does not change.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :model, 1, type: CrucibleBridge.V1.ModelRef
  field :data, 2, repeated: true, type: CrucibleBridge.V1.Datum
  field :limits, 3, type: CrucibleBridge.V1.BatchLimits
  field :items, 4, repeated: true, type: CrucibleBridge.V1.ForwardItem
  field :train_on, 5, type: :string, json_name: "trainOn"
  field :add_special_tokens, 6, type: :bool, json_name: "addSpecialTokens"
end

defmodule CrucibleBridge.V1.ForwardOutput do
  @moduledoc """
  What became of a datum.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :logprobs, 1, type: CrucibleBridge.V1.Tensor
  field :loss, 2, proto3_optional: true, type: :double
  field :problem, 3, type: CrucibleBridge.V1.Problem
  field :tokens, 4, repeated: true, type: :int32
  field :weights, 5, repeated: true, type: :float
end

defmodule CrucibleBridge.V1.ForwardResponse do
  @moduledoc """
  The answer to Forward.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :outputs, 1, repeated: true, type: CrucibleBridge.V1.ForwardOutput
  field :model_fingerprint, 2, type: :string, json_name: "modelFingerprint"
  field :usage, 3, type: CrucibleBridge.V1.Usage
end

defmodule CrucibleBridge.V1.ModelService.Service do
  @moduledoc """
  The models of the evaluators, for orchestrators: teachers, reference policies. Nothing is recorded, and no event is
  written.

  The items of a batch are queried concurrently, and again after a retryable error. Every item has a result or a
  problem, in the order given. Reasons of problems: INVALID_FIELD (the field says where), PROMPT_TOO_LONG,
  NO_TOKENIZER, NO_CHAT_TEMPLATE, ITEM_TIMEOUT, DEADLINE_EXCEEDED, ANSWER_TOO_LARGE (no room is left in the message:
  send smaller batches), INTERNAL (a bug; the worker's log has it). If a model's service does not report what is
  requested: NO_TOP_LOGPROBS, NO_TARGET_LOGPROBS, NO_PROMPT_LOGPROBS. If a log-probability is above 0 by more than
  rounding: IMPOSSIBLE_LOGPROBS. Further ones: those below that are about one item, those of UNAVAILABLE, and those of
  the model's kind (see LocalModel, TinkerModel, OpenAIModel). After its client has left, a call queries nothing more.

  The likeliest tokens, of prompts and of samples, come from embedded and local models, from Tinker models that sample,
  and from OpenAI-compatible servers that name tokens by their ids, as vLLM does. Targets come from the same models,
  servers excepted. Other models refuse a call that requests them with MISSING_CLIENT.

  Errors of the three calls, after which no item has an answer:
  INVALID_ARGUMENT: INVALID_FIELD (model, sampling, limits, no item or too many of them).
  NOT_FOUND: UNKNOWN_EMBEDDED_MODEL, MODEL_NOT_FOUND, UNKNOWN_SERVER.
  PERMISSION_DENIED: PATH_OUT_OF_ROOT.
  FAILED_PRECONDITION: NO_MODEL_ROOT, NO_BACKEND, EXTRA_NOT_INSTALLED (of this worker); MISSING_CLIENT (the model does
  not support the call), NO_MODEL_CONFIG, NO_SAFETENSORS, PICKLED_WEIGHTS_REFUSED, ADAPTER_REFUSED, MODEL_REFUSED,
  CHECKPOINT_CHANGED (of the model).
  DEADLINE_EXCEEDED: limits.deadline_ms was over before the model was ready.
  UNAVAILABLE: BACKEND_FAILED, BACKEND_ANSWER, BACKEND_CANCELLED, BACKEND_CLOSED, HOST_DIED, HOST_NOT_STARTED,
  MODEL_FAILED, LOGITS_NOT_FINITE, OUT_OF_MEMORY, where the model could not be loaded.
  """

  use GRPC.Service, name: "crucible_bridge.v1.ModelService", protoc_gen_elixir_version: "0.15.0"

  rpc :Sample, CrucibleBridge.V1.SampleRequest, CrucibleBridge.V1.SampleResponse

  rpc :ComputeLogprobs,
      CrucibleBridge.V1.ComputeLogprobsRequest,
      CrucibleBridge.V1.ComputeLogprobsResponse

  rpc :Forward, CrucibleBridge.V1.ForwardRequest, CrucibleBridge.V1.ForwardResponse
end

defmodule CrucibleBridge.V1.ModelService.Stub do
  use GRPC.Stub, service: CrucibleBridge.V1.ModelService.Service
end
