defmodule CrucibleBridge.HandlersTest do
  # Handlers of :telemetry in the README, the documentation and the examples: one that raises is detached for good.
  use ExUnit.Case, async: true

  import ExUnit.CaptureIO

  alias CrucibleBridge.Telemetry.Event

  @root Path.expand("../..", __DIR__)
  @pages ["README.md", "../README.md", "../docs/**/*.md"]
  @examples ["examples/*.exs", "bench/*.exs"]

  @bare %{
    kind: :EVENT_KIND_EVALUATION_COMPLETE,
    sequence: 1,
    unix_time_ns: 1,
    duration_ns: 0,
    evaluation_id: "",
    run_id: "",
    step: nil,
    evaluator: "",
    measurements: %{},
    metadata: %{},
    problem: nil,
    correlation_id: ""
  }
  @full %{
    @bare
    | evaluation_id: "e",
      run_id: "r",
      step: 4,
      evaluator: "a",
      measurements: %{"p/nll" => 0.5, "p/a/accuracy" => 1.0, "total" => 2.0, "done" => 1.0},
      metadata: %{"metric_prefix" => "p/", "undefined.p/f1" => "no labels", "state" => "completed"},
      problem: %{reason: "X", message: "y", field: "", retryable: false}
  }

  defp files(patterns), do: Enum.flat_map(patterns, &(@root |> Path.join(&1) |> Path.expand() |> Path.wildcard()))

  # The Elixir that a reader copies.
  defp blocks(markdown) do
    for [_all, code] <- Regex.scan(~r/^```elixir\n(.*?)^```$/ms, markdown), do: code
  end

  defp texts do
    blocks = for page <- files(@pages), code <- blocks(File.read!(page)), do: {Path.relative_to(page, @root), code}
    blocks ++ for example <- files(@examples), do: {Path.relative_to(example, @root), File.read!(example)}
  end

  # What is attached in a text: {event or nil for any, module, function}.
  defp attached(code) do
    {_quoted, found} =
      code
      |> Code.string_to_quoted!()
      |> Macro.prewalk([], fn
        {{:., _, [:telemetry, call]}, _, [_id, events, handler, _config]} = node, found
        when call in [:attach, :attach_many] ->
          {node, [{named(call, events), captured(handler)} | found]}

        node, found ->
          {node, found}
      end)

    Enum.reverse(found)
  end

  defp named(:attach, event) when is_list(event), do: [event]
  defp named(:attach_many, [_ | _] = events), do: events
  defp named(_call, _computed), do: Event.names()

  # A function that the text does not define, or one without a module, cannot be copied and called here.
  defp captured({:&, _, [{:/, _, [{{:., _, [{:__aliases__, _, module}, function]}, _, []}, 4]}]}),
    do: {Module.concat(module), function}

  defp captured(other), do: flunk("is no capture of a function of a module: #{Macro.to_string(other)}")

  defp define(code, module) do
    {_quoted, found} =
      code
      |> Code.string_to_quoted!()
      |> Macro.prewalk([], fn
        {:defmodule, _, [{:__aliases__, _, name}, _body]} = node, found ->
          {node, if(Module.concat(name) == module, do: [node | found], else: found)}

        node, found ->
          {node, found}
      end)

    assert [definition] = found, "#{inspect(module)} is not defined in the text that attaches it"
    Code.compile_quoted(definition)
  end

  # What a handler may get: of every kind of this name, with everything and with nothing; and what another program executes.
  defp events(name) do
    kinds = for kind <- Event.kinds(), Event.name(kind) == name, do: kind

    for(kind <- kinds, event <- [@bare, @full], do: Event.translate(%{event | kind: kind}, "log")) ++
      [{name, %{}, %{}}]
  end

  defp raising(code) do
    Enum.flat_map(attached(code), fn {names, {module, function}} ->
      define(code, module)

      raised =
        for name <- names,
            {name, measurements, metadata} <- events(name),
            error = raised(fn -> apply(module, function, [name, measurements, metadata, self()]) end),
            do: {name, measurements, error}

      # Another test may run the text as a whole.
      :code.delete(module)
      :code.purge(module)
      raised
    end)
  end

  defp raised(fun) do
    capture_io(fn -> send(self(), {:raised, attempt(fun)}) end)
    receive do: ({:raised, error} -> error)
  end

  defp attempt(fun) do
    fun.()
    nil
  rescue
    error -> error
  end

  test "what the pages show is Elixir" do
    for {place, code} <- texts() do
      assert {:ok, _quoted} = Code.string_to_quoted(code), place
    end
  end

  test "no handler that is shown raises, whatever an event lacks" do
    shown = for {place, code} <- texts(), attached(code) != [], do: {place, code}
    assert Enum.map(shown, &elem(&1, 0)) == ["README.md", "examples/training_loop.exs"]
    for {place, code} <- shown, do: assert(raising(code) == [], place)
  end

  test "a handler that takes a measurement for granted is found" do
    code = """
    defmodule CrucibleBridge.HandlersTest.Granted do
      def handle(_name, measurements, _metadata, _config), do: measurements.nll
    end

    :telemetry.attach("x", [:crucible_kitchen, :evaluation, :complete], &CrucibleBridge.HandlersTest.Granted.handle/4, nil)
    """

    assert [{[:crucible_kitchen, :evaluation, :complete], _measurements, %KeyError{key: :nll}} | _] = raising(code)
  end
end
