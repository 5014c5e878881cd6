defmodule CrucibleBridge.TestWorker do
  @moduledoc """
  A real worker for a test, by default the one of the repository's own environment; BRIDGE_WORKER names another.

      worker = CrucibleBridge.TestWorker.start()
      start_supervised!({CrucibleBridge.Connection, address: worker.address})

  It is killed and its state removed when the test, or the module whose `setup_all` started it, is over.
  """

  import ExUnit.Callbacks, only: [on_exit: 1]

  alias CrucibleBridge.Connection

  @enforce_keys [:address, :args, :folder, :os_pid, :handle, :connect]
  defstruct @enforce_keys

  @ready_ms 30_000

  @doc """
  Starts a worker and waits until it is warm. Options: `:args` for further arguments, `:unix` for a Unix socket in place of
  a port, `:state` for the state directory of another worker, `:connect` for what a connection to it needs (`:token`,
  `:tls`).
  """
  def start(opts \\ []) do
    folder = Path.join(System.tmp_dir!(), "crucible-elixir-#{System.unique_integer([:positive])}-#{System.pid()}")
    File.mkdir_p!(folder)
    {place, address} = place(folder, opts[:unix])
    state = opts[:state] || Path.join(folder, "state")
    args = ["serve", "--state-dir", state, "--log-level", "error"] ++ place ++ (opts[:args] || [])

    worker =
      run(%__MODULE__{
        address: address,
        args: args,
        folder: folder,
        os_pid: nil,
        handle: nil,
        connect: [address: address] ++ (opts[:connect] || [])
      })

    on_exit(fn -> File.rm_rf!(folder) end)
    worker
  end

  @doc "Kills a worker (SIGKILL), and waits until it is gone."
  def kill(worker), do: signal(worker, "KILL")

  @doc "Stops a worker (SIGTERM), and waits until it is gone."
  def stop(worker), do: signal(worker, "TERM")

  @doc "Starts a worker again, at the same place and on the same state."
  def restart(worker), do: run(worker)

  @doc "Sends a signal without waiting for anything, such as STOP and CONT."
  def signal_only(worker, name), do: {_, 0} = System.cmd("kill", ["-#{name}", "#{worker.os_pid}"])

  defp run(worker) do
    port = Port.open({:spawn_executable, executable()}, [:exit_status, :binary, :stderr_to_stdout, args: worker.args])

    {:os_pid, os_pid} = Port.info(port, :os_pid)
    on_exit(fn -> System.cmd("kill", ["-KILL", "#{os_pid}"], stderr_to_stdout: true) end)
    await_warm(worker.connect, port)
    %{worker | os_pid: os_pid, handle: port}
  end

  # A worker answers once it is warm.
  defp await_warm(connect, port) do
    {:ok, conn} = Connection.start_link([name: nil, timeout: @ready_ms] ++ connect)
    task = Task.async(fn -> with(:ok <- Connection.await(conn, @ready_ms), do: CrucibleBridge.info(conn)) end)
    reference = task.ref

    receive do
      {^reference, {:ok, _info}} -> Process.demonitor(reference, [:flush])
      {^reference, {:error, error}} -> raise "the worker does not answer: #{Exception.message(error)}"
      {^port, {:exit_status, status}} -> raise "the worker ended with #{status}: #{output(port)}"
    end

    GenServer.stop(conn)
  end

  defp signal(worker, name) do
    signal_only(worker, name)
    port = worker.handle

    receive do
      {^port, {:exit_status, status}} -> status
    after
      30_000 -> raise "the worker did not end after SIG#{name}"
    end
  end

  defp output(port) do
    receive do
      {^port, {:data, text}} -> text <> output(port)
    after
      0 -> ""
    end
  end

  defp place(folder, true) do
    path = Path.join(folder, "worker.sock")
    {["--unix-socket", path], "unix:" <> path}
  end

  defp place(_folder, _none) do
    {:ok, socket} = :gen_tcp.listen(0, ip: {127, 0, 0, 1})
    {:ok, port} = :inet.port(socket)
    :ok = :gen_tcp.close(socket)
    {["--port", "#{port}"], "127.0.0.1:#{port}"}
  end

  defp executable do
    case System.get_env("BRIDGE_WORKER") do
      nil -> Path.expand("../../../.venv/bin/crucible-worker", __DIR__)
      path -> path
    end
  end
end
