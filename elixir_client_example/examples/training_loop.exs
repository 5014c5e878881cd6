# A training loop that has each of its checkpoints evaluated while it goes on.
#
#     mix run examples/training_loop.exs
#
# The checkpoints are those of a small model that ship with the worker. It is asked for at WORKER_ADDRESS (127.0.0.1:50051
# if unset), with the token in WORKER_TOKEN_FILE where that is set.

alias CrucibleBridge.{Connection, Telemetry}

defmodule TrainingLoop do
  @moduledoc "Prints events as they come, and tells the loop of evaluations that have ended."

  @ends [[:crucible_bridge, :evaluation, :stop], [:crucible_bridge, :evaluation, :exception]]

  # No clause takes a key for granted: a handler that raises is detached for good.
  def handle([:crucible_bridge, :evaluation, :sample], _measurements, _metadata, _loop), do: :ok

  def handle([:crucible_bridge, :evaluation, :progress] = name, %{done: done, total: total}, metadata, _loop) do
    say(name, metadata, "#{trunc(done)} of #{trunc(total)}")
  end

  def handle(name, measurements, %{evaluation_id: id} = metadata, loop) when id != nil do
    say(name, metadata, inspect(Map.take(measurements, [:nll, :accuracy, :total])))
    if name in @ends, do: send(loop, {:ended, metadata[:step]})
  end

  def handle(_name, _measurements, _metadata, _loop), do: :ok

  defp say(name, metadata, what), do: IO.puts("  step #{metadata[:step]} #{Enum.join(name, ".")} #{what}")

  def await([]), do: :ok
  def await(steps), do: receive(do: ({:ended, step} -> await(List.delete(steps, step))))

  def cell(metrics, key) do
    case metrics.values do
      %{^key => value} -> value |> Float.round(4) |> to_string()
      _undefined -> "undefined: #{metrics.undefined[key]}"
    end
  end
end

address = System.get_env("WORKER_ADDRESS", "127.0.0.1:50051")
token = if file = System.get_env("WORKER_TOKEN_FILE"), do: [token_file: file], else: []
{:ok, _} = Supervisor.start_link([{Connection, [address: address] ++ token}, Telemetry], strategy: :one_for_one)

with {:error, error} <- Connection.await(Connection, 10_000) do
  raise "no worker at #{address} (`make serve` starts one): #{Exception.message(error)}"
end

# Before anything is started, so that its first event is seen, too.
:ok = Telemetry.await()
:ok = :telemetry.attach_many("training-loop", Telemetry.events(), &TrainingLoop.handle/4, self())

run_id = "elixir-#{System.os_time(:second)}"
steps = [180, 240, 320, 600]

plan = [
  plan_id: run_id,
  run_id: run_id,
  eval_every: 20,
  evaluations: [[evaluators: [:nll, :accuracy], dataset: "builtin:arithmetic", limit: 200, sampling: [max_tokens: 8]]]
]

{:ok, _} = CrucibleBridge.register_plan(plan)

for step <- steps do
  # Train here, and save a checkpoint. What is due starts, and the loop goes on meanwhile.
  {:ok, started} = CrucibleBridge.notify_step(run_id, step, "embedded:arithmetic@#{step}")
  IO.puts("step #{step}: #{length(started)} evaluation started")
end

TrainingLoop.await(steps)
{:ok, %{evaluations: evaluations}} = CrucibleBridge.list_evaluations(Connection, run_id: run_id)

IO.puts("\n  step  nll     accuracy")

for evaluation <- Enum.sort_by(evaluations, & &1.request.step) do
  [nll, accuracy] = for key <- ["nll", "accuracy"], do: TrainingLoop.cell(evaluation.metrics, key)
  IO.puts("  #{String.pad_trailing("#{evaluation.request.step}", 5)} #{String.pad_trailing(nll, 7)} #{accuracy}")
end
