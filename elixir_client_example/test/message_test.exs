defmodule CrucibleBridge.Wire.MessageTest do
  use ExUnit.Case, async: true

  alias CrucibleBridge.{Error, V1}
  alias CrucibleBridge.Wire.Message

  defp refused({:error, %Error{code: :invalid_argument, field: field, message: message}}), do: {field, message}

  test "names are those of the proto, in the order of their numbers, and one of a oneof" do
    assert Message.names(V1.BatchLimits) == [:concurrency, :deadline_ms, :item_timeout_ms]
    assert Message.names(V1.ScoreOptions) == [:threshold, :grader, :grader_options, :scorer]
  end

  test "a message of keywords or a map has its fields as their types are" do
    for given <- [[max_tokens: 8, temperature: 1, stop: "x"], %{max_tokens: 8, temperature: 1, stop: ["x"]}] do
      assert Message.build(given, V1.SamplingParams, "sampling") ==
               {:ok, %V1.SamplingParams{max_tokens: 8, temperature: 1.0, stop: ["x"]}}
    end

    assert Message.build(nil, V1.SamplingParams, "sampling") == {:ok, nil}

    assert Message.build(%V1.SamplingParams{top_k: 1}, V1.SamplingParams, "sampling") ==
             {:ok, %V1.SamplingParams{top_k: 1}}

    assert {:ok, %{top_p: nil}} = Message.build([top_p: nil], V1.SamplingParams, "sampling")
  end

  test "what a field cannot hold is named by its path" do
    for {given, module, refusal} <- [
          {[max_token: 8], V1.SamplingParams,
           {"it", "has :max_token; there are max_tokens, temperature, top_p, top_k, seed, stop"}},
          {[temperature: "warm"], V1.SamplingParams, {"it.temperature", "is no number"}},
          {[seed: 1.5], V1.SamplingParams, {"it.seed", "is no integer"}},
          {[stop: ["a", self()]], V1.SamplingParams, {"it.stop[1]", "is no text"}},
          {[by_token: 1], V1.OutputComparison, {"it.by_token", "is neither true nor false"}},
          {[absolute_tolerance: nil], V1.OutputComparison, {"it.absolute_tolerance", "is no number"}},
          {[labels: %{a: %{}}], V1.PlannedEvaluation, {~s(it.labels["a"]), "is no text"}},
          {[sampling: [top_k: :all]], V1.PlannedEvaluation, {"it.sampling.top_k", "is no integer"}},
          {[goal: :larger], V1.RankBy, {"it.goal", "has :larger; there are :higher, :lower"}},
          {5, V1.SamplingParams, {"it", "is neither keywords nor a map"}}
        ] do
      assert refused(Message.build(given, module, "it")) == refusal
    end
  end

  test "what a field may not hold is refused before a call, with what it may" do
    for {given, module, refusal} <- [
          {[max_tokens: 0], V1.SamplingParams, {"it.max_tokens", "is 0, must be at least 1"}},
          {[top_p: 0], V1.SamplingParams, {"it.top_p", "is 0.0, must be above 0.0 and at most 1.0"}},
          {[rounding_digits: 16], V1.MathPolicy, {"it.rounding_digits", "is 16, must be at least 0 and at most 15"}},
          {[stop: ["a", ""]], V1.SamplingParams, {"it.stop[1]", "is empty"}},
          {[choices: []], V1.ChoiceScorer, {"it.choices", "is empty, at least one is needed"}},
          {[name: "", description: "d"], V1.RubricCriterion, {"it.name", "is empty"}},
          {[name: String.duplicate("é", 101)], V1.RubricCriterion,
           {"it.name", "has 101 characters, at most 100 are accepted"}},
          {[metric_prefix: String.duplicate("é", 101)], V1.PlannedEvaluation,
           {"it.metric_prefix", "has 202 bytes, at most 200 are accepted"}},
          {[dtype: "int8"], V1.LocalModel,
           {"it.dtype", ~s(is "int8", must be one of "float32", "bfloat16", "float16")}},
          {[labels: Map.new(1..65, &{"k#{&1}", &1})], V1.PlannedEvaluation,
           {"it.labels", "has 65 entries, at most 64 are accepted"}},
          {[labels: %{a: String.duplicate("x", 1001)}], V1.PlannedEvaluation,
           {~s(it.labels["a"]), "has 1001 bytes, at most 1000 are accepted"}}
        ] do
      assert refused(Message.build(given, module, "it")) == refusal
    end

    for given <- [
          [max_tokens: 1, top_p: 1, stop: [], temperature: 0],
          %V1.SamplingParams{max_tokens: 0}
        ] do
      assert {:ok, %V1.SamplingParams{}} = Message.build(given, V1.SamplingParams, "it")
    end

    assert refused(CrucibleBridge.grade_code(:no_connection, [], timeout_ms: 5)) ==
             {"timeout_ms", "is 5, must be at least 10 and at most 60000"}
  end

  test "options of a call are named as the caller wrote them, and those that are nil are not said" do
    build = &Message.options(&1, V1.ListEvaluationsRequest)
    assert build.(timeout: 5, run_id: nil, page_size: nil) == {:ok, %V1.ListEvaluationsRequest{}}

    assert build.(states: :completed, from_step: 3) ==
             {:ok, %V1.ListEvaluationsRequest{states: [:EVALUATION_STATE_COMPLETED], from_step: 3}}

    assert refused(build.(states: :completed, from_step: 3, from_step: 4)) == {"from_step", "is given twice"}
    assert {"options", "has :run; there are timeout, run_id, " <> _} = refused(build.(run: "r"))
    assert refused(build.(from_step: "3")) == {"from_step", "is no integer"}
    assert {"states", "has :done; there are " <> _} = refused(build.(states: [:done]))
  end

  test "what a request is given by other arguments is no option" do
    build = &Message.options(&1, V1.CancelEvaluationRequest, evaluation_id: "e")
    assert build.(reason: "enough") == {:ok, %V1.CancelEvaluationRequest{evaluation_id: "e", reason: "enough"}}
    assert refused(build.(evaluation_id: "f")) == {"options", "has :evaluation_id; there are timeout, reason"}
  end

  test "a part of a larger map takes the fields that it knows" do
    item = %{id: 7, question: nil, response: <<255>>, references: "a", prior: :incorrect, metadata: %{}}

    assert Message.part(item, V1.RubricItem, "items[0]") ==
             {:ok, %V1.RubricItem{id: "7", response: <<255>>, references: ["a"], prior: :VERDICT_INCORRECT}}
  end
end
