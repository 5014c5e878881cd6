defmodule CrucibleBridge.Wire.Names do
  @moduledoc """
  Values of the protos' enums by short atoms: `:VERDICT_CORRECT` is `:correct`, in requests and in replies.

  They are made of the generated modules when this one is compiled: nothing that a worker says becomes an atom.
  """

  alias CrucibleBridge.{Error, V1}

  # Kinds of events are not among them: they have names of their own, see CrucibleBridge.Telemetry.Event.
  @enums [
    V1.Dtype,
    V1.EvaluationState,
    V1.EvaluatorKind,
    V1.ExactComparison,
    V1.FileFormat,
    V1.FollowPolicy,
    V1.GateTier,
    V1.GateVerdict,
    V1.Goal,
    V1.OrchestratorCall,
    V1.Record,
    V1.ReplicaState,
    V1.ReportFormat,
    V1.Termination,
    V1.Verdict
  ]

  @names for enum <- @enums,
             prefix = (enum |> Module.split() |> List.last() |> Macro.underscore() |> String.upcase()) <> "_",
             {value, number} <- enum.mapping(),
             short = value |> Atom.to_string() |> String.replace_prefix(prefix, "") |> String.downcase(),
             do: {enum, :"#{short}", value, number}

  @short Map.new(@names, fn {_enum, short, value, _number} -> {value, short} end)
  # Nobody asks for what is unspecified.
  @long Map.new(@enums, fn enum ->
          {enum, for({^enum, short, value, number} <- @names, number != 0, into: %{}, do: {short, value})}
        end)

  @doc "The short name of an enum's value, and whatever else as it is, such as the number of a value that a newer worker has."
  @spec short(term()) :: term()
  def short(value) when is_map_key(@short, value), do: Map.fetch!(@short, value)
  def short(other), do: other

  @doc "An enum's value by its short name; `place` is what errors call it."
  @spec long(module(), term(), String.t()) :: {:ok, atom()} | {:error, Error.t()}
  def long(enum, name, place) do
    case Map.get(@long, enum) || Map.new(enum.mapping(), fn {value, _number} -> {value, value} end) do
      %{^name => value} ->
        {:ok, value}

      values ->
        names = values |> Map.keys() |> Enum.map_join(", ", &inspect/1)
        {:error, Error.invalid(place, "has #{inspect(name)}; there are #{names}")}
    end
  end
end
