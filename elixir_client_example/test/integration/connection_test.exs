defmodule CrucibleBridge.ConnectionTest do
  use ExUnit.Case, async: false

  @moduletag :integration
  @moduletag :capture_log

  alias CrucibleBridge.{Connection, Error, TestWorker, V1}

  for adapter <- [:gun, :mint] do
    describe "#{adapter}:" do
      @describetag adapter: adapter

      setup %{adapter: adapter} = context do
        if context[:alone], do: :ok, else: {:ok, shared(adapter)}
      end

      test "many callers share a connection, and are answered their own", %{conn: conn} do
        answers =
          1..200
          |> Task.async_stream(fn k -> {k, CrucibleBridge.pass_at_k(conn, [1_000], [1_000], k)} end,
            max_concurrency: 32
          )
          |> Enum.map(fn {:ok, answer} -> answer end)

        for {k, {:ok, reply}} <- answers, do: assert(reply.metrics.values == %{"pass@#{k}" => 1.0})
        assert length(answers) == 200
      end

      test "a refusal tells its reason, its field and its facts", %{conn: conn} do
        data = [%{model_input: [1], loss_fn_inputs: %{"logprobs" => [-0.5], "mask" => [1.0]}}]
        request = %V1.ComputeMeanNLLRequest{}

        assert {:error, %Error{code: :invalid_argument, reason: "INVALID_FIELD", field: "logprobs", retryable: false}} =
                 Connection.call(conn, V1.MetricsService.Stub, :compute_mean_nll, request)

        assert {:error, %Error{code: :not_found, reason: "UNKNOWN_EVALUATION"}} =
                 CrucibleBridge.get_evaluation(conn, "no-such-evaluation")

        assert {:error, %Error{code: :not_found, reason: "UNKNOWN_EMBEDDED_MODEL"}} =
                 CrucibleBridge.compute_logprobs(conn, "embedded:no-such-model", [[1, 2]])

        assert {:error, %Error{code: :invalid_argument, field: "training_logprobs[0]"}} =
                 CrucibleBridge.kl_sample_train(conn, data, [[-0.5, -0.25]])
      end

      test "a message that cannot be encoded is the caller's error", %{conn: conn} do
        request = %V1.GetEvaluationRequest{evaluation_id: 7}

        assert {:error, %Error{code: :invalid_argument, reason: "INVALID_FIELD"}} =
                 Connection.call(conn, V1.EvaluationService.Stub, :get_evaluation, request)
      end

      test "9.4 MB of tensors with NaN in them arrive bit for bit", %{conn: conn} do
        # 2 columns of 512 sequences of 1,024 values, f64 and one byte, and of one more f64.
        values = [:nan | List.duplicate(-0.5, 1_023)]

        data =
          for _ <- 1..575, do: %{loss_fn_inputs: %{"logprobs" => values, "mask" => [0.0 | List.duplicate(1.0, 1_023)]}}

        training = for _ <- 1..575, do: [:infinity | List.duplicate(-0.25, 1_023)]

        assert {:ok, reply} = CrucibleBridge.kl_sample_train(conn, data, training)
        assert reply.action_tokens == 575 * 1_023
        assert_in_delta reply.metrics.values["optim/kl_sample_train_v1"], -0.25, 1.0e-12
        assert_in_delta reply.metrics.values["optim/entropy"], 0.5, 1.0e-12
      end

      test "what is not finite where it counts leaves its key undefined, with the reason", %{conn: conn} do
        assert {:ok, reply} = CrucibleBridge.mean_nll(conn, [[:nan, -1.0]], [[1.0, 1.0]])
        assert reply.metrics.values == %{}
        assert reply.metrics.undefined["nll"] =~ "NaN"
      end

      test "a stream carries events, and halting it ends the call at the worker", %{conn: conn} do
        {:ok, events} = CrucibleBridge.subscribe(conn)
        assert {:ok, %V1.EventBatch{log_id: log_id}} = Enum.at(events, 0)
        assert log_id != ""
        assert calls(conn) == 0

        assert {:ok, [_batch | _]} =
                 with({:ok, events} <- CrucibleBridge.subscribe(conn, until_now: true), do: {:ok, Enum.to_list(events)})
      end

      test "a stream whose owner is killed ends at the worker", %{conn: conn} do
        test = self()

        owner =
          spawn(fn ->
            {:ok, events} = CrucibleBridge.subscribe(conn)
            send(test, :opened)
            Stream.run(events)
          end)

        assert_receive :opened, 10_000
        Process.exit(owner, :kill)
        assert calls(conn) == 0
      end

      test "a channel of one's own answers, and is gone with the process that opened it", %{conn: conn} do
        {:ok, _info} = CrucibleBridge.info(conn)
        before = length(Port.list())
        test = self()

        owner =
          spawn(fn ->
            {:ok, channel} = Connection.open(conn)
            {:ok, metadata} = Connection.metadata(conn)
            reply = V1.WorkerService.Stub.get_info(channel, %V1.GetInfoRequest{}, metadata: metadata)
            send(test, {:answered, reply})
            Process.sleep(:infinity)
          end)

        assert_receive {:answered, {:ok, %V1.GetInfoResponse{}}}, 10_000
        assert length(Port.list()) == before + 1
        Process.exit(owner, :kill)
        assert wait_until(fn -> length(Port.list()) == before end)
      end

      test "streams and failed calls leave neither processes nor ports behind", %{conn: conn} do
        use_once = fn ->
          {:ok, events} = CrucibleBridge.subscribe(conn)
          assert [{:ok, _batch}] = Enum.take(events, 1)
          {:ok, events} = CrucibleBridge.subscribe(conn, until_now: true)
          Stream.run(events)
          refused(CrucibleBridge.watch(conn, "no-such"))
        end

        use_once.()
        assert calls(conn) == 0
        {processes, ports} = {length(Process.list()), length(Port.list())}
        for _ <- 1..20, do: use_once.()
        assert wait_until(fn -> length(Process.list()) <= processes and length(Port.list()) <= ports end)
      end

      test "a connection that is killed leaves neither processes nor ports behind", %{adapter: adapter, worker: worker} do
        {processes, ports} = {length(Process.list()), length(Port.list())}
        Process.flag(:trap_exit, true)

        for _ <- 1..5 do
          {:ok, conn} = Connection.start_link([name: nil, adapter: adapter] ++ worker.connect)
          assert {:ok, _info} = CrucibleBridge.info(conn)
          Process.exit(conn, :kill)
          assert_receive {:EXIT, ^conn, :killed}
        end

        assert wait_until(fn -> length(Process.list()) <= processes and length(Port.list()) <= ports end)
      end

      test "what a stream is refused with comes at once", %{conn: conn} do
        assert {:error, %Error{code: :not_found, reason: "UNKNOWN_EVALUATION"}} =
                 refused(CrucibleBridge.watch(conn, "no-such"))

        assert {:error, %Error{code: :failed_precondition, reason: "OTHER_LOG", details: %{"log_id" => _}}} =
                 refused(CrucibleBridge.subscribe(conn, after_sequence: 1, log_id: "other"))
      end

      @tag :alone
      test "a dead worker is a prompt, retryable error, and a new one at its place is found again", %{adapter: adapter} do
        worker = TestWorker.start()
        conn = connect(worker, adapter)
        {:ok, %{worker_id: first}} = CrucibleBridge.info(conn)
        {:ok, events} = CrucibleBridge.subscribe(conn)
        reader = Task.async(fn -> Enum.to_list(events) end)

        pending = Task.async(fn -> CrucibleBridge.evaluate(conn, endless()) end)
        assert wait_until(fn -> match?({:ok, %{running: 1}}, CrucibleBridge.info(conn)) end)
        TestWorker.kill(worker)

        assert {:error, %Error{retryable: true, reason: "TRANSPORT"}} = Task.await(pending, 5_000)
        assert {:error, %Error{retryable: true, reason: "TRANSPORT"}} = reader |> Task.await(5_000) |> List.last()

        assert {took, {:error, %Error{code: :unavailable, retryable: true, retry_after_ms: pause}}} =
                 timed(fn -> down(conn) end)

        assert is_integer(pause)
        # The call's own timeout is 30 s; what is measured is that it was not waited for.
        assert took < 5_000

        TestWorker.restart(worker)
        assert :ok = Connection.await(conn, 10_000)
        assert {:ok, %{worker_id: second}} = CrucibleBridge.info(conn)
        assert second != first
      end

      @tag :alone
      test "a worker that is stopped ends what waits with a retryable error, and the same call goes on at the next",
           context do
        worker = TestWorker.start()
        conn = connect(worker, context.adapter)
        pending = Task.async(fn -> CrucibleBridge.evaluate(conn, endless()) end)
        assert wait_until(fn -> match?({:ok, %{running: 1}}, CrucibleBridge.info(conn)) end)
        assert TestWorker.stop(worker) == 0
        assert {:error, %Error{retryable: true}} = Task.await(pending, 5_000)

        TestWorker.restart(worker)
        assert :ok = Connection.await(conn, 10_000)
        assert {:ok, %{state: :interrupted, attempt: 1}} = CrucibleBridge.get_evaluation(conn, "endless")
        assert {:ok, %{existed: true, evaluation: %{attempt: 2}}} = CrucibleBridge.start_evaluation(conn, endless())
      end

      @tag :alone
      test "a worker that hangs costs a call its own timeout, and its late answer reaches nobody", %{adapter: adapter} do
        worker = TestWorker.start()
        conn = connect(worker, adapter)
        {:ok, _info} = CrucibleBridge.info(conn)
        TestWorker.signal_only(worker, "STOP")

        assert {took, {:error, %Error{code: :deadline_exceeded, retryable: true}}} =
                 timed(fn -> CrucibleBridge.info(conn, timeout: 300) end)

        assert took in 300..5_000
        assert {:error, %Error{code: :deadline_exceeded}} = CrucibleBridge.subscribe(conn, timeout: 300)
        TestWorker.signal_only(worker, "CONT")
        assert {:ok, _info} = CrucibleBridge.info(conn)
        # The late answer came before this one, and reached nobody.
        refute_received {_tag, {:ok, %V1.GetInfoResponse{}}}
      end

      @tag :alone
      test "a Unix socket is an address like any other", %{adapter: adapter} do
        worker = TestWorker.start(unix: true)
        conn = connect(worker, adapter)
        assert {:ok, %{version: _}} = CrucibleBridge.info(conn)
        assert {:ok, events} = CrucibleBridge.subscribe(conn, until_now: true)
        assert [{:ok, %V1.EventBatch{}} | _] = Enum.to_list(events)
      end
    end
  end

  test "nothing listens: the error is prompt, says where, and the pauses grow" do
    {:ok, conn} = Connection.start_link(name: nil, address: "127.0.0.1:1")
    assert {:error, %Error{code: :unavailable, reason: "TRANSPORT", message: message}} = CrucibleBridge.info(conn)
    assert message =~ "127.0.0.1:1: connection refused"
    assert {:error, %Error{retry_after_ms: pause}} = CrucibleBridge.info(conn)
    assert pause in 1..100
    assert {:error, %Error{code: :deadline_exceeded}} = Connection.await(conn, 200)
  end

  for adapter <- [:gun, :mint], pool <- [false, true] do
    test "#{adapter}: a timeout holds while TLS is dialled, for each of many callers#{if pool, do: " of a pool"}" do
      # The system accepts for a socket that listens; nothing ever answers the handshake.
      silent = fn ->
        {:ok, socket} = :gen_tcp.listen(0, ip: {127, 0, 0, 1}, backlog: 16)
        {:ok, port} = :inet.port(socket)
        "127.0.0.1:#{port}"
      end

      address = if unquote(pool), do: [silent.(), silent.()], else: silent.()
      tls = [verify: :verify_none]
      opts = [name: nil, address: address, tls: tls, adapter: unquote(adapter), timeout: 200]
      {:ok, conn} = Connection.start_link(opts ++ [connect_timeout: 60_000])

      calls = [
        fn -> CrucibleBridge.info(conn, timeout: 200) end,
        fn -> CrucibleBridge.info(conn) end,
        fn -> CrucibleBridge.subscribe(conn, timeout: 200) end,
        fn -> Connection.await(conn, 200) end
      ]

      for {took, answer} <- calls |> Enum.map(&Task.async(fn -> timed(&1) end)) |> Task.await_many(30_000) do
        assert {:error, %Error{code: :deadline_exceeded, reason: "DEADLINE_EXCEEDED"} = error} = answer
        assert Exception.message(error) == "no answer within 200 ms"
        # One after another, in the connection's process, they would have waited for minutes.
        assert took in 200..10_000
      end

      # The connection's process answers meanwhile.
      assert {:ok, %{}} = Connection.metadata(conn)
    end
  end

  for adapter <- [:gun, :mint] do
    test "#{adapter}: a server that accepts and says nothing is given up after the time to connect" do
      {:ok, socket} = :gen_tcp.listen(0, ip: {127, 0, 0, 1})
      {:ok, port} = :inet.port(socket)
      opts = [name: nil, address: "127.0.0.1:#{port}", adapter: unquote(adapter), connect_timeout: 300]
      {:ok, conn} = Connection.start_link(opts ++ [tls: [verify: :verify_none]])
      assert {took, {:error, %Error{reason: "TRANSPORT"}}} = timed(fn -> CrucibleBridge.info(conn, timeout: 60_000) end)
      assert took in 300..30_000
    end
  end

  test "a connection that is not started is an error, not an exit" do
    assert {:error, %Error{reason: "TRANSPORT"}} = CrucibleBridge.info(:no_such_connection)
  end

  defp shared(adapter) do
    worker =
      case :persistent_term.get({__MODULE__, :worker}, nil) do
        nil -> raise "setup_all did not run"
        worker -> worker
      end

    %{worker: worker, conn: connect(worker, adapter)}
  end

  setup_all do
    :persistent_term.put({__MODULE__, :worker}, TestWorker.start())
    on_exit(fn -> :persistent_term.erase({__MODULE__, :worker}) end)
  end

  defp connect(worker, adapter) do
    start_supervised!({Connection, [name: nil, adapter: adapter] ++ worker.connect})
  end

  # Calls that are open at the worker, beside the one that asks.
  defp calls(conn) do
    wait_until(fn -> match?({:ok, %{calls: 0}}, CrucibleBridge.info(conn)) end)
    {:ok, info} = CrucibleBridge.info(conn)
    info.calls
  end

  defp wait_until(condition, left \\ 200) do
    cond do
      condition.() -> true
      left == 0 -> false
      true -> pause() && wait_until(condition, left - 1)
    end
  end

  defp pause do
    receive do
    after
      50 -> true
    end
  end

  defp refused({:error, error}), do: {:error, error}
  defp refused({:ok, stream}), do: Enum.at(stream, 0)

  # The connection may be told of its end a moment after its calls are.
  defp down(conn) do
    case CrucibleBridge.info(conn) do
      {:error, %Error{code: :unavailable, retry_after_ms: pause}} = error when is_integer(pause) -> error
      {:error, %Error{retryable: true}} -> down(conn)
    end
  end

  defp timed(fun) do
    {microseconds, result} = :timer.tc(fun)
    {div(microseconds, 1_000), result}
  end

  defp endless do
    [
      evaluation_id: "endless",
      model: "embedded:arithmetic@320",
      evaluators: [:accuracy],
      dataset: "builtin:arithmetic",
      sampling: [max_tokens: 64, temperature: 1.0],
      limits: [concurrency: 1]
    ]
  end
end
