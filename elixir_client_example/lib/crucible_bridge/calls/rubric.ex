defmodule CrucibleBridge.Calls.Rubric do
  @moduledoc false
  # GradingService.GradeRubric; documented at CrucibleBridge.

  alias CrucibleBridge.Calls.Evaluation
  alias CrucibleBridge.{Calls, Columns, Error, V1}
  alias CrucibleBridge.Specification.Values
  alias CrucibleBridge.Wire.Message

  def grade_rubric(conn, judge, items, criteria, opts) do
    with {:ok, judge} <- Evaluation.model(judge),
         {:ok, items} <- Columns.numbered(items, "items", &item/2),
         {:ok, criteria} <- Columns.numbered(criteria, "criteria", &criterion/2),
         fields = [judge: judge, items: items, criteria: criteria],
         {:ok, request} <- Message.options(opts, V1.GradeRubricRequest, fields),
         # A judge takes what time it takes; limits.deadline_ms bounds it, and leaves the grades that are there.
         do: Calls.unary(conn, request, Calls.unbounded(opts))
  end

  defp item(%V1.RubricItem{} = item, _field), do: {:ok, item}
  defp item(response, _field) when is_binary(response), do: {:ok, %V1.RubricItem{response: response}}

  defp item(%{response: response} = item, field) when is_binary(response) do
    references = Map.get(item, :references, Map.get(item, :reference, []))
    item |> Map.put(:references, references) |> Message.part(V1.RubricItem, field)
  end

  defp item(_other, field), do: {:error, Error.invalid(field, "is neither a response nor a map with one that is text")}

  defp criterion(%V1.RubricCriterion{} = criterion, _field), do: {:ok, criterion}
  defp criterion({name, description}, field), do: criterion(%{name: name, description: description}, field)

  defp criterion(given, field) do
    # Without one of these it would be a criterion of nothing.
    with {:ok, map} <- Values.map(given, field),
         do: %{name: nil, description: nil} |> Map.merge(map) |> Message.build(V1.RubricCriterion, field)
  end
end
