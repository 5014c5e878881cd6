defmodule CrucibleBridge.Orchestrator.Environment do
  @moduledoc """
  An environment that stays with its orchestrator: the worker's model acts, and Elixir says what follows.

  One of

    * a module of this behaviour, or `{module, opts}`

          defmodule Guess do
            @behaviour CrucibleBridge.Orchestrator.Environment

            @impl true
            def open(episode, _opts), do: {:ok, %{observation: "A number from 1 to 9?"}, rem(episode.seed, 9) + 1}

            @impl true
            def step(%{text: text}, number) do
              if text == to_string(number),
                do: {:ok, %{reward: 1.0, done: true}, number},
                else: {:ok, %{observation: text <> " is wrong. Another one?"}, number}
            end
          end

    * a function of `t:episode/0` that returns a struct: a problem of one turn, see `CrucibleBridge.Orchestrator.Problem`,
      or an environment of `CrucibleTrain.RL.Env`, which has `initial_observation/1` and `step/2` and sees token ids

  Each episode has a process of its own, which calls all these functions. It is killed when its stream breaks, or when an
  answer takes longer than the timeout; processes that are linked to it die with it. `close/1` is called when the worker
  asks nothing more of an episode.

  A turn is a map of `:observation`, what the model sees next, and all of it: text, a conversation
  (`[{role, content}]` or maps of both) or token ids; `:reward`; `:done`; `:metrics`, numbers by names; `:stop`, texts or
  token ids that end the next answer; and of the first turn `:tags`. An observation is absent where the turn is done.

  `{:error, reason}`, and what is raised, ends the episode with that text; the worker counts it as an error, and begins a
  new one where the error is retryable.
  """

  alias CrucibleBridge.Error
  alias CrucibleBridge.Orchestrator.{Grader, Guarded, Problem, Turn}
  alias CrucibleBridge.V1

  @typedoc """
  An episode that begins. `:rollout` is which of the sample's, from 0; `:seed` is the same on every attempt. `:options` are
  the evaluator's `environment_options`.
  """
  @type episode :: %{
          environment: String.t(),
          evaluator: String.t(),
          sample: Grader.sample(),
          seed: non_neg_integer(),
          rollout: non_neg_integer(),
          options: map()
        }
  @typedoc "What the model did. `:tokens` are empty where its server reports none."
  @type action :: %{
          turn: non_neg_integer(),
          text: String.t(),
          tokens: [non_neg_integer()],
          stop_reason: :stop | :length
        }
  @type turn :: %{
          optional(:observation) => term(),
          optional(:reward) => number(),
          optional(:done) => boolean(),
          optional(:metrics) => map(),
          optional(:stop) => [String.t() | non_neg_integer()],
          optional(:tags) => [String.t()]
        }
  @type t :: module() | {module(), keyword()} | (episode() -> struct() | {:ok, struct()} | {:error, term()})
  @typep state :: {:module, module(), term()} | {:problem, struct()} | {:env, struct()}

  @callback open(episode(), opts :: keyword()) :: {:ok, turn(), state :: term()} | {:error, term()}
  @callback step(action(), state :: term()) :: {:ok, turn(), state :: term()} | {:error, term()}
  @callback close(state :: term()) :: term()
  @optional_callbacks close: 1

  @doc "Whether this is an environment; `field` is what an error calls it."
  @spec check(term(), String.t()) :: :ok | {:error, Error.t()}
  def check(environment, _field) when is_function(environment, 1), do: :ok
  def check({module, opts}, field) when is_atom(module) and is_list(opts), do: check(module, field)

  def check(module, field) when is_atom(module) and module != nil do
    if exports?(module, open: 2, step: 2),
      do: :ok,
      else: {:error, Error.invalid(field, "is #{inspect(module)}, which is no module with open/2 and step/2")}
  end

  def check(_other, field),
    do: {:error, Error.invalid(field, "is no module, {module, opts} or function of one argument")}

  @doc "Begins an episode."
  @spec open(t(), episode()) :: {:ok, {V1.AnsweredEnvironment.t(), state()}} | {:error, Error.t()}
  def open(environment, episode), do: guarded(episode.environment, fn -> opened(environment, episode) end)

  @doc "Goes on with one, whose environment has this name."
  @spec step(state(), String.t(), action()) :: {:ok, {V1.AnsweredEnvironment.t(), state()}} | {:error, Error.t()}
  def step(state, name, action), do: guarded(name, fn -> stepped(state, action) end)

  @doc "Tells one that it is over."
  @spec close(state(), String.t()) :: {:ok, term()} | {:error, Error.t()}
  def close({:module, module, state}, name) do
    if function_exported?(module, :close, 1),
      do: Guarded.run(what(name), fn -> {:ok, module.close(state)} end),
      else: {:ok, nil}
  end

  def close(_state, _name), do: {:ok, nil}

  @doc "How errors call an environment."
  @spec what(String.t()) :: String.t()
  def what(name), do: "the orchestrator's environment #{inspect(name)}"

  defp guarded(name, fun) do
    Guarded.run(what(name), fn ->
      with {:ok, turn, state} <- fun.(), {:ok, message} <- Turn.of(turn), do: {:ok, {message, state}}
    end)
  end

  defp opened({module, opts}, episode) do
    with {:ok, turn, state} <- result(module.open(episode, opts)), do: {:ok, turn, {:module, module, state}}
  end

  defp opened(module, episode) when is_atom(module), do: opened({module, []}, episode)

  defp opened(make, episode) when is_function(make) do
    case make.(episode) do
      {:ok, %_module{} = made} -> begun(made)
      %_module{} = made -> begun(made)
      {:error, reason} -> {:error, reason}
      other -> Guarded.unfit("the environment's function returned #{shown(other)}, not a struct")
    end
  end

  # A problem of crucible_train is both: its question needs no renderer here.
  defp begun(%module{} = made) do
    cond do
      exports?(module, get_question: 1, check_answer: 2) ->
        with {:ok, turn} <- Problem.question(made), do: {:ok, turn, {:problem, made}}

      exports?(module, initial_observation: 1, step: 2) ->
        {observation, stop} = module.initial_observation(made)
        {:ok, %{observation: observation, stop: stop}, {:env, made}}

      true ->
        Guarded.unfit(
          "#{inspect(module)} has neither get_question/1 and check_answer/2 nor initial_observation/1 and step/2"
        )
    end
  end

  defp stepped({:module, module, state}, action) do
    with {:ok, turn, state} <- result(module.step(action, state)), do: {:ok, turn, {:module, module, state}}
  end

  defp stepped({:problem, problem} = state, action) do
    with {:ok, turn} <- Problem.answered(problem, action), do: {:ok, turn, state}
  end

  defp stepped({:env, %module{} = made} = state, action) do
    case module.step(made, action.tokens) do
      %{reward: reward, episode_done: done} = result ->
        turn = %{reward: reward, done: done, observation: Map.get(result, :next_observation)}

        {:ok, Map.merge(turn, %{stop: Map.get(result, :next_stop_condition), metrics: Map.get(result, :metrics)}),
         state}

      other ->
        Guarded.unfit("the environment's step returned #{shown(other)}, not a StepResult")
    end
  end

  defp result({:ok, turn, state}), do: {:ok, turn, state}
  defp result({:error, reason}), do: {:error, reason}
  defp result(other), do: Guarded.unfit("the environment returned #{shown(other)}, not {:ok, turn, state}")

  defp shown(term), do: Guarded.text(inspect(term, limit: 5, printable_limit: 100))

  # function_exported?/3 does not load, and a module that was not called yet may not be.
  defp exports?(module, functions) do
    Code.ensure_loaded?(module) and
      Enum.all?(functions, fn {name, arity} -> function_exported?(module, name, arity) end)
  end
end
