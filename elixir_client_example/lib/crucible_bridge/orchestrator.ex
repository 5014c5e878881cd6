defmodule CrucibleBridge.Orchestrator do
  @moduledoc """
  Evaluates with what stays here, a model, graders or environments: the other end of `EvaluateWithOrchestratorModel`.

      model = %CrucibleBridge.Orchestrator.Model{name: "adder@1", sample: fn prompt, _params, count -> ... end}
      {:ok, request} = CrucibleBridge.Specification.build(evaluators: "accuracy", dataset: "builtin:arithmetic", ...)
      {:ok, evaluation} = CrucibleBridge.Orchestrator.evaluate(CrucibleBridge.Connection, request, model)

  Graders and environments go with any model, one of the worker's as well:

      {:ok, request} =
        CrucibleBridge.Specification.build(
          model: "embedded:arithmetic@320",
          evaluators: {"accuracy", grader: "caller"},
          dataset: "builtin:arithmetic",
          sampling: [max_tokens: 8]
        )

      grader = fn response, target -> String.trim(response) == target end
      {:ok, evaluation} = CrucibleBridge.Orchestrator.evaluate(CrucibleBridge.Connection, request, nil, graders: grader)

  The worker asks over a stream, several questions at once, and is answered in any order, each answer by processes of its
  own. A grader that is slow, raises or dies costs its own answer, and nothing else. A stream that breaks is opened again with the same evaluation id, and the evaluation goes on: what was written down
  is not asked again. The caller has to stay: when it dies, the evaluation is interrupted, and the same request goes on.
  """

  alias CrucibleBridge.{Apart, Columns, Datum, Error, Patience, Tensor, V1}
  alias CrucibleBridge.Orchestrator.{Frames, Held, Model, Stream}

  @default_window 32
  # As many as a message can ask for; the worker allows far fewer.
  @windows 1..0x7FFFFFFF

  @doc """
  Runs an evaluation to its end, on a model that stays here, or on the request's own if that is `nil`.

  Options:

    * `:graders` - keywords or a map of graders by their names, each of which `CrucibleBridge.Orchestrator.Grader`
      describes; an evaluator says `grader: "caller:NAME"`. Of one alone, `grader: "caller"` is enough, and it needs no name
    * `:environments` - likewise, see `CrucibleBridge.Orchestrator.Environment`; the evaluator `rl_test_set` says
      `environment: "caller:NAME"`
    * `:answer_timeout_ms` - how long a grader or an environment may take for one answer; #{Held.timeout_ms()} if absent,
      or `:infinity`
    * `:window` - questions that may be open at once; #{@default_window} if absent, and never more than the worker's limit
    * `:patience_ms` - how long to try to open a stream, at first and after each that was accepted, until one is accepted;
      #{Patience.default_ms()} if absent
  """
  @spec evaluate(GenServer.server(), V1.EvaluateRequest.t(), Model.t() | nil, keyword()) ::
          {:ok, map()} | {:error, Error.t()}
  def evaluate(conn, %V1.EvaluateRequest{} = request, model, opts \\ []) do
    window = Keyword.get(opts, :window, @default_window)
    patience = Keyword.get(opts, :patience_ms, Patience.default_ms())

    with {:ok, held} <- Held.new(model, opts),
         :ok <- window(window) do
      # The id is made here, so that it is known when the very first stream breaks.
      id = if request.evaluation_id == "", do: fresh_id(), else: request.evaluation_id
      first = Frames.start(%{request | evaluation_id: id}, held, window)
      Patience.run(fn _attempt -> Stream.run(conn, first, held) end, patience)
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

    with {:ok, _held} <- Held.new(model, []),
         :ok <- window(window),
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

  defp window(window) when is_integer(window) and window in @windows, do: :ok

  defp window(window),
    do: {:error, Error.invalid("window", "is #{inspect(window)}, not from #{@windows.first} to #{@windows.last}")}

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
