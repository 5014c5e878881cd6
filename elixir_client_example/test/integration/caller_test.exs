defmodule CrucibleBridge.CallerIntegrationTest do
  use ExUnit.Case, async: false

  @moduletag :integration
  @moduletag :capture_log
  # Workers load their model anew, on whatever else the machine does.
  @moduletag timeout: 180_000

  alias CrucibleBridge.{Connection, Error, Evaluator, Orchestrator, Specification, TestWorker}
  alias CrucibleBridge.Orchestrator.{Environment, Model, Verifier}

  @model "embedded:arithmetic@320"
  @sampling [max_tokens: 8]

  setup_all do
    worker = TestWorker.start()
    {:ok, worker: worker}
  end

  setup %{worker: worker} = context do
    conn = start_supervised!({Connection, name: nil, address: worker.address, adapter: context[:adapter] || :gun})
    :ok = Connection.await(conn, 10_000)
    {:ok, conn: conn}
  end

  defmodule Same do
    @behaviour Verifier

    @impl true
    def verify(%{targets: targets}, answer), do: {:ok, %{passed: String.trim(answer) in targets, reason: "as texts"}}
  end

  defmodule Sum do
    @moduledoc "The problem of a sample, of the shape that is proposed as Crucible.Problem."
    @behaviour CrucibleBridge.Orchestrator.Problem
    defstruct [:question, :answer]

    def of(%{sample: %{input: {:text, question}, targets: [answer | _]}}),
      do: %__MODULE__{question: question, answer: answer}

    @impl true
    def get_question(problem), do: problem.question
    @impl true
    def check_answer(problem, text), do: String.trim(text) == problem.answer
    @impl true
    def check_format(_problem, _text), do: true
  end

  defmodule Countdown do
    @moduledoc "The model is to count down from a number that the seed draws, one turn each."
    @behaviour Environment

    @impl true
    def open(episode, opts) do
      from = rem(episode.seed, 3) + 1
      send(opts[:test], {:opened, episode.rollout, self()})

      {:ok, %{observation: "from #{from}", tags: ["of_" <> elem(episode.sample.input, 1)]},
       %{at: from, from: from, opts: opts}}
    end

    @impl true
    def step(%{text: "raise"}, _state), do: raise("the countdown broke")

    def step(%{text: text}, %{at: at} = state) do
      turn = %{reward: if(text == "#{at}", do: 1 / state.from, else: 0), metrics: %{"at" => at}}
      turn = if at == 1, do: Map.put(turn, :done, true), else: Map.put(turn, :observation, [{"user", "#{at}"}])
      {:ok, turn, %{state | at: at - 1}}
    end

    @impl true
    def close(state), do: send(state.opts[:test], {:closed, self()})
  end

  defp request(opts) do
    {:ok, request} =
      [model: @model, evaluators: {"accuracy", grader: "caller"}, dataset: "builtin:arithmetic", sampling: @sampling]
      |> Keyword.merge(opts)
      |> Specification.build()

    request
  end

  defp same(response, target), do: String.trim(response) == target

  for adapter <- [:gun, :mint] do
    @tag adapter: adapter
    test "#{adapter}: a function judges what a model of the worker answers, as the worker's own grader does", %{
      conn: conn
    } do
      opts = [conn: conn, sampling: @sampling, limit: 40]
      {:ok, theirs} = Evaluator.evaluate([grader: "exact_match"] ++ opts, @model, "builtin:arithmetic")
      {:ok, ours} = Evaluator.evaluate([grader: &same/2] ++ opts, @model, "builtin:arithmetic")
      assert ours.accuracy == theirs.accuracy
      assert ours.accuracy > 0.0 and ours.accuracy < 1.0
      assert ours.sample_count == 40

      assert {:ok, %{accuracy: accuracy}} =
               Evaluator.Custom.evaluate(@model, [dataset: "builtin:arithmetic", grader: Same] ++ opts)

      assert accuracy == theirs.accuracy
    end
  end

  test "a grader that raises costs its sample, whose problem has the exception's text", %{conn: conn} do
    tried = :counters.new(1, [])

    grader = fn
      _response, "raises" ->
        raise ArgumentError, "no such unit"

      _response, "busy" ->
        :counters.add(tried, 1, 1)

        if :counters.get(tried, 1) == 1,
          do: raise(%Error{reason: "BUSY", message: "later", retryable: true}),
          else: true

      _response, _target ->
        %{score: 0.5, reason: "half", extracted: "h", measurements: %{words: 1}}
    end

    items = [{"1+1=", "raises"}, {"1+2=", "busy"}, {"1+3=", "half"}]
    limits = [max_unscored_share: 1.0]
    opts = [conn: conn, sampling: @sampling, grader: grader, evaluation_id: "raises", limits: limits]
    assert {:ok, %{n_errors: 1, sample_count: 3}} = Evaluator.evaluate(opts, @model, items)
    assert :counters.get(tried, 1) == 2

    {:ok, %{samples: [raised, busy, half]}} = CrucibleBridge.get_samples(conn, "raises")
    assert %{verdict: :error, problem: %{message: message}} = raised
    assert message =~ "ArgumentError: no such unit"
    assert %{verdict: :correct, score: 1.0} = busy
    assert %{verdict: :partial, score: 0.5, measurements: %{"words" => 1.0}} = half
  end

  test "a grader that hangs stops no other, and its time ends it", %{conn: conn} do
    test = self()

    grader = fn question ->
      if question.sample.id == "s0" or hd(question.sample.targets) == "hang" do
        send(test, {:hangs, self()})
        receive(do: (:never -> true))
      else
        send(test, :graded)
        true
      end
    end

    items = [{"1+1=", "hang"} | for(n <- 2..9, do: {"1+#{n}=", "#{n + 1}"})]
    rows = Enum.map(items, fn {q, a} -> %{"input" => q, "output" => a} end)
    request = request(dataset: rows, limits: [max_unscored_share: 1.0])
    opts = [graders: grader, window: 2, answer_timeout_ms: 2_000]
    evaluating = Task.async(fn -> Orchestrator.evaluate(conn, request, nil, opts) end)
    assert_receive {:hangs, hand}, 20_000
    monitor = Process.monitor(hand)
    # All others are judged while it hangs.
    for _ <- 2..9, do: assert_receive(:graded, 20_000)
    assert {:ok, %{state: :completed, results: [%{n: 9, n_errors: 1}]}} = Task.await(evaluating, 60_000)
    assert_receive {:DOWN, ^monitor, :process, ^hand, :killed}, 5_000
  end

  test "a caller that dies takes its grader along, and the same request goes on without what was graded", %{conn: conn} do
    test = self()
    model = %Model{name: "same", sample: fn _, _, count -> {:ok, List.duplicate(%{text: "same"}, count)} end}
    request = request(model: nil, evaluation_id: "grader-left", limit: 60)

    asked = :counters.new(1, [])

    # The first twenty are graded, the others are waited for.
    hangs = fn _question ->
      :counters.add(asked, 1, 1)
      :counters.get(asked, 1) <= 20 or wait(test)
    end

    {caller, _} = spawn_monitor(fn -> Orchestrator.evaluate(conn, request, model, graders: hangs, window: 4) end)
    assert_receive {:waits, hand}, 20_000
    monitor = Process.monitor(hand)
    Process.exit(caller, :kill)
    assert_receive {:DOWN, ^monitor, :process, ^hand, :killed}, 5_000

    graded = :counters.new(1, [])
    grader = fn _question -> :counters.add(graded, 1, 1) == :ok end
    assert {:ok, %{state: :completed, attempt: 2} = done} = Orchestrator.evaluate(conn, request, model, graders: grader)
    assert [%{n: 60, n_errors: 0}] = done.results
    assert :counters.get(graded, 1) < 60
  end

  defp wait(test) do
    send(test, {:waits, self()})
    receive(do: (:never -> true))
  end

  test "a problem of Elixir earns what the worker's own environment earns", %{conn: conn} do
    sampling = @sampling ++ [temperature: 1.0, seed: 7]
    opts = [conn: conn, dataset: "builtin:arithmetic", limit: 20, group_size: 2, sampling: sampling]
    {:ok, theirs} = Evaluator.RLTestSet.evaluate(@model, [grader: "exact_match"] ++ opts)
    {:ok, ours} = Evaluator.RLTestSet.evaluate(@model, [environment: &Sum.of/1] ++ opts)

    for key <- ["env/all/reward/total", "env/all/correct", "env/all/format"],
        do: assert_in_delta(ours[key], theirs[key], 1.0e-9)

    assert ours["env/all/correct"] > 0.0 and ours["env/all/correct"] < 1.0
  end

  test "an environment of several turns goes with a model that stays here, and each episode is closed", %{conn: conn} do
    model = %Model{
      name: "counts",
      sample: fn prompt, _params, count ->
        text =
          case prompt do
            {:text, "from " <> number} -> number
            {:conversation, [{"user", number}]} -> "#{String.to_integer(number) - 1}"
          end

        {:ok, List.duplicate(%{text: text, tokens: [1]}, count)}
      end
    }

    opts = [conn: conn, environment: {Countdown, test: self()}, group_size: 3, sampling: @sampling]
    assert {:ok, metrics} = Evaluator.RLTestSet.evaluate(model, [dataset: [{"q", "a"}, {"r", "b"}]] ++ opts)
    assert_in_delta metrics["env/all/reward/total"], 1.0, 1.0e-9
    for tag <- ["of_q", "of_r"], do: assert_in_delta(metrics["env/#{tag}/reward/total"], 1.0, 1.0e-9)

    opened = for _ <- 1..6, do: assert_receive({:opened, _rollout, _pid}, 5_000)
    for {:opened, _rollout, pid} <- opened, do: assert_receive({:closed, ^pid}, 5_000)
  end

  test "an environment that raises costs its rollout, and names why", %{conn: conn} do
    model = %Model{name: "raises", sample: fn _, _, count -> {:ok, List.duplicate(%{text: "raise"}, count)} end}

    request =
      request(
        model: nil,
        dataset: [{"q", "a"}],
        evaluation_id: "environment-raises",
        evaluators: {"rl_test_set", environment: "caller", group_size: 1}
      )

    {:ok, _evaluation} = Orchestrator.evaluate(conn, request, model, environments: {Countdown, test: self()})
    {:ok, %{samples: [sample]}} = CrucibleBridge.get_samples(conn, "environment-raises")
    assert %{verdict: :error, problem: %{message: message}} = sample
    assert message =~ "the countdown broke"
  end

  test "what the caller does not have is refused by the option that names it", %{conn: conn} do
    for {evaluators, field} <- [
          {{"accuracy", grader: "caller:other"}, "grader"},
          {{"rl_test_set", environment: "caller:other"}, "environment"}
        ] do
      assert {:error, %Error{field: refused}} =
               Orchestrator.evaluate(conn, request(evaluators: evaluators), nil, graders: &same/2)

      assert refused == ~s(evaluators[0].options["#{field}"])
    end

    assert {:error, %Error{reason: "NEEDS_CALLER"}} = CrucibleBridge.start_evaluation(conn, request([]))
    assert {:error, %Error{field: "model"}} = Orchestrator.evaluate(conn, request([]), nil)
  end

  test "the page's own code runs", %{worker: worker} do
    start_supervised!({Connection, address: worker.address}, id: :named)
    :ok = Connection.await(Connection, 10_000)
    page = Path.expand("../../../docs/orchestrator_models.md", __DIR__)
    blocks = Regex.scan(~r/^```elixir\n(.*?)^```$/ms, File.read!(page), capture: :all_but_first)

    [graded, earned] =
      for name <- ["MyVerifier", "MyProblem"] do
        [[code]] = Enum.filter(blocks, fn [code] -> code =~ "defmodule #{name}" end)
        printed = ExUnit.CaptureIO.capture_io(fn -> Code.eval_string(code, [], file: page) end)
        printed |> String.trim() |> String.to_float()
      end

    {:ok, %{metrics: %{values: values}}} = CrucibleBridge.get_evaluation("graded-in-elixir")
    assert graded > 0.5 and values["module/accuracy"] == graded
    assert_in_delta earned, graded, 0.2
  end

  for adapter <- [:gun, :mint] do
    @tag adapter: adapter
    test "#{adapter}: grades that were recorded are not asked again after a kill", %{adapter: adapter} do
      worker = TestWorker.start()
      conn = start_supervised!({Connection, name: nil, address: worker.address, adapter: adapter}, id: :other)
      test = self()
      graded = :counters.new(1, [])

      grader = fn "same", _target ->
        :counters.add(graded, 1, 1)

        if :counters.get(graded, 1) == 100 do
          # Soon after this answer the evaluation may be over: it does not get there.
          TestWorker.signal_only(worker, "STOP")
          send(test, :half_way)
        end

        true
      end

      # The model stays here as well: a worker that starts again has none to load.
      model = %Model{name: "same", sample: fn _, _, count -> {:ok, List.duplicate(%{text: "same"}, count)} end}
      request = request(model: nil, evaluation_id: "survives", limit: 400)
      opts = [graders: grader, window: 4, patience_ms: 60_000]
      evaluating = Task.async(fn -> Orchestrator.evaluate(conn, request, model, opts) end)
      assert_receive :half_way, 60_000
      TestWorker.kill(worker)
      TestWorker.restart(worker)

      assert {:ok, %{state: :completed, attempt: 2, results: [%{n: 400, n_errors: 0}]}} =
               Task.await(evaluating, 120_000)

      # What was written down is not asked again.
      assert :counters.get(graded, 1) >= 400 and :counters.get(graded, 1) < 600
    end
  end
end
