defmodule CrucibleBridge.Orchestrator.Words do
  @moduledoc """
  How a client that knows tokens is asked in words: by a renderer of crucible_train, or by two functions.
  """

  alias CrucibleBridge.Error
  alias CrucibleBridge.Orchestrator.{Model, Shapes}

  @renderer CrucibleTrain.Renderers.Renderer
  @helpers CrucibleTrain.Renderers.Helpers
  @types CrucibleTrain.Renderers.Types

  @typedoc "How; `nil` where tokens alone can be asked."
  @type t ::
          {:renderer, module(), map()} | {:functions, (Model.prompt() -> [integer()]), ([integer()] -> binary())} | nil

  @doc "Reads the options `:renderer`, or `:encode` and `:decode`."
  @spec new(keyword()) :: {:ok, t()} | {:error, Error.t()}
  def new(opts) do
    case {opts[:renderer], opts[:encode], opts[:decode]} do
      {{module, state}, nil, nil} when is_atom(module) ->
        renderer(module, state)

      {nil, encode, decode} when is_function(encode, 1) and is_function(decode, 1) ->
        {:ok, {:functions, encode, decode}}

      {nil, nil, nil} ->
        {:ok, nil}

      _other ->
        {:error, Error.invalid("renderer", "is no {module, state}, and :encode and :decode are no two functions")}
    end
  end

  @doc "What the client gets for a prompt; `build` makes its input of chunks."
  @spec input(t(), Model.prompt(), ([Model.chunk()] -> term())) :: {:ok, term()} | {:error, Error.t()}
  def input(_words, {:chunks, chunks}, build), do: {:ok, build.(chunks)}

  def input(nil, _prompt, _build) do
    {:error,
     %Error{
       code: :failed_precondition,
       reason: "NO_TOKENIZER",
       message: "the orchestrator's model was given neither a renderer nor encode and decode, so it reads tokens alone"
     }}
  end

  def input({:functions, encode, _decode}, prompt, build), do: {:ok, build.([{:tokens, encode.(prompt)}])}

  def input({:renderer, _module, state}, {:plain, text}, build) do
    {:ok, build.([{:tokens, apply(@helpers, :encode, [state.tokenizer, text, [add_special_tokens: true]])}])}
  end

  def input({:renderer, module, state}, prompt, build) do
    messages = for {role, content} <- conversation(prompt), do: apply(@types, :message, [role, content])
    {input, _state} = apply(@renderer, :build_generation_prompt, [module, messages, "assistant", nil, state])
    {:ok, build.(Enum.map(input.chunks, &chunk/1))}
  end

  @doc "Params with the renderer's stop sequences beside the question's, where both are texts."
  @spec with_stops(t(), Model.prompt(), map()) :: map()
  def with_stops({:renderer, module, state}, {kind, _}, params) when kind in [:text, :conversation] do
    case {module.stop_sequences(state), params.stop} do
      {[text | _] = own, stop} when is_binary(text) -> %{params | stop: Enum.uniq(own ++ stop)}
      # Token ids and texts do not mix in one list; the question's texts are cut at when the answer is read.
      {own, _stop} -> %{params | stop: own}
    end
  end

  def with_stops(_words, _prompt, params), do: params

  @doc "A client's sequence as one of `CrucibleBridge.Orchestrator.Model`, its text cut at the first stop string."
  @spec sequence(t(), Model.prompt(), [String.t() | integer()], term()) :: {:ok, Model.sequence()} | {:error, Error.t()}
  def sequence(words, prompt, stops, given) do
    with {:ok, tokens} <- Shapes.fetch(given, :tokens),
         {:ok, text} <- text(words, prompt, given, tokens) do
      stops = Enum.filter(stops, &(is_binary(&1) and &1 != ""))

      {:ok,
       %{
         text: if(stops == [], do: text, else: text |> :binary.split(stops) |> hd()),
         tokens: tokens,
         logprobs: optional(given, :logprobs),
         stop_reason: stop_reason(optional(given, :stop_reason))
       }}
    end
  end

  defp renderer(module, state) do
    if Code.ensure_loaded?(module) and Code.ensure_loaded?(@renderer) and
         function_exported?(module, :render_message, 4),
       do: {:ok, {:renderer, module, state}},
       else: {:error, Error.invalid("renderer", "has #{inspect(module)}, which is no renderer of crucible_train")}
  end

  defp conversation({:text, text}), do: [{"user", text}]
  defp conversation({:conversation, messages}), do: messages

  defp chunk(%{tokens: tokens}), do: {:tokens, tokens}
  defp chunk(%{} = image), do: {:image, Map.take(image, [:data, :format, :expected_tokens])}

  # Where tokens were asked, nobody reads words.
  defp text(nil, _prompt, given, _tokens), do: {:ok, optional(given, :text) || ""}
  defp text({:functions, _encode, decode}, _prompt, _given, tokens), do: {:ok, decode.(tokens)}

  defp text({:renderer, module, state}, {kind, _}, _given, tokens) when kind in [:text, :conversation] do
    if function_exported?(module, :parse_response, 2) do
      {message, _whole} = module.parse_response(tokens, state)
      {:ok, apply(@types, :ensure_text, [message.content])}
    else
      {:ok, decode(state, tokens)}
    end
  end

  defp text({:renderer, _module, state}, _prompt, _given, tokens), do: {:ok, decode(state, tokens)}

  defp decode(state, tokens), do: apply(@helpers, :decode, [state.tokenizer, tokens])

  defp optional(given, key) do
    case Shapes.fetch(given, key) do
      {:ok, value} -> value
      {:error, _error} -> nil
    end
  end

  defp stop_reason(reason) when reason in [:length, "length"], do: :length
  defp stop_reason(_other), do: :stop
end
