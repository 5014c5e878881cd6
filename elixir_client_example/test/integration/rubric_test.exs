defmodule CrucibleBridge.RubricTest do
  use ExUnit.Case, async: false

  @moduletag :integration
  @moduletag :capture_log

  alias CrucibleBridge.{Connection, Error, TestModelServer, TestWorker}

  @judge "openai:judges/scripted"
  @criteria [
    %{name: "right", description: "Is the number right?", weight: 3, max: 1},
    {"kind", "Is it put kindly?"}
  ]

  setup_all do
    worker = TestWorker.start(args: ["--openai-server", "judges=" <> TestModelServer.start(&judged/1)])
    {:ok, conn} = Connection.start_link([name: nil] ++ worker.connect)
    %{conn: conn}
  end

  # Likes 46, and prefers it. The mark that parts the texts may hold any digits, so that lines of texts are searched.
  defp judged(question) do
    cond do
      question =~ "nonsense" -> "I would rather not say."
      question =~ "response A" -> preferred(question)
      question =~ "| It is 46." -> said(right: %{reason: "It is.", score: 1}, kind: %{reason: "Dry.", score: 2})
      true -> said(right: %{reason: "It is not.", score: 0}, kind: %{reason: "Dry.", score: 20})
    end
  end

  defp preferred(question) do
    [_, first] = String.split(question, "response A", parts: 2)
    [first, _] = String.split(first, "response B", parts: 2)
    better = if first =~ "| 46", do: "A", else: "B"
    said(right: %{reason: "That one.", better: better}, kind: %{reason: "Alike.", better: "tie"})
  end

  defp said(entries), do: entries |> Map.new() |> Jason.encode!()

  test "responses are judged by weighted criteria, and what they cost is told", %{conn: conn} do
    items = [%{id: 1, question: "12+34?", response: "It is 46.", reference: "46"}, %{id: 2, response: "It is 45."}]

    assert {:ok, %{grades: [right, wrong]} = reply} = CrucibleBridge.grade_rubric(conn, @judge, items, @criteria)
    assert %{grade: %{id: "1", verdict: :correct, method: "judged"}} = right
    assert_in_delta right.grade.score, (3 * 1 + 0.2) / 4, 1.0e-12

    assert [%{name: "right", score: 1.0, reason: "It is."}, %{name: "kind", score: 2.0, clamped: false}] =
             right.criteria

    # 20 of 10 is all of it.
    assert %{grade: %{verdict: :partial, score: 0.25}, criteria: [_, %{score: 10.0, clamped: true}]} = wrong
    assert {reply.prompt_tokens, reply.completion_tokens} == {14, 6}

    assert {:ok, %{grades: [_, %{grade: %{verdict: :correct}}]}} =
             CrucibleBridge.grade_rubric(conn, @judge, items, @criteria, threshold: 0.25)
  end

  test "two responses are compared in both orders", %{conn: conn} do
    items = [%{question: "12+34?", response: "46", other: "45"}, %{question: "12+34?", response: "45", other: "46"}]

    assert {:ok, %{grades: [first, second]}} = CrucibleBridge.grade_rubric(conn, @judge, items, @criteria)
    assert %{grade: %{verdict: :correct, method: "both orders"}} = first
    assert %{grade: %{verdict: :partial}} = second
    assert_in_delta first.grade.score, (3 * 1 + 0.5) / 4, 1.0e-12
    assert_in_delta second.grade.score, 0.5 / 4, 1.0e-12
  end

  test "what is decided is not asked, and what cannot be read is no verdict", %{conn: conn} do
    items = [
      %{response: "46", prior: :incorrect},
      "...",
      %{question: "nonsense", response: "46"}
    ]

    assert {:ok, %{grades: grades}} = CrucibleBridge.grade_rubric(conn, @judge, items, @criteria)
    assert Enum.map(grades, & &1.grade.verdict) == [:incorrect, :incorrect, :error]
    assert Enum.map(grades, & &1.grade.method) |> Enum.take(2) == ["prior", "no content"]
    assert %{problem: %{reason: "INVALID_JUDGEMENT"}} = List.last(grades).grade
  end

  test "what no judge, item or criterion is, is named", %{conn: conn} do
    assert {:error, %Error{code: :not_found, field: "judge" <> _}} =
             CrucibleBridge.grade_rubric(conn, "embedded:nobody", ["46"], @criteria)

    assert {:error, %Error{field: "criteria[1].name"}} =
             CrucibleBridge.grade_rubric(conn, @judge, ["46"], [{"a", "b"}, {"a", "c"}])
  end
end
