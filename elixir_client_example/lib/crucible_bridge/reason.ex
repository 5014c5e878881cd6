defmodule CrucibleBridge.Reason do
  @moduledoc """
  What may be logged of why somebody else's code failed: its kind and its message, never the terms it was called with,
  as sessions and requests hold keys.
  """

  @max_bytes 300

  @doc """
  One line.

      iex> CrucibleBridge.Reason.describe({:save_weights_failed, %{message: "no room left", api_key: "k"}})
      "save_weights_failed: no room left"
      iex> CrucibleBridge.Reason.describe({:timeout, {GenServer, :call, [self(), {:sample, "k"}]}})
      "timeout: {...}"
  """
  @spec describe(term()) :: String.t()
  def describe(%{__exception__: true} = error), do: "#{inspect(error.__struct__)}: #{short(Exception.message(error))}"
  def describe(%{message: message}) when is_binary(message), do: short(message)
  def describe(reason) when is_atom(reason), do: Atom.to_string(reason)
  def describe({tag, inner}) when is_atom(tag), do: "#{tag}: #{describe(inner)}"
  def describe(%{__struct__: module}), do: "a #{inspect(module)}"
  def describe(reason) when is_tuple(reason), do: "{...}"
  def describe(reason) when is_binary(reason), do: "a text"
  def describe(_other), do: "a term"

  defp short(text) do
    if String.valid?(text) and byte_size(text) <= @max_bytes,
      do: text,
      else: inspect(binary_part(text, 0, min(byte_size(text), @max_bytes)))
  end
end
