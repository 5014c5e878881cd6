defmodule CrucibleBridge.Calls do
  @moduledoc false
  # A call by its request: no two calls of the protos have the same.

  alias CrucibleBridge.{Connection, V1, Wire}
  alias CrucibleBridge.Wire.Message

  @services [
    {V1.EvaluationService.Service, V1.EvaluationService.Stub},
    {V1.ExperimentService.Service, V1.ExperimentService.Stub},
    {V1.GradingService.Service, V1.GradingService.Stub},
    {V1.MetricsService.Service, V1.MetricsService.Stub},
    {V1.ModelService.Service, V1.ModelService.Stub},
    {V1.RenderingService.Service, V1.RenderingService.Stub},
    {V1.TelemetryService.Service, V1.TelemetryService.Stub},
    {V1.WorkerService.Service, V1.WorkerService.Stub}
  ]

  @found for {service, stub} <- @services,
             {call, {request, asks_on}, {_reply, answers_on}, _options} <- service.__rpc_calls__(),
             {function, _arity} <- stub.__info__(:functions),
             Atom.to_string(function) == call |> Atom.to_string() |> Macro.underscore(),
             uniq: true,
             do: {request, stub, function, asks_on or answers_on}

  @calls Map.new(@found, fn {request, stub, function, _streams} -> {request, {stub, function}} end)

  @doc "The requests of the unary calls, each with the function of its stub."
  @spec unary() :: [{module, atom}]
  def unary, do: for({request, _stub, function, false} <- @found, do: {request, function})

  @doc "The unary call of a request, which is made of keywords."
  def of_fields(conn, request, fields, opts) do
    with {:ok, message} <- Message.options(fields, request), do: unary(conn, message, opts)
  end

  @doc "A unary call and its reply as plain Elixir."
  def unary(conn, %request{} = message, opts) do
    {stub, function} = Map.fetch!(@calls, request)

    with {:ok, reply} <- Connection.call(conn, stub, function, message, Keyword.take(opts, [:timeout])),
         do: {:ok, Wire.decode(reply)}
  end

  @doc "Likewise, and of the reply one field."
  def unary(conn, message, opts, field) do
    with {:ok, reply} <- unary(conn, message, opts), do: {:ok, Map.fetch!(reply, field)}
  end

  @doc "A call that is answered by a stream."
  def stream(conn, %request{} = message, opts) do
    {stub, function} = Map.fetch!(@calls, request)
    Connection.stream(conn, stub, function, message, Keyword.take(opts, [:timeout]))
  end

  @doc "The options of a call that takes what time it takes: a limit of its request bounds it."
  def unbounded(opts), do: Keyword.put_new(opts, :timeout, :infinity)
end
