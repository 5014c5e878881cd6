defmodule CrucibleBridge.Telemetry do
  @moduledoc """
  Emits the worker's events here, as events of `:telemetry`, each exactly once and in order.

      children = [
        {CrucibleBridge.Connection, address: "127.0.0.1:50051"},
        CrucibleBridge.Telemetry
      ]

  Names, measurements and metadata are those of `CrucibleBridge.Telemetry.Event`. The relay reads the log of the worker's
  journal from a position on: what was written while the connection was broken, or while the worker restarted, is read
  afterwards. The position outlives a crash of the relay; where it shall outlive this node, give `:position` two functions
  that keep it. What is killed between an event and the noting of its place, the relay within the event or the node within
  the batch, emits that again when it comes back; nothing else does. What is not in the log cannot be emitted: the events
  of metrics and grading are written a moment after the answer, and SIGKILL of the worker in that moment loses them.

  What happens to the relay itself is told by events, too:

    * `[:crucible_bridge, :telemetry, :connected]` - a stream is open. Metadata: `:log_id`, `:sequence`.
    * `[:crucible_bridge, :telemetry, :disconnected]` - a stream ended; another one is tried after `:retry_in`
      (a measurement, milliseconds). Metadata: `:reason`, `:message`, both strings.
    * `[:crucible_bridge, :telemetry, :gap]` - events are lost to the relay, and it goes on behind them. Measurements:
      `:missed`, where the number is known. Metadata: `:reason` (`"NO_LONGER_RETAINED"`: the worker's retention was
      faster; `"OTHER_LOG"`: there is a new journal, which is read from its beginning; `"BEYOND_LOG"`: the journal ends
      before the position, as after the restore of a backup), `:from` and `:to`, both `%{log_id, sequence}`.
    * `[:crucible_bridge, :telemetry, :unknown]` - an event of a kind that this version does not know: the number is the
      metadata's `:kind`, and the rest is as in every event.
  """

  use Supervisor

  alias CrucibleBridge.Error
  alias CrucibleBridge.Telemetry.{DefaultLogger, Event, Position, Relay}

  @relay_events [
    [:crucible_bridge, :telemetry, :connected],
    [:crucible_bridge, :telemetry, :disconnected],
    [:crucible_bridge, :telemetry, :gap],
    [:crucible_bridge, :telemetry, :unknown]
  ]

  @typedoc "A place in a worker's log: what comes next is what lies behind `sequence`."
  @type position :: %{log_id: String.t(), sequence: non_neg_integer()}

  @type option ::
          {:name, Supervisor.name()}
          | {:connection, GenServer.server()}
          | {:from, :now | :oldest | position()}
          | {:position, {load :: (-> position() | nil), save :: (position() -> term())}}
          | {:kinds, [atom()]}
          | {:run_id, String.t()}
          | {:pubsub, atom()}

  @doc """
  Starts the relay.

  Options:

    * `:name` - default `CrucibleBridge.Telemetry`
    * `:connection` - the `CrucibleBridge.Connection`; default that module's own name
    * `:from` - where to begin where no position was kept: `:now` (the default), `:oldest` (what the worker has kept), or a
      position
    * `:position` - `{load, save}`: `load.()` gives the position to go on from, or nil; `save.(position)` is called
      where it begins, whenever events were emitted, and at most once a second while only others' go by
    * `:kinds` - only these, such as `[:EVENT_KIND_EVALUATION_COMPLETE]`; the default is all
    * `:run_id` - only this run's
    * `:pubsub` - a `Phoenix.PubSub`: every event is broadcast, too, as `{:crucible_bridge, name, measurements, metadata}`
      to the topics `"crucible_bridge"` and, where it is of an evaluation, `"crucible_bridge:" <> evaluation_id`
  """
  @spec start_link([option()]) :: Supervisor.on_start()
  def start_link(opts \\ []) do
    {name, opts} = Keyword.pop(opts, :name, __MODULE__)
    with :ok <- checked(opts), do: Supervisor.start_link(__MODULE__, opts, name: name)
  end

  # Later, a relay would try for ever what cannot be.
  defp checked(opts) do
    Enum.find_value(opts, :ok, fn {name, value} ->
      if message = wrong(name, value), do: {:error, Error.invalid(Atom.to_string(name), message)}
    end)
  end

  defp wrong(:connection, _server), do: nil
  defp wrong(:from, direction) when direction in [:now, :oldest], do: nil
  defp wrong(:from, %{log_id: log_id, sequence: n}) when is_binary(log_id) and is_integer(n) and n >= 0, do: nil
  defp wrong(:from, _other), do: "is neither :now nor :oldest nor a position"
  defp wrong(:position, nil), do: nil
  defp wrong(:position, {load, save}) when is_function(load, 0) and is_function(save, 1), do: nil
  defp wrong(:position, _other), do: "is no pair of functions, {load, save}"
  defp wrong(:run_id, run_id) when is_binary(run_id) or is_nil(run_id), do: nil
  defp wrong(:run_id, _other), do: "is no text"
  defp wrong(:pubsub, nil), do: nil
  defp wrong(:pubsub, _name), do: if(not Code.ensure_loaded?(Phoenix.PubSub), do: "needs the dependency phoenix_pubsub")

  defp wrong(:kinds, kinds) when is_list(kinds) do
    case kinds -- Event.kinds() do
      [] -> nil
      [kind | _] -> "has #{inspect(kind)}; there are #{Enum.join(Event.kinds(), ", ")}"
    end
  end

  defp wrong(:kinds, _other), do: "is no list"
  defp wrong(_name, _value), do: "is no option; there are connection, from, position, kinds, run_id, pubsub and name"

  @doc "The relay as a supervisor's child."
  def child_spec(opts) do
    %{id: Keyword.get(opts, :name, __MODULE__), start: {__MODULE__, :start_link, [opts]}, type: :supervisor}
  end

  @impl true
  def init(opts) do
    children = [{Position, Keyword.take(opts, [:from, :position])}, {Relay, {self(), opts}}]
    Supervisor.init(children, strategy: :rest_for_one)
  end

  @doc """
  Waits until the relay has its place in the log and a stream is open: what happens from now on will be emitted.

  `{:error, :timeout}` where that takes longer than `timeout` milliseconds.
  """
  @spec await(Supervisor.supervisor(), timeout()) :: :ok | {:error, :timeout}
  def await(telemetry \\ __MODULE__, timeout \\ 5_000), do: telemetry |> child(Relay) |> Relay.await(timeout)

  @doc "The place up to which events were emitted; nil before the first connection."
  @spec position(Supervisor.supervisor()) :: position() | nil
  def position(telemetry \\ __MODULE__), do: telemetry |> child(Position) |> Position.get()

  @doc "The names of all events: the worker's and the relay's own."
  @spec events() :: [[atom(), ...]]
  def events, do: Event.names() ++ @relay_events

  @doc """
  Logs evaluations as they begin and end, evaluators, and the relay's troubles.

  `level` is that of what goes well; what fails is logged as an error, troubles of the relay as warnings. Samples, progress
  and calls for metrics and grading are not logged.
  """
  @spec attach_default_logger(Logger.level()) :: :ok | {:error, :already_exists}
  def attach_default_logger(level \\ :info) do
    :telemetry.attach_many(DefaultLogger, DefaultLogger.events(), &DefaultLogger.handle/4, %{level: level})
  end

  @doc "Undoes `attach_default_logger/1`."
  @spec detach_default_logger() :: :ok | {:error, :not_found}
  def detach_default_logger, do: :telemetry.detach(DefaultLogger)

  @doc false
  def child(telemetry, module) do
    {^module, pid, _type, _modules} = telemetry |> Supervisor.which_children() |> List.keyfind!(module, 0)
    pid
  end
end
