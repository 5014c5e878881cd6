defmodule CrucibleBridge.ProgramsTest do
  use ExUnit.Case, async: false

  @moduletag :integration
  @moduletag :capture_log

  alias CrucibleBridge.{Connection, Error, TestWorker, V1}

  setup_all do
    worker = TestWorker.start()
    {:ok, conn} = Connection.start_link([name: nil] ++ worker.connect)
    %{conn: conn}
  end

  @add "def add(x, y):\n    return x + y"

  test "a program is judged by every kind of test, and counted for its problem", %{conn: conn} do
    items = [
      %{id: 1, problem_id: "add", response: @add, tests: "assert add(1, 2) == 3"},
      %{id: 2, problem_id: "add", response: @add, tests: [%{function: "add", arguments: [1, 2], expected: 4}]},
      %{id: 3, response: "print(input())", tests: %{stdin: "a", stdout: "a"}},
      %{id: 4, response: "print(1 / 3)", tests: %{stdin: "", stdout: "0.3333", absolute_tolerance: 0.001}},
      %{id: 5, response: @add, tests: %{input_output: %{fn_name: "add", inputs: [[1, 2]], outputs: [3]}}}
    ]

    case CrucibleBridge.grade_code(conn, items, k: [1], timeout_ms: 5_000) do
      {:ok, %{grades: grades, metrics: metrics, problems: problems}} ->
        assert Enum.map(grades, & &1.verdict) == [:correct, :incorrect, :correct, :correct, :correct]
        assert Enum.map(grades, & &1.id) == ["1", "2", "3", "4", "5"]
        assert metrics.values == %{"pass@1" => 0.5}
        assert [%{problem_id: "add", samples: 2, correct: 1}] = problems

      # Nothing is ever run without a sandbox.
      {:error, %Error{reason: "NO_SANDBOX"} = error} ->
        IO.puts("programs are NOT tested: #{Exception.message(error)}")
    end
  end

  test "output is compared by line, by token or within tolerances, as each test says", %{conn: conn} do
    graded =
      for {printed, test, verdict} <- [
            {"'1 2'", %{stdin: "", stdout: "1\n2"}, :incorrect},
            {"'1 2'", %{stdin: "", stdout: "1\n2", by_token: false}, :incorrect},
            {"'1 2'", %{stdin: "", stdout: "1\n2", by_token: true}, :correct},
            {"'1 3'", %{stdin: "", stdout: "1\n2", by_token: true}, :incorrect},
            {"'0.33'", %{stdin: "", stdout: "0.34"}, :incorrect},
            {"'0.33'", %{stdin: "", stdout: "0.34", absolute_tolerance: 0.02}, :correct},
            {"'0.33'", %{stdin: "", stdout: "0.34", absolute_tolerance: 0.002}, :incorrect},
            {"'99.5'", %{stdin: "", stdout: "100.0", relative_tolerance: 0.01}, :correct},
            {"'98.5'", %{stdin: "", stdout: "100.0", relative_tolerance: 0.01}, :incorrect},
            {"'1.5'", %{stdin: "", stdout: "2.0", absolute_tolerance: 1}, :correct},
            {"'3'", %{stdin: "", stdout: "4", absolute_tolerance: 1}, :incorrect},
            {"'1 2'", %{input_output: %{inputs: [""], outputs: ["1\n2"]}}, :incorrect},
            {"'1 2'", %{input_output: %{inputs: [""], outputs: ["1\n2"]}, by_token: true}, :correct},
            {"'1 2'", %V1.StdioTest{stdout: "1\n2"}, :incorrect},
            {"'1 2'", %V1.StdioTest{stdout: "1\n2", comparison: %V1.OutputComparison{by_token: true}}, :correct},
            {"'1 2'", %V1.CodeTest{test: {:stdio, %V1.StdioTest{stdout: "1 2"}}}, :correct},
            {"'1 2'", %V1.InputOutputTests{json: ~s({"inputs": [""], "outputs": ["1 3"]})}, :incorrect},
            {"''); f = lambda: (1", %V1.CallTest{function: "f", expected_json: "1"}, :correct},
            {"''); f = lambda: (0.33", %{function: "f", expected: 0.34}, :incorrect},
            {"''); f = lambda: (0.33", %{function: "f", expected: 0.34, absolute_tolerance: 0.02}, :correct},
            {"'1 2'", %{input_output: ~s({"inputs": [""], "outputs": [["1 2"]]})}, :correct}
          ],
          do: {%{response: "print(#{printed})", tests: test}, verdict}

    {items, wanted} = Enum.unzip(graded)

    case CrucibleBridge.grade_code(conn, items) do
      {:ok, %{grades: grades}} ->
        assert Enum.map(grades, & &1.verdict) == wanted

      {:error, %Error{reason: "NO_SANDBOX"} = error} ->
        IO.puts("comparisons of output are NOT tested: #{Exception.message(error)}")
    end
  end

  test "programs are found inside of responses, and none is run", %{conn: conn} do
    responses = ["```python\n#{@add}\n```\n```python\nadd(1, 2)\n```", " "]

    assert {:ok, [%{program: @add <> "\n", extraction: "block"}, %{program: "", reason: "there is no program"}]} =
             CrucibleBridge.extract_code(conn, responses, names: ["add"])

    assert {:ok, [%{program: "add(1, 2)\n"}, _blank]} = CrucibleBridge.extract_code(conn, responses)
    assert {:ok, [%{program: @add <> "\n"}, _blank]} = CrucibleBridge.extract_code(conn, responses, names: :add)

    bytes = "```python\nprint('" <> <<255>> <> "')\n```"
    assert {:ok, [%{program: "print('\uFFFD')\n", reason: reason}]} = CrucibleBridge.extract_code(conn, bytes)
    assert reason =~ "UTF-8"
    assert {:ok, [%{program: "x = 1", extraction: "whole"}]} = CrucibleBridge.extract_code(conn, "x = 1")
    assert {:error, %Error{field: "responses"}} = CrucibleBridge.extract_code(conn, [])
  end

  test "what is no program, test or option is named", %{conn: conn} do
    assert {:error, %Error{field: "items[0]"}} = CrucibleBridge.grade_code(conn, [%{tests: ["assert f()"]}])
    assert {:error, %Error{field: "items[0].tests[0]"}} = CrucibleBridge.grade_code(conn, [%{response: "", tests: [1]}])

    assert {:error, %Error{field: "items[0].tests[0].expected"}} =
             CrucibleBridge.grade_code(conn, [%{response: "", tests: [%{function: "f", expected: self()}]}])

    assert {:error, %Error{field: "items[0].tests[0].by_token"}} =
             CrucibleBridge.grade_code(conn, [%{response: "", tests: [%{stdin: "", stdout: "", by_token: 1}]}])

    assert {:error, %Error{field: "options"}} = CrucibleBridge.grade_code(conn, [%{response: ""}], memory: 1)
    assert {:error, %Error{field: "image"}} = CrucibleBridge.grade_code(conn, [%{response: ""}], image: self())
  end

  test "a tolerance that makes no sense is refused by the worker, by its path", %{conn: conn} do
    test = %{stdin: "", stdout: "", absolute_tolerance: -1}

    assert {:error, %Error{code: :invalid_argument, field: field}} =
             CrucibleBridge.grade_code(conn, [%{response: "", tests: [test]}])

    assert field =~ "absolute_tolerance"
  end
end
