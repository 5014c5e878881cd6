# Workers in a pool of Snakepit, which starts them: none has to run before.
#
#     mix run PATH/examples/snakepit.exs
#
# In a project that depends on crucible_bridge and {:snakepit, "~> 0.13"}. WORKER_PYTHON is the interpreter of the
# environment with crucible-bridge and its extra `local`; if unset, that of this checkout, which `make demo` sets up.

alias CrucibleBridge.{Connection, SnakepitAdapter, Telemetry, Tensor}

unless Code.ensure_loaded?(Snakepit) do
  raise "snakepit is not there: run this in a project that depends on it and on crucible_bridge"
end

state_dir = Path.join(System.tmp_dir!(), "crucible-snakepit-example")

# In an application this stands in config/runtime.exs.
Application.put_env(:crucible_bridge, SnakepitAdapter,
  python: System.get_env("WORKER_PYTHON", Path.expand("../../.venv/bin/python", __DIR__)),
  args: ["--state-dir", state_dir]
)

pool = [
  pooling_enabled: true,
  adapter_module: SnakepitAdapter,
  pools: [%{name: :default, adapter_module: SnakepitAdapter, pool_size: 2}],
  data_dir: Path.join(state_dir, "snakepit")
]

Application.put_all_env(snakepit: pool)

defmodule Example do
  @moduledoc "What the pool is asked for."

  def grading do
    pairs =
      for {gold, pred} <- [{"\\frac12", "0.5"}, {"(x+1)^2", "x^2+2x+1"}, {"1/3", "0.333"}],
          do: %{gold: gold, pred: pred}

    {:ok, %{"grades" => grades}} = SnakepitAdapter.execute("grade_math", %{pairs: pairs})
    for {pair, grade} <- Enum.zip(pairs, grades), do: IO.puts("  #{pair.pred} for #{pair.gold}: #{grade["verdict"]}")
  end

  # Tensors are binary parameters; what they are stands in a parameter of the same name.
  def metrics do
    sequences = 64
    tokens = 256
    [sampled, trained] = for _ <- 1..2, do: for(_ <- 1..(sequences * tokens), do: -:rand.uniform())

    arrays = [
      logprobs: tensor(sampled),
      training_logprobs: tensor(trained),
      mask: tensor(List.duplicate(1, sequences * tokens))
    ]

    described = for {name, tensor} <- arrays, into: %{}, do: {name, %{dtype: tensor.dtype, shape: [sequences, tokens]}}
    bytes = for {name, tensor} <- arrays, into: %{}, do: {name, tensor.data}
    {:ok, reply} = SnakepitAdapter.execute("kl_sample_train", described, binary_parameters: bytes)
    IO.puts("  #{inspect(reply["metrics"])}")
  end

  def evaluations(run_id) do
    [180, 600]
    |> Task.async_stream(&evaluate(run_id, &1), max_concurrency: 2, timeout: :infinity)
    |> Enum.each(fn {:ok, {step, metrics}} -> IO.puts("  step #{step}: #{inspect(metrics)}") end)
  end

  defp evaluate(run_id, step) do
    {:ok, %{"evaluation" => evaluation}} =
      SnakepitAdapter.execute(
        "evaluate",
        %{
          evaluation_id: "#{run_id}-#{step}",
          run_id: run_id,
          step: step,
          model: "embedded:arithmetic@#{step}",
          evaluators: ["nll", "accuracy"],
          dataset: %{builtin: "arithmetic", limit: 100},
          sampling: %{max_tokens: 8}
        },
        timeout: :infinity
      )

    {step, Map.take(evaluation["metrics"], ["nll", "accuracy"])}
  end

  def refusal do
    {:error, error} =
      SnakepitAdapter.execute("grade_math", %{pairs: [%{gold: "3", pred: "3"}], polcy: %{ordered_lists: true}})

    IO.puts("  #{error.reason}: #{Exception.message(error)}")
  end

  defp tensor(list) do
    {:ok, tensor} = Tensor.pack(list, dtype: :f32)
    tensor
  end
end

Snakepit.run_as_script(
  fn ->
    # The events of all workers, by way of any of them.
    children = [{Connection, address: &SnakepitAdapter.address/0}, Telemetry]
    {:ok, relay} = Supervisor.start_link(children, strategy: :one_for_one)
    :ok = Telemetry.await()
    :ok = Telemetry.attach_default_logger()

    IO.puts("grading:")
    Example.grading()
    IO.puts("metrics:")
    Example.metrics()
    IO.puts("evaluations:")
    Example.evaluations("snakepit-#{System.os_time(:second)}")
    IO.puts("a mistake:")
    Example.refusal()
    Supervisor.stop(relay)
  end,
  restart: true
)
