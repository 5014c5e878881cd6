if Code.ensure_loaded?(CrucibleKitchen.Stages.Evaluate) do
  defmodule CrucibleBridge.KitchenTest do
    # The real crucible_kitchen, crucible_train, crucible_telemetry and crucible_datasets, as far as they are dependencies.
    use ExUnit.Case, async: false

    @moduletag :integration
    @moduletag :capture_log

    alias CrucibleBridge.{Connection, Evaluator, MathVerifier, Metrics, ModelRegistry, TestWorker, Trajectory}
    alias CrucibleKitchen.{Context, RL}
    alias CrucibleTrain.Types.{Datum, ModelInput, TensorData}

    @model "embedded:arithmetic@320"

    defmodule Characters do
      @moduledoc "A tokenizer whose tokens are characters."
      def encode(text, _opts), do: String.to_charlist(text)
      def decode(tokens), do: List.to_string(tokens)
    end

    defmodule Client do
      @moduledoc "Both clients of crucible_train's ports; what it says does not depend on the weights of a datum."

      def start_session(_opts, _config), do: {:ok, :session}

      def sample(_opts, :session, %ModelInput{} = input, params, kw) do
        [question] =
          Regex.run(~r/User: (.+?)=\n\nAssistant:$/s, input |> ModelInput.all_tokens() |> List.to_string(),
            capture: :all_but_first
          )

        [left, right] = question |> String.split("+") |> Enum.map(&String.to_integer/1)
        true = "\n\nUser:" in params.stop
        tokens = String.to_charlist(" #{left + right}\n\nUser:")
        response = %{sequences: List.duplicate(%{tokens: tokens, logprobs: nil, stop_reason: :stop}, kw[:num_samples])}
        {:ok, Task.async(fn -> {:ok, response} end)}
      end

      def sample_stream(_opts, _session, _input, _params, _kw), do: {:error, :no_stream}
      def compute_logprobs(_opts, _session, _input, _kw), do: {:error, :no_logprobs}
      def forward_backward_custom(_opts, _session, _data, _loss, _kw), do: {:error, :none}
      def optim_step(_opts, _session, _rate), do: {:error, :none}
      def save_checkpoint(_opts, _session, _name), do: :ok
      def load_checkpoint(_opts, _session, _name), do: :ok
      def close_session(_opts, _session), do: :ok

      def forward_backward(_opts, :session, data, _kw) do
        Task.async(fn ->
          {:ok,
           %{
             loss_fn_outputs:
               for %Datum{} = datum <- data do
                 values = datum |> Datum.get_target_tokens() |> TensorData.to_list() |> Enum.map(&(&1 / -100))
                 %{"logprobs" => TensorData.from_list(values, :float32)}
               end
           }}
        end)
      end

      def await(_opts, task), do: Task.await(task, :infinity)
    end

    defmodule Trainer do
      @moduledoc "Kitchen's Noop client without its tokenizer, whose data set Kitchen's supervised workflow cannot count."
      alias CrucibleKitchen.Adapters.Noop.TrainingClient, as: Noop

      defdelegate start_session(opts, config), to: Noop
      defdelegate forward_backward(opts, session, data, kw), to: Noop
      defdelegate forward_backward_custom(opts, session, data, loss, kw), to: Noop
      defdelegate optim_step(opts, session, rate), to: Noop
      defdelegate await(opts, future), to: Noop
      defdelegate save_checkpoint(opts, session, name), to: Noop
      defdelegate load_checkpoint(opts, session, path), to: Noop
      defdelegate close_session(opts, session), to: Noop
    end

    defmodule HeldOut do
      @moduledoc "Kitchen's Noop store, whose test split is a data set of the worker's."
      alias CrucibleKitchen.Adapters.Noop.DatasetStore, as: Noop

      def load_dataset(opts, name, kw),
        do: if(kw[:split] == "test", do: {:ok, "builtin:arithmetic"}, else: Noop.load_dataset(opts, name, kw))

      defdelegate get_split(opts, dataset, split), to: Noop
      defdelegate shuffle(opts, dataset, kw), to: Noop
      defdelegate take(opts, dataset, count), to: Noop
      defdelegate skip(opts, dataset, count), to: Noop
      defdelegate select(opts, dataset, selection), to: Noop
      defdelegate to_list(opts, dataset), to: Noop
    end

    defmodule Workflow do
      @moduledoc false
      use CrucibleKitchen.Workflow

      workflow do
        stage(:check, CrucibleBridge.Stages.Evaluate,
          eval_every: 10,
          metric_prefix: "test/",
          metrics: [:accuracy, :nll]
        )
      end
    end

    setup_all do
      worker = TestWorker.start()
      start_supervised!({Connection, address: worker.address})
      :ok = Connection.await(Connection, 10_000)
    end

    # What the model says of these prompts, by another way than the port's, and a data set that it is right about in part.
    defp items do
      prompts = for n <- 1..24, do: "#{100 + 7 * n}+#{311 + 13 * n}="
      dataset = for prompt <- prompts, do: {prompt, "?"}

      {:ok, said} =
        CrucibleBridge.evaluate(model: @model, evaluators: "accuracy", dataset: dataset, sampling: [max_tokens: 8])

      {:ok, %{samples: samples}} = CrucibleBridge.get_samples(said.evaluation_id)
      answers = Enum.map(samples, &String.trim(&1.output))

      for {{prompt, answer}, n} <- Enum.with_index(Enum.zip(prompts, answers)) do
        %{"input" => prompt, "target" => if(rem(n, 3) == 0, do: answer <> "0", else: answer), "said" => answer}
      end
    end

    # One class a target or answer, as scikit-learn averages: one that is never right counts as 0.
    defp macro_f1(items) do
      classes = items |> Enum.flat_map(&[&1["target"], &1["said"]]) |> Enum.uniq()

      scores =
        for class <- classes do
          right = Enum.count(items, &(&1["target"] == class and &1["said"] == class))
          said = Enum.count(items, &(&1["said"] == class))
          there = Enum.count(items, &(&1["target"] == class))
          2 * right / (said + there)
        end

      Enum.sum(scores) / length(scores)
    end

    defp context(config, adapters, state) do
      context = Context.new(Map.merge(%{model: "arithmetic", dataset: "held-out"}, config), adapters)
      %{context | state: Map.merge(%{global_step: 40, total_steps: 100}, state)}
    end

    # A session as Kitchen's Tinkex adapter makes it, whose weights are saved where this worker finds them.
    defp session, do: %{id: self(), service_client: self(), model: "arithmetic", config: %{}}
    defp saved, do: [save_weights: fn _session, _name -> {:ok, %{path: @model}} end, sampling: [max_tokens: 8]]

    test "the port and the stage are what Kitchen takes for one" do
      assert CrucibleKitchen.Ports.implements?(Evaluator, CrucibleKitchen.Ports.Evaluator)
      assert CrucibleKitchen.Ports.validate(%{evaluator: {Evaluator, saved()}}, [:evaluator]) == :ok
      assert CrucibleKitchen.Stage in CrucibleBridge.Stages.Evaluate.module_info(:attributes)[:behaviour]
    end

    test "Kitchen's own stage has true numbers, by its session and its handle of a data set" do
      items = items()
      test = self()
      tell = fn _name, measurements, metadata, nil -> send(test, {:complete, measurements, metadata}) end
      :telemetry.attach(__MODULE__, [:crucible_kitchen, :eval, :complete], tell, nil)

      handle = %{id: "held-out", dataset: %{items: items}, load_opts: [], type: :dataset}
      context = context(%{}, %{evaluator: {Evaluator, saved()}}, %{session: session(), eval_dataset_handle: handle})
      {:ok, context} = CrucibleKitchen.Stages.Evaluate.execute(context)
      :telemetry.detach(__MODULE__)

      right = Enum.count(items, &(&1["said"] == &1["target"]))
      assert right == 16
      assert_in_delta context.state.eval_results.accuracy, right / 24, 1.0e-12
      assert_in_delta context.state.eval_results.f1, macro_f1(items), 1.0e-12
      recorded = Map.new(context.metrics, &{&1.name, &1.value})
      assert recorded.eval_accuracy == context.state.eval_results.accuracy
      assert recorded.eval_f1 == context.state.eval_results.f1
      assert context.state.eval_report =~ context.state.eval_results.evaluation_id

      assert_received {:complete, measurements, %{sample_count: 24}}
      assert measurements == Map.take(context.state.eval_results, [:accuracy, :f1, :precision, :recall])
    end

    test "Kitchen's stage has its evaluation with every report format and option that Kitchen documents" do
      for {format, start} <- [markdown: "# Evaluation", html: "<!doctype html>", json: "{"] do
        adapters = %{evaluator: {Evaluator, saved() ++ [batch_size: 8, limit: 5]}}
        state = %{session: session(), eval_dataset: items()}
        context = context(%{eval_report_format: format}, adapters, state)
        assert {:ok, context} = CrucibleKitchen.Stages.Evaluate.execute(context)
        assert %{sample_count: 5, accuracy: _} = context.state.eval_results
        assert String.starts_with?(context.state.eval_report, start)
        assert context.state.eval_report =~ context.state.eval_results.evaluation_id
      end
    end

    test "Kitchen's own stage records no accuracy and no f1 that were not measured" do
      handle = %{id: "held-out", dataset: %{items: [%{"input" => "017+025=", "target" => "042"}]}, type: :dataset}
      raising = fn _response, _target -> raise "no such table" end
      undecided = fn _response, _target -> :undecided end
      likelihood = %{eval_metrics: [:nll]}
      worker = "builtin:arithmetic"

      execute = fn config, opts, dataset ->
        state = %{session: session(), eval_dataset_handle: dataset}
        CrucibleKitchen.Stages.Evaluate.execute(context(config, %{evaluator: {Evaluator, saved() ++ opts}}, state))
      end

      for {grader, reason} <- [{raising, "TOO_MANY_UNSCORED"}, {undecided, "NOT_SCORED"}],
          dataset <- [handle, worker] do
        assert {:error, {:evaluation_failed, %CrucibleBridge.Error{reason: ^reason}}} =
                 execute.(%{}, [grader: grader, limit: 3], dataset)
      end

      for {config, opts, dataset, accuracy} <- [{likelihood, [], handle, nil}, {%{}, [limit: 5], worker, :a_number}] do
        assert {:ok, context} = execute.(config, opts, dataset)
        recorded = Map.new(context.metrics, &{&1.name, &1.value})
        assert %{eval_accuracy: recorded_accuracy, eval_f1: nil, eval_run: 1} = recorded
        assert if(accuracy, do: is_float(recorded_accuracy), else: recorded_accuracy == nil)
        assert context.state.eval_report =~ context.state.eval_results.evaluation_id
      end
    end

    test "the unmodified supervised workflow ends, with its evaluation, and with a model whose metrics are not known" do
      adapters = %{
        training_client: Trainer,
        dataset_store: HeldOut,
        evaluator: {Evaluator, model: @model, sampling: [max_tokens: 8], limit: 3, run_id: "supervised-1"},
        model_registry: {ModelRegistry, []}
      }

      for registry <- [[], [run_id: "supervised-1"], [conn: :no_such_connection]] do
        adapters = %{adapters | model_registry: {ModelRegistry, registry}}
        config = %{model: "m", dataset: "held-out"}
        assert {:ok, %{context: context}} = CrucibleKitchen.run(:supervised, config, adapters: adapters)
        assert %{sample_count: 3, accuracy: _} = context.state.eval_results
        assert %{metrics: metrics, name: "m", artifact_uri: "local://unknown"} = context.state.registered_model
        assert metrics == %{}
      end
    end

    test "Kitchen's stage reports a failure as one" do
      adapters = %{evaluator: {Evaluator, [model: "embedded:nosuch", sampling: [max_tokens: 8]]}}
      context = context(%{}, adapters, %{session: session(), eval_dataset: [{"1+1=", 2}]})

      assert {:error, {:evaluation_failed, %CrucibleBridge.Error{reason: "UNKNOWN_EMBEDDED_MODEL"}}} =
               CrucibleKitchen.Stages.Evaluate.execute(context)
    end

    test "our stage runs in a workflow, and records through a store of crucible_telemetry" do
      path = Path.join(System.tmp_dir!(), "metrics-#{System.unique_integer([:positive])}.jsonl")
      on_exit(fn -> File.rm(path) end)

      adapters = %{
        evaluator: {Evaluator, saved()},
        metrics_store: {CrucibleTelemetry.Adapters.JSONLMetrics, path: path}
      }

      config = %{crucible_bridge: [dataset: "builtin:arithmetic", limit: 30]}
      {:ok, context} = CrucibleKitchen.Workflow.Runner.run(Workflow, context(config, adapters, %{session: session()}))
      results = context.state.eval_results
      run_id = Context.get_metadata(context, :run_id)
      assert results.evaluation_id == "#{run_id}-check-40"

      {:ok, entries} = CrucibleTelemetry.Adapters.JSONLMetrics.read([path: path], run_id)

      assert Map.new(entries, &{&1["metric"], {&1["value"], &1["step"]}}) ==
               Map.new(results.metrics, fn {key, value} -> {key, {value, 40}} end)

      assert Map.has_key?(results.metrics, "test/nll")
    end

    test "our stage evaluates a model that the run itself holds, by the run's ports" do
      {:ok, state} = CrucibleTrain.Renderers.Implementations.RoleColon.init(tokenizer: Characters)

      opts = [
        dataset: "builtin:arithmetic",
        limit: 20,
        renderer: {CrucibleTrain.Renderers.Implementations.RoleColon, state},
        model: &{Context.get_train_ports(&1), &1.state.sampler}
      ]

      adapters = %{evaluator: {Evaluator, saved()}, sampling_client: {Client, []}}
      context = context(%{crucible_bridge: opts}, adapters, %{sampler: :session})
      {:ok, context} = CrucibleBridge.Stages.Evaluate.execute(context)
      assert %{accuracy: 1.0, sample_count: 20, evaluation_id: id} = context.state.eval_results
      {:ok, evaluation} = CrucibleBridge.get_evaluation(id)
      assert {:orchestrator, %{name: ^id}} = evaluation.request.model.model
    end

    test "data sets of crucible_datasets are read" do
      items = [
        %{input: "111+222=", expected: "333"},
        %{id: "two", input: "100+100=", expected: %{answer: 200, reasoning: "r"}}
      ]

      dataset = CrucibleDatasets.MemoryDataset.from_list(items)
      {:ok, results} = Evaluator.evaluate([sampling: [max_tokens: 8]], @model, dataset)
      {:ok, %{samples: samples}} = CrucibleBridge.get_samples(results.evaluation_id)
      assert Enum.map(samples, & &1.sample_id) == ["item_1", "two"]

      {:ok, gsm8k} = CrucibleDatasets.Loader.GSM8K.load(sample_size: 3)
      assert {:ok, {:inline, [%{targets: ["72"]}, _, _]}} = CrucibleBridge.Dataset.read(gsm8k)
    end

    test "the math environment is right about what is equal, and undone by a worker that is not there" do
      env = %RL.MathEnv{problem: "?", answer: "0.5", verifier: MathVerifier}
      assert RL.MathEnv.check_answer(env, "so it is \\boxed{\\frac{1}{2}}")
      refute RL.MathEnv.check_answer(env, "so it is \\boxed{2}")
      {:ok, nowhere} = Connection.start_link(name: nil, address: "127.0.0.1:1")

      assert_raise CrucibleBridge.Error, fn ->
        RL.MathEnv.check_answer(%{env | verifier_opts: [conn: nowhere]}, "\\boxed{0.5}")
      end
    end

    test "a model of crucible_train's ports is asked in words, by a renderer of crucible_train" do
      ports = CrucibleTrain.Ports.new(ports: %{sampling_client: {Client, []}})
      {:ok, state} = CrucibleTrain.Renderers.Implementations.RoleColon.init(tokenizer: Characters)

      opts = [
        sampling: [max_tokens: 8],
        renderer: {CrucibleTrain.Renderers.Implementations.RoleColon, state},
        limit: 40
      ]

      assert {:ok, %{accuracy: 1.0, sample_count: 40}} =
               Evaluator.evaluate(opts, {ports, :session}, "builtin:arithmetic")
    end

    test "metrics and NLL are those of crucible_train, of its own structs" do
      data =
        for n <- 1..4 do
          targets = Enum.to_list(n..(n + 9))
          logprobs = Enum.map(targets, &(-&1 / 7))
          mask = Enum.map(targets, &if(rem(&1, 3) == 0, do: 0.0, else: 1.0))

          Datum.new(ModelInput.from_ints(targets), %{
            "target_tokens" => TensorData.from_list(targets, :int64),
            "logprobs" => TensorData.from_list(logprobs, :float64),
            "mask" => TensorData.from_list(mask, :float32),
            "weights" => TensorData.from_list(mask, :float32)
          })
        end

      training = for datum <- data, do: Enum.map(datum.loss_fn_inputs["logprobs"].data, &(&1 - 0.125))
      theirs = CrucibleTrain.RL.Metrics.compute_kl_sample_train(data, training)
      ours = Metrics.KL.kl_sample_train(data, training)
      assert_in_delta ours.kl_sample_train_v1, theirs["optim/kl_sample_train_v1"], 1.0e-9
      assert_in_delta ours.kl_sample_train_v2, theirs["optim/kl_sample_train_v2"], 1.0e-9
      assert_in_delta ours.entropy, theirs["optim/entropy"], 1.0e-9

      ports = CrucibleTrain.Ports.new(ports: %{training_client: {Client, []}})

      {:ok, theirs} =
        data
        |> CrucibleTrain.Supervised.NLLEvaluator.new()
        |> CrucibleTrain.Supervised.NLLEvaluator.evaluate({ports, :session})

      {:ok, ours} = data |> Evaluator.NLL.new() |> Evaluator.NLL.evaluate({ports, :session})
      assert Map.keys(ours) == Map.keys(theirs)
      assert_in_delta ours["test/nll"], theirs["test/nll"], 1.0e-6
    end

    test "rollouts of an evaluation are training data" do
      {:ok, _evaluation} =
        CrucibleBridge.evaluate(
          evaluation_id: "rollouts",
          model: @model,
          evaluators: [{"rollout", grader: "numeric", samples_per_prompt: 4, intermediates: true}],
          dataset: [%{"input" => "017+025=", "output" => "042"}, %{"input" => "100+001=", "output" => "101"}],
          sampling: [max_tokens: 8, temperature: 2.0, seed: 1]
        )

      {:ok, samples} = CrucibleBridge.all_samples("rollouts")
      {:ok, groups} = Trajectory.groups(samples)
      theirs = Trajectory.for_crucible_train(groups)
      advantages = CrucibleTrain.RL.DataProcessing.compute_advantages(theirs)
      {data, metadata} = CrucibleTrain.RL.DataProcessing.assemble_training_data(theirs, advantages)
      assert length(data) == 8

      for {datum, %{group_idx: group, traj_idx: index}} <- Enum.zip(data, metadata) do
        %{transitions: [turn]} = groups |> Enum.at(group) |> Map.fetch!(:trajectories_G) |> Enum.at(index)
        tokens = turn.ob ++ turn.ac.tokens
        assert ModelInput.all_tokens(datum.model_input) == Enum.drop(tokens, -1)
        assert datum.loss_fn_inputs["target_tokens"].data == tl(tokens)
        assert Enum.take(datum.loss_fn_inputs["logprobs"].data, -length(turn.ac.tokens)) == turn.ac.maybe_logprobs
        assert Enum.sum(datum.loss_fn_inputs["mask"].data) == length(turn.ac.tokens) * 1.0
        advantage = advantages |> Enum.at(group) |> Enum.at(index)
        assert List.last(datum.loss_fn_inputs["advantages"].data) == advantage
      end
    end
  end
else
  defmodule CrucibleBridge.KitchenTest do
    use ExUnit.Case, async: true

    @moduletag :integration

    @tag skip: "crucible_kitchen is not among the dependencies"
    test "Kitchen's own stage has true numbers"
  end
end
