defmodule CrucibleBridge.Wire do
  @moduledoc """
  Between messages and plain Elixir.

  `decode/1` makes plain maps of replies: a message becomes a map of its fields, an enum's value a short atom
  (`:VERDICT_CORRECT` is `:correct`), a oneof stays `{tag, value}`, and a tensor becomes a `CrucibleBridge.Tensor`. An
  enum's value that a newer worker has stays the number that it is.
  """

  alias CrucibleBridge.{Columns, Datum, Error, Tensor, Trajectory, V1}
  alias CrucibleBridge.Wire.Names

  @doc "A reply, or any part of one, as plain Elixir."
  @spec decode(term) :: term
  def decode(%V1.Tensor{} = tensor), do: tensor(tensor)

  def decode(%_message{} = message) do
    for {key, value} <- Map.from_struct(message), not internal?(key), into: %{}, do: {key, decode(value)}
  end

  def decode(%{} = map), do: Map.new(map, fn {key, value} -> {key, decode(value)} end)
  def decode(list) when is_list(list), do: Enum.map(list, &decode/1)
  def decode({tag, value}), do: {tag, decode(value)}
  def decode(value), do: Names.short(value)

  # What protobuf keeps in a message next to its fields: __unknown_fields__, from 0.17 on __protobuf__.
  defp internal?(key), do: match?("__" <> _, Atom.to_string(key))

  @doc "A tensor as a message, or a message's tensor."
  @spec tensor(Tensor.t() | V1.Tensor.t()) :: V1.Tensor.t() | Tensor.t()
  def tensor(%Tensor{dtype: dtype, shape: shape, data: data}) do
    {:ok, dtype} = Names.long(V1.Dtype, dtype, "dtype")
    %V1.Tensor{dtype: dtype, shape: shape, data: data}
  end

  def tensor(%V1.Tensor{dtype: dtype, shape: shape, data: data}) do
    # One that cannot be read is refused where it is: by Tensor.check/2.
    dtype = Names.short(dtype)
    %Tensor{dtype: if(is_atom(dtype), do: dtype, else: :unspecified), shape: shape, data: data}
  end

  @doc "Whatever `CrucibleBridge.Tensor.pack/2` takes, as a message."
  @spec pack(term, keyword) :: {:ok, V1.Tensor.t()} | {:error, Error.t()}
  def pack(value, opts) do
    with {:ok, tensor} <- Tensor.pack(value, opts), do: {:ok, tensor(tensor)}
  end

  @doc "Whatever `CrucibleBridge.Datum.pack/2` takes, as a message; `field` is what errors call it."
  @spec datum(term, String.t()) :: {:ok, V1.Datum.t()} | {:error, Error.t()}
  def datum(%V1.Datum{} = datum, _field), do: {:ok, datum}

  def datum(value, field) do
    with {:ok, datum} <- Datum.pack(value, field) do
      {:ok, %V1.Datum{model_input: chunks(datum.model_input), loss_fn_inputs: tensors(datum.loss_fn_inputs)}}
    end
  end

  @doc "Token ids or chunks as a message."
  @spec model_input(term, String.t()) :: {:ok, V1.ModelInput.t()} | {:error, Error.t()}
  def model_input(%V1.ModelInput{} = input, _field), do: {:ok, input}

  def model_input(value, field) do
    with {:ok, chunks} <- Datum.model_input(value, field), do: {:ok, chunks(chunks)}
  end

  @doc "Columns as a message."
  @spec columns(Columns.t()) :: V1.Columns.t()
  def columns(%Columns{lengths: lengths, values: values}) do
    %V1.Columns{lengths: tensor(lengths), values: tensors(values)}
  end

  @doc "Trajectories as a message."
  @spec trajectories(Trajectory.t()) :: V1.TrajectoryBatch.t()
  def trajectories(%Trajectory{} = batch) do
    fields = for {name, value} <- Map.from_struct(batch), do: {name, column(value)}
    struct!(V1.TrajectoryBatch, fields)
  end

  defp column(%Tensor{} = tensor), do: tensor(tensor)
  defp column(%{} = tensors), do: tensors(tensors)
  defp column(tags) when is_list(tags), do: Enum.map(tags, &%V1.Tags{tags: &1})

  defp tensors(map), do: Map.new(map, fn {name, tensor} -> {name, tensor(tensor)} end)
  defp chunks(chunks), do: %V1.ModelInput{chunks: Enum.map(chunks, &%V1.ModelInputChunk{chunk: chunk(&1)})}

  defp chunk({:tokens, tensor}), do: {:tokens, tensor(tensor)}
  defp chunk({:image, fields}), do: {:image, struct!(V1.ImageChunk, fields)}
  defp chunk({:image_asset, fields}), do: {:image_asset, struct!(V1.ImageAssetChunk, fields)}
end
