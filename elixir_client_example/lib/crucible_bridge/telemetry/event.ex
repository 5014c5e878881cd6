defmodule CrucibleBridge.Telemetry.Event do
  @moduledoc """
  What an event of the worker is as an event of `:telemetry`.

  Names, and the atoms among the keys, are fixed at compile time: whatever arrives, no atom is made of it. Everything in
  the metadata can be written as JSON.

  Measurements, all of them numbers:

    * `:system_time` - when it happened at the worker, in native units
    * `:monotonic_time` - when it was emitted here, in native units of this machine's clock
    * `:duration` - in native units, in what ends something
    * everything that the worker measured, each once. A count of the event, such as `total` or `sample_count`, and a metric
      whose key without the evaluation's `metric_prefix` is one of `CrucibleBridge.Results.names/0` have an atom as key:
      `"test/nll"` is `:nll`. Every other metric has its full key, a string: `"test/pass@8"`, `"env/all/reward/total"`,
      and `"math/accuracy"` of an evaluator with a name. An event has the metrics that its evaluation has: read them by
      `Map.get/2`, as a handler that raises is detached for good

  Metadata:

    * `:sequence`, `:log_id` - the event's place in the worker's journal: one event, one place
    * `:evaluation_id`, `:run_id`, `:step`, `:evaluator`, `:correlation_id` - `nil` where there is none
    * `:metrics` - every measurement of the worker under its own name, a map of strings to numbers
    * `:undefined` - metrics without a value, with the reason, where an event tells of metrics
    * what the event tells, where its key is one of `metadata_keys/0`, as strings; other keys in `:details`. One of them
      is `:metric_prefix`, of the keys of metrics, unless it is empty
    * `:problem` - `%{reason, message, field, retryable}`, where something went wrong
    * `:kind`, `:reason`, `:stacktrace` - in an `:exception`, as `:telemetry.span/3` has them
  """

  alias CrucibleBridge.Results

  @names %{
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

  # What a newer worker sends and this version does not know.
  @unknown [:crucible_bridge, :telemetry, :unknown]

  @ends [:stop, :complete, :exception, :sample]

  # What events count; no metric_prefix stands before them.
  @counts Map.new(
            ~w(total done unscored samples_per_second score output_tokens n n_scored n_unscored n_errors sample_count
               n_truncated_reasoning
               tokens count correct questions_done questions_total lag_steps lag_seconds
               concurrency previous_concurrency)a,
            &{Atom.to_string(&1), &1}
          )
  # What the events of a run measure. The metrics of an evaluation may have such names, too.
  @of_runs Map.new(
             ~w(value previous_value last_value difference difference_ci_low difference_ci_high evaluations)a,
             &{Atom.to_string(&1), &1}
           )
  @metrics Map.new(Results.names(), &{Atom.to_string(&1), &1})

  @prefix "metric_prefix"
  @metadata Map.new(
              ~w(model evaluators worker_id sample_id repeat verdict attempt state cause call policy_version
                  metric_prefix metric goal plan_id by not_paired previous_step previous_evaluation_id best_step
                  best_evaluation_id best_model name path held)a,
              &{Atom.to_string(&1), &1}
            )

  @typedoc "What `:telemetry.execute/3` takes."
  @type emitted :: {[atom(), ...], measurements :: map(), metadata :: map()}

  @doc "The names of all events that a worker sends, to attach handlers to."
  @spec names() :: [[atom(), ...]]
  def names, do: Map.values(@names)

  @doc "The kinds that have names, as `CrucibleBridge.V1.EventKind` has them."
  @spec kinds() :: [atom()]
  def kinds, do: Map.keys(@names)

  @doc """
  The name of a kind; unknown kinds share one.

      iex> CrucibleBridge.Telemetry.Event.name(:EVENT_KIND_EVALUATION_COMPLETE)
      [:crucible_kitchen, :evaluation, :complete]
      iex> CrucibleBridge.Telemetry.Event.name(4711)
      [:crucible_bridge, :telemetry, :unknown]
  """
  @spec name(atom() | integer()) :: [atom(), ...]
  def name(kind), do: Map.get(@names, kind, @unknown)

  @doc "The atoms that are keys of measurements; the times are not among them."
  @spec measurement_keys() :: [atom()]
  def measurement_keys, do: Map.values(@counts) ++ Map.values(@of_runs) ++ Map.values(@metrics)

  @doc "Which keys of the worker's metadata become atoms."
  @spec metadata_keys() :: [atom()]
  def metadata_keys, do: Map.values(@metadata)

  @doc """
  Translates an event: a `CrucibleBridge.V1.Event`, or any map with its fields.

  `log_id` is that of the event's batch. What is not a finite number is left out of the measurements.
  """
  @spec translate(map(), String.t()) :: emitted()
  def translate(event, log_id) do
    name = name(event.kind)
    metrics = event.measurements |> Enum.filter(fn {_key, value} -> is_number(value) end) |> Map.new()
    {name, measurements(name, event, metrics), metadata(name, event, metrics, log_id)}
  end

  defp measurements(name, event, metrics) do
    prefix = Map.get(event.metadata, @prefix, "")

    metrics
    |> Map.new(fn {key, value} -> {measured(name, key, prefix), value} end)
    |> Map.merge(duration(name, event.duration_ns))
    |> Map.put(:system_time, native(event.unix_time_ns))
    |> Map.put(:monotonic_time, System.monotonic_time())
  end

  defp measured([:crucible_bridge, :run, _kind], key, _prefix), do: Map.get(@of_runs, key, key)
  defp measured(_name, key, _prefix) when is_map_key(@counts, key), do: Map.fetch!(@counts, key)

  defp measured(_name, key, prefix) do
    size = byte_size(prefix)

    case key do
      <<^prefix::binary-size(size), bare::binary>> -> Map.get(@metrics, bare, key)
      _of_no_prefix -> key
    end
  end

  # What ends has a duration, be it 0; what begins has none.
  defp duration(name, nanoseconds) do
    if List.last(name) in @ends or nanoseconds > 0, do: %{duration: native(nanoseconds)}, else: %{}
  end

  defp native(nanoseconds), do: System.convert_time_unit(nanoseconds, :nanosecond, :native)

  defp metadata(name, event, metrics, log_id) do
    %{
      sequence: event.sequence,
      log_id: log_id,
      evaluation_id: present(event.evaluation_id),
      run_id: present(event.run_id),
      step: event.step,
      evaluator: present(event.evaluator),
      correlation_id: present(event.correlation_id),
      metrics: metrics
    }
    |> Map.merge(told(event.metadata))
    |> Map.merge(trouble(event.problem))
    |> Map.merge(exception(List.last(name), event.problem))
    |> Map.merge(unknown(name, event.kind))
  end

  defp told(metadata) do
    Enum.reduce(metadata, %{}, fn
      {"undefined." <> key, reason}, told -> nest(told, :undefined, key, reason)
      {key, value}, told when is_map_key(@metadata, key) -> Map.put(told, Map.fetch!(@metadata, key), value)
      {key, value}, told -> nest(told, :details, key, value)
    end)
  end

  defp nest(told, under, key, value), do: Map.update(told, under, %{key => value}, &Map.put(&1, key, value))

  defp trouble(nil), do: %{}

  defp trouble(problem) do
    %{
      problem: %{
        reason: present(problem.reason),
        message: problem.message,
        field: present(problem.field),
        retryable: problem.retryable
      }
    }
  end

  defp exception(:exception, problem) do
    %{kind: :error, reason: if(problem, do: problem.message, else: "unknown"), stacktrace: []}
  end

  defp exception(_name, _problem), do: %{}

  # A number that a newer catalogue knows.
  defp unknown(@unknown, kind), do: %{kind: kind}
  defp unknown(_name, _kind), do: %{}

  defp present(text) when text in [nil, ""], do: nil
  defp present(text), do: text
end
