defmodule CrucibleBridge.Apart do
  @moduledoc """
  Runs somebody else's code in a process of its own.

  Adapters await tasks that are linked to whoever asks, and such a task that dies would take the caller down with it.
  """

  @doc "What the function returned, or why its process ended without."
  @spec run((-> result)) :: {:ok, result} | {:exit, term()} when result: term()
  def run(fun) do
    {pid, monitor} =
      spawn_monitor(fn ->
        Process.flag(:trap_exit, true)
        exit({:shutdown, {:returned, fun.()}})
      end)

    receive do
      {:DOWN, ^monitor, :process, ^pid, {:shutdown, {:returned, result}}} -> {:ok, result}
      {:DOWN, ^monitor, :process, ^pid, reason} -> {:exit, reason}
    end
  end
end
