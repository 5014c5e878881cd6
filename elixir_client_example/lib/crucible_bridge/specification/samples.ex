defmodule CrucibleBridge.Specification.Samples do
  @moduledoc "A data set that was read, as a message."

  alias CrucibleBridge.{Columns, Error, V1, Wire}

  @hub_places ~w(split config revision)

  @formats %{csv: :FILE_FORMAT_CSV, jsonl: :FILE_FORMAT_JSONL, parquet: :FILE_FORMAT_PARQUET}

  @doc "The message; options are `:limit`, `:shuffle_seed`, `:skip_malformed` and `:where`."
  @spec dataset(CrucibleBridge.Dataset.source(), keyword()) :: {:ok, V1.Dataset.t()} | {:error, Error.t()}
  def dataset({:v1, dataset}, _opts), do: {:ok, dataset}

  def dataset(source, opts) do
    with {:ok, source} <- source(source) do
      {:ok,
       %V1.Dataset{
         source: source,
         limit: opts[:limit],
         shuffle_seed: opts[:shuffle_seed],
         skip_malformed: opts[:skip_malformed] || false
       }
       |> where(opts[:where])}
    end
  end

  defp where(dataset, nil), do: dataset

  defp where(dataset, metadata) do
    struct!(dataset, where: Map.new(metadata, fn {key, value} -> {to_string(key), to_string(value)} end))
  end

  defp source({:builtin, name}), do: {:ok, {:builtin, name}}
  defp source({:jsonl, path}), do: {:ok, {:jsonl_path, path}}

  defp source({:file, format, path, columns}) do
    fields = %{path: path, format: Map.fetch!(@formats, format), columns: columns}
    {:ok, {:file, struct!(V1.FileDataset, fields)}}
  end

  defp source({:hub, repo_id, options}) do
    {places, columns} = Map.split(options, @hub_places)

    {:ok,
     {:hub,
      %V1.HubDataset{
        repo_id: repo_id,
        split: places["split"] || "",
        config: places["config"],
        revision: places["revision"],
        columns: columns
      }}}
  end

  defp source({:inline, samples}) do
    with {:ok, samples} <- Columns.numbered(samples, "dataset", &sample/2),
         do: {:ok, {:inline, %V1.InlineDataset{samples: samples}}}
  end

  defp sample(sample, field) do
    with {:ok, input} <- input(sample.input, field) do
      {:ok,
       %V1.Sample{
         id: sample.id,
         input: input,
         targets: sample.targets,
         choices: sample.choices,
         metadata: sample.metadata
       }}
    end
  end

  defp input({:text, text}, _field), do: {:ok, {:text, text}}

  defp input({:conversation, messages}, _field) do
    messages = for {role, content} <- messages, do: %V1.ChatMessage{role: role, content: content}
    {:ok, {:conversation, %V1.Conversation{messages: messages}}}
  end

  defp input({:datum, datum}, field) do
    with {:ok, datum} <- Wire.datum(datum, field), do: {:ok, {:datum, datum}}
  end
end
