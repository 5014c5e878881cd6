defmodule CrucibleBridge.Calls.Experiments do
  @moduledoc false
  # ExperimentService; documented at CrucibleBridge.

  alias CrucibleBridge.{Calls, Columns, V1}
  alias CrucibleBridge.Specification.Values
  alias CrucibleBridge.Wire.Message

  # Milliseconds that a call waits longer than the worker may.
  @longer 10_000
  @waited 30_000

  def open_experiment(conn, experiment_id, opts) do
    {config, opts} = Keyword.pop(opts, :config)

    with {:ok, config} <- json(config, "config"),
         {:ok, request} <-
           Message.options(opts, V1.OpenExperimentRequest, experiment_id: experiment_id, config: config),
         do: Calls.unary(conn, request, opts)
  end

  def log_hparams(conn, experiment_id, hparams, opts) do
    with {:ok, hparams} <- json(hparams, "hparams") do
      request = %V1.LogHparamsRequest{experiment_id: experiment_id, hparams: hparams}
      Calls.unary(conn, request, opts, :sequence)
    end
  end

  def log_metrics(conn, experiment_id, rows, opts) do
    with {:ok, rows} <- Columns.numbered(rows, "rows", &Message.build(&1, V1.LoggedMetrics, &2)) do
      Calls.unary(conn, %V1.LogMetricsRequest{experiment_id: experiment_id, rows: rows}, opts, :sequence)
    end
  end

  def log_long_text(conn, experiment_id, key, text, opts) do
    fields = [experiment_id: experiment_id, key: key, text: text]

    with {:ok, request} <- Message.options(opts, V1.LogLongTextRequest, fields),
         do: Calls.unary(conn, request, opts, :sequence)
  end

  def sync(conn, experiment_id, opts), do: waited(conn, V1.SyncRequest, experiment_id, opts)

  def close_experiment(conn, experiment_id, opts), do: waited(conn, V1.CloseExperimentRequest, experiment_id, opts)

  def get_url(conn, experiment_id, opts) do
    with {:ok, request} <- Message.options(opts, V1.GetUrlRequest, experiment_id: experiment_id),
         {:ok, url} <- Calls.unary(conn, request, opts, :url),
         do: {:ok, if(url != "", do: url)}
  end

  defp waited(conn, request, experiment_id, opts) do
    opts = Keyword.put_new(opts, :timeout, Keyword.get(opts, :timeout_ms, @waited) + @longer)

    with {:ok, request} <- Message.options(opts, request, experiment_id: experiment_id),
         do: Calls.unary(conn, request, opts)
  end

  defp json(nil, _field), do: {:ok, nil}
  defp json(values, field), do: with({:ok, map} <- Values.map(values, field), do: Values.options(map, field))
end
