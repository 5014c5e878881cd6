defmodule CrucibleBridge.Metrics.NLL do
  @moduledoc """
  Negative log-likelihood of given log-probabilities, computed by the worker.
  """

  alias CrucibleBridge.{Connection, Error, Metrics}

  @names %{"nll" => :nll, "perplexity" => :perplexity}

  @doc """
  `-sum(logprobs * weights) / sum(weights)` over all sequences as `:nll`, in nats per unit of weight, and its exponential
  as `:perplexity`.

  Both arguments have a list or tensor for each sequence. A token of weight 0 counts for nothing, whatever its value.
  Without any weight both are missing, and `:undefined` says why. Options: `:conn`, and those of
  `CrucibleBridge.mean_nll/4`.
  """
  @spec compute([term()], [term()], keyword()) ::
          %{optional(atom()) => float() | %{String.t() => String.t()}} | {:error, Error.t()}
  def compute(logprobs, weights, opts \\ []) do
    {conn, opts} = Keyword.pop(opts, :conn, Connection)
    conn |> CrucibleBridge.mean_nll(logprobs, weights, opts) |> Metrics.named(@names)
  end
end
