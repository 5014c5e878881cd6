defmodule Measure do
  @moduledoc "Times what is called again and again; loaded by the benchmarks beside it."

  @doc """
  The median, the fastest tenth and the slowest hundredth of `count` calls after a tenth as many to warm up, as a line.
  """
  @spec calls(String.t(), pos_integer(), (-> term())) :: float()
  def calls(name, count, fun) do
    for _ <- 1..max(div(count, 10), 3), do: fun.()
    times = Enum.sort(for(_ <- 1..count, do: milliseconds(fun)))
    [p10, p50, p99] = for share <- [0.1, 0.5, 0.99], do: Enum.at(times, trunc(share * (count - 1)))
    say(name, "p50 #{round3(p50)} ms (p10 #{round3(p10)}, p99 #{round3(p99)}, #{count} calls)")
    p50
  end

  @doc "Milliseconds of one call."
  @spec milliseconds((-> term())) :: float()
  def milliseconds(fun) do
    {microseconds, _result} = :timer.tc(fun)
    microseconds / 1000
  end

  @doc "A line."
  @spec say(String.t(), String.t()) :: :ok
  def say(name, text), do: IO.puts(String.pad_trailing(name, 48) <> text)

  @doc "To what can be read."
  @spec round3(float()) :: float()
  def round3(number), do: Float.round(number, 3)
end
