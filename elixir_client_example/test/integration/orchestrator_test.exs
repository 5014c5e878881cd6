defmodule CrucibleBridge.OrchestratorTest do
  use ExUnit.Case, async: false

  @moduletag :integration
  @moduletag :capture_log
  # Workers load their model anew, on whatever else the machine does.
  @moduletag timeout: 180_000

  alias CrucibleBridge.{Connection, Error, Evaluator, Orchestrator, Specification, TestWorker}
  alias CrucibleBridge.Orchestrator.{Model, Ports}

  @asked [evaluators: "accuracy", dataset: "builtin:arithmetic", sampling: [max_tokens: 8]]

  setup_all do
    worker = TestWorker.start()
    {:ok, worker: worker}
  end

  setup %{worker: worker} = context do
    conn = start_supervised!({Connection, name: nil, address: worker.address, adapter: context[:adapter] || :gun})
    :ok = Connection.await(conn, 10_000)
    {:ok, conn: conn}
  end

  defp request(opts) do
    {:ok, request} = @asked |> Keyword.merge(opts) |> Specification.build()
    request
  end

  defp sum({_kind, text}) do
    [left, right] = text |> String.trim_trailing("=") |> String.split("+") |> Enum.map(&String.to_integer/1)
    "#{left + right}"
  end

  defp adder(before \\ fn _prompt -> :ok end) do
    %Model{
      name: "adder@1",
      sample: fn prompt, _params, count ->
        before.(prompt)
        {:ok, List.duplicate(%{text: sum(prompt), output_tokens: 3}, count)}
      end
    }
  end

  defmodule Tokens do
    @moduledoc "A client behind both ports of crucible_train whose tokens are characters; the session is a function."

    def sample(_opts, session, input, params, kw) do
      prompt = for %{tokens: tokens} <- input.chunks, token <- tokens, into: "", do: <<token::utf8>>
      task = Task.async(fn -> {:ok, %{sequences: List.duplicate(session.(prompt, params), kw[:num_samples])}} end)
      {:ok, task}
    end

    def compute_logprobs(_opts, _session, input, _kw) do
      [_ | rest] = Enum.flat_map(input.chunks, & &1.tokens)
      {:ok, Task.async(fn -> {:ok, [nil | Enum.map(rest, &(&1 / -100))]} end)}
    end

    def forward_backward(_opts, _session, data, _kw) do
      Task.async(fn ->
        {:ok,
         %{
           loss_fn_outputs:
             for datum <- data do
               # Gradients would be of these.
               true = Enum.all?(datum.loss_fn_inputs["weights"].data, &(&1 == 0))
               %{"logprobs" => Enum.map(datum.loss_fn_inputs["target_tokens"].data, &(&1 / -100))}
             end
         }}
      end)
    end

    def await(_opts, task), do: Task.await(task, :infinity)
  end

  for adapter <- [:gun, :mint] do
    @tag adapter: adapter
    test "#{adapter}: a model that stays here is asked every sample once, several at a time and no more", %{conn: conn} do
      # Asked in all, open now, and the most that were open.
      counts = :atomics.new(3, [])
      test = self()

      model =
        adder(fn _prompt ->
          asked = :atomics.add_get(counts, 1, 1)
          most(counts, :atomics.add_get(counts, 2, 1))
          # The first eight wait for each other: one at a time would not end.
          if asked <= 8, do: send(test, {:waiting, self()})
          if asked <= 8, do: receive(do: (:go -> :ok))
          :atomics.sub(counts, 2, 1)
        end)

      evaluating = Task.async(fn -> Orchestrator.evaluate(conn, request(limit: 200), model, window: 8) end)
      waiting = for _ <- 1..8, do: receive(do: ({:waiting, pid} -> pid))
      # Answered in another order than they were asked in.
      for pid <- Enum.reverse(waiting), do: send(pid, :go)

      assert {:ok, %{state: :completed} = evaluation} = Task.await(evaluating, 30_000)
      assert evaluation.metrics.values["accuracy"] == 1.0
      assert :atomics.get(counts, 1) == 200
      assert :atomics.get(counts, 3) == 8
    end
  end

  defp most(counts, open) do
    seen = :atomics.get(counts, 3)
    if open > seen and :atomics.compare_exchange(counts, 3, seen, open) != :ok, do: most(counts, open)
  end

  test "the port takes it like any other model, by a client of crucible_train's ports", %{conn: conn} do
    session = fn prompt, %{max_tokens: 8} ->
      text = sum({:text, prompt})
      %{tokens: String.to_charlist(text <> "\n and more"), logprobs: nil, stop_reason: :stop}
    end

    {:ok, model} =
      Ports.model({Tokens, []}, session,
        encode: fn {_kind, text} -> String.to_charlist(text) end,
        decode: &List.to_string/1
      )

    opts = [conn: conn, sampling: [max_tokens: 8, stop: ["\n"]], limit: 50]
    assert {:ok, %{accuracy: 1.0, sample_count: 50}} = Evaluator.evaluate(opts, model, "builtin:arithmetic")
  end

  test "NLL is asked of either side of it, in tokens", %{conn: conn} do
    data = [%{model_input: [10, 20], loss_fn_inputs: %{"target_tokens" => [20, 30], "weights" => [1.0, 1.0]}}]
    {:ok, training} = Ports.model({Tokens, []}, :session, side: :training)
    {:ok, sampling} = Ports.model({Tokens, []}, :session)

    for model <- [training, sampling] do
      assert {:ok, %{nll: 0.25}} = Evaluator.NLL.evaluate(model, data: data, conn: conn)
    end
  end

  test "likeliest tokens are asked of a model that knows them, and another is refused by the name of the call", %{
    conn: conn
  } do
    data = [%{model_input: [10, 20], loss_fn_inputs: %{"target_tokens" => [20, 30], "weights" => [1.0, 1.0]}}]
    model = %Model{name: "knows", argmax: fn [{:tokens, [10, 20, 30]}] -> {:ok, [nil, 20, 31]} end}
    {:ok, request} = Specification.build(evaluators: "next_token_accuracy", dataset: data)

    assert {:ok, %{state: :completed, metrics: metrics}} = Orchestrator.evaluate(conn, request, model)
    assert metrics.values["next_token_accuracy"] == 0.5

    assert {:ok, %{state: :failed, results: [%{problem: problem}]}} = Orchestrator.evaluate(conn, request, adder())
    assert problem.reason == "MISSING_CLIENT"
    assert problem.message =~ "compute_argmax"
  end

  test "what fails costs its sample alone, and what is retryable is asked again", %{conn: conn} do
    tried = :counters.new(1, [])

    model = %Model{
      name: "moody",
      sample: fn {_kind, text}, _params, _count ->
        case text do
          "raises" -> raise "no"
          "busy" -> busy(tried)
          text -> {:ok, [%{text: text}]}
        end
      end
    }

    items = [{"a", "a"}, {"raises", "x"}, {"busy", "done"}]
    opts = [conn: conn, sampling: [max_tokens: 4], evaluation_id: "moody", limits: [max_unscored_share: 1.0]]
    {:ok, results} = Evaluator.evaluate(opts, model, items)
    assert {results.accuracy, results.n_errors, results.sample_count} == {1.0, 1, 3}
    assert :counters.get(tried, 1) == 2

    {:ok, %{samples: [_, failed, _]}} = CrucibleBridge.get_samples(conn, "moody")
    assert %{verdict: :error, problem: %{reason: "BACKEND_FAILED", message: "RuntimeError" <> _}} = failed
  end

  defp busy(tried) do
    :counters.add(tried, 1, 1)

    if :counters.get(tried, 1) == 1,
      do: {:error, %Error{code: :unavailable, reason: "BUSY", message: "busy", retryable: true}},
      else: {:ok, [%{text: "done"}]}
  end

  test "answers of any shape are answers, and what no message holds costs its sample alone", %{conn: conn} do
    sequences = [
      # A struct of somebody's, which has no Access.
      Map.put(%URI{}, :text, "2"),
      %{text: <<255, 254>>, tokens: []},
      %{text: "2", output_tokens: -1},
      %{text: "2", output_tokens: 1.5},
      %{text: "2", tokens: "2"},
      %{text: "2", logprobs: [nil]},
      %{text: 2},
      nil
    ]

    asked = :counters.new(1, [])

    model = %Model{
      name: "odd",
      sample: fn _prompt, _params, 1 ->
        :counters.add(asked, 1, 1)
        {:ok, [Enum.at(sequences, :counters.get(asked, 1) - 1)]}
      end
    }

    request = request(limit: length(sequences), limits: [max_unscored_share: 1.0])
    assert {:ok, %{state: :completed, results: [result]}} = Orchestrator.evaluate(conn, request, model, window: 1)

    assert {result.n, result.n_scored, result.n_errors} == {8, 2, 6}
  end

  test "a client whose linked task dies costs its sample, and neither the stream nor the caller", %{conn: conn} do
    model = %Model{
      name: "linked",
      sample: fn {_kind, text}, _params, _count ->
        task = Task.async(fn -> if text == "dies", do: exit(:boom), else: {:ok, [%{text: text}]} end)
        Task.await(task, 5_000)
      end
    }

    opts = [conn: conn, sampling: [max_tokens: 4], limits: [sample_timeout_ms: 300, max_unscored_share: 1.0]]
    assert {:ok, %{accuracy: 1.0, n_errors: 1}} = Evaluator.evaluate(opts, model, [{"a", "a"}, {"dies", "x"}])
  end

  for adapter <- [:gun, :mint] do
    @tag adapter: adapter
    test "#{adapter}: a question that is withdrawn ends whoever was answering it", %{conn: conn} do
      test = self()

      model = %Model{
        name: "slow",
        sample: fn _prompt, _params, _count ->
          send(test, {:answering, self()})
          receive(do: (:never -> :ok))
        end
      }

      opts = [conn: conn, sampling: [max_tokens: 4], limits: [sample_timeout_ms: 200]]
      evaluating = Task.async(fn -> Evaluator.evaluate(opts, model, [{"a", "a"}]) end)
      assert_receive {:answering, pid}, 5_000
      monitor = Process.monitor(pid)
      assert_receive {:DOWN, ^monitor, :process, ^pid, :killed}, 5_000
      assert {:error, %Error{reason: "TOO_MANY_UNSCORED", message: message}} = Task.await(evaluating, 10_000)
      assert message =~ "sample_timeout_ms, 200"
    end
  end

  test "the caller's mailbox is as it was", %{conn: conn} do
    {:ok, _} = Orchestrator.evaluate(conn, request(limit: 20), adder())
    assert Process.info(self(), :messages) == {:messages, []}
  end

  test "what cannot be asked at all is an error", %{conn: conn} do
    assert {:error, %Error{field: "model"}} = Orchestrator.evaluate(conn, request([]), %Model{name: "m"})
    assert {:error, %Error{field: "window"}} = Orchestrator.evaluate(conn, request([]), adder(), window: 0)

    assert {:error, %Error{field: "evaluators[0].kind"}} =
             Orchestrator.evaluate(conn, request(evaluators: "nosuch"), adder())

    {:ok, nowhere} = Connection.start_link(name: nil, address: "127.0.0.1:1")

    assert {:error, %Error{reason: "TRANSPORT", retryable: true}} =
             Orchestrator.evaluate(nowhere, request([]), adder(), patience_ms: 200)
  end

  test "a caller that dies interrupts the evaluation, and the same request goes on without asking again", %{conn: conn} do
    test = self()
    counts = :atomics.new(1, [])

    model =
      adder(fn _prompt ->
        asked = :atomics.add_get(counts, 1, 1)
        if asked > 100, do: send(test, {:stuck, self()})
        if asked > 100, do: receive(do: (:never -> :ok))
      end)

    request = request(evaluation_id: "left", limit: 200)
    {caller, _} = spawn_monitor(fn -> Orchestrator.evaluate(conn, request, model, window: 4) end)
    assert_receive {:stuck, stuck}, 20_000
    answering = Process.monitor(stuck)
    Process.exit(caller, :kill)
    assert_receive {:DOWN, ^answering, :process, ^stuck, _}, 5_000

    again = :counters.new(1, [])
    model = adder(fn _prompt -> :counters.add(again, 1, 1) end)
    assert {:ok, %{state: :completed, attempt: 2} = evaluation} = Orchestrator.evaluate(conn, request, model, window: 4)
    assert evaluation.metrics.values["accuracy"] == 1.0
    assert :counters.get(again, 1) <= 104
  end

  for adapter <- [:gun, :mint] do
    @tag adapter: adapter
    test "#{adapter}: a worker that is killed and comes back goes on with the same evaluation", %{adapter: adapter} do
      worker = TestWorker.start()
      conn = start_supervised!({Connection, name: nil, address: worker.address, adapter: adapter}, id: :other)
      test = self()
      counts = :atomics.new(1, [])
      model = adder(fn _prompt -> if :atomics.add_get(counts, 1, 1) == 100, do: send(test, :half_way) end)

      request = request(evaluation_id: "survives", limit: 400)
      evaluating = Task.async(fn -> Orchestrator.evaluate(conn, request, model, window: 4, patience_ms: 60_000) end)
      assert_receive :half_way, 30_000
      TestWorker.kill(worker)
      TestWorker.restart(worker)

      assert {:ok, %{state: :completed} = evaluation} = Task.await(evaluating, 120_000)
      assert evaluation.metrics.values["accuracy"] == 1.0
      assert evaluation.attempt == 2
      # What was written down is not asked again.
      assert :atomics.get(counts, 1) < 400 + 200
    end
  end
end
