defmodule CrucibleBridge.Metrics do
  @moduledoc """
  Metrics under the names that were proposed for `CrucibleKitchen.Metrics`: `CrucibleBridge.Metrics.KL`,
  `CrucibleBridge.Metrics.NLL` and `CrucibleBridge.Metrics.Trajectory`. The same metrics under the worker's names, and more
  of them, are calls of `CrucibleBridge`.
  """

  alias CrucibleBridge.Error

  @doc """
  A reply's values under the atoms of a table, and what is undefined, if anything is, under `:undefined`.

      iex> reply = {:ok, %{metrics: %{values: %{"optim/entropy" => 0.5}, undefined: %{"x" => "no action tokens"}}}}
      iex> CrucibleBridge.Metrics.named(reply, %{"optim/entropy" => :entropy})
      %{entropy: 0.5, undefined: %{"x" => "no action tokens"}}
  """
  @spec named({:ok, map()} | {:error, Error.t()}, %{String.t() => atom()}) :: map() | {:error, Error.t()}
  def named({:error, error}, _table), do: {:error, error}

  def named({:ok, %{metrics: metrics}}, table) do
    values = for {key, value} <- metrics.values, name = table[key], into: %{}, do: {name, value}
    with_undefined(values, metrics)
  end

  @doc "A reply's values under their own keys, and what is undefined, if anything is, under `:undefined`."
  @spec keyed({:ok, map()} | {:error, Error.t()}) :: map() | {:error, Error.t()}
  def keyed({:error, error}), do: {:error, error}
  def keyed({:ok, %{metrics: metrics}}), do: with_undefined(metrics.values, metrics)

  defp with_undefined(values, %{undefined: undefined}) when undefined == %{}, do: values
  defp with_undefined(values, %{undefined: undefined}), do: Map.put(values, :undefined, undefined)
end
