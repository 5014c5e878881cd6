# Math graded by a worker, pairs a second.
#
#     mix run bench/grading.exs [PAIRS]
#
# PAIRS is a file of JSON lines like {"gold": "\\frac12", "pred": "0.5"}; without one, fractions against decimals that are
# made up here, each graded once. The worker is asked for at WORKER_ADDRESS (127.0.0.1:50051 if unset).

Code.require_file("measure.exs", __DIR__)
alias CrucibleBridge.Connection

{:ok, _} = Connection.start_link(address: System.get_env("WORKER_ADDRESS", "127.0.0.1:50051"))
:ok = Connection.await(Connection, 10_000)

pairs =
  case System.argv() do
    [path] ->
      for line <- File.stream!(path), %{"gold" => gold, "pred" => pred} = Jason.decode!(line), do: {pred, gold}

    [] ->
      for n <- 1..8_000, do: {"#{n / 8}", "\\frac{#{n}}{8}"}
  end

grade = fn batch ->
  {:ok, %{grades: grades}} = CrucibleBridge.grade_math(Connection, batch, timeout: :infinity)
  Enum.map(grades, & &1.verdict)
end

# The processes that grade start with the first call.
grade.([{"1", "1"}])
batches = Enum.chunk_every(pairs, 256)

graded = fn ->
  batches |> Task.async_stream(grade, max_concurrency: 4, timeout: :infinity) |> Enum.flat_map(&elem(&1, 1))
end

{microseconds, verdicts} = :timer.tc(graded)

Measure.say("graded, batches of 256, 4 at once", "#{round(length(pairs) * 1_000_000 / microseconds)} pairs a second")
Measure.say("verdicts", inspect(Enum.frequencies(verdicts)))
