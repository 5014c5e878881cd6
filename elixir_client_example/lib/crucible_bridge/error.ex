defmodule CrucibleBridge.Error do
  @moduledoc """
  Whatever the bridge refuses or fails at.

    * `code` - the canonical gRPC status as an atom: `:invalid_argument`, `:not_found`, `:unavailable` ...
    * `reason` - stable, upper case (`"UNKNOWN_EVALUATOR"`); what programs compare. `CrucibleBridge.Error.Reason` is
      the catalogue. `"TRANSPORT"` is a connection that could not be had or broke: whether the worker has handled the
      call is then unknown.
    * `message` - one sentence for people, without the field.
    * `field` - path of the offending field (`data[3].loss_fn_inputs["mask"]`), empty where there is none.
    * `retryable` - whether the same call may succeed later.
    * `retry_after_ms` - milliseconds after which it may; `nil` where nobody knows.
    * `details` - further facts, strings by strings, such as `"evaluation_id"`.
  """

  alias CrucibleBridge.Error.Details

  # Status, code, reason where the status says none, and whether a status without details is worth another try: a killed
  # worker is 13 in the middle of a call, one that is not there is 14, and 4 on some adapters. No caller here cancels a
  # call that it waits for: a server that stops sends 1, and without details that becomes the error of `transport/2`.
  @statuses [
    {1, :cancelled, "TRANSPORT", true},
    {2, :unknown, "UNKNOWN", false},
    {3, :invalid_argument, "INVALID_FIELD", false},
    {4, :deadline_exceeded, "DEADLINE_EXCEEDED", true},
    {5, :not_found, "NOT_FOUND", false},
    {6, :already_exists, "ALREADY_EXISTS", false},
    {7, :permission_denied, "PERMISSION_DENIED", false},
    {8, :resource_exhausted, "RESOURCE_EXHAUSTED", true},
    {9, :failed_precondition, "FAILED_PRECONDITION", false},
    {10, :aborted, "ABORTED", false},
    {11, :out_of_range, "OUT_OF_RANGE", false},
    {12, :unimplemented, "UNIMPLEMENTED", false},
    {13, :internal, "TRANSPORT", true},
    {14, :unavailable, "TRANSPORT", true},
    {15, :data_loss, "DATA_LOSS", false},
    {16, :unauthenticated, "UNAUTHENTICATED", false}
  ]

  @type code ::
          unquote(
            for({_number, code, _reason, _retryable} <- Enum.reverse(@statuses), do: code)
            |> Enum.reduce(&{:|, [], [&1, &2]})
          )

  @type t :: %__MODULE__{
          code: code,
          reason: String.t(),
          message: String.t(),
          field: String.t(),
          retryable: boolean,
          retry_after_ms: non_neg_integer | nil,
          details: %{String.t() => String.t()}
        }

  defexception code: :unknown,
               reason: "UNKNOWN",
               message: "",
               field: "",
               retryable: false,
               retry_after_ms: nil,
               details: %{}

  @doc "The codes, in the order of gRPC's numbers."
  @spec codes() :: [code]
  def codes, do: Enum.map(@statuses, &elem(&1, 1))

  @doc """
  The error that a failed call of elixir-grpc tells of: a `GRPC.RPCError`, or any map with its `status`, `message` and
  `details`. What is no status at all is a broken connection.

  ## Examples

      iex> error = CrucibleBridge.Error.from_rpc(%{status: 5, message: "no such evaluation", details: nil})
      iex> {error.code, error.reason, error.retryable}
      {:not_found, "NOT_FOUND", false}

      iex> error = CrucibleBridge.Error.from_rpc(%{status: 13, message: ":stream_error: :closed", details: nil})
      iex> {error.code, error.reason, error.retryable}
      {:internal, "TRANSPORT", true}
  """
  @spec from_rpc(map | term) :: t
  def from_rpc(%__MODULE__{} = error), do: error

  def from_rpc(%{status: status, message: message} = failure) do
    case Details.decode(Map.get(failure, :details)) do
      {:ok, told} -> told(status(status), text(message), told)
      :none -> untold(status(status), text(message))
    end
  end

  def from_rpc(reason) when is_binary(reason), do: transport(reason)
  def from_rpc(reason), do: transport(inspect(reason))

  @doc """
  A field of the caller's own that cannot be sent.

  ## Examples

      iex> Exception.message(CrucibleBridge.Error.invalid("data[0]", "is not a map"))
      "data[0] is not a map"
  """
  @spec invalid(String.t(), String.t()) :: t
  def invalid(field, message) do
    %__MODULE__{code: :invalid_argument, reason: "INVALID_FIELD", field: field, message: message}
  end

  @doc "A connection that could not be had, or that broke; `retry_after_ms` is when trying again is worth it."
  @spec transport(String.t(), non_neg_integer | nil) :: t
  def transport(message, retry_after_ms \\ nil) do
    %__MODULE__{
      code: :unavailable,
      reason: "TRANSPORT",
      message: message,
      retryable: true,
      retry_after_ms: retry_after_ms
    }
  end

  @doc "A call that its own timeout ended; what it started in the worker may go on."
  @spec timeout(timeout) :: t
  def timeout(milliseconds) do
    %__MODULE__{
      code: :deadline_exceeded,
      reason: "DEADLINE_EXCEEDED",
      message: "no answer within #{milliseconds} ms",
      retryable: true
    }
  end

  @impl true
  def message(%__MODULE__{field: "", message: message}), do: message
  def message(%__MODULE__{field: field, message: message}), do: field <> " " <> message

  defp told({code, _reason, _retryable}, text, told) do
    {field, message} = told.violation || {"", text}

    %__MODULE__{
      code: code,
      reason: told.reason,
      message: message,
      field: field,
      retryable: told.retryable,
      retry_after_ms: told.retry_after_ms,
      details: told.facts
    }
  end

  defp untold({:cancelled, _reason, _retryable}, text) do
    transport(if(text in ["", "CANCELLED"], do: "the worker stopped before it answered", else: text))
  end

  defp untold({code, reason, retryable}, text) do
    # Sending it again makes a message no smaller.
    too_large = code == :resource_exhausted and text =~ "larger than max"

    %__MODULE__{
      code: code,
      reason: if(too_large, do: "MESSAGE_TOO_LARGE", else: reason),
      message: if(text == "", do: "the call ended with #{code}", else: text),
      retryable: retryable and not too_large
    }
  end

  for {number, code, reason, retryable} <- @statuses do
    defp status(unquote(number)), do: unquote({:{}, [], [code, reason, retryable]})
  end

  defp status(_other), do: {:unknown, "UNKNOWN", false}

  defp text(message) when is_binary(message), do: message
  defp text(_none), do: ""
end
