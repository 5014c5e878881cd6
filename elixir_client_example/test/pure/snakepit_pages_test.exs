defmodule CrucibleBridge.SnakepitPagesTest do
  # Configurations of Snakepit that pages show, read as Snakepit 0.13 reads them: arguments and variables of a pool only
  # where the pool is, the adapter of streams at the top level.
  use ExUnit.Case, async: false

  import ExUnit.CaptureLog

  @root Path.expand("../..", __DIR__)
  @ours CrucibleBridge.SnakepitAdapter
  @theirs Snakepit.Adapters.GRPCPython

  defp page(path), do: @root |> Path.join(path) |> File.read!()

  # Fenced, or indented as in a @moduledoc.
  defp blocks(text) do
    fenced = Regex.scan(~r/^```elixir\n(.*?)^```$/ms, text, capture: :all_but_first)
    indented = Regex.scan(~r/(?:^ {4,}.*\n|^\n)+/m, text)
    for [block] <- fenced ++ indented, block =~ ~r/^\s*config :snakepit,/m, do: block
  end

  defp config(block) do
    lines = block |> String.split("\n") |> Enum.drop_while(&(not (&1 =~ ~r/^\s*config :/)))
    Config.Reader.eval!("page", "import Config\n" <> Enum.join(lines, "\n"))
  end

  defp shown do
    for {place, text} <- [
          {"docs/snakepit.md", page("../docs/snakepit.md")},
          {"README.md", page("README.md")},
          {"lib/crucible_bridge/snakepit_adapter.ex", page("lib/crucible_bridge/snakepit_adapter.ex")}
        ],
        block <- blocks(text),
        do: {place, config(block)}
  end

  # What Snakepit starts of a configuration.
  defp pools(snakepit) do
    for pool <- snakepit[:pools] || [%{name: :default, adapter_module: snakepit[:adapter_module]}] do
      Map.merge(%{adapter_args: [], adapter_env: []}, pool)
    end
  end

  defp faults(config) do
    snakepit = config[:snakepit]

    ignored = for key <- [:adapter_args, :adapter_env], snakepit[key], do: {:ignored, key}

    Enum.concat([
      ignored,
      for(pool <- pools(snakepit), pool.adapter_module != snakepit[:adapter_module], do: {:no_streams, pool.name}),
      Enum.flat_map(pools(snakepit), &started(&1, config))
    ])
  end

  defp started(%{adapter_module: @ours} = pool, config) do
    ours = config[:crucible_bridge][@ours] || []
    args = if pool.adapter_args == [], do: ours[:args] || [], else: pool.adapter_args

    for {fault, false} <- [interpreter: is_binary(ours[:python]), state_dir: "--state-dir" in args],
        do: {fault, pool.name}
  end

  defp started(%{adapter_module: @theirs} = pool, config) do
    variables = Map.new(pool.adapter_env)

    for {fault, false} <- [
          interpreter: is_binary(config[:snakepit][:python_executable]),
          adapter: "crucible_worker.snakepit.adapter.CrucibleAdapter" in pool.adapter_args,
          state_dir: is_map_key(variables, "CRUCIBLE_STATE_DIR")
        ],
        do: {fault, pool.name}
  end

  test "what the pages show reaches the workers: interpreter, state directory and adapter" do
    shown = shown()
    adapters = for {place, config} <- shown, pool <- pools(config[:snakepit]), do: {place, pool.adapter_module}

    assert adapters == [
             {"docs/snakepit.md", @ours},
             {"docs/snakepit.md", @theirs},
             {"README.md", @ours},
             {"lib/crucible_bridge/snakepit_adapter.ex", @ours}
           ]

    for {place, config} <- shown, do: assert({place, faults(config)} == {place, []})
  end

  test "the adapter warns of what Snakepit ignores, and of nothing else" do
    on_exit(fn -> for key <- [:adapter_args, :adapter_env], do: Application.delete_env(:snakepit, key) end)
    Application.put_env(:crucible_bridge, @ours, python: "python-of-the-page")
    on_exit(fn -> Application.delete_env(:crucible_bridge, @ours) end)
    assert capture_log(fn -> assert @ours.executable_path() == "python-of-the-page" end) == ""

    for {key, value} <- [adapter_args: ["--state-dir", "/s"], adapter_env: [{"CRUCIBLE_STATE_DIR", "/s"}]] do
      Application.put_env(:snakepit, key, value)
      log = capture_log(fn -> assert @ours.executable_path() == "python-of-the-page" end)
      assert log =~ "config :snakepit, #{key}: ... has no effect"
      Application.delete_env(:snakepit, key)
    end
  end

  test "a configuration that Snakepit does not read is found" do
    top_level = """
    config :snakepit,
      adapter_module: Snakepit.Adapters.GRPCPython,
      adapter_args: ["--adapter", "crucible_worker.snakepit.adapter.CrucibleAdapter"],
      adapter_env: [{"CRUCIBLE_STATE_DIR", "/var/lib/crucible"}]
    """

    assert [
             ignored: :adapter_args,
             ignored: :adapter_env,
             interpreter: :default,
             adapter: :default,
             state_dir: :default
           ] = top_level |> config() |> faults()

    without_streams = """
    config :crucible_bridge, CrucibleBridge.SnakepitAdapter, python: "python3"
    config :snakepit,
      pools: [%{name: :p, adapter_module: CrucibleBridge.SnakepitAdapter, adapter_args: ["--state-dir", "/s"]}]
    """

    assert [no_streams: :p] = without_streams |> config() |> faults()
  end
end
