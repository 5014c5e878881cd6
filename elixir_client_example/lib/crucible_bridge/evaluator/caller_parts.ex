defmodule CrucibleBridge.Evaluator.CallerParts do
  @moduledoc false
  # Graders and environments among an evaluator's options that are functions or modules: a text that names each is put in
  # its place, and what the texts name goes to CrucibleBridge.Orchestrator.

  alias CrucibleBridge.Options

  @kinds [grader: :graders, environment: :environments]

  @doc "Evaluators as a worker reads them, and `:graders` and `:environments` by their names."
  @spec taken(term(), keyword()) :: {[term()], keyword()}
  def taken(evaluators, opts) do
    held = [graders: several(opts[:graders], "grader"), environments: several(opts[:environments], "environment")]

    {evaluators, held} = evaluators |> List.wrap() |> Enum.map_reduce(held, &evaluator/2)
    {evaluators, Enum.reject(held, fn {_kind, parts} -> parts == %{} end)}
  end

  @doc "Whether an option's value is code of this node, and not the name of something that the worker has."
  @spec code?(term()) :: boolean()
  def code?({module, opts}) when is_list(opts), do: module?(module)
  def code?(value), do: is_function(value) or module?(value)

  defp several(nil, _alone), do: %{}

  defp several(given, alone) do
    if is_map(given) or Keyword.keyword?(given),
      do: Map.new(given, fn {name, part} -> {if(is_atom(name), do: to_string(name), else: name), part} end),
      else: %{alone => given}
  end

  defp evaluator({kind, options}, held) when is_list(options) or (is_map(options) and not is_struct(options)) do
    {taken, held} = Enum.map_reduce(options, held, &option/2)
    # What is given twice stays so, and is refused where the request is built.
    {{kind, if(Options.once(options) == :ok, do: Map.new(taken), else: taken)}, held}
  end

  defp evaluator(other, held), do: {other, held}

  defp option({key, value}, held) do
    part =
      if is_atom(key), do: @kinds[key], else: Enum.find_value(@kinds, &(to_string(elem(&1, 0)) == key && elem(&1, 1)))

    if part && code?(value) do
      {name, parts} = named(held[part], to_string(key), value)
      {{key, "caller:" <> name}, Keyword.put(held, part, parts)}
    else
      {{key, value}, held}
    end
  end

  # The same one may serve several evaluators.
  defp named(parts, key, value) do
    names = Stream.concat([key], Stream.map(Stream.iterate(2, &(&1 + 1)), &"#{key}-#{&1}"))
    name = Enum.find(names, &(not is_map_key(parts, &1) or parts[&1] == value))
    {name, Map.put(parts, name, value)}
  end

  # :math is the name of a grader, and of a module of Erlang.
  defp module?(atom), do: is_atom(atom) and match?("Elixir." <> _, Atom.to_string(atom))
end
