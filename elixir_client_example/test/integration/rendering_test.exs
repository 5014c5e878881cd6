defmodule CrucibleBridge.RenderingTest do
  use ExUnit.Case, async: false

  @moduletag :integration

  alias CrucibleBridge.{Connection, Error, TestWorker}

  @model "embedded:arithmetic@320"

  setup_all do
    worker = TestWorker.start(args: ["--grading-processes", "0"])
    {:ok, conn} = Connection.start_link([name: nil] ++ worker.connect)
    %{conn: conn}
  end

  test "texts become tokens, and tokens texts", %{conn: conn} do
    assert {:ok, %{items: [%{tokens: [_ | _] = tokens, problem: nil}, %{tokens: []}]}} =
             CrucibleBridge.tokenize(conn, @model, ["12+34=", ""])

    assert {:ok, %{items: [%{text: "12+34="}]}} = CrucibleBridge.detokenize(conn, @model, [tokens])

    assert {:ok, %{items: [%{problem: %{field: "sequences[0].tokens[0]"}}]}} =
             CrucibleBridge.detokenize(conn, @model, [[1_000_000]])

    assert {:error, %Error{field: "tokens[0]"}} = CrucibleBridge.detokenize(conn, @model, ["12"])
  end

  test "conversations become prompts and Datums", %{conn: conn} do
    turns = [%{role: :user, content: "1+1="}]

    assert {:ok, %{items: [%{tokens: [_ | _] = tokens}, %{tokens: tokens}]}} =
             CrucibleBridge.build_generation_prompt(conn, @model, [turns, "1+1="])

    assert {:ok, %{items: [%{tokens: ^tokens}]}} = CrucibleBridge.tokenize(conn, @model, ["1+1="])

    answered = turns ++ [%{role: :assistant, content: "2"}]

    assert {:ok, %{items: [%{weights: [+0.0 | _], datum: datum}]}} =
             CrucibleBridge.build_supervised_example(conn, @model, [answered], renderer: "role_colon")

    assert {:ok, %{outputs: [%{loss: loss, problem: nil}]}} = CrucibleBridge.forward(conn, @model, [datum])
    assert loss > 0
  end

  test "responses become messages", %{conn: conn} do
    assert {:ok, %{items: [%{text: "46", termination: :stop}, %{text: "4", termination: :truncated}]}} =
             CrucibleBridge.parse_response(conn, nil, [" 46\n\nUser:", %{text: " 4", stop_reason: "length"}],
               renderer: "role_colon"
             )

    assert {:ok, %{stop: ["\n\nUser:"]}} = CrucibleBridge.get_stop_sequences(conn, nil, renderer: "role_colon")
    assert {:ok, [%{name: "auto"} | _]} = CrucibleBridge.list_renderers(conn)
  end
end
