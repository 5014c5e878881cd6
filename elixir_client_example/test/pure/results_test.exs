defmodule CrucibleBridge.ResultsTest do
  use ExUnit.Case, async: true

  alias CrucibleBridge.{Error, Metrics, Results}

  doctest Results
  doctest Metrics

  defp evaluation(changes \\ %{}) do
    Map.merge(
      %{
        state: :completed,
        evaluation_id: "e-1",
        metrics: %{values: %{"accuracy" => 0.75, "nll" => 0.5, "math/accuracy" => 1.0}, undefined: %{}},
        results: [
          %{
            evaluator: %{kind: "accuracy"},
            n: 8,
            n_scored: 7,
            n_unscored: 1,
            n_errors: 1,
            n_truncated: 2,
            problem: nil
          },
          %{evaluator: %{kind: "nll"}, n: 4, n_scored: 4, n_unscored: 0, n_errors: 0, n_truncated: 0, problem: nil}
        ],
        problem: nil,
        model_fingerprint: "m",
        dataset_fingerprint: "d"
      },
      changes
    )
  end

  test "known keys are atoms, all keys are strings, and nothing else is added" do
    {:ok, results} = Results.of(evaluation())
    assert results.accuracy == 0.75
    assert results.nll == 0.5 and results.loss == 0.5
    assert_in_delta results.perplexity, :math.exp(0.5), 1.0e-12
    assert results.metrics == %{"accuracy" => 0.75, "nll" => 0.5, "math/accuracy" => 1.0}
    assert {results.sample_count, results.n_unscored, results.n_errors, results.n_truncated} == {8, 1, 1, 2}
    assert results.evaluation_id == "e-1"
    refute Map.has_key?(results, :f1)
    refute Map.has_key?(results, :undefined)
    refute Map.has_key?(results, :problems)
  end

  test "a prefix is left off before a key is looked for, and a name is not" do
    metrics = %{values: %{"test/accuracy" => 0.5, "test/math/nll" => 1.0, "accuracy" => 0.1}, undefined: %{}}
    {:ok, results} = Results.of(evaluation(%{metrics: metrics}), metric_prefix: "test/")
    assert results.accuracy == 0.5
    refute Map.has_key?(results, :nll)
  end

  test "an undefined key is in no other place than among the undefined" do
    {:ok, results} = Results.of(evaluation(%{metrics: %{values: %{}, undefined: %{"nll" => "no weight"}}}))
    assert results.undefined == %{"nll" => "no weight"}
    refute Map.has_key?(results, :nll) or Map.has_key?(results, :loss) or Map.has_key?(results, :perplexity)
  end

  test "a likelihood whose exponential is no double has no perplexity" do
    assert Results.named(%{"nll" => 710.0}, "") == %{nll: 710.0, loss: 710.0}
    assert %{perplexity: perplexity} = Results.named(%{"nll" => 709.0}, "")
    assert perplexity > 8.0e307
  end

  test "an evaluator that failed is told of, and the others stand" do
    problem = %{reason: "MISSING_CLIENT", message: "m", field: "", retryable: false}

    failed = %{
      evaluator: %{kind: "nll"},
      n: 0,
      n_scored: 0,
      n_unscored: 0,
      n_errors: 0,
      n_truncated: 0,
      problem: problem
    }

    {:ok, results} = Results.of(evaluation(%{results: [failed]}))
    assert results.problems == [{%{kind: "nll"}, problem}]
  end

  test "an evaluation that failed or was cancelled is an error with its id" do
    problem = %{reason: "STALLED", message: "no sample for long", field: "", retryable: true}

    assert {:error, %Error{code: :failed_precondition, reason: "STALLED", retryable: true} = error} =
             Results.of(evaluation(%{state: :failed, problem: problem}))

    assert error.details == %{"evaluation_id" => "e-1"}

    assert {:error, %Error{code: :cancelled}} = Results.of(evaluation(%{state: :cancelled, problem: problem}))
    assert {:error, %Error{reason: "NOT_ENDED"}} = Results.of(evaluation(%{state: :running}))
  end

  test "metrics under proposed names leave out what is undefined, and pass errors on" do
    reply = {:ok, %{metrics: %{values: %{"a" => 1.0, "b" => 2.0}, undefined: %{"c" => "why"}}}}
    assert Metrics.named(reply, %{"a" => :a, "c" => :c}) == %{a: 1.0, undefined: %{"c" => "why"}}
    assert Metrics.keyed(reply) == %{"a" => 1.0, "b" => 2.0, undefined: %{"c" => "why"}}
    assert Metrics.named({:error, :e}, %{}) == {:error, :e}
    assert Metrics.keyed({:error, :e}) == {:error, :e}
  end
end
