defmodule CrucibleBridge.Orchestrator.Frames do
  @moduledoc """
  The frames of `EvaluateWithOrchestratorModel`, and what they say.
  """

  alias CrucibleBridge.{Columns, Datum, Error, Tensor, V1, Wire}
  alias CrucibleBridge.Orchestrator.{Environment, Grader, Held, Model}
  alias CrucibleBridge.Specification.Values
  alias CrucibleBridge.Wire.{Bounds, Names}
  alias CrucibleBridge.V1.EvaluateWithOrchestratorModelRequest, as: Frame

  # The worker's limit of a message. A larger answer would break the stream, and so would the same one on the next.
  @max_message_bytes 64 * 1024 * 1024
  @max_problem_bytes 1_000
  @sampling Bounds.of(V1.SamplingParams)

  @doc "The first frame."
  @spec start(V1.EvaluateRequest.t(), Held.t(), pos_integer()) :: Frame.t()
  def start(request, held, window) do
    start = %V1.OrchestratorStart{
      request: request,
      window: window,
      graders: Map.keys(held.graders),
      environments: Map.keys(held.environments)
    }

    %Frame{frame: {:start, with_model(start, held.model)}}
  end

  defp with_model(start, nil), do: start

  defp with_model(start, model) do
    named = %V1.ModelRef{model: {:orchestrator, %V1.OrchestratorModel{name: model.name}}}
    {:ok, calls} = model |> Model.calls() |> Columns.each(&Names.long(V1.OrchestratorCall, &1, "calls"))
    %{start | request: %{start.request | model: named}, calls: calls}
  end

  @doc "What is asked; a question that this version cannot read is an error."
  @spec question(V1.OrchestratorQuestion.t()) ::
          {:ok,
           Model.question()
           | {:grade, Grader.question()}
           | {:open, pos_integer(), Environment.episode()}
           | {:step, pos_integer(), Environment.action()}}
          | {:error, Error.t()}
  def question(%{question: {:sample, %{prompt: prompt, sampling: %{} = sampling} = asked}}) do
    with {:ok, prompt} <- prompt(prompt, asked.plain), do: {:ok, {:sample, prompt, params(sampling), asked.num_samples}}
  end

  def question(%{question: {:logprobs, %{sequence: %{} = sequence}}}) do
    with {:ok, chunks} <- input(sequence), do: {:ok, {:logprobs, chunks}}
  end

  def question(%{question: {:forward, %{data: data}}}) do
    with {:ok, data} <- Columns.each(data, &datum/1), do: {:ok, {:forward, data}}
  end

  def question(%{question: {:argmax, %{sequence: %{} = sequence}}}) do
    with {:ok, chunks} <- input(sequence), do: {:ok, {:argmax, chunks}}
  end

  def question(%{question: {:grade, %{sample: %{} = sample} = asked}}) do
    with {:ok, sample} <- sample(sample),
         do: {:ok, {:grade, asked |> Map.take([:grader, :evaluator, :repeat, :response]) |> Map.put(:sample, sample)}}
  end

  def question(%{question: {:environment, %{question: {:open, %{sample: %{} = sample} = open}} = asked}}) do
    with {:ok, sample} <- sample(sample) do
      begun = %{environment: asked.environment, sample: sample, options: Values.plain(open.options)}
      {:ok, {:open, asked.episode, open |> Map.take([:evaluator, :seed, :rollout]) |> Map.merge(begun)}}
    end
  end

  def question(%{question: {:environment, %{question: {:step, %{} = step}} = asked}}) do
    with {:ok, tokens} <- if(step.tokens, do: tokens(step.tokens), else: {:ok, []}) do
      stop_reason = if step.stop_reason == "length", do: :length, else: :stop
      {:ok, {:step, asked.episode, %{turn: step.turn, text: step.text, tokens: tokens, stop_reason: stop_reason}}}
    end
  end

  def question(_other), do: {:error, Error.invalid("question", "is of a kind that this version does not know")}

  @doc "The frame of an answer, or of the problem in its place."
  @spec answer(
          V1.OrchestratorQuestion.t(),
          {:ok, list() | V1.AnsweredGrade.t() | V1.AnsweredEnvironment.t()} | {:error, Error.t()}
        ) :: Frame.t()
  def answer(%{id: id, question: question}, result) do
    frame = frame(id, with({:ok, answer} <- result, do: answered(elem(question, 0), answer)))
    size = frame |> Frame.encode() |> byte_size()
    if size > @max_message_bytes, do: frame(id, {:error, too_large(size)}), else: frame
  rescue
    # Whatever a model gave that no field holds. A question without an answer would be waited for.
    _unfit -> frame(id, {:error, unfit()})
  end

  @doc "How the evaluation ended."
  @spec ended(V1.OrchestratorEnded.t()) :: {:ok, map()}
  def ended(%{evaluation: evaluation}), do: {:ok, Wire.decode(evaluation)}

  @doc "Packed chunks with their tokens as lists."
  @spec chunks([Datum.chunk()]) :: {:ok, [Model.chunk()]} | {:error, Error.t()}
  def chunks(chunks) do
    Columns.each(chunks, fn
      {:tokens, tensor} -> with({:ok, tokens} <- Tensor.unpack(tensor), do: {:ok, {:tokens, tokens}})
      image -> {:ok, image}
    end)
  end

  defp prompt({:model_input, input}, _plain) do
    with {:ok, chunks} <- input(input), do: {:ok, {:chunks, chunks}}
  end

  defp prompt({:text, text}, true), do: {:ok, {:plain, text}}
  defp prompt({:text, text}, _plain), do: {:ok, {:text, text}}

  defp prompt({:conversation, %{messages: messages}}, _) do
    if Enum.all?(messages, &(&1.parts == [] and &1.tool_calls == [] and &1.tool_call_id == "")),
      do: {:ok, {:conversation, Enum.map(messages, &{&1.role, &1.content})}},
      else: {:error, Error.invalid("question", "has images or calls of tools, and models that stay here take text")}
  end

  defp prompt(_other, _plain), do: {:error, Error.invalid("question", "has a prompt that this version does not know")}

  defp sample(sample) do
    with {:ok, input} <- prompt(sample.input, false),
         do: {:ok, sample |> Map.take([:id, :targets, :choices, :metadata]) |> Map.put(:input, input)}
  end

  # Absent is greedy, and the whole nucleus.
  defp params(sampling) do
    params = %{
      max_tokens: sampling.max_tokens,
      temperature: sampling.temperature || @sampling.temperature.default,
      top_p: sampling.top_p || @sampling.top_p.default,
      stop: sampling.stop
    }

    for {key, value} <- [top_k: sampling.top_k, seed: sampling.seed], value != nil, into: params, do: {key, value}
  end

  defp datum(%{model_input: %{} = input, loss_fn_inputs: %{"target_tokens" => targets}}) do
    with {:ok, chunks} <- input(input),
         {:ok, targets} <- tokens(targets),
         do: {:ok, %{chunks: chunks, targets: targets}}
  end

  defp datum(_other), do: {:error, Error.invalid("question", "has a datum without input or targets")}

  defp input(%{chunks: chunks}) do
    Columns.each(chunks, fn
      %{chunk: {:tokens, tensor}} -> with({:ok, tokens} <- tokens(tensor), do: {:ok, {:tokens, tokens}})
      %{chunk: {:image, image}} -> {:ok, {:image, Map.take(image, [:data, :format, :expected_tokens])}}
      %{chunk: {:image_asset, asset}} -> {:ok, {:image_asset, Map.take(asset, [:location, :format, :expected_tokens])}}
      _other -> {:error, Error.invalid("question", "has a chunk that this version does not know")}
    end)
  end

  defp tokens(tensor) do
    tensor |> Wire.tensor() |> Tensor.unpack()
  end

  defp frame(id, {:ok, answer}), do: %Frame{frame: {:answer, %V1.OrchestratorAnswer{id: id, answer: answer}}}
  defp frame(id, {:error, error}), do: frame(id, {:ok, {:problem, problem(error)}})

  defp answered(:sample, sequences) do
    with {:ok, sequences} <- Columns.each(sequences, &sequence/1),
         do: {:ok, {:sample, %V1.AnsweredSample{sequences: sequences}}}
  end

  defp answered(:logprobs, values) do
    with {:ok, tensor} <- floats(values), do: {:ok, {:logprobs, tensor}}
  end

  defp answered(:forward, lists) do
    with {:ok, tensors} <- Columns.each(lists, &floats/1), do: {:ok, {:forward, %V1.AnsweredForward{logprobs: tensors}}}
  end

  defp answered(:argmax, ids) do
    with {:ok, tensor} <- packed(ids, :i64), do: {:ok, {:argmax, tensor}}
  end

  # These are messages already, and checked.
  defp answered(kind, message) when kind in [:grade, :environment], do: {:ok, {kind, message}}

  defp sequence(sequence) do
    with {:ok, tokens} <- optional(Map.get(sequence, :tokens), :i64),
         {:ok, logprobs} <- optional(Map.get(sequence, :logprobs), :f64) do
      {:ok,
       %V1.AnsweredSequence{
         text: sequence.text,
         tokens: tokens,
         logprobs: logprobs,
         stop_reason: if(Map.get(sequence, :stop_reason) == :length, do: "length", else: "stop"),
         output_tokens: Map.get(sequence, :output_tokens),
         prompt_tokens: Map.get(sequence, :prompt_tokens),
         cached_prompt_tokens: Map.get(sequence, :cached_prompt_tokens),
         reasoning_tokens: Map.get(sequence, :reasoning_tokens)
       }}
    end
  end

  defp optional(nil, _dtype), do: {:ok, nil}
  defp optional(values, dtype), do: packed(values, dtype)

  defp floats(values), do: packed(values, :f64)

  defp packed(values, dtype) do
    with {:error, _error} <- Wire.pack(values, dtype: dtype), do: {:error, unfit()}
  end

  defp problem(error) do
    %V1.Problem{
      reason: error.reason,
      message: shorten(Exception.message(error)),
      field: "",
      retryable: error.retryable
    }
  end

  # By bytes, and never through a character.
  defp shorten(text) when byte_size(text) <= @max_problem_bytes, do: text

  defp shorten(text) do
    text
    |> String.graphemes()
    |> Enum.reduce_while("", fn grapheme, kept ->
      if byte_size(kept) + byte_size(grapheme) > @max_problem_bytes, do: {:halt, kept}, else: {:cont, kept <> grapheme}
    end)
  end

  defp too_large(size) do
    %Error{code: :resource_exhausted, reason: "ANSWER_TOO_LARGE", message: "the answer has #{size} bytes"}
  end

  defp unfit do
    %Error{code: :unavailable, reason: "BACKEND_ANSWER", message: "the orchestrator's model gave what no message holds"}
  end
end
