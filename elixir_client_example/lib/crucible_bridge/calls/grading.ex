defmodule CrucibleBridge.Calls.Grading do
  @moduledoc false
  # GradingService; documented at CrucibleBridge.

  alias CrucibleBridge.{Calls, Columns, Error, V1}
  alias CrucibleBridge.Specification.Values
  alias CrucibleBridge.Wire.Message

  @scorers for {_number, %{oneof: 0} = field} <- Enum.sort(V1.ScoreOptions.__message_props__().field_props),
               do: {field.name_atom, field.type}

  # What only exact_match has.
  @exact [:compare, :ordered_lists]

  def grade_math(conn, items, opts) do
    {call, policy} = Keyword.split(opts, [:timeout])

    with {:ok, policy} <- Message.build(if(policy != [], do: policy), V1.MathPolicy, "policy"),
         {:ok, items} <- items(items),
         do: Calls.unary(conn, %V1.GradeMathRequest{items: items, policy: policy}, call)
  end

  def extract_answer(conn, responses, opts),
    do: Calls.unary(conn, %V1.ExtractAnswerRequest{responses: List.wrap(responses)}, opts, :answers)

  def score(conn, items, scorer, opts) do
    {own, options} = Keyword.split(opts, [:threshold, :timeout])

    with {:ok, items} <- items(items),
         {:ok, options} <- options(scorer, options, own),
         do: Calls.unary(conn, %V1.ScoreRequest{items: items, options: options}, own, :grades)
  end

  defp options(grader, given, own) when is_binary(grader) do
    with {:ok, given} <- Values.options(Map.new(given), "options"),
         do: Message.options(own, V1.ScoreOptions, grader: grader, grader_options: given)
  end

  defp options(scorer, given, own) do
    with {:ok, message} <- scorer(scorer, given),
         do: Message.options(own, V1.ScoreOptions, scorer: {scorer, message})
  end

  defp scorer(:format, boxed: true), do: {:ok, %V1.FormatScorer{form: {:boxed, true}}}
  defp scorer(:format, marks: marks), do: {:ok, %V1.FormatScorer{form: {:marks, %V1.Marks{marks: marks}}}}
  defp scorer(:format, json_schema: text), do: {:ok, %V1.FormatScorer{form: {:json_schema, text}}}

  defp scorer(:format, _options),
    do: {:error, Error.invalid("options", "has not one of boxed: true, marks and json_schema")}

  defp scorer(:exact_match, options),
    do: [compare: :text] |> Keyword.merge(options) |> Message.options(V1.TextScorer)

  defp scorer(name, options) do
    case Keyword.get(@scorers, name) do
      nil ->
        names = @scorers |> Keyword.keys() |> Enum.map_join(", ", &inspect/1)
        {:error, Error.invalid("scorer", "is #{inspect(name)}; there are #{names}")}

      module ->
        Message.options(options, module, [], Message.names(module) -- @exact)
    end
  end

  defp items(items) do
    Columns.numbered(items, "items", &item/2)
  end

  defp item(%V1.GradeItem{} = item, _field), do: {:ok, item}
  defp item({answer, targets}, field), do: item(%{answer: answer, targets: targets}, field)

  defp item(%{} = item, field) do
    targets = item |> Map.get(:targets, Map.get(item, :target, [])) |> List.wrap()

    with {:ok, candidate} <- candidate(item, field),
         {:ok, id} <- Values.text(Map.get(item, :id, ""), field <> ".id"),
         {:ok, targets} <- Columns.numbered(targets, field <> ".targets", &Values.text/2) do
      {:ok, %V1.GradeItem{id: id, candidate: candidate, targets: targets}}
    end
  end

  defp item(_other, field), do: {:error, Error.invalid(field, "is neither {answer, target} nor a map")}

  # Any bytes: what a model said need not be UTF-8.
  defp candidate(%{response: response}, _field) when is_binary(response), do: {:ok, {:response, response}}
  defp candidate(%{answer: answer}, _field) when is_binary(answer), do: {:ok, {:answer, answer}}
  defp candidate(%{answer: answer}, _field) when is_number(answer), do: {:ok, {:answer, to_string(answer)}}
  defp candidate(_other, field), do: {:error, Error.invalid(field, "has neither a response nor an answer that is text")}
end
