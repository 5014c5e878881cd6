defmodule CrucibleBridge.Wire do
  @moduledoc """
  Between messages and plain Elixir.

  `decode/1` makes plain maps of replies: a message becomes a map of its fields, an enum's value a short atom
  (`:VERDICT_CORRECT` is `:correct`), a oneof stays `{tag, value}`, and a tensor becomes a `CrucibleBridge.Tensor`. The
  atoms all stand in this file; an enum's value that a newer worker has stays the number that it is.
  """

  alias CrucibleBridge.{Columns, Datum, Error, Tensor, Trajectory, V1}

  @names %{
    EVALUATION_STATE_UNSPECIFIED: :unspecified,
    EVALUATION_STATE_QUEUED: :queued,
    EVALUATION_STATE_RUNNING: :running,
    EVALUATION_STATE_COMPLETED: :completed,
    EVALUATION_STATE_FAILED: :failed,
    EVALUATION_STATE_CANCELLED: :cancelled,
    EVALUATION_STATE_INTERRUPTED: :interrupted,
    EVALUATOR_KIND_UNSPECIFIED: :unspecified,
    EVALUATOR_KIND_TRAINING: :training,
    EVALUATOR_KIND_SAMPLING: :sampling,
    VERDICT_UNSPECIFIED: :unspecified,
    VERDICT_CORRECT: :correct,
    VERDICT_INCORRECT: :incorrect,
    VERDICT_PARTIAL: :partial,
    VERDICT_UNDECIDED: :undecided,
    VERDICT_ERROR: :error,
    VERDICT_MEASURED: :measured,
    GOAL_UNSPECIFIED: :unspecified,
    GOAL_HIGHER: :higher,
    GOAL_LOWER: :lower
  }

  @states %{
    queued: :EVALUATION_STATE_QUEUED,
    running: :EVALUATION_STATE_RUNNING,
    completed: :EVALUATION_STATE_COMPLETED,
    failed: :EVALUATION_STATE_FAILED,
    cancelled: :EVALUATION_STATE_CANCELLED,
    interrupted: :EVALUATION_STATE_INTERRUPTED
  }

  @verdicts %{
    correct: :VERDICT_CORRECT,
    incorrect: :VERDICT_INCORRECT,
    partial: :VERDICT_PARTIAL,
    undecided: :VERDICT_UNDECIDED,
    error: :VERDICT_ERROR,
    measured: :VERDICT_MEASURED
  }

  @comparisons %{
    text: :EXACT_COMPARISON_TEXT,
    number: :EXACT_COMPARISON_NUMBER,
    list: :EXACT_COMPARISON_LIST
  }

  @goals %{higher: :GOAL_HIGHER, lower: :GOAL_LOWER}
  @formats %{markdown: :REPORT_FORMAT_MARKDOWN, json: :REPORT_FORMAT_JSON}

  @dtypes %{
    u8: :DTYPE_U8,
    bool: :DTYPE_BOOL,
    i32: :DTYPE_I32,
    i64: :DTYPE_I64,
    f16: :DTYPE_F16,
    bf16: :DTYPE_BF16,
    f32: :DTYPE_F32,
    f64: :DTYPE_F64
  }
  @dtype_names Map.new(@dtypes, fn {name, value} -> {value, name} end)

  @doc "A reply, or any part of one, as plain Elixir."
  @spec decode(term) :: term
  def decode(%V1.Tensor{} = tensor), do: tensor(tensor)

  def decode(%_message{} = message) do
    for {key, value} <- Map.from_struct(message), not internal?(key), into: %{}, do: {key, decode(value)}
  end

  def decode(%{} = map), do: Map.new(map, fn {key, value} -> {key, decode(value)} end)
  def decode(list) when is_list(list), do: Enum.map(list, &decode/1)
  def decode({tag, value}), do: {tag, decode(value)}
  def decode(name) when is_map_key(@names, name), do: Map.fetch!(@names, name)
  def decode(value), do: value

  # What protobuf keeps in a message next to its fields: __unknown_fields__, from 0.17 on __protobuf__.
  defp internal?(key), do: match?("__" <> _, Atom.to_string(key))

  @doc "A tensor as a message, or a message's tensor."
  @spec tensor(Tensor.t() | V1.Tensor.t()) :: V1.Tensor.t() | Tensor.t()
  def tensor(%Tensor{dtype: dtype, shape: shape, data: data}) do
    %V1.Tensor{dtype: Map.fetch!(@dtypes, dtype), shape: shape, data: data}
  end

  def tensor(%V1.Tensor{dtype: dtype, shape: shape, data: data}) do
    # One that cannot be read is refused where it is: by Tensor.check/2.
    %Tensor{dtype: Map.get(@dtype_names, dtype, :unspecified), shape: shape, data: data}
  end

  @doc "Whatever `CrucibleBridge.Tensor.pack/2` takes, as a message."
  @spec pack(term, keyword) :: {:ok, V1.Tensor.t()} | {:error, Error.t()}
  def pack(value, opts) do
    with {:ok, tensor} <- Tensor.pack(value, opts), do: {:ok, tensor(tensor)}
  end

  @doc "Whatever `CrucibleBridge.Datum.pack/2` takes, as a message; `field` is what errors call it."
  @spec datum(term, String.t()) :: {:ok, V1.Datum.t()} | {:error, Error.t()}
  def datum(%V1.Datum{} = datum, _field), do: {:ok, datum}

  def datum(value, field) do
    with {:ok, datum} <- Datum.pack(value, field) do
      {:ok, %V1.Datum{model_input: chunks(datum.model_input), loss_fn_inputs: tensors(datum.loss_fn_inputs)}}
    end
  end

  @doc "Token ids or chunks as a message."
  @spec model_input(term, String.t()) :: {:ok, V1.ModelInput.t()} | {:error, Error.t()}
  def model_input(%V1.ModelInput{} = input, _field), do: {:ok, input}

  def model_input(value, field) do
    with {:ok, chunks} <- Datum.model_input(value, field), do: {:ok, chunks(chunks)}
  end

  @doc "Columns as a message."
  @spec columns(Columns.t()) :: V1.Columns.t()
  def columns(%Columns{lengths: lengths, values: values}) do
    %V1.Columns{lengths: tensor(lengths), values: tensors(values)}
  end

  @doc "Trajectories as a message."
  @spec trajectories(Trajectory.t()) :: V1.TrajectoryBatch.t()
  def trajectories(%Trajectory{} = batch) do
    %V1.TrajectoryBatch{
      trajectories_per_group: tensor(batch.trajectories_per_group),
      transitions_per_trajectory: tensor(batch.transitions_per_trajectory),
      action_tokens: tensor(batch.action_tokens),
      observation_tokens: tensor(batch.observation_tokens),
      rewards: tensor(batch.rewards),
      final_rewards: tensor(batch.final_rewards),
      transition_metrics: tensors(batch.transition_metrics),
      trajectory_metrics: tensors(batch.trajectory_metrics),
      transition_metric_present: tensors(batch.transition_metric_present),
      trajectory_metric_present: tensors(batch.trajectory_metric_present),
      tags: Enum.map(batch.tags, &%V1.Tags{tags: &1})
    }
  end

  @doc "States of evaluations, by their short names."
  @spec states([atom]) :: {:ok, [atom]} | {:error, Error.t()}
  def states(names), do: names |> List.wrap() |> Columns.each(&known(&1, @states, "states"))

  @doc "Verdicts, by their short names."
  @spec verdicts([atom]) :: {:ok, [atom]} | {:error, Error.t()}
  def verdicts(names), do: names |> List.wrap() |> Columns.each(&known(&1, @verdicts, "verdicts"))

  @doc "A report's format: `:markdown` or `:json`."
  @spec format(atom) :: {:ok, atom} | {:error, Error.t()}
  def format(name), do: known(name, @formats, "format")

  @doc "As what `exact_match` compares: `:text`, `:number` or `:list`."
  @spec comparison(atom) :: {:ok, atom} | {:error, Error.t()}
  def comparison(name), do: known(name, @comparisons, "compare")

  @doc "Which way a number is better: `:higher` or `:lower`."
  @spec goal(atom) :: {:ok, atom} | {:error, Error.t()}
  def goal(name), do: known(name, @goals, "goal")

  defp known(name, table, field) do
    case table do
      %{^name => value} ->
        {:ok, value}

      _unknown ->
        names = table |> Map.keys() |> Enum.map_join(", ", &inspect/1)
        {:error, Error.invalid(field, "has #{inspect(name)}; there are #{names}")}
    end
  end

  defp tensors(map), do: Map.new(map, fn {name, tensor} -> {name, tensor(tensor)} end)
  defp chunks(chunks), do: %V1.ModelInput{chunks: Enum.map(chunks, &%V1.ModelInputChunk{chunk: chunk(&1)})}

  defp chunk({:tokens, tensor}), do: {:tokens, tensor(tensor)}
  defp chunk({:image, fields}), do: {:image, struct!(V1.ImageChunk, fields)}
  defp chunk({:image_asset, fields}), do: {:image_asset, struct!(V1.ImageAssetChunk, fields)}
end
