defmodule CrucibleBridge.Specification.Values do
  @moduledoc "Values of keywords and maps as messages hold them; what none can hold is an error that names its field."

  alias CrucibleBridge.{Columns, Error, Options}
  alias Google.Protobuf.{ListValue, Struct, Value}

  @doc "A map of texts; numbers, atoms and booleans become texts."
  @spec strings(term(), String.t()) :: {:ok, %{String.t() => String.t()}} | {:error, Error.t()}
  def strings(nil, _field), do: {:ok, %{}}

  def strings(given, field) do
    with {:ok, map} <- map(given, field),
         {:ok, pairs} <- Columns.each(map, &string_pair(&1, field)),
         do: {:ok, Map.new(pairs)}
  end

  @doc "A map of numbers by texts; the names may be atoms."
  @spec numbers(term(), String.t()) :: {:ok, %{String.t() => float()}} | {:error, Error.t()}
  def numbers(given, field) do
    with {:ok, map} <- map(given, field),
         {:ok, pairs} <- Columns.each(map, &number_pair(&1, field)),
         do: {:ok, Map.new(pairs)}
  end

  defp number_pair({key, value}, field) do
    with {:ok, name} <- text(key, field) do
      # A message's double takes no integer.
      if is_number(value),
        do: {:ok, {name, value * 1.0}},
        else: {:error, Error.invalid("#{field}[#{inspect(key)}]", "is no number")}
    end
  end

  @doc "A text; numbers, atoms and booleans become texts."
  @spec text(term(), String.t()) :: {:ok, String.t()} | {:error, Error.t()}
  def text(value, _field) when is_binary(value) or is_number(value) or (is_atom(value) and value != nil),
    do: {:ok, to_string(value)}

  def text(_other, field), do: {:error, Error.invalid(field, "is no text")}

  @doc "Keywords or a map, as a map."
  @spec map(term(), String.t()) :: {:ok, map()} | {:error, Error.t()}
  def map(%{} = map, _field) when not is_struct(map), do: {:ok, map}

  def map(given, field) do
    if Keyword.keyword?(given),
      do: with(:ok <- Options.once(given, field <> "."), do: {:ok, Map.new(given)}),
      else: {:error, Error.invalid(field, "is neither keywords nor a map")}
  end

  @doc "Options of an evaluator; `nil` where there are none."
  @spec options(map(), String.t()) :: {:ok, Struct.t() | nil} | {:error, Error.t()}
  def options(options, _field) when options == %{}, do: {:ok, nil}
  def options(options, field), do: struct_of(options, field)

  @doc "The values of such options, keys as texts; a number is a float, as a message has no other."
  @spec plain(Struct.t() | nil) :: %{String.t() => term()}
  def plain(nil), do: %{}
  def plain(%Struct{fields: fields}), do: Map.new(fields, fn {key, value} -> {key, plain_value(value)} end)

  defp plain_value(%Value{kind: {:struct_value, struct}}), do: plain(struct)
  defp plain_value(%Value{kind: {:list_value, %ListValue{values: values}}}), do: Enum.map(values, &plain_value/1)
  defp plain_value(%Value{kind: {:null_value, _null}}), do: nil
  defp plain_value(%Value{kind: {_kind, value}}), do: value
  defp plain_value(%Value{kind: nil}), do: nil

  defp struct_of(map, field) do
    with {:ok, pairs} <- Columns.each(map, &value_pair(&1, field)), do: {:ok, %Struct{fields: Map.new(pairs)}}
  end

  defp value_pair({key, _value}, field) when not is_binary(key) and not is_atom(key),
    do: {:error, Error.invalid(field, "has a key that is no text")}

  defp value_pair({key, value}, field) do
    with {:ok, value} <- value(value, "#{field}[\"#{key}\"]"), do: {:ok, {to_string(key), value}}
  end

  defp value(nil, _field), do: {:ok, %Value{kind: {:null_value, :NULL_VALUE}}}
  defp value(flag, _field) when is_boolean(flag), do: {:ok, %Value{kind: {:bool_value, flag}}}
  defp value(number, _field) when is_number(number), do: {:ok, %Value{kind: {:number_value, number * 1.0}}}
  defp value(text, _field) when is_binary(text), do: {:ok, %Value{kind: {:string_value, text}}}
  defp value(atom, _field) when is_atom(atom), do: {:ok, %Value{kind: {:string_value, Atom.to_string(atom)}}}

  defp value([{key, _} | _] = keywords, field) when is_atom(key) do
    with {:ok, map} <- map(keywords, field), do: value(map, field)
  end

  defp value(list, field) when is_list(list) do
    with {:ok, values} <- Columns.each(list, &value(&1, field)),
         do: {:ok, %Value{kind: {:list_value, %ListValue{values: values}}}}
  end

  defp value(%{} = map, field) when not is_struct(map) do
    with {:ok, struct} <- struct_of(map, field), do: {:ok, %Value{kind: {:struct_value, struct}}}
  end

  defp value(_other, field), do: {:error, Error.invalid(field, "is nothing that JSON has")}

  defp string_pair({key, _value}, field) when not is_binary(key) and not is_atom(key),
    do: {:error, Error.invalid(field, "has a key that is no text")}

  defp string_pair({key, value}, field) do
    with {:ok, value} <- text(value, "#{field}[\"#{key}\"]"), do: {:ok, {to_string(key), value}}
  end
end
