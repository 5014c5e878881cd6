defmodule CrucibleBridge.MathGrading do
  @moduledoc """
  Whether two answers are mathematically the same, as `CrucibleDatasets.Evaluator.MathGrading` was proposed to say.

  Many pairs are graded faster by one `CrucibleBridge.grade_math/3`.
  """

  alias CrucibleBridge.{Connection, Error}

  @doc """
  Grades one answer against what is right.

  The verdict comes in a tuple, so that a failure is not taken for a `true`. An answer that cannot be judged is neither:
  `{:error, error}` with reason `"UNDECIDED"`, or the reason for which the grader failed.

  Options: `:conn`, and those of `CrucibleBridge.grade_math/3`: what counts as equal, and `:timeout`.
  """
  @spec grade_answer(String.t(), String.t(), keyword()) :: {:ok, boolean()} | {:error, Error.t()}
  def grade_answer(given, ground_truth, opts \\ [])

  def grade_answer(given, ground_truth, opts) when is_binary(given) and is_binary(ground_truth) do
    {conn, opts} = Keyword.pop(opts, :conn, Connection)

    with {:ok, %{grades: [grade]}} <-
           CrucibleBridge.grade_math(conn, [%{answer: given, targets: [ground_truth]}], opts),
         do: verdict(grade)
  end

  def grade_answer(given, _ground_truth, _opts) do
    {:error, Error.invalid(if(is_binary(given), do: "ground_truth", else: "given"), "is no text")}
  end

  defp verdict(%{verdict: :correct}), do: {:ok, true}
  defp verdict(%{verdict: :incorrect}), do: {:ok, false}

  defp verdict(%{verdict: :undecided} = grade) do
    {:error, %Error{code: :failed_precondition, reason: "UNDECIDED", message: "not decided: " <> grade.reason}}
  end

  defp verdict(%{problem: %{} = problem}) do
    {:error, %Error{code: :internal, reason: problem.reason, message: problem.message, retryable: problem.retryable}}
  end
end
