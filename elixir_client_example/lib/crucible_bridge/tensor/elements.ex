defmodule CrucibleBridge.Tensor.Elements do
  @moduledoc false
  # Lists <-> little-endian bytes, one loop for each dtype, four elements a turn: that is three times as fast as one. A
  # comprehension over a binary would be no faster, and end silently at the first NaN, which no float pattern matches.

  import Bitwise

  @integers [
    # dtype, bits, least, most
    {:u8, 8, 0, 255},
    {:i32, 32, -(1 <<< 31), (1 <<< 31) - 1},
    {:i64, 64, -(1 <<< 63), (1 <<< 63) - 1}
  ]

  @floats [
    # dtype, bits, what rounds beyond its largest number, and the bits of a quiet NaN, of infinity and of its negative
    {:f16, 16, 65_520.0, 0x7E00, 0x7C00, 0xFC00},
    {:f32, 32, 3.4028235677973366e38, 0x7FC00000, 0x7F800000, 0xFF800000},
    {:f64, 64, nil, 0x7FF8000000000000, 0x7FF0000000000000, 0xFFF0000000000000}
  ]

  @doc "The bytes of a list, or the first element that they cannot hold, with its place."
  @spec write(atom, list) :: {:ok, binary} | {:error, non_neg_integer, term}
  def write(dtype, list) do
    dtype |> written(list) |> result(list)
  end

  @doc "One byte for each number, 1 where it is above 0; or the first element that is none, with its place."
  @spec flags(list) :: {:ok, binary} | {:error, non_neg_integer, term}
  def flags(list), do: list |> flags(<<>>) |> result(list)

  @doc "The elements of bytes whose length fits."
  @spec read(atom, binary) :: list
  def read(:bool, bytes), do: for(<<byte <- bytes>>, do: byte != 0)
  # A bfloat16 is the upper half of a float32.
  def read(:bf16, bytes), do: read(:f32, for(<<half::binary-2 <- bytes>>, into: <<>>, do: <<0, 0, half::binary>>))

  for {dtype, bits, least, most} <- @integers do
    write = :"write_#{dtype}"
    read = :"read_#{dtype}"
    fits = fn value -> quote(do: is_integer(unquote(value)) and unquote(value) in unquote(least)..unquote(most)) end
    [a, b, c, d] = Enum.map([:a, :b, :c, :d], &Macro.var(&1, nil))

    defp written(unquote(dtype), list), do: unquote(write)(list, <<>>)
    def read(unquote(dtype), bytes), do: unquote(read)(bytes)

    defp unquote(write)([a, b, c, d | rest], acc)
         when unquote(fits.(a)) and unquote(fits.(b)) and unquote(fits.(c)) and unquote(fits.(d)) do
      unquote(write)(
        rest,
        <<acc::binary, a::little-size(unquote(bits)), b::little-size(unquote(bits)), c::little-size(unquote(bits)),
          d::little-size(unquote(bits))>>
      )
    end

    defp unquote(write)([a | rest], acc) when unquote(fits.(a)),
      do: unquote(write)(rest, <<acc::binary, a::little-size(unquote(bits))>>)

    defp unquote(write)([true | rest], acc), do: unquote(write)([1 | rest], acc)
    defp unquote(write)([false | rest], acc), do: unquote(write)([0 | rest], acc)
    defp unquote(write)([], acc), do: acc
    defp unquote(write)(left, _acc), do: left

    # Unsigned where nothing is below 0.
    sign = Macro.var(if(least == 0, do: :unsigned, else: :signed), nil)

    defp unquote(read)(<<value::little-unquote(sign)-size(unquote(bits)), rest::binary>>),
      do: [value | unquote(read)(rest)]

    defp unquote(read)(<<>>), do: []
  end

  for {dtype, bits, beyond, nan, infinity, negative_infinity} <- @floats do
    write = :"write_#{dtype}"
    read = :"read_#{dtype}"

    # What is beyond the largest number would be written as infinity; no Elixir float is beyond f64.
    within = fn value ->
      if beyond,
        do: quote(do: unquote(value) < unquote(beyond) and unquote(value) > -unquote(beyond)),
        else: true
    end

    fits = fn value -> quote(do: is_float(unquote(value)) and unquote(within.(value))) end
    [a, b, c, d] = Enum.map([:a, :b, :c, :d], &Macro.var(&1, nil))

    defp written(unquote(dtype), list), do: unquote(write)(list, <<>>)
    def read(unquote(dtype), bytes), do: unquote(read)(bytes)

    defp unquote(write)([a, b, c, d | rest], acc)
         when unquote(fits.(a)) and unquote(fits.(b)) and unquote(fits.(c)) and unquote(fits.(d)) do
      unquote(write)(
        rest,
        <<acc::binary, a::float-little-size(unquote(bits)), b::float-little-size(unquote(bits)),
          c::float-little-size(unquote(bits)), d::float-little-size(unquote(bits))>>
      )
    end

    defp unquote(write)([a | rest], acc) when unquote(fits.(a)),
      do: unquote(write)(rest, <<acc::binary, a::float-little-size(unquote(bits))>>)

    # Integers of up to 2^1023; others have no float.
    defp unquote(write)([a | rest], acc) when is_integer(a) and is_float(a * 1.0) and unquote(within.(a)),
      do: unquote(write)(rest, <<acc::binary, a::float-little-size(unquote(bits))>>)

    for {value, pattern} <- [nan: nan, infinity: infinity, negative_infinity: negative_infinity] do
      defp unquote(write)([unquote(value) | rest], acc),
        do: unquote(write)(rest, <<acc::binary, unquote(pattern)::little-size(unquote(bits))>>)
    end

    defp unquote(write)([true | rest], acc), do: unquote(write)([1 | rest], acc)
    defp unquote(write)([false | rest], acc), do: unquote(write)([0 | rest], acc)
    defp unquote(write)([], acc), do: acc
    defp unquote(write)(left, _acc), do: left

    defp unquote(read)(
           <<a::float-little-size(unquote(bits)), b::float-little-size(unquote(bits)),
             c::float-little-size(unquote(bits)), d::float-little-size(unquote(bits)), rest::binary>>
         ),
         do: [a, b, c, d | unquote(read)(rest)]

    defp unquote(read)(<<value::float-little-size(unquote(bits)), rest::binary>>),
      do: [value | unquote(read)(rest)]

    for {value, pattern} <- [infinity: infinity, negative_infinity: negative_infinity] do
      defp unquote(read)(<<unquote(pattern)::little-size(unquote(bits)), rest::binary>>),
        do: [unquote(value) | unquote(read)(rest)]
    end

    defp unquote(read)(<<_nan::size(unquote(bits)), rest::binary>>), do: [:nan | unquote(read)(rest)]
    defp unquote(read)(<<>>), do: []
  end

  defp written(:bool, list), do: write_bool(list, <<>>)

  defp write_bool([value | rest], acc) when value in [true, 1], do: write_bool(rest, <<acc::binary, 1>>)
  defp write_bool([value | rest], acc) when value in [false, 0], do: write_bool(rest, <<acc::binary, 0>>)
  defp write_bool([], acc), do: acc
  defp write_bool(left, _acc), do: left

  # Numbers first and alone: Erlang has every atom above them, :nan as well.
  defguardp numbers(a, b, c, d) when is_number(a) and is_number(b) and is_number(c) and is_number(d)

  @compile {:inline, flag: 1}

  defp flags([a, b, c, d | rest], acc) when numbers(a, b, c, d),
    do: flags(rest, <<acc::binary, flag(a), flag(b), flag(c), flag(d)>>)

  defp flags([value | rest], acc) when is_number(value), do: flags(rest, <<acc::binary, flag(value)>>)
  defp flags([value | rest], acc) when value in [true, :infinity], do: flags(rest, <<acc::binary, 1>>)
  defp flags([value | rest], acc) when value in [false, :nan, :negative_infinity], do: flags(rest, <<acc::binary, 0>>)
  defp flags([], acc), do: acc
  defp flags(left, _acc), do: left

  defp flag(value) when value > 0, do: 1
  defp flag(_value), do: 0

  # Bytes, or what is left of the list where it could not be written.
  defp result(bytes, _list) when is_binary(bytes), do: {:ok, bytes}
  defp result([value | _] = left, list), do: {:error, length(list) - length(left), value}
end
