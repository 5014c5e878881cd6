defmodule CrucibleBridge.MixProject do
  use Mix.Project

  def project do
    [
      app: :crucible_bridge,
      version: "0.1.0",
      # test/pure needs 1.14; grpc needs 1.15, protobuf 0.17 needs 1.16.
      elixir: "~> 1.14",
      elixirc_paths: elixirc_paths(Mix.env()),
      start_permanent: Mix.env() == :prod,
      deps: deps(System.get_env("BRIDGE_ELIXIR_DEPS")),
      description: "Evaluation, metrics and grading by a crucible-bridge worker"
    ]
  end

  def application, do: [extra_applications: [:logger, :ssl]]

  defp elixirc_paths(:test), do: ["lib", "test/support"]
  defp elixirc_paths(_env), do: ["lib"]

  # CrucibleKitchen and Snakepit are found at run time, where a project has them. They are no optional dependencies either:
  # Mix resolves those of this project, and no version of the one goes with this version of the other.
  defp deps(nil) do
    [
      {:grpc, "~> 0.11.5 or ~> 1.0"},
      {:protobuf, "~> 0.15"},
      {:gun, "~> 2.0"},
      {:telemetry, "~> 1.0"},
      {:jason, "~> 1.4"},
      {:mint, "~> 1.5", optional: true},
      {:castore, "~> 0.1 or ~> 1.0", optional: true},
      {:nx, "~> 0.9", optional: true},
      {:phoenix_pubsub, "~> 2.1", optional: true}
    ]
  end

  # Without Hex: every folder of this folder is a dependency, named as its application. What lies there compiled, with an
  # ebin folder and no mix.exs of its own, is taken as it is.
  defp deps(folder) do
    Mix.SCM.append(CrucibleBridge.InPlaceOfHex)

    for path <- folder |> Path.join("*/{mix.exs,ebin}") |> Path.wildcard(), uniq: true do
      path = Path.dirname(path)

      # A command that does nothing: Mix links what it compiled by a command into _build, but not what it did not compile.
      # With the manager rebar3, which its files would suggest, Mix would fetch rebar3.
      compiled = if File.regular?(Path.join(path, "mix.exs")), do: [], else: [compile: "exit 0", manager: :make]
      {path |> Path.basename() |> String.to_atom(), [path: path, override: true] ++ compiled}
    end
  end
end

defmodule CrucibleBridge.InPlaceOfHex do
  @moduledoc false
  # Stands for Hex in what dependencies ask for, which is overridden by the folders of BRIDGE_ELIXIR_DEPS. What they need
  # for their own development alone is never looked for.

  @behaviour Mix.SCM

  @impl true
  def fetchable?, do: false

  @impl true
  def format(_opts), do: "the folders of BRIDGE_ELIXIR_DEPS"

  @impl true
  def format_lock(_opts), do: nil

  @impl true
  def accepts_options(app, opts) do
    if Enum.any?([:path, :git, :github, :in_umbrella], &Keyword.has_key?(opts, &1)),
      do: nil,
      else: Keyword.put(opts, :dest, Path.join(System.fetch_env!("BRIDGE_ELIXIR_DEPS"), Atom.to_string(app)))
  end

  @impl true
  def checked_out?(opts), do: File.dir?(opts[:dest])

  @impl true
  def lock_status(_opts), do: :ok

  @impl true
  def equal?(one, other), do: one[:dest] == other[:dest]

  @impl true
  def managers(_opts), do: []

  @impl true
  def checkout(opts), do: Mix.raise("BRIDGE_ELIXIR_DEPS has no folder #{Path.basename(opts[:dest])}")

  @impl true
  def update(opts), do: opts[:lock]
end
