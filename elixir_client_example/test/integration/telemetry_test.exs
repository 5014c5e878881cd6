defmodule CrucibleBridge.TelemetryTest do
  use ExUnit.Case, async: false

  import ExUnit.CaptureLog

  alias CrucibleBridge.{Connection, Telemetry, TestWorker}
  alias CrucibleBridge.Telemetry.Relay

  @moduletag :integration
  @moduletag :capture_log
  @moduletag timeout: 120_000

  @computed [:crucible_bridge, :metrics, :stop]
  @gap [:crucible_bridge, :telemetry, :gap]
  @connected [:crucible_bridge, :telemetry, :connected]

  setup context do
    worker = TestWorker.start(args: context[:args] || [])
    start_supervised!({Connection, address: worker.address, adapter: context[:adapter] || :gun})
    :ok = :telemetry.attach_many(__MODULE__, Telemetry.events(), &__MODULE__.forward/4, self())
    on_exit(fn -> :telemetry.detach(__MODULE__) end)
    {:ok, worker: worker}
  end

  def forward(name, measurements, metadata, test), do: send(test, {name, measurements, metadata})

  # An event without an evaluation: cheap, and one a call.
  defp compute(tokens) do
    {:ok, _reply} = CrucibleBridge.mean_nll([List.duplicate(-1.0, tokens)], [List.duplicate(1.0, tokens)])
  end

  defp tokens do
    assert_receive {@computed, %{tokens: tokens, duration: _}, metadata}, 15_000
    {metadata.sequence, trunc(tokens)}
  end

  defp relay, do: Telemetry |> Supervisor.which_children() |> List.keyfind!(Relay, 0) |> elem(1)

  for adapter <- [:gun, :mint] do
    @tag adapter: adapter
    test "#{adapter}: every event is emitted once and in order, whatever becomes of the worker and the relay", %{
      worker: worker
    } do
      start_supervised!({Telemetry, from: :oldest})
      for n <- 1..5, do: compute(n)
      first = for _ <- 1..5, do: tokens()

      TestWorker.kill(worker)
      monitor = Process.monitor(relay())
      Process.exit(relay(), :kill)
      assert_receive {:DOWN, ^monitor, :process, _pid, :killed}
      TestWorker.restart(worker)

      :ok = Connection.await(Connection, 10_000)
      for n <- 6..10, do: compute(n)
      second = for _ <- 1..5, do: tokens()
      assert first ++ second == for(n <- 1..10, do: {n, n})
      refute_received {@computed, _measurements, _metadata}
      refute_received {@gap, _measurements, _metadata}
      assert Telemetry.position().sequence == 10
    end
  end

  test "what was written before is left alone, unless it is asked for" do
    compute(1)
    start_supervised!({Telemetry, from: :oldest})
    assert tokens() == {1, 1}
    stop_supervised!(Telemetry)

    start_supervised!(Telemetry)
    :ok = Telemetry.await()
    compute(2)
    assert tokens() == {2, 2}
    refute_received {@computed, _measurements, _metadata}
  end

  test "where it began is kept, too: what is written while nobody listens is emitted by the next" do
    kept = start_supervised!({Agent, fn -> nil end})
    position = {fn -> Agent.get(kept, & &1) end, fn position -> Agent.update(kept, fn _ -> position end) end}

    start_supervised!({Telemetry, position: position})
    :ok = Telemetry.await()
    stop_supervised!(Telemetry)
    compute(1)
    # By one that keeps nothing: the event is in the log now.
    start_supervised!({Telemetry, from: :oldest})
    assert tokens() == {1, 1}
    stop_supervised!(Telemetry)

    start_supervised!({Telemetry, position: position})
    assert tokens() == {1, 1}
  end

  test "a position that is kept is gone on from" do
    kept = start_supervised!({Agent, fn -> nil end})
    position = {fn -> Agent.get(kept, & &1) end, fn position -> Agent.update(kept, fn _ -> position end) end}

    start_supervised!({Telemetry, position: position, from: :oldest})
    compute(1)
    assert tokens() == {1, 1}
    stop_supervised!(Telemetry)

    compute(2)
    start_supervised!({Telemetry, position: position})
    assert tokens() == {2, 2}
    refute_received {@computed, _measurements, _metadata}
  end

  test "a new journal is a gap of unknown size, and is read from its beginning", %{worker: worker} do
    start_supervised!({Telemetry, from: :oldest})
    compute(1)
    assert tokens() == {1, 1}
    %{log_id: before} = Telemetry.position()

    TestWorker.stop(worker)
    File.rm_rf!(Path.join(worker.folder, "state"))
    TestWorker.restart(worker)
    :ok = Connection.await(Connection, 10_000)
    compute(2)
    assert_receive {@gap, measurements, %{reason: "OTHER_LOG", from: %{log_id: ^before}, to: to}}, 15_000
    assert measurements == %{}
    assert to.sequence == 0 and to.log_id != before
    assert tokens() == {1, 2}
  end

  @tag args: ["--limit", "max_events_retained=5"]
  test "events that are no longer retained are a gap of known size, and the rest follows", %{worker: worker} do
    start_supervised!({Telemetry, from: :oldest})
    for n <- 1..20, do: compute(n)
    for n <- 1..20, do: assert(tokens() == {n, n})
    position = %{Telemetry.position() | sequence: 1}
    stop_supervised!(Telemetry)

    # A worker trims as it starts.
    TestWorker.stop(worker)
    TestWorker.restart(worker)
    :ok = Connection.await(Connection, 10_000)
    await_trimmed(position)

    start_supervised!({Telemetry, from: position})
    assert_receive {@gap, %{missed: 14}, %{reason: "NO_LONGER_RETAINED", from: ^position, to: %{sequence: 15}}}, 15_000
    for n <- 16..20, do: assert(tokens() == {n, n})
  end

  defp await_trimmed(position, tries \\ 200) do
    asked = [after_sequence: position.sequence, log_id: position.log_id, until_now: true]

    with {:ok, stream} <- CrucibleBridge.subscribe(Connection, asked),
         false <- match?([{:error, %{reason: "NO_LONGER_RETAINED"}}], Enum.take(stream, 1)) do
      assert tries > 0
      Process.sleep(50)
      await_trimmed(position, tries - 1)
    end
  end

  test "a position behind the log's end is a gap, and what is written next is emitted" do
    start_supervised!({Telemetry, from: :oldest})
    compute(1)
    assert tokens() == {1, 1}
    position = %{Telemetry.position() | sequence: 1_000}
    stop_supervised!(Telemetry)

    start_supervised!({Telemetry, from: position})
    assert_receive {@gap, _measurements, %{reason: "BEYOND_LOG", to: %{sequence: 1}}}, 15_000
    :ok = Telemetry.await()
    compute(2)
    assert tokens() == {2, 2}
  end

  test "only the kinds that are wanted are emitted, and the position passes the others" do
    start_supervised!({Telemetry, from: :oldest, kinds: [:EVENT_KIND_GRADING_COMPLETE]})
    compute(1)
    {:ok, _grades} = CrucibleBridge.grade_math([{"0.5", "1/2"}])
    assert_receive {[:crucible_bridge, :grading, :stop], %{count: 1.0, correct: 1.0}, %{sequence: 2}}, 15_000
    refute_received {@computed, _measurements, _metadata}
  end

  test "a handler that raises costs itself alone" do
    :ok = :telemetry.attach("raises", @computed, &__MODULE__.raise/4, nil)
    start_supervised!({Telemetry, from: :oldest})

    log =
      capture_log(fn ->
        compute(1)
        compute(2)
        assert [tokens(), tokens()] == [{1, 1}, {2, 2}]
      end)

    assert log =~ "raises"
  end

  test "a handler may start tasks and leave them: their ends are none of the relay's" do
    :ok = :telemetry.attach("starts tasks", @computed, &__MODULE__.start_task/4, self())
    start_supervised!({Telemetry, from: :oldest})
    relay = relay()
    compute(1)
    assert tokens() == {1, 1}
    assert_receive {:done, task}, 5_000
    monitor = Process.monitor(task)
    assert_receive {:DOWN, ^monitor, :process, ^task, _reason}, 5_000
    compute(2)
    assert tokens() == {2, 2}
    assert relay() == relay
    :telemetry.detach("starts tasks")
  end

  def start_task(_name, _measurements, _metadata, test), do: Task.async(fn -> send(test, {:done, self()}) end)

  def raise(_name, _measurements, _metadata, _config), do: raise("a mistake in a handler")

  test "waiting ends when there is no worker, and nothing breaks", %{worker: worker} do
    TestWorker.kill(worker)
    start_supervised!(Telemetry)
    assert Telemetry.await(Telemetry, 200) == {:error, :timeout}
    assert_receive {[:crucible_bridge, :telemetry, :disconnected], %{retry_in: _}, %{reason: "TRANSPORT"}}, 5_000
    assert Telemetry.position() == nil
    TestWorker.restart(worker)
    assert Telemetry.await(Telemetry, 10_000) == :ok
    assert_receive {@connected, %{}, %{sequence: _, log_id: _}}
  end

  if Code.ensure_loaded?(Phoenix.PubSub) do
    test "events are broadcast, too, those of an evaluation to its own topic as well" do
      start_supervised!({Phoenix.PubSub, name: __MODULE__.PubSub})
      :ok = Phoenix.PubSub.subscribe(__MODULE__.PubSub, "crucible_bridge")
      :ok = Phoenix.PubSub.subscribe(__MODULE__.PubSub, "crucible_bridge:e-1")
      start_supervised!({Telemetry, from: :oldest, pubsub: __MODULE__.PubSub})
      evaluate("e-1")

      for _topic <- 1..2 do
        assert_receive {:crucible_bridge, [:crucible_kitchen, :evaluation, :complete], %{nll: _},
                        %{evaluation_id: "e-1"}},
                       60_000
      end
    end
  end

  test "an evaluation is told from its start to its stop, and logged" do
    start_supervised!({Telemetry, from: :oldest})
    :ok = Telemetry.attach_default_logger()
    on_exit(fn -> Telemetry.detach_default_logger() end)

    log =
      capture_log(fn ->
        evaluation = evaluate("e-1")
        assert_receive {[:crucible_bridge, :evaluation, :start], %{total: 8.0}, %{step: 400, run_id: "run-7"}}, 60_000
        assert_receive {[:crucible_kitchen, :evaluation, :complete], %{nll: nll}, %{metrics: %{"nll" => nll}}}, 60_000
        assert_receive {[:crucible_bridge, :evaluation, :stop], %{duration: _}, %{state: "completed"}}, 60_000
        assert evaluation.metrics.values["nll"] == nll
      end)

    assert log =~ "evaluation e-1 (step 400): started, 8 runs of nll on embedded:arithmetic@320"
    assert log =~ ~r/evaluation e-1 \(step 400\): nll=0\.\d+ \(8 samples\)/
  end

  defp evaluate(id) do
    {:ok, evaluation} =
      CrucibleBridge.evaluate(
        evaluation_id: id,
        run_id: "run-7",
        step: 400,
        model: "embedded:arithmetic@320",
        evaluators: :nll,
        dataset: "builtin:arithmetic",
        limit: 8
      )

    # Were it not so, its events would rightly be others.
    assert %{state: :completed, metrics: %{values: %{"nll" => _}}} = evaluation
    evaluation
  end
end
