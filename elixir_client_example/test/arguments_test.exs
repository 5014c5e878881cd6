defmodule CrucibleBridge.ArgumentsTest do
  use ExUnit.Case, async: true

  alias CrucibleBridge.{Connection, Error, Orchestrator, Telemetry}
  alias CrucibleBridge.Connection.Call
  alias CrucibleBridge.Orchestrator.Model

  # What is wrong with an argument is said without a worker.
  @conn :no_connection
  @model "embedded:arithmetic@320"

  defp refused({:error, %Error{code: :invalid_argument, field: field}}), do: field

  test "what is no list where a list is wanted is an error, and names itself" do
    assert refused(CrucibleBridge.grade_math(@conn, {"4", "4"})) == "items"
    assert refused(CrucibleBridge.score(@conn, "4", :f1)) == "items"
    assert refused(CrucibleBridge.sample(@conn, @model, "1+1=", sampling: [max_tokens: 2])) == "items"
    assert refused(CrucibleBridge.compute_logprobs(@conn, @model, nil)) == "sequences"
    assert refused(CrucibleBridge.forward(@conn, @model, 5)) == "data"
    assert refused(CrucibleBridge.kl_sample_train(@conn, nil, [])) == "data"
    assert refused(CrucibleBridge.mean_nll(@conn, nil, [])) == "logprobs"
    assert refused(CrucibleBridge.classification(@conn, ["a"], fn -> ["a"] end)) == "targets"
    assert refused(CrucibleBridge.register_plan(@conn, plan_id: "p", evaluations: 5)) == "evaluations"
  end

  test "what is no text where texts are wanted is an error, and names its place" do
    assert refused(CrucibleBridge.grade_math(@conn, [{"4", [4, {:four}]}])) == "items[0].targets[1]"
    assert refused(CrucibleBridge.grade_math(@conn, [%{answer: "4", target: "4", id: {1}}])) == "items[0].id"
    assert refused(CrucibleBridge.classification(@conn, ["a", nil], ["a", "b"])) == "predictions[1]"
    assert refused(CrucibleBridge.classification(@conn, ["a"], ["a"], positive: {:a})) == "positive"
  end

  test "a message of a conversation is never left out" do
    conversation = [%{role: "system", content: "Add."}, %{role: "user", contents: "misspelt"}]
    assert refused(CrucibleBridge.sample(@conn, @model, [conversation], sampling: [max_tokens: 2])) == "items[0][1]"
  end

  test "a time that cannot be waited is an error" do
    for timeout <- ["5", 1.5, 0, -1, nil, 5_000_000_000] do
      assert refused(CrucibleBridge.info(@conn, timeout: timeout)) == "timeout"
      assert refused(CrucibleBridge.watch(@conn, "e", timeout: timeout)) == "timeout"
      assert refused(Connection.await(@conn, timeout)) == "timeout"
      assert refused(Connection.start_link(name: nil, timeout: timeout)) == "timeout"
    end
  end

  test "what is no response, criterion or option of a judgement is named by its path" do
    judged = fn items, criteria, opts -> CrucibleBridge.grade_rubric(@conn, @model, items, criteria, opts) end
    criteria = [{"right", "Is it?"}]
    assert refused(judged.(["46"], [], judge: 1)) == "options"
    assert refused(judged.([%{question: "?"}], criteria, [])) == "items[0]"
    assert refused(judged.([%{response: "46", other: 46}], criteria, [])) == "items[0].other"
    assert refused(judged.([%{response: "46", prior: :wrong}], criteria, [])) == "items[0].prior"
    assert refused(judged.(["46"], "right", [])) == "criteria"
    assert refused(judged.(["46"], [%{name: "right", text: "Is it?"}], [])) == "criteria[0]"
    assert refused(judged.(["46"], [%{name: "right", description: nil}], [])) == "criteria[0].description"
    assert refused(judged.(["46"], [%{name: "right", description: "Is it?", max: "1"}], [])) == "criteria[0].max"
    assert refused(judged.(["46"], criteria, threshold: :half)) == "threshold"
    assert refused(judged.(["46"], criteria, sampling: [tokens: 1])) == "sampling"
  end

  test "what a test of a program has besides its own keys is named, so that no comparison is left out" do
    input_output = %{inputs: [""], outputs: [""]}

    for {test, place} <- [
          {%{stdin: "", stdout: "", by_tokens: true}, ""},
          {%{stdin: "", stdout: "", input_output: input_output}, ""},
          {%{input_output: input_output, tolerance: 0.1}, ""},
          {%{function: "f", arguments: [], expected: 0.5, tolerance: 0.1}, ""},
          {%{function: "f", arguments: [], expected: 0.5, absolute_tolerance: "0.1"}, ".absolute_tolerance"},
          {%{stdin: "", stdout: "", by_token: "true"}, ".by_token"},
          {%{stdin: "", stdout: "", absolute_tolerance: nil}, ".absolute_tolerance"},
          {%{input_output: input_output, relative_tolerance: "0.1"}, ".relative_tolerance"},
          {%{input_output: self()}, ".input_output"}
        ] do
      assert refused(CrucibleBridge.grade_code(@conn, [%{response: "", tests: [test]}])) == "items[0].tests[0]" <> place
    end
  end

  test "what to extract or compare by another name is refused, not taken as if it were not said" do
    assert refused(CrucibleBridge.extract_code(@conn, "add", name: ["add"])) == "options"
    assert refused(CrucibleBridge.extract_code(@conn, "add", names: ["add", {"f"}])) == "names[1]"
    assert refused(CrucibleBridge.extract_code(@conn, "add", names: [1])) == "names[0]"
    assert refused(CrucibleBridge.score(@conn, [{"5", "5.0"}], :exact_match, compare: :numbers)) == "compare"
    assert refused(CrucibleBridge.score(@conn, [{"5", "5.0"}], :exact_match, compared: :number)) == "options"
    assert refused(CrucibleBridge.score(@conn, [{"5", "5.0"}], :contains, compare: :number)) == "options"
    assert refused(CrucibleBridge.grade_math(@conn, [{"5", "5.0"}], log_natural: true)) == "policy"
  end

  test "options without a connection before them are told apart from a connection" do
    assert refused(CrucibleBridge.get_evaluation("evaluation-1", timeout: 5)) == "conn"
  end

  test "an option that is misspelt, or given twice, is refused where it would have chosen" do
    assert refused(CrucibleBridge.get_samples(@conn, "e", verdict: [:incorrect])) == "options"
    assert refused(CrucibleBridge.list_evaluations(@conn, run: "r")) == "options"
    assert refused(CrucibleBridge.subscribe(@conn, after: 5)) == "options"
    assert refused(CrucibleBridge.watch(@conn, "e", after: 5)) == "options"
    assert refused(CrucibleBridge.list_evaluations(@conn, run_id: "a", run_id: "b")) == "run_id"
  end

  test "a value that its field cannot hold is named by the path of the field" do
    error = fn request ->
      try do
        Protobuf.encode(request)
      rescue
        error -> Call.raised(error, nil)
      end
    end

    assert %Error{code: :invalid_argument, field: "dataset.limit", message: message} =
             error.(%CrucibleBridge.V1.EvaluateRequest{dataset: %CrucibleBridge.V1.Dataset{limit: 1.5}})

    assert message =~ ~r/\A1\.5 is invalid/
  end

  test "a model that cannot be asked, and a window that cannot be opened, are refused before a stream is" do
    {:ok, request} = CrucibleBridge.Specification.build(evaluators: :accuracy, dataset: "builtin:arithmetic")
    sample = fn _prompt, _params, _count -> {:ok, []} end

    for model <- [
          %Model{name: "m"},
          %Model{name: "m", sample: fn _prompt -> {:ok, []} end},
          %Model{name: :m, sample: sample}
        ] do
      assert refused(Orchestrator.evaluate(@conn, request, model)) == "model"
    end

    for window <- [0, "1", 1_000_000_000_000] do
      assert refused(Orchestrator.evaluate(@conn, request, %Model{name: "m", sample: sample}, window: window)) ==
               "window"

      model = %Model{name: "m", logprobs: fn _chunks -> {:ok, [nil]} end}
      assert refused(Orchestrator.target_logprobs(model, [], window: window)) == "window"
    end
  end

  test "a relay is not started with what it could only ever fail by" do
    for {option, value} <- [
          conection: @conn,
          kinds: [:EVALUATION_STOP],
          kinds: :EVENT_KIND_EVALUATION_STOP,
          from: 5,
          from: %{sequence: 5},
          position: fn -> nil end,
          run_id: 7
        ] do
      assert refused(Telemetry.start_link([{:name, nil}, {option, value}])) == Atom.to_string(option)
    end
  end
end
