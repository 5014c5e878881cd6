# KL of 512 sequences of 2,048 tokens by a worker, against crucible_train's own; and what a small call costs.
#
#     mix run bench/metrics.exs
#
# The worker is asked for at WORKER_ADDRESS (127.0.0.1:50051 if unset). Where crucible_train is no dependency, it is left out.

Code.require_file("measure.exs", __DIR__)
alias CrucibleBridge.{Connection, Tensor}

address = System.get_env("WORKER_ADDRESS", "127.0.0.1:50051")
{:ok, _} = Connection.start_link(address: address)
{:ok, mint} = Connection.start_link(name: nil, address: address, adapter: :mint)
:ok = Connection.await(Connection, 10_000)

sequences = 512
tokens = 2048
:rand.seed(:exsss, {7, 7, 7})
column = fn value -> for _ <- 1..sequences, do: for(_ <- 1..tokens, do: value.()) end
logprobs = column.(fn -> -:rand.uniform() end)
training = Enum.map(logprobs, fn sequence -> Enum.map(sequence, &(&1 + 0.01 * :rand.normal())) end)
masks = column.(fn -> if :rand.uniform() < 0.9, do: 1.0, else: 0.0 end)

packed = fn column, dtype ->
  for sequence <- column do
    {:ok, tensor} = Tensor.pack(sequence, dtype: dtype)
    tensor
  end
end

datum = fn {logprobs, mask} -> %{model_input: [], loss_fn_inputs: %{"logprobs" => logprobs, "mask" => mask}} end
lists = logprobs |> Enum.zip(masks) |> Enum.map(datum)
binaries = logprobs |> packed.(:f32) |> Enum.zip(packed.(masks, :f32)) |> Enum.map(datum)
packed_training = packed.(training, :f32)

kl = fn conn, data, training ->
  {:ok, %{metrics: %{values: values}}} = CrucibleBridge.kl_sample_train(conn, data, training)
  values
end

IO.puts("KL of #{sequences} sequences of #{tokens} tokens, the whole call")
Measure.calls("  from binaries (float32)", 30, fn -> kl.(Connection, binaries, packed_training) end)
Measure.calls("  from binaries, mint", 30, fn -> kl.(mint, binaries, packed_training) end)
Measure.calls("  from lists", 10, fn -> kl.(Connection, lists, training) end)

if Code.ensure_loaded?(CrucibleTrain.RL.Metrics) do
  data = fn sequence -> CrucibleTrain.Types.TensorData.from_list(sequence, :float32) end

  baseline =
    for {logprobs, mask} <- Enum.zip(logprobs, masks) do
      %{loss_fn_inputs: %{"logprobs" => data.(logprobs), "mask" => data.(mask)}}
    end

  own = fn -> CrucibleTrain.RL.Metrics.compute_kl_sample_train(baseline, training) end
  Measure.say("  crucible_train's own, from lists", "#{Measure.round3(Measure.milliseconds(own))} ms (one call)")
  ours = kl.(Connection, lists, training)
  apart = own.() |> Enum.map(fn {key, value} -> abs(value - ours[key]) end) |> Enum.max()
  Measure.say("  farthest apart of its three values", "#{apart}")
end

IO.puts("a small call: pass@k of one problem")
small = fn conn -> fn -> {:ok, _} = CrucibleBridge.pass_at_k(conn, [10], [3], 1) end end
{:ok, channel} = Connection.channel(Connection)
request = %CrucibleBridge.V1.ComputePassAtKRequest{}
Measure.calls("  gun", 2000, small.(Connection))
Measure.calls("  mint", 2000, small.(mint))

Measure.calls("  the generated stub on the same channel", 2000, fn ->
  CrucibleBridge.V1.MetricsService.Stub.compute_pass_at_k(channel, request)
end)
