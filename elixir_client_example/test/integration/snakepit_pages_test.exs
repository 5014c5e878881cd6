if Code.ensure_loaded?(Snakepit) do
  defmodule CrucibleBridge.SnakepitConfiguredTest do
    # The configurations of docs/snakepit.md, copied with other folders, in a real Snakepit.
    use ExUnit.Case, async: false

    alias CrucibleBridge.{Error, SnakepitAdapter}

    @moduletag :integration
    @moduletag :capture_log
    @moduletag timeout: 120_000

    @page Path.expand("../../../docs/snakepit.md", __DIR__)

    setup do
      folder = Path.join(System.tmp_dir!(), "crucible-pages-#{System.unique_integer([:positive])}-#{System.pid()}")
      for name <- ["state", "models", "snakepit"], do: File.mkdir_p!(Path.join(folder, name))
      before = for app <- [:snakepit, :crucible_bridge], do: {app, Application.get_all_env(app)}

      on_exit(fn ->
        Application.stop(:snakepit)

        for {app, env} <- before do
          for {key, _value} <- Application.get_all_env(app), do: Application.delete_env(app, key)
          Application.put_all_env([{app, env}])
        end

        File.rm_rf!(folder)
      end)

      {:ok, folder: folder}
    end

    # Each path of the page's text is one of this test's.
    defp start(adapter, python, folder) do
      code =
        ~r/^```elixir\n(.*?)^```$/ms
        |> Regex.scan(File.read!(@page), capture: :all_but_first)
        |> Enum.map(&hd/1)
        |> Enum.find(&(&1 =~ "config :snakepit" and &1 =~ adapter))
        |> put("/opt/crucible/.venv/bin/python", python)
        |> put("/var/lib/crucible", Path.join(folder, "state"))

      code = if code =~ "/models", do: put(code, ~s("/models"), inspect(Path.join(folder, "models"))), else: code
      config = Config.Reader.eval!(@page, "import Config\n" <> code)
      Application.stop(:snakepit)
      Application.put_all_env(config)
      # What is not the page's subject: where Snakepit keeps its own files, and its log.
      Application.put_all_env(snakepit: [data_dir: Path.join(folder, "snakepit"), log_level: :none])
      {:ok, _started} = Application.ensure_all_started(:snakepit)
      :ok = Snakepit.Pool.await_ready(Snakepit.Pool, 60_000)
    end

    defp put(code, old, new) do
      assert code =~ old
      String.replace(code, old, new)
    end

    defp evaluate do
      Snakepit.execute(
        "evaluate",
        %{model: "embedded:arithmetic@320", evaluators: ["nll"], dataset: %{builtin: "arithmetic", limit: 2}},
        timeout: 60_000
      )
    end

    test "the stand-alone worker has the page's state directory and model root", %{folder: folder} do
      start("CrucibleBridge.SnakepitAdapter", python(), folder)
      assert {:ok, %{"evaluation" => %{"state" => "completed"}}} = evaluate()
      assert [_ | _] = Path.wildcard(Path.join(folder, "state/journal*"))

      # A worker without the model root would say that it has none.
      nowhere = %{model: "local:#{Path.join(folder, "models/nowhere")}", prompts: ["1+1="], sampling: %{max_tokens: 1}}
      assert {:error, %Error{reason: "MODEL_NOT_FOUND"}} = SnakepitAdapter.execute("sample", nowhere, timeout: 60_000)

      # Streams need the adapter at the top level.
      assert :ok = Snakepit.execute_stream("subscribe", %{until_now: true}, fn _chunk -> :ok end)
    end

    # Snakepit's own server needs packages of its own; BRIDGE_SNAKEPIT_PYTHON names an interpreter that has them, too.
    if System.get_env("BRIDGE_SNAKEPIT_PYTHON") do
      test "the adapter class runs in Snakepit's own server, with the page's state directory", %{folder: folder} do
        start("Snakepit.Adapters.GRPCPython", System.fetch_env!("BRIDGE_SNAKEPIT_PYTHON"), folder)
        assert {:ok, %{"evaluation" => %{"state" => "completed"}}} = evaluate()
        assert [_ | _] = Path.wildcard(Path.join(folder, "state/journal*"))
      end
    end

    defp python do
      case System.get_env("BRIDGE_WORKER") do
        nil -> Path.expand("../../../.venv/bin/python", __DIR__)
        worker -> worker |> Path.dirname() |> Path.join("python")
      end
    end
  end
end
