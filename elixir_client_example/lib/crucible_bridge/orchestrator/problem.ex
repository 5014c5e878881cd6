defmodule CrucibleBridge.Orchestrator.Problem do
  @moduledoc """
  An environment of one turn: a question, and a check of its answer. It has the shape that is proposed for Kitchen as
  `Crucible.Problem`, and that `CrucibleTrain.RL.ProblemEnv` has: `CrucibleKitchen.RL.MathEnv` is one.

      environment = fn episode -> %MyProblem{question: episode.sample.input, answer: hd(episode.sample.targets)} end

  The metric `correct` is whether the answer is right. `format` is whether the model ended it by itself and `check_format/2`
  is satisfied, without which the answer alone must have ended. The reward is `format_coef * (format - 1) + correct`, with
  the struct's `:format_coef`, 0.1 if it has none. A struct's `:convo_prefix`, a list of messages, is put before the
  question.

  Neither a renderer nor a tokenizer is needed here: the worker renders the question for its model.
  """

  alias CrucibleBridge.Orchestrator.Guarded

  @callback get_question(problem :: struct()) :: String.t()
  @callback check_answer(problem :: struct(), answer :: String.t()) :: boolean()
  @callback check_format(problem :: struct(), answer :: String.t()) :: boolean()
  @optional_callbacks check_format: 2

  @format_coef 0.1

  @doc "The question."
  @spec question(struct()) :: {:ok, map()}
  def question(%module{} = problem) do
    question = module.get_question(problem)

    case Map.get(problem, :convo_prefix) || [] do
      [] -> {:ok, %{observation: {:text, question}}}
      prefix -> {:ok, %{observation: {:conversation, prefix ++ [%{role: "user", content: question}]}}}
    end
  end

  @doc "What an answer earns."
  @spec answered(struct(), CrucibleBridge.Orchestrator.Environment.action()) :: {:ok, map()} | {:error, term()}
  def answered(%module{} = problem, action) do
    with {:ok, correct} <- flag(module.check_answer(problem, action.text), "check_answer"),
         {:ok, format} <- format(problem, action) do
      coefficient = Map.get(problem, :format_coef, @format_coef)
      {format, correct} = {number(action.stop_reason == :stop and format), number(correct)}
      reward = coefficient * (format - 1.0) + correct
      {:ok, %{reward: reward, done: true, metrics: %{"format" => format, "correct" => correct}}}
    end
  end

  defp format(%module{} = problem, action) do
    if function_exported?(module, :check_format, 2),
      do: flag(module.check_format(problem, action.text), "check_format"),
      else: {:ok, true}
  end

  # Anything else is an outage, which must not count as a wrong answer.
  defp flag(flag, _name) when is_boolean(flag), do: {:ok, flag}
  defp flag(other, name), do: Guarded.unfit("the problem's #{name} returned #{Guarded.text(inspect(other, limit: 5))}")

  defp number(true), do: 1.0
  defp number(false), do: 0.0
end
