defmodule CrucibleBridge.Evaluator do
  @moduledoc """
  Kitchen's port for evaluation, and the conventions beside it, served by a worker.

      adapters = %{
        evaluator: {CrucibleBridge.Evaluator, grader: "math", sampling: [max_tokens: 512]},
        ...
      }

  As `CrucibleKitchen.Ports.Evaluator` it has `evaluate/3` and `generate_report/2`, which Kitchen's workflows call. Only
  `CrucibleKitchen.Ports.validate/2`, which they do not call, wants a module that declares the behaviour: one of yours that
  delegates to this. `evaluate/2` takes

    * an evaluator and a client, as crucible_train has it: `{:ok, %{"test/accuracy" => 0.5}}`, string keys
    * a client and options, `:dataset` among them: what `evaluate/3` answers

  Nothing is raised. An error has the `"evaluation_id"` among its details where there is an evaluation.

  If more than 5 % of the answers end with an error, as with a grader that raises, the error has the reason
  `"TOO_MANY_UNSCORED"`; `limits: [max_unscored_share: 1.0]` allows all. An evaluator that ran and scored nothing, as with
  a grader that left every answer undecided, is an error with the reason `"NOT_SCORED"`: Kitchen's stage would record 0
  for the accuracy that is missing.

  ## Options

  Those of `CrucibleBridge.Specification`, `CrucibleBridge.ModelRef` and `CrucibleBridge.Dataset`, and

    * `:metrics` - names that Kitchen's stage asks for, and what is evaluated where `:evaluators` are not given:
      `:accuracy`, `:f1`, `:precision` and `:recall` by the evaluator `accuracy`; `:nll`, `:loss` and `:perplexity` by
      `nll`. `[:accuracy]` if absent
    * `:grader`, `:grader_options` - of that `accuracy`; `"exact_match"` if absent. A function or a module judges here: see
      `CrucibleBridge.Orchestrator.Grader`. Among an evaluator's options, its `:grader` and `:environment` may be such, too
    * `:run_id` - the run that the evaluation belongs to. Kitchen makes a new run id each time it starts, and keeps it from
      an evaluator: name the run here. See "A run that is started again"
    * `:graders`, `:environments`, `:answer_timeout_ms` - see `CrucibleBridge.Orchestrator.evaluate/4`
    * `:positive` - of `:f1`, `:precision` and `:recall`, the label that is the positive one; macro averages if absent
    * `:conn` - a `CrucibleBridge.Connection`, by default the one of that name
    * `:timeout` - how long to wait for an evaluation by the worker alone, in milliseconds; it goes on, and the same
      `:evaluation_id` finds it again. `:infinity` if absent: `limits: [deadline_ms: ...]` ends the evaluation itself
    * `:patience_ms` - how long to try to come back to a worker that is gone, and go on; see `CrucibleBridge.Patience`
    * `:window` - of a model, graders or environments that stay here, see `CrucibleBridge.Orchestrator`
    * `:batch_size` - Kitchen's port documents it. It has no effect, as in Kitchen's own adapters, and a warning is logged:
      the worker forms its batches itself, from as many samples at once as `limits: [concurrency: ...]` allows
    * `:format` - of `generate_report/2`

  Another option is refused.

  ## A run that is started again

  Without `:evaluation_id`, an evaluation with a `:run_id` is named after the run, the `:step` if there is one, and what is
  evaluated. So the same evaluation, made again by another node, resumes: nothing is evaluated twice. It resumes

    * unfinished ones
    * with a `:step`, also one that has ended: a step of a run is one checkpoint. A model that stays here needs the same
      `:model_name` each time
    * without, one that has ended only where the model ships with the worker (`embedded:...`) and nothing stays in Elixir:
      other names may stand for other weights by then, and are evaluated anew

  If the checkpoint or the data set has changed since, it is evaluated anew, and a warning says so. A session of Kitchen
  that was started again has other weights, and so another evaluation.

  ## `:f1`, `:precision` and `:recall`

  Where `:metrics` name them and no evaluator yields them, each target of a data set that was sent with the request is
  taken for a class: the one that an answer was judged right for, else what the grader took for the answer. Answers
  without a verdict are left out. Of a data set that only the worker has they are in `:undefined`, as of one without
  targets.
  """

  alias CrucibleBridge.{Connection, Error, ModelRef, Options, Orchestrator, Patience, Results, Specification}
  alias CrucibleBridge.Evaluator.{CallerParts, Classes}

  require Logger

  # Kitchen is not a dependency: the compiler sees it only if it is among those of BRIDGE_ELIXIR_DEPS. Kitchen's workflows call
  # the functions, whatever the module declares.
  if Code.ensure_loaded?(CrucibleKitchen.Ports.Evaluator), do: @behaviour(CrucibleKitchen.Ports.Evaluator)

  @enforce_keys [:dataset]
  defstruct [:dataset, name: "test", opts: []]

  @typedoc "A data set and the options to evaluate on it with; keys are put behind `name`."
  @type t :: %__MODULE__{dataset: term(), name: String.t(), opts: keyword()}

  @accuracy [:accuracy, :f1, :precision, :recall]
  @likelihood [:nll, :loss, :perplexity]
  @classes [:f1, :precision, :recall]
  @formats [:markdown, :html, :json]

  # What Kitchen's stage asks for, and reads as 0 if it is absent.
  @kitchen [:accuracy, :f1, :precision, :recall]

  # States after which nothing changes, and why an evaluation cannot resume.
  @final [:completed, :failed, :cancelled]
  @changed ~w(MODEL_CHANGED DATASET_CHANGED RULES_CHANGED)
  @max_id_bytes 200

  @stays ~w(graders environments answer_timeout_ms window patience_ms)a
  @own ~w(metrics grader grader_options positive conn timeout format batch_size)a ++ @stays
  @known @own ++ Specification.options()

  @doc "An evaluator of crucible_train's convention; see `evaluate/2`."
  @spec new(term(), keyword()) :: t()
  def new(dataset, opts \\ []) do
    {name, opts} = Keyword.pop(opts, :name, "test")
    %__MODULE__{dataset: dataset, name: name, opts: opts}
  end

  @doc """
  Evaluates a model on a data set: the port of Kitchen.

  The model may be whatever `CrucibleBridge.ModelRef` reads, a Kitchen session among them; the data set whatever
  `CrucibleBridge.Dataset` reads. The results are described at `CrucibleBridge.Results`.
  """
  @spec evaluate(keyword(), term(), term()) :: {:ok, Results.t()} | {:error, Error.t()}
  def evaluate(opts, model, dataset), do: evaluate(opts, model, dataset, nil)

  @doc false
  # Likewise; `stem` is the id of an evaluation for which the options give none.
  @spec evaluate(keyword(), term(), term(), String.t() | nil) :: {:ok, Results.t()} | {:error, Error.t()}
  def evaluate(opts, model, dataset, stem) do
    with :ok <- known(opts),
         :ok <- batches(opts[:batch_size]),
         {:ok, evaluators} <- evaluators(opts),
         {evaluators, held} = CallerParts.taken(evaluators, opts),
         {:ok, model} <- ModelRef.resolve(model, opts),
         {:ok, request} <- request(opts, model, dataset, evaluators),
         {:ok, evaluation} <- named(model, request, Keyword.merge(opts, held), held, stem),
         {:ok, results} <- Results.of(evaluation, opts),
         :ok <- scored(evaluation, opts),
         {:ok, results} <- classes(results, request, opts) do
      asked = @kitchen ++ Keyword.get(opts, :metrics, [])
      {:ok, asked |> Map.new(&{&1, nil}) |> Map.merge(results)}
    end
  end

  @doc "Evaluates by one of two conventions; see the module."
  @spec evaluate(t(), term()) :: {:ok, %{String.t() => float()}} | {:error, Error.t()}
  @spec evaluate(term(), keyword()) :: {:ok, Results.t()} | {:error, Error.t()}
  def evaluate(%__MODULE__{} = evaluator, client) do
    with {:ok, results} <- evaluate(evaluator.opts, client, evaluator.dataset),
         do: {:ok, prefixed(results, evaluator.name)}
  end

  def evaluate(client, opts) when is_list(opts), do: evaluate(opts, client, opts[:dataset])

  def evaluate(_client, _opts), do: {:error, Error.invalid("opts", "are no keywords")}

  @doc """
  The worker's report of an evaluation, in Markdown, HTML or JSON; or of plain results.

  The results are those of `evaluate/3`, whose `:evaluation_id` says which evaluation. Without one, what is reported are
  their numbers, and those of their `:metrics`: `%{accuracy: 0.5}`. Options are `:format` (`:markdown`, the default, `:html`
  or `:json`), `:title`, `:max_samples` of a report in HTML, `:conn` and `:patience_ms`.

  An error would have Kitchen's stage fail the workflow after the whole evaluation. So another format gives a report in
  Markdown, as does HTML of a worker that has none yet, and another option is ignored; a warning is logged.
  """
  @spec generate_report(keyword(), map()) :: {:ok, String.t()} | {:error, Error.t()}
  def generate_report(opts, results) do
    ignored(Keyword.keys(opts) -- [:title, :max_samples | @known])
    format = opts |> Keyword.get(:format, :markdown) |> format()

    with {:ok, of} <- reported(results) do
      case report(opts, of, format) do
        {:error, %Error{code: :invalid_argument, field: "format"}} when format != :markdown ->
          in_markdown(format)
          report(opts, of, :markdown)

        result ->
          result
      end
    end
  end

  defp report(opts, of, format) do
    asked = Keyword.take(opts, [:title, :max_samples]) ++ of ++ [format: format]
    report = fn _attempt -> {CrucibleBridge.generate_report(conn(opts), [], asked), false} end
    Patience.run(report, Keyword.get(opts, :patience_ms, Patience.default_ms()))
  end

  defp reported(%{evaluation_id: id}), do: {:ok, [evaluation_ids: [id]]}

  defp reported(results) do
    numbers = for {key, value} <- results, is_number(value), into: %{}, do: {to_string(key), value}
    further = for {key, value} <- Map.get(results, :metrics) || %{}, is_number(value), into: numbers, do: {key, value}

    if further == %{},
      do:
        {:error, Error.invalid("results", "have neither an evaluation_id nor a number, so there is nothing to report")},
      else: {:ok, [metrics: further]}
  end

  defp format(format) when format in @formats, do: format

  defp format(other) do
    in_markdown(other)
    :markdown
  end

  defp in_markdown(format) do
    there = Enum.map_join(@formats, ", ", &inspect/1)

    Logger.warning(
      "[crucible_bridge] the worker writes no report in #{inspect(format)} (formats: #{there}): it is in Markdown"
    )
  end

  defp ignored([]), do: :ok

  defp ignored(options) do
    Logger.warning("[crucible_bridge] generate_report ignores #{Enum.map_join(options, ", ", &inspect/1)}")
  end

  @doc false
  def prefixed(results, name), do: Map.new(results.metrics, fn {key, value} -> {"#{name}/#{key}", value} end)

  defp known(opts) do
    with :ok <- Options.once(opts) do
      case Keyword.keys(opts) -- @known do
        [] -> :ok
        [key | _] -> {:error, Error.invalid("opts", "have #{inspect(key)}, which there is not")}
      end
    end
  end

  defp batches(nil), do: :ok

  defp batches(_size) do
    Logger.warning("[crucible_bridge] :batch_size has no effect: say limits: [concurrency: ...] for samples at once")
  end

  defp evaluators(opts) do
    metrics = Keyword.get(opts, :metrics, [:accuracy])

    case {opts[:evaluators], metrics -- (@accuracy ++ @likelihood)} do
      {nil, []} -> {:ok, asked(metrics, @accuracy, accuracy(opts)) ++ asked(metrics, @likelihood, "nll")}
      {nil, [metric | _]} -> {:error, Error.invalid("metrics", "have #{inspect(metric)}: say by which :evaluators")}
      {evaluators, _metrics} -> {:ok, evaluators}
    end
  end

  defp asked(metrics, names, evaluator), do: if(Enum.any?(metrics, &(&1 in names)), do: [evaluator], else: [])

  defp accuracy(opts), do: {"accuracy", Keyword.take(opts, [:grader, :grader_options])}

  defp request(opts, model, dataset, evaluators) do
    Specification.build(Keyword.merge(opts, model: model, dataset: dataset, evaluators: evaluators))
  end

  # The id is made here, so that what a dying worker had of the evaluation is found again.
  defp named(model, request, opts, held, stem) do
    cond do
      request.evaluation_id != "" ->
        run(model, request, opts, held)

      stem ->
        resumed(stem, model, request, opts, held)

      request.run_id == "" ->
        run(model, %{request | evaluation_id: Orchestrator.fresh_id()}, opts, held)

      true ->
        with {:ok, id} <- found(id(request), model, request, opts, held), do: resumed(id, model, request, opts, held)
    end
  end

  defp id(request) do
    [request.run_id, request.step, digest(request)] |> Enum.reject(&is_nil/1) |> Enum.join("-") |> shortened()
  end

  # Of what is evaluated, the same on every node.
  defp digest(request) do
    what = %{request | evaluation_id: "", labels: %{}, limits: nil, correlation_id: "", record: nil, log_to: []}
    binary_part(sha256(:erlang.term_to_binary(what, [:deterministic])), 0, 16)
  end

  defp sha256(bytes), do: :sha256 |> :crypto.hash(bytes) |> Base.encode16(case: :lower)

  defp shortened(id) when byte_size(id) <= @max_id_bytes, do: id
  defp shortened(id), do: sha256(id)

  # Without a step, the weights behind a name may be others each time: then only what has not ended is the same.
  defp found(id, model, request, opts, held) do
    fixed = held == [] and match?({:embedded, _name}, model)
    if request.step != nil or fixed, do: {:ok, id}, else: unfinished(id, opts, 1)
  end

  defp unfinished(id, opts, number) do
    numbered = if number == 1, do: id, else: shortened("#{id}-#{number}")
    asked = fn _attempt -> {CrucibleBridge.get_evaluation(conn(opts), numbered), false} end

    case Patience.run(asked, Keyword.get(opts, :patience_ms, Patience.default_ms())) do
      {:ok, %{state: state}} when state in @final -> unfinished(id, opts, number + 1)
      {:ok, _unfinished} -> {:ok, numbered}
      {:error, %Error{reason: "UNKNOWN_EVALUATION"}} -> {:ok, numbered}
      {:error, error} -> {:error, error}
    end
  end

  # A run that is started again, with other weights or settings behind the same name, is no reason to end it.
  defp resumed(id, model, request, opts, held) do
    case run(model, %{request | evaluation_id: id}, opts, held) do
      {:error, %Error{reason: "OTHER_SPECIFICATION"} = error} ->
        other = shortened("#{id}-#{digest(request)}")
        anew(error, id, other)
        if other == id, do: {:error, error}, else: resumed(other, model, request, opts, held)

      {:error, %Error{reason: reason} = error} when reason in @changed ->
        other = shortened("#{id}-#{Orchestrator.fresh_id()}")
        anew(error, id, other)
        run(model, %{request | evaluation_id: other}, opts, held)

      result ->
        result
    end
  end

  defp anew(error, id, other) do
    Logger.warning("[crucible_bridge] #{id} does not resume, and is evaluated as #{other}: #{Exception.message(error)}")
  end

  defp run({:held, model}, request, opts, _held), do: here(model, request, opts)
  defp run(_remote, request, opts, [_ | _]), do: here(nil, request, opts)

  defp run(_remote, request, opts, []) do
    attempt = &attempt(conn(opts), request, Keyword.get(opts, :timeout, :infinity), &1)
    Patience.run(attempt, Keyword.get(opts, :patience_ms, Patience.default_ms()))
  end

  defp here(model, request, opts),
    do: Orchestrator.evaluate(conn(opts), request, model, Keyword.take(opts, @stays))

  defp attempt(conn, request, timeout, 0), do: waited(conn, request, timeout)

  # Whether a worker is there again is known from this call, which is short.
  defp attempt(conn, request, timeout, _again) do
    case CrucibleBridge.start_evaluation(conn, request) do
      {:ok, _started} -> waited(conn, request, timeout)
      {:error, error} -> {{:error, error}, false}
    end
  end

  defp waited(conn, request, timeout) do
    case CrucibleBridge.evaluate(conn, request, timeout: timeout) do
      # The caller's own time is over, which is no reason to come back.
      {:error, %Error{code: :deadline_exceeded} = error} ->
        {{:error, %{error | details: Map.put(error.details, "evaluation_id", request.evaluation_id)}}, :final}

      result ->
        {result, true}
    end
  end

  # An evaluator that failed has its problem among the results.
  defp scored(evaluation, opts) do
    case Enum.find(evaluation.results, &(&1.n_scored == 0 and &1.problem == nil)) do
      nil -> :ok
      result -> {:error, not_scored(evaluation, result, opts)}
    end
  end

  defp not_scored(evaluation, result, opts) do
    label = result.evaluator.name || result.evaluator.kind

    %Error{
      code: :failed_precondition,
      reason: "NOT_SCORED",
      message: "the evaluator #{label} scored none of #{result.n} answers#{first(evaluation, label, opts)}",
      details: %{"evaluation_id" => evaluation.evaluation_id, "evaluator" => label}
    }
  end

  # What helps to find the cause. The error stands without it.
  defp first(evaluation, label, opts) do
    asked = [evaluator: label, page_size: 1, without_records: true]

    case CrucibleBridge.get_samples(conn(opts), evaluation.evaluation_id, asked) do
      {:ok, %{samples: [%{problem: %{} = problem} = sample | _]}} ->
        "; the first, #{inspect(sample.sample_id)}: #{problem.reason}: #{problem.message}"

      _other ->
        ""
    end
  end

  defp classes(results, request, opts) do
    case Enum.filter(opts[:metrics] || [], &(&1 in @classes and not is_map_key(results, &1))) do
      [] -> {:ok, results}
      missing -> Classes.add(results, missing, request, conn(opts), opts[:positive])
    end
  end

  defp conn(opts), do: Keyword.get(opts, :conn, Connection)
end
