defmodule CrucibleBridge.CallsTest do
  use ExUnit.Case, async: false

  @moduletag :integration
  @moduletag :capture_log

  alias CrucibleBridge.{Connection, Error, ModelRegistry, Tensor, TestWorker, V1}

  setup_all do
    worker = TestWorker.start()
    {:ok, conn} = Connection.start_link([name: nil] ++ worker.connect)
    %{conn: conn}
  end

  defp specification(changes) do
    Keyword.merge(
      [
        model: "embedded:arithmetic@320",
        evaluators: [:nll, {"accuracy", name: "math"}],
        dataset: "builtin:arithmetic",
        limit: 12,
        sampling: [max_tokens: 8],
        run_id: "run-1"
      ],
      changes
    )
  end

  describe "evaluations" do
    test "a data set is read, and a prompt is shown before anything is asked", %{conn: conn} do
      assert {:ok, replies} = CrucibleBridge.read_dataset(conn, "builtin:arithmetic", offset: 2, limit: 3)
      samples = for {:ok, reply} <- replies, sample <- reply.samples, do: sample
      assert [%{id: id, input: {:text, question}} | _] = samples
      assert length(samples) == 3

      asked = specification(evaluators: ["accuracy"], limit: nil, prompt: [template: "1+{input}"])
      assert {:ok, %{sample_id: ^id, prompts: [prompt]}} = CrucibleBridge.render_sample(conn, asked, sample_id: id)
      assert prompt.text == "1+" <> question

      assert {:error, %Error{field: "prompt.few_shot.count"}} =
               CrucibleBridge.render_sample(conn, specification(prompt: [few_shot: [source: "jsonl:a", count: 0]]))
    end

    test "records are left out where nobody wants them", %{conn: conn} do
      specification = specification(evaluation_id: "outputs", evaluators: ["accuracy"], record: :outputs)
      assert {:ok, %{request: %{record: :outputs}}} = CrucibleBridge.evaluate(conn, specification)
      assert {:ok, [%{sample: nil, prompt: nil, output: output} | _]} = CrucibleBridge.all_samples(conn, "outputs")
      assert output != ""
    end

    test "one runs to its end, is the same when asked for again, and tells its samples, its events and a report", %{
      conn: conn
    } do
      specification = specification(evaluation_id: "e-1", step: 3, metric_prefix: "test/", labels: %{team: :a})
      assert {:ok, evaluation} = CrucibleBridge.evaluate(conn, specification)
      assert evaluation.state == :completed
      assert %{"test/nll" => nll, "test/math/accuracy" => accuracy} = evaluation.metrics.values
      assert nll > 0 and accuracy >= 0 and accuracy <= 1
      assert Enum.map(evaluation.results, & &1.n) == [12, 12]
      assert {:ok, ^evaluation} = CrucibleBridge.evaluate(conn, specification)
      assert {:ok, %{existed: true}} = CrucibleBridge.start_evaluation(conn, specification)
      assert {:ok, ^evaluation} = CrucibleBridge.get_evaluation(conn, "e-1")

      assert {:ok, %{samples: samples, next_page_token: ""}} =
               CrucibleBridge.get_samples(conn, "e-1", evaluator: "math")

      assert Enum.frequencies_by(samples, & &1.verdict)[:correct] == round(accuracy * 12)

      assert {:ok, %{samples: [%{verdict: :measured}]}} =
               CrucibleBridge.get_samples(conn, "e-1", verdicts: [:measured], page_size: 1)

      assert {:ok, events} = CrucibleBridge.watch(conn, "e-1", without_samples: true)
      kinds = for {:ok, batch} <- events, event <- batch.events, do: event.kind
      assert List.first(kinds) == :EVENT_KIND_EVALUATION_START
      assert List.last(kinds) == :EVENT_KIND_EVALUATION_STOP

      assert {:ok, report} = CrucibleBridge.generate_report(conn, "e-1")
      assert report =~ "test/math/accuracy"
      assert {:ok, json} = CrucibleBridge.generate_report(conn, ["e-1"], format: :json)
      assert %{"evaluations" => [%{"evaluation_id" => "e-1"}]} = Jason.decode!(json)
      assert {:ok, html} = CrucibleBridge.generate_report(conn, "e-1", format: :html)
      assert html =~ "Content-Security-Policy"
      assert {:ok, "# Mine" <> _} = CrucibleBridge.generate_report(conn, [], metrics: [accuracy: 1], title: "Mine")
      assert {:error, %Error{reason: "UNKNOWN_RUN"}} = CrucibleBridge.generate_report(conn, [], run_id: "nosuch")
      assert {:error, %Error{field: "metrics[:a]"}} = CrucibleBridge.generate_report(conn, [], metrics: %{a: "1"})
    end

    test "the same identity with another specification is refused, with both fingerprints", %{conn: conn} do
      {:ok, _evaluation} = CrucibleBridge.evaluate(conn, specification(evaluation_id: "e-2", limit: 2))

      assert {:error, %Error{code: :already_exists, reason: "OTHER_SPECIFICATION", details: details}} =
               CrucibleBridge.evaluate(conn, specification(evaluation_id: "e-2", limit: 3))

      assert %{"fingerprint" => _, "requested_fingerprint" => _} = details
    end

    test "samples of the caller's own, texts and Datums, are evaluated", %{conn: conn} do
      datum = %{
        model_input: [1, 2, 3],
        loss_fn_inputs: %{
          "target_tokens" => [2, 3, 4],
          "weights" => %{data: [0.0, 1.0, 1.0], dtype: :float32, shape: [3]}
        }
      }

      assert {:ok, %{state: :completed, results: [%{n_scored: 2}]}} =
               CrucibleBridge.evaluate(conn, specification(dataset: [datum, datum], evaluators: [:nll], limit: nil))

      assert {:ok, %{state: :completed, results: [%{n: 1}]}} =
               CrucibleBridge.evaluate(
                 conn,
                 specification(dataset: [{"17+25=", "42"}], evaluators: [:accuracy], limit: nil)
               )
    end

    test "one that is cancelled says by whom, and a list finds it by its state", %{conn: conn} do
      endless = specification(evaluation_id: "e-3", run_id: "run-3", limit: nil, limits: [concurrency: 1])
      {:ok, %{existed: false}} = CrucibleBridge.start_evaluation(conn, endless)
      assert {:ok, %{paused: true}} = CrucibleBridge.pause_evaluation(conn, "e-3")
      assert {:ok, %{paused: true, concurrency: 2}} = CrucibleBridge.set_evaluation_concurrency(conn, "e-3", 2)
      assert {:ok, %{paused: false}} = CrucibleBridge.resume_evaluation(conn, "e-3")

      assert {:ok, %{state: :cancelled, problem: %{message: "enough"}}} =
               CrucibleBridge.cancel(conn, "e-3", reason: "enough")

      assert {:ok, %{evaluations: [%{evaluation_id: "e-3"}]}} =
               CrucibleBridge.list_evaluations(conn, run_id: "run-3", states: [:cancelled])

      assert {:ok, %{evaluations: []}} = CrucibleBridge.list_evaluations(conn, run_id: "run-3", states: [:completed])

      assert {:error, %Error{reason: "EVALUATION_ENDED"}} = CrucibleBridge.pause_evaluation(conn, "e-3")
      assert {:ok, %{evaluation_id: "e-3", state: :cancelled}} = CrucibleBridge.delete_evaluation(conn, "e-3")
      assert {:error, %Error{reason: "UNKNOWN_EVALUATION"}} = CrucibleBridge.delete_evaluation(conn, "e-3")
      assert {:error, %Error{field: "states"}} = CrucibleBridge.list_evaluations(conn, states: [:finished])
    end

    test "runs and their checkpoints are listed, and Kitchen's registry finds them", %{conn: conn} do
      for step <- [180, 600] do
        model = "embedded:arithmetic@#{step}"

        asked =
          specification(evaluation_id: "r-#{step}", run_id: "run-r", step: step, model: model, labels: %{"lr" => "1"})

        assert {:ok, %{state: :completed}} = CrucibleBridge.evaluate(conn, asked)
      end

      assert {:ok, %{runs: [%{run_id: "run-r", completed: 2} = run], checkpoints: [first, last]}} =
               CrucibleBridge.list_runs(conn, run_id: "run-r")

      assert {first.step, last.step} == {180, 600}
      assert %{evaluation_id: "r-600", goal: :lower} = Enum.find(run.best, &(&1.metric == "nll"))
      assert [%{state: :completed, retained: true, best: best}] = last.results
      assert "nll" in best

      registry = [conn: conn, name: "run-r"]

      assert {:ok, [%{version: "180"}, %{version: "600", metadata: %{labels: %{"lr" => "1"}}} = model]} =
               ModelRegistry.list(registry)

      assert {:ok, [^model]} = ModelRegistry.list([offset: 1, limit: 5] ++ registry)
      assert ModelRegistry.get(registry, model.id) == {:ok, model}
      assert ModelRegistry.get(registry, "nothing") == {:error, :not_found}
      assert ModelRegistry.get(registry, "run-0/1/x") == {:error, :not_found}

      artifact = %{name: "m", version: "1", artifact_uri: "embedded:arithmetic@600", lineage: %{run_id: "run-r"}}
      assert ModelRegistry.register([conn: conn], artifact) == {:ok, model}
      assert %DateTime{} = model.created_at
      assert is_float(model.metrics["nll"])

      for {changes, opts, why} <- [
            {%{artifact_uri: "elsewhere"}, [conn: conn], "no evaluation of the run \"run-r\" has this checkpoint"},
            {%{lineage: %{run_id: "run_1_random"}}, [conn: conn], "run_1_random"},
            {%{lineage: %{}}, [conn: conn], "run_id is missing"},
            {%{}, [conn: conn, run_id: 7], "run_id is missing"},
            {%{artifact_uri: nil}, [conn: conn], "has this checkpoint"},
            {%{}, [conn: :no_such_connection], "not started"}
          ] do
        artifact = Map.merge(artifact, changes)

        log =
          ExUnit.CaptureLog.capture_log(fn ->
            assert {:ok, %{metrics: metrics, name: "m", version: "1", id: id}} = ModelRegistry.register(opts, artifact)
            assert metrics == %{}
            assert {:error, _not_found} = ModelRegistry.get(opts, id)
          end)

        assert log =~ "registered without metrics: "
        assert log =~ why
      end
    end

    test "two of a run are compared, sample by sample, and the better one is named", %{conn: conn} do
      for step <- [180, 600] do
        specification =
          specification(evaluation_id: "c-#{step}", run_id: "run-5", step: step, model: "embedded:arithmetic@#{step}")

        assert {:ok, %{state: :completed}} = CrucibleBridge.evaluate(conn, specification)
      end

      for which <- [["c-180", "c-600"], {:run, "run-5"}] do
        assert {:ok, reply} = CrucibleBridge.compare_evaluations(conn, which, rank_by: {"nll", :lower}, confidence: 0.9)
        assert reply.best_evaluation_id == "c-600"
        assert [%{baseline_id: "c-180", evaluation_id: "c-600", n_matched: 12} | _] = reply.comparisons
        assert "nll" in Enum.map(reply.series, & &1.key)
      end

      assert {:error, %Error{field: "goal"}} =
               CrucibleBridge.compare_evaluations(conn, ["c-180"], rank_by: {"nll", :best})

      assert {:error, %Error{field: "options"}} = CrucibleBridge.compare_evaluations(conn, ["c-180"], made_up: 1)
      assert {:error, %Error{reason: "UNKNOWN_RUN"}} = CrucibleBridge.compare_evaluations(conn, {:run, "no-such"})
    end

    test "a gate blocks what is worse than allowed, and names what is wrong with a policy", %{conn: conn} do
      for step <- [180, 600] do
        specification =
          specification(evaluation_id: "g-#{step}", run_id: "run-6", step: step, model: "embedded:arithmetic@#{step}")

        assert {:ok, %{state: :completed}} = CrucibleBridge.evaluate(conn, specification)
      end

      policy = [metrics: [[key: "nll", max_drop: 0, direction: :lower, min_n: 1, tier: :block]]]
      assert {:ok, %{verdict: :pass, metrics: [passed]}} = CrucibleBridge.gate(conn, "g-180", "g-600", policy)
      assert %{key: "nll", tier: :block, verdict: :pass, n: 12} = passed
      assert {:ok, %{verdict: :block, reasons: [_]}} = CrucibleBridge.gate(conn, "g-600", "g-180", policy)

      assert {:error, %Error{field: "policy.metrics[0].tier"}} =
               CrucibleBridge.gate(conn, "g-180", "g-600", metrics: [[key: "nll", max_drop: 0, tier: :stop]])

      assert {:error, %Error{field: "policy.metrics[0].max_drop"}} =
               CrucibleBridge.gate(conn, "g-180", "g-600", metrics: [[key: "nll"]])

      assert {:error, %Error{reason: "UNKNOWN_EVALUATION", field: "candidate_id"}} =
               CrucibleBridge.gate(conn, "g-180", "no-such", policy)
    end

    test "a plan starts at a step what is due, once", %{conn: conn} do
      planned = specification([]) |> Keyword.drop([:model, :run_id])
      plan = [plan_id: "p-1", run_id: "run-4", eval_every: 2, evaluations: [planned]]
      assert {:ok, %{existed: false}} = CrucibleBridge.register_plan(conn, plan)
      assert {:ok, []} = CrucibleBridge.notify_step(conn, "p-1", 1, "embedded:arithmetic@320")

      assert {:ok, [%{existed: false, evaluation: %{evaluation_id: "p-1-step-2-0"}}]} =
               CrucibleBridge.notify_step(conn, "p-1", 2, "embedded:arithmetic@320")

      assert {:ok, [%{existed: true}]} = CrucibleBridge.notify_step(conn, "p-1", 2, "embedded:arithmetic@320")
    end

    test "a run is followed only below a model root, and what was never followed is said", %{conn: conn} do
      planned = specification([]) |> Keyword.drop([:model, :run_id])
      plan = [plan_id: "p-2", run_id: "run-9", eval_every: 1, evaluations: [planned]]
      assert {:error, %Error{field: "policy"}} = CrucibleBridge.follow_run(conn, "run-9", "runs", plan, policy: :some)
      assert {:error, %Error{field: "every"}} = CrucibleBridge.follow_run(conn, "run-9", "runs", plan, every: 2)

      assert {:error, %Error{reason: "UNKNOWN_FOLLOW", field: "run_id"}} = CrucibleBridge.unfollow_run(conn, "run-9")
    end

    test "an evaluator that there is not is refused by its place", %{conn: conn} do
      assert {:error, %Error{code: :invalid_argument, reason: "UNKNOWN_EVALUATOR", field: "evaluators[0].kind"}} =
               CrucibleBridge.evaluate(conn, specification(evaluators: ["made_up"]))

      assert {:ok, evaluators} = CrucibleBridge.list_evaluators(conn)
      assert "nll" in Enum.map(evaluators, & &1.kind)
    end
  end

  describe "metrics" do
    defp datum(extra \\ %{}) do
      %{
        model_input: [1, 2],
        loss_fn_inputs: Map.merge(%{"logprobs" => [-1.0, -0.5], "mask" => [0.0, 1.0], "target_tokens" => [2, 3]}, extra)
      }
    end

    test "KL of sampling and training is that of the definition, from lists and from tensors", %{conn: conn} do
      {:ok, tensor} = Tensor.pack([0.25, -0.25], dtype: :f32)

      for training <- [[0.25, -0.25], tensor] do
        assert {:ok, %{metrics: metrics, action_tokens: 1}} =
                 CrucibleBridge.kl_sample_train(conn, [datum()], [training])

        assert metrics.values == %{
                 "optim/kl_sample_train_v1" => -0.25,
                 "optim/kl_sample_train_v2" => 0.03125,
                 "optim/entropy" => 0.5
               }
      end

      assert {:ok, %{per_sequence: %{} = per_sequence}} =
               CrucibleBridge.kl_sample_train(conn, [datum()], [[0.0, 0.0]], extended: true)

      assert Enum.all?(per_sequence, fn {_key, tensor} -> match?({:ok, [_one]}, Tensor.unpack(tensor)) end)
      masked = put_in(datum().loss_fn_inputs["mask"], [0, 0])

      assert {:ok, %{metrics: %{values: values, undefined: undefined}}} =
               CrucibleBridge.kl_sample_train(conn, [masked], [[0.0, 0.0]])

      assert values == %{}
      assert undefined["optim/entropy"] =~ "no action tokens"
    end

    test "KL after an update is asked of a model, or given", %{conn: conn} do
      assert {:ok, %{metrics: %{values: %{"kl_pre_post_v1" => -0.25}}}} =
               CrucibleBridge.kl_post_update(conn, [datum()], [[-1.0, -0.25]])

      assert {:ok, %{action_tokens: 1, metrics: %{values: %{"kl_pre_post_v1" => kl}}}} =
               CrucibleBridge.kl_post_update(conn, [datum()], "embedded:arithmetic@320", deadline_ms: 30_000)

      assert is_float(kl)
    end

    test "advantages take the penalty, one list a datum, given or asked of a model", %{conn: conn} do
      data = [
        datum(%{"advantages" => [1.0, 1.0], "mask" => [1.0, 1.0]}),
        datum(%{"advantages" => [2.0], "mask" => [1.0], "logprobs" => [-1.0]})
      ]

      assert {:ok, %{advantages: [[first, second], [third]], metrics: %{values: %{"kl_policy_base" => average}}}} =
               CrucibleBridge.incorporate_kl_penalty(conn, data, [[-1.0, -1.0], [-1.0]], coef: 1)

      assert_in_delta average, 0.5 / 3, 1.0e-12
      assert_in_delta first, 1.0 + average, 1.0e-12
      assert_in_delta second, 1.0 + average - 0.5, 1.0e-12
      assert_in_delta third, 2.0 + average, 1.0e-12

      assert {:ok, %{advantages: [[_, _]]}} =
               CrucibleBridge.incorporate_kl_penalty(conn, [hd(data)], "embedded:arithmetic@320",
                 coef: 0.1,
                 discount: 0.9
               )
    end

    test "an option that is missing or no number is refused by its name, before anything is sent", %{conn: conn} do
      assert {:error, %Error{field: "coef", message: "is missing"}} =
               CrucibleBridge.incorporate_kl_penalty(conn, [], [], [])

      assert {:error, %Error{field: "beta"}} = CrucibleBridge.dpo_metrics(conn, [], beta: "0.1")
      assert {:error, %Error{field: "chosen_logprobs"}} = CrucibleBridge.dpo_metrics(conn, [], beta: 1)

      assert {:error, %Error{field: "good_threshold"}} =
               CrucibleBridge.trajectory_metrics(conn, [], good_threshold: :half)

      assert {:error, %Error{field: "threshold"}} = CrucibleBridge.score(conn, [{"a", "a"}], :f1, threshold: "1")
      assert {:error, %Error{field: "data[0]"}} = CrucibleBridge.kl_sample_train(conn, [:datum], [[0.5]])
    end

    test "NLL weighs its tokens", %{conn: conn} do
      assert {:ok, %{metrics: %{values: %{"nll" => 0.75}}, total_weight: 2.0}} =
               CrucibleBridge.mean_nll(conn, [[-0.5, -9.0], [-1.0]], [[1, 0], [1]])
    end

    test "trajectories, pairs, labels and successes have theirs", %{conn: conn} do
      transition = %{ob: [1, 2], ac: [3], reward: 1.0, metrics: %{correct: 1}}
      group = %{trajectories_G: [%{transitions: [transition]}], final_rewards_G: [0.5], metrics_G: [%{}]}

      assert {:ok, %{metrics: %{values: %{"env/all/reward/total" => 1.5, "env/all/correct" => 1.0}}}} =
               CrucibleBridge.trajectory_metrics(conn, [group], good_threshold: 1)

      pairs = [
        chosen_logprobs: [-1.0],
        rejected_logprobs: [-2.0],
        chosen_reference_logprobs: [-1.0],
        rejected_reference_logprobs: [-1.0]
      ]

      assert {:ok, %{metrics: %{values: %{"accuracy" => 1.0, "margin" => _}}}} =
               CrucibleBridge.dpo_metrics(conn, pairs, beta: 1)

      asked = %{role: "user", content: "12+34="}

      pair = %{
        chosen: [asked, %{role: "assistant", content: "46"}],
        rejected: [asked, %{role: "assistant", content: "45"}]
      }

      policy = "embedded:arithmetic@600"

      assert {:ok, %{metrics: %{values: %{"accuracy" => 1.0}}} = measured} =
               CrucibleBridge.dpo_metrics_of_models(conn, [pair], policy, "embedded:arithmetic@180", beta: 0.1)

      {:ok, chosen} = Tensor.unpack(measured.chosen_reference_logprobs)
      {:ok, rejected} = Tensor.unpack(measured.rejected_reference_logprobs)
      columns = [chosen_reference_logprobs: chosen, rejected_reference_logprobs: rejected]

      assert {:ok, %{metrics: metrics}} =
               CrucibleBridge.dpo_metrics_of_models(conn, [pair], policy, columns, beta: 0.1)

      assert metrics == measured.metrics

      assert {:error, %Error{field: "pairs[0].rejected[0]"}} =
               CrucibleBridge.dpo_metrics_of_models(conn, [%{pair | rejected: ["45"]}], policy, policy, beta: 1)

      assert {:ok, %{metrics: %{values: %{"accuracy" => 0.5}}}} =
               CrucibleBridge.classification(conn, [:a, :b], [:a, :a])

      assert {:ok, %{metrics: %{values: %{"pass@1" => 0.25}}}} = CrucibleBridge.pass_at_k(conn, [4], [1], 1)

      assert {:ok, %{metrics: %{values: %{"sampling_client/step_max" => 7.0}}}} =
               CrucibleBridge.sampling_client_metrics(conn, [3, 7], [0.5, 1])
    end
  end

  describe "grading" do
    test "verdicts are atoms, in the order of the items, and bytes that are no text cost their item alone", %{
      conn: conn
    } do
      items = [
        {"1/2", "0.5"},
        {"3", "4"},
        %{id: "r", response: "So it is \\boxed{42}.", target: 42},
        {<<255>>, "1"},
        {"1", ""}
      ]

      assert {:ok, %{grades: grades, policy_version: _}} = CrucibleBridge.grade_math(conn, items)
      assert Enum.map(grades, & &1.verdict) == [:correct, :incorrect, :correct, :incorrect, :undecided]
      assert Enum.at(grades, 2).id == "r"

      assert {:ok, %{grades: [%{verdict: :incorrect}]}} =
               CrucibleBridge.grade_math(conn, [{"2, 1", "1, 2"}], ordered_lists: true)

      assert {:error, %Error{field: "policy"}} = CrucibleBridge.grade_math(conn, items, made_up: true)
      assert {:error, %Error{field: "items[1]"}} = CrucibleBridge.grade_math(conn, [{"1", "1"}, %{target: "1"}])
    end

    test "answers are found inside of responses", %{conn: conn} do
      assert {:ok, [%{answer: "7", extraction: "box"}, %{answer: ""}]} =
               CrucibleBridge.extract_answer(conn, ["it is \\boxed{7}", "I do not know what to say here, sorry"])
    end

    test "every scorer is asked by its name", %{conn: conn} do
      for {answer, target, scorer, options, verdict} <- [
            {"Paris", "paris", :exact_match, [], :correct},
            {"Paris", "paris", :exact_match, [case_sensitive: true], :incorrect},
            {"5.0", "5", :exact_match, [], :incorrect},
            {"5.0", "5", :exact_match, [compare: :text], :incorrect},
            {"5.0", "5", :exact_match, [compare: :number], :correct},
            {"5.1", "5", :exact_match, [compare: :number], :incorrect},
            {"five", "5", :exact_match, [compare: :number], :incorrect},
            {"5", "five", :exact_match, [compare: :number], :undecided},
            {"[1, 3]", "[1,2]", :exact_match, [compare: :list], :incorrect},
            {"1, 2", "[1,2]", :exact_match, [compare: :list], :incorrect},
            {"[2, 1]", "[1,2]", :exact_match, [compare: :list], :correct},
            {"[2, 1]", "[1,2]", :exact_match, [compare: :list, ordered_lists: true], :incorrect},
            {"in Paris", "paris", :contains, [], :correct},
            {"a b", "a b", :f1, [], :correct},
            {"abc", "^a.c$", :regex, [full: true], :correct},
            {"10.4", "10", :numeric, [absolute_tolerance: 1], :correct},
            {"B", "B", :multiple_choice, [choices: ["x", "y"]], :correct},
            {"Step 1", "", :format, [marks: ["Step 1"]], :correct},
            {"about 10.4", "10", "numeric", [absolute_tolerance: 1], :correct},
            {"x", "y", "multiple_choice", [choices: ["x", "y"]], :incorrect}
          ] do
        assert {:ok, [%{verdict: found}]} = CrucibleBridge.score(conn, [{answer, target}], scorer, options)
        assert found == verdict, inspect({answer, target, scorer, options})
      end

      assert {:error, %Error{field: "scorer"}} = CrucibleBridge.score(conn, [{"a", "a"}], :levenshtein)
    end
  end

  describe "models" do
    test "continuations of texts, conversations and tokens come in order, an item's problem beside them", %{conn: conn} do
      items = ["17+25=", [%{role: "user", content: "17+25="}], %{prompt: "1+1=", num_samples: 2, seed: 7}]
      sampling = [max_tokens: 4, temperature: 1]

      assert {:ok, %{items: [first, second, third], model_fingerprint: fingerprint}} =
               CrucibleBridge.sample(conn, "embedded:arithmetic@320", items,
                 sampling: sampling,
                 limits: [deadline_ms: 60_000]
               )

      assert fingerprint != ""
      assert [%{text: text, stop_reason: _}] = first.sequences
      assert is_binary(text)
      assert length(third.sequences) == 2 or third.problem != nil
      assert second.problem == nil or is_binary(second.problem.reason)
    end

    test "teachers measure together, and the reverse KL to them comes from their answer", %{conn: conn} do
      large = "embedded:arithmetic@600"
      teachers = [%{model: large, weight: 3}, %{model: "embedded:arithmetic@320", items: [0]}]
      tokens = [4, 5, 13, 6]

      assert {:ok, %{sequences: [both, one], teachers: [_, _]}} =
               CrucibleBridge.compute_logprobs(conn, teachers, [tokens, tokens], top_k: 2)

      assert {:ok, %{sequences: [alone]}} = CrucibleBridge.compute_logprobs(conn, large, [tokens], top_k: 2)
      assert one.logprobs == alone.logprobs and one.top_tokens == alone.top_tokens
      assert both.logprobs != alone.logprobs

      inputs = %{logprobs: [-1.0, -1.0, -1.0], mask: [0, 1, 1], advantages: [0.0, 0.0, 0.0]}
      data = [%{model_input: [4, 5, 13], loss_fn_inputs: inputs}]
      options = [coef: 1.0, reverse_kl: true, datasets: ["sums"]]

      assert {:ok, %{metrics: metrics}} =
               CrucibleBridge.incorporate_kl_penalty(conn, data, [both.logprobs], options)

      assert metrics.values["teacher_kl"] == metrics.values["teacher_kl/dataset_sums"]
    end

    test "log-probabilities are one fewer than tokens, and a forward pass tells its targets' loss", %{conn: conn} do
      assert {:ok, %{sequences: [%{logprobs: %Tensor{} = logprobs, problem: nil}]}} =
               CrucibleBridge.compute_logprobs(conn, "embedded:arithmetic@320", [[1, 2, 3]])

      assert {:ok, [first, second]} = Tensor.unpack(logprobs)

      data = [%{model_input: [1, 2], loss_fn_inputs: %{target_tokens: [2, 3], weights: [1.0, 1.0]}}]

      assert {:ok, %{outputs: [%{loss: loss, problem: nil}]}} =
               CrucibleBridge.forward(conn, "embedded:arithmetic@320", data)

      assert_in_delta loss, -(first + second), 1.0e-4
    end

    test "the likeliest tokens come as columns, of text, of tokens and of samples", %{conn: conn} do
      items = ["12+34=", %{prompt: "12+34=", continuation: [7, 9], targets: [[7], [9]]}]

      assert {:ok, %{sequences: [text, continued]}} =
               CrucibleBridge.compute_logprobs(conn, "embedded:arithmetic@320", items, top_k: 2)

      assert %{problem: nil, first: 1, tokens: [_ | _], top_tokens: %Tensor{shape: [rows, 2]}} = text
      assert rows == length(text.tokens) - 1
      assert %{problem: nil, target_logprobs: %Tensor{shape: [2, 1]} = targets} = continued
      assert Tensor.unpack(targets) == Tensor.unpack(continued.logprobs)

      assert {:ok, %{outputs: [%{problem: nil, tokens: tokens, weights: weights}]}} =
               CrucibleBridge.forward(conn, "embedded:arithmetic@320", ["12+34="])

      assert tokens == text.tokens
      assert length(weights) == rows

      assert {:ok, %{items: [%{sequences: [%{tokens: %Tensor{shape: [count]}, top_tokens: top}]}]}} =
               CrucibleBridge.sample(conn, "embedded:arithmetic@320", ["12+34="],
                 sampling: %{max_tokens: 3},
                 top_logprobs: 4
               )

      assert top.shape == [count, 4]
    end
  end

  test "the worker tells what it is, and goes home when it is sent" do
    worker = TestWorker.start()
    {:ok, conn} = Connection.start_link([name: nil] ++ worker.connect)
    assert {:ok, %{version: _, draining: false, limits: %{"max_message_bytes" => _}}} = CrucibleBridge.info(conn)
    assert {:ok, []} = CrucibleBridge.drain(conn)
    port = worker.handle
    assert_receive {^port, {:exit_status, 0}}, 30_000
  end

  test "what a worker says makes no atom" do
    # Replies with names that were never here, decoded as the client decodes them.
    reply = fn name ->
      %V1.GetEvaluationResponse{
        evaluation: %V1.Evaluation{
          evaluation_id: name,
          metrics: %V1.Metrics{values: %{(name <> "/accuracy") => 1.0}, undefined: %{name => "reason"}},
          problem: %V1.Problem{reason: String.upcase(name), message: name, field: name},
          results: [%V1.EvaluatorResult{evaluator: %V1.EvaluatorSpec{kind: name, name: name}}],
          request: %V1.EvaluateRequest{labels: %{name => name}, model: %V1.ModelRef{model: {:embedded, name}}}
        }
      }
      |> V1.GetEvaluationResponse.encode()
      |> V1.GetEvaluationResponse.decode()
      |> CrucibleBridge.Wire.decode()
    end

    # Loads and compiles what is loaded at the first time.
    reply.("first")
    before = :erlang.system_info(:atom_count)
    for number <- 1..500, do: assert(%{evaluation: %{problem: %{reason: _}}} = reply.("never_seen_#{number}"))
    assert :erlang.system_info(:atom_count) == before
  end
end
