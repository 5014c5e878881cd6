defmodule CrucibleBridge.Connection.Pool do
  @moduledoc false
  # The workers of one journal, a connection to each. Calls take turns over those that can be reached; it is the caller's
  # process that tries one after another, so that a worker that does not answer delays no other caller.

  use GenServer

  alias CrucibleBridge.Connection.Target
  alias CrucibleBridge.{Apart, Connection, Error}

  # How long a worker may take to be connected before the next one is tried.
  @quick_ms 200
  @alive_ms 1_000
  # Where a name is looked up: workers come and go.
  @lookup_ms 5_000

  @typedoc "Addresses that stay, or a name whose addresses are looked up again and again."
  @type place :: {:list, [String.t(), ...]} | {:dns, String.t(), :inet.port_number()}

  @doc "The workers that an option `:address` names: a pool, or `:one`."
  @spec place(term) :: {:ok, place} | :one | {:error, Error.t()}
  def place("dns:" <> rest), do: name(rest)

  def place("unix:" <> _path), do: :one

  def place(text) when is_binary(text) do
    case String.split(text, ",") do
      [_one] -> :one
      several -> several |> Enum.map(&String.trim/1) |> list()
    end
  end

  def place([_ | _] = addresses), do: list(addresses)
  def place([]), do: {:error, Error.invalid("address", "is an empty list")}
  def place(_other), do: :one

  defp list(addresses) do
    Enum.reduce_while(addresses, {:ok, {:list, Enum.uniq(addresses)}}, fn address, ok ->
      case Target.address(address) do
        {:ok, _place} -> {:cont, ok}
        {:error, error} -> {:halt, {:error, error}}
      end
    end)
  end

  defp name(rest) do
    with {:ok, {host, port}} when is_binary(host) <- rest |> String.trim_leading("/") |> Target.address() do
      {:ok, {:dns, host, port}}
    else
      _other -> {:error, Error.invalid("address", ~s(is "dns:#{rest}"; write "dns:///name:port"))}
    end
  end

  @doc "Starts the connections: `opts` are those of each, `server` those of the pool's process."
  @spec start_link(place, keyword, keyword) :: GenServer.on_start()
  def start_link(place, opts, server), do: GenServer.start_link(__MODULE__, {place, opts}, server)

  @doc """
  The first result of a question to the workers in their turn, within `timeout`; those that are slow to connect come last.
  """
  @spec first([pid], (pid, timeout -> {:ok, term} | {:error, Error.t()} | :slow), timeout) ::
          {:ok, term} | {:error, Error.t()}
  def first([], _question, _timeout), do: {:error, Error.transport("the pool has no worker: its name has no address")}

  def first(workers, question, timeout) do
    ends = if timeout == :infinity, do: :infinity, else: now() + timeout

    case try_each(workers, question, @quick_ms, ends) do
      {:ok, answer} -> {:ok, answer}
      {:none, [], errors} -> {:error, soonest(errors)}
      {:none, slow, errors} -> last(slow, question, errors, {timeout, ends})
    end
  end

  defp last(slow, question, errors, {timeout, ends}) do
    case try_each(slow, question, :infinity, ends) do
      {:ok, answer} -> {:ok, answer}
      {:none, [], more} -> {:error, soonest(errors ++ more)}
      {:none, _slow, _more} -> {:error, Error.timeout(timeout)}
    end
  end

  defp try_each(workers, question, longest, ends) do
    Enum.reduce_while(workers, {:none, [], []}, fn worker, {:none, slow, errors} ->
      case question.(worker, shortest(longest, ends)) do
        {:ok, answer} -> {:halt, {:ok, answer}}
        :slow -> {:cont, {:none, slow ++ [worker], errors}}
        {:error, error} -> {:cont, {:none, slow, errors ++ [error]}}
      end
    end)
  end

  defp shortest(longest, :infinity), do: longest
  defp shortest(longest, ends), do: min(longest, max(ends - now(), 0))

  defp now, do: System.monotonic_time(:millisecond)

  # What cannot be cured by waiting is said first; else when the next worker may be tried.
  defp soonest(errors), do: Enum.min_by(errors, &{&1.retryable, &1.retry_after_ms || 0})

  # State. `workers` are the addresses that get calls with their connections, `leaving` the connections of others that
  # may still have calls under way; `turn` counts calls.

  @impl true
  def init({place, opts}) do
    Process.flag(:trap_exit, true)
    state = %{place: place, opts: opts, workers: [], leaving: [], turn: 0, lookup: nil}
    {:ok, state, {:continue, :look}}
  end

  @impl true
  def handle_continue(:look, %{place: {:list, addresses}} = state), do: {:noreply, reconciled(state, addresses)}

  def handle_continue(:look, %{place: {:dns, host, port}} = state) do
    {:noreply, state |> found(Apart.run(fn -> addresses(host, port) end)) |> later()}
  end

  @impl true
  def handle_call(:workers, _from, state) do
    pids = Enum.map(state.workers, fn {_address, pid} -> pid end)
    {:reply, {:workers, in_turn(pids, state.turn)}, %{state | turn: state.turn + 1}}
  end

  # The questions of a single connection.
  def handle_call(question, from, state) when question in [:link, :describe, :await],
    do: handle_call(:workers, from, state)

  @impl true
  def handle_info(:lookup, %{place: {:dns, host, port}} = state) do
    {:noreply, %{state | lookup: Task.async(fn -> Apart.run(fn -> addresses(host, port) end) end)}}
  end

  def handle_info({ref, result}, %{lookup: %Task{ref: ref}} = state) do
    Process.demonitor(ref, [:flush])
    {:noreply, %{state | lookup: nil} |> found(result) |> later()}
  end

  def handle_info({:DOWN, ref, :process, _pid, _reason}, %{lookup: %Task{ref: ref}} = state),
    do: {:noreply, later(%{state | lookup: nil})}

  # A connection that failed is made anew.
  def handle_info({:EXIT, pid, _reason}, state) do
    state = %{state | leaving: List.delete(state.leaving, pid)}

    case List.keyfind(state.workers, pid, 1) do
      nil -> {:noreply, state}
      {address, ^pid} -> {:noreply, %{state | workers: List.keyreplace(state.workers, pid, 1, started(state, address))}}
    end
  end

  def handle_info(_other, state), do: {:noreply, state}

  @impl true
  def terminate(_reason, state) do
    for pid <- Enum.map(state.workers, &elem(&1, 1)) ++ state.leaving, do: stop(pid)
  end

  # The others by chance: else the neighbour of a worker that is gone would have the calls of both.
  defp in_turn([], _turn), do: []

  defp in_turn(pids, turn) do
    {first, others} = List.pop_at(pids, rem(turn, length(pids)))
    [first | Enum.shuffle(others)]
  end

  defp later(state) do
    Process.send_after(self(), :lookup, @lookup_ms)
    state
  end

  # A name that cannot be looked up just now keeps its workers.
  defp found(state, {:ok, {:ok, addresses}}), do: reconciled(state, addresses)
  defp found(state, _failed), do: state

  defp reconciled(state, addresses) do
    {kept, gone} = Enum.split_with(state.workers, fn {address, _pid} -> address in addresses end)
    new = addresses -- Enum.map(kept, &elem(&1, 0))
    # What leaves a name may still answer calls: it is stopped once its connection is gone.
    {leaving, spent} = Enum.split_with(state.leaving ++ Enum.map(gone, &elem(&1, 1)), &connected?/1)
    Enum.each(spent, &stop/1)
    %{state | workers: kept ++ Enum.map(new, &started(state, &1)), leaving: leaving}
  end

  defp started(state, address) do
    {:ok, pid} = Connection.start_link([name: nil, address: address] ++ named(state))
    {address, pid}
  end

  # Certificates are for the name, not for the addresses that it has.
  defp named(%{place: {:dns, host, _port}, opts: opts}) do
    case opts[:tls] do
      nil -> opts
      tls when is_function(tls, 0) -> Keyword.put(opts, :tls, fn -> with_name(tls.(), host) end)
      tls -> Keyword.put(opts, :tls, fn -> with_name(tls, host) end)
    end
  end

  defp named(%{opts: opts}), do: opts

  defp with_name(tls, host), do: Keyword.put_new(tls, :server_name_indication, String.to_charlist(host))

  defp connected?(pid) do
    GenServer.call(pid, :connected?, @alive_ms)
  catch
    :exit, _reason -> false
  end

  defp stop(pid) do
    Process.unlink(pid)
    Process.exit(pid, :shutdown)
  end

  defp addresses(host, port) do
    name = String.to_charlist(host)
    found = for family <- [:inet, :inet6], {:ok, numbers} <- [:inet.getaddrs(name, family)], do: {family, numbers}

    case Enum.flat_map(found, fn {family, numbers} -> Enum.map(numbers, &text(family, &1, port)) end) do
      [] -> {:error, :no_address}
      addresses -> {:ok, addresses |> Enum.uniq() |> Enum.sort()}
    end
  end

  defp text(:inet, number, port), do: "#{:inet.ntoa(number)}:#{port}"
  defp text(:inet6, number, port), do: "[#{:inet.ntoa(number)}]:#{port}"
end
