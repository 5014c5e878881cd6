defmodule CrucibleBridge.Tensor do
  @moduledoc """
  A dense array as it travels: element type, dimensions, little-endian bytes.

  Lists (nested ones as well), Nx tensors and crucible_train's `TensorData` become one by `pack/2`, and it becomes a list
  by `unpack/1` or an Nx tensor by `to_nx/1`. What arithmetic on the BEAM has no number for is `:nan`, `:infinity` and
  `:negative_infinity` in lists, both ways. The bytes themselves are never touched: a tensor that is handed on keeps every
  bit.
  """

  alias CrucibleBridge.Error
  alias CrucibleBridge.Tensor.Elements

  @dtypes [:u8, :bool, :i32, :i64, :f16, :bf16, :f32, :f64]
  @item_bytes %{u8: 1, bool: 1, i32: 4, i64: 8, f16: 2, bf16: 2, f32: 4, f64: 8}
  @aliases %{float32: :f32, float64: :f64, int32: :i32, int64: :i64, uint8: :u8}
  @alias_names Map.new(@aliases, fn {name, dtype} -> {Atom.to_string(name), dtype} end)

  @type dtype :: :u8 | :bool | :i32 | :i64 | :f16 | :bf16 | :f32 | :f64
  @type t :: %__MODULE__{dtype: dtype, shape: [non_neg_integer], data: binary}
  @type number_or_special :: number | :nan | :infinity | :negative_infinity

  @enforce_keys [:dtype, :shape, :data]
  defstruct [:dtype, :shape, :data]

  # Nx is there or not; nothing here needs it to compile.
  @compile {:no_warn_undefined, Nx}

  @doc """
  Packs whatever holds numbers.

  Options: `:dtype`, for lists `:i64` if absent where all are integers and else `:f64`, for others their own; and `:field`,
  what an error calls the value. A list of numbers beyond its dtype is an error, never cut.

  ## Examples

      iex> {:ok, tensor} = CrucibleBridge.Tensor.pack([[1.5, :nan], [:infinity, -2]], dtype: :f32)
      iex> {tensor.dtype, tensor.shape, byte_size(tensor.data)}
      {:f32, [2, 2], 16}

      iex> {:error, error} = CrucibleBridge.Tensor.pack([1, nil], field: "mask")
      iex> Exception.message(error)
      "mask[1] is nil, which i64 cannot hold"
  """
  @spec pack(term, keyword) :: {:ok, t} | {:error, Error.t()}
  def pack(value, opts \\ []) do
    {:ok, pack!(value, opts[:dtype], Keyword.get(opts, :field, "tensor"))}
  catch
    {:refused, %Error{} = error} -> {:error, error}
  end

  @doc """
  Packs which numbers are above 0, as `:bool`: what a mask of which only the sign is read takes, one byte each.

  ## Examples

      iex> CrucibleBridge.Tensor.flags([1.0, 0, :nan]) |> elem(1) |> CrucibleBridge.Tensor.unpack()
      {:ok, [true, false, false]}
  """
  @spec flags(term, keyword) :: {:ok, t} | {:error, Error.t()}
  def flags(value, opts \\ []) do
    field = Keyword.get(opts, :field, "tensor")

    with {:ok, list, shape} <- numbers(value, field) do
      case Elements.flags(list) do
        {:ok, data} -> {:ok, %__MODULE__{dtype: :bool, shape: shape, data: data}}
        {:error, index, value} -> refuse("#{field}[#{index}]", "is #{inspect(value, limit: 5)}, which is no number")
      end
    end
  catch
    {:refused, %Error{} = error} -> {:error, error}
  end

  @doc """
  The elements, one list whatever the dimensions; see `nested/1`.

  ## Examples

      iex> CrucibleBridge.Tensor.unpack(%CrucibleBridge.Tensor{dtype: :i32, shape: [2], data: <<1::32-little, 2::32-little>>})
      {:ok, [1, 2]}
  """
  @spec unpack(t) :: {:ok, [number_or_special | boolean]} | {:error, Error.t()}
  def unpack(%__MODULE__{} = tensor) do
    with :ok <- check(tensor, "tensor"), do: {:ok, Elements.read(tensor.dtype, tensor.data)}
  end

  @doc "The elements in lists of lists, by the dimensions."
  @spec nested(t) :: {:ok, list} | {:error, Error.t()}
  def nested(%__MODULE__{shape: shape} = tensor) do
    with {:ok, list} <- unpack(tensor) do
      # The outermost dimension is what is left when the inner ones are grouped.
      {:ok, shape |> Enum.drop(1) |> Enum.reverse() |> Enum.reduce(list, &group/2)}
    end
  end

  @doc "An Nx tensor of the same bytes. Needs Nx, and a little-endian machine."
  @spec to_nx(t) :: {:ok, struct} | {:error, Error.t()}
  def to_nx(%__MODULE__{} = tensor) do
    with :ok <- check(tensor, "tensor") do
      shape = if tensor.shape == [], do: {size(tensor)}, else: List.to_tuple(tensor.shape)
      {:ok, tensor.data |> Nx.from_binary(nx_type(tensor.dtype)) |> Nx.reshape(shape)}
    end
  end

  @doc "How many elements a tensor has."
  @spec size(t) :: non_neg_integer
  def size(%__MODULE__{dtype: dtype, data: data}), do: div(byte_size(data), Map.fetch!(@item_bytes, dtype))

  @doc """
  Whether the bytes fit dtype and shape; an empty shape is one dimension whose length follows from them.

  ## Examples

      iex> tensor = %CrucibleBridge.Tensor{dtype: :f32, shape: [2], data: <<0, 0, 0>>}
      iex> {:error, error} = CrucibleBridge.Tensor.check(tensor, "logprobs[0]")
      iex> Exception.message(error)
      "logprobs[0] has 3 bytes, where f32 of shape [2] takes 8"
  """
  @spec check(t, String.t()) :: :ok | {:error, Error.t()}
  def check(%__MODULE__{dtype: dtype, shape: shape, data: data}, field) when dtype in @dtypes and is_binary(data) do
    item = Map.fetch!(@item_bytes, dtype)
    found = byte_size(data)

    cond do
      not Enum.all?(shape, &(is_integer(&1) and &1 >= 0)) ->
        {:error, Error.invalid(field, "has a shape that is no list of dimensions")}

      shape == [] and rem(found, item) == 0 ->
        :ok

      shape != [] and Enum.product(shape) * item == found ->
        :ok

      true ->
        expected = if shape == [], do: "multiples of #{item}", else: Enum.product(shape) * item

        {:error,
         Error.invalid(field, "has #{found} bytes, where #{dtype} of shape #{inspect(shape)} takes #{expected}")}
    end
  end

  def check(_other, field), do: {:error, Error.invalid(field, "has no dtype that a tensor can have")}

  defp pack!(%__MODULE__{} = tensor, dtype, field) do
    with {:error, error} <- check(tensor, field), do: throw({:refused, error})
    if dtype in [nil, tensor.dtype], do: tensor, else: tensor |> listed() |> packed(tensor.shape, dtype, field)
  end

  defp pack!(%{__struct__: Nx.Tensor} = tensor, dtype, field), do: from_nx(tensor, dtype, field)

  # TensorData, as crucible_train, tinkex and Kitchen have it.
  defp pack!(%{data: data, dtype: of} = tensor, dtype, field) when is_list(data) do
    {list, found} = flatten(data, field)
    shape = tensor |> Map.get(:shape) |> shape(found, field)
    packed(list, shape, dtype || known(of, field), field)
  end

  defp pack!(list, dtype, field) when is_list(list) do
    {flat, shape} = flatten(list, field)
    packed(flat, shape, dtype, field)
  end

  defp pack!(_other, _dtype, field), do: refuse(field, "is no list, Nx tensor or TensorData")

  defp packed(list, shape, nil, field) do
    case Elements.write(:i64, list) do
      {:ok, data} -> %__MODULE__{dtype: :i64, shape: shape, data: data}
      {:error, _index, value} when is_integer(value) or is_nil(value) -> packed(list, shape, :i64, field)
      {:error, _index, _value} -> packed(list, shape, :f64, field)
    end
  end

  defp packed(list, shape, dtype, field) when dtype in @dtypes and dtype != :bf16 do
    case Elements.write(dtype, list) do
      {:ok, data} ->
        %__MODULE__{dtype: dtype, shape: shape, data: data}

      {:error, index, value} ->
        refuse("#{field}[#{index}]", "is #{inspect(value, limit: 5)}, which #{dtype} cannot hold")
    end
  end

  defp packed(_list, _shape, dtype, field), do: refuse(field, "cannot be packed as #{inspect(dtype)}")

  defp numbers(%__MODULE__{} = tensor, field) do
    with :ok <- check(tensor, field), do: {:ok, listed(tensor), tensor.shape}
  end

  defp numbers(%{__struct__: Nx.Tensor} = tensor, field), do: tensor |> from_nx(nil, field) |> numbers(field)

  defp numbers(%{data: data, dtype: _} = tensor, field) when is_list(data) do
    {list, found} = flatten(data, field)
    {:ok, list, tensor |> Map.get(:shape) |> shape(found, field)}
  end

  defp numbers(list, field) when is_list(list) do
    {flat, shape} = flatten(list, field)
    {:ok, flat, shape}
  end

  defp numbers(_other, field), do: refuse(field, "is no list, Nx tensor or TensorData")

  defp listed(tensor), do: Elements.read(tensor.dtype, tensor.data)

  # Most lists are flat; only where the first element is a list are the others looked at.
  defp flatten([first | _] = rows, field) when is_list(first) do
    {flat, shapes} = rows |> Enum.map(&row(&1, field)) |> Enum.unzip()

    case Enum.uniq(shapes) do
      [inner] -> {Enum.concat(flat), [length(rows) | inner]}
      _several -> refuse(field, "has rows of different lengths")
    end
  end

  defp flatten(list, _field), do: {list, [length(list)]}

  defp row(row, field) when is_list(row), do: flatten(row, field)
  defp row(_other, field), do: refuse(field, "has rows of different lengths")

  defp shape(nil, found, _field), do: found
  defp shape(shape, found, field) when is_tuple(shape), do: shape |> Tuple.to_list() |> shape(found, field)

  defp shape(shape, found, field) when is_list(shape) do
    if shape == [] or Enum.product(shape) != Enum.product(found),
      do: refuse(field, "has #{Enum.product(found)} values, where its shape is #{inspect(shape)}"),
      else: shape
  end

  defp known(dtype, _field) when dtype in @dtypes, do: dtype
  defp known(dtype, _field) when is_map_key(@aliases, dtype), do: @aliases[dtype]
  defp known(dtype, _field) when is_map_key(@alias_names, dtype), do: @alias_names[dtype]
  defp known(_other, field), do: refuse(field, "has no dtype that a tensor can have")

  defp from_nx(tensor, dtype, field) do
    type = if dtype, do: nx_type(dtype), else: tensor |> Nx.type() |> carried(field)
    tensor = Nx.as_type(tensor, type)
    shape = if Nx.shape(tensor) == {}, do: [1], else: tensor |> Nx.shape() |> Tuple.to_list()
    %__MODULE__{dtype: dtype || from_nx_type(type), shape: shape, data: Nx.to_binary(tensor)}
  end

  # Integers that a tensor has no type for fit into a wider one.
  defp carried({:s, bits}, _field) when bits < 32, do: {:s, 32}
  defp carried({:u, bits}, _field) when bits < 8, do: {:u, 8}
  defp carried({:u, 16}, _field), do: {:s, 32}
  defp carried({:u, 32}, _field), do: {:s, 64}

  defp carried(type, _field) when type in [{:s, 32}, {:s, 64}, {:u, 8}, {:f, 16}, {:bf, 16}, {:f, 32}, {:f, 64}],
    do: type

  defp carried(type, field), do: refuse(field, "has elements of type #{inspect(type)}, which no tensor can hold")

  for {dtype, type} <- [i32: {:s, 32}, i64: {:s, 64}, f16: {:f, 16}, bf16: {:bf, 16}, f32: {:f, 32}, f64: {:f, 64}] do
    defp nx_type(unquote(dtype)), do: unquote(type)
    defp from_nx_type(unquote(type)), do: unquote(dtype)
  end

  # Nx has no booleans of its own.
  defp nx_type(dtype) when dtype in [:u8, :bool], do: {:u, 8}
  defp from_nx_type({:u, 8}), do: :u8

  defp group(dimension, list) when dimension > 0, do: Enum.chunk_every(list, dimension)
  defp group(_empty, _list), do: []

  defp refuse(field, message), do: throw({:refused, Error.invalid(field, message)})
end
