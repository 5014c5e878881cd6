defmodule CrucibleBridge.DueTest do
  use ExUnit.Case, async: true

  alias CrucibleBridge.Stages.Evaluate

  doctest Evaluate, only: [due?: 2, stopped?: 1, training?: 1]

  test "every number of steps is due at those that it divides, 0 included, and at the last" do
    due = for step <- 0..6, Evaluate.due?(3, %{step: step, last: step == 5}), do: step
    assert due == [0, 3, 5, 6]
    assert Evaluate.due?(nil, %{step: 7, last: false})
    assert Evaluate.due?(0, %{step: 7, last: true})
    refute Evaluate.due?(0, %{step: 0, last: false})
  end
end
