defmodule CrucibleBridge.Orchestrator.Shapes do
  @moduledoc """
  The structs of crucible_train, made where it is there; maps of the same keys where it is not. What adapters answer is
  read by its keys, atoms or strings.
  """

  alias CrucibleBridge.Error
  alias CrucibleTrain.Types, as: Theirs

  @doc "Chunks as a `CrucibleTrain.Types.ModelInput`; an image by reference has no struct there and stays a map."
  @spec model_input([CrucibleBridge.Orchestrator.Model.chunk()]) :: map()
  def model_input(chunks), do: make(Theirs.ModelInput, %{chunks: Enum.map(chunks, &chunk/1)})

  @doc "A datum whose targets have weights of 0: a pass over it has the log-probabilities, and no gradient."
  @spec datum(term(), [non_neg_integer()]) :: map()
  def datum(model_input, targets) do
    make(Theirs.Datum, %{
      model_input: model_input,
      loss_fn_inputs: %{
        "target_tokens" => tensor(targets, :int64),
        "weights" => tensor(List.duplicate(0.0, length(targets)), :float32)
      }
    })
  end

  @doc "What an answer holds under a key."
  @spec fetch(term(), atom()) :: {:ok, term()} | {:error, Error.t()}
  def fetch(%{} = answer, key) do
    with :error <- Map.fetch(answer, key),
         :error <- Map.fetch(answer, Atom.to_string(key)),
         do: unfit()
  end

  def fetch(_answer, _key), do: unfit()

  @doc "The log-probabilities of one output of a loss function: a list, or a tensor's data."
  @spec logprobs(term()) :: {:ok, [number()]} | {:error, Error.t()}
  def logprobs(output) do
    case fetch(output, :logprobs) do
      {:ok, values} when is_list(values) -> {:ok, values}
      {:ok, %{} = tensor} -> fetch(tensor, :data)
      _other -> unfit()
    end
  end

  @doc "What an answer is that has another shape than its port says."
  @spec unfit() :: {:error, Error.t()}
  def unfit do
    {:error,
     %Error{
       code: :unavailable,
       reason: "BACKEND_ANSWER",
       message: "the client's answer has another shape than its port says"
     }}
  end

  defp chunk({:tokens, tokens}), do: make(Theirs.EncodedTextChunk, %{tokens: tokens})
  defp chunk({:image, image}), do: make(Theirs.ImageChunk, image)
  defp chunk({:image_asset, asset}), do: asset

  defp tensor(values, dtype), do: make(Theirs.TensorData, %{data: values, dtype: dtype, shape: [length(values)]})

  @doc "A struct of crucible_train where it is there, and the map of its fields where it is not."
  @spec make(module(), map()) :: map()
  def make(module, fields), do: if(Code.ensure_loaded?(module), do: struct!(module, fields), else: fields)
end
