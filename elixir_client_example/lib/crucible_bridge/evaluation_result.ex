defmodule CrucibleBridge.EvaluationResult do
  @moduledoc """
  Results of an evaluation in the shape of crucible_datasets' `EvaluationResult`.

      {:ok, evaluation} = CrucibleBridge.get_evaluation(conn, "nightly")
      {:ok, samples} = CrucibleBridge.all_samples(conn, "nightly")
      {:ok, result} = CrucibleBridge.EvaluationResult.of(evaluation, samples)
      Enum.reject(result.item_results, & &1.correct)

  Where crucible_datasets is a dependency, the result is its struct; else it is a map of the same keys.
  """

  alias CrucibleBridge.Error

  @struct_module CrucibleDatasets.EvaluationResult

  @type item :: %{
          id: String.t(),
          predicted: String.t(),
          expected: String.t() | [String.t()] | nil,
          correct: boolean(),
          score: float() | nil,
          metrics: map(),
          metadata: map()
        }

  @doc """
  The result of an evaluation that has ended, and of the results of its samples.

  `item_results` has an item for each run of a sample: `predicted` is what the grader extracted, else the output;
  `expected` is the target, a list if there are several; of a conversation without one, the assistant's last message;
  `nil` if it is not recorded.

  `accuracy` is the evaluation's own metric, with partial scores: 0.5 where every answer has half of the marks. It is
  `nil` if the evaluation has none, as of an evaluator without right and wrong, or if nothing was scored.
  `correct_items` counts the items with full marks. An item without a verdict is not counted as wrong, has no score, and
  names its reason in `metadata["problem"]`.

  Options: `:evaluator`, its name, or its kind if it has none, needed if the evaluation has several; `:dataset_name`,
  how the request names it if absent.
  """
  @spec of(map(), [map()], keyword()) :: {:ok, struct() | map()} | {:error, Error.t()}
  def of(evaluation, samples, opts \\ []) do
    with {:ok, label} <- label(evaluation, opts[:evaluator]) do
      items = for sample <- samples, sample.evaluator == label, do: item(sample)

      {:ok,
       shaped(%{
         dataset_name: opts[:dataset_name] || dataset_name(evaluation.request.dataset),
         dataset_version: evaluation.dataset_fingerprint,
         model: model_name(evaluation.request.model),
         total_items: length(items),
         correct_items: Enum.count(items, & &1.correct),
         accuracy: accuracy(evaluation, label),
         metrics: metrics(evaluation, label),
         item_results: items,
         timestamp: DateTime.from_unix!(evaluation.ended_unix_ns, :nanosecond),
         duration_ms: div(evaluation.duration_ns, 1_000_000)
       })}
    end
  end

  defp label(evaluation, wanted) do
    labels = Enum.map(evaluation.request.evaluators, &(&1.name || &1.kind))

    case {wanted, labels} do
      {nil, [label]} ->
        {:ok, label}

      _other ->
        if wanted in labels,
          do: {:ok, wanted},
          else: {:error, Error.invalid("evaluator", "is none of #{Enum.join(labels, ", ")}")}
    end
  end

  defp item(sample) do
    # Workers of earlier releases record no sample.
    recorded = Map.get(sample, :sample) || %{targets: [], metadata: %{}, input: nil}

    %{
      id: sample.sample_id,
      predicted: if(sample.extracted == "", do: sample.output, else: sample.extracted),
      expected: expected(recorded),
      correct: sample.verdict == :correct,
      score: sample.score,
      metrics: sample.measurements,
      metadata:
        recorded.metadata
        |> Map.merge(%{"verdict" => to_string(sample.verdict), "repeat" => sample.repeat})
        |> Map.merge(problem(sample.problem))
    }
  end

  defp expected(%{targets: [], input: {:conversation, %{messages: [_first, _second | _rest] = messages}}}) do
    case List.last(messages) do
      %{role: "assistant", content: content} -> content
      _other -> nil
    end
  end

  defp expected(%{targets: []}), do: nil
  defp expected(%{targets: [target]}), do: target
  defp expected(%{targets: targets}), do: targets

  defp problem(nil), do: %{}
  defp problem(problem), do: %{"problem" => "#{problem.reason}: #{problem.message}"}

  # Its key has the evaluator's name before it where it has one, and the prefix of the request before that.
  defp accuracy(evaluation, label) do
    named = if Enum.any?(evaluation.request.evaluators, &(&1.name == label)), do: label <> "/", else: ""
    metrics(evaluation, label)[Map.get(evaluation.request, :metric_prefix, "") <> named <> "accuracy"]
  end

  defp metrics(evaluation, label) do
    found = Enum.find(evaluation.results, &((&1.evaluator.name || &1.evaluator.kind) == label))
    if found, do: found.metrics.values, else: evaluation.metrics.values
  end

  defp dataset_name(%{source: {:inline, _samples}}), do: "inline"
  defp dataset_name(%{source: {:hub, hub}}), do: hub.repo_id
  defp dataset_name(%{source: {:file, file}}), do: file.path
  defp dataset_name(%{source: {_kind, name}}), do: to_string(name)

  defp model_name(%{model: {:embedded, name}}), do: "embedded:#{name}"
  defp model_name(%{model: {:local, %{path: path}}}), do: "local:#{path}"
  defp model_name(%{model: {:hub, %{repo_id: repo_id}}}), do: "hub:#{repo_id}"
  defp model_name(%{model: {:openai, %{server: server, model: model}}}), do: "openai:#{server}/#{model}"
  defp model_name(%{model: {:installed, %{scheme: scheme, name: name}}}), do: "#{scheme}:#{name}"
  defp model_name(%{model: {:orchestrator, %{name: name}}}), do: "orchestrator:#{name}"
  defp model_name(%{model: {:tinker, tinker}}), do: "tinker:" <> (tinker.model_path || tinker.base_model || "")

  defp shaped(fields) do
    if Code.ensure_loaded?(@struct_module), do: struct!(@struct_module, fields), else: fields
  end
end
