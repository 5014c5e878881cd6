defmodule CrucibleBridge.Evaluator.RLTestSet do
  @moduledoc """
  What a model earns in environments, one group of rollouts for each sample of a data set.

      CrucibleBridge.Evaluator.RLTestSet.evaluate("tinker://run-7/sampler_weights/400",
        dataset: [%{"input" => "17+25=", "output" => "42"}],
        grader: "numeric",
        group_size: 4,
        sampling: [max_tokens: 64, temperature: 1.0]
      )
      #=> {:ok, %{"env/all/reward/total" => 0.75, "env/all/by_group/frac_mixed" => 1.0, ...}}

  and with an evaluator and a client, `{:ok, %{"test/env/all/reward/total" => 0.75, ...}}`. The client is whatever
  `CrucibleBridge.ModelRef` reads. Keys are texts, as tags and metrics are the environments' own; what has no value stands
  under `:undefined`, if anything does.

  Without `:environment`, samples are problems of one turn whose answers are graded. It is the name of one that the worker
  has, or a module or function of Elixir that stays here: see `CrucibleBridge.Orchestrator.Environment`. `:grader` may be
  one likewise. With `intermediates: true` and an
  `:evaluation_id`, `CrucibleBridge.all_samples/3` and `CrucibleBridge.Trajectory.groups/1` have the rollouts for a learner.
  """

  alias CrucibleBridge.{Error, Evaluator}

  @enforce_keys [:dataset]
  defstruct [:dataset, name: "test", opts: []]

  @type t :: %__MODULE__{dataset: term(), name: String.t(), opts: keyword()}

  @options ~w(environment environment_options group_size grader grader_options format_grader format_options
              format_coef require_stop_sequence_for_format thinking max_turns strategy max_retries min_successful
              tag_by intermediates renderer num_groups_to_log)a

  @doc "An evaluator of crucible_train's convention. Options: `:name`, put before the keys, and those of `evaluate/2`."
  @spec new(term(), keyword()) :: t()
  def new(dataset, opts \\ []) do
    {name, opts} = Keyword.pop(opts, :name, "test")
    %__MODULE__{dataset: dataset, name: name, opts: opts}
  end

  @doc """
  Has a client act.

  Options: `:dataset`, `:sampling` (with at least `:max_tokens`, of each turn), those of the worker's evaluator
  `rl_test_set` (`CrucibleBridge.list_evaluators/1` has their schema), and those of `CrucibleBridge.Evaluator` but for
  `:metrics` and `:evaluators`.
  """
  @spec evaluate(t(), term()) :: {:ok, %{String.t() => float()}} | {:error, Error.t()}
  @spec evaluate(term(), keyword()) ::
          {:ok, %{optional(String.t()) => float(), optional(:undefined) => %{String.t() => String.t()}}}
          | {:error, Error.t()}
  def evaluate(%__MODULE__{} = evaluator, client) do
    with {:ok, results} <- measure(client, evaluator.dataset, evaluator.opts),
         do: {:ok, Evaluator.prefixed(results, evaluator.name)}
  end

  def evaluate(client, opts) when is_list(opts) do
    {dataset, opts} = Keyword.pop(opts, :dataset)

    with {:ok, results} <- measure(client, dataset, opts),
         do: {:ok, Map.merge(results.metrics, Map.take(results, [:undefined]))}
  end

  defp measure(_client, nil, _opts), do: {:error, Error.invalid("dataset", "is missing")}

  defp measure(client, dataset, opts) do
    {options, opts} = Keyword.split(opts, @options)
    opts |> Keyword.put(:evaluators, [{"rl_test_set", options}]) |> Evaluator.evaluate(client, dataset)
  end
end
