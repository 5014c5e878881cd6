defmodule CrucibleBridge.Orchestrator do
  @moduledoc """
  Evaluates a model that stays here: the other end of `EvaluateWithOrchestratorModel`.

      model = %CrucibleBridge.Orchestrator.Model{name: "adder@1", sample: fn prompt, _params, count -> ... end}
      {:ok, request} = CrucibleBridge.Specification.build(evaluators: "accuracy", dataset: "builtin:arithmetic", ...)
      {:ok, evaluation} = CrucibleBridge.Orchestrator.evaluate(CrucibleBridge.Connection, request, model)

  The worker asks over a stream, several questions at once, and is answered in any order, each answer by a process of its
  own. A stream that breaks is opened again with the same evaluation id, and the evaluation goes on: what was written down
  is not asked again. The caller has to stay: when it dies, the evaluation is interrupted, and the same request goes on.
  """

  alias CrucibleBridge.{Apart, Columns, Datum, Error, Patience, Tensor, V1}
  alias CrucibleBridge.Orchestrator.{Frames, Model, Stream}

  @default_window 32
  # As many as a message can ask for; the worker allows far fewer.
  @windows 1..0x7FFFFFFF

  @doc """
  Runs an evaluation to its end.

  Options:

    * `:window` - questions that may be open at once; #{@default_window} if absent, and never more than the worker's limit
    * `:patience_ms` - how long to try to open a stream, at first and after each that was accepted, until one is accepted;
      #{Patience.default_ms()} if absent
  """
  @spec evaluate(GenServer.server(), V1.EvaluateRequest.t(), Model.t(), keyword()) :: {:ok, map()} | {:error, Error.t()}
  def evaluate(conn, %V1.EvaluateRequest{} = request, %Model{} = model, opts \\ []) do
    window = Keyword.get(opts, :window, @default_window)
    patience = Keyword.get(opts, :patience_ms, Patience.default_ms())

    with :ok <- checked(model, window) do
      # The id is made here, so that it is known when the very first stream breaks.
      id = if request.evaluation_id == "", do: fresh_id(), else: request.evaluation_id
      first = Frames.start(%{request | evaluation_id: id}, model, window)
      Patience.run(fn _attempt -> Stream.run(conn, first, model) end, patience)
    end
  end

  @doc """
  The log-probabilities that a model gives the targets of each datum: those of `model_input` and the last of
  `"target_tokens"`, as `CrucibleBridge.kl_post_update/4` takes them. Options: `:window`, questions that are open at once;
  #{@default_window} if absent.
  """
  @spec target_logprobs(Model.t(), [term()], keyword()) :: {:ok, [[float()]]} | {:error, Error.t()}
  def target_logprobs(%Model{} = model, data, opts \\ []) do
    window = Keyword.get(opts, :window, @default_window)

    with :ok <- checked(model, window),
         {:ok, sequences} <- Columns.numbered(data, "data", &sequence/2) do
      case Apart.run(fn -> answers(model, sequences, window) end) do
        {:ok, result} -> result
        {:exit, _reason} -> died()
      end
    end
  end

  @doc "An id that no evaluation has."
  @spec fresh_id() :: String.t()
  def fresh_id, do: 16 |> :crypto.strong_rand_bytes() |> Base.encode16(case: :lower)

  defp checked(model, window) do
    cond do
      Model.calls(model) == [] -> {:error, Error.invalid("model", "has neither sample, logprobs nor forward")}
      not is_binary(model.name) -> {:error, Error.invalid("model", "has a name that is no text")}
      not is_integer(window) or window not in @windows -> {:error, window(window)}
      true -> :ok
    end
  end

  defp window(window),
    do: Error.invalid("window", "is #{inspect(window)}, not from #{@windows.first} to #{@windows.last}")

  defp answers(model, sequences, window) do
    sequences
    |> Task.async_stream(&Model.ask(model, {:logprobs, &1}), max_concurrency: window, timeout: :infinity)
    |> Columns.each(fn
      {:ok, result} -> result
      {:exit, _reason} -> died()
    end)
  end

  defp died do
    {:error,
     %Error{code: :unavailable, reason: "BACKEND_FAILED", message: "whoever asked the orchestrator's model died"}}
  end

  defp sequence(datum, field) do
    with {:ok, targets} <- Datum.fetch(datum, "target_tokens", field),
         {:ok, last} <- last(targets, Datum.path(field, "target_tokens")),
         {:ok, chunks} <- Datum.model_input(Map.get(datum, :model_input), field <> ".model_input"),
         {:ok, chunks} <- Frames.chunks(chunks) do
      {:ok, chunks ++ [{:tokens, [last]}]}
    end
  end

  defp last(targets, field) do
    with {:ok, tensor} <- Tensor.pack(targets, field: field),
         {:ok, [_ | _] = tokens} <- Tensor.unpack(tensor) do
      {:ok, List.last(tokens)}
    else
      {:ok, []} -> {:error, Error.invalid(field, "is empty")}
      {:error, error} -> {:error, error}
    end
  end
end
