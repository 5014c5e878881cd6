defmodule CrucibleBridge.ReadmeTest do
  # The README's own code, run.
  use ExUnit.Case, async: false

  import ExUnit.CaptureIO

  alias CrucibleBridge.{Telemetry, TestWorker}

  @moduletag :integration
  @moduletag :capture_log
  @moduletag timeout: 180_000

  @readme Path.expand("../../README.md", __DIR__)
  @complete [:crucible_kitchen, :evaluation, :complete]

  defp block(with) do
    blocks = Regex.scan(~r/^```elixir\n(.*?)^```$/ms, File.read!(@readme), capture: :all_but_first)
    [[code]] = Enum.filter(blocks, fn [code] -> code =~ with end)
    code
  end

  # Replaced in the README's code, which has to have it.
  defp put(code, old, new) do
    assert code =~ old
    String.replace(code, old, new)
  end

  test "the training loop runs as it stands, and its handler outlives evaluations of every kind" do
    worker = TestWorker.start()
    :ok = :telemetry.attach(__MODULE__, @complete, &__MODULE__.forward/4, self())
    on_exit(fn -> for id <- [__MODULE__, "my-run"], do: :telemetry.detach(id) end)

    code =
      "Telemetry.await()"
      |> block()
      |> put("127.0.0.1:50051", worker.address)
      |> put(~s(dataset: "builtin:arithmetic"), ~s(dataset: "builtin:arithmetic", limit: 8))

    # The handler prints to where the code was run.
    printed =
      capture_io(fn ->
        Code.eval_string(code, [], file: @readme)
        evaluate_otherwise()
        assert "my-run" in Enum.map(:telemetry.list_handlers(@complete), & &1.id)
        Supervisor.stop(Telemetry)
      end)

    steps = Regex.scan(~r/^step (\d+): accuracy \d/m, printed, capture: :all_but_first)
    assert List.flatten(steps) == ["180", "240", "320", "600"]
    for step <- [180, 240, 320, 600], do: assert_receive({:complete, %{nll: _, accuracy: _}, %{step: ^step}}, 30_000)
  end

  # What an evaluation measures is up to its caller.
  defp evaluate_otherwise do
    sampled = [max_tokens: 8, temperature: 1.0]

    for {opts, key} <- [
          {[evaluators: :accuracy], :accuracy},
          {[evaluators: :accuracy, metric_prefix: "p/"], :accuracy},
          {[evaluators: {"accuracy", name: "a"}, metric_prefix: "p/"], "p/a/accuracy"},
          {[evaluators: {"pass_at_k", ks: [1, 2], samples_per_prompt: 2, grader: "exact_match"}, sampling: sampled],
           "pass@2"}
        ] do
      common = [
        model: "embedded:arithmetic@320",
        dataset: "builtin:arithmetic",
        limit: 4,
        sampling: [max_tokens: 8]
      ]

      {:ok, evaluation} = common |> Keyword.merge(opts) |> CrucibleBridge.evaluate()
      id = evaluation.evaluation_id
      assert_receive {:complete, measurements, %{evaluation_id: ^id}}, 30_000
      assert is_map_key(measurements, key)
      metrics = Map.drop(measurements, [:sample_count, :duration, :system_time, :monotonic_time])
      values = Map.reject(metrics, fn {key, _} -> String.starts_with?(to_string(key), "usage.") end)
      assert Enum.sort(Map.values(values)) == Enum.sort(Map.values(evaluation.metrics.values))
    end
  end

  def forward(_name, measurements, metadata, test), do: send(test, {:complete, measurements, metadata})
end
