defmodule CrucibleBridge.Dataset do
  @moduledoc """
  What a data set may be given as, and its samples as the worker takes them.

  | given | means |
  |---|---|
  | `"builtin:arithmetic"` | one that ships with the worker |
  | `"jsonl:PATH"`, `"csv:PATH"`, `"parquet:PATH"` | a file below one of the worker's data roots |
  | `"jsonl:PATH?input=question&target=answer"` | likewise, with the names of its columns |
  | `"hub:OWNER/NAME?split=test&input=question&target=answer"` | a split of a data set of the Hugging Face hub |
  | a list, a stream or a function without arguments that makes one | its items, sent with the request |
  | a map or struct with `:items`, `:samples`, `:data` or `:stream` | likewise: CrucibleDatasets, HfDatasetsEx |
  | a map with `:dataset` | what is in there: the handles of Kitchen's dataset stores |
  | a `CrucibleBridge.V1.Dataset` | itself |

  An item is `{input, target}`; a datum, by its `model_input` and `loss_fn_inputs`; or a map with atoms or strings as
  keys, read by the first of these fields that it has, unless an option says which:

    * input: `input`, `question`, `problem`, `prompt`, `instruction`, `messages`, `conversation`, `text`. Text, a list of
      `%{role, content}`, or a map with fields of its own, such as `%{question, choices}`
    * target: `targets`, `target`, `expected`, `answer`, `output`, `completion`, `response`, `solution`, `label`. Text, a
      number, a list of several that are right, or a map with an `answer`. An integer where there are choices is the
      index of one, from 0, and becomes its letter. If another choice has this letter as its text, the choices get
      their letters as labels, so that 0 of `["B", "A"]` is "B"
    * choices: `choices`, beside the input or in it
    * `id`, and `metadata`, of which texts, numbers and atoms are kept, as texts
  """

  alias CrucibleBridge.Error

  @typedoc "A sample; empty is what it lacks."
  @type sample :: %{
          id: String.t(),
          input: {:text, String.t()} | {:conversation, [{String.t(), String.t()} | map()]} | {:datum, map()},
          targets: [String.t()],
          choices: [String.t()],
          choice_labels: [String.t()],
          metadata: %{String.t() => String.t()}
        }

  @typedoc "Where samples come from."
  @type source ::
          {:inline, [sample()]}
          | {:builtin, String.t()}
          | {:jsonl, String.t()}
          | {:file, :csv | :jsonl | :parquet, String.t(), %{String.t() => String.t()}}
          | {:hub, String.t(), %{String.t() => String.t()}}
          | {:v1, struct()}

  @inputs ~w(input question problem prompt instruction messages conversation text)a
  @targets ~w(targets target expected answer output completion response solution label)a
  @collections ~w(items samples data stream)a
  @options ~w(input_field target_field choices_field id_field target_after)a

  @doc "The options of `read/2` that are its own; `:limit` is a request's, too."
  @spec options() :: [atom()]
  def options, do: @options

  @doc """
  Finds out where samples come from, and reads those that are here.

  Options:

    * `:input_field`, `:target_field`, `:choices_field`, `:id_field` - an atom, a string, or a function of the item
    * `:target_after` - a mark, such as `"####"`: a target is what stands behind its last place
    * `:limit` - read no more items of a list or stream than this; the worker takes the same number of other sources

  ## Examples

      iex> {:ok, {:inline, [sample]}} = CrucibleBridge.Dataset.read([{"17+25=", 42}])
      iex> {sample.input, sample.targets}
      {{:text, "17+25="}, ["42"]}
      iex> CrucibleBridge.Dataset.read("builtin:arithmetic")
      {:ok, {:builtin, "arithmetic"}}
  """
  @spec read(term(), keyword()) :: {:ok, source()} | {:error, Error.t()}
  def read(dataset, opts \\ [])
  def read("builtin:" <> name, _opts) when name != "", do: {:ok, {:builtin, name}}
  def read("jsonl:" <> rest, _opts) when rest != "", do: file(:jsonl, rest)
  def read("csv:" <> rest, _opts) when rest != "", do: file(:csv, rest)
  def read("parquet:" <> rest, _opts) when rest != "", do: file(:parquet, rest)
  def read("hub:" <> rest, _opts) when rest != "", do: hub(rest)
  def read(%{__struct__: CrucibleBridge.V1.Dataset} = dataset, _opts), do: {:ok, {:v1, dataset}}
  def read(items, opts) when is_list(items), do: items(items, opts)
  def read(lazy, opts) when is_function(lazy, 0), do: read(lazy.(), opts)
  def read(%Stream{} = stream, opts), do: items(stream, opts)
  def read(stream, opts) when is_function(stream, 2), do: items(stream, opts)

  def read(%{} = handle, opts) do
    case Enum.find(@collections, &is_map_key(handle, &1)) do
      nil when is_map_key(handle, :dataset) -> read(handle.dataset, opts)
      nil -> neither()
      key -> items(Map.fetch!(handle, key), opts)
    end
  end

  def read(_other, _opts), do: neither()

  defp neither do
    {:error,
     Error.invalid(
       "dataset",
       "is no list or stream of items, no map that holds one, and none of builtin:NAME, jsonl:PATH, csv:PATH, " <>
         "parquet:PATH and hub:OWNER/NAME"
     )}
  end

  # A text without a "?" is a path as it stands, but for %3F: a "?" in the name of a file.
  defp file(format, rest) do
    case String.split(rest, "?", parts: 2) do
      [path] -> {:ok, source(format, String.replace(path, ["%3F", "%3f"], "?"), %{})}
      [path, options] -> with {:ok, columns} <- columns(options), do: {:ok, source(format, URI.decode(path), columns)}
    end
  end

  defp source(:jsonl, path, columns) when columns == %{}, do: {:jsonl, path}
  defp source(format, path, columns), do: {:file, format, path, columns}

  defp columns(options) do
    options
    |> String.split("&", trim: true)
    |> Enum.reduce_while({:ok, %{}}, fn option, {:ok, columns} ->
      case String.split(option, "=", parts: 2) do
        [key, column] when key != "" and column != "" ->
          {:cont, {:ok, Map.put(columns, URI.decode(key), URI.decode(column))}}

        _ ->
          {:halt, {:error, Error.invalid("dataset", "has the option #{inspect(option)}, which is not KEY=COLUMN")}}
      end
    end)
  end

  defp hub(rest) do
    case String.split(rest, "?", parts: 2) do
      [repo_id, options] -> {:ok, {:hub, repo_id, URI.decode_query(options)}}
      [repo_id] -> {:ok, {:hub, repo_id, %{}}}
    end
  rescue
    ArgumentError -> {:error, Error.invalid("dataset", "has a % that begins no byte")}
  end

  defp items(items, opts) do
    taken = if limit = opts[:limit], do: Enum.take(items, limit), else: items

    taken
    |> Enum.with_index()
    |> Enum.reduce_while({:ok, []}, fn {item, index}, {:ok, samples} ->
      case sample(item, opts) do
        {:ok, sample} -> {:cont, {:ok, [sample | samples]}}
        {:error, field, message} -> {:halt, {:error, Error.invalid("dataset[#{index}]#{field}", message)}}
      end
    end)
    |> case do
      {:ok, samples} -> {:ok, {:inline, Enum.reverse(samples)}}
      {:error, error} -> {:error, error}
    end
  end

  defp sample(%{model_input: _, loss_fn_inputs: _} = datum, opts) do
    with {:ok, id} <- id(datum, opts),
         do: {:ok, %{id: id, input: {:datum, datum}, targets: [], choices: [], choice_labels: [], metadata: %{}}}
  end

  defp sample({input, target}, opts), do: sample(%{input: input, target: target}, opts)

  defp sample(%{} = item, opts) do
    with {:ok, input, inner} <- input(item, opts),
         {:ok, choices} <- choices(item, inner, opts),
         {:ok, targets} <- targets(item, choices, opts),
         {:ok, id} <- id(item, opts) do
      labels = labels(item, targets, choices, opts)

      {:ok,
       %{
         id: id,
         input: input,
         targets: targets,
         choices: choices,
         choice_labels: labels,
         metadata: metadata(item)
       }}
    end
  end

  defp sample(_item, _opts), do: {:error, "", "is neither {input, target} nor a map"}

  # The second value is the map that holds the input, where that has fields of its own.
  defp input(item, opts) do
    case found(item, opts[:input_field], @inputs) do
      {:ok, text} when is_binary(text) -> {:ok, {:text, text}, %{}}
      {:ok, messages} when is_list(messages) -> conversation(messages)
      {:ok, %{model_input: _, loss_fn_inputs: _} = datum} -> {:ok, {:datum, datum}, %{}}
      {:ok, %{} = inner} when not is_struct(inner) -> inner(inner)
      {:ok, _other} -> {:error, ".input", "is no text, no list of messages and no map"}
      :error -> {:error, "", "has no input: say which field is, by the option :input_field"}
    end
  end

  defp inner(inner) do
    case found(inner, nil, @inputs) do
      {:ok, text} when is_binary(text) -> {:ok, {:text, text}, inner}
      _ -> {:error, ".input", "is a map without a text that asks"}
    end
  end

  defp conversation(messages) do
    Enum.reduce_while(messages, {:ok, []}, fn message, {:ok, read} ->
      with %{} <- message,
           {:ok, role} when is_binary(role) or is_atom(role) <- found(message, nil, [:role]),
           {:ok, content} <- found(message, nil, [:content]),
           {:ok, text} <- content(content) do
        {:cont, {:ok, [with_calls(message, to_string(role), text) | read]}}
      else
        _ -> {:halt, {:error, ".input", "has a message that is no map with a role and a text as content"}}
      end
    end)
    |> case do
      {:ok, read} -> {:ok, {:conversation, Enum.reverse(read)}, %{}}
      error -> error
    end
  end

  defp with_calls(message, role, content) do
    further =
      for key <- [:tool_calls, :tool_call_id],
          {:ok, given} when given not in [nil, [], ""] <- [found(message, nil, [key])],
          do: {key, given}

    if further == [] and is_binary(content),
      do: {role, content},
      else: Map.new([role: role, content: content] ++ further)
  end

  # Messages of crucible_train may hold their text in parts; images stay parts.
  defp content(text) when is_binary(text), do: {:ok, text}

  defp content([_ | _] = parts) do
    texts = Enum.map(parts, &text_of/1)

    cond do
      Enum.all?(texts, &is_binary/1) -> {:ok, Enum.join(texts)}
      Enum.all?(Enum.zip(parts, texts), fn {part, text} -> text || image?(part) end) -> {:ok, parts}
      true -> :error
    end
  end

  defp content(_other), do: :error

  defp text_of(text) when is_binary(text), do: text
  defp text_of(%{text: text}), do: text
  defp text_of(_image), do: nil

  defp image?(part), do: match?(%{data: _, format: _}, part) or match?(%{location: _, format: _}, part)

  defp choices(item, inner, opts) do
    with :error <- found(item, opts[:choices_field], [:choices]),
         :error <- found(inner, nil, [:choices]) do
      {:ok, []}
    else
      {:ok, choices} when is_list(choices) -> texts(choices, ".choices")
      {:ok, _other} -> {:error, ".choices", "are no list"}
    end
  end

  # Without labels, a letter that is the text of another choice would name that one.
  defp labels(item, [letter], choices, opts) do
    texts = Enum.map(choices, &(&1 |> String.trim() |> String.upcase()))

    with {:ok, target} <- found(item, opts[:target_field], @targets),
         index when is_integer(index) <- index_in(target),
         true <- letter in List.delete_at(texts, index) do
      for place <- 0..(length(choices) - 1), do: <<?A + place>>
    else
      _ -> []
    end
  end

  defp labels(_item, _targets, _choices, _opts), do: []

  defp index_in(%{} = map) when not is_struct(map) do
    case found(map, nil, [:answer, :target, :text]) do
      {:ok, answer} when not is_map(answer) -> answer
      _ -> nil
    end
  end

  defp index_in(target), do: target

  defp targets(item, choices, opts) do
    case found(item, opts[:target_field], @targets) do
      {:ok, target} -> target |> target(choices) |> after_mark(opts[:target_after])
      :error -> {:ok, []}
    end
  end

  defp target(nil, _choices), do: {:ok, []}
  defp target(targets, _choices) when is_list(targets), do: texts(targets, ".target")

  defp target(index, choices) when is_integer(index) and choices != [] do
    if index in 0..(length(choices) - 1),
      do: {:ok, [<<?A + index>>]},
      else: {:error, ".target", "is #{index}, and there are #{length(choices)} choices"}
  end

  defp target(%{} = map, choices) when not is_struct(map) do
    case found(map, nil, [:answer, :target, :text]) do
      {:ok, answer} when not is_map(answer) -> target(answer, choices)
      _ -> {:error, ".target", "is a map without an answer"}
    end
  end

  defp target(value, _choices), do: texts([value], ".target")

  defp after_mark({:ok, targets}, mark) when is_binary(mark) do
    {:ok, Enum.map(targets, &(&1 |> String.split(mark) |> List.last() |> String.trim()))}
  end

  defp after_mark(targets, _none), do: targets

  defp id(item, opts) do
    case found(item, opts[:id_field], [:id]) do
      {:ok, id} when is_binary(id) -> {:ok, id}
      {:ok, id} when is_integer(id) -> {:ok, Integer.to_string(id)}
      # The worker numbers them.
      none when none in [:error, {:ok, nil}] -> {:ok, ""}
      {:ok, _other} -> {:error, ".id", "is neither text nor an integer"}
    end
  end

  defp metadata(item) do
    case found(item, nil, [:metadata]) do
      {:ok, %{} = metadata} when not is_struct(metadata) ->
        for {key, value} <- metadata,
            {:ok, name} <- [text(key)],
            {:ok, text} <- [text(value)],
            into: %{},
            do: {name, text}

      _ ->
        %{}
    end
  end

  defp texts(values, field) do
    texts = Enum.map(values, &text/1)

    if Enum.all?(texts, &match?({:ok, _}, &1)),
      do: {:ok, Enum.map(texts, &elem(&1, 1))},
      else: {:error, field, "holds what is neither text nor a number"}
  end

  defp text(text) when is_binary(text), do: {:ok, text}
  defp text(number) when is_integer(number), do: {:ok, Integer.to_string(number)}
  defp text(number) when is_float(number), do: {:ok, number(number)}
  defp text(atom) when is_atom(atom) and not is_nil(atom), do: {:ok, Atom.to_string(atom)}
  defp text(_other), do: :error

  # 72.0 is how some loaders keep 72; nobody answers "72.0".
  defp number(float) when trunc(float) == float and abs(float) < 1.0e15, do: float |> trunc() |> Integer.to_string()
  defp number(float), do: Float.to_string(float)

  defp found(item, nil, fields), do: first(item, fields)
  defp found(item, field, _fields) when is_function(field, 1), do: {:ok, field.(item)}
  defp found(item, field, _fields), do: fetch(item, field)

  defp first(item, fields) do
    Enum.find_value(fields, :error, fn field ->
      with :error <- fetch(item, field), :error <- fetch(item, Atom.to_string(field)), do: nil
    end)
  end

  defp fetch(item, field), do: Map.fetch(item, field)
end
