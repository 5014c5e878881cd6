defmodule CrucibleBridge.Evaluator.Comparison do
  @moduledoc """
  How often a judge holds a model's answers for better than the references of a data set, each pair judged in both orders.

      CrucibleBridge.Evaluator.Comparison.evaluate("tinker://run-7/sampler_weights/400",
        judge: "openai:judges/large",
        dataset: [%{"input" => "Why is the sky blue?", "output" => "Because of Rayleigh scattering."}],
        sampling: [max_tokens: 256]
      )
      #=> {:ok, %{win_rate: 0.5, ...}}

  and with an evaluator and a client, `{:ok, %{"test/win_rate" => 0.5, ...}}`. The client is whatever
  `CrucibleBridge.ModelRef` reads; the judge is a model of the worker's, by its reference.

  A judgement that cannot be read leaves its sample out, as an error that is counted; if these are more than 5 %, the answer
  is an error with the reason `"TOO_MANY_UNSCORED"`. `:win_rate_stderr` needs two samples: with one, it is missing and `:undefined` says
  why.
  """

  alias CrucibleBridge.{Error, Evaluator}

  @enforce_keys [:dataset]
  defstruct [:dataset, name: "test", opts: []]

  @type t :: %__MODULE__{dataset: term(), name: String.t(), opts: keyword()}

  @keys ~w(win_rate win_rate_stderr undefined)a
  @options ~w(judge form criterion judge_max_tokens judge_renderer renderer clean)a

  @doc "An evaluator of crucible_train's convention. Options: `:name`, put before the keys, and those of `evaluate/2`."
  @spec new(term(), keyword()) :: t()
  def new(dataset, opts \\ []) do
    {name, opts} = Keyword.pop(opts, :name, "test")
    %__MODULE__{dataset: dataset, name: name, opts: opts}
  end

  @doc """
  Asks a client, and has its answers judged.

  Options: `:dataset`, whose targets are the references, `:sampling` (with at least `:max_tokens`), `:judge`, where wanted
  `:form`, `:criterion`, `:judge_max_tokens`, `:judge_renderer`, `:renderer` and `:clean`, and those of
  `CrucibleBridge.Evaluator` but for `:metrics` and `:evaluators`. `:clean` says which part of an answer the judge reads:
  `clean: [%{"after" => "Answer:"}, "strip"]`.
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

  defp measure(client, dataset, opts) do
    {judging, opts} = Keyword.split(opts, @options)

    if is_binary(judging[:judge]),
      do: opts |> Keyword.put(:evaluators, [{"comparison", judging}]) |> Evaluator.evaluate(client, dataset),
      else: {:error, Error.invalid("judge", "is no reference of a model, such as \"openai:SERVER/MODEL\"")}
  end
end
