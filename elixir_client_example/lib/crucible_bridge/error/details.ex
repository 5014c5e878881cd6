defmodule CrucibleBridge.Error.Details do
  @moduledoc false
  # Reads the google.rpc details that a status carries: ErrorInfo, BadRequest and RetryInfo, three messages of strings and
  # one number. By hand, as their generated modules come with other packages under names that a second copy would clash
  # with; and so that a detail that cannot be read costs itself alone, not the error.

  import Bitwise

  @domain "crucible_bridge"
  @error_info "google.rpc.ErrorInfo"
  @bad_request "google.rpc.BadRequest"
  @retry_info "google.rpc.RetryInfo"

  @type told :: %{
          reason: String.t(),
          facts: %{String.t() => String.t()},
          retryable: boolean,
          retry_after_ms: non_neg_integer | nil,
          violation: {String.t(), String.t()} | nil
        }

  @doc "What the details tell, or `:none` where they are not a crucible-bridge worker's. Each has `type_url` and `value`."
  @spec decode(term) :: {:ok, told} | :none
  def decode(details) when is_list(details) do
    by_type =
      for %{type_url: url, value: value} <- details, into: %{}, do: {url |> String.split("/") |> List.last(), value}

    with {:ok, info} <- fields(by_type[@error_info]),
         @domain <- text(info, 2) do
      {retryable, facts} = info |> entries(3) |> Map.pop("retryable", "false")

      {:ok,
       %{
         reason: text(info, 1),
         facts: facts,
         retryable: retryable == "true",
         retry_after_ms: retry_after(by_type[@retry_info]),
         violation: violation(by_type[@bad_request])
       }}
    else
      _not_ours -> :none
    end
  end

  def decode(_none), do: :none

  defp violation(value) do
    with {:ok, request} <- fields(value),
         {:ok, first} <- fields(List.first(values(request, 1))) do
      {text(first, 1), text(first, 2)}
    else
      _absent -> nil
    end
  end

  defp retry_after(value) do
    with {:ok, info} <- fields(value),
         {:ok, delay} <- fields(List.last(values(info, 1))) do
      number(delay, 1) * 1000 + div(number(delay, 2), 1_000_000)
    else
      _absent -> nil
    end
  end

  defp entries(fields, number) do
    for entry <- values(fields, number), {:ok, pair} <- [fields(entry)], into: %{} do
      {text(pair, 1), text(pair, 2)}
    end
  end

  defp text(fields, number), do: Enum.find(values(fields, number), "", &(is_binary(&1) and String.valid?(&1)))
  defp number(fields, number), do: Enum.find(values(fields, number), 0, &is_integer/1)
  defp values(fields, number), do: for({^number, value} <- fields, do: value)

  # A message's fields in order, as {number, integer or binary}.
  defp fields(bytes) when is_binary(bytes), do: fields(bytes, [])
  defp fields(_absent), do: :error

  defp fields(<<>>, read), do: {:ok, Enum.reverse(read)}

  defp fields(bytes, read) do
    with {:ok, key, rest} <- varint(bytes, 0, 0),
         {:ok, value, rest} <- value(key &&& 7, rest) do
      fields(rest, [{key >>> 3, value} | read])
    end
  end

  defp value(0, bytes), do: varint(bytes, 0, 0)
  defp value(1, <<value::little-64, rest::binary>>), do: {:ok, value, rest}
  defp value(5, <<value::little-32, rest::binary>>), do: {:ok, value, rest}

  defp value(2, bytes) do
    with {:ok, length, rest} <- varint(bytes, 0, 0),
         <<value::binary-size(length), rest::binary>> <- rest do
      {:ok, value, rest}
    else
      _cut -> :error
    end
  end

  defp value(_type, _bytes), do: :error

  defp varint(<<1::1, low::7, rest::binary>>, shift, sum) when shift < 63,
    do: varint(rest, shift + 7, sum + (low <<< shift))

  defp varint(<<0::1, low::7, rest::binary>>, shift, sum), do: {:ok, sum + (low <<< shift), rest}
  defp varint(_bytes, _shift, _sum), do: :error
end
