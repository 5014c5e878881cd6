defmodule CrucibleBridge.SnakepitAdapter do
  @moduledoc """
  Crucible workers in a pool of Snakepit 0.13.

      config :crucible_bridge, CrucibleBridge.SnakepitAdapter,
        python: "/opt/crucible/.venv/bin/python",
        args: ["--state-dir", "/var/lib/crucible", "--model-root", "/models"]

      config :snakepit,
        pooling_enabled: true,
        adapter_module: CrucibleBridge.SnakepitAdapter,
        pools: [%{name: :default, adapter_module: CrucibleBridge.SnakepitAdapter, pool_size: 2}]

  Every call of the worker is a tool; the pool starts the workers and starts them anew when they are gone. They share one
  journal, so it does not matter which of them takes a call.

      {:ok, %{"grades" => _}} = CrucibleBridge.SnakepitAdapter.execute("grade_math", %{"items" => items})

  Snakepit has at most one tool run in a worker at a time: send batches, and as many workers as there are calls that wait.
  Its timeouts hold for tools; one that waits for an evaluation is given `timeout: :infinity`, and its own `deadline_ms`.

  What the pool's workers are by the way is workers: a `CrucibleBridge.Connection` to `address/0` makes the calls of
  `CrucibleBridge` at one that lives, and `CrucibleBridge.Telemetry` over it emits the events of all of them:

      children = [
        {CrucibleBridge.Connection, address: &CrucibleBridge.SnakepitAdapter.address/0},
        CrucibleBridge.Telemetry
      ]

  Configuration:

    * `:python` - the interpreter of the environment that crucible-bridge is installed in; default: Snakepit's own choice,
      its `python_executable` first
    * `:args` - options of `crucible-worker serve`, for pools without `adapter_args`. A pool has its `adapter_args` and
      `adapter_env` in `pools:`; at the top level of its configuration Snakepit ignores them
    * `:script` - where it is installed elsewhere: the path of `crucible_worker/snakepit/grpc_server.py`; the
      interpreter is asked for it otherwise
  """

  alias CrucibleBridge.Error
  alias Snakepit.Adapters.GRPCPython

  require Logger

  if Code.ensure_loaded?(Snakepit.Adapter), do: @behaviour(Snakepit.Adapter)

  @compile {:no_warn_undefined, [Snakepit, Snakepit.Pool, Snakepit.Pool.Registry, GRPCPython]}

  @locate "from crucible_worker.snakepit import SCRIPT_PATH; print(SCRIPT_PATH, end='')"

  @codes Map.new(Error.codes(), &{&1 |> Atom.to_string() |> String.upcase(), &1})

  @doc "The interpreter that workers are started with; Snakepit asks for it at the start of each."
  @spec executable_path() :: String.t()
  def executable_path do
    for key <- [:adapter_args, :adapter_env], Application.get_env(:snakepit, key) not in [nil, []] do
      Logger.warning(
        "[crucible_bridge] config :snakepit, #{key}: ... has no effect, as Snakepit reads it in a pool alone: " <>
          "pools: [%{name: :default, adapter_module: #{inspect(__MODULE__)}, #{key}: [...]}]"
      )
    end

    Keyword.get_lazy(settings(), :python, &GRPCPython.executable_path/0)
  end

  @doc "The script that workers are started with; found once, by asking the interpreter."
  @spec script_path() :: String.t()
  def script_path, do: Keyword.get_lazy(settings(), :script, fn -> located(executable_path()) end)

  @doc "What workers are started with, in pools that are configured without `adapter_args`."
  @spec script_args() :: [String.t()]
  def script_args, do: Keyword.get(settings(), :args, [])

  defdelegate command_timeout(tool, parameters), to: GRPCPython
  defdelegate uses_grpc?(), to: GRPCPython
  defdelegate get_port(), to: GRPCPython
  defdelegate init_grpc_connection(port), to: GRPCPython
  defdelegate grpc_execute(connection, session_id, tool, parameters, timeout, opts), to: GRPCPython
  defdelegate grpc_execute_stream(connection, session_id, tool, parameters, callback, timeout, opts), to: GRPCPython

  @doc """
  `Snakepit.execute/3`, with errors as all of `CrucibleBridge` has them.

  Parameters are those of the tool. Options are Snakepit's, `:timeout` (milliseconds, or `:infinity`) and
  `:binary_parameters` (a map of names to binaries) among them.
  """
  @spec execute(String.t(), map(), keyword()) :: {:ok, term()} | {:error, Error.t()}
  def execute(tool, parameters, opts \\ []) do
    with {:error, reason} <- Snakepit.execute(tool, parameters, opts), do: {:error, error(reason)}
  end

  @doc """
  `Snakepit.execute_stream/4` for tools that stream, with errors as all of `CrucibleBridge` has them.

  `callback` gets each chunk, a map; when it gives `:halt`, the stream is left.
  """
  @spec execute_stream(String.t(), map(), (map() -> term()), keyword()) :: :ok | {:error, Error.t()}
  def execute_stream(tool, parameters, callback, opts \\ []) do
    with {:error, reason} <- Snakepit.execute_stream(tool, parameters, callback, opts), do: {:error, error(reason)}
  end

  @doc """
  The address of a worker that lives, of the pool with this name, for a `CrucibleBridge.Connection`.
  """
  @spec address(atom()) :: {:ok, String.t()} | {:error, String.t()}
  def address(pool_name \\ :default) do
    workers = Snakepit.Pool.list_workers(Snakepit.Pool, pool_name)

    case is_list(workers) && Enum.find_value(workers, &port/1) do
      port when is_integer(port) -> {:ok, "127.0.0.1:#{port}"}
      _none -> {:error, "no worker of the pool #{pool_name} is ready"}
    end
  catch
    :exit, {reason, _call} -> {:error, "the pool does not answer: #{inspect(reason)}"}
  end

  @doc """
  An error of Snakepit's as a `CrucibleBridge.Error`.

  What a tool refused keeps its code, reason, field and facts. What Snakepit itself gave up, a worker that went or a queue
  that was too long, is of reason `"TRANSPORT"`; a timeout of its own is `"DEADLINE_EXCEEDED"`. Both are retryable, and
  the tool may have run.
  """
  @spec error(term()) :: Error.t()
  def error(%{details: %{reason: %{context: %{"code" => _} = context, message: message}}}), do: told(context, message)
  def error(%{context: %{"code" => _} = context, message: message}), do: told(context, message)
  def error(%{category: :timeout, message: message}), do: %{Error.timeout(0) | message: message}
  def error(%{category: _, message: message, details: details}), do: Error.transport(message <> because(details))
  def error(other), do: Error.transport(inspect(other))

  defp because(%{reason: reason}) when is_binary(reason), do: ": " <> reason
  defp because(%{reason: reason}), do: ": " <> inspect(reason)
  defp because(_details), do: ""

  defp told(context, message) do
    field = Map.get(context, "field", "")
    known = ~w(code reason retryable field retry_after_ms)

    %Error{
      code: Map.get(@codes, context["code"], :unknown),
      reason: Map.get(context, "reason", "UNKNOWN"),
      message: String.replace_prefix(message, field <> " ", ""),
      field: field,
      retryable: context["retryable"] == true,
      retry_after_ms: context["retry_after_ms"],
      details: context |> Map.drop(known) |> Map.filter(fn {_key, value} -> is_binary(value) end)
    }
  end

  # A worker that is on its way out does not answer, or has no port any more.
  defp port(worker_id) do
    with {:ok, pid} <- Snakepit.Pool.Registry.get_worker_pid(worker_id),
         {:ok, port} <- GenServer.call(pid, :get_port, 1_000) do
      port
    else
      _gone -> nil
    end
  catch
    :exit, _reason -> nil
  end

  defp located(python) do
    key = {__MODULE__, python}

    with nil <- :persistent_term.get(key, nil) do
      script = ask(python)
      :persistent_term.put(key, script)
      script
    end
  end

  defp ask(python) do
    case System.cmd(python, ["-c", @locate], stderr_to_stdout: true) do
      {script, 0} ->
        script

      {said, _status} ->
        raise "#{python} cannot find crucible-bridge: #{said |> String.trim() |> String.slice(-200..-1)}"
    end
  end

  defp settings, do: Application.get_env(:crucible_bridge, __MODULE__, [])
end
