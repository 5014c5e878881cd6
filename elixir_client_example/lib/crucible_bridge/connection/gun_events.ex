if Code.ensure_loaded?(:gun_event) do
  defmodule CrucibleBridge.Connection.GunEvents do
    @moduledoc false
    # Tells a process which process of gun holds its connection, and when that is gone. elixir-grpc 1.x keeps both to itself
    # and never looks whether a connection still stands, so that calls on a broken one would wait for their timeout.

    @behaviour :gun_event

    for {name, 2} <- :gun_event.behaviour_info(:callbacks), name not in [:init, :disconnect, :terminate] do
      @impl true
      def unquote(name)(_event, state), do: state
    end

    # These run in gun's process.

    @impl true
    def init(_event, {_pid, mark} = state), do: tell(state, {:connection_process, mark, self()})

    @impl true
    def disconnect(_event, {_pid, mark} = state), do: tell(state, {:connection_gone, mark})

    @impl true
    def terminate(_event, {_pid, mark} = state), do: tell(state, {:connection_gone, mark})

    defp tell({pid, _mark} = state, message) do
      send(pid, message)
      state
    end
  end
end
