defmodule CrucibleBridge.Metrics.Trajectory do
  @moduledoc """
  Summaries of rollouts, computed by the worker.
  """

  alias CrucibleBridge.{Connection, Error, Metrics}

  @doc """
  `"env/all/..."`, and `"env/<tag>/..."` where some tag is a strict subset of the groups: tokens and turns per episode,
  `reward/total`, the share of groups that are all good, all bad or mixed, and the mean of every metric of a transition or
  trajectory.

  Groups are those of crucible_train (`CrucibleTrain.RL.TrajectoryGroup`) or maps of the same keys; there is a list of tags
  for each group. Keys are strings, as tags and metrics are the environment's own; what is undefined stands under
  `:undefined`, if anything is. Options: `:conn`, and those of `CrucibleBridge.trajectory_metrics/3`.
  """
  @spec compute([map()], [[String.t()]], keyword()) ::
          %{optional(String.t()) => float(), optional(:undefined) => %{String.t() => String.t()}} | {:error, Error.t()}
  def compute(trajectory_groups, tag_lists, opts \\ []) do
    {conn, opts} = Keyword.pop(opts, :conn, Connection)
    conn |> CrucibleBridge.trajectory_metrics(trajectory_groups, Keyword.put(opts, :tags, tag_lists)) |> Metrics.keyed()
  end
end
