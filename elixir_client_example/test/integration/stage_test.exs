defmodule CrucibleBridge.StageTest do
  use ExUnit.Case, async: false

  @moduletag :integration
  @moduletag :capture_log
  # Workers load their model anew, on whatever else the machine does.
  @moduletag timeout: 180_000

  alias CrucibleBridge.{Connection, Error, Evaluator, TestWorker}
  alias CrucibleBridge.Stages.Evaluate

  defmodule Store do
    @moduledoc "A metrics store that tells the test; of one name it wants nothing."

    def record(opts, run_id, name, value, kw) do
      send(opts[:test], {:recorded, run_id, name, value, kw})
      if name == opts[:raise], do: raise("the store is broken")
      if name == opts[:refuse], do: {:error, :full}, else: :ok
    end
  end

  setup_all do
    worker = TestWorker.start()
    start_supervised!({Connection, address: worker.address})
    :ok = Connection.await(Connection, 10_000)
  end

  setup do
    {:ok, run_id: "run-#{System.unique_integer([:positive])}"}
  end

  defp context(run_id, step, changes \\ %{}) do
    Map.merge(
      %{
        config: %{
          model: "arithmetic",
          dataset: :arithmetic,
          crucible_bridge: [dataset: "builtin:arithmetic", limit: 12]
        },
        adapters: %{
          evaluator: {Evaluator, sampling: [max_tokens: 8]},
          metrics_store: {Store, test: self()}
        },
        state: %{global_step: step, total_steps: 600, trained_model: "embedded:arithmetic@320"},
        metrics: [],
        metadata: %{run_id: run_id},
        current_stage: :evaluate,
        stage_opts: []
      },
      changes
    )
  end

  test "every number is recorded under its key and step, and told of as Kitchen's stage does", %{run_id: run_id} do
    :telemetry.attach(__MODULE__, [:crucible_kitchen, :eval, :complete], &__MODULE__.forward/4, self())
    before = context(run_id, 320, %{stage_opts: [metric_prefix: "test/", metrics: [:accuracy, :loss]]})
    {:ok, context} = Evaluate.execute(before)
    :telemetry.detach(__MODULE__)

    results = context.state.eval_results
    assert results.step == 320 and results.evaluation_id == "#{run_id}-evaluate-320"
    assert results.accuracy == results.metrics["test/accuracy"]
    recorded = Map.new(context.metrics, &{&1.name, {&1.value, &1.step}})
    assert recorded == Map.new(results.metrics, fn {key, value} -> {key, {value, 320}} end)

    for {key, value} <- results.metrics, do: assert_received({:recorded, ^run_id, ^key, ^value, [step: 320]})

    assert_received {:event, measurements, metadata}
    assert measurements == Map.take(results, [:accuracy, :loss, :perplexity])
    assert map_size(measurements) == 3
    assert %{"step" => 320, "sample_count" => 12} = metadata |> Jason.encode!() |> Jason.decode!()

    {:ok, evaluation} = CrucibleBridge.get_evaluation(results.evaluation_id)
    assert {evaluation.request.run_id, evaluation.request.step} == {run_id, 320}
  end

  def forward(_name, measurements, metadata, test), do: send(test, {:event, measurements, metadata})

  test "a step that is run again has the same evaluation", %{run_id: run_id} do
    {:ok, first} = Evaluate.execute(context(run_id, 320))
    {:ok, second} = Evaluate.execute(context(run_id, 320))
    assert first.state.eval_results == second.state.eval_results
  end

  test "between two times nothing is evaluated, and the last step is one", %{run_id: run_id} do
    opts = [eval_every: 100]
    {:ok, context} = Evaluate.execute(context(run_id, 150, %{stage_opts: opts}))
    refute Map.has_key?(context.state, :eval_results)
    {:ok, context} = Evaluate.execute(context(run_id, 600, %{stage_opts: opts}))
    assert context.state.eval_results.step == 600
    {:ok, context} = Evaluate.execute(context(run_id, 7, %{stage_opts: opts ++ [last: true]}))
    assert context.state.eval_results.step == 7
  end

  test "options of the stage stand before those of the run, and these before the adapter's", %{run_id: run_id} do
    {:ok, context} =
      Evaluate.execute(context(run_id, 1, %{stage_opts: [limit: 3, model: & &1.config.picked], config: picked()}))

    assert context.state.eval_results.sample_count == 3
    {:ok, evaluation} = CrucibleBridge.get_evaluation("#{run_id}-evaluate-1")
    assert {:embedded, "arithmetic@600"} = evaluation.request.model.model
  end

  defp picked, do: %{picked: "embedded:arithmetic@600", crucible_bridge: [dataset: "builtin:arithmetic", limit: 12]}

  test "a failure ends the run, unless it is asked to go on", %{run_id: run_id} do
    broken = [model: "embedded:nosuch"]

    assert {:error, {:evaluation_failed, %Error{reason: "UNKNOWN_EMBEDDED_MODEL"}}} =
             Evaluate.execute(context(run_id, 1, %{stage_opts: broken}))

    assert {:ok, context} = Evaluate.execute(context(run_id, 1, %{stage_opts: broken ++ [on_error: :continue]}))
    assert %Error{reason: "UNKNOWN_EMBEDDED_MODEL"} = context.state.eval_error
  end

  test "a function that raises is a failure like any other, for an evaluation and for a plan", %{run_id: run_id} do
    raising = fn _context -> raise "no weights yet" end
    plan = [eval_every: 1, evaluations: [[evaluators: "nll", dataset: "builtin:arithmetic", limit: 3]]]

    for opts <- [[model: raising], [dataset: raising], [model: raising, plan: plan]] do
      [{field, _function} | _] = opts
      field = to_string(field)
      before = context(run_id, 1, %{stage_opts: opts})

      assert {:error, {:evaluation_failed, %Error{field: ^field, message: "raised RuntimeError" <> _}}} =
               Evaluate.execute(before)

      assert {:ok, context} = Evaluate.execute(%{before | stage_opts: opts ++ [on_error: :continue]})
      assert %Error{field: ^field} = context.state.eval_error
    end
  end

  test "nothing scored is a failure, and records no number", %{run_id: run_id} do
    opts = [grader: fn _response, _target -> raise "no such table" end]
    before = context(run_id, 1, %{stage_opts: opts})
    assert {:error, {:evaluation_failed, %Error{reason: "TOO_MANY_UNSCORED"}}} = Evaluate.execute(before)
    assert {:ok, context} = Evaluate.execute(%{before | stage_opts: opts ++ [on_error: :continue]})
    assert %Error{reason: "TOO_MANY_UNSCORED"} = context.state.eval_error
    assert context.metrics == []
    refute_received {:recorded, _, _, _, _}
  end

  test "a run's name comes from the stage, else from the configuration, else it is Kitchen's own", %{run_id: run_id} do
    config = Map.put(context(run_id, 1).config, :run_id, "#{run_id}-named")

    for {changes, named} <- [
          {%{}, run_id},
          {%{config: config}, "#{run_id}-named"},
          {%{config: config, stage_opts: [run_id: "#{run_id}-stage"]}, "#{run_id}-stage"}
        ] do
      {:ok, context} = Evaluate.execute(context(run_id, 1, changes))
      assert context.state.eval_results.evaluation_id == "#{named}-evaluate-1"
      {:ok, evaluation} = CrucibleBridge.get_evaluation("#{named}-evaluate-1")
      assert evaluation.request.run_id == named
      assert_received {:recorded, ^named, "accuracy", _value, [step: 1]}
    end
  end

  test "a step with other weights or settings than before is evaluated anew, and says so", %{run_id: run_id} do
    {:ok, first} = Evaluate.execute(context(run_id, 1))
    changed = %{stage_opts: [limit: 5]}

    log =
      ExUnit.CaptureLog.capture_log(fn ->
        {:ok, second} = Evaluate.execute(context(run_id, 1, changed))
        send(self(), {:second, second.state.eval_results})
      end)

    assert_received {:second, %{sample_count: 5, evaluation_id: id}}
    assert String.starts_with?(id, first.state.eval_results.evaluation_id <> "-")
    assert log =~ "does not resume, and is evaluated as #{id}"
    # As often as it is started again.
    assert {:ok, %{state: %{eval_results: %{evaluation_id: ^id}}}} = Evaluate.execute(context(run_id, 1, changed))
  end

  test "a store that refuses, or raises, costs nothing but its number", %{run_id: run_id} do
    adapters = %{
      evaluator: {Evaluator, sampling: [max_tokens: 8]},
      metrics_store: {Store, test: self(), refuse: "accuracy"}
    }

    {:ok, context} = Evaluate.execute(context(run_id, 1, %{adapters: adapters}))
    assert Enum.any?(context.metrics, &(&1.name == "accuracy"))
    assert_received {:recorded, _, "accuracy_strict", _, _}

    adapters = %{adapters | metrics_store: {Store, test: self(), raise: "accuracy"}}
    {:ok, context} = Evaluate.execute(context(run_id, 2, %{adapters: adapters}))
    assert Enum.any?(context.metrics, &(&1.name == "accuracy"))
    assert_received {:recorded, _, "accuracy_strict", _, [step: 2]}
  end

  test "a report is made where one is asked for, and evaluation can be skipped", %{run_id: run_id} do
    {:ok, context} = Evaluate.execute(context(run_id, 2, %{stage_opts: [report: :markdown]}))
    assert context.state.eval_report =~ "#{run_id}-evaluate-2"
    {:ok, context} = Evaluate.execute(context(run_id, 2, %{config: %{skip_eval: true}}))
    assert context.state.eval_results == %{skipped: true}
  end

  test "a plan evaluates while steps go on, records each under its own, and waits at the last", %{run_id: run_id} do
    plan = [
      eval_every: 60,
      evaluations: [[evaluators: "nll", dataset: "builtin:arithmetic", limit: 20]],
      infrequent_eval_every: 320,
      infrequent_evaluations: [
        [evaluators: "accuracy", dataset: "builtin:arithmetic", limit: 20, sampling: [max_tokens: 8]]
      ]
    ]

    opts = [plan: plan, model: &"embedded:arithmetic@#{&1.state.global_step}"]
    before = context(run_id, 0, %{stage_opts: opts})

    after_all =
      Enum.reduce([180, 200, 240, 320, 600], before, fn step, context ->
        {:ok, context} = Evaluate.execute(put_in(context.state.global_step, step))
        context
      end)

    assert after_all.state.eval_pending == []
    refute Map.has_key?(after_all.state, :eval_failed)
    recorded = Enum.group_by(after_all.metrics, & &1.name, & &1.step)
    assert Enum.sort(recorded["nll"]) == [180, 240, 600]
    assert Enum.sort(recorded["accuracy"]) == [320, 600]
    [first, _, last] = after_all.metrics |> Enum.filter(&(&1.name == "nll")) |> Enum.sort_by(& &1.step)
    assert first.value > last.value
  end

  describe "stop_on" do
    defp stopping(changes) do
      part = [dataset: "builtin:arithmetic", limit: 20]

      plan = [
        eval_every: 100,
        evaluations: [[evaluators: "nll"] ++ part],
        infrequent_eval_every: 0,
        infrequent_evaluations: [[evaluators: "accuracy", sampling: [max_tokens: 8]] ++ part]
      ]

      # Better at 200, and the same from there on.
      model = &if(&1.state.global_step < 200, do: "embedded:arithmetic@180", else: "embedded:arithmetic@320")
      Keyword.merge([plan: plan, model: model], changes)
    end

    defp reach(context, step) do
      {:ok, context} = Evaluate.execute(put_in(context.state.global_step, step))
      context
    end

    # The worker compares after an evaluation has ended, while steps go on.
    defp until_stopped(context, step) do
      context = reach(context, step)

      if Evaluate.training?(context) do
        Process.sleep(50)
        until_stopped(context, step)
      else
        context
      end
    end

    test "a run stops once no better checkpoint comes, with the reason and the best step", %{run_id: run_id} do
      before = context(run_id, 0, %{stage_opts: stopping(stop_on: "nll", patience: 2)})
      assert Evaluate.validate(before) == :ok
      after_all = [100, 200, 300, 400] |> Enum.reduce(before, &reach(&2, &1)) |> until_stopped(401)

      assert Evaluate.stopped?(after_all)
      best = Enum.find(after_all.metrics, &(&1.name == "nll" and &1.step == 200))
      stopped = after_all.state.eval_stopped
      assert %{metric: "nll", step: 401, last_step: 400, evaluations: 2, best_step: 200} = stopped
      assert stopped.best_evaluation_id == best.metadata.evaluation_id
      assert stopped.best_value == best.value
      assert stopped.reason =~ ~r/^nll of step 200 \(0\.\d+\) was not improved in 2 evaluations, up to step 400/

      # It was the last step: what is due then was waited for.
      assert after_all.state.eval_pending == []
      recorded = Enum.group_by(after_all.metrics, & &1.name, & &1.step)
      assert Enum.sort(recorded["nll"]) == [100, 200, 300, 400, 401]
      assert recorded["accuracy"] == [401]
      assert reach(after_all, 500) == put_in(after_all.state.global_step, 500)

      # In another VM the run counts what it has reached; a plan that only reports stops nothing.
      assert %{best_step: 200, last_step: 400} = reach(before, 402).state.eval_stopped
      refute before |> reach(300) |> Evaluate.stopped?()
      as_fields = stopping(stop_on: [metric: "nll"], patience: 2)
      assert Evaluate.stopped?(reach(%{before | stage_opts: as_fields}, 402))
      reports = update_in(stopping([])[:plan], &Keyword.put(&1, :patience, metric: "nll", patience: 2))
      refute Evaluate.stopped?(reach(%{before | stage_opts: reports}, 402))
    end

    test "what cannot be used is refused before anything is evaluated", %{run_id: run_id} do
      for {changes, said} <- [
            {[stop_on: "nll", plan: nil], "stop_on needs a plan: give the stage `plan: [...]`"},
            {[patience: 2], "patience is only allowed with stop_on"},
            {[stop_on: "nll", patience: 0], "patience is 0, must be a whole number, at least 1"},
            {[stop_on: "nll", patience: 2.5], "patience is 2.5, must be a whole number, at least 1"},
            {[stop_on: ""], "stop_on.metric is empty"},
            {[stop_on: 7], "stop_on is neither keywords nor a map"},
            {[stop_on: [metric: "nll", goal: :up]], "stop_on.goal has :up; there are :higher, :lower"},
            {[stop_on: [metric: "nll", minimum: 1]], "stop_on has :minimum"},
            {[stop_on: %{metric: "nll", patience: 0}], "stop_on.patience is 0, must be at least 1"}
          ] do
        before = context(run_id, 100, %{stage_opts: stopping(changes)})
        assert {:error, %Error{code: :invalid_argument} = error} = Evaluate.validate(before)
        assert Exception.message(error) =~ said
        assert {:error, {:evaluation_failed, ^error}} = Evaluate.execute(before)
      end
    end

    test "a metric that no evaluation of the plan yields is refused by the worker", %{run_id: run_id} do
      before = context(run_id, 100, %{stage_opts: stopping(stop_on: "bleu")})
      assert {:error, {:evaluation_failed, %Error{field: "patience.metric"}}} = Evaluate.execute(before)
    end
  end

  test "what a worker that dies leaves of a plan goes on at the next one", %{run_id: run_id} do
    worker = TestWorker.start()
    conn = start_supervised!({Connection, name: nil, address: worker.address}, id: :other)
    accuracy = [evaluators: "accuracy", dataset: "builtin:arithmetic", limit: 400, sampling: [max_tokens: 8]]
    plan = [eval_every: 240, evaluations: [accuracy]]
    opts = [plan: plan, conn: conn, model: &"embedded:arithmetic@#{&1.state.global_step}"]

    {:ok, context} = Evaluate.execute(context(run_id, 240, %{stage_opts: opts}))
    assert [{id, _notice}] = context.state.eval_pending
    {:ok, batches} = CrucibleBridge.watch(conn, id)
    assert Enum.any?(batches, fn {:ok, batch} -> Enum.any?(batch.events, &(&1.kind == :EVENT_KIND_SAMPLE_COMPLETE)) end)
    TestWorker.kill(worker)
    TestWorker.restart(worker)

    {:ok, context} = Evaluate.execute(put_in(context.state.global_step, 600))
    assert context.state.eval_pending == []
    assert context.metrics |> Enum.filter(&(&1.name == "accuracy")) |> Enum.map(& &1.step) |> Enum.sort() == [240, 600]
    assert {:ok, %{state: :completed, attempt: 2}} = CrucibleBridge.get_evaluation(conn, id)
  end

  test "a plan is for models that a worker reaches by itself", %{run_id: run_id} do
    held = %CrucibleBridge.Orchestrator.Model{name: "m", forward: fn _ -> {:ok, []} end}
    plan = [eval_every: 1, evaluations: [[evaluators: "nll", dataset: "builtin:arithmetic"]]]

    assert {:error, {:evaluation_failed, %Error{field: "model"}}} =
             Evaluate.execute(context(run_id, 1, %{stage_opts: [plan: plan, model: held]}))
  end
end
