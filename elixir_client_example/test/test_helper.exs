# Integration tests start real workers: `mix test --include integration`.
ExUnit.start(exclude: [:integration])
