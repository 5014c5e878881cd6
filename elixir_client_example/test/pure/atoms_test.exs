defmodule CrucibleBridge.AtomsTest do
  use ExUnit.Case, async: true

  # Atoms are never collected: whoever may name them may fill the table, and stop the machine.
  @makers ~r/(String\.to_atom|String\.to_existing_atom|List\.to_atom|binary_to_atom|binary_to_existing_atom|list_to_atom|binary_to_term|Module\.concat|keys:\s*:atoms)/

  test "no atom is made of what a worker says: nothing in the sources could" do
    sources = Path.wildcard(Path.expand("../../lib/**/*.ex", __DIR__))
    assert length(sources) > 20

    for source <- sources, {line, number} <- source |> File.read!() |> String.split("\n") |> Enum.with_index(1) do
      refute line =~ @makers, "#{source}:#{number}: #{line}"
    end
  end

  test "interpolated atoms are made at compile time alone" do
    for source <- Path.wildcard(Path.expand("../../lib/**/*.ex", __DIR__)),
        File.read!(source) =~ ~r/:"[^"\n]*\#\{/ do
      assert Path.basename(source) in ["elements.ex", "names.ex"]
    end
  end
end
