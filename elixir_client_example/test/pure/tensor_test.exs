defmodule CrucibleBridge.TensorTest do
  use ExUnit.Case, async: true

  alias CrucibleBridge.{Error, Tensor}

  doctest Tensor

  @specials [:nan, :infinity, :negative_infinity]

  test "lists come back as they went, special values, signed zeros and every length around four included" do
    values = [1.5, -0.0, :nan, 0.0, :infinity, -2.25, :negative_infinity, 0.5, 3.0]

    for dtype <- [:f16, :f32, :f64], length <- 0..9 do
      list = Enum.take(values, length)
      {:ok, tensor} = Tensor.pack(list, dtype: dtype)
      assert {:ok, back} = Tensor.unpack(tensor)
      assert :erlang.term_to_binary(back) == :erlang.term_to_binary(list)
    end
  end

  test "integers come back, at the ends of their range as well, and one beyond is refused with its place" do
    for {dtype, least, most} <- [{:u8, 0, 255}, {:i32, -2_147_483_648, 2_147_483_647}, {:i64, -(2 ** 63), 2 ** 63 - 1}],
        length <- 1..6 do
      list = Enum.take([least, most, 0, 1, least, most], length)
      assert {:ok, tensor} = Tensor.pack(list, dtype: dtype)
      assert Tensor.unpack(tensor) == {:ok, list}

      for beyond <- [least - 1, most + 1] do
        field = "t[#{length}]"
        assert {:error, %Error{field: ^field}} = Tensor.pack(list ++ [beyond], dtype: dtype, field: "t")
      end
    end
  end

  test "a float that would become infinity is refused, and the largest is not" do
    for {dtype, largest, beyond} <- [{:f32, 3.4028234663852886e38, 3.5e38}, {:f16, 65_504.0, 65_520.0}] do
      assert {:ok, tensor} = Tensor.pack([largest, -largest], dtype: dtype)
      assert Tensor.unpack(tensor) == {:ok, [largest, -largest]}

      for list <- [[0.5, beyond], [0.5, -beyond, 1.0, 1.0, 1.0], [1, 1, 1, 1, 1, ceil(beyond)]] do
        assert {:error, %Error{code: :invalid_argument}} = Tensor.pack(list, dtype: dtype)
      end
    end

    assert {:error, %Error{field: "tensor[1]"}} = Tensor.pack([1.0, 2 ** 1024], dtype: :f64)
  end

  test "a NaN's bits are nobody's to change, and every one of them reads as :nan" do
    for bits <- [0x7FC00000, 0x7F800001, 0xFFFFFFFF] do
      tensor = %Tensor{dtype: :f32, shape: [1], data: <<bits::32-little>>}
      assert Tensor.pack(tensor) == {:ok, tensor}
      assert Tensor.unpack(tensor) == {:ok, [:nan]}
    end
  end

  test "reading does not stop at what is no number" do
    numbers = Enum.map(1..1_000, &(&1 / 3))
    list = Enum.intersperse(numbers, Enum.random(@specials))
    {:ok, tensor} = Tensor.pack(list)
    assert Tensor.unpack(tensor) == {:ok, list}
  end

  test "the dtype of a list is that of what it holds" do
    assert {:ok, %Tensor{dtype: :i64}} = Tensor.pack([1, 2])
    assert {:ok, %Tensor{dtype: :f64}} = Tensor.pack([1, 2, 3, 4, 0.5])
    assert {:ok, %Tensor{dtype: :f64}} = Tensor.pack([1, :nan])
    assert {:ok, %Tensor{dtype: :i64, shape: [0], data: ""}} = Tensor.pack([])
  end

  test "dimensions are those of the lists, which must not be ragged" do
    assert {:ok, %Tensor{shape: [2, 2, 1]} = tensor} = Tensor.pack([[[1], [2]], [[3], [4]]])
    assert Tensor.nested(tensor) == {:ok, [[[1], [2]], [[3], [4]]]}

    for ragged <- [[[1], [2, 3]], [[1], 2], [[[1]], [[2], [3]]]] do
      assert {:error, %Error{message: "has rows of different lengths"}} = Tensor.pack(ragged)
    end
  end

  test "crucible_train's and tinkex's tensors keep dtype and shape" do
    assert {:ok, %Tensor{dtype: :f32, shape: [2]}} = Tensor.pack(%{data: [1, 2], dtype: :float32, shape: [2]})
    assert {:ok, %Tensor{dtype: :i64, shape: [1, 2]}} = Tensor.pack(%{data: [1, 2], dtype: "int64", shape: {1, 2}})
    assert {:ok, %Tensor{dtype: :i32, shape: [2]}} = Tensor.pack(%{data: [1, 2], dtype: :int32, shape: nil})
    assert {:error, %Error{message: "has 2 values" <> _}} = Tensor.pack(%{data: [1, 2], dtype: :int64, shape: [3]})
    assert {:error, %Error{message: "has no dtype" <> _}} = Tensor.pack(%{data: [1, 2], dtype: "int8", shape: [2]})
  end

  test "what is above 0 is flagged, NaN is not, and what is no number is refused" do
    assert {:ok, %Tensor{dtype: :bool, data: <<1, 0, 0, 1, 0, 0>>}} =
             Tensor.flags([0.5, 0, -1, :infinity, :negative_infinity, :nan])

    assert {:ok, %Tensor{data: <<1, 0>>}} =
             Tensor.flags(%Tensor{dtype: :i32, shape: [2], data: <<7::32-little, 0::32>>})

    assert {:error, %Error{field: "mask[4]"}} = Tensor.flags([1, 1, 1, 1, nil], field: "mask")
    assert {:error, %Error{}} = Tensor.flags("text")
  end

  test "bytes that do not fit are refused wherever they would be read" do
    for {shape, data} <- [{[2], <<0::24>>}, {[], <<0::24>>}, {[-1], <<>>}, {[2, 3], <<0::32>>}] do
      tensor = %Tensor{dtype: :f32, shape: shape, data: data}
      assert {:error, %Error{code: :invalid_argument}} = Tensor.unpack(tensor)
      assert {:error, %Error{}} = Tensor.pack(tensor)
    end

    assert {:error, %Error{}} = Tensor.unpack(%Tensor{dtype: :unspecified, shape: [0], data: ""})
  end

  test "a bfloat16 reads as the number that its bits stand for" do
    tensor = %Tensor{
      dtype: :bf16,
      shape: [4],
      data: <<0x3FC0::16-little, 0xC000::16-little, 0x7FC0::16-little, 0x7F80::16-little>>
    }

    assert Tensor.unpack(tensor) == {:ok, [1.5, -2.0, :nan, :infinity]}
    assert {:error, %Error{}} = Tensor.pack([1.5], dtype: :bf16)
  end

  test "a tensor that is asked for in another dtype is written anew, and refused where it would lose a value" do
    {:ok, tensor} = Tensor.pack([1, 2, 3])
    assert {:ok, %Tensor{dtype: :f32, shape: [3], data: data}} = Tensor.pack(tensor, dtype: :f32)
    assert data == <<1.0::float-32-little, 2.0::float-32-little, 3.0::float-32-little>>
    assert {:error, %Error{}} = Tensor.pack([256], dtype: :u8)
  end
end
