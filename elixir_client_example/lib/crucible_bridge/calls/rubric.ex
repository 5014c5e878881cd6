defmodule CrucibleBridge.Calls.Rubric do
  @moduledoc false
  # GradingService.GradeRubric; documented at CrucibleBridge.

  alias CrucibleBridge.Calls.Evaluation
  alias CrucibleBridge.{Columns, Connection, Error, Specification, V1, Wire}
  alias CrucibleBridge.Specification.Values
  alias V1.GradingService.Stub

  @options [:threshold, :sampling, :renderer, :limits]
  @criterion [:name, :description, :weight, :min, :max]
  @sampling [:max_tokens, :temperature, :top_p, :top_k, :seed, :stop]
  @limits [:concurrency, :deadline_ms, :item_timeout_ms]

  def grade_rubric(conn, judge, items, criteria, opts) do
    {call, options} = Keyword.split(opts, [:timeout])

    with :ok <- Specification.known(options, @options, "options"),
         {:ok, judge} <- Evaluation.model(judge),
         {:ok, items} <- Columns.numbered(items, "items", &item/2),
         {:ok, criteria} <- Columns.numbered(criteria, "criteria", &criterion/2),
         {:ok, threshold} <- number(options[:threshold], "threshold"),
         {:ok, sampling} <- Values.message(options[:sampling], V1.SamplingParams, @sampling, "sampling"),
         {:ok, renderer} <- Values.text(Keyword.get(options, :renderer, ""), "renderer"),
         {:ok, limits} <- Values.message(options[:limits], V1.BatchLimits, @limits, "limits"),
         request = %V1.GradeRubricRequest{
           judge: judge,
           items: items,
           criteria: criteria,
           threshold: threshold,
           sampling: sampling,
           renderer: renderer,
           limits: limits
         },
         # A judge takes what time it takes; limits.deadline_ms bounds it, and leaves the grades that are there.
         {:ok, reply} <-
           Connection.call(conn, Stub, :grade_rubric, request, Keyword.put_new(call, :timeout, :infinity)) do
      {:ok, Wire.decode(reply)}
    end
  end

  defp item(%V1.RubricItem{} = item, _field), do: {:ok, item}
  defp item(response, _field) when is_binary(response), do: {:ok, %V1.RubricItem{response: response}}

  defp item(%{response: response} = item, field) when is_binary(response) do
    references = item |> Map.get(:references, Map.get(item, :reference, [])) |> List.wrap()

    with {:ok, id} <- Values.text(Map.get(item, :id, ""), field <> ".id"),
         {:ok, question} <- Values.text(Map.get(item, :question, ""), field <> ".question"),
         {:ok, references} <- Columns.numbered(references, field <> ".references", &Values.text/2),
         {:ok, other} <- other(Map.get(item, :other), field <> ".other"),
         {:ok, prior} <- prior(Map.get(item, :prior), field <> ".prior") do
      {:ok,
       %V1.RubricItem{
         id: id,
         question: question,
         response: response,
         references: references,
         other: other,
         prior: prior
       }}
    end
  end

  defp item(_other, field), do: {:error, Error.invalid(field, "is neither a response nor a map with one that is text")}

  # Any bytes: what a model said need not be UTF-8.
  defp other(nil, _field), do: {:ok, nil}
  defp other(response, _field) when is_binary(response), do: {:ok, response}
  defp other(_other, field), do: {:error, Error.invalid(field, "is no text")}

  defp prior(nil, _field), do: {:ok, :VERDICT_UNSPECIFIED}

  defp prior(verdict, field) do
    case Wire.verdicts([verdict]) do
      {:ok, [verdict]} -> {:ok, verdict}
      {:error, error} -> {:error, %{error | field: field}}
    end
  end

  defp criterion(%V1.RubricCriterion{} = criterion, _field), do: {:ok, criterion}
  defp criterion({name, description}, field), do: criterion(%{name: name, description: description}, field)

  defp criterion(given, field) do
    with {:ok, map} <- Values.map(given, field),
         :ok <- Specification.known(Map.to_list(map), @criterion, field),
         {:ok, name} <- Values.text(map[:name], field <> ".name"),
         {:ok, description} <- Values.text(map[:description], field <> ".description"),
         {:ok, weight} <- number(map[:weight], field <> ".weight"),
         {:ok, min} <- number(map[:min], field <> ".min"),
         {:ok, max} <- number(map[:max], field <> ".max") do
      {:ok, %V1.RubricCriterion{name: name, description: description, weight: weight, min: min, max: max}}
    end
  end

  # A message's double takes no integer.
  defp number(nil, _field), do: {:ok, nil}
  defp number(number, _field) when is_number(number), do: {:ok, number * 1.0}
  defp number(_other, field), do: {:error, Error.invalid(field, "is no number")}
end
