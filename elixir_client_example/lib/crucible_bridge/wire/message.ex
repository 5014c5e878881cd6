defmodule CrucibleBridge.Wire.Message do
  @moduledoc """
  Messages of keywords or maps, by what the generated modules say of their fields: names, types and bounds stand in the
  protos alone. What a message may not hold is an error that names its field.
  """

  alias CrucibleBridge.{Columns, Error, Specification, V1, Wire}
  alias CrucibleBridge.Specification.Values
  alias CrucibleBridge.Wire.{Bounded, Bounds, Names}

  @integers [:int32, :int64, :uint32, :uint64]

  @doc "The names of a message's fields, by their numbers; one oneof stands for all that it may hold."
  @spec names(module()) :: [atom()]
  def names(module) do
    props = module.__message_props__()
    fields = for {_number, field} <- Enum.sort(props.field_props), field.oneof == nil, do: field.name_atom
    fields ++ Keyword.keys(props.oneof)
  end

  @doc """
  A message of these fields; `nil` stays, a message is taken as it is. Errors call it `place`, and its fields
  `place.name`. A name that is not among `names`, all of the message's if absent, is an error.
  """
  @spec build(term(), module(), String.t(), [atom()] | nil) :: {:ok, struct() | nil} | {:error, Error.t()}
  def build(given, module, place, names \\ nil)
  def build(nil, _module, _place, _names), do: {:ok, nil}
  def build(%{__struct__: module} = message, module, _place, _names), do: {:ok, message}

  def build(given, module, place, names) do
    with {:ok, map} <- Values.map(given, place),
         :ok <- Specification.known(Enum.to_list(map), names || names(module), place),
         do: filled(module, map, [], place <> ".")
  end

  @doc "Likewise of a map that may have other keys as well, which are left alone; a field that is `nil` is left out."
  @spec part(map(), module(), String.t()) :: {:ok, struct()} | {:error, Error.t()}
  def part(map, module, place), do: filled(module, map |> Map.take(names(module)) |> present(), [], place <> ".")

  @doc """
  A message of a call's options, each named after its field, and of fields that are no options. `:timeout` is the call's
  own; an option that is `nil` is as if it were not said.
  """
  @spec options(keyword(), module(), keyword(), [atom()] | nil) :: {:ok, struct()} | {:error, Error.t()}
  def options(opts, module, fields \\ [], names \\ nil) do
    with :ok <- Specification.known(opts, [:timeout | names || names(module) -- Keyword.keys(fields)], "options") do
      filled(module, opts |> Map.new() |> Map.delete(:timeout) |> present(), fields, "")
    end
  end

  defp present(map), do: Map.reject(map, fn {_name, value} -> value == nil end)

  defp filled(module, map, fields, prefix) do
    props = Map.new(module.__message_props__().field_props, fn {_number, field} -> {field.name_atom, field} end)

    bounds = Bounds.of(module)

    with {:ok, pairs} <- Columns.each(map, &field(&1, props, bounds, prefix)),
         do: {:ok, struct!(module, pairs ++ fields)}
  end

  defp field({name, value}, props, bounds, prefix) do
    place = "#{prefix}#{name}"

    # A oneof is no field, and holds messages that are made already.
    with {:ok, value} <- value(value, props[name], place),
         {:ok, value} <- Bounded.check(value, Map.get(bounds, name, %{}), place),
         do: {:ok, {name, value}}
  end

  defp value(value, nil, _place), do: {:ok, value}
  defp value(nil, %{repeated?: false, proto3_optional?: true}, _place), do: {:ok, nil}

  defp value(map, %{map?: true, type: entry}, place) do
    case Enum.find(Map.values(entry.__message_props__().field_props), &(&1.name_atom == :value)) do
      %{type: :double} -> Values.numbers(map, place)
      _texts -> Values.strings(map, place)
    end
  end

  # Of which the list is named.
  defp value(values, %{repeated?: true, type: {:enum, enum}}, place),
    do: values |> List.wrap() |> Columns.each(&Names.long(enum, &1, place))

  defp value(values, %{repeated?: true} = props, place),
    do: values |> List.wrap() |> Columns.numbered(place, &value(&1, %{props | repeated?: false}, &2))

  defp value(name, %{type: {:enum, enum}}, place), do: Names.long(enum, name, place)
  defp value(tensor, %{type: V1.Tensor}, place), do: Wire.pack(tensor, field: place)
  defp value(given, %{embedded?: true, type: module}, place), do: build(given, module, place)

  # A message's double takes no integer.
  defp value(number, %{type: :double}, _place) when is_number(number), do: {:ok, number * 1.0}
  defp value(_other, %{type: :double}, place), do: {:error, Error.invalid(place, "is no number")}
  defp value(number, %{type: type}, _place) when type in @integers and is_integer(number), do: {:ok, number}
  defp value(_other, %{type: type}, place) when type in @integers, do: {:error, Error.invalid(place, "is no integer")}
  defp value(flag, %{type: :bool}, _place) when is_boolean(flag), do: {:ok, flag}
  defp value(_other, %{type: :bool}, place), do: {:error, Error.invalid(place, "is neither true nor false")}
  defp value(text, %{type: :string}, place), do: Values.text(text, place)
  # Any bytes: what a model said need not be UTF-8.
  defp value(bytes, %{type: :bytes}, _place) when is_binary(bytes), do: {:ok, bytes}
  defp value(_other, %{type: :bytes}, place), do: {:error, Error.invalid(place, "is no text")}
end
