defmodule CrucibleBridge.Orchestrator.Ports do
  @moduledoc """
  A model behind the ports of crucible_train, `CrucibleTrain.Ports.SamplingClient` or `TrainingClient`, made one that
  the worker can ask.

  A sampling client is asked by `sample/5`, `compute_logprobs/4` and `await/2`.

  A training client answers forward passes: by `forward/4` where its adapter has that, else by `forward_backward/4` with
  weights of 0, which the port has. Such a pass adds gradients of 0 under a loss that sums weighted log-probabilities, as
  `cross_entropy` does; whose backend does otherwise leaves `:side` at `:sampling`.

  Neither port tells which token is the likeliest. A model that knows it gets that function afterwards:
  `%{model | argmax: fn chunks -> ... end}`.

  Models of the ports know tokens. What the worker asks in words, as `accuracy` does, needs one of

    * `:renderer` - `{module, state}`, a renderer of crucible_train and what its `init/1` returned
    * `:encode` and `:decode` - functions of a prompt (see `CrucibleBridge.Orchestrator.Model`) to token ids, and of
      token ids to text
  """

  alias CrucibleBridge.Error
  alias CrucibleBridge.Orchestrator.{Model, Shapes, Words}

  @typedoc "A `CrucibleTrain.Ports` or an adapter with its options."
  @type ports :: struct() | {module(), keyword()} | module()

  @doc """
  The model behind a session.

  Options:

    * `:model_name` - what it is known by; required where the evaluation has an id, else one that was never used
    * `:side` - `:sampling` (what is assumed) or `:training`: whose session it is
    * `:renderer`, or `:encode` and `:decode` - see above
    * `:model_input` - a function of chunks, for adapters that take another input than `CrucibleTrain.Types.ModelInput`:
      Kitchen's of Tinkex hands it on, and Tinkex wants its own
    * `:sampling_params` - a function of the params' map, for adapters that take a struct
  """
  @spec model(ports(), term(), keyword()) :: {:ok, Model.t()} | {:error, Error.t()}
  def model(ports, session, opts \\ []) do
    side = Keyword.get(opts, :side, :sampling)

    with {:ok, name} <- name(opts),
         {:ok, words} <- Words.new(opts),
         {:ok, adapter} <- adapter(ports, side) do
      client = %{
        adapter: adapter,
        session: session,
        words: words,
        input: Keyword.get(opts, :model_input, &Shapes.model_input/1),
        params: Keyword.get(opts, :sampling_params, & &1)
      }

      {:ok, model_of(side, name, client)}
    end
  end

  defp name(opts) do
    case {opts[:model_name], opts[:evaluation_id]} do
      {name, _id} when is_binary(name) and name != "" ->
        {:ok, name}

      {nil, none} when none in [nil, ""] ->
        {:ok, "unnamed-#{System.system_time(:nanosecond)}"}

      {nil, _id} ->
        {:error,
         Error.invalid("model_name", "is missing: an evaluation with an id goes on only with a model of the same name")}

      _other ->
        {:error, Error.invalid("model_name", "is no text")}
    end
  end

  defp adapter(%{__struct__: CrucibleTrain.Ports} = ports, :sampling), do: adapter(ports.sampling_client, :sampling)
  defp adapter(%{__struct__: CrucibleTrain.Ports} = ports, :training), do: adapter(ports.training_client, :training)
  defp adapter(module, side) when is_atom(module), do: adapter({module, []}, side)

  defp adapter({module, adapter_opts}, side) when side in [:sampling, :training] do
    # function_exported?/3 does not load, and a module that was not called yet may not be.
    if Code.ensure_loaded?(module) and function_exported?(module, :await, 2),
      do: {:ok, {module, adapter_opts}},
      else: {:error, Error.invalid("model", "has the adapter #{inspect(module)}, which is no module with await/2")}
  end

  defp adapter(_ports, side), do: {:error, Error.invalid("side", "is #{inspect(side)}, not :sampling or :training")}

  defp model_of(:sampling, name, client) do
    %Model{name: name, sample: &sample(client, &1, &2, &3), logprobs: &logprobs(client, &1)}
  end

  defp model_of(:training, name, client), do: %Model{name: name, forward: &forward(client, &1)}

  defp sample(%{adapter: {module, opts}} = client, prompt, params, count) do
    with {:ok, input} <- Words.input(client.words, prompt, client.input),
         asked = Words.with_stops(client.words, prompt, params),
         {:ok, future} <- module.sample(opts, client.session, input, client.params.(asked), num_samples: count),
         {:ok, response} <- module.await(opts, future),
         {:ok, sequences} <- Shapes.fetch(response, :sequences) do
      every(sequences, &Words.sequence(client.words, prompt, asked.stop ++ params.stop, &1))
    end
  end

  defp logprobs(%{adapter: {module, opts}} = client, chunks) do
    with {:ok, future} <- module.compute_logprobs(opts, client.session, client.input.(chunks), []),
         do: module.await(opts, future)
  end

  defp forward(%{adapter: {module, opts}} = client, data) do
    data = Enum.map(data, &Shapes.datum(client.input.(&1.chunks), &1.targets))
    call = if function_exported?(module, :forward, 4), do: :forward, else: :forward_backward

    with {:ok, future} <- future(apply(module, call, [opts, client.session, data, [loss_fn: :cross_entropy]])),
         {:ok, output} <- module.await(opts, future),
         {:ok, outputs} <- Shapes.fetch(output, :loss_fn_outputs) do
      every(outputs, &Shapes.logprobs/1)
    end
  end

  # The port says a bare future; adapters are seen with all three.
  defp future({:ok, future}), do: {:ok, future}
  defp future({:error, reason}), do: {:error, reason}
  defp future(future), do: {:ok, future}

  defp every(values, read) when is_list(values) do
    Enum.reduce_while(values, {:ok, []}, fn value, {:ok, done} ->
      case read.(value) do
        {:ok, one} -> {:cont, {:ok, [one | done]}}
        {:error, reason} -> {:halt, {:error, reason}}
      end
    end)
    |> case do
      {:ok, done} -> {:ok, Enum.reverse(done)}
      error -> error
    end
  end

  defp every(_other, _read), do: Shapes.unfit()
end
