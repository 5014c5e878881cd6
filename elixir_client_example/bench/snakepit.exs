# What tools cost through a pool of Snakepit: a small one, and one with a million numbers as binary parameters.
#
#     mix run PATH/bench/snakepit.exs [own]
#
# In a project that depends on crucible_bridge and {:snakepit, "~> 0.13"}. With `own`, Snakepit's own Python server takes
# turns with ours, at its showcase's `ping`; its requirements have to be installed beside crucible-bridge. WORKER_PYTHON is
# the interpreter; if unset, that of this checkout.

Code.require_file("measure.exs", __DIR__)
alias CrucibleBridge.{SnakepitAdapter, Tensor}

state_dir = Path.join(System.tmp_dir!(), "crucible-snakepit-bench-#{System.pid()}")
python = System.get_env("WORKER_PYTHON", Path.expand("../../.venv/bin/python", __DIR__))
own? = System.argv() == ["own"]

Application.put_env(:crucible_bridge, SnakepitAdapter, python: python, args: ["--state-dir", state_dir])
ours = %{name: :default, pool_size: 1, adapter_module: SnakepitAdapter}

own = %{
  name: :own,
  pool_size: 1,
  adapter_module: Snakepit.Adapters.GRPCPython,
  adapter_args: ["--adapter", "snakepit_bridge.adapters.showcase.ShowcaseAdapter"]
}

Application.put_all_env(
  snakepit: [
    pooling_enabled: true,
    adapter_module: SnakepitAdapter,
    python_executable: python,
    data_dir: Path.join(state_dir, "snakepit"),
    pools: if(own?, do: [ours, own], else: [ours])
  ]
)

numbers = 1_000_000
{:ok, logprobs} = 1..numbers |> Enum.map(fn _ -> -:rand.uniform() end) |> Tensor.pack(dtype: :f32)
weights = :binary.copy(<<1>>, numbers)

small = fn ->
  {:ok, _} = Snakepit.execute("pass_at_k", %{samples: [10], successes: [3], k: [1]}, pool_name: :default)
end

trivial = fn -> {:ok, _} = Snakepit.execute("get_info", %{}, pool_name: :default) end
ping = fn -> {:ok, _} = Snakepit.execute("ping", %{}, pool_name: :own) end

large = fn ->
  described = %{logprobs: %{dtype: "f32", shape: [numbers]}, weights: %{dtype: "u8", shape: [numbers]}}
  binary = %{"logprobs" => logprobs.data, "weights" => weights}
  {:ok, %{"metrics" => _}} = Snakepit.execute("mean_nll", described, binary_parameters: binary, pool_name: :default)
end

Snakepit.run_as_script(
  fn ->
    # What starts in the background is at work until grading is warm.
    {:ok, _} = Snakepit.execute("grade_math", %{pairs: [%{gold: "1/2", pred: "0.5"}]}, timeout: 60_000)

    for turn <- 1..3 do
      IO.puts("turn #{turn}")
      Measure.calls("  get_info, which computes nothing", 1000, trivial)
      Measure.calls("  pass_at_k of one problem", 1000, small)
      if own?, do: Measure.calls("  ping of Snakepit's own server", 1000, ping)
      Measure.calls("  mean_nll of 1,000,000 float32", 50, large)
    end
  end,
  restart: true
)

File.rm_rf!(state_dir)
