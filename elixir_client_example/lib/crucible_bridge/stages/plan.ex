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
  """

  alias CrucibleBridge.{Connection, Error, ModelRef, Patience, Results, Specification}
  alias CrucibleBridge.Stages.{Evaluate, Recording}

  # States after which nothing changes.
  @final [:completed, :failed, :cancelled]

  @doc "Tells of a step, and records what has ended."
  @spec execute(map(), keyword(), keyword(), map()) :: {:ok, map()} | {:error, Error.t()}
  def execute(context, plan, opts, moment) do
    conn = Keyword.get(opts, :conn, Connection)
    # Each call of the worker may be made again: it starts nothing twice.
    call = fn fun -> Patience.run(fn _attempt -> tried(fun.(conn)) end, patience(opts)) end
    plan = Keyword.merge([plan_id: moment.run_id, run_id: moment.run_id], plan)

    with {:ok, context} <- register(context, call, plan),
         {:ok, context} <- tell(context, call, plan, opts, moment) do
      collect(context, call, moment)
    end
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
