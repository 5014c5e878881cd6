defmodule CrucibleBridge.RenderingTest do
  use ExUnit.Case, async: false

  @moduletag :integration

  alias CrucibleBridge.{Connection, Error, Orchestrator, Specification, TestWorker}
  alias CrucibleBridge.Orchestrator.Model

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

  test "a loop makes Datums, and evaluates their nll on a model that it holds", %{conn: conn} do
    examples = for {question, answer} <- [{"1+1=", "2"}, {"12+34=", "46"}], do: turns(question, answer)

    assert {:ok, %{items: items}} =
             CrucibleBridge.build_supervised_example(conn, @model, examples, renderer: "role_colon")

    # The held model gives each target a value of its own, so that the mean shows which ones count.
    held = %Model{
      name: "held@1",
      forward: fn data -> {:ok, for(%{targets: ids} <- data, do: Enum.map(ids, &(&1 / -100)))} end
    }

    {:ok, request} = Specification.build(evaluators: "nll", dataset: Enum.map(items, & &1.datum))
    assert {:ok, %{state: :completed, metrics: %{values: %{"nll" => nll}}}} = Orchestrator.evaluate(conn, request, held)

    counted = for item <- items, {token, weight} <- Enum.zip(item.tokens, item.weights), weight > 0, do: token / 100
    assert_in_delta nll, Enum.sum(counted) / length(counted), 1.0e-6
  end

  test "images and calls of tools arrive", %{conn: conn} do
    image = %{data: <<137, 80>>, format: "png", expected_tokens: 2}
    shown = [%{role: :user, content: ["What is this?", image]}]
    call = %{name: "add", arguments: ~s({"a": 1}), id: "c1"}
    called = [%{role: :user, content: "1+1?"}, %{role: :assistant, content: "", tool_calls: [call]}]

    assert {:ok, %{items: [%{problem: first}, %{problem: second}]}} =
             CrucibleBridge.build_generation_prompt(conn, @model, [shown, called], renderer: "role_colon")

    assert %{field: "conversations[0].messages[0]", message: "has images, reasoning or calls of tools" <> _} = first
    assert %{field: "conversations[1].messages[1]"} = second
  end

  defp turns(question, answer), do: [%{role: :user, content: question}, %{role: :assistant, content: answer}]

  test "responses become messages", %{conn: conn} do
    assert {:ok, %{items: [%{text: "46", termination: :stop}, %{text: "4", termination: :truncated}]}} =
             CrucibleBridge.parse_response(conn, nil, [" 46\n\nUser:", %{text: " 4", stop_reason: "length"}],
               renderer: "role_colon"
             )

    assert {:ok, %{stop: ["\n\nUser:"]}} = CrucibleBridge.get_stop_sequences(conn, nil, renderer: "role_colon")
    assert {:ok, [%{name: "auto"} | _]} = CrucibleBridge.list_renderers(conn)
  end
end
