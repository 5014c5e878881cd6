defmodule CrucibleBridge.Orchestrator.Answering do
  @moduledoc false
  # Who answers the questions of one stream, in supervised processes.
  #
  # A question to the model has one, which also sends its answer. One to a grader or an environment has two: a hand, which
  # runs the caller's code, and a teller, which waits for the hand, at most as long as the timeout, and sends its answer,
  # or why there is none: a hand that hangs or is killed costs its own question. An episode has the same hand all along,
  # which keeps its state. A question that is withdrawn ends the processes that answer it.

  alias CrucibleBridge.Error
  alias CrucibleBridge.Orchestrator.{Environment, Frames, Grader, Guarded, Held, Model}

  # Answered questions are forgotten once so many are remembered.
  @remembered 256

  @enforce_keys [:supervisor, :held, :send]
  defstruct [:supervisor, :held, :send, open: %{}, episodes: %{}]

  @type t :: %__MODULE__{
          supervisor: pid(),
          held: Held.t(),
          send: (struct() -> term()),
          open: %{non_neg_integer() => [pid()]},
          episodes: %{non_neg_integer() => {pid(), String.t()}}
        }

  @doc "Has a question answered."
  @spec ask(t(), struct()) :: t()
  def ask(state, question) do
    {pids, state} = started(Frames.question(question), question, state)
    %{state | open: state.open |> pruned() |> Map.put(question.id, pids)}
  end

  @doc "Ends the processes that answer a question, which was withdrawn."
  @spec withdraw(t(), non_neg_integer()) :: t()
  def withdraw(state, id) do
    {pids, open} = Map.pop(state.open, id, [])
    # One may have ended in this very moment, and then is not found.
    Enum.each(pids, &Task.Supervisor.terminate_child(state.supervisor, &1))
    %{state | open: open}
  end

  @doc "Ends an episode."
  @spec close(t(), non_neg_integer()) :: t()
  def close(state, episode) do
    {found, episodes} = Map.pop(state.episodes, episode)

    with {hand, name} <- found do
      over = fn kept -> {if(kept == nil, do: {:ok, nil}, else: Environment.close(kept, name)), nil} end
      start(state, fn -> call(hand, over, state.held.timeout, Environment.what(name), :last) end)
    end

    %{state | episodes: episodes}
  end

  defp started({:ok, {:grade, asked}}, question, state) do
    grader = Map.get(state.held.graders, asked.grader)
    hand = start(state, &hand/0)
    grading = fn kept -> {if(grader, do: Grader.grade(grader, asked), else: missing("grader", asked.grader)), kept} end
    teller = teller(state, question, hand, grading, "the orchestrator's grader #{inspect(asked.grader)}", :last)
    {[teller, hand], state}
  end

  defp started({:ok, {:open, number, episode}}, question, state) do
    %{environment: name} = episode
    environment = Map.get(state.held.environments, name)
    hand = start(state, &hand/0)

    opening = fn _kept ->
      turn(if(environment, do: Environment.open(environment, episode), else: missing("environment", name)), nil)
    end

    teller = teller(state, question, hand, opening, Environment.what(name), :further)
    {[teller, hand], %{state | episodes: Map.put(state.episodes, number, {hand, name})}}
  end

  defp started({:ok, {:step, number, action}}, question, state) do
    case state.episodes do
      %{^number => {hand, name}} ->
        stepping = fn
          nil -> {lost(number), nil}
          kept -> kept |> Environment.step(name, action) |> turn(kept)
        end

        {[teller(state, question, hand, stepping, Environment.what(name), :further), hand], state}

      _episodes ->
        {[start(state, fn -> answer(state, question, lost(number)) end)], state}
    end
  end

  defp started(asked, question, %{held: held} = state) do
    answering = fn ->
      # Tasks that a model's client links to this process are awaited, and end it no other way.
      Process.flag(:trap_exit, true)
      answer(state, question, with({:ok, asked} <- asked, do: asked(held.model, asked)))
    end

    {[start(state, answering)], state}
  end

  defp asked(nil, _question), do: Guarded.failed("the orchestrator", "has no model that stays with it", false)
  defp asked(model, question), do: Model.ask(model, question)

  defp turn({:ok, {message, kept}}, _before), do: {{:ok, message}, kept}
  defp turn({:error, error}, before), do: {{:error, error}, before}

  defp teller(state, question, hand, fun, what, order) do
    start(state, fn -> answer(state, question, call(hand, fun, state.held.timeout, what, order)) end)
  end

  # Calls the hand: what it is after may be its last task.
  defp call(hand, fun, timeout, what, order) do
    reference = Process.monitor(hand)
    send(hand, {__MODULE__, self(), reference, fun, order})

    receive do
      {^reference, result} ->
        Process.demonitor(reference, [:flush])
        result

      {:DOWN, ^reference, :process, ^hand, reason} ->
        Guarded.failed(what, "ended without an answer: #{Guarded.text(Exception.format_exit(reason))}", false)
    after
      timeout ->
        Process.demonitor(reference, [:flush])
        Process.exit(hand, :kill)
        Guarded.failed(what, "did not answer within #{timeout} ms", false)
    end
  end

  # Its mailbox is the caller's code's, but for what it is called by.
  defp hand do
    Process.flag(:trap_exit, true)
    hand(nil)
  end

  defp hand(kept) do
    receive do
      {__MODULE__, from, reference, fun, order} ->
        {result, kept} = fun.(kept)
        send(from, {reference, result})
        if order == :further, do: hand(kept)
    end
  end

  defp start(state, fun) do
    {:ok, pid} = Task.Supervisor.start_child(state.supervisor, fun, shutdown: :brutal_kill)
    pid
  end

  defp answer(state, question, result) do
    state.send.(Frames.answer(question, result))
  catch
    # The connection is lost: its reader ends the stream, and the worker repeats the question on the next one.
    :exit, _reason -> :ok
  end

  defp missing(kind, name) do
    {:error, %Error{code: :unavailable, reason: "BACKEND_ANSWER", message: "there is no #{kind} #{inspect(name)} here"}}
  end

  defp lost(number) do
    {:error,
     %Error{code: :unavailable, reason: "BACKEND_ANSWER", message: "episode #{number} is not open here, or was ended"}}
  end

  defp pruned(open) when map_size(open) < @remembered, do: open
  defp pruned(open), do: open |> Enum.filter(fn {_id, [pid | _]} -> Process.alive?(pid) end) |> Map.new()
end
