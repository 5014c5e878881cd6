defmodule CrucibleBridge.V1.Termination do
  @moduledoc """
  How a response ended.
  """

  use Protobuf, enum: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :TERMINATION_UNSPECIFIED, 0
  field :TERMINATION_STOP, 1
  field :TERMINATION_EOS, 2
  field :TERMINATION_TRUNCATED, 3
  field :TERMINATION_MALFORMED, 4
end

defmodule CrucibleBridge.V1.RendererInfo do
  @moduledoc """
  A renderer.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :name, 1, type: :string
  field :description, 2, type: :string
  field :unavailable, 3, type: :string
end

defmodule CrucibleBridge.V1.ListRenderersRequest do
  @moduledoc """
  Lists the renderers.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3
end

defmodule CrucibleBridge.V1.ListRenderersResponse do
  @moduledoc """
  The renderers of this worker.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :renderers, 1, repeated: true, type: CrucibleBridge.V1.RendererInfo
end

defmodule CrucibleBridge.V1.BuildGenerationPromptRequest do
  @moduledoc """
  Renders conversations as prompts.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :model, 1, type: CrucibleBridge.V1.ModelRef
  field :conversations, 2, repeated: true, type: CrucibleBridge.V1.Conversation
  field :renderer, 3, type: :string
end

defmodule CrucibleBridge.V1.GenerationPrompt do
  @moduledoc """
  The prompt of a conversation.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :tokens, 1, repeated: true, type: :int32
  field :problem, 2, type: CrucibleBridge.V1.Problem
  field :model_input, 3, type: CrucibleBridge.V1.ModelInput, json_name: "modelInput"
end

defmodule CrucibleBridge.V1.BuildGenerationPromptResponse do
  @moduledoc """
  The prompts.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :items, 1, repeated: true, type: CrucibleBridge.V1.GenerationPrompt
  field :stop, 2, repeated: true, type: :string
end

defmodule CrucibleBridge.V1.BuildSupervisedExampleRequest do
  @moduledoc """
  Renders conversations as training examples.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :model, 1, type: CrucibleBridge.V1.ModelRef
  field :conversations, 2, repeated: true, type: CrucibleBridge.V1.Conversation
  field :train_on, 3, type: :string, json_name: "trainOn"
  field :renderer, 4, type: :string
end

defmodule CrucibleBridge.V1.SupervisedExample do
  @moduledoc """
  A conversation as a training example.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :tokens, 1, repeated: true, type: :int32
  field :weights, 2, repeated: true, type: :float
  field :datum, 3, type: CrucibleBridge.V1.Datum
  field :problem, 4, type: CrucibleBridge.V1.Problem
  field :model_input, 5, type: CrucibleBridge.V1.ModelInput, json_name: "modelInput"
end

defmodule CrucibleBridge.V1.BuildSupervisedExampleResponse do
  @moduledoc """
  The examples.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :items, 1, repeated: true, type: CrucibleBridge.V1.SupervisedExample
end

defmodule CrucibleBridge.V1.RawResponse do
  @moduledoc """
  What a model generated.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :text, 1, type: :string
  field :tokens, 2, repeated: true, type: :int32
  field :stop_reason, 3, type: :string, json_name: "stopReason"
end

defmodule CrucibleBridge.V1.ParseResponseRequest do
  @moduledoc """
  Parses what a model generated as messages of the assistant.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :model, 1, type: CrucibleBridge.V1.ModelRef
  field :responses, 2, repeated: true, type: CrucibleBridge.V1.RawResponse
  field :renderer, 3, type: :string
end

defmodule CrucibleBridge.V1.ParsedResponse do
  @moduledoc """
  A response as a message of the assistant.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :text, 1, type: :string
  field :reasoning, 2, type: :string
  field :tool_calls, 3, repeated: true, type: CrucibleBridge.V1.ToolCall, json_name: "toolCalls"

  field :unparsed_tool_calls, 4,
    repeated: true,
    type: CrucibleBridge.V1.UnparsedToolCall,
    json_name: "unparsedToolCalls"

  field :termination, 5, type: CrucibleBridge.V1.Termination, enum: true
  field :problem, 6, type: CrucibleBridge.V1.Problem
end

defmodule CrucibleBridge.V1.ParseResponseResponse do
  @moduledoc """
  The messages.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :items, 1, repeated: true, type: CrucibleBridge.V1.ParsedResponse
end

defmodule CrucibleBridge.V1.GetStopSequencesRequest do
  @moduledoc """
  Reads what ends an answer.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :model, 1, type: CrucibleBridge.V1.ModelRef
  field :renderer, 2, type: :string
end

defmodule CrucibleBridge.V1.GetStopSequencesResponse do
  @moduledoc """
  What ends an answer.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :stop, 1, repeated: true, type: :string
  field :stop_tokens, 2, repeated: true, type: :int32, json_name: "stopTokens"
  field :eos_token, 3, proto3_optional: true, type: :int32, json_name: "eosToken"
end

defmodule CrucibleBridge.V1.TokenizeRequest do
  @moduledoc """
  Encodes texts.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :model, 1, type: CrucibleBridge.V1.ModelRef
  field :texts, 2, repeated: true, type: :string
  field :add_special_tokens, 3, type: :bool, json_name: "addSpecialTokens"
end

defmodule CrucibleBridge.V1.Tokenized do
  @moduledoc """
  The tokens of a text.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :tokens, 1, repeated: true, type: :int32
  field :problem, 2, type: CrucibleBridge.V1.Problem
end

defmodule CrucibleBridge.V1.TokenizeResponse do
  @moduledoc """
  The tokens.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :items, 1, repeated: true, type: CrucibleBridge.V1.Tokenized
end

defmodule CrucibleBridge.V1.TokenSequence do
  @moduledoc """
  Token ids of one text.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :tokens, 1, repeated: true, type: :int32
end

defmodule CrucibleBridge.V1.DetokenizeRequest do
  @moduledoc """
  Decodes tokens.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :model, 1, type: CrucibleBridge.V1.ModelRef
  field :sequences, 2, repeated: true, type: CrucibleBridge.V1.TokenSequence
  field :skip_special_tokens, 3, type: :bool, json_name: "skipSpecialTokens"
end

defmodule CrucibleBridge.V1.Detokenized do
  @moduledoc """
  The text of tokens.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :text, 1, type: :string
  field :problem, 2, type: CrucibleBridge.V1.Problem
end

defmodule CrucibleBridge.V1.DetokenizeResponse do
  @moduledoc """
  The texts.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :items, 1, repeated: true, type: CrucibleBridge.V1.Detokenized
end

defmodule CrucibleBridge.V1.RenderingService.Service do
  @moduledoc """
  The renderers and tokenizers of the worker's models, without the models: weights are neither needed nor read for local
  ones and those of the hub. Nothing is recorded.

  Tokenizers and chat templates run in processes that are killed when they exceed a limit. Every item of a batch has a
  result or a problem, in the order given. Reasons of problems: INVALID_FIELD (the field says where), RENDERING_LIMIT,
  CHAT_TEMPLATE_NOT_STABLE, RAW_CONVERSATION, ANSWER_TOO_LARGE (no room is left in the message: send smaller batches), INTERNAL (a bug;
  the worker's log has it), HOST_DIED, MODEL_FAILED.

  Errors of the calls that name a model, after which no item has an answer:
  INVALID_ARGUMENT: INVALID_FIELD (model, renderer, no item or too many of them).
  NOT_FOUND: UNKNOWN_EMBEDDED_MODEL, MODEL_NOT_FOUND, UNKNOWN_SERVER.
  PERMISSION_DENIED: PATH_OUT_OF_ROOT.
  FAILED_PRECONDITION: NO_MODEL_ROOT, NO_BACKEND, EXTRA_NOT_INSTALLED (of this worker); NO_TOKENIZER, NO_CHAT_TEMPLATE,
  NO_COOKBOOK_TOKENIZER, UNKNOWN_RENDERER, MODEL_REFUSED, CHECKPOINT_CHANGED (of the model and the renderer).
  UNAVAILABLE: BACKEND_FAILED, BACKEND_CLOSED, HOST_DIED, HOST_NOT_STARTED, MODEL_FAILED, RENDERING_LIMIT.
  """

  use GRPC.Service,
    name: "crucible_bridge.v1.RenderingService",
    protoc_gen_elixir_version: "0.15.0"

  rpc :ListRenderers,
      CrucibleBridge.V1.ListRenderersRequest,
      CrucibleBridge.V1.ListRenderersResponse

  rpc :BuildGenerationPrompt,
      CrucibleBridge.V1.BuildGenerationPromptRequest,
      CrucibleBridge.V1.BuildGenerationPromptResponse

  rpc :BuildSupervisedExample,
      CrucibleBridge.V1.BuildSupervisedExampleRequest,
      CrucibleBridge.V1.BuildSupervisedExampleResponse

  rpc :ParseResponse,
      CrucibleBridge.V1.ParseResponseRequest,
      CrucibleBridge.V1.ParseResponseResponse

  rpc :GetStopSequences,
      CrucibleBridge.V1.GetStopSequencesRequest,
      CrucibleBridge.V1.GetStopSequencesResponse

  rpc :Tokenize, CrucibleBridge.V1.TokenizeRequest, CrucibleBridge.V1.TokenizeResponse

  rpc :Detokenize, CrucibleBridge.V1.DetokenizeRequest, CrucibleBridge.V1.DetokenizeResponse
end

defmodule CrucibleBridge.V1.RenderingService.Stub do
  use GRPC.Stub, service: CrucibleBridge.V1.RenderingService.Service
end
