defmodule CrucibleBridge.PatienceTest do
  use ExUnit.Case, async: true

  alias CrucibleBridge.{Error, Patience}

  defp busy(after_ms \\ 1),
    do: {:error, %Error{code: :unavailable, reason: "BUSY", retryable: true, retry_after_ms: after_ms}}

  # Answers in order; the last one for ever.
  defp script(answers) do
    test = self()

    fn number ->
      send(test, {:attempt, number})
      Enum.at(answers, min(number, length(answers) - 1))
    end
  end

  defp attempts do
    receive do
      {:attempt, number} -> [number | attempts()]
    after
      0 -> []
    end
  end

  test "what is retryable is tried again, until there is a result" do
    assert Patience.run(script([{busy(), false}, {busy(), true}, {{:ok, 1}, true}]), 1_000) == {:ok, 1}
    assert attempts() == [0, 1, 2]
  end

  test "what is not, or is said to be final, is not" do
    refused = {:error, Error.invalid("x", "is wrong")}
    assert Patience.run(script([{refused, false}]), 1_000) == refused
    assert Patience.run(script([{busy(), :final}]), 1_000) == busy()
    assert attempts() == [0, 0]
  end

  test "when patience would be over before the next attempt, the last error is the result" do
    assert Patience.run(script([{busy(60_000), false}]), 1_000) == busy(60_000)
    assert Patience.run(script([{busy(1), false}]), 0) == busy(1)
    assert attempts() == [0, 0]
  end

  test "patience may be endless, and what is no patience is refused before anything is tried" do
    assert Patience.run(script([{busy(), false}, {{:ok, 1}, true}]), :infinity) == {:ok, 1}
    assert attempts() == [0, 1]

    for patience <- [-1, 1.5, "1", nil] do
      assert {:error, %Error{field: "patience_ms"}} = Patience.run(script([{{:ok, 1}, true}]), patience)
    end

    assert attempts() == []
  end

  test "patience counts anew from an attempt that got somewhere" do
    # Each wait takes nearly all of it, and together they take more.
    assert Patience.run(script([{busy(150), true}, {busy(150), true}, {busy(150), true}, {{:ok, 1}, true}]), 250) ==
             {:ok, 1}

    assert attempts() == [0, 1, 2, 3]
  end
end
