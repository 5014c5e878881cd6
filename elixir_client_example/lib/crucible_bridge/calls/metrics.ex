defmodule CrucibleBridge.Calls.Metrics do
  @moduledoc false
  # MetricsService; documented at CrucibleBridge. Sequences travel as columns wherever the worker takes them: a message a
  # sequence is what encoding would otherwise spend its time on.

  alias CrucibleBridge.Calls.{Evaluation, Models}
  alias CrucibleBridge.{Calls, Columns, Datum, Error, Tensor, Trajectory, V1, Wire}
  alias CrucibleBridge.Specification.Values
  alias CrucibleBridge.Wire.Message

  # What a model is asked by: the input, and the targets whose log-probabilities it tells.
  @asked ["target_tokens"]

  # Options of the penalty that are fields as they are.
  @distilled [:reverse_kl, :datasets]

  def kl_sample_train(conn, data, training_logprobs, opts) do
    with {:ok, columns} <- policy_columns(data, [{"mask", :flags}], {"training_logprobs", training_logprobs}),
         request = %V1.ComputeKLSampleTrainRequest{columns: columns, extended: opts[:extended] || false} do
      Calls.unary(conn, request, opts)
    end
  end

  def kl_post_update(conn, data, updated, opts) do
    with {:ok, fields} <- post_update(data, updated, opts),
         request = struct!(V1.ComputeKLPostUpdateRequest, [deadline_ms: opts[:deadline_ms]] ++ fields) do
      Calls.unary(conn, request, bounded(opts, updated))
    end
  end

  def incorporate_kl_penalty(conn, data, base, opts) do
    with {:ok, coef} <- number(opts[:coef], "coef"),
         {:ok, discount} <- number(Keyword.get(opts, :discount, 0.0), "discount"),
         {:ok, fields, lengths} <- penalty(data, base, opts),
         {:ok, distilled} <- Message.build(Keyword.take(opts, @distilled), V1.IncorporateKLPenaltyRequest, "options"),
         scale = [kl_penalty_coef: coef, kl_discount_factor: discount, deadline_ms: opts[:deadline_ms]],
         request = struct!(distilled, scale ++ fields),
         {:ok, reply} <- Calls.unary(conn, request, bounded(opts, base)),
         {:ok, advantages} <- advantages(reply.advantages, lengths) do
      {:ok, %{reply | advantages: advantages}}
    end
  end

  def mean_nll(conn, logprobs, weights, opts) do
    columns = [
      {"logprobs", :numbers, logprobs, &"logprobs[#{&1}]"},
      {"weights", :numbers, weights, &"weights[#{&1}]"}
    ]

    with {:ok, columns} <- Columns.pack(columns) do
      Calls.unary(conn, %V1.ComputeMeanNLLRequest{columns: Wire.columns(columns)}, opts)
    end
  end

  def trajectory_metrics(conn, groups, opts) do
    with {:ok, batch} <- Trajectory.pack(groups, opts[:tags] || []),
         fields = [batch: Wire.trajectories(batch)],
         {:ok, request} <- opts |> Keyword.delete(:tags) |> Message.options(V1.ComputeTrajectoryMetricsRequest, fields),
         do: Calls.unary(conn, request, opts)
  end

  def dpo_metrics(conn, pairs, opts) do
    with {:ok, beta} <- number(opts[:beta], "beta"),
         {:ok, chosen} <- number_column(pairs, :chosen_logprobs),
         {:ok, rejected} <- number_column(pairs, :rejected_logprobs),
         {:ok, chosen_reference} <- number_column(pairs, :chosen_reference_logprobs),
         {:ok, rejected_reference} <- number_column(pairs, :rejected_reference_logprobs),
         request = %V1.ComputeDPOMetricsRequest{
           chosen_logprobs: chosen,
           rejected_logprobs: rejected,
           chosen_reference_logprobs: chosen_reference,
           rejected_reference_logprobs: rejected_reference,
           dpo_beta: beta
         } do
      Calls.unary(conn, request, opts)
    end
  end

  def dpo_metrics_of_models(conn, pairs, policy, reference, opts) do
    with {:ok, beta} <- number(opts[:beta], "beta"),
         {:ok, pairs} <- Columns.numbered(pairs, "pairs", &pair/2),
         {:ok, policy} <- Evaluation.model(policy),
         {:ok, fields} <- reference(reference),
         fields = [policy: policy, pairs: pairs, dpo_beta: beta, deadline_ms: opts[:deadline_ms]] ++ fields,
         do: Calls.unary(conn, struct!(V1.ComputeDPOMetricsRequest, fields), Calls.unbounded(opts))
  end

  def sampling_client_metrics(conn, steps, seconds, opts) do
    with {:ok, steps} <- Wire.pack(steps, dtype: :i64, field: "steps"),
         {:ok, seconds} <- Wire.pack(seconds, dtype: :f64, field: "seconds"),
         request = %V1.ComputeSamplingClientMetricsRequest{sampling_client_steps: steps, sampling_seconds: seconds} do
      Calls.unary(conn, request, opts)
    end
  end

  def classification(conn, predictions, targets, opts) do
    with {:ok, predictions} <- Columns.numbered(predictions, "predictions", &Values.text/2),
         {:ok, targets} <- Columns.numbered(targets, "targets", &Values.text/2),
         {:ok, positive} <- positive(opts[:positive]),
         request = %V1.ComputeClassificationMetricsRequest{
           predictions: predictions,
           targets: targets,
           positive: positive
         } do
      Calls.unary(conn, request, opts)
    end
  end

  def pass_at_k(conn, samples, successes, k, opts) do
    with {:ok, samples} <- Wire.pack(samples, dtype: :i32, field: "samples"),
         {:ok, successes} <- Wire.pack(successes, dtype: :i32, field: "successes"),
         request = %V1.ComputePassAtKRequest{samples: samples, successes: successes, k: List.wrap(k)} do
      Calls.unary(conn, request, opts)
    end
  end

  # A model takes what time it takes; deadline_ms bounds it.
  defp bounded(opts, given) when is_list(given), do: opts
  defp bounded(opts, _model), do: Calls.unbounded(opts)

  defp post_update(data, updated, _opts) when is_list(updated) do
    with {:ok, columns} <- policy_columns(data, [{"mask", :flags}], {"updated_logprobs", updated}),
         do: {:ok, [columns: columns]}
  end

  defp post_update(data, model, opts) do
    with {:ok, source} <- source(model, opts),
         {:ok, data} <- sequences(data, ["logprobs", "mask"]),
         do: {:ok, [data: data, updated: source]}
  end

  defp penalty(data, base, _opts) when is_list(base) do
    with {:ok, columns} <-
           policy_columns(data, [{"mask", :numbers}, {"advantages", :numbers}], {"base_logprobs", base}),
         {:ok, lengths} <- columns.lengths |> Wire.tensor() |> Tensor.unpack() do
      {:ok, [columns: columns], lengths}
    end
  end

  defp penalty(data, model, opts) do
    with {:ok, source} <- source(model, opts),
         {:ok, data} <- sequences(data, ["logprobs", "mask", "advantages"]),
         do: {:ok, [data: data, base: source], nil}
  end

  # Undefined, the penalty leaves no advantages: nothing is poisoned.
  defp advantages([], _lengths), do: {:ok, []}
  defp advantages([tensor], lengths) when is_list(lengths), do: Columns.split(tensor, lengths)
  defp advantages(tensors, nil), do: Columns.each(tensors, &Tensor.unpack/1)

  defp policy_columns(data, names, {given_name, given}) do
    with {:ok, logprobs} <- Datum.column(data, "logprobs"),
         {:ok, others} <- Columns.each(names, &named_column(data, &1)),
         first = {"logprobs", :numbers, logprobs, path("logprobs")},
         last = {given_name, :numbers, given, &"#{given_name}[#{&1}]"},
         {:ok, columns} <- Columns.pack([first | others] ++ [last]) do
      {:ok, Wire.columns(columns)}
    end
  end

  defp named_column(data, {name, kind}) do
    with {:ok, sequences} <- Datum.column(data, name), do: {:ok, {name, kind, sequences, path(name)}}
  end

  defp path(name), do: &Datum.path("data[#{&1}]", name)

  # Of a datum, what the call reads.
  defp sequences(data, names) do
    Columns.numbered(data, "data", &sequence(&1, names ++ @asked, &2))
  end

  defp sequence(datum, names, field) do
    with {:ok, arrays} <- Columns.each(names, &array(datum, &1, field)) do
      Wire.datum(%{model_input: Map.get(datum, :model_input), loss_fn_inputs: Map.new(arrays)}, field)
    end
  end

  defp array(datum, name, field) do
    with {:ok, value} <- Datum.fetch(datum, name, field), do: {:ok, {name, value}}
  end

  defp source(given, opts) do
    with {:ok, model} <- Evaluation.model(given, opts), do: {:ok, %V1.LogprobSource{source: {:model, model}}}
  end

  defp pair(%{chosen: chosen, rejected: rejected}, field) do
    with {:ok, chosen} <- Models.conversation(chosen, "#{field}.chosen"),
         {:ok, rejected} <- Models.conversation(rejected, "#{field}.rejected"),
         do: {:ok, %V1.PreferencePair{chosen: chosen, rejected: rejected}}
  end

  defp pair(_other, field), do: {:error, Error.invalid(field, "has no chosen and rejected conversation")}

  defp reference([{_name, _values} | _] = columns) do
    with {:ok, chosen} <- number_column(columns, :chosen_reference_logprobs),
         {:ok, rejected} <- number_column(columns, :rejected_reference_logprobs),
         do: {:ok, [chosen_reference_logprobs: chosen, rejected_reference_logprobs: rejected]}
  end

  defp reference(model) do
    with {:ok, model} <- Evaluation.model(model), do: {:ok, [reference: model]}
  end

  defp number_column(pairs, name), do: Wire.pack(pairs[name], dtype: :f64, field: Atom.to_string(name))

  defp positive(nil), do: {:ok, nil}
  defp positive(label), do: Values.text(label, "positive")

  # A message's double takes no integer.
  defp number(number, _field) when is_number(number), do: {:ok, number * 1.0}
  defp number(nil, field), do: {:error, Error.invalid(field, "is missing")}
  defp number(_other, field), do: {:error, Error.invalid(field, "is no number")}
end
