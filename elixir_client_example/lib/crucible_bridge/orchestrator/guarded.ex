defmodule CrucibleBridge.Orchestrator.Guarded do
  @moduledoc false
  # Runs a grader or an environment of the caller. Whatever it does becomes a result; an exception becomes an error.

  alias CrucibleBridge.Error

  @doc "What the function returned, `{:ok, answer}` or `{:error, reason}`; `what` is how errors call the caller's code."
  @spec run(String.t(), (-> {:ok, answer} | {:error, term()})) :: {:ok, answer} | {:error, Error.t()}
        when answer: term()
  def run(what, fun) do
    case fun.() do
      {:ok, answer} -> {:ok, answer}
      {:error, %Error{} = error} -> {:error, error}
      {:error, reason} -> failed(what, "answered with an error: #{text(reason)}", false)
    end
  rescue
    error in Error -> {:error, error}
    error -> failed(what, "raised #{inspect(error.__struct__)}: #{text(Exception.message(error))}", false)
  catch
    :throw, value -> failed(what, "threw #{text(value)}", false)
    # As of a model: a call that timed out may be answered the next time.
    :exit, reason -> failed(what, "exited: #{text(Exception.format_exit(reason))}", true)
  end

  @doc "The error of a function of the caller that gave no answer."
  @spec failed(String.t(), String.t(), boolean()) :: {:error, Error.t()}
  def failed(what, happened, retryable) do
    {:error, %Error{code: :unavailable, reason: "BACKEND_FAILED", message: "#{what} #{happened}", retryable: retryable}}
  end

  @doc "The error of an answer that does not fit its question."
  @spec unfit(String.t()) :: {:error, Error.t()}
  def unfit(message), do: {:error, %Error{code: :unavailable, reason: "BACKEND_ANSWER", message: message}}

  @doc "A text that a message holds: any term, and bytes that are no UTF-8, as Elixir writes them."
  @spec text(term()) :: String.t()
  def text(term) do
    if is_binary(term) and String.valid?(term), do: term, else: inspect(term, limit: 20, printable_limit: 300)
  end
end
