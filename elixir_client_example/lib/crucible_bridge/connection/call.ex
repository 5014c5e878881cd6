defmodule CrucibleBridge.Connection.Call do
  @moduledoc false
  # One unary call, in a process of its own: its timeout is exact whatever the adapter does, and what arrives after it
  # reaches nobody's mailbox.

  alias CrucibleBridge.Connection.Link
  alias CrucibleBridge.Error

  # How much longer the worker has than the caller waits, at least: the caller's own timeout comes first.
  @grace_ms 500
  # How long an adapter has to say how a call ended whose connection did.
  @last_words_ms 200

  @doc "Makes a call within `left` milliseconds; `timeout` is what the caller gave it, for the error."
  @spec run(map, module, atom, struct, timeout, timeout) :: {:ok, struct} | {:error, Error.t()}
  def run(link, stub, function, request, left, timeout) do
    # An alias, so that what comes too late comes nowhere. The call's process is never killed: adapters would lose the
    # whole connection by it. It ends when the worker answers, as the call's own deadline makes it.
    tag = :erlang.alias([:reply])
    {pid, running} = spawn_monitor(fn -> send(tag, {tag, attempt(link, stub, function, request, left)}) end)
    connected = Process.monitor(link.channel.adapter_payload.conn_pid)
    result = await(tag, {pid, running}, connected, left)
    :erlang.unalias(tag)
    Process.demonitor(running, [:flush])
    Process.demonitor(connected, [:flush])
    with :none <- result, do: flushed(tag, timeout)
  end

  defp await(tag, {pid, running} = process, connected, timeout) do
    receive do
      {^tag, result} -> result
      {:DOWN, ^running, :process, ^pid, _reason} -> {:error, broken()}
      {:DOWN, ^connected, :process, _pid, _reason} -> last_words(tag, process)
    after
      timeout -> :none
    end
  end

  defp last_words(tag, {pid, running}) do
    receive do
      {^tag, result} -> result
      {:DOWN, ^running, :process, ^pid, _reason} -> {:error, broken()}
    after
      @last_words_ms -> {:error, broken()}
    end
  end

  # It may have been answered in the very moment.
  defp flushed(tag, timeout) do
    receive do
      {^tag, result} -> result
    after
      0 -> {:error, Error.timeout(timeout)}
    end
  end

  defp attempt(link, stub, function, request, timeout) do
    # Linked processes of an adapter end with a broken connection; the call tells of it by its result.
    Process.flag(:trap_exit, true)
    opts = [timeout: server_timeout(timeout), metadata: link.metadata]

    case apply(stub, function, [link.channel, request, opts]) do
      {:ok, reply} -> {:ok, reply}
      {:error, error} -> {:error, failure(error, link.channel)}
    end
  rescue
    error -> {:error, raised(error, link.channel)}
  catch
    :exit, _reason -> {:error, broken()}
  end

  @doc """
  The timeout that is told to the worker: elixir-grpc cuts it to whole seconds, and from a minute on to whole minutes, so
  that it is rounded up first.

  ## Examples

      iex> CrucibleBridge.Connection.Call.server_timeout(119_000)
      120_000
      iex> CrucibleBridge.Connection.Call.server_timeout(:infinity)
      :infinity
  """
  @spec server_timeout(timeout) :: timeout
  def server_timeout(:infinity), do: :infinity
  def server_timeout(timeout) when timeout + @grace_ms < 60_000, do: up(timeout + @grace_ms, 1_000)
  # Below an hour; above, the unit is the hour.
  def server_timeout(timeout) when timeout + @grace_ms < 3_600_000, do: up(timeout + @grace_ms, 60_000)
  def server_timeout(timeout), do: up(timeout + @grace_ms, 3_600_000)

  @doc "The error that an adapter's failure stands for; with its connection gone it is that."
  @spec failure(term, GRPC.Channel.t()) :: Error.t()
  def failure(%{status: 2} = error, channel) do
    if Link.alive?(channel), do: Error.from_rpc(error), else: broken()
  end

  def failure(error, _channel), do: Error.from_rpc(error)

  @doc "What an adapter raised. A message that cannot be encoded is the caller's fault."
  @spec raised(Exception.t(), GRPC.Channel.t()) :: Error.t()
  def raised(%Protobuf.EncodeError{} = error, _channel), do: unencodable(Exception.message(error))

  def raised(error, channel) do
    if Link.alive?(channel),
      do: %Error{code: :internal, reason: "CLIENT_FAILED", message: Exception.message(error)},
      else: broken()
  end

  # "Got error when encoding Message#field: ** (Protobuf.EncodeError) ..." around each other, the value's own innermost.
  defp unencodable(message) do
    field = ~r/ when encoding \S+#(\w+): / |> Regex.scan(message) |> Enum.map_join(".", fn [_all, name] -> name end)
    innermost = message |> String.split(~r/ when encoding \S+: \*\* \([\w.]+\) /) |> List.last()
    Error.invalid(if(field == "", do: "request", else: field), innermost)
  end

  @doc "A connection that broke in the middle."
  @spec broken :: Error.t()
  def broken, do: Error.transport("the connection broke; whether the worker has handled the call is unknown")

  defp up(number, unit), do: div(number + unit - 1, unit) * unit
end
