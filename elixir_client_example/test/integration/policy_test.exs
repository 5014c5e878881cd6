defmodule CrucibleBridge.PolicyTest do
  use ExUnit.Case, async: false

  @moduletag :integration
  @moduletag :capture_log

  alias CrucibleBridge.{Connection, TestWorker, V1}

  # An answer and its target that are the same with the rule, and not without it.
  @on [
    percent_lenient: {"45%", "45"},
    units_optional: {"5", "5 cm"},
    equation_value: {"x = 5", "5"},
    interval_or_pair: {"(1, 2)", "1 < x < 2"},
    degrees: {"30^\\circ", "\\pi/6"},
    integration_constants: {"x^2 + K", "x^2 + C"},
    chemical_formulas: {"\\ce{H2O}", "H2O"},
    vector_notations: {"2\\hat{i}", "(2, 0)"},
    chinese_words: {"5千克", "5 kg"},
    dates_and_times: {"March 5", "5 March"},
    regional_numerals: {"1.234,5", "1234.5"},
    unit_names: {"5 nanofarads", "5 \\text{ nF}"},
    fold_base_letters: {"ff_{16}", "FF_{16}"},
    expand_dots: {"\\{1, 2, ..., 5\\}", "\\{1, 2, 3, 4, 5\\}"}
  ]

  @off [
    rename_variables: {"x + 1", "t + 1"},
    tuple_or_set: {"(1, 2)", "\\{1, 2\\}"},
    log_is_natural: {"\\log x", "\\ln x"},
    delta_value: {"\\Delta x = 3", "3"},
    math_in_prose: {"The value is $2(x + 1)$ for all $x$", "The value is $2x + 2$ for all $x$"},
    log_abs_optional: {"\\ln x", "\\ln|x|"}
  ]

  # The same without the rule, and not with it.
  @strict [ordered_lists: {"2, 1", "1, 2"}, require_reduced: {"2/4", "1/2"}]

  setup_all do
    worker = TestWorker.start()
    {:ok, conn} = Connection.start_link([name: nil] ++ worker.connect)
    %{conn: conn}
  end

  defp same?(conn, pair, policy) do
    {:ok, %{grades: [%{verdict: verdict}]}} = CrucibleBridge.grade_math(conn, [pair], policy)
    %{correct: true, incorrect: false}[verdict]
  end

  # What a pair is without the option, with `true` and with `false`.
  defp asked(conn, rules) do
    for {rule, pair} <- rules,
        do: {rule, for(policy <- [[], [{rule, true}], [{rule, false}]], do: same?(conn, pair, policy))}
  end

  test "a rule that is on by default is on without it, and goes off by false", %{conn: conn} do
    assert asked(conn, @on) == for({rule, _pair} <- @on, do: {rule, [true, true, false]})
  end

  test "a rule that is off by default is off without its option, and on with true", %{conn: conn} do
    assert asked(conn, @off) == for({rule, _pair} <- @off, do: {rule, [false, true, false]})
    assert asked(conn, @strict) == for({rule, _pair} <- @strict, do: {rule, [true, false, true]})
  end

  test "a number of digits is one, and 0 is none", %{conn: conn} do
    pair = {"3.14", "3.14159"}

    assert for(policy <- [[], [rounding_digits: 3], [rounding_digits: 0]], do: same?(conn, pair, policy)) == [
             false,
             true,
             false
           ]
  end

  test "several rules go together, also into a verdict on one pair", %{conn: conn} do
    pair = {"\\log x + K", "\\ln x + C"}
    refute same?(conn, pair, [])
    assert same?(conn, pair, log_is_natural: true)
    refute same?(conn, pair, log_is_natural: true, integration_constants: false)
    assert CrucibleBridge.MathGrading.grade_answer("\\log x", "\\ln x", conn: conn, log_is_natural: true) == {:ok, true}

    assert CrucibleBridge.MathGrading.grade_answer("ff_{16}", "FF_{16}", conn: conn, fold_base_letters: false) ==
             {:ok, false}
  end

  test "these are all rules of the policy" do
    fields = %V1.MathPolicy{} |> Map.from_struct() |> Map.drop([:__unknown_fields__, :__protobuf__]) |> Map.keys()
    assert Enum.sort([:rounding_digits | Keyword.keys(@on ++ @off ++ @strict)]) == Enum.sort(fields)
  end
end
