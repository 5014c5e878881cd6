defmodule CrucibleBridge.SpecificationTest do
  use ExUnit.Case, async: true

  alias CrucibleBridge.{Error, Evaluator, Specification, V1}
  alias CrucibleBridge.Orchestrator.{Frames, Held, Model}

  test "keywords become the request" do
    {:ok, request} =
      Specification.build(
        evaluation_id: "e-1",
        run_id: "r",
        step: 4,
        model: "embedded:arithmetic@320",
        evaluators: [:nll, {"accuracy", name: "math", grader: "math", grader_options: %{rounding_digits: 3}}],
        dataset: [{"1+1=", 2}],
        sampling: [max_tokens: 8, temperature: 1],
        limits: [deadline_ms: 1_000],
        metric_prefix: "test/",
        labels: %{owner: :me, n: 1}
      )

    assert request.model == %V1.ModelRef{model: {:embedded, "arithmetic@320"}}

    assert [%{kind: "nll", name: nil, options: nil}, %{kind: "accuracy", name: "math", options: options}] =
             request.evaluators

    assert Google.Protobuf.to_map(options) == %{"grader" => "math", "grader_options" => %{"rounding_digits" => 3.0}}
    assert {:inline, %{samples: [%{input: {:text, "1+1="}, targets: ["2"]}]}} = request.dataset.source
    assert request.labels == %{"owner" => "me", "n" => "1"}
    assert V1.EvaluateRequest.decode(V1.EvaluateRequest.encode(request)) == request
  end

  test "an option that is given twice is named by its place, in every list of keywords" do
    once = [model: "embedded:arithmetic@320", evaluators: "nll", dataset: [{"1+1=", 2}]]

    for {opts, field} <- [
          {[limit: 1, limit: 2], "limit"},
          {[sampling: [max_tokens: 8, max_tokens: 16]], "sampling.max_tokens"},
          {[limits: [concurrency: 1, concurrency: 1]], "limits.concurrency"},
          {[evaluators: [{"accuracy", grader: "math", grader: "exact_match"}]], "evaluators[0].options.grader"},
          {[evaluators: [{"accuracy", grader_options: [a: 1, a: 2]}]], ~s(evaluators[0].options["grader_options"].a)},
          {[labels: [lr: 1, lr: 2]], "labels.lr"}
        ] do
      opts = Keyword.merge(once, opts)
      assert {:error, %Error{field: ^field, message: "is given twice"}} = CrucibleBridge.evaluate(:no_connection, opts)
      assert {:error, %Error{message: "is given twice"}} = Evaluator.evaluate(opts, "embedded:a@1", [{"1+1=", 2}])
    end

    plan = [plan_id: "p", run_id: "r", eval_every: 1, evaluations: [[evaluators: :nll, dataset: "x", dataset: "y"]]]
    assert {:error, %Error{field: "evaluations[0].dataset", message: "is given twice"}} = Specification.plan(plan)
    assert {:error, %Error{field: "eval_every"}} = Specification.plan([eval_every: 2] ++ plan)
  end

  @tag :capture_log
  test "a data set that raises while it is read is an error" do
    for dataset <- [fn -> raise "not there" end, Stream.map([1], fn _ -> raise "not there" end)] do
      assert {:error, %Error{field: "dataset", message: "raised RuntimeError" <> _}} =
               Specification.build(evaluators: "nll", dataset: dataset)
    end
  end

  test "an option that is misspelt is refused, that of a plan's evaluation by its place" do
    assert {:error, %Error{field: "specification", message: "has :metrics_prefix; there are " <> _}} =
             CrucibleBridge.evaluate(:no_connection, evaluators: :nll, metrics_prefix: "test/")

    plan = [plan_id: "p", eval_every: 1, evaluations: [[evaluators: :nll, dataset: "builtin:arithmetic"]]]
    assert {:ok, %{evaluations: [_one]}} = Specification.plan(plan)

    for {evaluation, message} <- [
          {[evaluators: :nll, step: 4], "has :step; there are "},
          {{:evaluators, :nll}, "is no keyword list"}
        ] do
      assert {:error, %Error{field: "evaluations[0]", message: ^message <> _}} =
               Specification.plan(Keyword.put(plan, :evaluations, [evaluation]))
    end
  end

  test "evaluators may be keywords, and a single one needs no list" do
    assert {:ok, [%{kind: "accuracy"}, %{kind: "nll"}]} = Specification.evaluators(accuracy: [grader: "math"], nll: [])
    assert {:ok, [%{kind: "nll"}]} = Specification.evaluators(:nll)
    assert {:ok, [%{kind: "nll"}]} = Specification.evaluators({"nll", train_on: :all})
  end

  test "a limit is the worker's where it shuffles first" do
    items = for n <- 1..5, do: {"#{n}", n}
    {:ok, %{dataset: cut}} = Specification.build(dataset: items, limit: 2)
    assert {:inline, %{samples: [_, _]}} = cut.source
    {:ok, %{dataset: whole}} = Specification.build(dataset: items, limit: 2, shuffle_seed: 7)
    assert {:inline, %{samples: [_, _, _, _, _]}} = whole.source
    assert {whole.limit, whole.shuffle_seed} == {2, 7}
  end

  test "a data set of the hub has its columns apart from its places" do
    {:ok, %{dataset: %{source: {:hub, hub}}}} = Specification.build(dataset: "hub:o/n?split=test&input=question")
    assert {hub.repo_id, hub.split, hub.columns} == {"o/n", "test", %{"input" => "question"}}
  end

  test "a file has its format and columns, and a data set its filter" do
    {:ok, %{dataset: dataset}} = Specification.build(dataset: "csv:q.csv?input=question", where: %{level: "hard"})
    assert {:file, file} = dataset.source
    assert {file.path, file.format, file.columns} == {"q.csv", :FILE_FORMAT_CSV, %{"input" => "question"}}
    assert dataset.where == %{"level" => "hard"}
  end

  test "what is wrong names its field" do
    for {opts, field} <- [
          {[model: "embedded:"], "model"},
          {[evaluators: [:nll, 42]], "evaluators[1]"},
          {[evaluators: [{:nll, [x: self()]}]], ~s(evaluators[0].options["x"])},
          {[evaluators: [{:nll, 42}]], "evaluators[0].options"},
          {[dataset: [:nonsense]], "dataset[0]"},
          {[sampling: [max_token: 8]], "sampling"},
          {[limits: 42], "limits"},
          {[labels: %{x: %{}}], ~s(labels["x"])},
          {[labels: %{{} => "x"}], "labels"},
          {[evaluators: [{:nll, %{{} => 1}}]], "evaluators[0].options"}
        ] do
      assert {:error, %Error{reason: "INVALID_FIELD", field: ^field}} = Specification.build(opts)
    end
  end

  test "a plan has its evaluations often and seldom" do
    {:ok, plan} =
      Specification.plan(
        plan_id: "p",
        run_id: "r",
        eval_every: 60,
        evaluations: [[evaluators: "nll", dataset: "builtin:arithmetic"]],
        infrequent_eval_every: 320,
        infrequent_evaluations: [[evaluators: "accuracy", dataset: "builtin:arithmetic", sampling: [max_tokens: 8]]]
      )

    assert [%{evaluators: [%{kind: "nll"}]}] = plan.evaluations
    assert [%{sampling: %{max_tokens: 8}}] = plan.infrequent_evaluations
    assert V1.EvaluationPlan.decode(V1.EvaluationPlan.encode(plan)) == plan
  end

  describe "frames:" do
    @question %V1.OrchestratorQuestion{id: 3, question: {:logprobs, %V1.LogprobsQuestion{}}}

    defp tokens(ids), do: %V1.ModelInput{chunks: [%V1.ModelInputChunk{chunk: {:tokens, tensor(ids)}}]}
    defp tensor(ids), do: %V1.Tensor{dtype: :DTYPE_I32, data: for(id <- ids, into: <<>>, do: <<id::little-32>>)}

    defp asked(question), do: Frames.question(%V1.OrchestratorQuestion{id: 1, question: question})

    test "questions are read with what holds where nothing is said" do
      sampling = %V1.SamplingParams{max_tokens: 8}
      sample = %V1.SampleQuestion{prompt: {:text, "q"}, num_samples: 2, sampling: sampling}
      params = %{max_tokens: 8, temperature: 0.0, top_p: 1.0, stop: []}
      assert asked({:sample, sample}) == {:ok, {:sample, {:text, "q"}, params, 2}}

      seeded = %{sample | plain: true, sampling: %{sampling | seed: 0, top_k: 4}}
      assert {:ok, {:sample, {:plain, "q"}, %{seed: 0, top_k: 4}, 2}} = asked({:sample, seeded})

      assert asked({:logprobs, %V1.LogprobsQuestion{sequence: tokens([1, 2])}}) ==
               {:ok, {:logprobs, [{:tokens, [1, 2]}]}}

      assert asked({:argmax, %V1.ArgmaxQuestion{sequence: tokens([1, 2])}}) == {:ok, {:argmax, [{:tokens, [1, 2]}]}}

      datum = %V1.Datum{model_input: tokens([1, 2]), loss_fn_inputs: %{"target_tokens" => tensor([2, 3])}}
      expected = {:ok, {:forward, [%{chunks: [{:tokens, [1, 2]}], targets: [2, 3]}]}}
      assert asked({:forward, %V1.ForwardQuestion{data: [datum]}}) == expected
    end

    test "a question of another version is refused, not raised" do
      for question <- [nil, {:sample, %V1.SampleQuestion{}}, {:forward, %V1.ForwardQuestion{data: [%V1.Datum{}]}}] do
        assert {:error, %Error{field: "question"}} = asked(question)
      end
    end

    test "answers bear the question's id, NaN and infinities included" do
      frame = Frames.answer(@question, {:ok, [-0.5, :nan, :negative_infinity]})
      assert {:answer, %{id: 3, answer: {:logprobs, tensor}}} = frame.frame

      assert {:ok, [-0.5, :nan, :negative_infinity]} =
               tensor |> CrucibleBridge.Wire.tensor() |> CrucibleBridge.Tensor.unpack()
    end

    test "likeliest tokens are token ids" do
      question = %V1.OrchestratorQuestion{id: 5, question: {:argmax, %V1.ArgmaxQuestion{}}}
      assert {:answer, %{id: 5, answer: {:argmax, tensor}}} = Frames.answer(question, {:ok, [7, -1]}).frame
      assert tensor.dtype == :DTYPE_I64
      assert {:ok, [7, -1]} = tensor |> CrucibleBridge.Wire.tensor() |> CrucibleBridge.Tensor.unpack()

      assert {:answer, %{answer: {:problem, %{reason: "BACKEND_ANSWER"}}}} =
               Frames.answer(question, {:ok, [2 ** 70]}).frame
    end

    test "an error is a problem of at most 1 KB, whole characters only" do
      error = %Error{reason: "BUSY", message: String.duplicate("é", 600), retryable: true}
      assert {:answer, %{answer: {:problem, problem}}} = Frames.answer(@question, {:error, error}).frame
      assert {problem.reason, problem.retryable, byte_size(problem.message)} == {"BUSY", true, 1_000}
      assert String.valid?(problem.message)
    end

    test "what no message holds is a problem" do
      sample = %V1.OrchestratorQuestion{id: 4, question: {:sample, %V1.SampleQuestion{}}}

      for sequence <- [%{text: "x", tokens: ["a"]}, %{text: "x", output_tokens: "many"}] do
        assert {:answer, %{id: 4, answer: {:problem, %{reason: "BACKEND_ANSWER"}}}} =
                 Frames.answer(sample, {:ok, [sequence]}).frame
      end
    end

    test "the start names the model and what it can be asked for" do
      model = %Model{name: "m@4", sample: fn _, _, _ -> {:ok, []} end, forward: fn _ -> {:ok, []} end}
      {:ok, held} = Held.new(model, [])
      assert {:start, start} = Frames.start(%V1.EvaluateRequest{}, held, 16).frame
      assert start.calls == [:ORCHESTRATOR_CALL_SAMPLE, :ORCHESTRATOR_CALL_FORWARD]
      assert start.request.model == %V1.ModelRef{model: {:orchestrator, %V1.OrchestratorModel{name: "m@4"}}}

      grader = fn response, target -> response == target end
      {:ok, held} = Held.new(nil, graders: [exact: grader], environments: fn _episode -> %URI{} end)
      ref = %V1.ModelRef{model: {:embedded, "arithmetic@320"}}
      assert {:start, start} = Frames.start(%V1.EvaluateRequest{model: ref}, held, 16).frame
      assert {start.request.model, start.calls} == {ref, []}
      assert {start.graders, start.environments} == {["exact"], ["environment"]}
    end
  end
end
