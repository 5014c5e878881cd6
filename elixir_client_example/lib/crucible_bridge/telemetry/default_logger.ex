defmodule CrucibleBridge.Telemetry.DefaultLogger do
  @moduledoc false

  require Logger

  @events [
    [:crucible_bridge, :evaluation, :start],
    [:crucible_bridge, :evaluation, :resume],
    [:crucible_bridge, :evaluation, :interrupt],
    [:crucible_bridge, :evaluation, :stop],
    [:crucible_bridge, :evaluation, :exception],
    [:crucible_bridge, :evaluator, :exception],
    [:crucible_kitchen, :evaluation, :complete],
    [:crucible_bridge, :telemetry, :disconnected],
    [:crucible_bridge, :telemetry, :gap]
  ]

  @doc "What is logged."
  @spec events() :: [[atom(), ...]]
  def events, do: @events

  @doc "A handler for `:telemetry`; its configuration is `%{level: level}`."
  @spec handle([atom(), ...], map(), map(), %{level: Logger.level()}) :: :ok
  def handle(name, measurements, metadata, %{level: level}) do
    name |> level(level) |> Logger.log(fn -> line(name, measurements, metadata) end)
  end

  defp level([_app, _of, :exception], _level), do: :error
  defp level([_app, :telemetry, _what], _level), do: :warning
  defp level(_name, level), do: level

  @doc """
  One event in words, whatever it lacks: a handler that raises is detached for good, and anybody may execute an event.
  """
  @spec line([atom(), ...], map(), map()) :: String.t()
  def line([_app, :telemetry, :disconnected], measurements, metadata) do
    "[crucible_bridge] events: disconnected, again in #{shown(measurements[:retry_in])} ms: #{shown(metadata[:message])}"
  end

  def line([_app, :telemetry, :gap], measurements, metadata) do
    missed = shown(measurements[:missed] || "an unknown number")
    "[crucible_bridge] events: #{missed} missed (#{shown(metadata[:reason])}), going on after #{place(metadata[:to])}"
  end

  def line([_app, of, what], measurements, metadata) do
    "[crucible_bridge] #{subject(metadata)}: #{said(of, what, measurements, metadata)}"
  end

  defp place(%{sequence: sequence}), do: shown(sequence)
  defp place(other), do: shown(other)

  defp subject(metadata) do
    case metadata[:evaluator] do
      nil -> "evaluation #{shown(metadata[:evaluation_id])}#{step(metadata[:step])}"
      evaluator -> "evaluation #{shown(metadata[:evaluation_id])}, evaluator #{shown(evaluator)}"
    end
  end

  defp step(nil), do: ""
  defp step(step), do: " (step #{shown(step)})"

  defp said(:evaluation, :start, measurements, metadata) do
    # The step of a plan that ended before its samples were counted has no total.
    runs = if total = measurements[:total], do: "#{shown(total)} runs of ", else: ""
    "started, #{runs}#{shown(metadata[:evaluators])} on #{shown(metadata[:model])}"
  end

  defp said(:evaluation, :resume, measurements, _metadata), do: "resumes at #{progress(measurements)}"
  defp said(:evaluation, :interrupt, m, metadata), do: "interrupted at #{progress(m)}: #{shown(metadata[:cause])}"

  defp said(:evaluation, :stop, measurements, metadata),
    do: "#{shown(metadata[:state])} after #{seconds(measurements[:duration])}"

  defp said(_of, :exception, _measurements, metadata), do: "failed: #{shown(metadata[:reason])}"

  defp said(:evaluation, :complete, measurements, metadata) do
    # Tokens and cost are measurements, and no metrics.
    metrics =
      for {key, value} <- listed(metadata[:metrics]),
          key != "sample_count" and not String.starts_with?(to_string(key), "usage."),
          do: "#{shown(key)}=#{value(value)}"

    undefined = for {key, why} <- listed(metadata[:undefined]), do: "#{shown(key)}: #{shown(why)}"
    "#{Enum.join(metrics ++ undefined, " ")} (#{shown(measurements[:sample_count] || 0)} samples)"
  end

  defp listed(%{} = map) when not is_struct(map), do: Enum.sort(map)
  defp listed(_other), do: []

  defp progress(%{done: done, total: total}), do: "#{shown(done)} of #{shown(total)}"
  defp progress(_uncounted), do: "the reading of its data"

  defp seconds(native) when is_integer(native) do
    milliseconds = System.convert_time_unit(native, :native, :millisecond)
    :erlang.float_to_binary(milliseconds / 1000, decimals: 2) <> " s"
  end

  defp seconds(other), do: shown(other)

  defp value(number) when is_float(number), do: Float.to_string(number)
  defp value(other), do: shown(other)

  # Counts come as floats.
  defp shown(number) when is_float(number), do: number |> trunc() |> Integer.to_string()
  defp shown(text) when is_binary(text), do: text
  defp shown(nil), do: "unknown"
  defp shown(other), do: inspect(other)
end
