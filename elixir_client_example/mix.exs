defmodule CrucibleBridge.MixProject do
  use Mix.Project

  def project do
    [
      app: :crucible_bridge,
      version: "0.1.0",
      # What test/pure tests needs no more than 1.14; grpc and protobuf ask for 1.15.
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
      {:phoenix_pubsub, "~> 2.1", optional: true},
      {:crucible_kitchen, "~> 0.1", optional: true},
      {:snakepit, "~> 0.13", optional: true}
    ]
  end

  # Without Hex: every folder of this folder is a dependency, named as its application. What lies there compiled, with an
  # ebin folder and no mix.exs of its own, is taken as it is.
  defp deps(folder) do
    for path <- folder |> Path.join("*/{mix.exs,ebin}") |> Path.wildcard(), uniq: true do
      path = Path.dirname(path)
      compile = if File.regular?(Path.join(path, "mix.exs")), do: [], else: [compile: false]
      {path |> Path.basename() |> String.to_atom(), [path: path, override: true] ++ compile}
    end
  end
end
