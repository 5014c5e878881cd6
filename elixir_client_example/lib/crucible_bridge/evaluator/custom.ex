defmodule CrucibleBridge.Evaluator.Custom do
  @moduledoc """
  Accuracy of a model's answers on a data set, by any grader that the worker has, or by a function of Elixir.

      CrucibleBridge.Evaluator.Custom.evaluate("embedded:arithmetic@320",
        dataset: [%{"input" => "17+25=", "output" => "42"}],
        sampling: [max_tokens: 8]
      )
      #=> {:ok, %{accuracy: 1.0, ...}}

  and with an evaluator and a client, `{:ok, %{"test/accuracy" => 1.0, ...}}`. The client is whatever
  `CrucibleBridge.ModelRef` reads.

  A grader is named (`grader: "math"`, `"exact_match"`, `"contains"` ...; `CrucibleBridge.list_evaluators/1` has all, and
  an operator can install more), or a function or module of Elixir: the worker sends each answer here to be judged.

      CrucibleBridge.Evaluator.Custom.evaluate("embedded:arithmetic@320",
        dataset: [%{"input" => "17+25=", "output" => "42"}],
        grader: fn response, target -> String.trim(response) == target end,
        sampling: [max_tokens: 8]
      )

  `CrucibleBridge.Orchestrator.Grader` says what else it may be, and return. Beside `:accuracy` there is its uncertainty,
  and `:accuracy_strict`, which counts what could not be judged as wrong; `:accuracy` leaves it out. If nothing could be
  judged, the answer is an error with the reason `"NOT_SCORED"`; with the reason `"TOO_MANY_UNSCORED"`, if the grader failed
  for more than 5 %.
  """

  alias CrucibleBridge.{Error, Evaluator}

  @enforce_keys [:dataset]
  defstruct [:dataset, name: "test", opts: []]

  @type t :: %__MODULE__{dataset: term(), name: String.t(), opts: keyword()}

  @keys ~w(accuracy accuracy_strict accuracy_stderr accuracy_ci95_low accuracy_ci95_high undefined)a

  @doc "An evaluator of crucible_train's convention. Options: `:name`, put before the keys, and those of `evaluate/2`."
  @spec new(term(), keyword()) :: t()
  def new(dataset, opts \\ []) do
    {name, opts} = Keyword.pop(opts, :name, "test")
    %__MODULE__{dataset: dataset, name: name, opts: opts}
  end

  @doc """
  Asks a client and grades its answers.

  Options: `:dataset`, `:sampling` (with at least `:max_tokens`), `:grader`, `:grader_options`, and those of
  `CrucibleBridge.Evaluator` but for `:metrics` and `:evaluators`.
  """
  @spec evaluate(t(), term()) :: {:ok, %{String.t() => float()}} | {:error, Error.t()}
  @spec evaluate(term(), keyword()) :: {:ok, %{atom() => float() | map()}} | {:error, Error.t()}
  def evaluate(%__MODULE__{} = evaluator, client) do
    with {:ok, results} <- measure(client, evaluator.dataset, evaluator.opts),
         do: {:ok, Evaluator.prefixed(results, evaluator.name)}
  end

  def evaluate(client, opts) when is_list(opts) do
    {dataset, opts} = Keyword.pop(opts, :dataset)
    with {:ok, results} <- measure(client, dataset, opts), do: {:ok, Map.take(results, @keys)}
  end

  defp measure(_client, nil, _opts), do: {:error, Error.invalid("dataset", "is missing")}

  defp measure(client, dataset, opts),
    do: opts |> Keyword.put(:metrics, [:accuracy]) |> Evaluator.evaluate(client, dataset)
end
