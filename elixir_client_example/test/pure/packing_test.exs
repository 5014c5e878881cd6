defmodule CrucibleBridge.PackingTest do
  use ExUnit.Case, async: true

  alias CrucibleBridge.{Columns, Datum, Error, Tensor, Trajectory}

  doctest Columns
  doctest Datum
  doctest Trajectory

  defmodule Text do
    defstruct [:tokens]
  end

  defmodule Chunked do
    defstruct [:chunks]
  end

  defmodule TensorData do
    defstruct [:data, :dtype, :shape]
  end

  defp path(name), do: &"#{name}[#{&1}]"

  defp list(tensor) do
    {:ok, list} = Tensor.unpack(tensor)
    list
  end

  describe "columns" do
    test "sequences lie end to end, in their order, empty ones included" do
      {:ok, columns} = Columns.pack([{"logprobs", :numbers, [[-0.5], [], [-0.25, :nan]], path("logprobs")}])
      assert list(columns.lengths) == [1, 0, 2]
      assert list(columns.values["logprobs"]) == [-0.5, -0.25, :nan]
    end

    test "a column has one dtype, also where a sequence happens to hold integers alone" do
      {:ok, columns} = Columns.pack([{"weights", :numbers, [[1, 0], [0.5]], path("weights")}])
      assert columns.values["weights"].dtype == :f64
      assert list(columns.values["weights"]) == [1.0, 0.0, 0.5]
    end

    test "lengths that differ are told by the path of the one that does" do
      columns = [
        {"logprobs", :numbers, [[1.0], [1.0]], path("logprobs")},
        {"mask", :flags, [[1], [1, 1]], path("mask")}
      ]

      assert {:error, %Error{field: "mask[1]", message: "has 2 values, where there are 1"}} = Columns.pack(columns)

      columns = [{"logprobs", :numbers, [[1.0], [1.0]], path("logprobs")}, {"mask", :flags, [[1]], path("mask")}]
      assert {:error, %Error{field: "mask", message: "has 1 sequences, where there are 2"}} = Columns.pack(columns)
    end

    test "a value that cannot be packed is told by its path" do
      assert {:error, %Error{field: "logprobs[1][0]"}} =
               Columns.pack([{"logprobs", :numbers, [[1.0], [nil]], path("logprobs")}])
    end

    test "a column that comes back is cut where it was joined" do
      {:ok, columns} = Columns.pack([{"a", :numbers, [[1.0, 2.0], [], [3.0]], path("a")}])
      assert Columns.split(columns.values["a"], [2, 0, 1]) == {:ok, [[1.0, 2.0], [], [3.0]]}
    end
  end

  describe "data" do
    test "structs are read by their shape, keys as texts or atoms" do
      input = %Chunked{chunks: [%Text{tokens: [1, 2]}, %Text{tokens: [3]}]}
      inputs = %{"weights" => %TensorData{data: [0.0, 1.0], dtype: :float32, shape: [2]}, target_tokens: [2, 3]}
      assert {:ok, datum} = Datum.pack(%{model_input: input, loss_fn_inputs: inputs})
      assert [tokens: first, tokens: second] = datum.model_input
      assert {list(first), list(second)} == {[1, 2], [3]}
      assert datum.loss_fn_inputs["weights"].dtype == :f32
      assert list(datum.loss_fn_inputs["target_tokens"]) == [2, 3]
    end

    test "images keep their bytes: base64 where their library has it, else as they are" do
      chunks = [
        %{data: Base.encode64(<<255, 1>>), format: :png, expected_tokens: 4, type: "image"},
        %{data: <<255, 2>>, format: "jpeg", expected_tokens: 5},
        %{location: "tinker://asset", format: :png, expected_tokens: nil}
      ]

      assert {:ok, [image: %{data: <<255, 1>>, format: "png"}, image: %{data: <<255, 2>>}, image_asset: asset]} =
               Datum.model_input(chunks, "m")

      assert asset.location == "tinker://asset"
      assert {:error, %Error{field: "m.chunks[0].data"}} = Datum.model_input([%{hd(chunks) | data: "-"}], "m")
    end

    test "what is wrong is told by its path" do
      for {datum, field} <- [
            {%{}, "d"},
            {%{model_input: [0.5], loss_fn_inputs: %{}}, "d.model_input"},
            {%{model_input: [%{}], loss_fn_inputs: %{}}, "d.model_input.chunks[0]"},
            {%{model_input: [1], loss_fn_inputs: %{"mask" => [nil]}}, ~s(d.loss_fn_inputs["mask"][0])}
          ] do
        assert {:error, %Error{field: ^field}} = Datum.pack(datum, "d")
      end

      assert {:error, %Error{field: ~s(data[1].loss_fn_inputs["mask"])}} =
               Datum.column([%{loss_fn_inputs: %{"mask" => [1]}}, %{loss_fn_inputs: %{}}], "mask")
    end
  end

  describe "trajectories" do
    defp transition(changes), do: Map.merge(%{ob: [1, 2], ac: [3], reward: 0.5, metrics: %{}}, Map.new(changes))

    defp group(trajectories, changes \\ []) do
      count = length(trajectories)

      Map.merge(
        %{
          trajectories_G: Enum.map(trajectories, &%{transitions: &1}),
          final_rewards_G: List.duplicate(0.0, count),
          metrics_G: List.duplicate(%{}, count)
        },
        Map.new(changes)
      )
    end

    test "groups, trajectories and transitions are counted in their order" do
      groups = [group([[transition([]), transition(ac: %{tokens: [1, 2, 3]})], []]), group([[transition(ob: [])]])]
      assert {:ok, batch} = Trajectory.pack(groups)
      assert list(batch.trajectories_per_group) == [2, 1]
      assert list(batch.transitions_per_trajectory) == [2, 0, 1]
      assert list(batch.action_tokens) == [1, 3, 1]
      assert list(batch.observation_tokens) == [2, 2, 0]
      assert list(batch.rewards) == [0.5, 0.5, 0.5]
    end

    test "a metric that some lack, or have as nil, says who has it" do
      transitions = [
        transition(metrics: %{a: 1, b: 2.0}),
        transition(metrics: %{"a" => 0, b: nil}),
        transition(metrics: nil)
      ]

      {:ok, batch} = Trajectory.pack([group([transitions])])
      assert list(batch.transition_metrics["a"]) == [1.0, 0.0, 0.0]
      assert list(batch.transition_metric_present["a"]) == [true, true, false]
      assert list(batch.transition_metric_present["b"]) == [true, false, false]
      {:ok, batch} = Trajectory.pack([group([[], []], metrics_G: [%{x: 1}, %{x: 2}])])
      assert list(batch.trajectory_metrics["x"]) == [1.0, 2.0]
      assert batch.trajectory_metric_present == %{}
    end

    test "a group that is not whole, and a reward that is no number, are told by their path" do
      assert {:error, %Error{field: "trajectory_groups[0].final_rewards_G"}} =
               Trajectory.pack([group([[]], final_rewards_G: [])])

      assert {:error, %Error{field: "trajectory_groups[0].metrics_G"}} = Trajectory.pack([group([[]], metrics_G: [])])
      assert {:error, %Error{field: "trajectory_groups[0]"}} = Trajectory.pack([%{}])
      assert {:error, %Error{field: "rewards[0]"}} = Trajectory.pack([group([[transition(reward: nil)]])])
      assert {:error, %Error{field: "transitions[0].ac"}} = Trajectory.pack([group([[transition(ac: nil)]])])
      assert {:error, %Error{field: "tags"}} = Trajectory.pack([group([[]])], ["math"])
    end

    defp answer(rollouts, changes \\ []) do
      Map.merge(
        %{sample_id: "a", repeat: 0, score: 1.0, group: %{trajectories: rollouts, tags: ["math"]}},
        Map.new(changes)
      )
    end

    defp turn(changes \\ []) do
      {:ok, tokens} = Tensor.pack([7, 8, 9], dtype: :i32)
      {:ok, logprobs} = Tensor.pack([-0.5, -0.25, -1.0], dtype: :f32)

      Map.merge(
        %{
          observation: tokens,
          action: tokens,
          action_logprobs: logprobs,
          reward: 0.5,
          metrics: %{},
          stop_reason: "stop"
        },
        Map.new(changes)
      )
    end

    defp rollout(transitions, changes \\ []),
      do: Map.merge(%{transitions: transitions, final_reward: 0.0, metrics: %{}}, Map.new(changes))

    test "rollouts of samples are groups again, turn by turn" do
      long = rollout([turn(), turn(action_logprobs: nil)], final_reward: 2.0, metrics: %{"end" => 1.0})
      assert {:ok, [group]} = Trajectory.groups([answer([long, rollout([])])])
      assert [%{transitions: [first, second]}, %{transitions: []}] = group.trajectories_G
      assert first.ob == [7, 8, 9]
      assert first.ac == %{tokens: [7, 8, 9], maybe_logprobs: [-0.5, -0.25, -1.0]}
      assert second.ac.maybe_logprobs == nil

      assert {:ok, batch} = Trajectory.pack([group], [group.tags])
      assert list(batch.transitions_per_trajectory) == [2, 0]
      assert list(batch.action_tokens) == [3, 3]
      assert list(batch.final_rewards) == [2.0, 0.0]
      assert list(batch.trajectory_metric_present["end"]) == [true, false]
      assert batch.tags == [["math"]]
    end

    test "for crucible_train only the last turn of an episode is its end" do
      {:ok, groups} = Trajectory.groups([answer([rollout([turn(), turn()]), rollout([])])])
      assert [%{trajectories_G: [long, empty], final_rewards_G: [+0.0, +0.0]}] = Trajectory.for_crucible_train(groups)
      assert Enum.map(long.transitions, & &1.episode_done) == [false, true]
      assert %{chunks: [%{tokens: [7, 8, 9]}]} = hd(long.transitions).ob
      assert %{transitions: [], final_ob: %{chunks: []}} = empty
    end

    test "answers to one sample are one group, and what has no score is in none" do
      samples = [
        answer([rollout([turn()])]),
        answer([], repeat: 1, score: nil, group: nil),
        answer([rollout([turn(reward: 1.0)])], repeat: 2),
        answer([rollout([turn()])], sample_id: "b")
      ]

      assert {:ok, [%{sample_id: "a"} = first, %{sample_id: "b"} = second]} = Trajectory.groups(samples)
      assert {length(first.trajectories_G), length(second.trajectories_G)} == {2, 1}
      assert Enum.map(first.trajectories_G, &hd(&1.transitions).reward) == [0.5, 1.0]
    end

    test "a scored sample without rollouts, or without their tokens, and one that is there twice, are refused" do
      assert {:error, %Error{field: "samples[1].group"}} =
               Trajectory.groups([answer([]), answer([], sample_id: "b", group: nil)])

      assert {:error, %Error{field: "samples[0].group.trajectories[0].transitions[1].observation"}} =
               Trajectory.groups([answer([rollout([turn(), turn(observation: nil)])])])

      assert {:error, %Error{field: "samples"}} = Trajectory.groups([answer([]), answer([])])
      assert {:error, %Error{field: "samples"}} = Trajectory.groups(nil)
    end
  end
end
