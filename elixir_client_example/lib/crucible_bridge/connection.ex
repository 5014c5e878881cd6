defmodule CrucibleBridge.Connection do
  @moduledoc """
  A supervised connection to a worker, shared by any number of callers.

      children = [{CrucibleBridge.Connection, address: "127.0.0.1:50051"}]

  It connects with its first call and again after it broke, at once the first time and then with growing pauses. While
  there is no connection a call fails promptly with a retryable `CrucibleBridge.Error` of reason `"TRANSPORT"`, whose
  `retry_after_ms` is when the next attempt may be made; `await/2` waits until there is one. A call that was under way
  when the connection broke may have been handled: evaluations have ids so that they can be asked for again.

  Several workers of one journal are a pool. Calls take turns over those that can be reached, a stream is opened at one of
  them, and a worker that is gone is left out until it is back:

      children = [{CrucibleBridge.Connection, address: ["10.0.0.1:50051", "10.0.0.2:50051"]}]
      children = [{CrucibleBridge.Connection, address: "dns:///crucible-bridge:50051"}]

  Options:

    * `:name` - `CrucibleBridge.Connection` if absent, `nil` for none
    * `:address` - `"127.0.0.1:50051"` if absent, `"[::1]:50051"`, or `"unix:/path"`; for a pool a list of these, or text
      with commas, or `"dns:///name:port"` for the workers that a name has, looked up every 5 seconds; or a
      function that gives `{:ok, address}` or `{:error, reason}`, asked anew for each connection
    * `:token`, text or a function that gives it, or `:token_file`, read at each call
    * `:tls` - options of `:ssl` such as `cacertfile:`, `certfile:` and `keyfile:`; `[]` trusts the system's authorities,
      and without it the connection is plain
    * `:adapter` - `:gun`, or `:mint`
    * `:timeout` - milliseconds of a call that names none, 30,000 if absent; `:infinity` waits. Calls that wait for an
      evaluation always do
    * `:connect_timeout` - milliseconds, 5,000 if absent

  Both grpc 0.11 and 1.x serve it, without `GRPC.Client.Supervisor` among your children.
  """

  use GenServer

  alias CrucibleBridge.Connection.{Call, Link, Pool, Reader, Target}
  alias CrucibleBridge.Error

  @default_timeout 30_000
  @first_pause 50
  @longest_pause 2_000

  @type conn :: GenServer.server()

  @doc false
  def child_spec(opts) do
    # Supervisors print their children's arguments: what is secret in them goes along as a function.
    opts = if is_binary(opts[:token]), do: Keyword.update!(opts, :token, &fn -> &1 end), else: opts
    opts = if is_list(opts[:tls]), do: Keyword.update!(opts, :tls, &fn -> &1 end), else: opts
    %{id: Keyword.get(opts, :name, __MODULE__) || __MODULE__, start: {__MODULE__, :start_link, [opts]}}
  end

  @doc "Starts a connection; see the options above."
  @spec start_link(keyword) :: GenServer.on_start()
  def start_link(opts \\ []) do
    {name, opts} = Keyword.pop(opts, :name, __MODULE__)
    server = if(name, do: [name: name], else: [])

    # What is wrong with an option is said without the options: one of them is a secret.
    case Pool.place(opts[:address]) do
      :one ->
        with {:ok, target} <- Target.new(opts),
             {:ok, timeout} <- default_timeout(opts),
             do: GenServer.start_link(__MODULE__, {target, timeout}, server)

      {:ok, place} ->
        opts = Keyword.delete(opts, :address)

        with {:ok, _target} <- Target.new(opts),
             {:ok, _timeout} <- default_timeout(opts),
             do: Pool.start_link(place, opts, server)

      {:error, error} ->
        {:error, error}
    end
  end

  @doc """
  Makes a call: `call(conn, CrucibleBridge.V1.WorkerService.Stub, :get_info, %CrucibleBridge.V1.GetInfoRequest{})`.

  It runs in a process of its own, so that nothing of it is left in the caller's mailbox. `:timeout` is exact, also while
  there is no connection yet, and ends the waiting alone: what the call has started in the worker may go on.
  """
  @spec call(conn, module, atom, struct, keyword) :: {:ok, struct} | {:error, Error.t()}
  def call(conn, stub, function, request, opts \\ []) do
    since = now()

    with :ok <- wait(opts),
         {:ok, timeout} <- timeout(conn, opts),
         {:ok, link} <- link(conn, timeout),
         {:ok, left} <- left(timeout, since) do
      Call.run(link, stub, function, request, left, timeout)
    end
  end

  @doc """
  Opens a stream of answers: an enumerable of `{:ok, message}`, which an `{:error, error}` may end.

  A stream has a connection of its own. When it is halted, when it ends, or when the process that opened it dies, that
  connection is closed, which is what ends the call at the worker. `:timeout` bounds the wait for its first answer, which
  a worker gives at once.
  """
  @spec stream(conn, module, atom, struct, keyword) :: {:ok, Enumerable.t()} | {:error, Error.t()}
  def stream(conn, stub, function, request, opts \\ []) do
    since = now()

    with :ok <- wait(opts),
         {:ok, timeout} <- timeout(conn, opts),
         {:ok, %{target: target}} <- reachable(conn, timeout),
         {:ok, metadata} <- Target.metadata(target),
         {:ok, left} <- left(timeout, since) do
      Reader.open(target, metadata, stub, function, request, left, timeout)
    end
  end

  @doc "The shared channel, for calls of your own; they need `metadata/1` where the worker asks for a token."
  @spec channel(conn) :: {:ok, GRPC.Channel.t()} | {:error, Error.t()}
  def channel(conn) do
    with {:ok, link} <- link(conn, :infinity), do: {:ok, link.channel}
  end

  @doc """
  A channel of the calling process's own, for a call that streams both ways: closing it is what cancels such a call, and it
  is closed when the process dies.

  The caller is told of its end by a message, and receives exits of linked processes, by the adapter; it traps exits.
  """
  @spec open(conn) :: {:ok, GRPC.Channel.t()} | {:error, Error.t()}
  def open(conn) do
    with {:ok, %{target: target}} <- reachable(conn, :infinity),
         {:ok, channel} <- Link.open(target, make_ref()) do
      Link.close_after(channel, self())
      {:ok, channel}
    end
  end

  @doc "Closes what `open/1` gave."
  @spec close(GRPC.Channel.t()) :: :ok
  defdelegate close(channel), to: Link

  @doc "What a call of your own hands on as its `:metadata`; it holds the token."
  @spec metadata(conn) :: {:ok, %{optional(String.t()) => String.t()}} | {:error, Error.t()}
  def metadata(conn) do
    with {:ok, %{target: target}} <- describe(conn), do: Target.metadata(target)
  end

  @doc "Waits until there is a connection, however often that takes to try."
  @spec await(conn, timeout) :: :ok | {:error, Error.t()}
  def await(conn, timeout \\ 5_000) do
    with :ok <- wait(timeout: timeout) do
      case ask(conn, :await, timeout) do
        {:workers, _workers} -> await_any(conn, timeout, now())
        :slow -> {:error, Error.timeout(timeout)}
        answer -> answer
      end
    end
  end

  defp await_any(conn, timeout, since) do
    with {:ok, left} <- left(timeout, since), do: await_any(conn, timeout, since, connected_link(conn, left))
  end

  defp await_any(conn, timeout, since, connected) do
    case connected do
      {:ok, _link} ->
        :ok

      {:error, %Error{retryable: true} = error} ->
        pause = error.retry_after_ms || @first_pause

        if timeout != :infinity and now() + pause > since + timeout do
          {:error, Error.timeout(timeout)}
        else
          Process.sleep(pause)
          await_any(conn, timeout, since)
        end

      {:error, error} ->
        {:error, error}
    end
  end

  defp link(conn, timeout) do
    with {:ok, link} <- connected_link(conn, timeout),
         {:ok, metadata} <- Target.metadata(link.target) do
      {:ok, Map.put(link, :metadata, metadata)}
    end
  end

  defp connected_link(conn, timeout), do: worker(conn, :link, :link, timeout)
  defp describe(conn), do: worker(conn, :describe, :describe, :infinity)

  # What has a connection of its own is opened at a worker that can be reached: of a pool, one that is connected.
  defp reachable(conn, timeout), do: worker(conn, :describe, :link, timeout)

  # What a connection answers; of a pool, what the first of its workers answers.
  defp worker(conn, question, of_pool, timeout) do
    case ask(conn, question, timeout) do
      {:workers, workers} -> Pool.first(workers, &ask(&1, of_pool, &2), timeout)
      :slow -> {:error, Error.timeout(timeout)}
      answer -> answer
    end
  end

  # The connection's own, where a call names none.
  defp timeout(conn, opts) do
    case Keyword.fetch(opts, :timeout) do
      {:ok, timeout} -> {:ok, timeout}
      :error -> with {:ok, %{timeout: timeout}} <- describe(conn), do: {:ok, timeout}
    end
  end

  defp left(:infinity, _since), do: {:ok, :infinity}

  defp left(timeout, since) do
    case since + timeout - now() do
      left when left > 0 -> {:ok, left}
      _none -> {:error, Error.timeout(timeout)}
    end
  end

  # Arguments that moved up by one, most likely: options want the connection said.
  defp ask(conn, _question, _timeout) when not (is_pid(conn) or is_atom(conn) or is_tuple(conn)) do
    {:error, Error.invalid("conn", "is no CrucibleBridge.Connection; it has to be said where options are")}
  end

  defp ask(conn, question, timeout) do
    GenServer.call(conn, question, timeout)
  catch
    :exit, {:timeout, _call} ->
      :slow

    :exit, {reason, _call} when reason in [:noproc, :normal, :shutdown, :killed] ->
      {:error, Error.transport("the connection is not started")}
  end

  defp default_timeout(opts) do
    with :ok <- wait(opts), do: {:ok, Keyword.get(opts, :timeout, @default_timeout)}
  end

  # As long as Erlang can wait.
  defp wait(opts) do
    case Keyword.get(opts, :timeout, :infinity) do
      timeout when timeout == :infinity or (is_integer(timeout) and timeout in 1..0xFFFFFFFF) -> :ok
      _other -> {:error, Error.invalid("timeout", "is neither a positive number of milliseconds nor :infinity")}
    end
  end

  # State. A link's process dials, and then holds the channel, so that this process answers meanwhile: `link` is that
  # process, as `Link.hold/2` gives it, and `asking` are the calls that wait for it. `failures` counts attempts since the
  # last connection; before `not_before` none is made for a call.

  @impl true
  def init({target, timeout}) do
    Process.flag(:trap_exit, true)
    # Kitchen's environments ask function_exported?/3 of it, which loads nothing.
    Code.ensure_loaded(CrucibleBridge.MathVerifier)

    {:ok,
     %{
       target: target,
       timeout: timeout,
       channel: nil,
       link: nil,
       asking: [],
       failures: 0,
       not_before: now(),
       last_error: nil,
       waiting: [],
       timer: nil
     }}
  end

  @impl true
  def handle_call(:describe, _from, state), do: {:reply, {:ok, Map.take(state, [:target, :timeout])}, state}

  def handle_call(:connected?, _from, state) do
    {:reply, match?(%GRPC.Channel{}, state.channel) and Link.alive?(state.channel), state}
  end

  def handle_call(:link, from, state) do
    case connected(state) do
      {:ok, state} -> {:reply, linked(state), state}
      {:dialling, state} -> {:noreply, %{state | asking: [from | state.asking]}}
      {{:error, error}, state} -> {:reply, {:error, error}, state}
    end
  end

  def handle_call(:await, from, state) do
    case connected(state) do
      {:ok, state} -> {:reply, :ok, state}
      {:dialling, state} -> {:noreply, %{state | waiting: [from | state.waiting]}}
      {{:error, _error}, state} -> {:noreply, schedule(%{state | waiting: [from | state.waiting]})}
    end
  end

  @impl true
  def handle_info({:dialled, mark, result}, %{link: %{mark: mark}} = state), do: {:noreply, dialled(state, result)}
  def handle_info({:connection_gone, mark}, %{link: %{mark: mark}} = state), do: {:noreply, dropped(state)}

  def handle_info({:DOWN, monitor, :process, _pid, _reason}, %{link: %{monitor: monitor}} = state) do
    if state.channel, do: {:noreply, dropped(state)}, else: {:noreply, dialled(state, {:error, Call.broken()})}
  end

  def handle_info(:retry, state) do
    case connected(%{state | timer: nil}) do
      {{:error, _error}, state} -> {:noreply, schedule(state)}
      {_connected, state} -> {:noreply, state}
    end
  end

  # Of a connection that was given up.
  def handle_info(_other, state), do: {:noreply, state}

  @impl true
  def terminate(_reason, state) do
    if state.channel, do: Link.close(state.channel)
  end

  # Crash reports and :sys.get_status show the state; the token and what TLS needs are functions in it, and print as such.

  defp connected(%{channel: %GRPC.Channel{} = channel} = state) do
    if Link.alive?(channel), do: {:ok, state}, else: state |> dropped() |> connected()
  end

  defp connected(%{link: nil} = state) do
    pause = state.not_before - now()

    if pause > 0,
      do: {{:error, %{state.last_error | retry_after_ms: pause}}, state},
      else: {:dialling, %{state | link: Link.hold(state.target, self())}}
  end

  defp connected(state), do: {:dialling, state}

  defp dialled(state, {:ok, channel}) do
    state = %{state | channel: channel, failures: 0}
    Enum.each(state.asking, &GenServer.reply(&1, linked(state)))
    Enum.each(state.waiting, &GenServer.reply(&1, :ok))
    %{state | asking: [], waiting: []}
  end

  defp dialled(state, {:error, error}) do
    pause = pause(state.failures)
    error = %{error | retry_after_ms: pause}
    Enum.each(state.asking, &GenServer.reply(&1, {:error, error}))
    failures = state.failures + 1
    state = %{state | link: nil, asking: [], failures: failures, not_before: now() + pause, last_error: error}
    if state.waiting == [], do: state, else: schedule(state)
  end

  defp linked(state), do: {:ok, Map.take(state, [:target, :timeout, :channel])}

  # A third less or more, so that many callers of one worker do not come back together.
  defp pause(failures) do
    longest = min(@first_pause * Integer.pow(2, min(failures, 10)), @longest_pause)
    div(longest * (67 + :rand.uniform(66)), 100)
  end

  defp schedule(%{timer: nil} = state) do
    %{state | timer: Process.send_after(self(), :retry, max(state.not_before - now(), 0))}
  end

  defp schedule(state), do: state

  defp dropped(state) do
    if state.channel, do: Link.close_spent(state.channel)
    %{state | channel: nil, link: nil}
  end

  defp now, do: System.monotonic_time(:millisecond)
end
