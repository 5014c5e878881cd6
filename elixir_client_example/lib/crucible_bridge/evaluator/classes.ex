defmodule CrucibleBridge.Evaluator.Classes do
  @moduledoc """
  F1, precision and recall of an evaluation whose data set was sent with it: targets are classes.
  """

  alias CrucibleBridge.{Error, Results, V1}

  @keys %{f1: "f1", precision: "precision", recall: "recall"}
  @scored [:correct, :incorrect, :partial]

  @doc "Adds what is asked for to results, or to what is undefined there."
  @spec add(Results.t(), [:f1 | :precision | :recall], V1.EvaluateRequest.t(), GenServer.server(), String.t() | nil) ::
          {:ok, Results.t()} | {:error, Error.t()}
  def add(results, names, request, conn, positive) do
    case targets(request) do
      {:ok, targets} ->
        with {:ok, samples} <- samples(conn, results.evaluation_id, request),
             {:ok, metrics} <- compute(conn, pairs(samples, targets), positive) do
          {:ok, put(results, names, metrics, request.metric_prefix)}
        end

      {:undefined, reason} ->
        metrics = %{values: %{}, undefined: Map.new(names, &{@keys[&1], reason})}
        {:ok, put(results, names, metrics, request.metric_prefix)}
    end
  end

  defp targets(%{dataset: %{source: {:inline, %{samples: samples}}}}) do
    targets =
      for {%{targets: [target | _]} = sample, index} <- Enum.with_index(samples), into: %{} do
        {if(sample.id == "", do: Integer.to_string(index), else: sample.id), target}
      end

    if targets == %{}, do: {:undefined, "no sample has a target"}, else: {:ok, targets}
  end

  defp targets(_request), do: {:undefined, "the data set's targets are known to the worker alone"}

  defp samples(conn, id, request) do
    case Enum.find(request.evaluators, &(&1.kind == "accuracy")) do
      nil -> {:ok, []}
      evaluator -> CrucibleBridge.all_samples(conn, id, evaluator: evaluator.name || evaluator.kind)
    end
  end

  defp pairs(samples, targets) do
    for %{verdict: verdict, sample_id: id} = sample <- samples, verdict in @scored, target = targets[id] do
      {if(verdict == :correct, do: target, else: said(sample)), target}
    end
  end

  # A grader that takes nothing for the answer judges all that was said.
  defp said(%{extracted: "", output: output}), do: String.trim(output)
  defp said(%{extracted: extracted}), do: extracted

  defp compute(_conn, [], _positive), do: {:ok, %{values: %{}, undefined: %{}}}

  defp compute(conn, pairs, positive) do
    {predictions, targets} = Enum.unzip(pairs)

    with {:ok, reply} <- CrucibleBridge.classification(conn, predictions, targets, positive: positive),
         do: {:ok, reply.metrics}
  end

  defp put(results, names, metrics, prefix) do
    Enum.reduce(names, results, fn name, results ->
      key = @keys[name]

      case metrics do
        %{values: %{^key => value}} ->
          results |> Map.put(name, value) |> Map.update!(:metrics, &Map.put(&1, prefix <> key, value))

        _ ->
          reason = Map.get(metrics.undefined, key, "no sample with a target was scored")
          Map.update(results, :undefined, %{(prefix <> key) => reason}, &Map.put(&1, prefix <> key, reason))
      end
    end)
  end
end
