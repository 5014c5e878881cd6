defmodule CrucibleBridge.Calls.DerivedTest do
  use ExUnit.Case, async: false

  alias CrucibleBridge.{Connection, Error, TestWorker}

  defmodule Functions do
    use CrucibleBridge.Calls.Derived, besides: [CrucibleBridge.V1.GetInfoRequest]

    def grade_math(_conn, _items), do: :written
    def pass_at_k(_conn), do: :written
  end

  test "a unary call that nobody has written a function for has one, and no other has" do
    functions = Functions.__info__(:functions)
    for arity <- 1..3, do: assert({:compute_sampling_client_metrics, arity} in functions)
    assert Keyword.get_values(functions, :grade_math) == [2]

    for name <- [:compute_pass_at_k, :get_info, :watch_evaluation, :evaluate_with_orchestrator_model] do
      refute Keyword.has_key?(functions, name)
    end
  end

  test "every call of the worker is written for the module that users call" do
    for name <- [:compute_mean_nll, :cancel_evaluation, :get_info, :compute_classification_metrics] do
      refute Keyword.has_key?(CrucibleBridge.__info__(:functions), name)
    end
  end

  test "its fields are named where they are wrong" do
    for {fields, field} <- [{[evaluation: "e"], "options"}, {[evaluation_id: ""], "evaluation_id"}] do
      assert {:error, %Error{code: :invalid_argument, field: ^field}} = Functions.get_evaluation(:no_connection, fields)
    end
  end

  @tag :integration
  test "it asks the worker, and its reply is plain" do
    worker = TestWorker.start()
    conn = start_supervised!({Connection, [name: nil] ++ worker.connect})
    fields = [sampling_client_steps: [4, 4], sampling_seconds: [1.0, 3.0]]
    {:ok, reply} = CrucibleBridge.sampling_client_metrics(conn, [4, 4], [1.0, 3.0])
    assert Functions.compute_sampling_client_metrics(conn, fields) == {:ok, reply}
    assert {:error, %Error{reason: "UNKNOWN_EVALUATION"}} = Functions.get_evaluation(conn, evaluation_id: "nowhere")
  end
end
