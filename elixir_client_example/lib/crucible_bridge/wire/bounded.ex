defmodule CrucibleBridge.Wire.Bounded do
  @moduledoc """
  Whether what a caller wrote is within the bounds of its field, so that it is refused under the name that he wrote, and
  before a call is made. Messages that he made himself are for the worker to check, which may be newer.
  """

  alias CrucibleBridge.{Columns, Error}
  alias CrucibleBridge.Wire.Bounds

  @doc "The value itself, or an error that calls it `place`."
  @spec check(term(), Bounds.bounds(), String.t()) :: {:ok, term()} | {:error, Error.t()}
  def check(value, bounds, _place) when bounds == %{} or value == nil, do: {:ok, value}

  def check(values, bounds, place) when is_list(values) do
    with {:ok, _values} <- judged(values, count(length(values), bounds), place),
         each = Map.delete(bounds, :required),
         do: Columns.numbered(values, place, &judged(&1, wrong(&1, each), &2))
  end

  def check(%{} = map, bounds, place) when not is_struct(map) do
    with {:ok, _map} <- judged(map, count(map_size(map), bounds), place),
         {:ok, _values} <- Columns.each(map, &entry(&1, bounds, place)),
         do: {:ok, map}
  end

  def check(value, bounds, place), do: judged(value, wrong(value, bounds), place)

  defp entry({key, value}, bounds, place),
    do: judged(value, wrong(key, bounds) || wrong(value, bounds), "#{place}[#{inspect(key)}]")

  defp judged(value, nil, _place), do: {:ok, value}
  defp judged(_value, message, place), do: {:error, Error.invalid(place, message)}

  defp count(0, %{required: true}), do: "is empty, at least one is needed"
  defp count(number, %{max_count: most}) when number > most, do: "has #{number} entries, at most #{most} are accepted"
  defp count(_number, _bounds), do: nil

  defp wrong(number, bounds) when is_number(number) do
    # A bound that is not there is the number itself; it would be larger than every number else.
    within = number >= Map.get(bounds, :least, number) and number <= Map.get(bounds, :most, number)
    above = not is_map_key(bounds, :above) or number > bounds.above
    if not (within and above), do: "is #{number}, must be #{range(bounds)}"
  end

  defp wrong("", %{required: true}), do: "is empty"
  defp wrong("", %{not_empty: true}), do: "is empty"

  defp wrong(text, bounds) when is_binary(text) do
    cond do
      bounds[:one_of] && text not in bounds.one_of ->
        "is #{inspect(text)}, must be one of #{Enum.map_join(bounds.one_of, ", ", &inspect/1)}"

      bounds[:max_bytes] && byte_size(text) > bounds.max_bytes ->
        long(byte_size(text), "bytes", bounds.max_bytes)

      bounds[:max_chars] && String.length(text) > bounds.max_chars ->
        long(String.length(text), "characters", bounds.max_chars)

      true ->
        nil
    end
  end

  defp wrong(_other, _bounds), do: nil

  defp long(number, what, most), do: "has #{number} #{what}, at most #{most} are accepted"

  defp range(bounds) do
    words = [least: "at least", above: "above", most: "at most"]
    for({key, word} <- words, limit = bounds[key], do: "#{word} #{limit}") |> Enum.join(" and ")
  end
end
