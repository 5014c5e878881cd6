defmodule CrucibleBridge.Trajectory do
  @moduledoc """
  Groups of trajectories in columns, as the worker summarises them; and out of the rollouts that samples bear.

  Packed by shape: a group has `trajectories_G`, `final_rewards_G` and `metrics_G`; a trajectory has `transitions`; a
  transition has `ob` (an input as `CrucibleBridge.Datum` reads it), `ac` (token ids, or something with `tokens`),
  `reward` and `metrics`. A metric that is nil counts as absent.
  """

  alias CrucibleBridge.{Columns, Datum, Error, Tensor}
  alias CrucibleBridge.Orchestrator.Shapes
  alias CrucibleTrain.RL

  @type t :: %__MODULE__{
          trajectories_per_group: Tensor.t(),
          transitions_per_trajectory: Tensor.t(),
          action_tokens: Tensor.t(),
          observation_tokens: Tensor.t(),
          rewards: Tensor.t(),
          final_rewards: Tensor.t(),
          transition_metrics: %{String.t() => Tensor.t()},
          trajectory_metrics: %{String.t() => Tensor.t()},
          transition_metric_present: %{String.t() => Tensor.t()},
          trajectory_metric_present: %{String.t() => Tensor.t()},
          tags: [[String.t()]]
        }

  @columns [
    :trajectories_per_group,
    :transitions_per_trajectory,
    :action_tokens,
    :observation_tokens,
    :rewards,
    :final_rewards
  ]
  @enforce_keys @columns
  defstruct @columns ++
              [
                transition_metrics: %{},
                trajectory_metrics: %{},
                transition_metric_present: %{},
                trajectory_metric_present: %{},
                tags: []
              ]

  @doc """
  Packs groups, and the tags of each.

  ## Examples

      iex> transition = %{ob: [1, 2, 3], ac: %{tokens: [4, 5]}, reward: 1.0, metrics: %{"correct" => 1}}
      iex> group = %{trajectories_G: [%{transitions: [transition]}], final_rewards_G: [0.5], metrics_G: [%{}]}
      iex> {:ok, batch} = CrucibleBridge.Trajectory.pack([group], [["math"]])
      iex> {CrucibleBridge.Tensor.unpack(batch.observation_tokens), Map.keys(batch.transition_metrics)}
      {{:ok, [3]}, ["correct"]}
  """
  @spec pack([term], [[String.t()]]) :: {:ok, t} | {:error, Error.t()}
  def pack(groups, tags \\ []) do
    with :ok <- checked(groups),
         {:ok, tags} <- tags(tags),
         trajectories = Enum.flat_map(groups, & &1.trajectories_G),
         transitions = Enum.flat_map(trajectories, & &1.transitions),
         {:ok, columns} <- columns(groups, trajectories, transitions),
         {:ok, metrics, present} <- metrics(Enum.map(transitions, &Map.get(&1, :metrics)), "transitions"),
         {:ok, final, final_present} <- metrics(Enum.flat_map(groups, & &1.metrics_G), "metrics_G") do
      {:ok,
       struct!(
         __MODULE__,
         columns ++
           [
             transition_metrics: metrics,
             transition_metric_present: present,
             trajectory_metrics: final,
             trajectory_metric_present: final_present,
             tags: tags
           ]
       )}
    end
  end

  @doc """
  The rollouts that samples bear (`CrucibleBridge.all_samples/3`, of one evaluator), in the shape that `pack/2` takes: a
  group for each sample, in their order, with its id and tags. Token ids and log-probabilities are lists; log-probabilities
  are nil where the model told none.

  A sample without a score is left out. A scored one without rollouts or without their tokens is an error: evaluators
  keep them where they have the option `intermediates: true`.

  ## Examples

      iex> {:ok, tokens} = CrucibleBridge.Tensor.pack([4, 5], dtype: :i32)
      iex> turn = %{observation: tokens, action: tokens, action_logprobs: nil, reward: 1.0, metrics: %{}, stop_reason: "stop"}
      iex> rollout = %{transitions: [turn], final_reward: 0.5, metrics: %{}}
      iex> answer = %{sample_id: "a", repeat: 0, score: 1.5, group: %{trajectories: [rollout], tags: []}}
      iex> {:ok, [group]} = CrucibleBridge.Trajectory.groups([answer, %{answer | repeat: 1}])
      iex> {group.sample_id, length(group.trajectories_G), group.final_rewards_G}
      {"a", 2, [0.5, 0.5]}
      iex> hd(hd(group.trajectories_G).transitions)
      %{ob: [4, 5], ac: %{tokens: [4, 5], maybe_logprobs: nil}, reward: 1.0, metrics: %{}, stop_reason: "stop"}
  """
  @spec groups([map]) :: {:ok, [map]} | {:error, Error.t()}
  def groups(samples) do
    with {:ok, unpacked} <- Columns.numbered(samples, "samples", &answers/2),
         :ok <- once(samples) do
      {:ok, unpacked |> Enum.concat() |> Enum.chunk_by(& &1.sample_id) |> Enum.map(&merged/1)}
    end
  end

  @doc """
  Groups of `groups/1` as `CrucibleTrain.RL.TrajectoryGroup`, for `CrucibleTrain.RL.DataProcessing`; maps of the same keys
  where crucible_train is not there.
  """
  @spec for_crucible_train([map]) :: [map]
  def for_crucible_train(groups) do
    for group <- groups do
      fields = Map.take(group, [:final_rewards_G, :metrics_G])
      Shapes.make(RL.TrajectoryGroup, Map.put(fields, :trajectories_G, Enum.map(group.trajectories_G, &theirs/1)))
    end
  end

  defp theirs(%{transitions: turns}) do
    transitions =
      for {turn, left} <- Enum.zip(turns, Range.new(length(turns) - 1, 0, -1)) do
        Shapes.make(RL.Transition, %{
          ob: Shapes.model_input(tokens: turn.ob),
          ac: Shapes.make(CrucibleTrain.Types.TokensWithLogprobs, turn.ac),
          reward: turn.reward,
          episode_done: left == 0,
          metrics: turn.metrics
        })
      end

    Shapes.make(RL.Trajectory, %{transitions: transitions, final_ob: Shapes.model_input([])})
  end

  # Several answers to a sample stand one after the other, each with its own rollouts.
  defp answers(%{score: nil}, _field), do: {:ok, []}

  defp answers(%{sample_id: id, group: %{trajectories: trajectories} = group}, field) do
    with {:ok, unpacked} <- Columns.numbered(trajectories, field <> ".group.trajectories", &unpacked/2) do
      {:ok,
       [
         %{
           sample_id: id,
           trajectories_G: unpacked,
           final_rewards_G: Enum.map(trajectories, & &1.final_reward),
           metrics_G: Enum.map(trajectories, & &1.metrics),
           tags: group.tags
         }
       ]}
    end
  end

  defp answers(_other, field), do: {:error, Error.invalid(field <> ".group", "is not there: rollouts were not kept")}

  defp once(samples) do
    places = Enum.map(samples, &{&1.sample_id, &1.repeat})

    case places -- Enum.uniq(places) do
      [] ->
        :ok

      [{id, _repeat} | _] ->
        {:error, Error.invalid("samples", "have #{inspect(id)} twice: give those of one evaluator")}
    end
  end

  defp merged([%{sample_id: id, tags: tags} | _] = answers) do
    %{
      sample_id: id,
      trajectories_G: Enum.flat_map(answers, & &1.trajectories_G),
      final_rewards_G: Enum.flat_map(answers, & &1.final_rewards_G),
      metrics_G: Enum.flat_map(answers, & &1.metrics_G),
      tags: tags
    }
  end

  defp unpacked(%{transitions: transitions}, field) do
    with {:ok, turns} <- Columns.numbered(transitions, field <> ".transitions", &turn/2),
         do: {:ok, %{transitions: turns}}
  end

  defp turn(turn, field) do
    with {:ok, observation} <- tokens(turn.observation, field <> ".observation"),
         {:ok, action} <- tokens(turn.action, field <> ".action"),
         {:ok, logprobs} <- logprobs(turn.action_logprobs) do
      {:ok,
       %{
         ob: observation,
         ac: %{tokens: action, maybe_logprobs: logprobs},
         reward: turn.reward,
         metrics: turn.metrics,
         stop_reason: turn.stop_reason
       }}
    end
  end

  defp tokens(%Tensor{} = tokens, _field), do: Tensor.unpack(tokens)
  defp tokens(nil, field), do: {:error, Error.invalid(field, "is not there: tokens were not kept")}

  defp logprobs(nil), do: {:ok, nil}
  defp logprobs(%Tensor{} = logprobs), do: Tensor.unpack(logprobs)

  defp checked(groups) when is_list(groups) do
    groups
    |> Enum.with_index()
    |> Enum.find_value(:ok, fn {group, index} -> wrong(group, "trajectory_groups[#{index}]") end)
  end

  defp checked(_other), do: {:error, Error.invalid("trajectory_groups", "is no list")}

  defp wrong(%{trajectories_G: trajectories, final_rewards_G: rewards, metrics_G: metrics}, field) do
    expected = length(trajectories)

    cond do
      length(rewards) != expected ->
        {:error,
         Error.invalid(field <> ".final_rewards_G", "has #{length(rewards)} entries for #{expected} trajectories")}

      length(metrics) != expected ->
        {:error, Error.invalid(field <> ".metrics_G", "has #{length(metrics)} entries for #{expected} trajectories")}

      not Enum.all?(trajectories, &match?(%{transitions: _}, &1)) ->
        {:error, Error.invalid(field <> ".trajectories_G", "has one without transitions")}

      true ->
        nil
    end
  end

  defp wrong(_other, field) do
    {:error, Error.invalid(field, "has no trajectories_G, final_rewards_G and metrics_G")}
  end

  defp columns(groups, trajectories, transitions) do
    with {:ok, action_tokens} <- counts(transitions, &action/2),
         {:ok, observation_tokens} <- counts(transitions, &observation/2),
         {:ok, rewards} <- Tensor.pack(Enum.map(transitions, &Map.get(&1, :reward)), dtype: :f64, field: "rewards"),
         final_rewards = Enum.flat_map(groups, & &1.final_rewards_G),
         {:ok, final_rewards} <- Tensor.pack(final_rewards, dtype: :f64, field: "final_rewards") do
      {:ok,
       [
         trajectories_per_group: integers(Enum.map(groups, &length(&1.trajectories_G))),
         transitions_per_trajectory: integers(Enum.map(trajectories, &length(&1.transitions))),
         action_tokens: action_tokens,
         observation_tokens: observation_tokens,
         rewards: rewards,
         final_rewards: final_rewards
       ]}
    end
  end

  defp counts(transitions, count) do
    with {:ok, counts} <-
           transitions
           |> Enum.with_index()
           |> Columns.each(fn {transition, index} -> count.(transition, "transitions[#{index}]") end) do
      {:ok, integers(counts)}
    end
  end

  # What was sampled is not looked through for what no tensor could hold: its number alone is told.
  defp action(%{ac: %{tokens: tokens}}, _field) when is_list(tokens), do: {:ok, length(tokens)}
  defp action(%{ac: tokens}, _field) when is_list(tokens), do: {:ok, length(tokens)}
  defp action(_other, field), do: {:error, Error.invalid(field <> ".ac", "has no tokens")}

  defp observation(%{ob: input}, field), do: Datum.tokens_in(input, field <> ".ob")
  defp observation(_other, field), do: {:error, Error.invalid(field <> ".ob", "is missing")}

  defp integers(numbers) do
    {:ok, tensor} = Tensor.pack(numbers, dtype: :i64)
    tensor
  end

  # Metrics by row -> arrays by key, and by key which rows have it, where not all do.
  defp metrics(rows, field) do
    rows = Enum.map(rows, &named/1)
    keys = rows |> Enum.flat_map(&Map.keys/1) |> Enum.uniq()

    with {:ok, columns} <- Columns.each(keys, &metric(&1, rows, field)) do
      values = Map.new(columns, fn {key, values, _present} -> {key, values} end)
      {:ok, values, for({key, _values, %Tensor{} = present} <- columns, into: %{}, do: {key, present})}
    end
  end

  defp metric(key, rows, field) do
    values = Enum.map(rows, &Map.get(&1, key, 0.0))
    present = Enum.map(rows, &is_map_key(&1, key))

    with {:ok, values} <- Tensor.pack(values, dtype: :f64, field: ~s(#{field} metric "#{key}")),
         {:ok, flags} <- Tensor.pack(present, dtype: :bool) do
      {:ok, {key, values, if(Enum.all?(present), do: nil, else: flags)}}
    end
  end

  defp named(nil), do: %{}
  defp named(row), do: for({key, value} <- row, value != nil, into: %{}, do: {to_string(key), value})

  defp tags(tags) do
    if is_list(tags) and Enum.all?(tags, &is_list/1),
      do: {:ok, Enum.map(tags, fn group -> Enum.map(group, &to_string/1) end)},
      else: {:error, Error.invalid("tags", "is no list of lists, one a group")}
  end
end
