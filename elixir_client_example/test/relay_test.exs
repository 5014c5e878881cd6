defmodule CrucibleBridge.RelayTest do
  use ExUnit.Case, async: true

  alias CrucibleBridge.{Error, Telemetry}

  @gap [:crucible_bridge, :telemetry, :gap]
  @disconnected [:crucible_bridge, :telemetry, :disconnected]
  @position %{log_id: "log", sequence: 7}

  defmodule Refusing do
    @moduledoc "In the place of a connection: every stream is refused with the same error."

    use GenServer

    def start_link(error), do: GenServer.start_link(__MODULE__, error)

    @impl true
    def init(error), do: {:ok, error}

    @impl true
    def handle_call(:describe, _from, error), do: {:reply, {:error, error}, error}
  end

  setup %{test: test} do
    :ok = :telemetry.attach_many(test, [@gap, @disconnected], &__MODULE__.forward/4, self())
    on_exit(fn -> :telemetry.detach(test) end)
  end

  # Handlers are everybody's; a relay emits in its own process.
  def forward(name, measurements, metadata, test), do: send(test, {self(), name, measurements, metadata})

  defp relay(reason, details) do
    conn = start_supervised!({Refusing, %Error{code: :out_of_range, reason: reason, details: details}})
    telemetry = start_supervised!({Telemetry, name: nil, connection: conn, from: @position})
    Telemetry.child(telemetry, Telemetry.Relay)
  end

  for {reason, details} <- [
        {"BEYOND_LOG", %{}},
        {"BEYOND_LOG", %{"log_id" => "log", "last_sequence" => "many"}},
        {"NO_LONGER_RETAINED", %{"log_id" => "log", "oldest_sequence" => "-3"}},
        {"OTHER_LOG", %{}}
      ] do
    test "#{reason} that does not say where the log goes on, #{inspect(details)}, is waited for and nothing more" do
      relay = relay(unquote(reason), unquote(Macro.escape(details)))
      for _twice <- 1..2, do: assert_receive({^relay, @disconnected, %{retry_in: _}, %{reason: unquote(reason)}}, 5_000)
      refute_received {^relay, @gap, _measurements, _metadata}
    end
  end

  test "a place that is refused although the refusal named it is not asked for again at once" do
    relay = relay("BEYOND_LOG", %{"log_id" => "log", "last_sequence" => "5"})
    assert_receive {^relay, @gap, %{}, %{from: @position, to: %{sequence: 5}}}, 5_000
    assert_receive {^relay, @disconnected, %{retry_in: _}, %{reason: "BEYOND_LOG"}}, 5_000
    refute_received {^relay, @gap, _measurements, _metadata}
  end
end
