defmodule CrucibleBridge.Orchestrator.Stream do
  @moduledoc false
  # One stream, from its start to its end. A guard holds the connection and whoever answers, and lets them go when the
  # caller is gone; a reader alone reads what arrives; each question has a process of its own, which also sends its answer.

  alias CrucibleBridge.{Connection, Error}
  alias CrucibleBridge.Connection.Call
  alias CrucibleBridge.Orchestrator.{Frames, Model}
  alias CrucibleBridge.V1.EvaluationService.Stub

  # Answered questions are forgotten once so many are remembered.
  @remembered 256

  @doc "How the stream ended, and whether it was accepted before."
  @spec run(GenServer.server(), struct(), Model.t()) :: {{:ok, map()} | {:error, Error.t()}, boolean()}
  def run(conn, first, model) do
    caller = self()
    tag = make_ref()
    {guard, monitor} = spawn_monitor(fn -> send(caller, {tag, :ended, guard(conn, first, model, caller, tag)}) end)

    result =
      receive do
        {^tag, :ended, result} -> result
        {:DOWN, ^monitor, :process, ^guard, _reason} -> {:error, Call.broken()}
      end

    Process.demonitor(monitor, [:flush])
    {result, accepted?(tag)}
  end

  defp accepted?(tag) do
    receive do
      {^tag, :accepted} -> true
    after
      0 -> false
    end
  end

  defp guard(conn, first, model, caller, tag) do
    Process.flag(:trap_exit, true)
    owned = Process.monitor(caller)

    with {:ok, metadata} <- Connection.metadata(conn),
         {:ok, channel} <- Connection.open(conn) do
      {:ok, answering} = Task.Supervisor.start_link()

      context = %{
        channel: channel,
        model: model,
        answering: answering,
        accepted: fn -> send(caller, {tag, :accepted}) end
      }

      {reader, reading} = spawn_monitor(fn -> exit({:shutdown, read(context, metadata, first)}) end)
      result = hold(owned, reader, reading, channel)
      Supervisor.stop(answering, :shutdown)
      Connection.close(channel)
      result
    end
  end

  defp hold(owned, reader, reading, channel) do
    receive do
      {:DOWN, ^reading, :process, _pid, {:shutdown, result}} ->
        result

      {:DOWN, ^reading, :process, _pid, _reason} ->
        {:error, Call.broken()}

      {:DOWN, ^owned, :process, _pid, _reason} ->
        # In this order: mint fails loudly where a connection finds no reader.
        Connection.close(channel)
        Process.exit(reader, :kill)
        hold(nil, reader, reading, channel)

      # What the adapter tells of the connection: the reader learns of it by what it reads.
      _other ->
        hold(owned, reader, reading, channel)
    end
  end

  defp read(context, metadata, first) do
    stream = Stub.evaluate_with_orchestrator_model(context.channel, timeout: :infinity, metadata: metadata)
    stream = GRPC.Stub.send_request(stream, first)

    case GRPC.Stub.recv(stream, timeout: :infinity) do
      {:ok, frames} -> Enum.reduce_while(frames, %{}, &frame(&1, &2, Map.put(context, :stream, stream))) |> last()
      {:error, error} -> {:error, Call.failure(error, context.channel)}
    end
  rescue
    error -> {:error, Call.raised(error, context.channel)}
  catch
    :exit, _reason -> {:error, Call.broken()}
  end

  defp last({:ok, evaluation}), do: {:ok, evaluation}
  defp last({:error, error}), do: {:error, error}

  defp last(_open_questions) do
    {:error,
     %Error{
       code: :unavailable,
       reason: "STREAM_ENDED",
       message: "the stream ended before the evaluation",
       retryable: true
     }}
  end

  defp frame({:ok, %{frame: {:accepted, _accepted}}}, open, context) do
    context.accepted.()
    {:cont, open}
  end

  defp frame({:ok, %{frame: {:question, question}}}, open, context) do
    {:ok, pid} =
      Task.Supervisor.start_child(context.answering, fn -> answer(question, context) end, shutdown: :brutal_kill)

    {:cont, open |> pruned() |> Map.put(question.id, pid)}
  end

  defp frame({:ok, %{frame: {:withdrawn, id}}}, open, context) do
    {pid, open} = Map.pop(open, id)
    # It may have answered in this very moment, and then is not found.
    if pid, do: Task.Supervisor.terminate_child(context.answering, pid)
    {:cont, open}
  end

  # The worker's OK follows at once. It is waited for: mint fails, and logs all that it knows, where nobody reads to the end.
  defp frame({:ok, %{frame: {:ended, ended}}}, _open, _context), do: {:cont, Frames.ended(ended)}
  defp frame(_rest, {:ok, evaluation}, _context), do: {:cont, {:ok, evaluation}}
  defp frame({:error, error}, _open, context), do: {:halt, {:error, Call.failure(error, context.channel)}}
  # Headers and trailers, which mint counts among the answers, and frames that this version does not know.
  defp frame(_other, open, _context), do: {:cont, open}

  defp pruned(open) when map_size(open) < @remembered, do: open
  defp pruned(open), do: open |> Enum.filter(fn {_id, pid} -> Process.alive?(pid) end) |> Map.new()

  defp answer(question, context) do
    # Tasks that a model's client links to this process are awaited, and end it no other way.
    Process.flag(:trap_exit, true)

    result = with {:ok, asked} <- Frames.question(question), do: Model.ask(context.model, asked)

    GRPC.Stub.send_request(context.stream, Frames.answer(question, result))
  catch
    # The connection is gone: whoever reads learns of it, and the question comes again on the next stream.
    :exit, _reason -> :ok
  end
end
