defmodule CrucibleBridge.TutorialTest do
  # The tutorial's blocks, run in its order against a worker: each prints what the page shows after it.
  use ExUnit.Case, async: false

  import ExUnit.CaptureIO

  alias CrucibleBridge.{Telemetry, TestWorker}

  @moduletag :integration
  @moduletag :capture_log
  @moduletag timeout: 180_000

  @page Path.expand("../../../docs/tutorials/elixir.md", __DIR__)

  # Each block of Elixir, with what the page says that it prints.
  defp blocks do
    ~r/^```elixir\n(.*?)^```$(?:\n\nIt prints:\n\n```text\n(.*?)^```$)?/ms
    |> Regex.scan(File.read!(@page), capture: :all_but_first)
    |> Enum.map(fn
      [code] -> {code, ""}
      [code, printed] -> {code, printed}
    end)
  end

  test "each block prints what the page shows" do
    worker = TestWorker.start()
    on_exit(&Telemetry.detach_default_logger/0)
    assert [{connect, ""} | _] = blocks = blocks()
    assert length(blocks) == 5
    assert connect =~ ~s("127.0.0.1:50051")

    Enum.reduce(blocks, {[], __ENV__}, fn {code, printed}, {binding, env} ->
      quoted = code |> String.replace("127.0.0.1:50051", worker.address) |> Code.string_to_quoted!(file: @page)
      parent = self()

      output =
        capture_io(fn ->
          {_value, binding, env} = Code.eval_quoted_with_env(quoted, binding, env)
          send(parent, {:evaluated, binding, env})
        end)

      assert output == printed
      assert_received {:evaluated, binding, env}
      {binding, env}
    end)
  end
end
