defmodule CrucibleBridge.Results do
  @moduledoc """
  What `CrucibleBridge.Evaluator` answers with: a map that Kitchen's stages and reports read.

    * numbers under the atoms of `names/0`, as far as the evaluation has them by that very key
    * `accuracy`, `f1`, `precision` and `recall` of `CrucibleBridge.Evaluator.evaluate/3`, and what its `:metrics` name, are
      always there, and `nil` where the evaluation has no such number
    * `:loss`, which is `nll`, and `:perplexity`, its exponential, where a key of that name is not there
    * `:metrics` - every finite number, under its own key, a string with its prefix and its evaluator's name
    * `:undefined` - keys without a finite value, each with the reason; such a key is in no other place, and there is
      no `:undefined` where every key has a value
    * `:sample_count` - runs of samples of the evaluator that had most of them
    * `:n_unscored`, `:n_errors`, `:n_truncated` - runs of samples, of all evaluators: those without a verdict, those of
      them that failed, and those whose answer was cut at `max_tokens` or a full context, whatever their verdict
    * `:problems` - of evaluators that failed while others finished, where there are any
    * `:evaluation_id`, `:model_fingerprint`, `:dataset_fingerprint`
  """

  alias CrucibleBridge.Error

  # What Kitchen's port names, and what evaluators yield by a bare key. Nothing that a worker says becomes an atom but by
  # this table.
  @names ~w(accuracy accuracy_strict accuracy_stderr accuracy_ci95_low accuracy_ci95_high f1 precision recall loss nll
            perplexity bits_per_byte win_rate win_rate_stderr accuracy_sum accuracy_per_token accuracy_per_byte
            target_probability expected_calibration_error next_token_accuracy next_token_accuracy_stderr sample_accuracy
            score_mean score_mean_stderr score_sum score_sum_stderr rubric_score rubric_score_stderr judge_prompt_tokens
            judge_completion_tokens margin margin_stderr dpo_loss chosen_reward rejected_reward)a
  @table Map.new(@names, &{Atom.to_string(&1), &1})

  # Beyond this, e to its power is no double.
  @max_exponent 709.0

  @type t :: %{required(:metrics) => %{String.t() => float()}, optional(atom()) => term()}

  @doc "The atoms that numbers may stand under."
  @spec names() :: [atom()]
  def names, do: @names

  @doc """
  The results of an evaluation that has ended, or its failure.

  Options: `:metric_prefix`, as the evaluation had it, is left off before a key is looked for among the names.
  """
  @spec of(map(), keyword()) :: {:ok, t()} | {:error, Error.t()}
  def of(evaluation, opts \\ [])

  def of(%{state: :completed} = evaluation, opts) do
    prefix = opts[:metric_prefix] || ""
    results = evaluation.results

    {:ok,
     evaluation.metrics.values
     |> named(prefix)
     |> Map.merge(undefined(evaluation.metrics.undefined))
     |> Map.merge(problems(results))
     |> Map.merge(%{
       metrics: evaluation.metrics.values,
       sample_count: results |> Enum.map(& &1.n) |> Enum.max(fn -> 0 end),
       n_unscored: results |> Enum.map(& &1.n_unscored) |> Enum.sum(),
       n_errors: results |> Enum.map(& &1.n_errors) |> Enum.sum(),
       n_truncated: results |> Enum.map(& &1.n_truncated) |> Enum.sum(),
       evaluation_id: evaluation.evaluation_id,
       model_fingerprint: evaluation.model_fingerprint,
       dataset_fingerprint: evaluation.dataset_fingerprint
     })}
  end

  def of(%{problem: problem} = evaluation, _opts), do: {:error, failure(problem, evaluation)}

  @doc """
  Numbers under atoms, where their keys are among the names behind the prefix.

      iex> CrucibleBridge.Results.named(%{"test/nll" => 0.0, "test/math/accuracy" => 1.0}, "test/")
      %{nll: 0.0, loss: 0.0, perplexity: 1.0}
  """
  @spec named(%{String.t() => float()}, String.t()) :: %{atom() => float()}
  def named(values, prefix) do
    size = byte_size(prefix)

    for {<<^prefix::binary-size(size), key::binary>>, value} <- values, name = @table[key], into: %{} do
      {name, value}
    end
    |> derived()
  end

  defp derived(%{nll: nll} = named) do
    named = Map.put_new(named, :loss, nll)
    if nll <= @max_exponent, do: Map.put_new(named, :perplexity, :math.exp(nll)), else: named
  end

  defp derived(named), do: named

  defp undefined(undefined) when undefined == %{}, do: %{}
  defp undefined(undefined), do: %{undefined: undefined}

  defp problems(results) do
    case for %{problem: %{} = problem} = result <- results, do: {result.evaluator, problem} do
      [] -> %{}
      problems -> %{problems: problems}
    end
  end

  defp failure(nil, evaluation) do
    failure(%{reason: "NOT_ENDED", message: "the evaluation is #{evaluation.state}", retryable: true}, evaluation)
  end

  defp failure(problem, evaluation) do
    %Error{
      code: if(evaluation.state == :cancelled, do: :cancelled, else: :failed_precondition),
      reason: problem.reason,
      message: problem.message,
      field: Map.get(problem, :field, ""),
      retryable: problem.retryable,
      details: %{"evaluation_id" => evaluation.evaluation_id}
    }
  end
end
