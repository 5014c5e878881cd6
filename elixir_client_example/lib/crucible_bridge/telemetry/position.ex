defmodule CrucibleBridge.Telemetry.Position do
  @moduledoc false
  # The relay's place in the log, in a process of its own, so that a relay that crashes goes on behind the last event that
  # it emitted, and not behind the last batch.

  use GenServer

  @key :position

  @doc "Starts with what `load` gives, or with `from`."
  def start_link(opts), do: GenServer.start_link(__MODULE__, opts)

  @doc "The table that `put/2` writes to."
  @spec table(pid()) :: :ets.table()
  def table(owner), do: GenServer.call(owner, :table)

  @doc "The position; nil where only a direction is known."
  @spec get(pid()) :: CrucibleBridge.Telemetry.position() | nil
  def get(owner) do
    case owner |> table() |> read() do
      %{sequence: _, log_id: _} = position -> position
      _direction -> nil
    end
  end

  @doc "The position, or the direction to begin in: `:now` or `:oldest`."
  @spec read(:ets.table()) :: CrucibleBridge.Telemetry.position() | :now | :oldest
  def read(table), do: :ets.lookup_element(table, @key, 2)

  @doc "Moves on; called once for each event."
  @spec put(:ets.table(), CrucibleBridge.Telemetry.position()) :: true
  def put(table, position), do: :ets.insert(table, {@key, position})

  @impl true
  def init(opts) do
    table = :ets.new(__MODULE__, [:public])
    put(table, kept(opts[:position]) || Keyword.get(opts, :from, :now))
    {:ok, table}
  end

  defp kept(nil), do: nil
  defp kept({load, _save}), do: load.()

  @impl true
  def handle_call(:table, _from, table), do: {:reply, table, table}
end
