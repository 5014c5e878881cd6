defmodule CrucibleBridge.Orchestrator.Model do
  @moduledoc """
  A model that stays with its orchestrator, as the questions of a worker see it: a name and up to four functions.

    * `:sample` - `fn prompt, params, count -> {:ok, [sequence]} | {:error, reason} end`
    * `:logprobs` - `fn chunks -> {:ok, values} | {:error, reason} end`: a value for each token, nats, of which the first
      means nothing (`nil`, as a rule)
    * `:forward` - `fn data -> {:ok, lists} | {:error, reason} end`: for each datum the log-probabilities of its targets
    * `:argmax` - `fn chunks -> {:ok, ids} | {:error, reason} end`: for each token the id of the one that is the likeliest
      in its place, given the tokens before it; the first means nothing (`nil`, as a rule). -1 where it is another one, and
      its id is not known. `next_token_accuracy` asks for it

  A prompt is `{:chunks, chunks}`, `{:text, text}`, `{:plain, text}` (text that is gone on from as it stands) or
  `{:conversation, [{role, content}]}`; chunks are `{:tokens, ids}`, `{:image, map}` or `{:image_asset, map}`, a datum is
  `%{chunks: chunks, targets: ids}`. Params are a map with `:max_tokens`, `:temperature`, `:top_p` and `:stop`, and
  `:top_k` and `:seed` where they were said.

  A sequence is a map with `:text` and, where they are known, `:tokens`, `:logprobs`, `:output_tokens` and
  `:stop_reason`, `:stop` or `:length`. What its model's service reports of tokens is told as well: `:prompt_tokens`, those
  of them from its cache, `:cached_prompt_tokens`, and those of the output that were reasoning, `:reasoning_tokens`.

  Functions are called by several processes at once. `{:error, %CrucibleBridge.Error{}}` is told as it is, and asked again
  if it is retryable; so is what exits, such as a call that timed out. Another error, and what is raised, is final; why is
  logged here and told to nobody, as the worker writes down what it is told.

  The name, at most 200 bytes, is all that the model is known by: another checkpoint wants another name.
  """

  alias CrucibleBridge.{Error, Reason}

  require Logger

  @arities [sample: 3, logprobs: 1, forward: 1, argmax: 1]

  @enforce_keys [:name]
  defstruct [:name, :sample, :logprobs, :forward, :argmax]

  @type chunk :: {:tokens, [non_neg_integer()]} | {:image, map()} | {:image_asset, map()}
  @type prompt ::
          {:chunks, [chunk()]}
          | {:text, String.t()}
          | {:plain, String.t()}
          | {:conversation, [{String.t(), String.t()}]}
  @type params :: %{
          required(:max_tokens) => pos_integer(),
          required(:temperature) => float(),
          required(:top_p) => float(),
          required(:stop) => [String.t()],
          optional(:top_k) => pos_integer(),
          optional(:seed) => integer()
        }
  @type sequence :: %{
          required(:text) => binary(),
          optional(:tokens) => [non_neg_integer()] | nil,
          optional(:logprobs) => [float()] | nil,
          optional(:output_tokens) => non_neg_integer() | nil,
          optional(:prompt_tokens) => non_neg_integer() | nil,
          optional(:cached_prompt_tokens) => non_neg_integer() | nil,
          optional(:reasoning_tokens) => non_neg_integer() | nil,
          optional(:stop_reason) => :stop | :length
        }
  @type datum :: %{chunks: [chunk()], targets: [non_neg_integer()]}
  @type t :: %__MODULE__{
          name: String.t(),
          sample: (prompt(), params(), pos_integer() -> {:ok, [sequence()]} | {:error, term()}) | nil,
          logprobs: ([chunk()] -> {:ok, [float() | nil]} | {:error, term()}) | nil,
          forward: ([datum()] -> {:ok, [[float()]]} | {:error, term()}) | nil,
          argmax: ([chunk()] -> {:ok, [integer() | nil]} | {:error, term()}) | nil
        }

  @typedoc "What is asked."
  @type question ::
          {:sample, prompt(), params(), pos_integer()}
          | {:logprobs, [chunk()]}
          | {:forward, [datum()]}
          | {:argmax, [chunk()]}

  @doc """
  What the model can be asked for.

      iex> CrucibleBridge.Orchestrator.Model.calls(%CrucibleBridge.Orchestrator.Model{name: "m", forward: &{:ok, &1}})
      [:forward]
  """
  @spec calls(t()) :: [:sample | :logprobs | :forward | :argmax]
  def calls(%__MODULE__{} = model) do
    for {call, arity} <- @arities, is_function(Map.get(model, call), arity), do: call
  end

  @doc """
  Asks the model. Answers are checked as far as a message could not hold them; whatever goes wrong is an error.
  """
  @spec ask(t(), question()) :: {:ok, [map()] | [float() | nil] | [[float()]] | [integer()]} | {:error, Error.t()}
  def ask(%__MODULE__{} = model, question) do
    case call(model, question) do
      {:ok, answer} when is_list(answer) ->
        check(question, answer)

      {:error, %Error{} = error} ->
        {:error, error}

      {:error, reason} ->
        {:error, unknown("an error", reason, false)}

      _other ->
        {:error, failed("the orchestrator's model answered with neither {:ok, list} nor {:error, reason}", false)}
    end
  rescue
    error -> {:error, unknown(inspect(error.__struct__), error, false)}
  catch
    kind, reason -> {:error, unknown(Atom.to_string(kind), reason, kind == :exit)}
  end

  defp call(%{sample: sample}, {:sample, prompt, params, count}) when is_function(sample, 3),
    do: sample.(prompt, params, count)

  defp call(%{logprobs: logprobs}, {:logprobs, chunks}) when is_function(logprobs, 1), do: logprobs.(chunks)
  defp call(%{forward: forward}, {:forward, data}) when is_function(forward, 1), do: forward.(data)
  defp call(%{argmax: argmax}, {:argmax, chunks}) when is_function(argmax, 1), do: argmax.(chunks)

  defp call(_model, question),
    do: {:error, failed("the orchestrator's model cannot be asked for #{elem(question, 0)}", false)}

  defp check({:sample, _prompt, _params, _count}, sequences) do
    if Enum.all?(sequences, &match?(%{text: text} when is_binary(text), &1)), do: {:ok, sequences}, else: unfit()
  end

  # The first value of a sequence means nothing, and is not sent.
  defp check({:logprobs, _chunks}, [_first | values]), do: if(numbers?(values), do: {:ok, values}, else: unfit())

  defp check({:argmax, _chunks}, [_first | ids]) do
    if is_list(ids) and Enum.all?(ids, &is_integer/1), do: {:ok, ids}, else: unfit()
  end

  defp check({:forward, data}, lists) do
    if length(lists) == length(data) and Enum.all?(lists, &numbers?/1), do: {:ok, lists}, else: unfit()
  end

  defp check(_question, _answer), do: unfit()

  defp numbers?(values) do
    is_list(values) and Enum.all?(values, &(is_number(&1) or &1 in [:nan, :infinity, :negative_infinity]))
  end

  defp unfit do
    {:error,
     %Error{failed("the orchestrator's model gave what does not fit the question", false) | reason: "BACKEND_ANSWER"}}
  end

  defp unknown(what, reason, retryable) do
    Logger.warning("the orchestrator's model failed: " <> Reason.describe(reason))
    failed("#{what} in the orchestrator's model; see its log", retryable)
  end

  defp failed(message, retryable) do
    %Error{code: :unavailable, reason: "BACKEND_FAILED", message: message, retryable: retryable}
  end
end
