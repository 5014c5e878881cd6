defmodule CrucibleBridge.Calls.Evaluation do
  @moduledoc false
  # EvaluationService and TelemetryService; documented at CrucibleBridge.

  alias CrucibleBridge.{Calls, Error, ModelRef, Specification, V1}
  alias CrucibleBridge.Wire.{Bounds, Message, Names}

  # Pages end by their size, too.
  @page Bounds.of(V1.GetSamplesRequest).page_size.most

  def list_evaluators(conn, opts), do: Calls.unary(conn, %V1.ListEvaluatorsRequest{}, opts, :evaluators)

  def evaluate(conn, specification, opts) do
    # It goes on when nobody waits: only limits.deadline_ms and cancel end it.
    with {:ok, request} <- request(specification),
         do: Calls.unary(conn, request, Calls.unbounded(opts), :evaluation)
  end

  def start_evaluation(conn, specification, opts) do
    with {:ok, request} <- request(specification),
         do: Calls.unary(conn, %V1.StartEvaluationRequest{request: request}, opts)
  end

  def watch(conn, evaluation_id, opts) do
    fields = [evaluation_id: evaluation_id, new_kinds: true]

    with {:ok, request} <- Message.options(opts, V1.WatchEvaluationRequest, fields),
         do: Calls.stream(conn, request, opts)
  end

  def subscribe(conn, opts) do
    with {:ok, request} <- Message.options(opts, V1.SubscribeRequest, new_kinds: true),
         do: Calls.stream(conn, request, opts)
  end

  def get_evaluation(conn, evaluation_id, opts),
    do: Calls.unary(conn, %V1.GetEvaluationRequest{evaluation_id: evaluation_id}, opts, :evaluation)

  def list_evaluations(conn, opts) do
    with {:ok, request} <- Message.options(opts, V1.ListEvaluationsRequest), do: Calls.unary(conn, request, opts)
  end

  def list_runs(conn, opts) do
    with {:ok, request} <- Message.options(opts, V1.ListRunsRequest), do: Calls.unary(conn, request, opts)
  end

  def get_samples(conn, evaluation_id, opts) do
    with {:ok, request} <- Message.options(opts, V1.GetSamplesRequest, evaluation_id: evaluation_id),
         do: Calls.unary(conn, request, opts)
  end

  def find_samples(conn, evaluation_id, opts) do
    with {:ok, request} <- Message.options(opts, V1.FindSamplesRequest, evaluation_id: evaluation_id),
         do: Calls.unary(conn, request, opts)
  end

  def all_samples(conn, evaluation_id, opts) do
    with :ok <- Specification.known(opts, [:timeout, :verdicts, :evaluator, :without_records], "options"),
         do: pages(conn, evaluation_id, opts, "", [])
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
    with {:ok, request} <- Message.options(opts, V1.CancelEvaluationRequest, evaluation_id: evaluation_id),
         do: Calls.unary(conn, request, opts, :evaluation)
  end

  def pause_evaluation(conn, evaluation_id, opts),
    do: Calls.unary(conn, %V1.PauseEvaluationRequest{evaluation_id: evaluation_id}, opts, :evaluation)

  def resume_evaluation(conn, evaluation_id, opts),
    do: Calls.unary(conn, %V1.ResumeEvaluationRequest{evaluation_id: evaluation_id}, opts, :evaluation)

  def set_evaluation_concurrency(conn, evaluation_id, concurrency, opts) do
    request = %V1.SetEvaluationConcurrencyRequest{evaluation_id: evaluation_id, concurrency: concurrency}
    Calls.unary(conn, request, opts, :evaluation)
  end

  def delete_evaluation(conn, evaluation_id, opts),
    do: Calls.unary(conn, %V1.DeleteEvaluationRequest{evaluation_id: evaluation_id}, opts, :evaluation)

  def generate_report(conn, evaluation_ids, opts) do
    opts = Keyword.put_new(opts, :format, :markdown)
    # Named as an option, or as the argument that may be empty.
    fields = if evaluation_ids == [], do: [], else: [evaluation_ids: List.wrap(evaluation_ids)]

    with {:ok, request} <- Message.options(opts, V1.GenerateReportRequest, fields),
         do: Calls.unary(conn, request, opts, :report)
  end

  # The call reads so many itself.
  @of_dataset Specification.dataset_options() -- [:dataset, :limit, :prompt]

  def read_dataset(conn, dataset, opts) do
    {of_dataset, opts} = Keyword.split(opts, @of_dataset)

    with {:ok, dataset} <- Specification.dataset([dataset: dataset] ++ of_dataset),
         {:ok, request} <- Message.options(opts, V1.ReadDatasetRequest, dataset: dataset),
         do: Calls.stream(conn, request, opts)
  end

  def render_sample(conn, specification, opts) do
    with {:ok, request} <- request(specification),
         {:ok, asked} <- Message.options(opts, V1.RenderSampleRequest, request: request),
         do: Calls.unary(conn, asked, opts)
  end

  def compare_evaluations(conn, evaluations, opts) do
    {rank_by, opts} = Keyword.pop(opts, :rank_by)

    with {:ok, fields} <- compared(evaluations),
         {:ok, rank_by} <- rank_by(rank_by),
         {:ok, request} <- Message.options(opts, V1.CompareEvaluationsRequest, [rank_by: rank_by] ++ fields),
         do: Calls.unary(conn, request, opts)
  end

  def gate(conn, baseline_id, candidate_id, policy, opts) do
    with {:ok, policy} <- Message.build(policy, V1.GatePolicy, "policy"),
         fields = [baseline_id: baseline_id, candidate_id: candidate_id, policy: policy],
         {:ok, request} <- Message.options(opts, V1.GateRequest, fields),
         do: Calls.unary(conn, request, opts)
  end

  def register_plan(conn, plan, opts) do
    with {:ok, plan} <- plan(plan), do: Calls.unary(conn, %V1.RegisterPlanRequest{plan: plan}, opts)
  end

  def notify_step(conn, plan_id, step, model, opts) do
    with {:ok, model} <- model(model, opts) do
      request = %V1.NotifyStepRequest{plan_id: plan_id, step: step, model: model, last: opts[:last] || false}
      Calls.unary(conn, request, opts, :evaluations)
    end
  end

  def follow_run(conn, run_id, directory, plan, opts) do
    {base, opts} = Keyword.pop(opts, :base_model)

    with {:ok, what} <- followed(plan),
         {:ok, base} <- base_model(base),
         fields = [run_id: run_id, directory: directory, base_model: base] ++ what,
         {:ok, request} <- Message.options(opts, V1.FollowRunRequest, fields),
         do: Calls.unary(conn, request, opts)
  end

  def unfollow_run(conn, run_id, opts),
    do: Calls.unary(conn, %V1.UnfollowRunRequest{run_id: run_id}, opts, :followed)

  @doc "A model, given in any form that the worker can be told of, as a message."
  @spec model(term, keyword) :: {:ok, V1.ModelRef.t()} | {:error, Error.t()}
  def model(given, opts \\ []) do
    with {:ok, model} <- ModelRef.resolve(given, opts), do: {:ok, Specification.model_ref(model)}
  end

  defp compared({:run, run_id}), do: {:ok, run_id: run_id, evaluation_ids: []}
  defp compared([_ | _] = ids), do: {:ok, evaluation_ids: ids, run_id: nil}
  defp compared(_other), do: {:error, Error.invalid("evaluations", "is neither a list of ids nor {:run, run_id}")}

  # What the request names by a plan's id, it has no plan for.
  defp followed(plan_id) when is_binary(plan_id), do: {:ok, plan_id: plan_id, plan: nil}
  defp followed(specification), do: with({:ok, plan} <- plan(specification), do: {:ok, plan: plan, plan_id: ""})

  defp base_model(nil), do: {:ok, nil}
  defp base_model(given), do: model(given)

  defp rank_by(nil), do: {:ok, nil}

  defp rank_by({metric, goal}) when is_binary(metric) do
    with {:ok, goal} <- Names.long(V1.Goal, goal, "goal"), do: {:ok, %V1.RankBy{metric: metric, goal: goal}}
  end

  defp rank_by(_other), do: {:error, Error.invalid("rank_by", "is no {metric, :higher or :lower}")}

  defp request(%V1.EvaluateRequest{} = request), do: {:ok, request}

  defp request(specification) do
    with :ok <- Specification.known(specification), do: Specification.build(specification)
  end

  defp plan(%V1.EvaluationPlan{} = plan), do: {:ok, plan}
  defp plan(specification), do: Specification.plan(specification)
end
