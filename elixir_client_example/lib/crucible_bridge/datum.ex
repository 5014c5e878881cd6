defmodule CrucibleBridge.Datum do
  @moduledoc """
  A training or evaluation example as it travels: a model's input in chunks, and arrays by name.

  Packed by shape, not by class: crucible_train's, tinkex's and Kitchen's structs, and plain maps. `model_input` is a list
  of token ids, something with `chunks`, or a list of chunks; a chunk has `tokens`, or `data` and `format` (an image), or
  `location` and `format`. `loss_fn_inputs` holds whatever `CrucibleBridge.Tensor.pack/2` takes.
  """

  alias CrucibleBridge.{Columns, Error, Tensor}

  @type chunk ::
          {:tokens, Tensor.t()}
          | {:image, %{data: binary, format: String.t(), expected_tokens: integer | nil}}
          | {:image_asset, %{location: String.t(), format: String.t(), expected_tokens: integer | nil}}
  @type t :: %__MODULE__{model_input: [chunk], loss_fn_inputs: %{String.t() => Tensor.t()}}

  @enforce_keys [:model_input, :loss_fn_inputs]
  defstruct [:model_input, :loss_fn_inputs]

  @doc """
  Packs a datum; `field` is what errors call it.

  ## Examples

      iex> {:ok, datum} = CrucibleBridge.Datum.pack(%{model_input: [1, 2], loss_fn_inputs: %{"weights" => [0.0, 1.0]}}, "data[0]")
      iex> [tokens: tokens] = datum.model_input
      iex> {tokens.dtype, datum.loss_fn_inputs["weights"].shape}
      {:i64, [2]}
  """
  @spec pack(term, String.t()) :: {:ok, t} | {:error, Error.t()}
  def pack(datum, field \\ "datum")
  def pack(%__MODULE__{} = datum, _field), do: {:ok, datum}

  def pack(%{model_input: input, loss_fn_inputs: inputs}, field) do
    with {:ok, chunks} <- model_input(input, field <> ".model_input"),
         {:ok, arrays} <- Columns.each(inputs, &array(&1, field)) do
      {:ok, %__MODULE__{model_input: chunks, loss_fn_inputs: Map.new(arrays)}}
    end
  end

  def pack(_other, field), do: {:error, Error.invalid(field, "has no model_input and loss_fn_inputs")}

  @doc """
  One array of a datum, not yet packed, by a name that is text in one library and an atom in another.

  ## Examples

      iex> CrucibleBridge.Datum.fetch(%{loss_fn_inputs: %{mask: [1, 1]}}, "mask", "data[0]")
      {:ok, [1, 1]}
      iex> {:error, error} = CrucibleBridge.Datum.fetch(%{loss_fn_inputs: %{}}, "mask", "data[0]")
      iex> Exception.message(error)
      ~s(data[0].loss_fn_inputs["mask"] is missing)
  """
  @spec fetch(term, String.t(), String.t()) :: {:ok, term} | {:error, Error.t()}
  def fetch(%{loss_fn_inputs: inputs}, name, field) do
    # No atom is made of the name: the keys that are there are compared with it.
    case Enum.find(inputs, fn {key, _value} -> to_string(key) == name end) do
      {_key, value} -> {:ok, value}
      nil -> {:error, Error.invalid(path(field, name), "is missing")}
    end
  end

  def fetch(_other, _name, field), do: {:error, Error.invalid(field, "has no loss_fn_inputs")}

  @doc "A column of many data, for `CrucibleBridge.Columns.pack/1`."
  @spec column([term], String.t()) :: {:ok, [term]} | {:error, Error.t()}
  def column(data, name) do
    Columns.numbered(data, "data", &fetch(&1, name, &2))
  end

  @doc "How errors call an array of a datum."
  @spec path(String.t(), String.t()) :: String.t()
  def path(field, name), do: ~s(#{field}.loss_fn_inputs["#{name}"])

  @doc "Packs a model's input: token ids, chunks, or something that has chunks."
  @spec model_input(term, String.t()) :: {:ok, [chunk]} | {:error, Error.t()}
  def model_input(%{chunks: chunks}, field), do: model_input(chunks, field)
  def model_input(%{tokens: _tokens} = chunk, field), do: model_input([chunk], field)

  def model_input([first | _] = chunks, field) when is_map(first) or is_tuple(first) do
    Columns.numbered(chunks, field <> ".chunks", &chunk/2)
  end

  def model_input([], _field), do: {:ok, []}

  def model_input(tokens, field) do
    with {:ok, tensor} <- tokens(tokens, field), do: {:ok, [tokens: tensor]}
  end

  @doc """
  How many tokens an input has, images by their `expected_tokens`.

  ## Examples

      iex> CrucibleBridge.Datum.tokens_in([%{tokens: [1, 2]}, %{data: <<>>, format: "png", expected_tokens: 7}], "ob")
      {:ok, 9}
  """
  @spec tokens_in(term, String.t()) :: {:ok, non_neg_integer} | {:error, Error.t()}
  def tokens_in(input, field) do
    with {:ok, chunks} <- model_input(input, field),
         {:ok, counts} <- Columns.each(chunks, &count(&1, field)) do
      {:ok, Enum.sum(counts)}
    end
  end

  defp count({:tokens, tensor}, _field), do: {:ok, Tensor.size(tensor)}
  defp count({_image, %{expected_tokens: tokens}}, _field) when is_integer(tokens), do: {:ok, tokens}
  defp count(_image, field), do: {:error, Error.invalid(field, "has an image without expected_tokens")}

  defp array({name, value}, field) do
    name = to_string(name)
    with {:ok, tensor} <- Tensor.pack(value, field: path(field, name)), do: {:ok, {name, tensor}}
  end

  defp chunk({kind, _value} = packed, _field) when kind in [:tokens, :image, :image_asset], do: {:ok, packed}

  # As a reply has it.
  defp chunk(%{chunk: {kind, _value} = packed}, _field) when kind in [:tokens, :image, :image_asset], do: {:ok, packed}

  defp chunk(%{tokens: tokens}, field) do
    with {:ok, tensor} <- tokens(tokens, field <> ".tokens"), do: {:ok, {:tokens, tensor}}
  end

  # tinkex keeps images in base64, and says what its chunks are.
  defp chunk(%{data: data, format: format, type: "image"} = image, field) when is_binary(data) do
    case Base.decode64(data) do
      {:ok, bytes} -> {:ok, {:image, picture(image, bytes, format)}}
      :error -> {:error, Error.invalid(field <> ".data", "is not base64")}
    end
  end

  defp chunk(%{data: data, format: format} = image, _field) when is_binary(data),
    do: {:ok, {:image, picture(image, data, format)}}

  defp chunk(%{location: location, format: format} = image, _field) when is_binary(location) do
    {:ok,
     {:image_asset, %{location: location, format: to_string(format), expected_tokens: Map.get(image, :expected_tokens)}}}
  end

  defp chunk(_other, field), do: {:error, Error.invalid(field, "has neither tokens nor an image")}

  defp picture(image, bytes, format) do
    %{data: bytes, format: to_string(format), expected_tokens: Map.get(image, :expected_tokens)}
  end

  defp tokens(tokens, field) do
    with {:ok, tensor} <- Tensor.pack(tokens, field: field) do
      if tensor.dtype in [:i32, :i64],
        do: {:ok, tensor},
        else: {:error, Error.invalid(field, "holds what is no token id")}
    end
  end
end
