defmodule CrucibleBridge.Specification.Samples do
  @moduledoc "A data set that was read, as a message."

  alias CrucibleBridge.{Columns, Error, V1, Wire}
  alias CrucibleBridge.Wire.{Message, Messages, Names}

  @hub_places ~w(split config revision)

  @doc "The message; options are `:limit`, `:shuffle_seed`, `:skip_malformed`, `:where` and `:prompt`."
  @spec dataset(CrucibleBridge.Dataset.source(), keyword()) :: {:ok, V1.Dataset.t()} | {:error, Error.t()}
  def dataset({:v1, dataset}, _opts), do: {:ok, dataset}

  def dataset(source, opts) do
    with {:ok, source} <- source(source),
         {:ok, prompt} <- Message.build(opts[:prompt], V1.Prompt, "prompt") do
      {:ok,
       %V1.Dataset{
         source: source,
         prompt: prompt,
         limit: opts[:limit],
         shuffle_seed: opts[:shuffle_seed],
         skip_malformed: opts[:skip_malformed] || false
       }
       |> where(opts[:where])}
    end
  end

  defp where(dataset, nil), do: dataset

  defp where(dataset, metadata),
    do: %{dataset | where: Map.new(metadata, fn {key, value} -> {to_string(key), to_string(value)} end)}

  defp source({:builtin, name}), do: {:ok, {:builtin, name}}
  defp source({:jsonl, path}), do: {:ok, {:jsonl_path, path}}

  defp source({:file, format, path, columns}) do
    with {:ok, format} <- Names.long(V1.FileFormat, format, "dataset"),
         do: {:ok, {:file, %V1.FileDataset{path: path, format: format, columns: columns}}}
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
         choice_labels: sample.choice_labels,
         metadata: sample.metadata
       }}
    end
  end

  defp input({:text, text}, _field), do: {:ok, {:text, text}}

  defp input({:conversation, messages}, field) do
    with {:ok, conversation} <- Messages.conversation(messages, field), do: {:ok, {:conversation, conversation}}
  end

  defp input({:datum, datum}, field) do
    with {:ok, datum} <- Wire.datum(datum, field), do: {:ok, {:datum, datum}}
  end
end
