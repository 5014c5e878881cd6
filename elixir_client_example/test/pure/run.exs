# Runs the pure tests without Mix and without any dependency: elixir test/pure/run.exs
#
# What they test is compiled into a folder of its own, where doctests find it, and which is removed; it does without grpc
# and protobuf.

root = Path.expand("../..", __DIR__)
sources = ~w(
  error/details error/reason error options tensor/elements tensor columns datum trajectory connection/target evaluation_result
  apart model_ref dataset metrics patience reason results hyperparameters orchestrator/model orchestrator/words orchestrator/shapes orchestrator/ports
  snakepit_adapter stages/evaluate telemetry/event telemetry/default_logger telemetry/position
)
beams = Path.join(System.tmp_dir!(), "crucible-bridge-pure-#{System.pid()}")
File.mkdir_p!(beams)
# What these modules call of others is for Mix to check.
Code.compiler_options(docs: true, no_warn_undefined: :all)
Code.prepend_path(beams)
ExUnit.start(autorun: false)

failures =
  try do
    compiled = Enum.map(sources, &Path.join([root, "lib", "crucible_bridge", &1 <> ".ex"]))
    {:ok, _modules, []} = Kernel.ParallelCompiler.compile_to_path(compiled, beams)
    root |> Path.join("test/pure/*_test.exs") |> Path.wildcard() |> Enum.each(&Code.require_file/1)
    ExUnit.run().failures
  after
    File.rm_rf!(beams)
  end

System.halt(if failures == 0, do: 0, else: 1)
