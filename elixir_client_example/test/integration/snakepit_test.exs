if Code.ensure_loaded?(Snakepit) do
  defmodule CrucibleBridge.SnakepitTest do
    # A pool of two real workers, started by Snakepit.
    use ExUnit.Case, async: false

    alias CrucibleBridge.{Connection, Error, SnakepitAdapter, Telemetry, Tensor}

    @moduletag :integration
    @moduletag :capture_log
    @moduletag timeout: 120_000

    setup_all do
      folder = Path.join(System.tmp_dir!(), "crucible-snakepit-#{System.unique_integer([:positive])}-#{System.pid()}")
      before = for app <- [:snakepit, :crucible_bridge], do: {app, Application.get_all_env(app)}

      Application.put_env(:crucible_bridge, SnakepitAdapter,
        python: python(),
        args: ["--state-dir", Path.join(folder, "state"), "--log-level", "error"]
      )

      pool = [pooling_enabled: true, adapter_module: SnakepitAdapter, pool_size: 2, data_dir: folder, log_level: :none]
      # Else Snakepit opens its stream of telemetry anew every five seconds.
      pool = pool ++ [grpc_stream_open_timeout_ms: 86_400_000]
      Application.stop(:snakepit)
      Application.put_all_env(snakepit: pool)
      {:ok, _started} = Application.ensure_all_started(:snakepit)
      :ok = Snakepit.Pool.await_ready(Snakepit.Pool, 60_000)

      on_exit(fn ->
        Application.stop(:snakepit)
        Application.put_all_env(before)
        File.rm_rf!(folder)
      end)

      {:ok, state_dir: Path.join(folder, "state")}
    end

    test "a tool answers, numbers and text as JSON has them" do
      pairs = [%{gold: "1/2", pred: "0.5"}, %{gold: "1/3", pred: "0.333"}, %{gold: "x", pred: "α"}]
      assert {:ok, %{"grades" => grades}} = SnakepitAdapter.execute("grade_math", %{pairs: pairs}, timeout: 60_000)
      assert Enum.map(grades, & &1["verdict"]) == ["correct", "incorrect", "incorrect"]
    end

    test "tensors are binary parameters, and what is not finite is undefined with its reason" do
      tools = fn logprobs ->
        {:ok, tensor} = Tensor.pack(logprobs, dtype: :f32)
        described = %{logprobs: %{dtype: "f32", shape: [length(logprobs)]}, weights: [[1.0, 1.0]]}
        {:ok, reply} = SnakepitAdapter.execute("mean_nll", described, binary_parameters: %{"logprobs" => tensor.data})
        reply
      end

      assert %{"metrics" => %{"nll" => 0.75}} = tools.([-0.5, -1.0])
      assert %{"metrics" => metrics, "undefined" => %{"nll" => reason}} = tools.([-0.5, :nan])
      assert metrics == %{}
      assert reason =~ "NaN"
    end

    test "what a tool refuses has our reason and the field" do
      assert {:error, %Error{code: :invalid_argument, field: field, retryable: false} = error} =
               SnakepitAdapter.execute("pass_at_k", %{samples: [10], successes: ["x"], k: [1]})

      assert field =~ "successes"
      assert Exception.message(error) =~ "successes"
      assert {:error, %Error{reason: "UNKNOWN_TOOL"}} = SnakepitAdapter.execute("no_such_tool", %{})
    end

    test "an evaluation is streamed by its events, and emitted here by way of any worker" do
      start_supervised!({Connection, address: &SnakepitAdapter.address/0})
      start_supervised!(Telemetry)
      :ok = Telemetry.await(Telemetry, 20_000)
      test = self()
      handler = fn _name, measurements, metadata, _config -> send(test, {:complete, measurements, metadata}) end
      :ok = :telemetry.attach(__MODULE__, [:crucible_kitchen, :evaluation, :complete], handler, nil)
      on_exit(fn -> :telemetry.detach(__MODULE__) end)

      evaluation = %{
        evaluation_id: "e-1",
        model: "embedded:arithmetic@320",
        evaluators: ["nll"],
        dataset: %{builtin: "arithmetic", limit: 8}
      }

      assert {:ok, %{"evaluation" => %{"state" => "completed", "metrics" => %{"nll" => nll}}}} =
               SnakepitAdapter.execute("evaluate", evaluation, timeout: 60_000)

      assert_receive {:complete, %{nll: ^nll}, %{evaluation_id: "e-1"}}, 10_000
      refute_received {:complete, _measurements, _metadata}

      :ok = SnakepitAdapter.execute_stream("watch_evaluation", %{evaluation_id: "e-1"}, &send(test, {:chunk, &1}))
      assert_received {:chunk, %{"events" => [%{"sequence" => _, "kind" => _} | _]}}
    end

    test "Snakepit's own telemetry has our events under the names of the page" do
      page = File.read!(Path.expand("../../../docs/snakepit.md", __DIR__))
      # | attempts at evaluations | `[:snakepit, ..., :start \\| :stop \\| :exception]` |
      rows = Regex.scan(~r/^\| [a-z ]+ \| `\[(:snakepit, [^|]*), :start \\\| :stop \\\| :exception\]` \|$/m, page)
      prefixes = for [_row, names] <- rows, do: "[#{names}]" |> Code.eval_string() |> elem(0)
      assert length(prefixes) == 2
      test = self()
      names = for prefix <- prefixes, event <- [:start, :stop], do: prefix ++ [event]
      told = fn name, _measurements, metadata, _config -> send(test, {:told, name, metadata[:operation]}) end
      :ok = :telemetry.attach_many({__MODULE__, :page}, names, told, nil)
      on_exit(fn -> :telemetry.detach({__MODULE__, :page}) end)

      evaluation = %{
        evaluation_id: "e-told",
        model: "embedded:arithmetic@320",
        evaluators: ["nll"],
        dataset: %{builtin: "arithmetic", limit: 3}
      }

      assert {:ok, _evaluation} = SnakepitAdapter.execute("evaluate", evaluation, timeout: :infinity)
      for name <- names, do: assert_receive({:told, ^name, _operation}, 60_000)
    end

    test "a worker that is killed is replaced, and the connection finds another" do
      start_supervised!({Connection, address: &SnakepitAdapter.address/0})
      {:ok, %{worker_id: worker_id}} = CrucibleBridge.info()
      # Of the connection: the worker that the pool names first may be another one by now.
      {:ok, %{port: port}} = Connection.channel(Connection)
      {_, 0} = System.cmd("kill", ["-KILL", "#{os_pid(port)}"])
      other = await_other(worker_id)
      assert other != worker_id
      assert {:ok, %{"metrics" => %{"pass@1" => 0.3}}} = await_tool()
    end

    defp python do
      case System.get_env("BRIDGE_WORKER") do
        nil -> Path.expand("../../../.venv/bin/python", __DIR__)
        worker -> worker |> Path.dirname() |> Path.join("python")
      end
    end

    defp os_pid(port) do
      Enum.find_value(Snakepit.list_workers(), fn worker ->
        {:ok, pid} = Snakepit.Pool.Registry.get_worker_pid(worker)
        state = :sys.get_state(pid)
        if state.port == port, do: state.process_pid
      end)
    end

    # Snakepit may still have the dead worker among those that are ready.
    defp await_tool(tries \\ 100) do
      with {:error, %Error{retryable: true}} when tries > 0 <-
             SnakepitAdapter.execute("pass_at_k", %{samples: [10], successes: [3], k: [1]}) do
        Process.sleep(50)
        await_tool(tries - 1)
      end
    end

    defp await_other(worker_id, tries \\ 100) do
      case CrucibleBridge.info() do
        {:ok, %{worker_id: other}} when other != worker_id ->
          other

        _gone when tries > 0 ->
          Process.sleep(50)
          await_other(worker_id, tries - 1)
      end
    end
  end
end
