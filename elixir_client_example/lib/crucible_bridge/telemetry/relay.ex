defmodule CrucibleBridge.Telemetry.Relay do
  @moduledoc false
  # Keeps one stream of the log open and emits what comes. A reader of its own reads the stream, as only the process that
  # opened one can, and hands over batch by batch: none is read ahead, so a slow handler slows the stream and nothing else.

  use GenServer

  alias CrucibleBridge.{Connection, Error}
  alias CrucibleBridge.Telemetry.{Event, Position}
  alias CrucibleBridge.V1

  @compile {:no_warn_undefined, Phoenix.PubSub}

  @backoff_ms 100
  @max_backoff_ms 2_000
  # Behind every log's end. The worker answers where the end is, which is what a relay that begins now has to know.
  @beyond 0x7FFFFFFFFFFFFFFF
  @topic "crucible_bridge"

  def start_link({telemetry, opts}), do: GenServer.start_link(__MODULE__, {telemetry, opts})

  @spec await(pid(), timeout()) :: :ok | {:error, :timeout}
  def await(relay, timeout) do
    GenServer.call(relay, :await, timeout)
  catch
    :exit, {:timeout, _call} -> {:error, :timeout}
  end

  @impl true
  def init({telemetry, opts}) do
    Process.flag(:trap_exit, true)

    state = %{
      table: nil,
      telemetry: telemetry,
      connection: Keyword.get(opts, :connection, Connection),
      kinds: Keyword.get(opts, :kinds, []),
      run_id: opts[:run_id],
      save: save(opts[:position]),
      pubsub: opts[:pubsub],
      reader: nil,
      open: false,
      failures: 0,
      waiting: []
    }

    {:ok, state, {:continue, :begin}}
  end

  defp save(nil), do: fn _position -> :ok end
  defp save({_load, save}), do: save

  # Only now, as the supervisor answers nobody while it starts its children.
  @impl true
  def handle_continue(:begin, state) do
    table = state.telemetry |> CrucibleBridge.Telemetry.child(Position) |> Position.table()
    {:noreply, open(%{state | table: table})}
  end

  @impl true
  def handle_call(:await, _from, %{open: true} = state), do: {:reply, :ok, state}
  def handle_call(:await, from, state), do: {:noreply, %{state | waiting: [from | state.waiting]}}

  def handle_call({:batch, batch}, {reader, _tag}, %{reader: reader} = state) do
    {:reply, :ok, batch |> emit_batch(state) |> connected()}
  end

  @impl true
  def handle_info(:open, state), do: {:noreply, open(state)}
  def handle_info({:EXIT, reader, reason}, %{reader: reader} = state), do: {:noreply, ended(reason, state)}
  # Handlers run here: replies that they did not wait for, and the ends of what they linked.
  def handle_info(_of_handlers, state), do: {:noreply, state}

  # Reading

  defp open(state) do
    relay = self()
    %{connection: connection} = state
    request = request(Position.read(state.table), state)
    %{state | reader: spawn_link(fn -> read(relay, connection, request) end), open: false}
  end

  defp request(position, state) do
    %{sequence: sequence, log_id: log_id} = place(position)

    %V1.SubscribeRequest{
      after_sequence: sequence,
      log_id: log_id,
      kinds: state.kinds,
      run_id: state.run_id,
      new_kinds: true
    }
  end

  defp place(:now), do: %{sequence: @beyond, log_id: ""}
  defp place(:oldest), do: %{sequence: 0, log_id: ""}
  defp place(position), do: position

  defp read(relay, connection, request) do
    case Connection.stream(connection, V1.TelemetryService.Stub, :subscribe, request) do
      {:ok, stream} -> stream |> Enum.reduce_while(nil, &hand_over(&1, &2, relay)) |> finish()
      {:error, error} -> finish(error)
    end
  end

  defp hand_over({:ok, batch}, nil, relay) do
    :ok = GenServer.call(relay, {:batch, batch}, :infinity)
    {:cont, nil}
  end

  defp hand_over({:error, error}, nil, _relay), do: {:halt, error}

  defp finish(nil), do: finish(Error.transport("the worker ended the stream"))
  defp finish(error), do: exit({:shutdown, error})

  # Emitting

  defp emit_batch(batch, state) do
    before = Position.read(state.table)
    Enum.each(batch.events, &emit(&1, batch.log_id, state))
    position = %{log_id: batch.log_id, sequence: batch.through_sequence}
    Position.put(state.table, position)
    if position != before, do: state.save.(position)
    state
  end

  defp emit(event, log_id, state) do
    if new?(event.sequence, log_id, Position.read(state.table)) do
      {name, measurements, metadata} = Event.translate(event, log_id)
      :telemetry.execute(name, measurements, metadata)
      broadcast(state.pubsub, name, measurements, metadata)
      Position.put(state.table, %{log_id: log_id, sequence: event.sequence})
    end
  end

  # A relay that crashed amid a batch gets its beginning again.
  defp new?(sequence, log_id, %{log_id: log_id} = position), do: sequence > position.sequence
  defp new?(_sequence, _log_id, _other), do: true

  defp broadcast(nil, _name, _measurements, _metadata), do: :ok

  defp broadcast(pubsub, name, measurements, metadata) do
    message = {:crucible_bridge, name, measurements, metadata}
    Phoenix.PubSub.broadcast!(pubsub, @topic, message)
    if id = metadata.evaluation_id, do: Phoenix.PubSub.broadcast!(pubsub, @topic <> ":" <> id, message)
  end

  defp connected(%{open: true} = state), do: state

  defp connected(state) do
    :telemetry.execute([:crucible_bridge, :telemetry, :connected], %{}, Position.read(state.table))
    Enum.each(state.waiting, &GenServer.reply(&1, :ok))
    %{state | open: true, failures: 0, waiting: []}
  end

  # Going on

  defp ended({:shutdown, %Error{} = error}, state) do
    case {elsewhere(error), Position.read(state.table)} do
      {nil, _position} -> again(error, state)
      # Refused where it was sent: once more at once would be once more for ever.
      {position, position} -> again(error, state)
      {found, :now} -> found |> go_on_from(state) |> open()
      {_found, :oldest} -> again(error, state)
      {found, position} -> error.reason |> gap(position, found, state) |> open()
    end
  end

  defp ended(reason, state), do: reason |> inspect() |> Error.transport() |> again(state)

  # Where a log goes on that does not have the place that was asked for; nil where an error does not tell.
  defp elsewhere(%Error{reason: "BEYOND_LOG", details: %{"log_id" => log_id, "last_sequence" => last}}),
    do: place(log_id, last, 0)

  defp elsewhere(%Error{reason: "NO_LONGER_RETAINED", details: %{"log_id" => log_id, "oldest_sequence" => oldest}}),
    do: place(log_id, oldest, -1)

  defp elsewhere(%Error{reason: "OTHER_LOG", details: %{"log_id" => log_id}}), do: %{log_id: log_id, sequence: 0}
  defp elsewhere(_error), do: nil

  defp place(log_id, text, offset) do
    case Integer.parse(text) do
      {number, ""} when number + offset >= 0 -> %{log_id: log_id, sequence: number + offset}
      _no_number -> nil
    end
  end

  defp gap(reason, from, to, state) do
    missed = if reason == "NO_LONGER_RETAINED", do: %{missed: to.sequence - from.sequence}, else: %{}
    :telemetry.execute([:crucible_bridge, :telemetry, :gap], missed, %{reason: reason, from: from, to: to})
    go_on_from(to, state)
  end

  defp go_on_from(position, state) do
    Position.put(state.table, position)
    state.save.(position)
    state
  end

  defp again(error, state) do
    wait = max(error.retry_after_ms || 0, min(@max_backoff_ms, @backoff_ms * 2 ** min(state.failures, 10)))
    metadata = %{reason: error.reason, message: Exception.message(error)}
    :telemetry.execute([:crucible_bridge, :telemetry, :disconnected], %{retry_in: wait}, metadata)
    Process.send_after(self(), :open, wait)
    %{state | reader: nil, open: false, failures: state.failures + 1}
  end
end
