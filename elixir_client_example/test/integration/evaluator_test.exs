defmodule CrucibleBridge.EvaluatorTest do
  use ExUnit.Case, async: false

  import ExUnit.CaptureLog

  @moduletag :integration
  @moduletag :capture_log
  # Workers load their model anew, on whatever else the machine does.
  @moduletag timeout: 180_000

  alias CrucibleBridge.{
    Connection,
    Error,
    EvaluationResult,
    Evaluator,
    MathGrading,
    MathVerifier,
    Metrics,
    Tensor,
    TestWorker
  }

  @model "embedded:arithmetic@320"
  @opts [sampling: [max_tokens: 8]]

  setup_all do
    worker = TestWorker.start()
    start_supervised!({Connection, address: worker.address})
    :ok = Connection.await(Connection, 10_000)
    {:ok, worker: worker}
  end

  defp datum(tokens, weights) do
    {inputs, targets} = {Enum.drop(tokens, -1), tl(tokens)}
    %{model_input: inputs, loss_fn_inputs: %{"target_tokens" => targets, "weights" => weights}}
  end

  # Of every token but the first, as the model says by itself.
  defp logprobs(sequences) do
    {:ok, reply} = CrucibleBridge.compute_logprobs(@model, sequences)

    for sequence <- reply.sequences do
      {:ok, values} = Tensor.unpack(sequence.logprobs)
      values
    end
  end

  # That a sample of an evaluation at work was written down.
  defp sampled?({:ok, batch}), do: Enum.any?(batch.events, &(&1.kind == :EVENT_KIND_SAMPLE_COMPLETE))

  describe "the port:" do
    test "its numbers are those of the call" do
      {:ok, results} =
        Evaluator.evaluate(@opts ++ [metrics: [:accuracy, :loss, :perplexity]], @model, "builtin:arithmetic")

      {:ok, evaluation} =
        CrucibleBridge.evaluate([model: @model, evaluators: [:accuracy, :nll], dataset: "builtin:arithmetic"] ++ @opts)

      values = evaluation.metrics.values
      assert results.metrics == values
      assert {results.accuracy, results.nll, results.loss} == {values["accuracy"], values["nll"], values["nll"]}
      assert_in_delta results.perplexity, :math.exp(values["nll"]), 1.0e-12
      assert results.accuracy > 0.5 and results.accuracy < 1.0
      assert results.sample_count == 815
    end

    test "the same id is the same evaluation, and another specification under it is refused" do
      opts = @opts ++ [evaluation_id: "twice", limit: 5]
      {:ok, first} = Evaluator.evaluate(opts, @model, "builtin:arithmetic")
      assert {:ok, ^first} = Evaluator.evaluate(opts, @model, "builtin:arithmetic")

      assert {:error, %Error{code: :already_exists, reason: "OTHER_SPECIFICATION"}} =
               Evaluator.evaluate(opts, "embedded:arithmetic@180", "builtin:arithmetic")
    end

    test "a report is of the evaluation that the results are of" do
      {:ok, results} = Evaluator.evaluate(@opts ++ [evaluation_id: "reported", limit: 5], @model, "builtin:arithmetic")
      assert {:ok, "# Evaluation" <> _ = markdown} = Evaluator.generate_report([], results)
      assert markdown =~ "reported"
      assert {:ok, json} = Evaluator.generate_report([format: :json], results)
      assert [%{"evaluation_id" => "reported"}] = Jason.decode!(json)["evaluations"]
      assert {:error, %Error{field: "results"}} = Evaluator.generate_report([], %{skipped: true})
    end

    test "a report in HTML is one page of its evaluation, without a warning" do
      {:ok, results} = Evaluator.evaluate(@opts ++ [evaluation_id: "in-html", limit: 5], @model, "builtin:arithmetic")

      log =
        capture_log(fn ->
          opts = [format: :html, title: "Night", max_samples: 2]
          assert {:ok, "<!doctype html>" <> _ = page} = Evaluator.generate_report(opts, results)
          assert page =~ "<title>Night"
          assert page =~ "at most 2 samples"
          assert {:ok, json} = Evaluator.generate_report([format: :json], results)
          assert Jason.decode!(json)["evaluations"] != []
        end)

      assert log == ""
    end

    test "a report in a format that the worker does not have is in Markdown, with a warning" do
      {:ok, results} = Evaluator.evaluate(@opts ++ [limit: 5], @model, "builtin:arithmetic")

      for format <- [:pdf, nil] do
        log =
          capture_log(fn ->
            assert {:ok, "# Evaluation" <> _} = Evaluator.generate_report([format: format], results)
          end)

        assert log =~ "writes no report in #{inspect(format)}"
      end
    end

    test "plain results are reported without an evaluation" do
      results = %{accuracy: 0.5, sample_count: 3, model: "m", metrics: %{"test/nll" => 2.0, "x" => :nan}}

      for {format, start} <- [markdown: "# Results", html: "<!doctype html>", json: "{"] do
        assert {:ok, report} = Evaluator.generate_report([format: format], results)
        assert String.starts_with?(report, start)
        for part <- ["accuracy", "sample_count", "test/nll"], do: assert(report =~ part)
      end

      assert {:ok, "# Mine" <> _} = Evaluator.generate_report([title: "Mine"], %{accuracy: 1})
      assert {:error, %Error{field: "results"}} = Evaluator.generate_report([], %{accuracy: nil})
    end

    # What the stage of Kitchen does with its port; kitchen_test.exs runs the real one where it is a dependency.
    defp kitchens_stage({adapter, adapter_opts}, config, session, dataset) do
      opts = Keyword.merge(adapter_opts, metrics: config.eval_metrics)

      with {:ok, results} <- adapter.evaluate(opts, session, dataset),
           {:ok, report} <- adapter.generate_report(Keyword.put(opts, :format, config.eval_report_format), results) do
        {:ok, %{eval_results: results, eval_report: report}}
      else
        {:error, reason} -> {:error, {:evaluation_failed, reason}}
      end
    end

    test "a stage like Kitchen's has its evaluation and a report in every format that Kitchen documents" do
      for {format, start} <- [markdown: "# Evaluation", html: "<!doctype html>", json: "{"] do
        adapter = {Evaluator, @opts ++ [batch_size: 8, limit: 5]}
        config = %{eval_metrics: [:accuracy, :f1], eval_report_format: format}
        assert {:ok, state} = kitchens_stage(adapter, config, @model, "builtin:arithmetic")
        assert String.starts_with?(state.eval_report, start)
        assert state.eval_report =~ state.eval_results.evaluation_id
      end
    end

    test "every option that Kitchen's port documents is taken, and what has no effect is said" do
      opts = @opts ++ [metrics: [:accuracy, :f1, :precision, :recall], batch_size: 32, limit: 5, format: :html]

      log =
        capture_log(fn ->
          assert {:ok, %{sample_count: 5} = results} = Evaluator.evaluate(opts, @model, "builtin:arithmetic")
          assert {:ok, "<!doctype html>" <> _} = Evaluator.generate_report(opts ++ [include_plots: true], results)
        end)

      assert log =~ ":batch_size has no effect"
      assert log =~ "generate_report ignores :include_plots"
    end

    test "F1, precision and recall are of classes, and undefined where targets are the worker's alone" do
      # What the model says of these is asked first; then each is right or wrong by choice.
      prompts = ["017+025=", "111+222="]

      {:ok, said} =
        CrucibleBridge.evaluate(
          [model: @model, evaluators: "accuracy", dataset: Enum.map(prompts, &{&1, "x"})] ++ @opts
        )

      {:ok, %{samples: samples}} = CrucibleBridge.get_samples(said.evaluation_id)
      [one, two] = Enum.map(samples, &String.trim(&1.output))
      assert one != two

      items = [{hd(prompts), one}, {List.last(prompts), two}, {hd(prompts), two}]
      metrics = [:accuracy, :f1, :precision, :recall]
      {:ok, results} = Evaluator.evaluate(@opts ++ [metrics: metrics, metric_prefix: "test/"], @model, items)
      assert_in_delta results.accuracy, 2 / 3, 1.0e-12
      # `one` is said twice and right once, `two` once of two.
      assert {results.precision, results.recall} == {0.75, 0.75}
      assert_in_delta results.f1, 2 / 3, 1.0e-12
      assert results.metrics["test/f1"] == results.f1

      {:ok, results} = Evaluator.evaluate(@opts ++ [metrics: metrics, limit: 3], @model, "builtin:arithmetic")
      assert Map.keys(results.undefined) == ["f1", "precision", "recall"]
      assert %{f1: nil, precision: nil, recall: nil} = results
    end

    test "an evaluator that ran and scored nothing is an error, which names the evaluation and the first reason" do
      raising = fn _response, _target -> raise "no such table" end

      for {opts, reason, why, state} <- [
            {[grader: raising], "TOO_MANY_UNSCORED", "no such table", :failed},
            {[grader: fn _response, _target -> :undecided end], "NOT_SCORED", "UNDECIDED", :completed},
            {[evaluators: ["nll", {"accuracy", name: "judged", grader: raising}]], "TOO_MANY_UNSCORED",
             "judged: 3 of 3", :failed}
          ] do
        assert {:error, %Error{reason: ^reason, code: :failed_precondition, retryable: false} = error} =
                 Evaluator.evaluate(@opts ++ [limit: 3] ++ opts, @model, "builtin:arithmetic")

        assert error.message =~ why
        assert {:ok, %{state: ^state}} = CrucibleBridge.get_evaluation(error.details["evaluation_id"])
      end
    end

    test "one answer that is scored is a number, and what could not be judged is counted" do
      grader = fn _response, target -> target == "042" || raise "no such table" end
      items = [{"017+025=", "042"}, {"100+001=", "101"}, {"001+001=", "002"}]

      assert {:ok, results} =
               Evaluator.evaluate(@opts ++ [grader: grader, limits: [max_unscored_share: 1.0]], @model, items)

      assert %{accuracy: 1.0, n_unscored: 2, n_errors: 2, f1: nil} = results
    end

    test "what Kitchen reads as 0 where it is absent is there, and nil where it was not measured" do
      {:ok, results} = Evaluator.evaluate(@opts ++ [metrics: [:nll], limit: 3], @model, "builtin:arithmetic")
      assert %{accuracy: nil, f1: nil, precision: nil, recall: nil, nll: nll} = results
      assert is_float(nll)
      refute Enum.any?(results.metrics, fn {_key, value} -> value == nil end)
    end

    test "partial grades are the accuracy of the result of crucible_datasets' shape, too" do
      opts = @opts ++ [limit: 4, grader: fn _response, _target -> 0.5 end, evaluation_id: "half-marks"]
      assert {:ok, %{accuracy: 0.5}} = Evaluator.evaluate(opts, @model, "builtin:arithmetic")
      {:ok, evaluation} = CrucibleBridge.get_evaluation("half-marks")
      {:ok, samples} = CrucibleBridge.all_samples("half-marks")
      assert {:ok, %{accuracy: 0.5, correct_items: 0, total_items: 4}} = EvaluationResult.of(evaluation, samples)
    end

    test "what is asked wrongly is an error before anything is evaluated" do
      for {opts, field} <- [
            {[nosuch: 1], "opts"},
            {[metrics: [:bleurt]], "metrics"},
            {[evaluators: [:nosuch]], "evaluators[0].kind"},
            {[metrics: [:accuracy]], "sampling"}
          ] do
        assert {:error, %Error{field: ^field, retryable: false}} =
                 Evaluator.evaluate(opts, @model, "builtin:arithmetic")
      end

      assert {:error, %Error{reason: "UNKNOWN_EMBEDDED_MODEL"}} =
               Evaluator.evaluate(@opts, "embedded:nosuch", [{"q", "a"}])

      assert {:error, %Error{field: "model"}} = Evaluator.evaluate(@opts, %{a: :session}, [{"q", "a"}])
    end

    test "the caller's own time ends the waiting, and the evaluation goes on under its id" do
      opts = @opts ++ [evaluation_id: "waited", timeout: 1, metrics: [:accuracy, :nll]]

      assert {:error, %Error{code: :deadline_exceeded, details: %{"evaluation_id" => "waited"}}} =
               Evaluator.evaluate(opts, @model, "builtin:arithmetic")

      assert {:ok, %{sample_count: 815}} =
               Evaluator.evaluate(Keyword.delete(opts, :timeout), @model, "builtin:arithmetic")
    end

    test "a worker that is killed in the middle and comes back goes on" do
      worker = TestWorker.start()
      conn = start_supervised!({Connection, name: nil, address: worker.address}, id: :other)
      opts = @opts ++ [conn: conn, evaluation_id: "survives", metrics: [:accuracy, :nll]]

      specification = [
        evaluation_id: "survives",
        model: @model,
        evaluators: [:accuracy, :nll],
        dataset: "builtin:arithmetic"
      ]

      {:ok, _started} = CrucibleBridge.start_evaluation(conn, specification ++ @opts)
      evaluating = Task.async(fn -> Evaluator.evaluate(opts, @model, "builtin:arithmetic") end)
      {:ok, batches} = CrucibleBridge.watch(conn, "survives")
      assert Enum.any?(batches, &sampled?/1)
      TestWorker.kill(worker)
      TestWorker.restart(worker)
      assert {:ok, results} = Task.await(evaluating, 120_000)
      assert {results.sample_count, results.n_errors} == {815, 0}
      assert {:ok, %{attempt: 2}} = CrucibleBridge.get_evaluation(conn, "survives")
      # What it found is what an evaluation finds that nothing has interrupted.
      {:ok, whole} = Evaluator.evaluate(@opts ++ [metrics: [:accuracy, :nll]], @model, "builtin:arithmetic")
      assert whole.metrics == results.metrics
    end

    test "without patience a worker that is not there is an error at once" do
      {:ok, nowhere} = Connection.start_link(name: nil, address: "127.0.0.1:1")

      assert {:error, %Error{reason: "TRANSPORT", retryable: true}} =
               Evaluator.evaluate(@opts ++ [conn: nowhere, patience_ms: 0], @model, "builtin:arithmetic")
    end

    test "an evaluation that scored less than its limits ask for is an error with its id" do
      assert {:error, %Error{reason: "TOO_MANY_UNSCORED", details: %{"evaluation_id" => "empty-handed"}}} =
               Evaluator.evaluate(
                 @opts ++ [metrics: [:accuracy], evaluation_id: "empty-handed", limits: [max_unscored: 0]],
                 @model,
                 [%{input: "1+1=", target: []}]
               )
    end
  end

  describe "the conventions of two arguments:" do
    test "a client and options answer under atoms, an evaluator and a client under strings" do
      opts = @opts ++ [limit: 8]
      {:ok, by_port} = Evaluator.evaluate(opts, @model, "builtin:arithmetic")
      {:ok, by_client} = Evaluator.evaluate(@model, opts ++ [dataset: "builtin:arithmetic"])
      assert by_client.metrics == by_port.metrics

      {:ok, by_evaluator} =
        "builtin:arithmetic" |> Evaluator.new(opts ++ [name: "held_out"]) |> Evaluator.evaluate(@model)

      assert by_evaluator["held_out/accuracy"] == by_port.accuracy
    end

    test "NLL is of data, one sum over all of their tokens" do
      data = [datum([1, 2, 3, 4], [1.0, 1.0, 0.0]), datum([3, 2, 1], [0.0, 2.0])]
      {:ok, %{nll: nll} = result} = Evaluator.NLL.evaluate(@model, data: data)
      assert Map.keys(result) == [:nll]
      assert {:ok, %{"test/nll" => ^nll}} = data |> Evaluator.NLL.new() |> Evaluator.NLL.evaluate(@model)

      [[a, b, _c], [_d, e]] = logprobs([[1, 2, 3, 4], [3, 2, 1]])
      assert_in_delta nll, -(a + b + 2 * e) / 4, 1.0e-5
    end

    test "NLL without weights is undefined, with the reason" do
      assert {:ok, %{undefined: %{"nll" => reason}} = result} =
               Evaluator.NLL.evaluate(@model, data: [datum([1, 2, 3], [0.0, 0.0])])

      assert is_binary(reason)
      refute Map.has_key?(result, :nll)
    end

    test "custom is accuracy by any grader" do
      data = [%{"input" => "017+025=", "output" => "nothing but words"}]

      assert {:ok, %{accuracy: +0.0}} = Evaluator.Custom.evaluate(@model, @opts ++ [dataset: data, grader: "contains"])

      assert {:error, %Error{reason: "UNKNOWN_GRADER"}} =
               Evaluator.Custom.evaluate(@model, @opts ++ [dataset: data, grader: "nosuch"])

      assert {:ok, %{"test/accuracy" => +0.0}} =
               data |> Evaluator.Custom.new(@opts) |> Evaluator.Custom.evaluate(@model)
    end
  end

  test "comparison asks a judge, and is an error if no judgement can be read" do
    data = [%{"input" => "017+025=", "output" => "042"}, %{"input" => "001+001=", "output" => "002"}]

    # One that has learnt to add is no judge.
    assert {:error, %Error{reason: "TOO_MANY_UNSCORED", message: message}} =
             Evaluator.Comparison.evaluate(@model, @opts ++ [dataset: data, judge: @model, judge_max_tokens: 8])

    assert message =~ "comparison: 2 of 2 samples ended with an error"

    assert {:error, %Error{field: field}} =
             Evaluator.Comparison.evaluate(@model, @opts ++ [dataset: data, judge: "embedded:nobody"])

    assert field =~ "judge"
    assert {:error, %Error{field: "judge"}} = Evaluator.Comparison.evaluate(@model, @opts ++ [dataset: data])
    assert {:error, %Error{field: "dataset"}} = Evaluator.Comparison.evaluate(@model, @opts ++ [judge: @model])

    assert {:error, %Error{reason: "TOO_MANY_UNSCORED"}} =
             data |> Evaluator.Comparison.new(@opts ++ [judge: @model]) |> Evaluator.Comparison.evaluate(@model)
  end

  describe "metrics by their proposed names:" do
    @data [%{model_input: [1, 2, 3], loss_fn_inputs: %{"logprobs" => [-1.0, -2.0, -0.5], "mask" => [0, 1, 1]}}]

    test "KL of sampling and training" do
      assert Metrics.KL.kl_sample_train(@data, [[9.0, -2.5, -0.5]]) ==
               %{kl_sample_train_v1: 0.25, kl_sample_train_v2: 0.0625, entropy: 1.25}

      assert %{undefined: %{"optim/entropy" => _}} =
               result =
               Metrics.KL.kl_sample_train([put_in(hd(@data).loss_fn_inputs["mask"], [0, 0, 0])], [[0.0, 0.0, 0.0]])

      assert Map.keys(result) == [:undefined]
      assert {:error, %Error{field: "training_logprobs[0]"}} = Metrics.KL.kl_sample_train(@data, [[0.0]])
    end

    test "KL of an update, given, asked of the worker's model, or of one that stays here" do
      assert Metrics.KL.kl_post_update(@data, [[9.0, -2.5, -0.25]]) == %{
               kl_pre_post_v1: 0.125,
               kl_pre_post_v2: 0.078125
             }

      data = [put_in(hd(@data).loss_fn_inputs["target_tokens"], [2, 3, 4])]
      test = self()

      held = %CrucibleBridge.Orchestrator.Model{
        name: "after",
        logprobs: fn chunks ->
          send(test, chunks)
          {:ok, [nil, 9.0, -2.5, -0.25]}
        end
      }

      assert Metrics.KL.kl_post_update(data, held) == %{kl_pre_post_v1: 0.125, kl_pre_post_v2: 0.078125}
      assert_received [{:tokens, [1, 2, 3]}, {:tokens, [4]}]

      [[_a, b, c]] = logprobs([[1, 2, 3, 4]])
      %{kl_pre_post_v1: v1} = Metrics.KL.kl_post_update(data, @model)
      assert_in_delta v1, (-2.0 - b + (-0.5 - c)) / 2, 1.0e-5
    end

    test "a model that stays here and dies is an error, and its caller lives" do
      data = for n <- 1..3, do: put_in(hd(@data).loss_fn_inputs["target_tokens"], [2, 3, n])

      for dies <- [
            fn -> Task.await(Task.async(fn -> exit(:boom) end)) end,
            fn -> Process.exit(self(), :kill) end,
            fn -> {:error, :no} end
          ] do
        held = %CrucibleBridge.Orchestrator.Model{name: "dies", logprobs: fn _chunks -> dies.() end}
        assert {:error, %Error{reason: "BACKEND_FAILED"}} = Metrics.KL.kl_post_update(data, held)
      end

      assert Process.info(self(), :messages) == {:messages, []}
    end

    test "NLL and trajectories" do
      assert %{nll: nll, perplexity: _} = Metrics.NLL.compute([[-1.0, :nan]], [[2.0, 0.0]])
      assert nll == 1.0

      transition = %{
        ob: [1, 2],
        ac: %{tokens: [1, 2, 3], maybe_logprobs: nil},
        reward: 1.0,
        episode_done: true,
        metrics: %{}
      }

      trajectory = %{transitions: [transition], final_ob: []}
      group = %{trajectories_G: [trajectory], final_rewards_G: [0.5], metrics_G: [%{}]}
      metrics = Metrics.Trajectory.compute([group, group], [["a"], []])
      assert metrics["env/all/reward/total"] == 1.5
      assert metrics["env/a/total_episodes"] == 1.0
      assert metrics["env/all/ac_tokens_per_turn"] == 3.0
    end
  end

  describe "math:" do
    test "a verdict is in a tuple, and what is undecided is none" do
      assert MathGrading.grade_answer("\\frac{1}{2}", "0.5") == {:ok, true}
      assert MathGrading.grade_answer("1", "2") == {:ok, false}
      assert {:error, %Error{reason: "UNDECIDED", retryable: false}} = MathGrading.grade_answer("1", "")
      assert MathGrading.grade_answer("0.33", "1/3", rounding_digits: 2) == {:ok, true}
      assert {:error, %Error{field: "given"}} = MathGrading.grade_answer(1, "1")
    end

    test "the verifier counts what is undecided" do
      :telemetry.attach(__MODULE__, [:crucible_bridge, :math_verifier, :undecided], &__MODULE__.forward/4, self())
      before = MathVerifier.undecided_count()
      assert MathVerifier.verify("2/4", "1/2")
      refute MathVerifier.verify("1", "2", timeout_ms: 5_000)
      refute MathVerifier.verify("1", "")
      assert MathVerifier.undecided_count() == before + 1
      assert_received {:undecided, %{count: 1}, %{reason: reason}} when is_binary(reason)
      :telemetry.detach(__MODULE__)
    end

    test "the verifier raises where there is no worker" do
      {:ok, nowhere} = Connection.start_link(name: nil, address: "127.0.0.1:1")
      assert_raise Error, fn -> MathVerifier.verify("1", "1", conn: nowhere) end
    end
  end

  def forward(_event, measurements, metadata, test), do: send(test, {:undecided, measurements, metadata})
end
