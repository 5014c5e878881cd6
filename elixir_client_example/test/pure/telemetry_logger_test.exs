defmodule CrucibleBridge.Telemetry.DefaultLoggerTest do
  use ExUnit.Case, async: true

  alias CrucibleBridge.Telemetry.DefaultLogger

  @metadata %{evaluation_id: "e-1", evaluator: nil, step: 4, metrics: %{"nll" => 0.25, "sample_count" => 400.0}}

  defp line(name, measurements, metadata), do: DefaultLogger.line(name, measurements, Map.merge(@metadata, metadata))

  test "a finished evaluation is one line with every metric, and with why one has no value" do
    line =
      line([:crucible_kitchen, :evaluation, :complete], %{sample_count: 400.0}, %{undefined: %{"f1" => "no labels"}})

    assert line == "[crucible_bridge] evaluation e-1 (step 4): nll=0.25 f1: no labels (400 samples)"
  end

  test "every event that is logged has its line" do
    measurements = %{total: 400.0, done: 10.0, duration: 0, retry_in: 100, sample_count: 1.0}

    told = %{
      state: "completed",
      cause: "the worker was told to end",
      reason: "it broke",
      message: "closed",
      evaluators: "nll",
      model: "embedded:arithmetic@320",
      to: %{sequence: 9, log_id: "log"}
    }

    lines = for name <- DefaultLogger.events(), do: line(name, measurements, told)
    assert Enum.all?(lines, &String.starts_with?(&1, "[crucible_bridge] "))
    assert length(Enum.uniq(lines)) == length(lines) - 1, "exceptions alone read alike"
  end

  test "an evaluation whose samples were not counted has its lines" do
    told = %{evaluators: "nll", model: "embedded:arithmetic@320", cause: "the worker drains"}

    said =
      for what <- [:start, :interrupt, :resume], do: line([:crucible_bridge, :evaluation, what], %{done: 0.0}, told)

    assert Enum.map(said, &String.replace_prefix(&1, "[crucible_bridge] evaluation e-1 (step 4): ", "")) == [
             "started, nll on embedded:arithmetic@320",
             "interrupted at the reading of its data: the worker drains",
             "resumes at the reading of its data"
           ]
  end

  test "a gap says how many events are missing, or that nobody knows" do
    gap = [:crucible_bridge, :telemetry, :gap]
    to = %{to: %{sequence: 9, log_id: "log"}, reason: "OTHER_LOG"}
    assert line(gap, %{missed: 7}, to) =~ "7 missed (OTHER_LOG), going on after 9"
    assert line(gap, %{}, to) =~ "an unknown number missed"
  end

  test "no event is logged in a way that raises, whatever it lacks or holds" do
    values = [nil, 1.5, 7, "text", :atom, {:a, "tuple"}, ["list"], %{a: "map"}, %{"nll" => :nan}, DateTime.utc_now()]
    measured = [:total, :done, :duration, :retry_in, :missed, :sample_count]
    told = ~w(evaluation_id evaluator step metrics undefined evaluators model state cause reason message to)a

    for name <- DefaultLogger.events(), value <- values, left_out <- [nil | measured ++ told] do
      measurements = measured |> Map.new(&{&1, value}) |> Map.delete(left_out)
      metadata = told |> Map.new(&{&1, value}) |> Map.delete(left_out)
      assert "[crucible_bridge] " <> _ = DefaultLogger.line(name, measurements, metadata)
    end

    for name <- DefaultLogger.events(), do: assert(DefaultLogger.line(name, %{}, %{}) =~ "[crucible_bridge] ")
  end
end
