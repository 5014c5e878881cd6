defmodule CrucibleBridge.Calls.Rendering do
  @moduledoc false
  # RenderingService; documented at CrucibleBridge.

  alias CrucibleBridge.Calls.Evaluation
  alias CrucibleBridge.{Calls, Columns, Error, V1}
  alias CrucibleBridge.Wire.{Message, Messages}

  def list_renderers(conn, opts), do: Calls.unary(conn, %V1.ListRenderersRequest{}, opts, :renderers)

  def build_generation_prompt(conn, model, conversations, opts) do
    with {:ok, conversations} <- Columns.numbered(conversations, "conversations", &conversation/2),
         do: call(conn, V1.BuildGenerationPromptRequest, model, [conversations: conversations], opts)
  end

  def build_supervised_example(conn, model, conversations, opts) do
    with {:ok, conversations} <- Columns.numbered(conversations, "conversations", &conversation/2),
         do: call(conn, V1.BuildSupervisedExampleRequest, model, [conversations: conversations], opts)
  end

  def parse_response(conn, model, responses, opts) do
    with {:ok, responses} <- Columns.numbered(responses, "responses", &response/2),
         do: call(conn, V1.ParseResponseRequest, model, [responses: responses], opts)
  end

  def get_stop_sequences(conn, model, opts), do: call(conn, V1.GetStopSequencesRequest, model, [], opts)

  def tokenize(conn, model, texts, opts), do: call(conn, V1.TokenizeRequest, model, [texts: texts], opts)

  def detokenize(conn, model, tokens, opts) do
    with {:ok, sequences} <- Columns.numbered(tokens, "tokens", &sequence/2),
         do: call(conn, V1.DetokenizeRequest, model, [sequences: sequences], opts)
  end

  # The first call loads the tokenizer.
  defp call(conn, request, model, fields, opts) do
    with {:ok, model} <- model(model),
         {:ok, request} <- Message.options(opts, request, [model: model] ++ fields),
         do: Calls.unary(conn, request, Calls.unbounded(opts))
  end

  defp model(nil), do: {:ok, nil}
  defp model(given), do: Evaluation.model(given)

  defp conversation(text, field) when is_binary(text), do: Messages.conversation([{"user", text}], field)
  defp conversation([_ | _] = given, field), do: Messages.conversation(given, field)
  defp conversation(_other, field), do: {:error, Error.invalid(field, "is neither text nor a list of messages")}

  defp response(text, _field) when is_binary(text), do: {:ok, %V1.RawResponse{text: text}}
  defp response([token | _] = tokens, _field) when is_integer(token), do: {:ok, %V1.RawResponse{tokens: tokens}}
  defp response(%{} = given, field), do: Message.part(given, V1.RawResponse, field)
  defp response(_other, field), do: {:error, Error.invalid(field, "is neither text nor token ids")}

  defp sequence([token | _] = tokens, _field) when is_integer(token), do: {:ok, %V1.TokenSequence{tokens: tokens}}
  defp sequence([], _field), do: {:ok, %V1.TokenSequence{}}
  defp sequence(_other, field), do: {:error, Error.invalid(field, "is no list of token ids")}
end
