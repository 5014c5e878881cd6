# CrucibleKitchen evaluates by a worker: with its own stage at the end, and with the bridge's while the run trains.
#
#     mix run PATH/examples/kitchen.exs
#
# In a project that depends on crucible_bridge and crucible_kitchen. The worker's address is WORKER_ADDRESS (127.0.0.1:50051
# if unset), its token is read from WORKER_TOKEN_FILE if that is set.

alias CrucibleBridge.{Connection, Telemetry}
alias CrucibleKitchen.Adapters.Noop

unless Code.ensure_loaded?(CrucibleKitchen) do
  raise "crucible_kitchen is not there: run this in a project that depends on it and on crucible_bridge"
end

defmodule Kitchen.Train do
  @moduledoc "Stands for training: what it leaves is the next of the checkpoints that ship with the worker."
  use CrucibleKitchen.Stage

  @impl true
  def name, do: :train

  @impl true
  def execute(context) do
    step = get_state(context, :checkpoints_current)
    IO.puts("trained to step #{step}")
    {:ok, merge_state(context, %{global_step: step, session: "embedded:arithmetic@#{step}"})}
  end
end

defmodule Kitchen.Load do
  @moduledoc "What is evaluated on: a handle with items, as Kitchen's dataset stores give."
  use CrucibleKitchen.Stage

  @impl true
  def name, do: :load

  @impl true
  def execute(context) do
    :rand.seed(:exsss, {1, 2, 3})
    additions = for _ <- 1..200, do: {9 + :rand.uniform(90), 9 + :rand.uniform(90)}
    items = for {left, right} <- additions, do: %{question: "#{left}+#{right}=", answer: "#{left + right}"}
    {:ok, put_state(context, :eval_dataset_handle, %{items: items})}
  end
end

defmodule Kitchen.Run do
  @moduledoc "Trains, evaluates each checkpoint under its step, and the last one as Kitchen does."
  use CrucibleKitchen.Workflow

  workflow do
    stage(:load, Kitchen.Load)

    loop :checkpoints, over: :checkpoints do
      stage(:train, Kitchen.Train)
      stage(:evaluate, CrucibleBridge.Stages.Evaluate, metric_prefix: "test/", evaluators: [:nll, :accuracy])
    end

    stage(:final, CrucibleKitchen.Stages.Evaluate)
  end

  def checkpoints(_context), do: [180, 240, 320, 600]
end

Logger.configure(level: :info)
address = System.get_env("WORKER_ADDRESS", "127.0.0.1:50051")
token = if file = System.get_env("WORKER_TOKEN_FILE"), do: [token_file: file], else: []
{:ok, _} = Supervisor.start_link([{Connection, [address: address] ++ token}, Telemetry], strategy: :one_for_one)

with {:error, error} <- Connection.await(Connection, 10_000) do
  raise "no worker at #{address} (`make serve` starts one): #{Exception.message(error)}"
end

:ok = Telemetry.await()
:ok = Telemetry.attach_default_logger()

adapters = %{
  training_client: Noop.TrainingClient,
  dataset_store: Noop.DatasetStore,
  evaluator: {CrucibleBridge.Evaluator, sampling: [max_tokens: 8]}
}

config = %{model: "arithmetic", run_id: "kitchen-#{System.os_time(:second)}", eval_metrics: [:accuracy, :nll]}
{:ok, %{context: context, metrics: metrics}} = CrucibleKitchen.run(Kitchen.Run, config, adapters: adapters)

IO.puts("\nrecorded:")

for %{name: name, value: value} = metric <- Enum.reverse(metrics),
    name in ["test/nll", "test/accuracy", :eval_accuracy] do
  IO.puts("  step #{metric.step}  #{name}  #{Float.round(value, 4)}")
end

IO.puts("\n#{context.state.eval_report}")
