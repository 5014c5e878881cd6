defmodule CrucibleBridge.Evaluator.NLL do
  @moduledoc """
  Mean negative log-likelihood of held-out data, in nats per unit of weight, by one sum over all tokens.

  As it was proposed, with a client and options:

      CrucibleBridge.Evaluator.NLL.evaluate("tinker://run-7/weights/400", data: data)
      #=> {:ok, %{nll: 0.2176}}

  and as crucible_train has it, with an evaluator and a client:

      data |> CrucibleBridge.Evaluator.NLL.new(name: "test") |> CrucibleBridge.Evaluator.NLL.evaluate({ports, session})
      #=> {:ok, %{"test/nll" => 0.2176}}

  The client is whatever `CrucibleBridge.ModelRef` reads; of `{ports, session}` the session is taken for a training one,
  unless `:side` says `:sampling`. The data are data with `target_tokens` and `weights`, or anything else that
  `CrucibleBridge.Dataset` reads and that has targets.

  Where there is no finite value, as without any weight, `:nll` is missing and `:undefined` says why.
  """

  alias CrucibleBridge.{Error, Evaluator}

  @enforce_keys [:data]
  defstruct [:data, name: "test", opts: []]

  @type t :: %__MODULE__{data: term(), name: String.t(), opts: keyword()}

  @doc "An evaluator of crucible_train's convention. Options: `:name`, put before the key, and those of `evaluate/2`."
  @spec new(term(), keyword()) :: t()
  def new(data, opts \\ []) do
    {name, opts} = Keyword.pop(opts, :name, "test")
    %__MODULE__{data: data, name: name, opts: opts}
  end

  @doc """
  Measures a client on data.

  Options: `:data`, `:nll` (options of the worker's evaluator, such as `:train_on`), and those of
  `CrucibleBridge.Evaluator` but for `:metrics` and `:evaluators`.
  """
  @spec evaluate(t(), term()) :: {:ok, %{String.t() => float()}} | {:error, Error.t()}
  @spec evaluate(term(), keyword()) ::
          {:ok, %{optional(:nll) => float(), optional(:undefined) => %{String.t() => String.t()}}} | {:error, Error.t()}
  def evaluate(%__MODULE__{} = evaluator, client) do
    with {:ok, results} <- measure(client, evaluator.data, evaluator.opts),
         do: {:ok, Evaluator.prefixed(results, evaluator.name)}
  end

  def evaluate(client, opts) when is_list(opts) do
    {data, opts} = Keyword.pop(opts, :data)
    with {:ok, results} <- measure(client, data, opts), do: {:ok, Map.take(results, [:nll, :undefined])}
  end

  defp measure(_client, nil, _opts), do: {:error, Error.invalid("data", "are missing")}

  defp measure(client, data, opts) do
    {options, opts} = Keyword.pop(opts, :nll, [])

    [side: :training]
    |> Keyword.merge(opts)
    |> Keyword.put(:evaluators, [{"nll", options}])
    |> Evaluator.evaluate(client, data)
  end
end
