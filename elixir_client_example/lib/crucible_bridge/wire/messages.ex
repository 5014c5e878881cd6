defmodule CrucibleBridge.Wire.Messages do
  @moduledoc """
  Messages of a conversation, as maps:

      %{role: :user, content: "1+1="}
      %{role: :user, content: ["What is this?", %{data: png, format: "png"}]}
      %{role: :assistant, content: "", tool_calls: [%{name: "add", arguments: ~s({"a": 1}), id: "c1"}]}
      %{role: :tool, content: "2", tool_call_id: "c1"}

  Images have the forms that they have in a model's input, see `CrucibleBridge.Datum`. Calls of tools are also those that
  `CrucibleBridge.parse_response/4` returns.
  """

  alias CrucibleBridge.{Columns, Error, V1, Wire}
  alias CrucibleBridge.Wire.Message

  @doc "A list of messages as a conversation."
  @spec conversation(term(), String.t()) :: {:ok, V1.Conversation.t()} | {:error, Error.t()}
  def conversation(messages, field) do
    with {:ok, messages} <- Columns.numbered(messages, field, &message/2),
         do: {:ok, %V1.Conversation{messages: messages}}
  end

  @doc "A message; a pair of a role and a text is one, too."
  @spec message(term(), String.t()) :: {:ok, V1.ChatMessage.t()} | {:error, Error.t()}
  def message(%V1.ChatMessage{} = message, _field), do: {:ok, message}
  def message({role, content}, field), do: message(%{role: role, content: content}, field)

  def message(%{role: role, content: content} = given, field) when is_binary(role) or is_atom(role) do
    with {:ok, content} <- content(content, "#{field}.content"),
         {:ok, calls} <- Columns.numbered(Map.get(given, :tool_calls) || [], "#{field}.tool_calls", &call/2) do
      message = %V1.ChatMessage{
        role: to_string(role),
        tool_calls: calls,
        tool_call_id: Map.get(given, :tool_call_id) || ""
      }

      {:ok, struct!(message, content)}
    end
  end

  def message(_other, field), do: {:error, Error.invalid(field, "has no role and content that are text")}

  defp content(text, _field) when is_binary(text), do: {:ok, [content: text]}

  defp content([_ | _] = parts, field) do
    with {:ok, parts} <- Columns.numbered(parts, field, &part/2), do: {:ok, [parts: parts]}
  end

  defp content(_other, field), do: {:error, Error.invalid(field, "is neither text nor a list of texts and images")}

  defp part(text, _field) when is_binary(text), do: {:ok, %V1.MessagePart{part: {:text, text}}}
  defp part(%{text: text}, _field) when is_binary(text), do: {:ok, %V1.MessagePart{part: {:text, text}}}

  defp part(image, field) do
    with {:ok, %{chunks: [%{chunk: {kind, _} = packed}]}} when kind != :tokens <- Wire.model_input([image], field) do
      {:ok, %V1.MessagePart{part: packed}}
    else
      {:error, error} -> {:error, error}
      _tokens -> {:error, Error.invalid(field, "is neither text nor an image")}
    end
  end

  # The form of OpenAI's API.
  defp call(%{function: %{name: _} = function} = given, field),
    do: function |> Map.put(:id, Map.get(given, :id) || "") |> call(field)

  defp call(%{name: _} = given, field), do: Message.part(given, V1.ToolCall, field)
  defp call(_other, field), do: {:error, Error.invalid(field, "is no call with a name and arguments")}
end
