defmodule CrucibleBridge.Orchestrator.Grader do
  @moduledoc """
  A grader that stays with its orchestrator: the worker sends what a model answered, and Elixir judges it.

  One of

    * a function of the answer and a target, `fn response, target -> ... end`, as `grader_fn` is in tinker-cookbook and
      `verify/2` of the modules for `CrucibleKitchen.RL.MathEnv` is: `&MyMath.verify/2`. Of several targets the first that
      the answer is right for counts, else the best; without one, the target is `nil`
    * a function of one argument, `t:question/0`
    * a module with `verify/2`, see `CrucibleBridge.Orchestrator.Verifier`; `{module, opts}` has `verify/3`

  It returns `true` or `false`; a score from 0 to 1; a verdict (`:correct`, `:incorrect`, `:partial`, `:undecided` or
  `:error`); or a map with `:passed`, `:verdict` or `:score`, and `:reason`, `:extracted` and `:measurements` (numbers by
  names) where there are some. Each of them may stand in `{:ok, ...}`.

  `{:error, reason}`, and what it raises, throws or exits with, is no grade: the sample is an error with that text, and
  counts neither as right nor as wrong. A `CrucibleBridge.Error` that is retryable is asked again, as is an exit; so a
  grader that calls a service which is down trains nothing.

  Graders are called by several processes at once, each answer by one of its own.
  """

  alias CrucibleBridge.Error
  alias CrucibleBridge.Orchestrator.{Grade, Guarded, Model}
  alias CrucibleBridge.V1

  @typedoc "A sample of the data set."
  @type sample :: %{
          id: String.t(),
          input: {:text, String.t()} | {:conversation, [{String.t(), String.t()}]} | {:chunks, [Model.chunk()]},
          targets: [String.t()],
          choices: [String.t()],
          metadata: %{String.t() => String.t()}
        }
  @typedoc "What is to be graded. `:repeat` is which of several answers to the sample, from 0."
  @type question :: %{
          grader: String.t(),
          evaluator: String.t(),
          sample: sample(),
          repeat: non_neg_integer(),
          response: String.t()
        }
  @type result :: term()
  @type t ::
          (String.t(), String.t() | nil -> result())
          | (question() -> result())
          | module()
          | {module(), keyword()}

  @doc "Whether this is a grader; `field` is what an error calls it."
  @spec check(term(), String.t()) :: :ok | {:error, Error.t()}
  def check(grader, _field) when is_function(grader, 1) or is_function(grader, 2), do: :ok

  def check({module, opts}, field) when is_atom(module) and is_list(opts),
    do: verifies(module, 3, field)

  def check(module, field) when is_atom(module) and module != nil, do: verifies(module, 2, field)

  def check(_other, field),
    do: {:error, Error.invalid(field, "is no function of one or two arguments, module or {module, opts}")}

  @doc "What a grader says of an answer."
  @spec grade(t(), question()) :: {:ok, V1.AnsweredGrade.t()} | {:error, Error.t()}
  def grade(grader, question) do
    Guarded.run("the orchestrator's grader #{inspect(question.grader)}", fn -> graded(grader, question) end)
  end

  defp graded(grader, question) when is_function(grader, 1), do: Grade.of(grader.(question))
  defp graded({module, opts}, question), do: Grade.of(module.verify(question.sample, question.response, opts))
  defp graded(module, question) when is_atom(module), do: Grade.of(module.verify(question.sample, question.response))

  defp graded(grader, %{response: response, sample: %{targets: targets}}) do
    targets = if targets == [], do: [nil], else: targets

    Enum.reduce_while(targets, nil, fn target, best ->
      with {:ok, grade} <- Grade.of(grader.(response, target)) do
        better = if best == nil or Grade.worth(grade) > Grade.worth(best), do: grade, else: best
        if match?({true, _score}, Grade.worth(grade)), do: {:halt, grade}, else: {:cont, better}
      else
        error -> {:halt, error}
      end
    end)
    |> case do
      {:error, reason} -> {:error, reason}
      grade -> {:ok, grade}
    end
  end

  # function_exported?/3 does not load, and a module that was not called yet may not be.
  defp verifies(module, arity, field) do
    if Code.ensure_loaded?(module) and function_exported?(module, :verify, arity),
      do: :ok,
      else: {:error, Error.invalid(field, "is #{inspect(module)}, which is no module with verify/#{arity}")}
  end
end
