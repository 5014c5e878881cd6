defmodule CrucibleBridge.ExperimentLogger do
  @moduledoc """
  A logger for CrucibleTrain: what a training loop logs goes to an experiment of a worker, and from there to its loggers.

      {:ok, logger} =
        CrucibleTrain.Logging.create_logger(CrucibleBridge.ExperimentLogger,
          experiment_id: "run-7",
          log_to: ["trackio:my-project", "jsonl"]
        )

      CrucibleTrain.Logging.log_metrics(logger, 3, %{"train/loss" => 0.7})

  It implements `CrucibleTrain.Logging.Logger` where CrucibleTrain is there, which this client does not need. What is
  logged is in the worker's journal when a function returns. A metric that is no number is left out; so is, with a
  warning, what the worker refuses or what does not reach it: logging ends no training.

  Evaluations with the same `run_id` log into the same experiment.
  """

  alias CrucibleBridge.{Connection, Error}

  require Logger

  if Code.ensure_loaded?(CrucibleTrain.Logging.Logger), do: @behaviour(CrucibleTrain.Logging.Logger)

  @enforce_keys [:conn, :experiment_id]
  defstruct [:conn, :experiment_id]

  @type t :: %__MODULE__{conn: CrucibleBridge.conn(), experiment_id: String.t()}

  @doc """
  Opens the experiment, or continues it.

  Options: `:experiment_id`, required; `:log_to`, its loggers, and those of the worker where it is absent; `:config`,
  hyperparameters; `:conn`, `CrucibleBridge.Connection` if absent.
  """
  @spec init(keyword) :: {:ok, t} | {:error, Error.t()}
  def init(opts) do
    {conn, opts} = Keyword.pop(opts, :conn, Connection)
    {experiment_id, opts} = Keyword.pop(opts, :experiment_id)

    with {:ok, experiment_id} <- named(experiment_id),
         {:ok, _opened} <- CrucibleBridge.open_experiment(conn, experiment_id, opts),
         do: {:ok, %__MODULE__{conn: conn, experiment_id: experiment_id}}
  end

  @doc "Logs the numbers among the metrics, at a step or at none."
  @spec log_metrics(t, integer | nil, map) :: :ok
  def log_metrics(%__MODULE__{} = logger, step, metrics) do
    values = for {name, value} <- metrics, is_number(value), into: %{}, do: {to_string(name), value}
    row = %{values: values, step: step}

    if values == %{},
      do: :ok,
      else: told(CrucibleBridge.log_metrics(logger.conn, logger.experiment_id, [row]), logger, "metrics")
  end

  @doc "Logs hyperparameters; what JSON does not have becomes text."
  @spec log_hparams(t, map) :: :ok
  def log_hparams(%__MODULE__{} = logger, hparams),
    do: told(CrucibleBridge.log_hparams(logger.conn, logger.experiment_id, plain(hparams)), logger, "hyperparameters")

  @doc "Logs a text."
  @spec log_long_text(t, String.t(), String.t()) :: :ok
  def log_long_text(%__MODULE__{} = logger, key, text),
    do: told(CrucibleBridge.log_long_text(logger.conn, logger.experiment_id, key, text), logger, "the text #{key}")

  @doc "Waits, half a minute at most, until every logger has written out, or sent, what was logged."
  @spec sync(t) :: :ok
  def sync(%__MODULE__{} = logger),
    do: told(CrucibleBridge.sync(logger.conn, logger.experiment_id), logger, "everything")

  @doc "Closes the experiment, and waits for its loggers as `sync` does; they finish after it, too."
  @spec close(t) :: :ok
  def close(%__MODULE__{} = logger),
    do: told(CrucibleBridge.close_experiment(logger.conn, logger.experiment_id), logger, "everything")

  @doc "Where people look at the experiment; `nil` while there is no such place."
  @spec get_url(t) :: String.t() | nil
  def get_url(%__MODULE__{} = logger) do
    case CrucibleBridge.get_url(logger.conn, logger.experiment_id) do
      {:ok, url} -> url
      {:error, _error} -> nil
    end
  end

  defp named(id) when is_binary(id) and id != "", do: {:ok, id}
  defp named(_other), do: {:error, Error.invalid("experiment_id", "is not given, or no text")}

  defp told({:ok, %{synced: false, experiment: experiment}}, _logger, _what) do
    for logger <- experiment.loggers, logger.synced_sequence < experiment.last_sequence do
      Logger.warning("#{logger.logger} is behind: #{if logger.problem == "", do: "it is slow", else: logger.problem}")
    end

    :ok
  end

  defp told({:ok, _logged}, _logger, _what), do: :ok

  defp told({:error, error}, logger, what) do
    Logger.warning("#{logger.experiment_id} did not log #{what}: #{Exception.message(error)}")
    :ok
  end

  defp plain(%_struct{} = struct), do: struct |> Map.from_struct() |> plain()
  defp plain(%{} = map), do: Map.new(map, fn {key, value} -> {key_text(key), plain(value)} end)
  defp plain([{key, _} | _] = keywords) when is_atom(key), do: keywords |> Map.new() |> plain()
  defp plain(list) when is_list(list), do: Enum.map(list, &plain/1)
  defp plain(value) when is_binary(value) or is_number(value) or is_atom(value), do: value
  defp plain(tuple) when is_tuple(tuple), do: tuple |> Tuple.to_list() |> plain()
  defp plain(other), do: inspect(other)

  defp key_text(key) when is_binary(key) or is_atom(key), do: to_string(key)
  defp key_text(key), do: inspect(key)
end
