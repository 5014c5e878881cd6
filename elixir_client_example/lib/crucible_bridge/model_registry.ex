defmodule CrucibleBridge.ModelRegistry do
  @moduledoc """
  Kitchen's port for registered models, served by what a worker has evaluated.

      adapters = %{
        model_registry: {CrucibleBridge.ModelRegistry, conn: CrucibleBridge.Connection},
        ...
      }

  As `CrucibleKitchen.Ports.ModelRegistry` it has `register/2`, `get/2` and `list/1`. A model is a checkpoint of a run: its
  name is the run's id, its version the step. A worker has each checkpoint of which an evaluation has a `:run_id`, with every
  metric of every data set, longer than the samples: see `CrucibleBridge.list_runs/2`.

  `register/2` stores nothing, as the evaluations are stored already. It finds the checkpoint that `CrucibleKitchen.Stages.RegisterModel`
  names, by the run's id in `:lineage` and by `:artifact_uri`, and answers with what was measured of it. Kitchen makes a new
  run id each time it starts: where the evaluations name their run themselves, give the same `:run_id` here.

  An error would end Kitchen's run after its whole training. So a checkpoint that no evaluation of the run has seen, a run
  without an id, and a worker that cannot be reached, are a warning, and the model is registered as Kitchen describes it,
  without metrics.

  ## Options

    * `:conn` - a `CrucibleBridge.Connection`, by default the one of that name
    * `:run_id` - of `register/2`, in place of the one in `:lineage`
    * `:name` - of `list/1`: only the checkpoints of this run
    * `:limit`, `:offset` - of `list/1`
    * `:timeout` - of each call, in milliseconds
  """

  alias CrucibleBridge.{Connection, Error}

  require Logger

  if Code.ensure_loaded?(CrucibleKitchen.Ports.ModelRegistry), do: @behaviour(CrucibleKitchen.Ports.ModelRegistry)

  @page 1_000

  @typedoc "A checkpoint as Kitchen's port has it, and every metric under `:metrics`."
  @type model :: %{
          id: String.t(),
          name: String.t(),
          version: String.t(),
          artifact_uri: String.t(),
          metadata: map(),
          lineage: map(),
          metrics: %{String.t() => float()},
          created_at: DateTime.t()
        }

  @doc "The checkpoint that was trained, with what was measured of it; without metrics where that is not known."
  @spec register(keyword(), map()) :: {:ok, model()}
  def register(opts, artifact) do
    run_id = opts[:run_id] || get_in(artifact, [:lineage, :run_id])
    uri = Map.get(artifact, :artifact_uri)

    with {:ok, run_id} <- named(run_id),
         {:ok, checkpoints} <- checkpoints(opts, run_id),
         %{} = checkpoint <- checkpoints |> Enum.reverse() |> Enum.find(&(uri in uris(&1))) do
      {:ok, model(run_id, checkpoint)}
    else
      nil -> {:ok, unknown(artifact, run_id, "no evaluation of the run #{inspect(run_id)} has this checkpoint")}
      {:error, error} -> {:ok, unknown(artifact, run_id, Exception.message(error))}
    end
  end

  defp unknown(artifact, run_id, why) do
    [name, version, uri] = for key <- [:name, :version, :artifact_uri], do: described(Map.get(artifact, key))

    Logger.warning(
      "[crucible_bridge] #{uri} is registered without metrics: #{why}. Give the evaluations and this adapter the same :run_id"
    )

    %{
      id: Enum.map_join([described(run_id || name), version, uri], "/", &URI.encode_www_form/1),
      name: name,
      version: version,
      artifact_uri: uri,
      metadata: Map.get(artifact, :metadata) || %{},
      lineage: Map.get(artifact, :lineage) || %{},
      metrics: %{},
      created_at: DateTime.utc_now()
    }
  end

  defp described(text) when is_binary(text), do: text
  defp described(nil), do: "unknown"
  defp described(other), do: inspect(other, limit: 5)

  @doc "A checkpoint by the id that the two others gave."
  @spec get(keyword(), term()) :: {:ok, model()} | {:error, :not_found | Error.t()}
  def get(opts, id) do
    with {:ok, run_id} <- run_of(id),
         {:ok, checkpoints} <- checkpoints(opts, run_id),
         %{} = found <- Enum.find(checkpoints, &(identity(run_id, &1) == id)) do
      {:ok, model(run_id, found)}
    else
      {:error, %Error{reason: "UNKNOWN_RUN"}} -> {:error, :not_found}
      {:error, _reason} = error -> error
      nil -> {:error, :not_found}
    end
  end

  @doc "Checkpoints, those of the newest run first, in a run by step."
  @spec list(keyword()) :: {:ok, [model()]} | {:error, Error.t()}
  def list(opts) do
    with {:ok, runs} <- runs(opts, opts[:name]),
         {:ok, models} <- models(opts, runs, []) do
      models = Enum.drop(models, opts[:offset] || 0)
      {:ok, if(opts[:limit], do: Enum.take(models, opts[:limit]), else: models)}
    end
  end

  defp named(run_id) when is_binary(run_id) and run_id != "", do: {:ok, run_id}
  defp named(_other), do: {:error, Error.invalid("run_id", "is missing: give the option :run_id, or one in :lineage")}

  defp runs(_opts, name) when is_binary(name), do: {:ok, [name]}

  defp runs(opts, nil) do
    with {:ok, runs} <- pages(opts, [], :runs, "", []), do: {:ok, Enum.map(runs, & &1.run_id)}
  end

  defp models(_opts, [], read), do: {:ok, read |> Enum.reverse() |> Enum.concat()}

  defp models(opts, [run_id | runs], read) do
    case checkpoints(opts, run_id) do
      {:ok, found} -> models(opts, runs, [Enum.map(found, &model(run_id, &1)) | read])
      # Nobody has evaluated it, or its last row went meanwhile.
      {:error, %Error{reason: "UNKNOWN_RUN"}} -> models(opts, runs, read)
      {:error, _reason} = error -> error
    end
  end

  defp checkpoints(opts, run_id), do: pages(opts, [run_id: run_id], :checkpoints, "", [])

  defp pages(opts, asked, field, token, read) do
    conn = Keyword.get(opts, :conn, Connection)
    asked = asked ++ Keyword.take(opts, [:timeout])

    with {:ok, page} <- CrucibleBridge.list_runs(conn, [page_size: @page, page_token: token] ++ asked) do
      read = [Map.fetch!(page, field) | read]

      if page.next_page_token == "",
        do: {:ok, read |> Enum.reverse() |> Enum.concat()},
        else: pages(opts, asked, field, page.next_page_token, read)
    end
  end

  defp model(run_id, checkpoint) do
    results = checkpoint.results

    %{
      id: identity(run_id, checkpoint),
      name: run_id,
      version: version(checkpoint),
      artifact_uri: uri(checkpoint.model),
      metadata: %{
        labels: checkpoint.labels,
        model_fingerprint: checkpoint.model_fingerprint,
        base_model: checkpoint.base_model,
        adapter: checkpoint.adapter,
        results: results
      },
      lineage: %{
        run_id: run_id,
        step: checkpoint.step,
        evaluation_ids: Enum.map(results, & &1.evaluation_id),
        datasets: results |> Enum.map(& &1.dataset) |> Enum.uniq()
      },
      metrics: results |> Enum.map(& &1.metrics) |> Enum.reduce(%{}, &Map.merge(&2, &1)),
      created_at: results |> Enum.map(& &1.created_unix_ns) |> Enum.min() |> DateTime.from_unix!(:nanosecond)
    }
  end

  defp version(%{step: nil}), do: ""
  defp version(%{step: step}), do: Integer.to_string(step)

  defp identity(run_id, checkpoint),
    do: Enum.map_join([run_id, version(checkpoint), uri(checkpoint.model)], "/", &URI.encode_www_form/1)

  defp run_of(id) when is_binary(id) do
    case String.split(id, "/") do
      [run_id, _version, _uri] when run_id != "" -> {:ok, URI.decode_www_form(run_id)}
      _other -> {:error, :not_found}
    end
  end

  defp run_of(_other), do: {:error, :not_found}

  # What a trainer may call it: as the worker does, or by a path alone.
  defp uris(%{model: model, adapter: adapter}) do
    uri = uri(model)
    Enum.reject([uri, String.replace_prefix(uri, "local:", ""), adapter], &(&1 == ""))
  end

  defp uri(%{model: {:embedded, name}}), do: "embedded:" <> name
  defp uri(%{model: {:local, %{path: path}}}), do: "local:" <> path
  defp uri(%{model: {:hub, %{repo_id: repo_id}}}), do: "hub:" <> repo_id
  defp uri(%{model: {:openai, %{server: server, model: model}}}), do: "openai:#{server}/#{model}"
  defp uri(%{model: {:orchestrator, %{name: name}}}), do: "orchestrator:" <> name
  defp uri(%{model: {:installed, %{scheme: scheme, name: name}}}), do: "#{scheme}:#{name}"
  defp uri(%{model: {:tinker, tinker}}), do: tinker.model_path || tinker.state_path || "tinker:#{tinker.base_model}"
end
