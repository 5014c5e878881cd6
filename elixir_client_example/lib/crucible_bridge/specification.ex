defmodule CrucibleBridge.Specification do
  @moduledoc """
  What to evaluate, of keywords as a caller writes them.

    * `:model` - see `CrucibleBridge.ModelRef`, whose options may stand beside it
    * `:dataset` - see `CrucibleBridge.Dataset`, whose options may stand beside it; `:limit`, `:shuffle_seed`,
      `:skip_malformed`, `:where` (a map of metadata) and `:prompt` (`[system: text, template: text, few_shot: [source:
      text, count: n]]`, see `CrucibleBridge.V1.Prompt`) are the message's
    * `:evaluators` - one or a list of: a kind, `"accuracy"` or `:accuracy`; `{kind, options}`, of which `:name` is the
      evaluator's own; a `CrucibleBridge.V1.EvaluatorSpec`
    * `:sampling` - keywords or a map: `:max_tokens`, `:temperature` (0, greedy, if absent), `:top_p`, `:top_k`, `:seed`,
      `:stop`
    * `:limits` - likewise: `:concurrency`, `:deadline_ms`, `:stall_timeout_ms`, `:sample_timeout_ms`,
      `:max_unscored_share`, `:max_unscored`
    * `:record` - `:full`, `:outputs` or `:none`: what is recorded of samples
    * `:evaluation_id`, `:run_id`, `:step`, `:metric_prefix`, `:labels`, `:correlation_id`

  What each means stands at `CrucibleBridge.V1.EvaluateRequest`.
  """

  alias CrucibleBridge.{Columns, Dataset, Error, ModelRef, Options, V1}
  alias CrucibleBridge.Specification.{Samples, Values}
  alias CrucibleBridge.Wire.Message

  @of_dataset ~w(dataset limit shuffle_seed skip_malformed where prompt)a ++ Dataset.options()
  @planned ~w(evaluators sampling limits metric_prefix labels record)a ++ @of_dataset
  @of_run ~w(model evaluation_id run_id step correlation_id)a
  @known @planned ++ @of_run ++ ModelRef.options()

  @doc "The options that `build/1` reads; it leaves others alone, as they may be somebody else's."
  @spec options() :: [atom()]
  def options, do: @known

  @doc "Whether these are options, all of these names, each given once: a misspelt one would go unnoticed."
  @spec known(term(), [atom()], String.t()) :: :ok | {:error, Error.t()}
  def known(opts, names \\ @known, field \\ "specification") do
    case Keyword.keyword?(opts) && Enum.uniq(Keyword.keys(opts)) -- names do
      [] -> Options.once(opts)
      [key | _] -> {:error, Error.invalid(field, "has #{inspect(key)}; there are #{Enum.join(names, ", ")}")}
      false -> {:error, Error.invalid(field, "is no keyword list")}
    end
  end

  @doc """
  The request of these options. Without `:model` it has none; a model that stays here is named in it.
  """
  @spec build(keyword()) :: {:ok, V1.EvaluateRequest.t()} | {:error, Error.t()}
  def build(opts) do
    with {:ok, model} <- model(opts),
         {:ok, parts} <- parts(opts) do
      fields = [model: model] ++ parts

      opts
      |> Keyword.take(Message.names(V1.EvaluateRequest) -- Keyword.keys(fields))
      |> Message.options(V1.EvaluateRequest, fields)
    end
  end

  @doc """
  A plan: `:plan_id`, `:run_id`, `:eval_every`, `:infrequent_eval_every` and `:correlation_id`; `:evaluations` and
  `:infrequent_evaluations` are lists of keywords, as `build/1` takes them but for what belongs to a model or a step.
  """
  @spec plan(keyword()) :: {:ok, V1.EvaluationPlan.t()} | {:error, Error.t()}
  def plan(opts) do
    with :ok <- known(opts, Message.names(V1.EvaluationPlan), "plan"),
         {:ok, often} <- planned(opts[:evaluations], "evaluations"),
         {:ok, seldom} <- planned(opts[:infrequent_evaluations], "infrequent_evaluations") do
      fields = [evaluations: often, infrequent_evaluations: seldom]
      opts |> Keyword.drop(Keyword.keys(fields)) |> Message.options(V1.EvaluationPlan, fields)
    end
  end

  @doc "The message of a model that was resolved."
  @spec model_ref(ModelRef.remote() | {:held, CrucibleBridge.Orchestrator.Model.t()}) :: V1.ModelRef.t()
  def model_ref({:v1, ref}), do: ref
  def model_ref({:embedded, name}), do: %V1.ModelRef{model: {:embedded, name}}
  def model_ref({:local, fields}), do: %V1.ModelRef{model: {:local, struct!(V1.LocalModel, fields)}}
  def model_ref({:hub, fields}), do: %V1.ModelRef{model: {:hub, struct!(V1.HubModel, fields)}}
  def model_ref({:tinker, fields}), do: %V1.ModelRef{model: {:tinker, struct!(V1.TinkerModel, fields)}}
  def model_ref({:openai, fields}), do: %V1.ModelRef{model: {:openai, struct!(V1.OpenAIModel, fields)}}
  def model_ref({:installed, fields}), do: %V1.ModelRef{model: {:installed, struct!(V1.InstalledModel, fields)}}
  def model_ref({:held, %{name: name}}), do: %V1.ModelRef{model: {:orchestrator, %V1.OrchestratorModel{name: name}}}

  @doc "Evaluators as messages."
  @spec evaluators(term()) :: {:ok, [V1.EvaluatorSpec.t()]} | {:error, Error.t()}
  def evaluators(nil), do: {:ok, []}

  def evaluators(given) do
    # A list may hold several, and a keyword is several as well: [accuracy: [grader: "math"], nll: []].
    given |> List.wrap() |> Columns.numbered("evaluators", &evaluator/2)
  end

  defp model(opts) do
    case opts[:model] do
      nil ->
        {:ok, nil}

      given ->
        with {:ok, model} <- ModelRef.resolve(given, Keyword.delete(opts, :model)), do: {:ok, model_ref(model)}
    end
  end

  defp parts(opts) do
    with {:ok, evaluators} <- evaluators(opts[:evaluators]),
         {:ok, dataset} <- dataset(opts),
         {:ok, sampling} <- Message.build(opts[:sampling], V1.SamplingParams, "sampling"),
         {:ok, limits} <- Message.build(opts[:limits], V1.Limits, "limits") do
      {:ok, evaluators: evaluators, dataset: dataset, sampling: sampling, limits: limits}
    end
  end

  defp planned(nil, _field), do: {:ok, []}

  defp planned(list, field) do
    Columns.numbered(list, field, fn opts, field ->
      with :ok <- Options.once(opts, field <> "."),
           :ok <- known(opts, @planned, field),
           {:ok, parts} <- parts(opts),
           do: opts |> Map.new() |> Map.merge(Map.new(parts)) |> Message.part(V1.PlannedEvaluation, field)
    end)
  end

  defp evaluator(%V1.EvaluatorSpec{} = spec, _field), do: {:ok, spec}
  defp evaluator({kind, options}, field), do: evaluator(kind, options, field)
  defp evaluator(kind, field), do: evaluator(kind, [], field)

  defp evaluator(kind, options, field) when (is_atom(kind) and not is_nil(kind)) or is_binary(kind) do
    with {:ok, options} <- Values.map(options, field <> ".options"),
         {name, options} = Map.pop(options, :name),
         {:ok, options} <- Values.options(options, field <> ".options") do
      {:ok, %V1.EvaluatorSpec{kind: to_string(kind), name: name, options: options}}
    end
  end

  defp evaluator(_kind, _options, field) do
    {:error, Error.invalid(field, "is no kind, {kind, options}, evaluator or EvaluatorSpec")}
  end

  @doc "The options that belong to a data set, itself among them."
  @spec dataset_options() :: [atom()]
  def dataset_options, do: @of_dataset

  @doc "The data set among options, as a message; `nil` where there is none."
  @spec dataset(keyword()) :: {:ok, V1.Dataset.t() | nil} | {:error, Error.t()}
  def dataset(opts) do
    case opts[:dataset] do
      nil ->
        {:ok, nil}

      given ->
        # The worker filters and shuffles before it limits, so it must see all.
        reading = if opts[:shuffle_seed] || opts[:where], do: Keyword.delete(opts, :limit), else: opts
        # Functions, streams and fields of the caller are called here.
        with {:ok, read} <- Options.call("dataset", fn -> Dataset.read(given, reading) end),
             {:ok, source} <- read,
             do: Samples.dataset(source, opts)
    end
  end
end
