defmodule CrucibleBridge.PoolTest do
  use ExUnit.Case, async: false

  @moduletag :integration
  @moduletag :capture_log
  @moduletag timeout: 300_000

  alias CrucibleBridge.{Connection, Error, TestWorker}

  for adapter <- [:gun, :mint] do
    describe "#{adapter}:" do
      @describetag adapter: adapter

      test "calls take turns over the workers, and leave out one that is gone until it is back", %{adapter: adapter} do
        [one | _] = workers = pool(3)
        conn = connected(Enum.map(workers, & &1.address), adapter)

        assert Map.values(answered(conn, 30)) == [10, 10, 10]
        TestWorker.kill(one)
        assert wait_until(fn -> map_size(answered(conn, 6)) == 2 end)
        # A third each by their turns, and those of the third worker by chance.
        counts = Map.values(answered(conn, 30))
        assert {length(counts), Enum.sum(counts), Enum.min(counts) >= 10} == {2, 30, true}
        TestWorker.restart(one)
        assert wait_until(fn -> map_size(answered(conn, 6)) == 3 end)
      end

      test "the relay continues at another worker: each event once, without a gap", %{adapter: adapter} do
        workers = pool(3)
        conn = connected(Enum.map_join(workers, ",", & &1.address), adapter)
        name = :"relay-#{adapter}"
        start_supervised!({CrucibleBridge.Telemetry, name: name, connection: conn, from: :oldest})
        :ok = CrucibleBridge.Telemetry.await(name, 30_000)
        test = self()
        id = "pool-relay-#{adapter}"
        wanted = [:crucible_bridge, :evaluation, :stop]

        :telemetry.attach(
          id,
          wanted,
          fn _name, _measurements, metadata, _config -> send(test, {:stopped, metadata.evaluation_id}) end,
          nil
        )

        on_exit(fn -> :telemetry.detach(id) end)

        # Whichever worker the relay reads from is among those that are killed.
        for worker <- Enum.take(workers, 2) do
          assert {:ok, _evaluation} = evaluated(conn, "before-#{worker.os_pid}")
          TestWorker.kill(worker)
        end

        assert {:ok, _evaluation} = evaluated(conn, "last")

        for worker <- Enum.take(workers, 2) do
          expected = "before-#{worker.os_pid}"
          assert_receive {:stopped, ^expected}, 60_000
        end

        assert_receive {:stopped, "last"}, 60_000
        refute_received {:stopped, _another}
      end

      test "without any worker a call fails at once, and can be made again", %{adapter: adapter} do
        {:ok, conn} = Connection.start_link(name: nil, adapter: adapter, address: ["127.0.0.1:1", "127.0.0.1:2"])
        assert {:error, %Error{reason: "TRANSPORT", retryable: true}} = CrucibleBridge.info(conn)
        assert {:error, %Error{code: :deadline_exceeded}} = Connection.await(conn, 300)
      end
    end
  end

  test "a name is looked up, and its workers are those of its addresses" do
    [worker] = pool(1)
    [_host, port] = String.split(worker.address, ":")
    {:ok, conn} = Connection.start_link(name: nil, address: "dns:///localhost:#{port}")
    assert :ok = Connection.await(conn, 30_000)
    assert {:ok, _info} = CrucibleBridge.info(conn)
  end

  test "what is no address of a pool is refused by its name" do
    for address <- [["127.0.0.1:1", "no port"], [], "dns:///no-port", "dns:unix:/path", "a:1,b"] do
      assert {:error, %Error{code: :invalid_argument, field: "address"}} =
               Connection.start_link(name: nil, address: address)
    end
  end

  # Workers of one journal.
  defp pool(count) do
    [first | _] = workers = [TestWorker.start()]
    state = Path.join(first.folder, "state")
    workers ++ for(_ <- 2..count//1, do: TestWorker.start(state: state))
  end

  defp connected(address, adapter) do
    conn = start_supervised!({Connection, name: :"pool-#{adapter}", adapter: adapter, address: address})
    :ok = Connection.await(conn, 30_000)
    conn
  end

  # How many of so many calls each worker answered.
  defp answered(conn, count) do
    Enum.reduce(1..count, %{}, fn _number, counted ->
      # A call that was on its way to a worker that is gone has failed, and may be made again.
      case CrucibleBridge.info(conn) do
        {:ok, info} -> Map.update(counted, info.worker_id, 1, &(&1 + 1))
        {:error, %Error{retryable: true}} -> counted
      end
    end)
  end

  defp evaluated(conn, id) do
    CrucibleBridge.Patience.run(
      fn _attempt ->
        result =
          CrucibleBridge.evaluate(conn,
            evaluation_id: id,
            model: "embedded:arithmetic@600",
            evaluators: [:nll],
            dataset: [{"17+25=", "42"}]
          )

        {result, false}
      end,
      60_000
    )
  end

  defp wait_until(condition, left \\ 600) do
    cond do
      condition.() -> true
      left == 0 -> false
      true -> Process.sleep(50) && wait_until(condition, left - 1)
    end
  end
end
