[
  # The generated modules are as their generator leaves them.
  inputs:
    ["{mix,.formatter}.exs", "{config,lib,test,examples,bench}/**/*.{ex,exs}"]
    |> Enum.flat_map(&Path.wildcard(&1, match_dot: true))
    |> Enum.reject(&String.starts_with?(&1, "lib/crucible_bridge/v1/")),
  line_length: 120
]
