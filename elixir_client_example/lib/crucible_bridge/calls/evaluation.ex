defmodule CrucibleBridge.Calls.Evaluation do
  @moduledoc false
  # EvaluationService and TelemetryService; documented at CrucibleBridge.

  alias CrucibleBridge.{Connection, Error, ModelRef, Specification, V1, Wire}
  alias CrucibleBridge.Specification.Values
  alias V1.EvaluationService.Stub

  # Pages end by their size, too.
  @page 10_000
  @compared [:dataset_fingerprint, :baseline_id, :evaluator, :confidence, :max_listed]

  def list_evaluators(conn, opts) do
    with {:ok, reply} <- Connection.call(conn, Stub, :list_evaluators, %V1.ListEvaluatorsRequest{}, opts) do
      {:ok, Wire.decode(reply.evaluators)}
    end
  end

  def evaluate(conn, specification, opts) do
    with {:ok, request} <- request(specification),
         {:ok, reply} <- Connection.call(conn, Stub, :evaluate, request, unbounded(opts)) do
      {:ok, Wire.decode(reply.evaluation)}
    end
  end

  def start_evaluation(conn, specification, opts) do
    with {:ok, request} <- request(specification),
         request = %V1.StartEvaluationRequest{request: request},
         {:ok, reply} <- Connection.call(conn, Stub, :start_evaluation, request, opts) do
      {:ok, Wire.decode(reply)}
    end
  end

  def watch(conn, evaluation_id, opts) do
    request = %V1.WatchEvaluationRequest{
      evaluation_id: evaluation_id,
      after_sequence: opts[:after_sequence] || 0,
      log_id: opts[:log_id] || "",
      without_samples: opts[:without_samples] || false,
      new_kinds: true
    }

    with :ok <- options(opts, [:after_sequence, :log_id, :without_samples]),
         do: Connection.stream(conn, Stub, :watch_evaluation, request, Keyword.take(opts, [:timeout]))
  end

  def subscribe(conn, opts) do
    request = %V1.SubscribeRequest{
      after_sequence: opts[:after_sequence] || 0,
      log_id: opts[:log_id] || "",
      kinds: opts[:kinds] || [],
      run_id: opts[:run_id],
      until_now: opts[:until_now] || false,
      new_kinds: true
    }

    with :ok <- options(opts, [:after_sequence, :log_id, :kinds, :run_id, :until_now]),
         do: Connection.stream(conn, V1.TelemetryService.Stub, :subscribe, request, Keyword.take(opts, [:timeout]))
  end

  def get_evaluation(conn, evaluation_id, opts) do
    request = %V1.GetEvaluationRequest{evaluation_id: evaluation_id}

    with {:ok, reply} <- Connection.call(conn, Stub, :get_evaluation, request, opts) do
      {:ok, Wire.decode(reply.evaluation)}
    end
  end

  def list_evaluations(conn, opts) do
    with :ok <- options(opts, [:run_id, :states, :from_step, :to_step, :page_size, :page_token]),
         {:ok, states} <- Wire.states(opts[:states] || []),
         request = %V1.ListEvaluationsRequest{
           run_id: opts[:run_id],
           states: states,
           from_step: opts[:from_step],
           to_step: opts[:to_step],
           page_size: opts[:page_size] || 0,
           page_token: opts[:page_token] || ""
         },
         {:ok, reply} <- Connection.call(conn, Stub, :list_evaluations, request, Keyword.take(opts, [:timeout])) do
      {:ok, Wire.decode(reply)}
    end
  end

  def get_samples(conn, evaluation_id, opts) do
    with :ok <- options(opts, [:verdicts, :evaluator, :page_size, :page_token]),
         {:ok, verdicts} <- Wire.verdicts(opts[:verdicts] || []),
         request = %V1.GetSamplesRequest{
           evaluation_id: evaluation_id,
           verdicts: verdicts,
           evaluator: opts[:evaluator],
           page_size: opts[:page_size] || 0,
           page_token: opts[:page_token] || ""
         },
         {:ok, reply} <- Connection.call(conn, Stub, :get_samples, request, Keyword.take(opts, [:timeout])) do
      {:ok, Wire.decode(reply)}
    end
  end

  def all_samples(conn, evaluation_id, opts) do
    with :ok <- options(opts, [:verdicts, :evaluator]), do: pages(conn, evaluation_id, opts, "", [])
  end

  defp pages(conn, evaluation_id, opts, token, read) do
    with {:ok, page} <- get_samples(conn, evaluation_id, [page_size: @page, page_token: token] ++ opts) do
      read = [page.samples | read]

      if page.next_page_token == "",
        do: {:ok, read |> Enum.reverse() |> Enum.concat()},
        else: pages(conn, evaluation_id, opts, page.next_page_token, read)
    end
  end

  def cancel(conn, evaluation_id, opts) do
    request = %V1.CancelEvaluationRequest{evaluation_id: evaluation_id, reason: opts[:reason] || ""}

    with {:ok, reply} <- Connection.call(conn, Stub, :cancel_evaluation, request, Keyword.take(opts, [:timeout])) do
      {:ok, Wire.decode(reply.evaluation)}
    end
  end

  def generate_report(conn, evaluation_ids, opts) do
    with {:ok, format} <- Wire.format(Keyword.get(opts, :format, :markdown)),
         request = %V1.GenerateReportRequest{evaluation_ids: List.wrap(evaluation_ids), format: format},
         {:ok, reply} <- Connection.call(conn, Stub, :generate_report, request, Keyword.take(opts, [:timeout])) do
      {:ok, reply.report}
    end
  end

  def compare_evaluations(conn, evaluations, opts) do
    {call, opts} = Keyword.split(opts, [:timeout])

    with {:ok, fields} <- compared(evaluations),
         {:ok, rank_by} <- rank_by(opts[:rank_by]),
         {:ok, options} <-
           Values.message(Keyword.delete(opts, :rank_by), V1.CompareEvaluationsRequest, @compared, "options"),
         request = struct!(options || %V1.CompareEvaluationsRequest{}, [rank_by: rank_by] ++ fields),
         {:ok, reply} <- Connection.call(conn, Stub, :compare_evaluations, request, call) do
      {:ok, Wire.decode(reply)}
    end
  end

  def register_plan(conn, plan, opts) do
    with {:ok, plan} <- plan(plan),
         request = %V1.RegisterPlanRequest{plan: plan},
         {:ok, reply} <- Connection.call(conn, Stub, :register_plan, request, opts) do
      {:ok, Wire.decode(reply)}
    end
  end

  def notify_step(conn, plan_id, step, model, opts) do
    with {:ok, model} <- model(model, opts),
         request = %V1.NotifyStepRequest{plan_id: plan_id, step: step, model: model, last: opts[:last] || false},
         {:ok, reply} <- Connection.call(conn, Stub, :notify_step, request, Keyword.take(opts, [:timeout])) do
      {:ok, Wire.decode(reply.evaluations)}
    end
  end

  @doc "A model, given in any form that the worker can be told of, as a message."
  @spec model(term, keyword) :: {:ok, V1.ModelRef.t()} | {:error, Error.t()}
  def model(given, opts \\ []) do
    with {:ok, model} <- ModelRef.resolve(given, opts), do: {:ok, Specification.model_ref(model)}
  end

  defp compared({:run, run_id}), do: {:ok, run_id: run_id}
  defp compared([_ | _] = ids), do: {:ok, evaluation_ids: ids}
  defp compared(_other), do: {:error, Error.invalid("evaluations", "is neither a list of ids nor {:run, run_id}")}

  defp rank_by(nil), do: {:ok, nil}

  defp rank_by({metric, goal}) when is_binary(metric) do
    with {:ok, goal} <- Wire.goal(goal), do: {:ok, %V1.RankBy{metric: metric, goal: goal}}
  end

  defp rank_by(_other), do: {:error, Error.invalid("rank_by", "is no {metric, :higher or :lower}")}

  # One that is misspelt would be everything in place of what was asked for.
  defp options(opts, names), do: Specification.known(opts, [:timeout | names], "options")

  # It goes on when nobody waits: only limits.deadline_ms and cancel end it.
  defp unbounded(opts), do: Keyword.put_new(opts, :timeout, :infinity)

  defp request(%V1.EvaluateRequest{} = request), do: {:ok, request}

  defp request(specification) do
    with :ok <- Specification.known(specification), do: Specification.build(specification)
  end

  defp plan(%V1.EvaluationPlan{} = plan), do: {:ok, plan}
  defp plan(specification), do: Specification.plan(specification)
end
