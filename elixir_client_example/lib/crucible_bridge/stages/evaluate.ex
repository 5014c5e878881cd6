defmodule CrucibleBridge.Stages.Evaluate do
  @moduledoc """
  A stage of Kitchen that evaluates while a run trains, and records every metric under its step.

      stage(:evaluate, CrucibleBridge.Stages.Evaluate,
        eval_every: 60,
        dataset: "builtin:arithmetic",
        sampling: [max_tokens: 8],
        metric_prefix: "test/"
      )

  Options are those of `CrucibleBridge.Evaluator`, and the following. They come from the adapter `:evaluator`, where that is
  `{CrucibleBridge.Evaluator, options}`, then from the run's configuration under `:crucible_bridge`, then from the stage; the
  later ones stand.

    * `:eval_every` - steps between two evaluations; at every step that it divides, 0 included, and at the last one. At every
      step where the stage is reached if absent
    * `:last` - whether this is the last step; if absent, whether the state's `:global_step` is its `:total_steps`
    * `:model` - in place of the state's `:session` or `:trained_model`; a function gets the context
    * `:dataset` - in place of the state's `:eval_dataset_handle` or `:eval_dataset`, or of the split "test" of the run's data
      set; a function gets the context
    * `:on_error` - `:halt` (what is assumed) or `:continue`, with the error in the state's `:eval_error`; a function among
      these options that raises is such an error
    * `:report` - `:markdown`, `:html` or `:json`: put a report in the state's `:eval_report`
    * `:plan` - a plan in place of an evaluation, see `CrucibleBridge.Stages.Plan`: training goes on meanwhile
    * `:stop_on`, `:patience` - with a plan: stop once this metric has brought no better checkpoint in so many evaluations
      in a row, 3 if absent; see `stopped?/1`, and `CrucibleBridge.Stages.Plan` for what they may be

  An evaluation's id is made of the run's id, the stage's name and the step, so that a step which is run again after a crash
  resumes its evaluation. So are the name that a session's weights are saved by, and that of a model that stays here.
  Kitchen makes a new run id each time it starts: for a run that resumes in another VM, name it by `run_id: "run-7"` in the
  run's configuration, or by the option `:run_id`. Where the step has other weights or settings by then, it is evaluated
  anew, under an id of its own, and a warning says so.

  In the state it leaves `:eval_results` (see `CrucibleBridge.Results`, with the `:step`). Every number of theirs is recorded
  in the context, and by the adapter `:metrics_store`, under its own key, a string, and the step. Then it executes
  `[:crucible_kitchen, :eval, :complete]`, as the stage of Kitchen does, with those of accuracy, f1, precision, recall, loss
  and perplexity that have a value. `skip_eval: true` in the configuration skips it.
  """

  alias CrucibleBridge.{Error, Evaluator, Options}
  alias CrucibleBridge.Stages.{Plan, Recording}

  # Kitchen is no dependency.
  if Code.ensure_loaded?(CrucibleKitchen.Stage), do: @behaviour(CrucibleKitchen.Stage)

  @own [:eval_every, :last, :on_error, :report, :plan, :stop_on, :patience]

  @type context :: map()

  @doc "The stage's name."
  @spec name() :: :evaluate
  def name, do: :evaluate

  @doc "Evaluates, if it is time."
  @spec execute(context()) :: {:ok, context()} | {:error, term()}
  def execute(context) do
    opts = options(context)
    {own, opts} = Keyword.split(opts, @own)
    moment = moment(context, own, opts)

    cond do
      Map.get(context.config, :skip_eval, false) -> {:ok, put(context, :eval_results, %{skipped: true})}
      planned?(own) -> context |> plan(own, opts, moment) |> ended(context, own)
      due?(own[:eval_every], moment) -> context |> evaluate(own, opts, moment) |> ended(context, own)
      true -> {:ok, context}
    end
  end

  @doc "What the stage takes, as Kitchen shows it."
  @spec describe(map()) :: map()
  def describe(_opts) do
    %{
      name: name(),
      description: "Evaluates by a crucible-bridge worker and records every metric",
      required: [],
      optional: @own ++ [:model, :dataset],
      types: %{
        eval_every: :integer,
        last: :boolean,
        on_error: :atom,
        report: :atom,
        plan: :keyword,
        stop_on: :any,
        patience: :integer
      }
    }
  end

  @doc "Whether `:stop_on` and `:patience` can be used."
  @spec validate(context()) :: :ok | {:error, Error.t()}
  def validate(context) do
    own = context |> options() |> Keyword.take(@own)
    if planned?(own), do: with({:ok, _plan} <- stopping(own), do: :ok), else: :ok
  end

  @doc """
  Whether the run is to stop, as `:stop_on` says: the state has `:eval_stopped` then, see `CrucibleBridge.Stages.Plan`.

  It stops an `async_loop` of Kitchen, as `stop_when: &CrucibleBridge.Stages.Evaluate.stopped?/1`. No other loop of Kitchen
  ends early. There `conditional &CrucibleBridge.Stages.Evaluate.training?/1 do` around all that a loop does passes over
  what is left of it; the stages behind the loop run. Kitchen does not nest conditionals.

      iex> CrucibleBridge.Stages.Evaluate.stopped?(%{state: %{global_step: 60}})
      false
  """
  @spec stopped?(context()) :: boolean()
  def stopped?(context), do: Map.has_key?(context.state, :eval_stopped)

  @doc """
  Whether the run goes on: the opposite of `stopped?/1`.

      iex> CrucibleBridge.Stages.Evaluate.training?(%{state: %{global_step: 60}})
      true
  """
  @spec training?(context()) :: boolean()
  def training?(context), do: not stopped?(context)

  @doc "Nothing is taken back: an evaluation that was started goes on."
  @spec rollback(context(), term()) :: context()
  def rollback(context, _error), do: context

  @doc """
  Whether something is due that comes every so many steps.

      iex> CrucibleBridge.Stages.Evaluate.due?(60, %{step: 120, last: false})
      true
      iex> CrucibleBridge.Stages.Evaluate.due?(60, %{step: 100, last: true})
      true
      iex> CrucibleBridge.Stages.Evaluate.due?(0, %{step: 100, last: false})
      false
  """
  @spec due?(non_neg_integer() | nil, %{step: non_neg_integer(), last: boolean()}) :: boolean()
  def due?(_every, %{last: true}), do: true
  def due?(nil, _moment), do: true
  def due?(0, _moment), do: false
  def due?(every, %{step: step}), do: rem(step, every) == 0

  defp planned?(own), do: Enum.any?([:plan, :stop_on, :patience], &(own[&1] != nil))

  defp stopping(own), do: Plan.stopping(own[:plan], own[:stop_on], own[:patience])

  defp plan(context, own, opts, moment) do
    with {:ok, plan} <- stopping(own),
         do: Plan.execute(context, plan, opts, Map.put(moment, :stops, own[:stop_on] != nil))
  end

  defp evaluate(context, own, opts, moment) do
    stem = "#{moment.run_id}-#{moment.stage}-#{moment.step}"

    with {:ok, dataset} <- dataset(context, opts[:dataset]),
         {:ok, model} <- model(context, opts),
         opts = context |> named(opts, moment, stem) |> Keyword.delete(:model),
         {:ok, results} <- Evaluator.evaluate(opts, model, dataset, stem),
         {:ok, report} <- report(own[:report], results, opts) do
      results = Map.put(results, :step, moment.step)
      context = if report, do: put(context, :eval_report, report), else: context

      {:ok,
       context
       |> put(:eval_results, results)
       |> Recording.record(results, moment)}
    end
  end

  defp ended({:ok, context}, _before, _own), do: {:ok, context}

  defp ended({:error, error}, before, own) do
    case Keyword.get(own, :on_error, :halt) do
      :continue -> {:ok, put(before, :eval_error, error)}
      :halt -> {:error, {:evaluation_failed, error}}
    end
  end

  defp options(context) do
    adapter =
      case Map.get(context.adapters, :evaluator) do
        {Evaluator, opts} -> opts
        _other -> []
      end

    adapter
    |> Keyword.merge(Map.get(context.config, :crucible_bridge, []))
    |> Keyword.merge(context.stage_opts || [])
  end

  defp moment(context, own, opts) do
    step = Map.get(context.state, :global_step, 0)
    last = Keyword.get_lazy(own, :last, fn -> Map.get(context.state, :total_steps) == step end)
    # Kitchen's own is another one in each VM.
    run_id = opts[:run_id] || Map.get(context.config, :run_id) || Map.get(context.metadata, :run_id, "")
    %{step: step, last: last, run_id: to_string(run_id), stage: context.current_stage || name()}
  end

  defp named(context, opts, moment, stem) do
    [weights_name: stem, model_name: stem, step: moment.step]
    |> Keyword.merge(opts)
    |> Keyword.put(:run_id, moment.run_id)
    |> Keyword.put_new(:metrics, Map.get(context.config, :eval_metrics, [:accuracy]))
  end

  @doc false
  def model(context, opts) do
    case opts[:model] do
      nil -> {:ok, Map.get(context.state, :session) || Map.get(context.state, :trained_model)}
      choose when is_function(choose, 1) -> Options.call("model", fn -> choose.(context) end)
      model -> {:ok, model}
    end
  end

  @doc false
  def dataset(context, choose) when is_function(choose, 1), do: Options.call("dataset", fn -> choose.(context) end)
  def dataset(_context, given) when given != nil, do: {:ok, given}

  def dataset(%{state: state} = context, nil) do
    case Map.get(state, :eval_dataset_handle) || Map.get(state, :eval_dataset) do
      nil -> test_split(context, Map.get(context.adapters, :dataset_store), Map.get(context.config, :dataset))
      dataset -> {:ok, dataset}
    end
  end

  defp test_split(context, {store, store_opts}, name) when name != nil do
    load = [split: "test", limit: Map.get(context.config, :eval_samples, 500)]

    case Options.call("dataset", fn -> store.load_dataset(store_opts, to_string(name), load) end) do
      {:ok, {:ok, dataset}} -> {:ok, dataset}
      {:ok, {:error, _reason}} -> {:error, Error.invalid("dataset", "could not be loaded by #{inspect(store)}")}
      {:error, error} -> {:error, error}
    end
  end

  defp test_split(context, store, name) when is_atom(store) and store != nil, do: test_split(context, {store, []}, name)
  defp test_split(_context, _store, _name), do: {:error, Error.invalid("dataset", "is missing")}

  defp report(nil, _results, _opts), do: {:ok, nil}

  defp report(format, results, opts) do
    opts |> Keyword.take([:conn, :patience_ms]) |> Keyword.put(:format, format) |> Evaluator.generate_report(results)
  end

  defp put(context, key, value), do: %{context | state: Map.put(context.state, key, value)}
end
