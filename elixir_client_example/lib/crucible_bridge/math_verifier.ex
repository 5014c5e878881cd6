defmodule CrucibleBridge.MathVerifier do
  @moduledoc """
  A verifier for `CrucibleKitchen.RL.MathEnv`, by its configuration `math_verify_module: CrucibleBridge.MathVerifier`.

  The environment takes whatever is not `true` for a wrong answer, errors included. So what failed is raised here: a
  worker that is down must end a rollout, not train a model on rewards of 0.

  What is `UNDECIDED` - a reference answer without a meaning, or a pair out of the budget of time - is `false`, as an
  environment needs a reward, and is counted: `undecided_count/0`, and `[:crucible_bridge, :math_verifier, :undecided]`
  with `%{count: 1}` and the reason as metadata. A count that grows says that the data set wants a look.

  The environment asks `function_exported?/3`, which loads nothing, and would find every answer wrong; a
  `CrucibleBridge.Connection` that starts loads this module.
  """

  alias CrucibleBridge.{Error, MathGrading}

  @on_load :make_counter
  @event [:crucible_bridge, :math_verifier, :undecided]

  @doc """
  Whether an answer equals the reference, by `CrucibleBridge.MathGrading.grade_answer/3`.

  Options: those of `CrucibleBridge.MathGrading.grade_answer/3`, and `:timeout_ms`, which the environment passes on from `math_verify_timeout_ms`.

  Raises `CrucibleBridge.Error` where the grader failed or could not be asked.
  """
  @spec verify(String.t(), String.t(), keyword()) :: boolean()
  def verify(given, ground_truth, opts \\ []) do
    {timeout, opts} = Keyword.pop(opts, :timeout_ms)
    opts = if timeout, do: Keyword.put(opts, :timeout, timeout), else: opts

    case MathGrading.grade_answer(given, ground_truth, opts) do
      {:ok, verdict} -> verdict
      {:error, %Error{reason: "UNDECIDED"} = error} -> undecided(error)
      {:error, error} -> raise error
    end
  end

  @doc "Answers of this node that were undecided, since the module was loaded first."
  @spec undecided_count() :: non_neg_integer()
  def undecided_count, do: :counters.get(:persistent_term.get(__MODULE__), 1)

  defp undecided(error) do
    :counters.add(:persistent_term.get(__MODULE__), 1, 1)
    :telemetry.execute(@event, %{count: 1}, %{reason: error.message})
    false
  end

  # When the module is loaded, so that no two callers make a counter each; a module that is loaded again keeps it.
  defp make_counter do
    if :persistent_term.get(__MODULE__, nil) == nil, do: :persistent_term.put(__MODULE__, :counters.new(1, []))
    :ok
  end
end
