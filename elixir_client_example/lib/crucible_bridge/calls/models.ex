defmodule CrucibleBridge.Calls.Models do
  @moduledoc false
  # ModelService; documented at CrucibleBridge.

  alias CrucibleBridge.Calls.Evaluation
  alias CrucibleBridge.{Calls, Columns, Error, V1, Wire}
  alias CrucibleBridge.Wire.Message

  def sample(conn, model, items, opts) do
    with {:ok, items} <- Columns.numbered(items, "items", &item/2),
         do: call(conn, V1.SampleRequest, model, [items: items], opts)
  end

  # Tokens alone travel as sequences, which every release of a worker knows.
  def compute_logprobs(conn, model, sequences, opts) do
    if is_list(sequences) and Enum.any?(sequences, &(worded?(&1) or measured?(&1))) do
      with {:ok, items} <- Columns.numbered(sequences, "items", &logprobs_item/2),
           do: logprobs(conn, model, [items: items], opts)
    else
      with {:ok, sequences} <- Columns.numbered(sequences, "sequences", &Wire.model_input/2),
           do: logprobs(conn, model, [sequences: sequences], opts)
    end
  end

  # A list is teachers in place of a model.
  defp logprobs(conn, [_ | _] = teachers, fields, opts) do
    with {:ok, teachers} <- Columns.numbered(teachers, "teachers", &teacher/2),
         {:ok, request} <- Message.options(opts, V1.ComputeLogprobsRequest, [teachers: teachers] ++ fields),
         do: Calls.unary(conn, request, Calls.unbounded(opts))
  end

  defp logprobs(conn, model, fields, opts), do: call(conn, V1.ComputeLogprobsRequest, model, fields, opts)

  defp teacher(%V1.Teacher{} = teacher, _field), do: {:ok, teacher}

  defp teacher(%{model: model} = teacher, field) do
    with {:ok, model} <- Evaluation.model(model),
         do: Message.build(%{teacher | model: model}, V1.Teacher, field)
  end

  defp teacher(_other, field), do: {:error, Error.invalid(field, "is no map with a model")}

  def forward(conn, model, data, opts) do
    if is_list(data) and Enum.any?(data, &worded?/1) do
      with {:ok, items} <- Columns.numbered(data, "items", &forward_item/2),
           do: call(conn, V1.ForwardRequest, model, [items: items], opts)
    else
      with {:ok, data} <- Columns.numbered(data, "data", &Wire.datum/2),
           do: call(conn, V1.ForwardRequest, model, [data: data], opts)
    end
  end

  defp worded?(value), do: is_binary(value) or match?([%{role: _, content: _} | _], value)
  defp measured?(value), do: match?(%V1.LogprobsItem{}, value) or match?(%{prompt: _}, value)

  defp logprobs_item(%V1.LogprobsItem{} = item, _field), do: {:ok, item}

  defp logprobs_item(%{prompt: prompt} = item, field) do
    with {:ok, %{prompt: prompt}} <- item(prompt, field <> ".prompt"),
         {:ok, targets} <- targets(Map.get(item, :targets), field <> ".targets") do
      {:ok,
       %V1.LogprobsItem{
         prompt: prompt,
         continuation: Map.get(item, :continuation, []),
         targets: targets,
         last_n: Map.get(item, :last_n)
       }}
    end
  end

  defp logprobs_item(prompt, field) do
    with {:ok, %{prompt: prompt}} <- item(prompt, field), do: {:ok, %V1.LogprobsItem{prompt: prompt}}
  end

  defp targets(nil, _field), do: {:ok, nil}
  defp targets(value, field), do: Wire.pack(value, field: field, dtype: :i64)

  defp forward_item(text, _field) when is_binary(text), do: {:ok, %V1.ForwardItem{input: {:text, text}}}

  defp forward_item([%{role: _, content: _} | _] = messages, field) do
    with {:ok, conversation} <- conversation(messages, field),
         do: {:ok, %V1.ForwardItem{input: {:conversation, conversation}}}
  end

  defp forward_item(datum, field) do
    with {:ok, datum} <- Wire.datum(datum, field), do: {:ok, %V1.ForwardItem{input: {:datum, datum}}}
  end

  # A list of messages as a conversation.
  def conversation(messages, field) do
    with {:ok, messages} <- Columns.numbered(messages, field, &message/2),
         do: {:ok, %V1.Conversation{messages: messages}}
  end

  # A model takes what time it takes; limits.deadline_ms bounds it, and leaves the answers that are there.
  defp call(conn, request, model, fields, opts) do
    with {:ok, model} <- Evaluation.model(model),
         {:ok, request} <- Message.options(opts, request, [model: model] ++ fields),
         do: Calls.unary(conn, request, Calls.unbounded(opts))
  end

  defp item(%V1.SampleItem{} = item, _field), do: {:ok, item}
  defp item(text, _field) when is_binary(text), do: {:ok, %V1.SampleItem{prompt: {:text, text}}}

  defp item(%{prompt: prompt} = item, field) do
    with {:ok, packed} <- item(prompt, field) do
      {:ok, %{packed | num_samples: Map.get(item, :num_samples), seed: Map.get(item, :seed)}}
    end
  end

  defp item([%{role: _, content: _} | _] = messages, field) do
    with {:ok, conversation} <- conversation(messages, field),
         do: {:ok, %V1.SampleItem{prompt: {:conversation, conversation}}}
  end

  defp item([_ | _] = tokens, field), do: tokens(tokens, field)
  defp item(%{chunks: _} = input, field), do: tokens(input, field)
  defp item(_other, field), do: {:error, Error.invalid(field, "is no text, conversation, token ids or %{prompt: ...}")}

  defp message(%{role: role, content: text}, _field) when (is_binary(role) or is_atom(role)) and is_binary(text),
    do: {:ok, %V1.ChatMessage{role: to_string(role), content: text}}

  defp message(_other, field), do: {:error, Error.invalid(field, "has no role and content that are text")}

  defp tokens(input, field) do
    with {:ok, input} <- Wire.model_input(input, field), do: {:ok, %V1.SampleItem{prompt: {:model_input, input}}}
  end
end
