defmodule CrucibleBridge.Stages.Recording do
  @moduledoc """
  Where a stage's metrics go: the context, the metrics store of the run, and an event.
  """

  alias CrucibleBridge.{Options, Reason}

  require Logger

  @event [:crucible_kitchen, :eval, :complete]
  @measured [:accuracy, :f1, :precision, :recall, :loss, :perplexity]

  @doc """
  Records every number of the results under its own key, and the step that they are of.

  A store that refuses a number, or raises, is logged, and costs nothing else: the numbers stay in the context.
  """
  @spec record(map(), CrucibleBridge.Results.t(), %{step: non_neg_integer(), run_id: String.t()}) :: map()
  def record(context, results, moment) do
    store = store(Map.get(context.adapters, :metrics_store))
    # In one order, as stores are read by people.
    metrics = Enum.sort(results.metrics)
    Enum.each(metrics, fn {key, value} -> store(store, moment, key, value) end)
    announce(context, results, moment)
    at = DateTime.utc_now()

    recorded =
      for {key, value} <- metrics,
          do: %{
            name: key,
            value: value,
            step: moment.step,
            timestamp: at,
            metadata: %{evaluation_id: results.evaluation_id}
          }

    %{context | metrics: Enum.reverse(recorded) ++ context.metrics}
  end

  defp store(nil), do: nil
  defp store({module, opts}), do: {module, opts}
  defp store(module) when is_atom(module), do: {module, []}

  defp store(nil, _moment, _key, _value), do: :ok

  defp store({module, opts}, moment, key, value) do
    case Options.call("metrics_store", fn -> module.record(opts, moment.run_id, key, value, step: moment.step) end) do
      {:ok, :ok} -> :ok
      {:ok, {:error, reason}} -> not_recorded(module, key, reason)
      {:error, error} -> not_recorded(module, key, error)
    end
  end

  defp not_recorded(module, key, reason) do
    Logger.warning("#{inspect(module)} did not record #{key}: #{Reason.describe(reason)}")
  end

  # Kitchen's handlers write metadata as JSON, so that it holds nothing else.
  defp announce(context, results, moment) do
    metadata = %{
      model: text(Map.get(context.config, :model)),
      dataset: text(Map.get(context.config, :dataset)),
      step: moment.step,
      sample_count: results.sample_count,
      evaluation_id: results.evaluation_id
    }

    measured = results |> Map.take(@measured) |> Map.reject(fn {_name, value} -> value == nil end)
    :telemetry.execute(@event, measured, metadata)
  end

  defp text(value) when is_binary(value) or is_nil(value), do: value
  defp text(value) when is_atom(value), do: Atom.to_string(value)
  defp text(value), do: inspect(value, limit: 5)
end
