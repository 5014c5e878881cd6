defmodule CrucibleBridge.OrchestratorModelTest do
  use ExUnit.Case, async: true

  @moduletag :capture_log

  alias CrucibleBridge.Error
  alias CrucibleBridge.Orchestrator.{Model, Ports}

  doctest Model

  defmodule Client do
    @moduledoc "Both ports of crucible_train, as far as they are asked; the session is the test's process."

    def sample(opts, session, input, params, kw) do
      send(session, {:sample, opts, input, params, kw})
      {:ok, {:sampled, kw[:num_samples]}}
    end

    def compute_logprobs(_opts, session, input, _kw) do
      send(session, {:logprobs, input})
      {:ok, :logprobs}
    end

    def forward_backward(_opts, session, data, kw) do
      send(session, {:forward_backward, data, kw})
      {:forwarded, data}
    end

    def await(_opts, {:sampled, count}) do
      sequence = %{tokens: ~c"42\n\nUser: and", logprobs: [-0.5, -0.25], stop_reason: "length"}
      {:ok, %{sequences: List.duplicate(sequence, count)}}
    end

    def await(_opts, :logprobs), do: {:ok, [nil, -1.0, -2.0]}

    def await(_opts, {:forwarded, data}) do
      outputs =
        for datum <- data,
            do: %{"logprobs" => %{data: Enum.map(datum.loss_fn_inputs["target_tokens"].data, &(&1 / -10))}}

      {:ok, %{loss_fn_outputs: outputs}}
    end
  end

  @params %{max_tokens: 8, temperature: 0.0, top_p: 1.0, stop: []}
  @words [encode: &__MODULE__.encode/1, decode: &List.to_string/1]

  def encode({_kind, text}), do: String.to_charlist(text)

  test "a sampling client is asked through its port, and its stop strings end the text" do
    {:ok, model} = Ports.model({Client, [key: 1]}, self(), [model_name: "m"] ++ @words)
    assert Model.calls(model) == [:sample, :logprobs]

    params = %{@params | stop: ["\n\nUser:"]}
    assert {:ok, [one, one]} = Model.ask(model, {:sample, {:text, "17+25="}, params, 2})
    assert %{text: "42", stop_reason: :length, logprobs: [-0.5, -0.25]} = one
    assert_received {:sample, [key: 1], %{chunks: [%{tokens: ~c"17+25="}]}, ^params, [num_samples: 2]}

    assert {:ok, [-1.0, -2.0]} = Model.ask(model, {:logprobs, [{:tokens, [1, 2, 3]}]})
    assert_received {:logprobs, %{chunks: [%{tokens: [1, 2, 3]}]}}
  end

  test "a training client without a forward pass is asked for one with weights of 0" do
    {:ok, model} = Ports.model({Client, []}, self(), side: :training)
    assert Model.calls(model) == [:forward]
    assert {:ok, [[-0.2, -0.3]]} = Model.ask(model, {:forward, [%{chunks: [{:tokens, [1, 2]}], targets: [2, 3]}]})
    assert_received {:forward_backward, [datum], [loss_fn: :cross_entropy]}
    assert datum.loss_fn_inputs["weights"].data == [0.0, 0.0]
    assert %{data: [2, 3], dtype: :int64, shape: [2]} = datum.loss_fn_inputs["target_tokens"]
  end

  test "words cannot be asked of a client that was given no way to read them, and tokens can" do
    {:ok, model} = Ports.model({Client, []}, self())

    assert {:error, %Error{reason: "NO_TOKENIZER", retryable: false}} =
             Model.ask(model, {:sample, {:text, "q"}, @params, 1})

    assert {:ok, [_]} = Model.ask(model, {:sample, {:chunks, [{:tokens, [1]}]}, @params, 1})
  end

  test "an evaluation that has an id wants a model that has a name" do
    assert {:error, %Error{field: "model_name"}} = Ports.model({Client, []}, self(), evaluation_id: "e-1")
    assert {:ok, %Model{name: "m@4"}} = Ports.model({Client, []}, self(), evaluation_id: "e-1", model_name: "m@4")
    assert {:ok, one} = Ports.model({Client, []}, self())
    assert {:ok, other} = Ports.model({Client, []}, self())
    assert one.name != other.name
  end

  test "what is no client, side or renderer is refused" do
    for {ports, opts} <- [
          {{NoSuchModule, []}, []},
          {{Client, []}, [side: :both]},
          {{Client, []}, [encode: & &1]},
          {{Client, []}, [renderer: {Client, %{}}]},
          {42, []}
        ] do
      assert {:error, %Error{reason: "INVALID_FIELD"}} = Ports.model(ports, self(), opts)
    end
  end

  test "whatever a model does wrong is an error, and its words stay here" do
    question = {:logprobs, [{:tokens, [1, 2]}]}

    for {logprobs, reason, retryable} <- [
          {fn _ -> raise "tml-secret" end, "BACKEND_FAILED", false},
          {fn _ -> throw("tml-secret") end, "BACKEND_FAILED", false},
          {fn _ -> exit({:timeout, "tml-secret"}) end, "BACKEND_FAILED", true},
          {fn _ -> {:error, "tml-secret"} end, "BACKEND_FAILED", false},
          {fn _ -> :nonsense end, "BACKEND_FAILED", false},
          {fn _ -> {:ok, []} end, "BACKEND_ANSWER", false},
          {fn _ -> {:ok, [nil, nil]} end, "BACKEND_ANSWER", false},
          {fn _ -> {:error, %Error{reason: "BUSY", retryable: true}} end, "BUSY", true}
        ] do
      assert {:error, error} = Model.ask(%Model{name: "m", logprobs: logprobs}, question)
      assert {error.reason, error.retryable} == {reason, retryable}
      refute inspect(error) =~ "tml-secret"
    end
  end

  test "NaN and infinities are answers" do
    model = %Model{name: "m", logprobs: fn _ -> {:ok, [nil, :nan, :negative_infinity]} end}
    assert {:ok, [:nan, :negative_infinity]} = Model.ask(model, {:logprobs, [{:tokens, [1, 2, 3]}]})
  end

  test "likeliest tokens are whole numbers, and the first means nothing" do
    argmax = fn ids -> Model.ask(%Model{name: "m", argmax: fn _ -> {:ok, ids} end}, {:argmax, [{:tokens, [1, 2]}]}) end
    assert Model.calls(%Model{name: "m", argmax: &{:ok, &1}}) == [:argmax]
    assert argmax.([nil, 7, -1]) == {:ok, [7, -1]}

    for ids <- [[], [nil, nil], [nil, 1.0], [nil | 7]],
        do: assert({:error, %Error{reason: "BACKEND_ANSWER"}} = argmax.(ids))
  end

  test "an answer that does not fit its question is told as such" do
    model = %Model{name: "m", sample: fn _, _, _ -> {:ok, [%{tokens: [1]}]} end, forward: fn _ -> {:ok, []} end}
    assert {:error, %Error{reason: "BACKEND_ANSWER"}} = Model.ask(model, {:sample, {:text, "q"}, @params, 1})

    assert {:error, %Error{reason: "BACKEND_ANSWER"}} =
             Model.ask(model, {:forward, [%{chunks: [{:tokens, [1]}], targets: [1]}]})

    assert {:error, %Error{reason: "BACKEND_FAILED"}} = Model.ask(model, {:logprobs, [{:tokens, [1]}]})
  end
end
