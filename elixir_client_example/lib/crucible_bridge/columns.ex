defmodule CrucibleBridge.Columns do
  @moduledoc """
  Many sequences end to end: one tensor a column, and the length of each sequence. A thousand sequences are written and
  read at the price of one.
  """

  alias CrucibleBridge.{Error, Tensor}

  @type t :: %__MODULE__{lengths: Tensor.t(), values: %{String.t() => Tensor.t()}}
  @typedoc "How a column is packed: as it is, or `:flags`, which numbers are above 0."
  @type kind :: :numbers | :flags

  @enforce_keys [:lengths, :values]
  defstruct [:lengths, :values]

  @doc """
  Packs columns, each a name, how it is packed, its sequences, and a function from a sequence's index to its path.

  ## Examples

      iex> {:ok, columns} =
      ...>   CrucibleBridge.Columns.pack([
      ...>     {"logprobs", :numbers, [[-0.5, -0.25], [-1.0]], &"logprobs[\#{&1}]"},
      ...>     {"weights", :flags, [[1, 0], [1]], &"weights[\#{&1}]"}
      ...>   ])
      iex> {CrucibleBridge.Tensor.unpack(columns.lengths), columns.values["weights"].data}
      {{:ok, [2, 1]}, <<1, 0, 1>>}
  """
  @spec pack([{String.t(), kind, Enumerable.t(), (non_neg_integer -> String.t())}]) :: {:ok, t} | {:error, Error.t()}
  def pack([{_first, _kind, _sequences, _path} | _] = columns) do
    with {:ok, packed} <- each(columns, &column/1),
         {:ok, lengths} <- lengths(packed),
         {:ok, lengths} <- Tensor.pack(lengths, dtype: :i64, field: "lengths") do
      {:ok,
       %__MODULE__{lengths: lengths, values: Map.new(packed, fn {name, _path, tensors} -> {name, join(tensors)} end)}}
    end
  end

  @doc "Cuts a tensor that was made of columns into lists, one a sequence."
  @spec split(Tensor.t(), [non_neg_integer]) :: {:ok, [list]} | {:error, Error.t()}
  def split(%Tensor{} = tensor, lengths) do
    with {:ok, values} <- Tensor.unpack(tensor) do
      {pieces, []} = Enum.map_reduce(lengths, values, &Enum.split(&2, &1))
      {:ok, pieces}
    end
  end

  @doc "Packs each of several values, in order, until one cannot be."
  @spec each(Enumerable.t(), (term -> {:ok, value} | {:error, Error.t()})) :: {:ok, [value]} | {:error, Error.t()}
        when value: term
  def each(values, pack) do
    Enum.reduce_while(values, {:ok, []}, fn value, {:ok, done} ->
      case pack.(value) do
        {:ok, packed} -> {:cont, {:ok, [packed | done]}}
        {:error, error} -> {:halt, {:error, error}}
      end
    end)
    |> case do
      {:ok, done} -> {:ok, Enum.reverse(done)}
      {:error, error} -> {:error, error}
    end
  end

  @doc "Likewise, each with its path, such as `items[3]`; what holds no values is an error."
  @spec numbered(term, String.t(), (term, String.t() -> {:ok, value} | {:error, Error.t()})) ::
          {:ok, [value]} | {:error, Error.t()}
        when value: term
  def numbered(values, name, pack) do
    with :ok <- several(values, name) do
      values |> Enum.with_index() |> each(fn {value, index} -> pack.(value, "#{name}[#{index}]") end)
    end
  end

  defp several(values, name) do
    # Every function has the protocol; those of two arguments are streams.
    listed = is_function(values, 2) or (not is_function(values) and Enumerable.impl_for(values) != nil)
    if listed, do: :ok, else: {:error, Error.invalid(name, "is no list")}
  end

  defp column({name, kind, sequences, path}) do
    with :ok <- several(sequences, name),
         {:ok, tensors} <- sequences |> Enum.with_index() |> each(&sequence(&1, kind, path)) do
      {:ok, {name, path, alike(tensors)}}
    end
  end

  defp sequence({value, index}, :numbers, path), do: Tensor.pack(value, field: path.(index))
  # Of which only the sign is read, whatever its dtype.
  defp sequence({%Tensor{} = flags, index}, :flags, path), do: Tensor.pack(flags, field: path.(index))
  defp sequence({value, index}, :flags, path), do: Tensor.flags(value, field: path.(index))

  # Lists of which one happens to hold integers alone.
  defp alike(tensors) do
    case tensors |> Enum.map(& &1.dtype) |> Enum.uniq() do
      [_one] -> tensors
      [] -> tensors
      _several -> Enum.map(tensors, &widened/1)
    end
  end

  defp widened(tensor) do
    {:ok, tensor} = Tensor.pack(tensor, dtype: :f64)
    tensor
  end

  defp join([]), do: %Tensor{dtype: :f64, shape: [0], data: <<>>}

  defp join([%Tensor{dtype: dtype} | _] = tensors) do
    data = tensors |> Enum.map(& &1.data) |> IO.iodata_to_binary()
    joined = %Tensor{dtype: dtype, shape: [], data: data}
    %{joined | shape: [Tensor.size(joined)]}
  end

  # The first column says how long sequences are; a column that disagrees is named.
  defp lengths([{_name, _path, first} | others]) do
    lengths = Enum.map(first, &Tensor.size/1)

    Enum.find_value(others, {:ok, lengths}, fn {name, path, tensors} ->
      disagreement(name, path, Enum.map(tensors, &Tensor.size/1), lengths)
    end)
  end

  defp disagreement(_name, _path, lengths, lengths), do: nil

  defp disagreement(name, path, found, lengths) do
    case Enum.zip(found, lengths) |> Enum.find_index(fn {one, other} -> one != other end) do
      nil ->
        {:error, Error.invalid(name, "has #{length(found)} sequences, where there are #{length(lengths)}")}

      index ->
        {:error,
         Error.invalid(path.(index), "has #{Enum.at(found, index)} values, where there are #{Enum.at(lengths, index)}")}
    end
  end
end
