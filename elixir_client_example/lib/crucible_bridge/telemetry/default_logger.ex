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

  @doc "One event in words."
  @spec line([atom(), ...], map(), map()) :: String.t()
  def line([_app, :telemetry, :disconnected], measurements, metadata) do
    "[crucible_bridge] events: disconnected, again in #{measurements.retry_in} ms: #{metadata.message}"
  end

  def line([_app, :telemetry, :gap], measurements, metadata) do
    missed = Map.get(measurements, :missed, "an unknown number")
    "[crucible_bridge] events: #{missed} missed (#{metadata.reason}), going on after #{metadata.to.sequence}"
  end

  def line([_app, of, what], measurements, metadata) do
    "[crucible_bridge] #{subject(metadata)}: #{said(of, what, measurements, metadata)}"
  end

  defp subject(%{evaluation_id: id, evaluator: nil} = metadata), do: "evaluation #{id}#{step(metadata.step)}"
  defp subject(%{evaluation_id: id, evaluator: evaluator}), do: "evaluation #{id}, evaluator #{evaluator}"

  defp step(nil), do: ""
  defp step(step), do: " (step #{step})"

  defp said(:evaluation, :start, %{total: total}, metadata) do
    "started, #{count(total)} runs of #{metadata[:evaluators]} on #{metadata[:model]}"
  end

  # The step of a plan that ended before its samples were counted.
  defp said(:evaluation, :start, _uncounted, metadata), do: "started, #{metadata[:evaluators]} on #{metadata[:model]}"

  defp said(:evaluation, :resume, measurements, _metadata), do: "goes on at #{progress(measurements)}"
  defp said(:evaluation, :interrupt, m, metadata), do: "interrupted at #{progress(m)}: #{metadata[:cause]}"

  defp said(:evaluation, :stop, measurements, metadata),
    do: "#{metadata[:state]} after #{seconds(measurements.duration)}"

  defp said(_of, :exception, _measurements, metadata), do: "failed: #{metadata.reason}"

  defp said(:evaluation, :complete, measurements, metadata) do
    values = metadata.metrics |> Map.delete("sample_count") |> Enum.sort() |> Enum.map_join(" ", &metric/1)

    undefined =
      metadata |> Map.get(:undefined, %{}) |> Enum.sort() |> Enum.map_join(fn {key, why} -> " #{key}: #{why}" end)

    "#{values}#{undefined} (#{count(measurements[:sample_count] || 0)} samples)"
  end

  defp metric({key, value}), do: "#{key}=#{value}"
  defp progress(%{done: done, total: total}), do: "#{count(done)} of #{count(total)}"
  defp progress(_uncounted), do: "the reading of its data"
  defp count(number), do: number |> trunc() |> Integer.to_string()

  defp seconds(native) do
    milliseconds = System.convert_time_unit(native, :native, :millisecond)
    :erlang.float_to_binary(milliseconds / 1000, decimals: 2) <> " s"
  end
end
