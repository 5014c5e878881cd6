defmodule CrucibleBridge.Metrics.KL do
  @moduledoc """
  How far policies are apart, in nats per action token, computed by the worker.

  A map of numbers, or `{:error, error}`. A key without a finite value, as where no token is an action, is missing, and
  the map has `:undefined` with the reason under the worker's name of it; without such keys there is no `:undefined`.

  Data are those of crucible_train (`CrucibleTrain.Types.Datum`), or maps of the same keys: `loss_fn_inputs` with
  `"logprobs"` and `"mask"`; a token is an action where the mask is above 0.
  """

  alias CrucibleBridge.{Connection, Error, ModelRef, Orchestrator, Specification}
  alias CrucibleBridge.Metrics

  @sample_train %{
    "optim/kl_sample_train_v1" => :kl_sample_train_v1,
    "optim/kl_sample_train_v2" => :kl_sample_train_v2,
    "optim/entropy" => :entropy
  }
  @post_update %{"kl_pre_post_v1" => :kl_pre_post_v1, "kl_pre_post_v2" => :kl_pre_post_v2}

  @type result :: %{optional(atom()) => float() | %{String.t() => String.t()}} | {:error, Error.t()}

  @doc """
  Between the policy that sampled and the one that is trained: `:kl_sample_train_v1`, `:kl_sample_train_v2`, `:entropy`.

  `training_logprobs` has a list or tensor for each datum. Options: `:conn`, and those of
  `CrucibleBridge.kl_sample_train/4`.
  """
  @spec kl_sample_train([map()], [term()], keyword()) :: result()
  def kl_sample_train(data, training_logprobs, opts \\ []) do
    {conn, opts} = Keyword.pop(opts, :conn, Connection)
    conn |> CrucibleBridge.kl_sample_train(data, training_logprobs, opts) |> Metrics.named(@sample_train)
  end

  @doc """
  Between the policy before an update and after it: `:kl_pre_post_v1`, `:kl_pre_post_v2`.

  The policy after the update is a model (see `CrucibleBridge.ModelRef`), which is asked for the log-probabilities of
  `model_input` and the last of `"target_tokens"`, by the worker or, where the model stays here, here; or a list with the
  log-probabilities of each datum's targets. Options: `:conn`, those of `CrucibleBridge.kl_post_update/4` and of
  `CrucibleBridge.ModelRef`, and `:window`, questions open at once of a model that stays here.
  """
  @spec kl_post_update([map()], term(), keyword()) :: result()
  def kl_post_update(data, policy, opts \\ []) do
    {conn, opts} = Keyword.pop(opts, :conn, Connection)

    with {:ok, source} <- source(policy, data, opts) do
      conn
      |> CrucibleBridge.kl_post_update(data, source, Keyword.take(opts, [:deadline_ms, :timeout]))
      |> Metrics.named(@post_update)
    end
  end

  defp source(given, _data, _opts) when is_list(given), do: {:ok, given}

  defp source(policy, data, opts) do
    case ModelRef.resolve(policy, opts) do
      {:ok, {:held, model}} -> Orchestrator.target_logprobs(model, data, Keyword.take(opts, [:window]))
      {:ok, remote} -> {:ok, Specification.model_ref(remote)}
      {:error, error} -> {:error, error}
    end
  end
end
