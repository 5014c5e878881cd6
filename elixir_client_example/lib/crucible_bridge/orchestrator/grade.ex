defmodule CrucibleBridge.Orchestrator.Grade do
  @moduledoc false
  # What a grader returned, as a message.

  alias CrucibleBridge.Orchestrator.{Guarded, Shapes}
  alias CrucibleBridge.V1
  alias CrucibleBridge.Wire.{Message, Names}

  @fields [:verdict, :score, :reason, :extracted, :measurements]

  @doc "The grade; `{:error, reason}` stays, and what is no grade is an error."
  @spec of(term()) :: {:ok, V1.AnsweredGrade.t()} | {:error, term()}
  def of({:ok, given}), do: of(given)
  def of({:error, reason}), do: {:error, reason}
  def of(true), do: {:ok, %V1.AnsweredGrade{verdict: :VERDICT_CORRECT}}
  def of(false), do: {:ok, %V1.AnsweredGrade{verdict: :VERDICT_INCORRECT}}
  def of(score) when is_number(score), do: made(%{score: score})
  def of(verdict) when is_atom(verdict) and verdict != nil, do: made(%{verdict: verdict})

  def of(%{} = given) do
    fields =
      for name <- @fields, {:ok, value} <- [Shapes.fetch(given, name)], value != nil, into: %{}, do: {name, value}

    case Shapes.fetch(given, :passed) do
      {:ok, passed} when is_boolean(passed) -> made(Map.put_new(fields, :verdict, passed(passed)))
      {:error, _absent} when is_map_key(fields, :verdict) or is_map_key(fields, :score) -> made(fields)
      _other -> none(given)
    end
  end

  def of(given), do: none(given)

  @doc "Whether it is right, and what it is worth, to compare it with others by."
  @spec worth(V1.AnsweredGrade.t()) :: {boolean(), number()}
  def worth(%{verdict: verdict, score: score}), do: {verdict == :VERDICT_CORRECT or score == 1.0, score || 0.0}

  defp passed(true), do: :correct
  defp passed(false), do: :incorrect

  # Texts of a grader are shown to people, and may be anything.
  defp made(fields) do
    fields =
      for {name, value} <- fields,
          into: %{},
          do: {name, if(name in [:reason, :extracted], do: Guarded.text(value), else: value)}

    with :ok <- verdict(fields[:verdict]),
         {:error, error} <- Message.part(fields, V1.AnsweredGrade, "grade"),
         do: Guarded.unfit("the grader's #{error.field} #{error.message}")
  end

  defp verdict(nil), do: :ok

  defp verdict(verdict) do
    case Names.long(V1.Verdict, verdict, "verdict") do
      {:ok, verdict} when verdict != :VERDICT_MEASURED -> :ok
      _other -> Guarded.unfit("the grader's verdict is #{Guarded.text(inspect(verdict))}, which is none")
    end
  end

  defp none(given) do
    Guarded.unfit(
      "the grader returned #{Guarded.text(inspect(given, limit: 5, printable_limit: 100))}: return true, false, a score " <>
        "from 0 to 1, a verdict, a map with :passed, :verdict or :score, or {:error, reason}"
    )
  end
end
