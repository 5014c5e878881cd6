defmodule CrucibleBridge.RolloutsTest do
  use ExUnit.Case, async: false

  @moduletag :integration
  @moduletag :capture_log

  alias CrucibleBridge.{Connection, Error, Evaluator, Metrics, TestWorker, Trajectory}

  @model "embedded:arithmetic@320"
  @data [%{"input" => "017+025=", "output" => "042"}, %{"input" => "100+001=", "output" => "101"}]
  @sampling [max_tokens: 8, temperature: 1.0, seed: 1]

  setup_all do
    worker = TestWorker.start()
    start_supervised!({Connection, address: worker.address})
    :ok = Connection.await(Connection, 10_000)
  end

  defp rollouts(id, options) do
    {:ok, %{state: :completed} = evaluation} =
      CrucibleBridge.evaluate(
        evaluation_id: id,
        model: @model,
        evaluators: [{"rollout", [grader: "numeric", samples_per_prompt: 3] ++ options}],
        dataset: @data,
        sampling: @sampling
      )

    {:ok, samples} = CrucibleBridge.all_samples(id)
    {evaluation, samples}
  end

  test "answers of a sample are a group with tokens and log-probabilities, of which the worker makes metrics" do
    {evaluation, samples} = rollouts("kept", intermediates: true)
    assert {:ok, groups} = Trajectory.groups(samples)
    assert Enum.map(groups, &{&1.sample_id, length(&1.trajectories_G)}) == [{"0", 3}, {"1", 3}]

    turns = for group <- groups, trajectory <- group.trajectories_G, turn <- trajectory.transitions, do: turn
    assert length(turns) == 6

    for turn <- turns do
      assert turn.ob != [] and Enum.all?(turn.ob ++ turn.ac.tokens, &is_integer/1)
      assert length(turn.ac.tokens) == length(turn.ac.maybe_logprobs)
      assert Enum.all?(turn.ac.maybe_logprobs, &(&1 <= 0.0))
    end

    metrics = Metrics.Trajectory.compute(groups, Enum.map(groups, & &1.tags))
    assert metrics["env/all/total_episodes"] == 6.0
    assert_in_delta metrics["env/all/reward/total"], evaluation.metrics.values["score_mean"], 1.0e-12
    assert metrics["env/all/total_ac_tokens"] == turns |> Enum.map(&length(&1.ac.tokens)) |> Enum.sum() |> Kernel.*(1.0)
  end

  test "samples whose rollouts were not kept are named" do
    {_evaluation, samples} = rollouts("not-kept", [])
    assert {:error, %Error{field: "samples[0].group"}} = Trajectory.groups(samples)
  end

  test "all samples are those of every page, by verdict and evaluator where that is asked for" do
    {_evaluation, samples} = rollouts("paged", [])
    {:ok, %{samples: [first], next_page_token: token}} = CrucibleBridge.get_samples(Connection, "paged", page_size: 1)
    assert token != ""
    assert hd(samples) == first
    {:ok, right} = CrucibleBridge.all_samples(Connection, "paged", verdicts: [:correct])
    assert right == Enum.filter(samples, &(&1.verdict == :correct))
    assert {:ok, []} = CrucibleBridge.all_samples(Connection, "paged", evaluator: "nobody")
    assert {:error, %Error{field: "options"}} = CrucibleBridge.all_samples(Connection, "paged", page_size: 1)
  end

  test "a test set of problems is its rewards, in both conventions, and its rollouts are there" do
    opts = [dataset: @data, grader: "numeric", group_size: 3, sampling: @sampling]

    assert {:ok, metrics} = Evaluator.RLTestSet.evaluate(@model, [evaluation_id: "rl", intermediates: true] ++ opts)

    assert metrics["env/all/total_episodes"] == 6.0
    assert metrics["env/all/reward/total"] >= -0.1
    refute is_map_key(metrics, :undefined)

    {:ok, samples} = CrucibleBridge.all_samples("rl")
    assert {:ok, groups} = Trajectory.groups(samples)
    again = Metrics.Trajectory.compute(groups, Enum.map(groups, & &1.tags))
    assert_in_delta again["env/all/reward/total"], metrics["env/all/reward/total"], 1.0e-12

    {data, opts} = Keyword.pop(opts, :dataset)

    assert {:ok, prefixed} =
             data |> Evaluator.RLTestSet.new([name: "held"] ++ opts) |> Evaluator.RLTestSet.evaluate(@model)

    assert prefixed["held/env/all/reward/total"] == metrics["env/all/reward/total"]

    assert {:error, %Error{field: "dataset"}} = Evaluator.RLTestSet.evaluate(@model, opts)

    assert {:error, %Error{reason: "UNKNOWN_ENVIRONMENT"}} =
             Evaluator.RLTestSet.evaluate(@model, [dataset: data, environment: "nowhere"] ++ opts)
  end
end
