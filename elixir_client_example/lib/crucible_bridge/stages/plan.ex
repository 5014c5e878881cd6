defmodule CrucibleBridge.Stages.Plan do
  @moduledoc """
  What `CrucibleBridge.Stages.Evaluate` does with the option `:plan`: the worker evaluates while training goes on.

      stage(:evaluate, CrucibleBridge.Stages.Evaluate,
        plan: [
          eval_every: 60,
          evaluations: [[evaluators: "nll", dataset: "builtin:arithmetic"]],
          infrequent_eval_every: 320,
          infrequent_evaluations: [[evaluators: "accuracy", dataset: "builtin:arithmetic", sampling: [max_tokens: 8]]]
        ]
      )

  The plan is that of `CrucibleBridge.Specification.plan/1`; `:plan_id` and `:run_id` are the run's id if absent. It is
  registered when the stage is reached first. At a step where something is due the worker is told of it and of the model,
  and a session's weights are saved then alone. Evaluations that have ended are recorded, each under the step that it is of,
  when the stage is reached next, and those that a dying worker left go on; at the last step the stage waits for all. A
  worker that is gone is waited for as `:patience_ms` says.

  An evaluation that failed is in the state's `:eval_failed`, by its id, and stops nothing.

  ## Early stopping

      stage(:evaluate, CrucibleBridge.Stages.Evaluate, plan: [...], stop_on: "nll", patience: 3)

  `:stop_on` is a metric of the plan: its full key, or its end if one evaluation alone has it. Whether more or less is better
  is what the evaluator declares. `[metric: "nll", min_delta: 0.01]` also says `:goal`, `:min_delta`, `:confidence` and
  `:patience`, as `CrucibleBridge.V1.Patience`. Both options replace the `:patience` of the plan, which reports alone and
  stops nothing.

  Training never waits: each time that the stage is reached, it looks for what the worker has reported, at most once a second. Once
  there is a plateau, the step is taken as the last one: what is due at the last step is evaluated, and all is waited for. Then the
  state has `:eval_stopped`, which `CrucibleBridge.Stages.Evaluate.stopped?/1` tells a workflow, and the stage does nothing
  more. It is a map of `:reason`, a sentence, `:metric`, `:step` (where it was stopped), `:last_step` (the last one that was
  compared), `:evaluations` (how many were not better), `:best_step`, `:best_evaluation_id` and `:best_value`.

  A run that resumes counts its steps before that one. A plateau at a later step, of a training that went further, counts
  once that step is reached.
  """

  alias CrucibleBridge.{Connection, Error, ModelRef, Patience, Results, Specification, V1}
  alias CrucibleBridge.Stages.{Evaluate, Recording}
  alias CrucibleBridge.Wire.Message

  require Logger

  # States after which nothing changes.
  @final [:completed, :failed, :cancelled]
  @patience 3
  # Between two looks for a plateau.
  @look_ms 1_000

  @doc "The plan with what training is stopped on; the patience is that many evaluations, #{@patience} if absent."
  @spec stopping(keyword() | nil, term(), term()) :: {:ok, keyword()} | {:error, Error.t()}
  def stopping(nil, _stop_on, _patience),
    do: {:error, Error.invalid("stop_on", "needs a plan: give the stage `plan: [...]`")}

  def stopping(plan, nil, nil), do: {:ok, plan}
  def stopping(_plan, nil, _patience), do: {:error, Error.invalid("patience", "is only allowed with stop_on")}

  def stopping(_plan, _stop_on, patience) when patience != nil and not (is_integer(patience) and patience >= 1),
    do: {:error, Error.invalid("patience", "is #{inspect(patience)}, must be a whole number, at least 1")}

  def stopping(plan, stop_on, patience) do
    with {:ok, message} <- stop_on |> patient(patience) |> Message.build(V1.Patience, "stop_on"),
         do: {:ok, Keyword.put(plan, :patience, message)}
  end

  defp patient(metric, patience) when is_binary(metric) or is_atom(metric),
    do: [metric: to_string(metric), patience: patience || @patience]

  defp patient(%{} = fields, patience) when not is_struct(fields), do: fields |> Map.to_list() |> patient(patience)

  defp patient(fields, patience) do
    cond do
      not Keyword.keyword?(fields) -> fields
      patience -> Keyword.put(fields, :patience, patience)
      true -> Keyword.put_new(fields, :patience, @patience)
    end
  end

  @doc "Tells of a step, and records what has ended."
  @spec execute(map(), keyword(), keyword(), map()) :: {:ok, map()} | {:error, Error.t()}
  def execute(%{state: %{eval_stopped: _}} = context, _plan, _opts, _moment), do: {:ok, context}

  def execute(context, plan, opts, moment) do
    conn = Keyword.get(opts, :conn, Connection)
    # Each call of the worker may be made again: it starts nothing twice.
    call = fn fun -> Patience.run(fn _attempt -> tried(fun.(conn)) end, patience(opts)) end
    plan = Keyword.merge([plan_id: moment.run_id, run_id: moment.run_id], plan)

    with {:ok, context} <- register(context, call, plan),
         {:ok, context, stopped} <- look(context, call, plan, moment),
         moment = if(stopped, do: %{moment | last: true}, else: moment),
         {:ok, context} <- tell(context, call, plan, opts, moment),
         {:ok, context} <- collect(context, call, moment),
         do: {:ok, stop(context, stopped)}
  end

  # Whoever waited says how far it got.
  defp tried({{_, _} = result, got_anywhere}), do: {result, got_anywhere}
  defp tried(result), do: {result, false}

  defp patience(opts), do: Keyword.get(opts, :patience_ms, Patience.default_ms())

  defp register(%{state: %{eval_plan: id}} = context, _call, _plan) when is_binary(id), do: {:ok, context}

  defp register(context, call, plan) do
    with {:ok, message} <- Specification.plan(plan),
         {:ok, _registered} <- call.(&CrucibleBridge.register_plan(&1, message)),
         do: {:ok, put(context, :eval_plan, message.plan_id)}
  end

  # Of the last step there is nothing to stop.
  defp look(context, call, plan, %{stops: true, last: false} = moment) do
    looked = Map.get(context.state, :eval_looked, %{through: 0, plateau: nil, at: nil})
    now = System.monotonic_time(:millisecond)

    if looked.at != nil and now - looked.at < @look_ms do
      {:ok, context, stopped(looked.plateau, moment)}
    else
      with {:ok, looked} <- call.(&looked(&1, looked, plan[:run_id], context.state.eval_plan)) do
        looked = %{looked | at: System.monotonic_time(:millisecond)}
        {:ok, put(context, :eval_looked, looked), stopped(looked.plateau, moment)}
      end
    end
  end

  defp look(context, _call, _plan, _moment), do: {:ok, context, nil}

  # The run's latest plateau, unless a better step came after it.
  defp looked(conn, looked, run_id, plan_id) do
    kinds = [:EVENT_KIND_RUN_BEST, :EVENT_KIND_RUN_PLATEAU]

    with {:ok, batches} <-
           CrucibleBridge.subscribe(conn, after_sequence: looked.through, kinds: kinds, run_id: run_id, until_now: true) do
      Enum.reduce_while(batches, {:ok, looked}, fn
        {:ok, batch}, {:ok, looked} -> {:cont, {:ok, read(looked, batch, plan_id)}}
        {:error, error}, _looked -> {:halt, {:error, error}}
      end)
    end
  end

  defp read(looked, batch, plan_id) do
    events = Enum.filter(batch.events, &(&1.metadata["plan_id"] == plan_id))

    Enum.reduce(events, %{looked | through: batch.through_sequence}, fn event, looked ->
      %{looked | plateau: if(event.kind == :EVENT_KIND_RUN_PLATEAU, do: event)}
    end)
  end

  defp stopped(%{step: last, metadata: told, measurements: measured}, %{step: step}) when last <= step do
    evaluations = trunc(measured["evaluations"])
    best = String.to_integer(told["best_step"])

    %{
      reason:
        "#{told["metric"]} of step #{best} (#{measured["value"]}) was not improved in #{evaluations} evaluations, " <>
          "up to step #{last}: training is stopped",
      metric: told["metric"],
      step: step,
      last_step: last,
      evaluations: evaluations,
      best_step: best,
      best_evaluation_id: told["best_evaluation_id"],
      best_value: measured["value"]
    }
  end

  # None, or that of a training that went further.
  defp stopped(_plateau, _moment), do: nil

  defp stop(context, nil), do: context

  defp stop(context, stopped) do
    Logger.info("[crucible_bridge] #{stopped.reason}")
    put(context, :eval_stopped, stopped)
  end

  defp tell(context, call, plan, opts, moment) do
    parts = [eval_every: :evaluations, infrequent_eval_every: :infrequent_evaluations]
    due = for {every, evaluations} <- parts, plan[evaluations], do: plan[every] || 0

    if Enum.any?(due, &Evaluate.due?(&1, moment)), do: model(context, call, opts, moment), else: {:ok, context}
  end

  defp model(context, call, opts, moment) do
    naming = Keyword.put_new(opts, :weights_name, "#{moment.run_id}-#{moment.stage}-#{moment.step}")

    with {:ok, model} <- Evaluate.model(context, opts),
         {:ok, model} <- ModelRef.resolve(model, Keyword.delete(naming, :model)),
         {:ok, ref} <- remote(model),
         notice = %{plan: context.state.eval_plan, step: moment.step, model: ref, last: moment.last},
         {:ok, started} <- call.(&notify(&1, notice)) do
      pending = for each <- started, do: {each.evaluation.evaluation_id, notice}
      {:ok, put(context, :eval_pending, Map.get(context.state, :eval_pending, []) ++ pending)}
    end
  end

  defp remote({:held, _model}) do
    {:error, Error.invalid("model", "stays here, and a plan is for models that a worker can reach by itself")}
  end

  defp remote(model), do: {:ok, Specification.model_ref(model)}

  defp notify(conn, notice),
    do: CrucibleBridge.notify_step(conn, notice.plan, notice.step, notice.model, last: notice.last)

  defp collect(context, call, moment) do
    pending = Map.get(context.state, :eval_pending, [])

    Enum.reduce_while(pending, {:ok, put(context, :eval_pending, [])}, fn {id, notice} = each, {:ok, context} ->
      case call.(&if(moment.last, do: ended(&1, id, notice), else: now(&1, id, notice))) do
        {:ok, evaluation} -> {:cont, {:ok, taken(context, evaluation, each, moment)}}
        {:error, error} -> {:halt, {:error, error}}
      end
    end)
  end

  # As it stands. What its worker left unfinished goes on when its step is told again.
  defp now(conn, id, notice) do
    with {:ok, %{state: :interrupted} = evaluation} <- CrucibleBridge.get_evaluation(conn, id),
         {:ok, _started} <- notify(conn, notice),
         do: {:ok, evaluation}
  end

  defp ended(conn, id, notice) do
    case now(conn, id, notice) do
      {:ok, %{state: state} = evaluation} when state not in @final -> follow(conn, id, notice, evaluation.last_sequence)
      result -> result
    end
  end

  defp follow(conn, id, notice, sequence) do
    with {:ok, batches} <- CrucibleBridge.watch(conn, id, after_sequence: sequence, without_samples: true),
         :ok <- followed(batches) do
      ended(conn, id, notice)
    else
      {:error, error} -> {{:error, error}, true}
    end
  end

  # A stream of an evaluation's events ends with it, and stays open while it is interrupted.
  defp followed(batches) do
    Enum.find_value(batches, :ok, fn
      {:ok, batch} -> if Enum.any?(batch.events, &(&1.kind == :EVENT_KIND_EVALUATION_INTERRUPT)), do: :ok
      {:error, error} -> {:error, error}
    end)
  end

  defp taken(context, %{state: state}, each, _moment) when state not in @final do
    put(context, :eval_pending, context.state.eval_pending ++ [each])
  end

  defp taken(context, evaluation, {id, notice}, moment) do
    case Results.of(evaluation, metric_prefix: evaluation.request.metric_prefix) do
      {:ok, results} ->
        results = Map.put(results, :step, notice.step)
        context |> put(:eval_results, results) |> Recording.record(results, %{moment | step: notice.step})

      {:error, error} ->
        put(context, :eval_failed, context.state |> Map.get(:eval_failed, %{}) |> Map.put(id, error))
    end
  end

  defp put(context, key, value), do: %{context | state: Map.put(context.state, key, value)}
end
