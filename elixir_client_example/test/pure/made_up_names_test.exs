defmodule CrucibleBridge.MadeUpNamesTest do
  # Atoms are counted for the whole machine: nothing else may run beside.
  use ExUnit.Case, async: false

  alias CrucibleBridge.{Dataset, Metrics, ModelRef, Results}

  defp evaluation(name) do
    metrics = %{values: %{name => 1.0}, undefined: %{("u" <> name) => name}}

    %{
      state: :completed,
      evaluation_id: name,
      metrics: metrics,
      results: [],
      model_fingerprint: "",
      dataset_fingerprint: ""
    }
  end

  # Whatever modules and atoms the code has of its own are there after the first round.
  defp assert_no_atoms(use_name) do
    for n <- 1..3, do: use_name.("first_#{n}")
    before = :erlang.system_info(:atom_count)
    for n <- 1..300, do: use_name.("made_up_#{n}")
    assert :erlang.system_info(:atom_count) == before
  end

  test "metrics that a worker makes up stay texts" do
    assert_no_atoms(fn name ->
      {:ok, results} = Results.of(evaluation(name))
      assert results.metrics[name] == 1.0
      reply = {:ok, %{metrics: %{values: %{name => 1.0}, undefined: %{}}}}
      assert Metrics.named(reply, %{"x" => :x}) == %{}
      assert Metrics.keyed(reply) == %{name => 1.0}
    end)
  end

  test "fields of items stay texts" do
    assert_no_atoms(fn name ->
      item = %{name => 1, "input" => name, "metadata" => %{name => name}, "messages" => name}
      assert {:ok, {:inline, [%{metadata: %{^name => ^name}}]}} = Dataset.read([item])
    end)
  end

  test "spellings of models stay texts" do
    assert_no_atoms(fn name ->
      assert {:ok, _} = ModelRef.parse("tinker:" <> name)
      assert {:ok, {:installed, %{scheme: ^name}}} = ModelRef.parse(name <> ":x")
      assert {:error, _} = ModelRef.parse("local:x?#{name}=1")
    end)
  end
end
