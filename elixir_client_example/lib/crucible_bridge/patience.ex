defmodule CrucibleBridge.Patience do
  @moduledoc """
  Trying again what a broken connection or a worker on its way out has ended, for so long.
  """

  alias CrucibleBridge.Error

  @default_ms 60_000
  @first_wait_ms 50
  @max_wait_ms 5_000

  @doc "How long is tried where nobody says, in milliseconds."
  @spec default_ms() :: pos_integer()
  def default_ms, do: @default_ms

  @doc """
  Runs until there is a result, or an error that is not retryable, or the patience is over.

  The function gets the number of the attempt, from 0, and says beside its result whether it got anywhere: patience, in
  milliseconds or `:infinity`, counts anew from the end of such an attempt. `:final` beside a result ends it, retryable
  or not. Between two attempts lies what the error asks for, or a wait that doubles, from #{@first_wait_ms} ms to
  #{@max_wait_ms} ms, drawn evenly from its upper half.
  """
  @spec run((non_neg_integer() -> {{:ok, term()} | {:error, Error.t()}, boolean() | :final}), timeout()) ::
          {:ok, term()} | {:error, Error.t()}
  def run(attempt, patience) when patience == :infinity or (is_integer(patience) and patience >= 0),
    do: run(attempt, patience, 0, 0, until(patience))

  def run(_attempt, _patience),
    do: {:error, Error.invalid("patience_ms", "is neither a number of milliseconds nor :infinity")}

  defp run(attempt, patience, number, waits, until) do
    case attempt.(number) do
      {{:error, %Error{retryable: true} = error}, true} ->
        again(error, attempt, patience, {number, 0, until(patience)})

      {{:error, %Error{retryable: true} = error}, false} ->
        again(error, attempt, patience, {number, waits, until})

      {result, _whatever} ->
        result
    end
  end

  defp again(error, attempt, patience, {number, waits, until}) do
    wait = error.retry_after_ms || wait(waits)

    if now() + wait > until do
      {:error, error}
    else
      Process.sleep(wait)
      run(attempt, patience, number + 1, waits + 1, until)
    end
  end

  defp wait(waits) do
    ceiling = min(@max_wait_ms, @first_wait_ms * Integer.pow(2, min(waits, 16)))
    div(ceiling, 2) + :rand.uniform(div(ceiling, 2))
  end

  # An atom is behind every number.
  defp until(:infinity), do: :infinity
  defp until(patience), do: now() + patience

  defp now, do: System.monotonic_time(:millisecond)
end
