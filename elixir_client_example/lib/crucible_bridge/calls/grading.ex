defmodule CrucibleBridge.Calls.Grading do
  @moduledoc false
  # GradingService; documented at CrucibleBridge.

  alias CrucibleBridge.{Columns, Connection, Error, V1, Wire}
  alias CrucibleBridge.Specification.Values
  alias V1.GradingService.Stub

  @policy [
    :ordered_lists,
    :rounding_digits,
    :percent_lenient,
    :units_optional,
    :equation_value,
    :interval_or_pair,
    :require_reduced,
    :degrees,
    :rename_variables,
    :tuple_or_set,
    :log_is_natural,
    :delta_value,
    :math_in_prose,
    :integration_constants,
    :chemical_formulas,
    :vector_notations,
    :chinese_words,
    :dates_and_times,
    :regional_numerals,
    :unit_names,
    :fold_base_letters,
    :expand_dots,
    :log_abs_optional
  ]

  @text_options [:case_sensitive, :normalize_whitespace, :strip_punctuation]
  @text_scorers [:contains, :f1, :bleu, :rouge]

  def grade_math(conn, items, opts) do
    {call, policy} = Keyword.split(opts, [:timeout])

    with {:ok, policy} <- fields(policy, @policy, "policy"),
         {:ok, items} <- items(items),
         policy = if(policy == [], do: nil, else: struct!(V1.MathPolicy, policy)),
         request = %V1.GradeMathRequest{items: items, policy: policy},
         {:ok, reply} <- Connection.call(conn, Stub, :grade_math, request, call) do
      {:ok, Wire.decode(reply)}
    end
  end

  def extract_answer(conn, responses, opts) do
    request = %V1.ExtractAnswerRequest{responses: List.wrap(responses)}

    with {:ok, reply} <- Connection.call(conn, Stub, :extract_answer, request, opts) do
      {:ok, Wire.decode(reply.answers)}
    end
  end

  def score(conn, items, scorer, opts) do
    {call, options} = Keyword.split(opts, [:timeout])
    {threshold, options} = Keyword.pop(options, :threshold)

    with {:ok, items} <- items(items),
         {:ok, scorer} <- scorer(scorer, options),
         {:ok, threshold} <- number({:threshold, threshold}),
         options = %V1.ScoreOptions{scorer: scorer, threshold: elem(threshold, 1)},
         request = %V1.ScoreRequest{items: items, options: options},
         {:ok, reply} <- Connection.call(conn, Stub, :score, request, call) do
      {:ok, Wire.decode(reply.grades)}
    end
  end

  defp scorer(:exact_match, options) do
    with {:ok, fields} <- fields(options, @text_options ++ [:compare, :ordered_lists], "options"),
         {:ok, compare} <- Wire.comparison(Keyword.get(fields, :compare, :text)) do
      {:ok, {:exact_match, struct!(V1.TextScorer, Keyword.put(fields, :compare, compare))}}
    end
  end

  defp scorer(name, options) when name in @text_scorers do
    with {:ok, fields} <- fields(options, @text_options, "options"), do: {:ok, {name, struct!(V1.TextScorer, fields)}}
  end

  defp scorer(:regex, options) do
    with {:ok, fields} <- fields(options, [:full], "options"), do: {:ok, {:regex, struct!(V1.RegexScorer, fields)}}
  end

  defp scorer(:numeric, options) do
    with {:ok, fields} <- fields(options, [:absolute_tolerance, :relative_tolerance], "options"),
         {:ok, numbers} <- Columns.each(fields, &number/1) do
      {:ok, {:numeric, struct!(V1.NumericScorer, numbers)}}
    end
  end

  defp scorer(:multiple_choice, options) do
    with {:ok, fields} <- fields(options, [:choices], "options"),
         do: {:ok, {:multiple_choice, struct!(V1.ChoiceScorer, fields)}}
  end

  defp scorer(:format, boxed: true), do: {:ok, {:format, %V1.FormatScorer{form: {:boxed, true}}}}
  defp scorer(:format, marks: marks), do: {:ok, {:format, %V1.FormatScorer{form: {:marks, %V1.Marks{marks: marks}}}}}
  defp scorer(:format, json_schema: text), do: {:ok, {:format, %V1.FormatScorer{form: {:json_schema, text}}}}

  defp scorer(:format, _options),
    do: {:error, Error.invalid("options", "has not one of boxed: true, marks and json_schema")}

  defp scorer(other, _options) do
    names = [:exact_match | @text_scorers] ++ [:regex, :numeric, :multiple_choice, :format]
    {:error, Error.invalid("scorer", "is #{inspect(other)}; there are #{Enum.map_join(names, ", ", &inspect/1)}")}
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

  # A message's double takes no integer.
  defp number({name, number}) when is_number(number), do: {:ok, {name, number * 1.0}}
  defp number({name, nil}), do: {:ok, {name, nil}}
  defp number({name, _other}), do: {:error, Error.invalid(Atom.to_string(name), "is no number")}

  defp fields(options, names, field) do
    case Keyword.keys(options) -- names do
      [] -> {:ok, options}
      [key | _] -> {:error, Error.invalid(field, "has #{inspect(key)}; there are #{Enum.join(names, ", ")}")}
    end
  end
end
