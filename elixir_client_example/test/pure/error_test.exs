defmodule CrucibleBridge.ErrorTest do
  # Not async: tests beside it would make atoms of their own while one of these counts them.
  use ExUnit.Case, async: false

  alias CrucibleBridge.Error

  doctest Error

  # Statuses as a worker writes them: one a line, made and compared by the worker's own tests.
  @cases "statuses.txt"
         |> Path.expand(__DIR__)
         |> File.read!()
         |> String.split("\n", trim: true)
         |> Enum.reject(&String.starts_with?(&1, "#"))
         |> Enum.map(&String.split(&1, "\t"))

  @any "type.googleapis.com/google.rpc."

  defp failure([status, text, details | _wanted]) do
    details =
      for detail <- String.split(details, ",", trim: true) do
        [type, bytes] = String.split(detail, ":")
        %{type_url: @any <> type, value: Base.decode16!(bytes, case: :lower)}
      end

    %{status: String.to_integer(status), message: text, details: details}
  end

  test "what a worker's status tells is what the error holds" do
    assert length(@cases) > 5

    for [_status, _text, _details, code, reason, field, message, retryable, retry_after_ms, facts] = line <- @cases do
      error = Error.from_rpc(failure(line))
      assert Atom.to_string(error.code) == code
      assert error.reason == reason
      assert error.field == field
      assert error.message == message
      assert to_string(error.retryable) == retryable
      assert to_string(error.retry_after_ms) == retry_after_ms
      assert error.details |> Enum.sort() |> Enum.map_join(",", fn {key, value} -> "#{key}=#{value}" end) == facts
    end
  end

  test "a status without details is judged by its code alone: a broken connection may be tried again" do
    for {status, code, reason, retryable} <- [
          {4, :deadline_exceeded, "DEADLINE_EXCEEDED", true},
          {13, :internal, "TRANSPORT", true},
          {14, :unavailable, "TRANSPORT", true},
          {3, :invalid_argument, "INVALID_FIELD", false},
          {5, :not_found, "NOT_FOUND", false},
          {99, :unknown, "UNKNOWN", false}
        ] do
      assert %Error{code: ^code, reason: ^reason, retryable: ^retryable} =
               Error.from_rpc(%{status: status, message: "x", details: nil})
    end
  end

  test "a message that is too large is not sent again" do
    text = "Received message larger than max (70000000 vs. 67108864)"

    assert %Error{code: :resource_exhausted, reason: "MESSAGE_TOO_LARGE", retryable: false} =
             Error.from_rpc(%{status: 8, message: text, details: nil})
  end

  test "a detail that is cut or mangled costs itself alone" do
    [line | _] = @cases
    failure = failure(line)

    for detail <- 0..(length(failure.details) - 1), cut <- 0..60 do
      mangled =
        update_in(failure.details, fn details ->
          List.update_at(details, detail, &%{&1 | value: binary_part(&1.value, 0, min(cut, byte_size(&1.value)))})
        end)

      assert %Error{code: :invalid_argument} = Error.from_rpc(mangled)
    end
  end

  test "bytes of any kind are read without a crash and make no atom" do
    :rand.seed(:exsss, {1, 2, 3})
    read = fn -> Error.from_rpc(%{status: 3, message: "x", details: noise()}) end
    read.()
    before = :erlang.system_info(:atom_count)
    for _ <- 1..2_000, do: assert(%Error{code: :invalid_argument} = read.())
    assert :erlang.system_info(:atom_count) == before
  end

  test "a call that the other end cancelled, as a server that stops does, is that of a lost worker" do
    assert Error.from_rpc(%{status: 1, message: "CANCELLED", details: nil}) ==
             Error.transport("the worker stopped before it answered")
  end

  test "what is no status at all is a broken connection" do
    for reason <- ["the connection is closed", :timeout, {:down, :noproc}] do
      assert %Error{code: :unavailable, reason: "TRANSPORT", retryable: true} = Error.from_rpc(reason)
    end
  end

  defp noise do
    for type <- ["ErrorInfo", "BadRequest", "RetryInfo"] do
      # Mostly what looks like fields, so that deeper places are reached.
      value = for _ <- 1..:rand.uniform(6), into: <<>>, do: <<:rand.uniform(3) * 8 + 2, 2, :rand.bytes(2)::binary>>
      noisy = if :rand.uniform(2) == 1, do: value, else: :rand.bytes(:rand.uniform(20))
      domain = if type == "ErrorInfo", do: <<18, 15, "crucible_bridge">>, else: <<>>
      %{type_url: @any <> type, value: domain <> noisy}
    end
  end
end
