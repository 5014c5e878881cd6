defmodule CrucibleBridge.Connection.Link do
  @moduledoc false
  # One HTTP/2 connection, made by an adapter of elixir-grpc without its connection manager: that one would keep a broken
  # connection, tell nobody, and leave a persistent term behind for each one made.

  alias CrucibleBridge.Connection.Target
  alias CrucibleBridge.Error

  # Long calls are silent; routers on the way forget connections that are. The worker allows a ping in 30 s.
  @keepalive_ms 60_000
  # How long answers that arrived before a connection broke may still be read: gun's adapter drops them with its process.
  @last_words_ms 200

  @doc """
  Connects. The caller owns the connection, and is sent `{:connection_gone, mark}` or `{:elixir_grpc, :connection_down, pid}`
  when it breaks, and `{:EXIT, pid, reason}` by some adapters: it traps exits.
  """
  @spec open(Target.t(), reference) :: {:ok, GRPC.Channel.t()} | {:error, Error.t()}
  def open(%Target{} = target, mark) do
    with {:ok, target} <- Target.located(target), do: dial(target, mark)
  end

  defp dial(target, mark) do
    adapter = adapter(target.adapter)

    channel = %GRPC.Channel{
      host: target.host,
      port: target.port,
      scheme: if(target.tls, do: "https", else: "http"),
      cred: target.tls && %GRPC.Credential{ssl: ssl(target)},
      adapter: adapter
    }

    case connect(adapter, channel, options(target, mark)) do
      # The credential has done its work, and may hold a key: whoever prints a channel does not print it.
      {:ok, channel} -> {:ok, with_process(%{channel | cred: nil}, target.adapter, mark)}
      {:error, reason} -> {:error, Error.transport("cannot connect to #{Target.name(target)}: #{describe(reason)}")}
    end
  end

  @doc """
  Starts a process that connects and then holds the connection, which ends with it or with `parent`.

  `parent` is sent `{:dialled, mark, result}` with what `open/2` gives, and later `{:connection_gone, mark}` when the
  connection breaks. The process is monitored by the caller.
  """
  @spec hold(Target.t(), pid) :: %{mark: reference, monitor: reference}
  def hold(%Target{} = target, parent) do
    mark = make_ref()
    {_pid, monitor} = spawn_monitor(fn -> dial_for(parent, target, mark) end)
    %{mark: mark, monitor: monitor}
  end

  defp dial_for(parent, target, mark) do
    # Adapters link their processes to who connects.
    Process.flag(:trap_exit, true)
    watched = Process.monitor(parent)
    result = open(target, mark)
    send(parent, {:dialled, mark, result})
    with {:ok, channel} <- result, do: holding(channel, parent, watched, mark)
  end

  defp holding(%GRPC.Channel{adapter_payload: %{conn_pid: connection}} = channel, parent, watched, mark) do
    monitor = Process.monitor(connection)
    held(channel, parent, {watched, monitor}, mark)
  end

  # A broken connection is held until its process is gone: the parent closes it a moment later, so that who waits for an
  # answer that has arrived still reads it.
  defp held(channel, parent, {watched, monitor} = monitors, mark) do
    receive do
      {:DOWN, ^watched, :process, _pid, _reason} ->
        close(channel)

      {:DOWN, ^monitor, :process, _pid, _reason} ->
        send(parent, {:connection_gone, mark})

      message ->
        if broken?(message, channel, mark), do: send(parent, {:connection_gone, mark})
        held(channel, parent, monitors, mark)
    end
  end

  # gun tells its owner more than is asked here.
  defp broken?({:connection_gone, mark}, _channel, mark), do: true
  defp broken?({:elixir_grpc, :connection_down, pid}, channel, _mark), do: pid == channel.adapter_payload.conn_pid

  defp broken?({:gun_down, pid, _protocol, _reason, _streams}, channel, _mark),
    do: pid == channel.adapter_payload.conn_pid

  defp broken?({:EXIT, pid, _reason}, channel, _mark), do: pid == channel.adapter_payload.conn_pid
  defp broken?(_other, _channel, _mark), do: false

  @doc "Closes a connection, be it broken or not, and with it all calls on it."
  @spec close(GRPC.Channel.t()) :: :ok
  def close(%GRPC.Channel{adapter_payload: %{gun: gun, conn_pid: pid}}) do
    # The adapter would ask gun to shut down, which waits 15 s for calls to end, and forget the processes of those.
    :gun.close(gun)
    Process.exit(pid, :shutdown)
    :ok
  catch
    # gun itself is not running any more.
    :exit, _reason -> :ok
  end

  def close(%GRPC.Channel{adapter: adapter} = channel) do
    adapter.disconnect(channel)
    :ok
  catch
    # Its process is gone already.
    :exit, _reason -> :ok
  end

  @doc "Closes a connection that broke, a moment later: who waits for an answer that has arrived still reads it."
  @spec close_spent(GRPC.Channel.t()) :: :ok
  def close_spent(channel) do
    spawn(fn ->
      receive do
      after
        @last_words_ms -> close(channel)
      end
    end)

    :ok
  end

  @doc "Closes a connection when a process is gone: not every adapter's connection ends with who made it, nor at once."
  @spec close_after(GRPC.Channel.t(), pid) :: :ok
  def close_after(%GRPC.Channel{adapter_payload: %{conn_pid: connection}} = channel, owner) do
    spawn(fn ->
      for pid <- [connection, owner], do: Process.monitor(pid)

      receive do
        {:DOWN, _monitor, :process, _pid, _reason} -> close(channel)
      end
    end)

    :ok
  end

  @doc "Whether the process of a connection lives."
  @spec alive?(GRPC.Channel.t()) :: boolean
  def alive?(%GRPC.Channel{adapter_payload: %{conn_pid: pid}}) when is_pid(pid), do: Process.alive?(pid)
  def alive?(_closed), do: false

  # It was told of before the connection stood.
  defp with_process(channel, :gun, mark) do
    receive do
      {:connection_process, ^mark, pid} -> %{channel | adapter_payload: Map.put(channel.adapter_payload, :gun, pid)}
    after
      0 -> channel
    end
  end

  defp with_process(channel, :mint, _mark), do: channel

  defp adapter(:gun), do: GRPC.Client.Adapters.Gun
  defp adapter(:mint), do: GRPC.Client.Adapters.Mint

  defp connect(adapter, channel, options) do
    adapter.connect(channel, options)
  catch
    :exit, reason -> {:error, reason}
  end

  # No retries of gun's own: between them calls hang. Nodelay is gun's default, and without it mint takes 44 ms a call.
  defp options(%Target{adapter: :gun} = target, mark) do
    [
      retry: 0,
      connect_timeout: target.connect_timeout,
      # Without it, a server that accepts and says nothing is waited for without end.
      tls_handshake_timeout: target.connect_timeout,
      http2_opts: %{keepalive: @keepalive_ms},
      event_handler: {CrucibleBridge.Connection.GunEvents, {self(), mark}}
    ]
  end

  defp options(%Target{adapter: :mint} = target, _mark) do
    transport = [nodelay: true, keepalive: true, timeout: target.connect_timeout]
    # A Unix socket has no name of its own to send as the authority.
    config = if match?({:local, _path}, target.host), do: [hostname: "localhost"], else: []
    [transport_opts: transport, config_options: config]
  end

  defp ssl(%Target{host: host, tls: tls}) do
    tls = tls.()

    defaults = [
      verify: :verify_peer,
      depth: 10,
      customize_hostname_check: [match_fun: &certified?/2]
    ]

    defaults |> Keyword.merge(authorities(tls)) |> Keyword.merge(name_to_verify(host)) |> Keyword.merge(tls)
  end

  defp authorities(tls) do
    if Keyword.has_key?(tls, :cacertfile) or Keyword.has_key?(tls, :cacerts),
      do: [],
      else: [cacerts: :public_key.cacerts_get()]
  end

  defp name_to_verify(host) when is_binary(host), do: [server_name_indication: String.to_charlist(host)]
  defp name_to_verify({:local, _path}), do: []

  # Erlang asks for an address, said as text, as if it were a name, which no certificate has; wildcards are for :https to
  # know.
  defp certified?({:dns_id, name}, {:iPAddress, octets}) do
    bytes = IO.iodata_to_binary(octets)

    case :inet.parse_strict_address(name) do
      {:ok, {a, b, c, d}} -> bytes == <<a, b, c, d>>
      {:ok, words} -> bytes == for(word <- Tuple.to_list(words), into: <<>>, do: <<word::16>>)
      {:error, _reason} -> false
    end
  end

  defp certified?(wanted, presented), do: :public_key.pkix_verify_hostname_match_fun(:https).(wanted, presented)

  # Only what the system says of a failed connection: options, and so keys, are never part of it.
  defp describe(reason) do
    case innermost(reason) do
      reason when is_atom(reason) -> named(reason)
      text when is_binary(text) -> text
      other -> inspect(other, limit: 10, printable_limit: 200)
    end
  end

  defp named(reason) do
    case :inet.format_error(reason) do
      ~c"unknown POSIX error" ++ _reason -> to_string(reason)
      text -> to_string(text)
    end
  end

  defp innermost({:down, reason}), do: innermost(reason)
  defp innermost({:shutdown, reason}), do: innermost(reason)
  defp innermost({:error, reason}), do: innermost(reason)
  defp innermost({:tls_alert, {alert, _text}}), do: "TLS alert #{alert}"
  defp innermost({reason, _stack}) when is_atom(reason), do: reason
  defp innermost(%{__exception__: true} = error), do: Exception.message(error)
  defp innermost(reason), do: reason
end
