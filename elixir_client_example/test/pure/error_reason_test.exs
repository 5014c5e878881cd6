defmodule CrucibleBridge.Error.ReasonTest do
  use ExUnit.Case, async: true

  alias CrucibleBridge.Error
  alias CrucibleBridge.Error.Reason

  doctest Reason

  test "every reason has a sentence and says whether it is retryable" do
    assert length(Reason.all()) > 100

    for reason <- Reason.all() do
      assert Reason.sentence(reason) =~ ~r/^[A-Za-z].+\.$/
      assert Reason.retryable(reason) in [true, false, nil]
      assert reason == reason |> Atom.to_string() |> String.upcase() |> Reason.of()
    end
  end

  test "an error's reason is found; one of other code is none of the catalogue" do
    assert Reason.of(%Error{reason: "QUEUE_FULL"}) == :queue_full
    assert Reason.retryable(:queue_full)
    refute Reason.retryable(:unknown_evaluator)
    assert Reason.retryable(:backend_answer) == nil
    assert Reason.of(%Error{reason: "ValueError"}) == nil
  end
end
