defmodule CrucibleBridge.Telemetry.EventTest do
  # Not async: tests beside it would make atoms of their own while one of these counts them.
  use ExUnit.Case, async: false

  alias CrucibleBridge.Results
  alias CrucibleBridge.Telemetry.Event

  @event %{
    kind: :EVENT_KIND_EVALUATION_COMPLETE,
    sequence: 44,
    unix_time_ns: 1_700_000_000_000_000_000,
    duration_ns: 1_500_000_000,
    evaluation_id: "run-7-step-400",
    run_id: "run-7",
    step: 400,
    evaluator: "",
    measurements: %{"accuracy" => 0.75, "nll" => 0.25, "custom/metric" => 3.0, "sample_count" => 400.0},
    metadata: %{"model" => "embedded:arithmetic@320", "undefined.f1" => "no labels", "new_key" => "new"},
    problem: nil,
    correlation_id: "c-1"
  }

  doctest Event

  defp event(changes), do: Map.merge(@event, Map.new(changes))

  test "every kind of the catalogue has the name that the protocol fixes" do
    names = %{
      EVENT_KIND_EVALUATION_START: [:crucible_bridge, :evaluation, :start],
      EVENT_KIND_EVALUATION_RESUME: [:crucible_bridge, :evaluation, :resume],
      EVENT_KIND_EVALUATION_INTERRUPT: [:crucible_bridge, :evaluation, :interrupt],
      EVENT_KIND_EVALUATION_PROGRESS: [:crucible_bridge, :evaluation, :progress],
      EVENT_KIND_SAMPLE_COMPLETE: [:crucible_bridge, :evaluation, :sample],
      EVENT_KIND_EVALUATOR_START: [:crucible_bridge, :evaluator, :start],
      EVENT_KIND_EVALUATOR_COMPLETE: [:crucible_bridge, :evaluator, :stop],
      EVENT_KIND_EVALUATOR_EXCEPTION: [:crucible_bridge, :evaluator, :exception],
      EVENT_KIND_EVALUATION_COMPLETE: [:crucible_kitchen, :evaluation, :complete],
      EVENT_KIND_EVALUATION_STOP: [:crucible_bridge, :evaluation, :stop],
      EVENT_KIND_EVALUATION_EXCEPTION: [:crucible_bridge, :evaluation, :exception],
      EVENT_KIND_METRICS_COMPUTED: [:crucible_bridge, :metrics, :stop],
      EVENT_KIND_GRADING_COMPLETE: [:crucible_bridge, :grading, :stop],
      EVENT_KIND_RUN_BEST: [:crucible_bridge, :run, :best],
      EVENT_KIND_RUN_PLATEAU: [:crucible_bridge, :run, :plateau],
      EVENT_KIND_CHECKPOINT_FOUND: [:crucible_bridge, :checkpoint, :found],
      EVENT_KIND_CHECKPOINT_SKIPPED: [:crucible_bridge, :checkpoint, :skipped],
      EVENT_KIND_CHECKPOINT_RELEASED: [:crucible_bridge, :checkpoint, :released],
      EVENT_KIND_EVALUATION_PAUSED: [:crucible_bridge, :evaluation, :paused],
      EVENT_KIND_EVALUATION_RESUMED: [:crucible_bridge, :evaluation, :resumed],
      EVENT_KIND_EVALUATION_CONCURRENCY: [:crucible_bridge, :evaluation, :concurrency]
    }

    for {kind, name} <- names, do: assert(Event.name(kind) == name)
    assert Enum.sort(Event.names()) == names |> Map.values() |> Enum.sort()
  end

  test "the events of a run have atoms of their own, and no evaluation" do
    told = %{"metric" => "accuracy", "by" => "paired", "plan_id" => "p"}
    best = event(kind: :EVENT_KIND_RUN_BEST, evaluation_id: "", measurements: %{"value" => 0.5}, metadata: told)
    assert {[:crucible_bridge, :run, :best], %{value: 0.5}, metadata} = Event.translate(best, "log")
    assert %{metric: "accuracy", by: "paired", plan_id: "p", evaluation_id: nil} = metadata
    # A metric of an evaluation may be called like that.
    assert {_name, %{"value" => 0.5}, _metadata} = Event.translate(event(measurements: %{"value" => 0.5}), "log")
  end

  @times [:duration, :monotonic_time, :system_time]

  # The measurements of an event with these metrics, each of a value that tells it from the others.
  defp measured(keys, prefix) do
    values = keys |> Enum.with_index(1) |> Map.new(fn {key, place} -> {key, place * 1.0} end)
    metadata = if prefix == "", do: %{}, else: %{"metric_prefix" => prefix}
    {_name, measurements, metadata} = Event.translate(event(measurements: values, metadata: metadata), "log")
    assert metadata.metrics == values
    {values, Map.drop(measurements, @times)}
  end

  test "every metric is exactly one measurement, under the atom of its name or else under its full key" do
    full = ["pass@1", "env/all/reward/total", "a/accuracy", "score_mean/x", "correct/format"]
    names = ["nll", "accuracy", "win_rate", "score_mean", "sample_count"]

    for prefix <- ["", "p/", "test/p", "é"] do
      prefixed = fn
        "sample_count" -> "sample_count"
        key -> prefix <> key
      end

      {values, measurements} = measured(Enum.map(names ++ full, prefixed), prefix)

      expected =
        Map.new(names, &{String.to_existing_atom(&1), values[prefixed.(&1)]})
        |> Map.merge(Map.new(full, &{prefixed.(&1), values[prefixed.(&1)]}))

      assert measurements == expected
    end
  end

  test "every name of the results is an atom, behind a prefix, too" do
    for prefix <- ["", "p/"] do
      {_values, measurements} = measured(Enum.map(Results.names(), &(prefix <> Atom.to_string(&1))), prefix)
      assert measurements |> Map.keys() |> Enum.sort() == Enum.sort(Results.names())
    end
  end

  test "a count of the event and a metric of the same name are distinguished" do
    {values, measurements} = measured(["sample_count", "p/sample_count", "p/n"], "p/")
    assert measurements == %{:sample_count => 1.0, "p/sample_count" => values["p/sample_count"], "p/n" => values["p/n"]}
  end

  test "a prefix that looks like the beginning of another key takes nothing from it" do
    {values, measurements} = measured(["sample_count", "sample_nll", "nll"], "sample_")

    assert measurements == %{
             :sample_count => values["sample_count"],
             :nll => values["sample_nll"],
             "nll" => values["nll"]
           }
  end

  test "the prefix is in the metadata, and is not among the details" do
    {_name, _measurements, metadata} = Event.translate(event(metadata: %{"metric_prefix" => "p/"}), "log")
    assert %{metric_prefix: "p/"} = metadata
    refute Map.has_key?(metadata, :details)
  end

  test "times are in native units, and the monotonic one is of this machine" do
    before = System.monotonic_time()
    {_name, measurements, _metadata} = Event.translate(@event, "log")
    assert System.convert_time_unit(measurements.duration, :native, :millisecond) == 1500
    assert System.convert_time_unit(measurements.system_time, :native, :second) == 1_700_000_000
    assert measurements.monotonic_time in before..System.monotonic_time()
  end

  test "what begins has no duration, what ends has one even if it took no time" do
    for {kind, ends?} <- [EVENT_KIND_EVALUATION_START: false, EVENT_KIND_EVALUATION_STOP: true] do
      {_name, measurements, _metadata} = Event.translate(event(kind: kind, duration_ns: 0), "log")
      assert Map.has_key?(measurements, :duration) == ends?
    end
  end

  test "metadata tells the place in the log, nil for what is empty, and why a metric has no value" do
    {_name, _measurements, metadata} = Event.translate(@event, "log")
    assert %{sequence: 44, log_id: "log", step: 400, evaluator: nil, correlation_id: "c-1"} = metadata
    assert metadata.model == "embedded:arithmetic@320"
    assert metadata.undefined == %{"f1" => "no labels"}
    assert metadata.details == %{"new_key" => "new"}
  end

  test "what is no number is left out" do
    for value <- [:nan, :infinity, :negative_infinity, nil] do
      {_name, measurements, metadata} = Event.translate(event(measurements: %{"nll" => value}), "log")
      refute Map.has_key?(measurements, :nll)
      assert metadata.metrics == %{}
    end
  end

  test "an exception carries what a span's exception carries, and the problem" do
    problem = %{reason: "MODEL_NOT_FOUND", message: "no such model", field: "", retryable: false}

    {name, _measurements, metadata} =
      Event.translate(event(kind: :EVENT_KIND_EVALUATION_EXCEPTION, problem: problem), "log")

    assert List.last(name) == :exception
    assert %{kind: :error, reason: "no such model", stacktrace: []} = metadata
    assert metadata.problem == %{reason: "MODEL_NOT_FOUND", message: "no such model", field: nil, retryable: false}
  end

  test "a kind that this version does not know is told by its number" do
    assert {[:crucible_bridge, :telemetry, :unknown], _measurements, %{kind: 99}} =
             Event.translate(event(kind: 99), "log")
  end

  test "metadata is plain: maps, text, numbers, lists and atoms, so that a handler can write JSON" do
    problem = %{reason: "X", message: "y", field: "z", retryable: true}

    for kind <- [:EVENT_KIND_EVALUATION_EXCEPTION, :EVENT_KIND_EVALUATION_COMPLETE, 99] do
      {_name, measurements, metadata} = Event.translate(event(kind: kind, problem: problem), "log")
      assert plain?(metadata)
      assert Enum.all?(Map.values(measurements), &is_number/1)
    end
  end

  test "no atom is made of what arrives, whatever it is" do
    hostile = fn -> for n <- 1..200, into: %{}, do: {"hostile_#{System.unique_integer([:positive])}_#{n}", "v#{n}"} end

    translate = fn ->
      numbers = Map.new(hostile.(), fn {key, _value} -> {key, 1.0} end)
      Event.translate(event(metadata: hostile.(), measurements: numbers, kind: 99), "log")
    end

    # Once before counting: code is loaded on its first call.
    translate.()
    before = :erlang.system_info(:atom_count)
    for _ <- 1..50, do: translate.()
    assert :erlang.system_info(:atom_count) == before
  end

  defp plain?(value) when is_struct(value), do: false
  defp plain?(value) when is_map(value), do: Enum.all?(value, fn {key, inner} -> plain?(key) and plain?(inner) end)
  defp plain?(value) when is_list(value), do: Enum.all?(value, &plain?/1)
  defp plain?(value), do: is_binary(value) or is_number(value) or is_atom(value)
end
