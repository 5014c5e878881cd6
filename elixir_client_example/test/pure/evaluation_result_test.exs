defmodule CrucibleBridge.EvaluationResultTest do
  use ExUnit.Case, async: true

  alias CrucibleBridge.{Error, EvaluationResult}

  defp evaluation(evaluators) do
    metrics = %{values: %{"accuracy" => 0.5}, undefined: %{}}

    %{
      request: %{
        evaluators: evaluators,
        dataset: %{source: {:builtin, "arithmetic"}},
        model: %{model: {:embedded, "arithmetic@320"}}
      },
      results: Enum.map(evaluators, &%{evaluator: &1, metrics: metrics}),
      metrics: metrics,
      dataset_fingerprint: "d",
      ended_unix_ns: 1_700_000_000_000_000_000,
      duration_ns: 2_500_000_000
    }
  end

  defp sample(changes) do
    Map.merge(
      %{
        evaluator: "accuracy",
        sample_id: "a",
        repeat: 0,
        verdict: :correct,
        score: 1.0,
        output: "it is 4",
        extracted: "4",
        measurements: %{},
        problem: nil,
        sample: %{targets: ["4"], metadata: %{"level" => "1"}, input: {:text, "2+2"}}
      },
      Map.new(changes)
    )
  end

  @accuracy %{kind: "accuracy", name: nil}

  test "each run of a sample is an item with what was expected and predicted" do
    samples = [
      sample([]),
      sample(sample_id: "b", verdict: :incorrect, score: 0.0, extracted: "", output: "5"),
      sample(
        sample_id: "c",
        verdict: :undecided,
        score: nil,
        problem: %{reason: "UNDECIDED", message: "who knows"},
        sample: %{targets: ["1", "2"], metadata: %{}, input: {:text, "x"}}
      ),
      sample(evaluator: "nll")
    ]

    {:ok, result} = EvaluationResult.of(evaluation([@accuracy]), samples)
    assert {result.total_items, result.correct_items, result.accuracy} == {3, 1, 0.5}
    assert {result.dataset_name, result.dataset_version, result.model} == {"arithmetic", "d", "embedded:arithmetic@320"}
    assert {result.metrics, result.duration_ms} == {%{"accuracy" => 0.5}, 2500}
    assert result.timestamp == ~U[2023-11-14 22:13:20.000000Z]

    assert [right, wrong, undecided] = result.item_results
    assert {right.predicted, right.expected, right.correct, right.score} == {"4", "4", true, 1.0}
    assert right.metadata == %{"level" => "1", "verdict" => "correct", "repeat" => 0}
    assert {wrong.predicted, wrong.correct} == {"5", false}
    assert {undecided.expected, undecided.score, undecided.correct} == {["1", "2"], nil, false}
    assert undecided.metadata["problem"] == "UNDECIDED: who knows"
  end

  test "accuracy is the evaluation's own, with partial scores; full marks alone are correct items" do
    half = evaluation([@accuracy])
    samples = for id <- ["a", "b"], do: sample(sample_id: id, verdict: :partial, score: 0.5)
    assert {:ok, %{accuracy: 0.5, correct_items: 0, total_items: 2}} = EvaluationResult.of(half, samples)
  end

  test "accuracy is found under the request's prefix and the evaluator's name, and is nil where there is none" do
    of = fn evaluator, values ->
      evaluation = evaluation([evaluator])
      evaluation = put_in(evaluation.request[:metric_prefix], "test/")
      results = for result <- evaluation.results, do: put_in(result.metrics.values, values)
      {:ok, result} = EvaluationResult.of(%{evaluation | results: results}, [])
      result.accuracy
    end

    assert of.(@accuracy, %{"test/accuracy" => 0.25}) == 0.25
    assert of.(%{kind: "accuracy", name: "math"}, %{"test/math/accuracy" => 0.75, "test/accuracy" => 0.5}) == 0.75
    assert of.(%{kind: "nll", name: nil}, %{"test/nll" => 1.0}) == nil
  end

  test "of several evaluators one has to be named" do
    both = evaluation([@accuracy, %{kind: "accuracy", name: "strict"}])
    assert {:error, %Error{field: "evaluator"}} = EvaluationResult.of(both, [])
    assert {:error, %Error{field: "evaluator"}} = EvaluationResult.of(both, [], evaluator: "none")
    assert {:ok, %{total_items: 0, accuracy: nil}} = EvaluationResult.of(both, [], evaluator: "strict")
  end

  test "a conversation without targets expects the answer that it ends with" do
    messages = [%{role: "user", content: "2+2"}, %{role: "assistant", content: "4"}]

    expected = fn messages ->
      recorded = %{targets: [], metadata: %{}, input: {:conversation, %{messages: messages}}}
      {:ok, result} = EvaluationResult.of(evaluation([@accuracy]), [sample(sample: recorded)])
      hd(result.item_results).expected
    end

    assert expected.(messages) == "4"
    assert expected.(Enum.take(messages, 1)) == nil
    assert expected.(Enum.drop(messages, 1)) == nil
  end

  test "without a record nothing is expected" do
    {:ok, result} = EvaluationResult.of(evaluation([@accuracy]), [sample(sample: nil)], dataset_name: "mine")
    assert [%{expected: nil}] = result.item_results
    assert result.dataset_name == "mine"
  end
end
