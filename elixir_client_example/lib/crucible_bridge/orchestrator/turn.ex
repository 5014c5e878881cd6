defmodule CrucibleBridge.Orchestrator.Turn do
  @moduledoc false
  # What an environment returned, as a message.

  alias CrucibleBridge.Calls.Models
  alias CrucibleBridge.Orchestrator.Guarded
  alias CrucibleBridge.{V1, Wire}
  alias CrucibleBridge.Wire.Message

  @fields [:reward, :done, :metrics, :tags]

  @doc "The turn; what is none is an error."
  @spec of(term()) :: {:ok, V1.AnsweredEnvironment.t()} | {:error, CrucibleBridge.Error.t()}
  def of(%{} = turn) do
    fields = turn |> Map.take(@fields) |> Map.reject(fn {_name, value} -> value == nil end)
    done = Map.get(turn, :done, false)

    with {:ok, stops} <- stops(Map.get(turn, :stop) || []),
         fields = fields |> Map.replace_lazy(:metrics, &present/1) |> Map.merge(if(done == true, do: %{}, else: stops)),
         {:ok, message} <- Message.part(fields, V1.AnsweredEnvironment, "turn"),
         {:ok, observation} <- observation(Map.get(turn, :observation), done) do
      {:ok, %{message | observation: observation}}
    else
      {:error, error} -> Guarded.unfit("the environment's #{error.field} #{error.message}")
    end
  end

  def of(other) do
    Guarded.unfit(
      "the environment returned #{Guarded.text(inspect(other, limit: 5, printable_limit: 100))}, not a map of a turn"
    )
  end

  # A metric without a value is left out, as tinker-cookbook has it.
  defp present(%{} = metrics), do: Map.reject(metrics, fn {_name, value} -> value == nil end)
  defp present(other), do: other

  defp stops(stops) when is_list(stops) do
    {texts, others} = Enum.split_with(stops, &is_binary/1)

    if Enum.all?(others, &is_integer/1),
      do: {:ok, %{stop: texts, stop_tokens: others}},
      else: {:error, CrucibleBridge.Error.invalid("turn.stop", "is no list of texts or token ids")}
  end

  defp stops(_other), do: {:error, CrucibleBridge.Error.invalid("turn.stop", "is no list of texts or token ids")}

  defp observation(_observation, true), do: {:ok, nil}
  defp observation(text, _done) when is_binary(text), do: {:ok, {:text, Guarded.text(text)}}
  defp observation({:text, text}, done) when is_binary(text), do: observation(text, done)
  defp observation({:conversation, messages}, _done) when is_list(messages), do: conversation(messages)
  defp observation({:chunks, chunks}, _done), do: input(chunks)
  defp observation([{role, _content} | _] = messages, _done) when is_binary(role), do: conversation(messages)
  defp observation([%{role: _, content: _} | _] = messages, _done), do: conversation(messages)
  defp observation(%{chunks: _chunks} = input, _done), do: input(input)
  defp observation([_ | _] = tokens, _done), do: input(tokens)

  defp observation(_other, _done) do
    {:error,
     CrucibleBridge.Error.invalid(
       "turn.observation",
       "is no text, conversation, token ids or chunks, and it is not done"
     )}
  end

  defp conversation(messages) do
    with {:ok, conversation} <- messages |> Enum.map(&message/1) |> Models.conversation("turn.observation"),
         do: {:ok, {:conversation, conversation}}
  end

  # A pair, a map, or a struct of crucible_train.
  defp message({role, content}), do: %{role: role, content: content}
  defp message(%{__struct__: _module, role: role, content: content}), do: %{role: role, content: content}
  defp message(other), do: other

  defp input(input) do
    with {:ok, input} <- Wire.model_input(input, "turn.observation"), do: {:ok, {:model_input, input}}
  end
end
