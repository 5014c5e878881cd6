defmodule CrucibleBridge.Orchestrator.Stream do
  @moduledoc false
  # One stream, from its start to its end. A guard holds the connection and whoever answers, and lets them go when the
  # caller is gone; a reader alone reads what arrives; each question is answered by processes of its own.

  alias CrucibleBridge.{Connection, Error}
  alias CrucibleBridge.Connection.Call
  alias CrucibleBridge.Orchestrator.{Answering, Frames, Held}
  alias CrucibleBridge.V1.EvaluationService.Stub

  @doc "How the stream ended, and whether it was accepted before."
  @spec run(GenServer.server(), struct(), Held.t()) :: {{:ok, map()} | {:error, Error.t()}, boolean()}
  def run(conn, first, held) do
    caller = self()
    tag = make_ref()
    {guard, monitor} = spawn_monitor(fn -> send(caller, {tag, :ended, guard(conn, first, held, caller, tag)}) end)

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

  defp guard(conn, first, held, caller, tag) do
    Process.flag(:trap_exit, true)
    owned = Process.monitor(caller)

    with {:ok, metadata} <- Connection.metadata(conn),
         {:ok, channel} <- Connection.open(conn) do
      {:ok, answering} = Task.Supervisor.start_link()

      context = %{
        channel: channel,
        held: held,
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
      {:ok, frames} -> Enum.reduce_while(frames, answering(context, stream), &frame(&1, &2, context)) |> last()
      {:error, error} -> {:error, Call.failure(error, context.channel)}
    end
  rescue
    error -> {:error, Call.raised(error, context.channel)}
  catch
    :exit, _reason -> {:error, Call.broken()}
  end

  defp answering(context, stream) do
    send = &GRPC.Stub.send_request(stream, &1)
    %Answering{supervisor: context.answering, held: context.held, send: send}
  end

  defp last({:ok, evaluation}), do: {:ok, evaluation}
  defp last({:error, error}), do: {:error, error}

  defp last(%Answering{}) do
    {:error,
     %Error{
       code: :unavailable,
       reason: "STREAM_ENDED",
       message: "the stream ended before the evaluation",
       retryable: true
     }}
  end

  defp frame({:ok, %{frame: {:accepted, _accepted}}}, answering, context) do
    context.accepted.()
    {:cont, answering}
  end

  defp frame({:ok, %{frame: {:question, question}}}, answering, _context),
    do: {:cont, Answering.ask(answering, question)}

  defp frame({:ok, %{frame: {:withdrawn, id}}}, answering, _context), do: {:cont, Answering.withdraw(answering, id)}
  defp frame({:ok, %{frame: {:closed, episode}}}, answering, _context), do: {:cont, Answering.close(answering, episode)}

  # The worker's OK follows at once. It is waited for: mint fails, and logs all that it knows, where nobody reads to the end.
  defp frame({:ok, %{frame: {:ended, ended}}}, _answering, _context), do: {:cont, Frames.ended(ended)}
  defp frame(_rest, {:ok, evaluation}, _context), do: {:cont, {:ok, evaluation}}
  defp frame({:error, error}, _answering, context), do: {:halt, {:error, Call.failure(error, context.channel)}}
  # Headers and trailers, which mint counts among the answers, and frames that this version does not know.
  defp frame(_other, answering, _context), do: {:cont, answering}
end
