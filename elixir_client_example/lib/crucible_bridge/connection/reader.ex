defmodule CrucibleBridge.Connection.Reader do
  @moduledoc false
  # A stream of answers. Three processes: the owner, which asked for it; a guard, which holds the stream's connection and
  # closes it when one of the others is gone; and the reader, which alone may read what arrives. Read once.

  alias CrucibleBridge.Connection.{Call, Link, Target}
  alias CrucibleBridge.Error

  # How long what has arrived may still be read when the connection's process is gone.
  @last_words_ms 1_000

  @doc "Opens a stream within `left` milliseconds; `timeout` is what the caller gave it, for the error."
  @spec open(Target.t(), map, module, atom, struct, timeout, timeout) :: {:ok, Enumerable.t()} | {:error, Error.t()}
  def open(target, metadata, stub, function, request, left, timeout) do
    owner = self()
    # An alias, so that what comes too late comes nowhere.
    tag = :erlang.alias([:reply])
    call = fn channel -> apply(stub, function, [channel, request, [timeout: :infinity, metadata: metadata]]) end
    {guard, monitor} = spawn_monitor(fn -> guard(owner, tag, target, call) end)

    receive do
      {^tag, {:opened, reader}} ->
        Process.demonitor(monitor, [:flush])
        {:ok, enumerable(guard, reader)}

      {^tag, {:error, error}} ->
        Process.demonitor(monitor, [:flush])
        {:error, error}

      {:DOWN, ^monitor, :process, ^guard, reason} ->
        :erlang.unalias(tag)
        {:error, Error.transport("the stream ended: #{inspect(reason, limit: 5)}")}
    after
      left ->
        :erlang.unalias(tag)
        Process.demonitor(monitor, [:flush])
        send(guard, :close)
        flush(tag)
        {:error, Error.timeout(timeout)}
    end
  end

  defp flush(tag) do
    receive do
      {^tag, _late} -> :ok
    after
      0 -> :ok
    end
  end

  defp enumerable(guard, reader) do
    Stream.resource(fn -> reader end, &next/1, fn _reader -> send(guard, :close) end)
  end

  defp next(:ended), do: {:halt, :ended}

  defp next(reader) do
    monitor = Process.monitor(reader)
    send(reader, {:next, self(), monitor})

    receive do
      {^monitor, answer} ->
        Process.demonitor(monitor, [:flush])
        answered(answer, reader)

      {:DOWN, ^monitor, :process, _pid, _reason} ->
        {[{:error, Error.transport("the stream is closed")}], :ended}
    end
  end

  defp answered({:ok, _message} = item, reader), do: {[item], reader}
  defp answered({:error, _error} = last, _reader), do: {[last], :ended}
  defp answered(:ended, _reader), do: {:halt, :ended}

  defp guard(owner, tag, target, call) do
    Process.flag(:trap_exit, true)
    owned = Process.monitor(owner)
    mark = make_ref()

    case Link.open(target, mark) do
      {:ok, channel} ->
        {reader, reading} = spawn_monitor(fn -> read(tag, channel, call) end)
        hold(%{owned: owned, connected: Process.monitor(channel.adapter_payload.conn_pid)}, reading)
        # First, so that nothing arrives any more for who is gone.
        Link.close(channel)
        Process.exit(reader, :kill)

      {:error, error} ->
        send(tag, {tag, {:error, error}})
    end
  end

  # Until the stream is over, for whatever reason.
  defp hold(%{owned: owned, connected: connected} = watched, reading) do
    receive do
      {:DOWN, ^reading, :process, _pid, _reason} ->
        :ok

      {:DOWN, ^owned, :process, _pid, _reason} ->
        :ok

      :close ->
        :ok

      # The reader learns of it by what it reads, or not at all where the adapter itself has failed.
      {:DOWN, ^connected, :process, _pid, _reason} ->
        Process.send_after(self(), :close, @last_words_ms)
        hold(watched, reading)

      # What the adapter tells its owner.
      _other ->
        hold(watched, reading)
    end
  end

  defp read(tag, channel, call) do
    case opened(channel, call) do
      {:ok, answers} ->
        send(tag, {tag, {:opened, self()}})
        hand_out(answers, channel)

      {:error, error} ->
        send(tag, {tag, {:error, error}})
    end

    # Not a normal end: mint's process of a call that failed is linked to this one, and has no end of its own.
    exit(:shutdown)
  end

  defp opened(channel, call) do
    case call.(channel) do
      {:ok, answers} -> {:ok, answers}
      {:error, error} -> {:error, Call.failure(error, channel)}
    end
  rescue
    error -> {:error, Call.raised(error, channel)}
  catch
    :exit, _reason -> {:error, Call.broken()}
  end

  defp hand_out(answers, channel) do
    answers |> Enum.find_value(:ended, &handed(&1, channel)) |> give()
  rescue
    error -> give({:error, Call.raised(error, channel)})
  catch
    :exit, _reason -> give({:error, Call.broken()})
  end

  # What ends the stream, or nil.
  defp handed({:ok, message}, _channel), do: give({:ok, message})
  defp handed({:error, error}, channel), do: {:error, Call.failure(error, channel)}
  # Headers and trailers, which mint counts among the answers.
  defp handed(_other, _channel), do: nil

  defp give(answer) do
    receive do
      {:next, pid, ref} ->
        send(pid, {ref, answer})
        nil
    end
  end
end
