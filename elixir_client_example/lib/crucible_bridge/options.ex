defmodule CrucibleBridge.Options do
  @moduledoc "Keywords as a caller writes them, and functions among them."

  alias CrucibleBridge.{Error, Reason}

  require Logger

  @doc """
  Refuses an option that is given twice: one of the two values would be dropped without a word.

  Errors call it `place` and its name. What is no keyword list is for others to refuse.

  ## Examples

      iex> CrucibleBridge.Options.once(max_tokens: 8, seed: 1)
      :ok
      iex> {:error, error} = CrucibleBridge.Options.once([max_tokens: 8, max_tokens: 16], "sampling.")
      iex> Exception.message(error)
      "sampling.max_tokens is given twice"
  """
  @spec once(term(), String.t()) :: :ok | {:error, Error.t()}
  def once(opts, place \\ "") do
    names = if Keyword.keyword?(opts), do: Keyword.keys(opts), else: []

    case names -- Enum.uniq(names) do
      [] -> :ok
      [name | _] -> {:error, Error.invalid("#{place}#{name}", "is given twice")}
    end
  end

  @doc """
  What a function of the caller gives for the option `name`; what it raises, throws or exits with is an error of that option.

  The log has the reason. The error names its kind alone: errors travel, and what a function was called with holds keys.

  ## Examples

      iex> CrucibleBridge.Options.call("model", fn -> "embedded:arithmetic@320" end)
      {:ok, "embedded:arithmetic@320"}
  """
  @spec call(String.t(), (-> result)) :: {:ok, result} | {:error, Error.t()} when result: term()
  def call(name, fun) do
    {:ok, fun.()}
  rescue
    error in Error -> {:error, error}
    error -> failed(name, "raised #{inspect(error.__struct__)}", error)
  catch
    :throw, value -> failed(name, "threw", value)
    :exit, reason -> failed(name, "exited", reason)
  end

  defp failed(name, happened, reason) do
    Logger.warning("[crucible_bridge] the option #{name} #{happened}: #{Reason.describe(reason)}")
    {:error, Error.invalid(name, "#{happened} where it was to give a value; see the log")}
  end
end
