defmodule CrucibleBridge.V1.Dtype do
  @moduledoc """
  Element type of a tensor.
  """

  use Protobuf, enum: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :DTYPE_UNSPECIFIED, 0
  field :DTYPE_U8, 1
  field :DTYPE_BOOL, 2
  field :DTYPE_I32, 3
  field :DTYPE_I64, 4
  field :DTYPE_F16, 5
  field :DTYPE_BF16, 6
  field :DTYPE_F32, 7
  field :DTYPE_F64, 8
end

defmodule CrucibleBridge.V1.Verdict do
  @moduledoc """
  What was found of an answer. Unscored means UNDECIDED or ERROR: never counted as wrong.
  """

  use Protobuf, enum: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :VERDICT_UNSPECIFIED, 0
  field :VERDICT_CORRECT, 1
  field :VERDICT_INCORRECT, 2
  field :VERDICT_PARTIAL, 3
  field :VERDICT_UNDECIDED, 4
  field :VERDICT_ERROR, 5
  field :VERDICT_MEASURED, 6
end

defmodule CrucibleBridge.V1.Tensor do
  @moduledoc """
  A dense array. Never repeated floats: a million of them take Elixir 353 ms to decode, bytes take none.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :dtype, 1, type: CrucibleBridge.V1.Dtype, enum: true
  field :shape, 2, repeated: true, type: :int64
  field :data, 3, type: :bytes
end

defmodule CrucibleBridge.V1.ModelInputChunk do
  @moduledoc """
  A piece of a model's input.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :chunk, 0

  field :tokens, 1, type: CrucibleBridge.V1.Tensor, oneof: 0
  field :image, 2, type: CrucibleBridge.V1.ImageChunk, oneof: 0

  field :image_asset, 3,
    type: CrucibleBridge.V1.ImageAssetChunk,
    json_name: "imageAsset",
    oneof: 0
end

defmodule CrucibleBridge.V1.ImageChunk do
  @moduledoc """
  An encoded image inside a model's input.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :data, 1, type: :bytes
  field :format, 2, type: :string
  field :expected_tokens, 3, proto3_optional: true, type: :int32, json_name: "expectedTokens"
end

defmodule CrucibleBridge.V1.ImageAssetChunk do
  @moduledoc """
  A reference to an image the model's service already holds.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :location, 1, type: :string
  field :format, 2, type: :string
  field :expected_tokens, 3, proto3_optional: true, type: :int32, json_name: "expectedTokens"
end

defmodule CrucibleBridge.V1.ModelInput do
  @moduledoc """
  A model's input: chunks in order.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :chunks, 1, repeated: true, type: CrucibleBridge.V1.ModelInputChunk
end

defmodule CrucibleBridge.V1.Datum.LossFnInputsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: CrucibleBridge.V1.Tensor
end

defmodule CrucibleBridge.V1.Datum do
  @moduledoc """
  One training or evaluation example, one-to-one with the Elixir and the tinker type.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :model_input, 1, type: CrucibleBridge.V1.ModelInput, json_name: "modelInput"

  field :loss_fn_inputs, 2,
    repeated: true,
    type: CrucibleBridge.V1.Datum.LossFnInputsEntry,
    json_name: "lossFnInputs",
    map: true
end

defmodule CrucibleBridge.V1.Columns.ValuesEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: CrucibleBridge.V1.Tensor
end

defmodule CrucibleBridge.V1.Columns do
  @moduledoc """
  Many sequences end to end: one tensor a column, where a Datum has one a column and sequence. A thousand sequences are
  then written and read at the price of one.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :lengths, 1, type: CrucibleBridge.V1.Tensor
  field :values, 2, repeated: true, type: CrucibleBridge.V1.Columns.ValuesEntry, map: true
end

defmodule CrucibleBridge.V1.Conversation do
  @moduledoc """
  Messages in order.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :messages, 1, repeated: true, type: CrucibleBridge.V1.ChatMessage
  field :tools, 2, repeated: true, type: CrucibleBridge.V1.ToolSpec
end

defmodule CrucibleBridge.V1.ToolSpec do
  @moduledoc """
  A tool that a model may call. Chat templates get it in the form of OpenAI's API, its keys in the order of these
  fields: {"type": "function", "function": {"name": ..., "description": ..., "parameters": {...}}}.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :name, 1, type: :string
  field :description, 2, type: :string
  field :parameters, 3, type: :string
  field :strict, 4, proto3_optional: true, type: :bool
  field :returns, 5, type: :string
end

defmodule CrucibleBridge.V1.ChatMessage do
  @moduledoc """
  A message of a conversation.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :role, 1, type: :string
  field :content, 2, type: :string
  field :parts, 3, repeated: true, type: CrucibleBridge.V1.MessagePart
  field :tool_calls, 4, repeated: true, type: CrucibleBridge.V1.ToolCall, json_name: "toolCalls"
  field :tool_call_id, 5, type: :string, json_name: "toolCallId"
  field :name, 6, type: :string
  field :reasoning, 7, type: :string
  field :weight, 8, proto3_optional: true, type: :double
end

defmodule CrucibleBridge.V1.MessagePart do
  @moduledoc """
  A part of a message.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :part, 0

  field :text, 1, type: :string, oneof: 0
  field :image, 2, type: CrucibleBridge.V1.ImageChunk, oneof: 0

  field :image_asset, 3,
    type: CrucibleBridge.V1.ImageAssetChunk,
    json_name: "imageAsset",
    oneof: 0

  field :reasoning, 4, type: :string, oneof: 0
end

defmodule CrucibleBridge.V1.ToolCall do
  @moduledoc """
  A call of a tool.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :name, 1, type: :string
  field :arguments, 2, type: :string
  field :id, 3, type: :string
end

defmodule CrucibleBridge.V1.UnparsedToolCall do
  @moduledoc """
  A call of a tool that cannot be parsed.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :text, 1, type: :string
  field :error, 2, type: :string
end

defmodule CrucibleBridge.V1.ModelRef do
  @moduledoc """
  Where a model lives. Credentials never travel in it.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :model, 0

  field :embedded, 1, type: :string, oneof: 0
  field :local, 2, type: CrucibleBridge.V1.LocalModel, oneof: 0
  field :tinker, 3, type: CrucibleBridge.V1.TinkerModel, oneof: 0
  field :openai, 4, type: CrucibleBridge.V1.OpenAIModel, oneof: 0
  field :orchestrator, 5, type: CrucibleBridge.V1.OrchestratorModel, oneof: 0
  field :hub, 6, type: CrucibleBridge.V1.HubModel, oneof: 0
  field :installed, 7, type: CrucibleBridge.V1.InstalledModel, oneof: 0
end

defmodule CrucibleBridge.V1.LocalModel do
  @moduledoc """
  A Hugging Face causal language model on disk.

  Errors, as those of a call or as problems of its items:
  NOT_FOUND: MODEL_NOT_FOUND.
  PERMISSION_DENIED: PATH_OUT_OF_ROOT.
  FAILED_PRECONDITION: EXTRA_NOT_INSTALLED, NO_MODEL_ROOT, NO_MODEL_CONFIG, NO_ADAPTER_CONFIG, NO_SAFETENSORS,
  PICKLED_WEIGHTS_REFUSED, MODEL_REFUSED, ADAPTER_REFUSED (no LoRA adapter of this model, or in the model's place),
  DEVICE_NOT_FOUND, CHECKPOINT_CHANGED.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :path, 1, type: :string
  field :adapter_path, 2, proto3_optional: true, type: :string, json_name: "adapterPath"
  field :device, 3, proto3_optional: true, type: :string
  field :dtype, 4, proto3_optional: true, type: :string
end

defmodule CrucibleBridge.V1.HubModel do
  @moduledoc """
  A Hugging Face causal language model of the hub, or of the worker's cache of it: whether the hub is queried is the
  operator's to say. It is loaded as a LocalModel is: safetensors only, no code.

  Errors, as those of a call or as problems of its items: those of LocalModel; and
  NOT_FOUND: NOT_CACHED (the worker does not query the hub), MODEL_NOT_FOUND (the hub has no such repository or revision).
  UNAVAILABLE: HUB_UNREACHABLE (retryable), HUB_READER_DIED.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :repo_id, 1, type: :string, json_name: "repoId"
  field :revision, 2, proto3_optional: true, type: :string
  field :adapter_path, 3, proto3_optional: true, type: :string, json_name: "adapterPath"
  field :device, 4, proto3_optional: true, type: :string
  field :dtype, 5, proto3_optional: true, type: :string
end

defmodule CrucibleBridge.V1.TinkerModel do
  @moduledoc """
  A model of the Tinker service, or of a server that speaks its API. Exactly one of the paths and the base model; or
  both paths, as a training run saves them at one step: then it samples and answers forward passes, and each side is
  opened when it is first needed.

  Errors, as those of a call or as problems of its items:
  NOT_FOUND: UNKNOWN_SERVICE (not of this worker's settings), UNKNOWN_MODEL (of that service).
  FAILED_PRECONDITION: EXTRA_NOT_INSTALLED, BACKEND_KEY (the worker cannot read it, or it is of another kind),
  BACKEND_UNAUTHENTICATED, BACKEND_FORBIDDEN, BACKEND_QUOTA (to be paid first), BACKEND_REFUSED, BACKEND_REDIRECT,
  NO_TOKENIZER (it cannot be loaded).
  RESOURCE_EXHAUSTED: BACKEND_RATE_LIMITED.
  UNAVAILABLE: BACKEND_UNREACHABLE, BACKEND_TIMEOUT (nothing was answered for too long), BACKEND_FAILED,
  BACKEND_ANSWER.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :model_path, 1, proto3_optional: true, type: :string, json_name: "modelPath"
  field :state_path, 2, proto3_optional: true, type: :string, json_name: "statePath"
  field :base_model, 3, proto3_optional: true, type: :string, json_name: "baseModel"
  field :service, 4, proto3_optional: true, type: :string
end

defmodule CrucibleBridge.V1.OpenAIModel do
  @moduledoc """
  A model behind an OpenAI-compatible server. Its tokenizer lies there: text and conversations are sent as such.

  Errors, as those of a call or as problems of its items:
  NOT_FOUND: UNKNOWN_SERVER (not of this worker's settings), UNKNOWN_MODEL (of that server).
  FAILED_PRECONDITION: EXTRA_NOT_INSTALLED, BACKEND_KEY (the worker cannot read it), BACKEND_UNAUTHENTICATED,
  BACKEND_FORBIDDEN, BACKEND_QUOTA, BACKEND_REFUSED, BACKEND_REDIRECT, BACKEND_FILTERED (a filter cut the answer),
  NO_PROMPT_LOGPROBS (the server gives none), NO_TOKENIZER (only tokens can be measured), REPLICAS_DIFFER (the replicas
  of the server serve different models). If the server's numbers or names cannot be right: IMPOSSIBLE_LOGPROBS,
  PROMPT_DIFFERS (it has read another prompt than it was sent), SERVED_NAME_DIFFERS (require_served_name is set).
  RESOURCE_EXHAUSTED: BACKEND_RATE_LIMITED.
  UNAVAILABLE: BACKEND_UNREACHABLE, BACKEND_CONNECTION_LOST, BACKEND_TIMEOUT, BACKEND_FAILED, BACKEND_ANSWER.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :server, 1, type: :string
  field :model, 2, type: :string
end

defmodule CrucibleBridge.V1.OrchestratorModel do
  @moduledoc """
  A model that the orchestrator holds and answers for.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :name, 1, type: :string
end

defmodule CrucibleBridge.V1.InstalledModel do
  @moduledoc """
  A model of a backend that was installed alongside the worker. As one text: "SCHEME:NAME".

  Errors, as those of a call or as problems of its items: those that its backend raises; and
  FAILED_PRECONDITION: NO_BACKEND (none of this scheme is installed; the message names those there are), BAD_BACKEND,
  EXTRA_NOT_INSTALLED.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :scheme, 1, type: :string
  field :name, 2, type: :string
end

defmodule CrucibleBridge.V1.SamplingParams do
  @moduledoc """
  How to sample.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :max_tokens, 1, type: :int32, json_name: "maxTokens"
  field :temperature, 2, proto3_optional: true, type: :double
  field :top_p, 3, proto3_optional: true, type: :double, json_name: "topP"
  field :top_k, 4, proto3_optional: true, type: :int32, json_name: "topK"
  field :seed, 5, proto3_optional: true, type: :int64
  field :stop, 6, repeated: true, type: :string
end

defmodule CrucibleBridge.V1.Metrics.ValuesEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :double
end

defmodule CrucibleBridge.V1.Metrics.UndefinedEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :string
end

defmodule CrucibleBridge.V1.Metrics do
  @moduledoc """
  Numbers, and why some are missing.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :values, 1, repeated: true, type: CrucibleBridge.V1.Metrics.ValuesEntry, map: true
  field :undefined, 2, repeated: true, type: CrucibleBridge.V1.Metrics.UndefinedEntry, map: true
end

defmodule CrucibleBridge.V1.Problem do
  @moduledoc """
  What went wrong with one item of a batch, one sample or one evaluator; the same content a status carries.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :reason, 1, type: :string
  field :message, 2, type: :string
  field :field, 3, type: :string
  field :retryable, 4, type: :bool
end

defmodule CrucibleBridge.V1.Usage do
  @moduledoc """
  What models took and gave, in tokens, as their backends report it. Retried calls count as far as they were answered.

  A number is absent where no backend reports it, which is not 0. Where some calls report it and others do not, it is
  the sum over those that do.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :prompt_tokens, 1, proto3_optional: true, type: :int64, json_name: "promptTokens"

  field :cached_prompt_tokens, 2,
    proto3_optional: true,
    type: :int64,
    json_name: "cachedPromptTokens"

  field :reasoning_tokens, 3, proto3_optional: true, type: :int64, json_name: "reasoningTokens"
  field :output_tokens, 4, proto3_optional: true, type: :int64, json_name: "outputTokens"
  field :calls, 5, type: :int64
  field :unreported_calls, 6, type: :int64, json_name: "unreportedCalls"
  field :cost, 7, proto3_optional: true, type: :double
  field :judges, 8, repeated: true, type: CrucibleBridge.V1.ModelUsage
end

defmodule CrucibleBridge.V1.ModelUsage do
  @moduledoc """
  What one model took and gave.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :model, 1, type: :string
  field :usage, 2, type: CrucibleBridge.V1.Usage
end

defmodule CrucibleBridge.V1.ServerEngine.SentAsEntry do
  use Protobuf, map: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :key, 1, type: :string
  field :value, 2, type: :string
end

defmodule CrucibleBridge.V1.ServerEngine do
  @moduledoc """
  The program that serves a model, as far as its server says.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :name, 1, type: :string
  field :version, 2, type: :string
  field :fingerprint, 3, type: :string
  field :requested_name, 4, type: :string, json_name: "requestedName"
  field :served_names, 5, repeated: true, type: :string, json_name: "servedNames"
  field :listed_names, 6, repeated: true, type: :string, json_name: "listedNames"
  field :sampling_defaults, 7, type: :string, json_name: "samplingDefaults"

  field :probe_prompt_tokens, 8,
    proto3_optional: true,
    type: :int32,
    json_name: "probePromptTokens"

  field :stop_strings, 9, type: :string, json_name: "stopStrings"
  field :logprobs, 10, type: :string
  field :probe_problem, 11, type: CrucibleBridge.V1.Problem, json_name: "probeProblem"
  field :not_applied, 12, repeated: true, type: :string, json_name: "notApplied"

  field :sent_as, 13,
    repeated: true,
    type: CrucibleBridge.V1.ServerEngine.SentAsEntry,
    json_name: "sentAs",
    map: true
end
