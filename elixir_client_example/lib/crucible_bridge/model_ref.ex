defmodule CrucibleBridge.ModelRef do
  @moduledoc """
  What a model may be given as, and what is made of it.

  | given | means |
  |---|---|
  | `"embedded:arithmetic@320"` | a checkpoint that ships with the worker |
  | `"tinker://RUN/sampler_weights/NAME"` | weights of the Tinker service, to sample from |
  | `"tinker://RUN/weights/NAME"` | a training state there: it answers forward passes |
  | `"tinker:MODEL"` | a base model there |
  | `"openai:SERVER/MODEL"` | a model behind a server that the worker is configured with |
  | `"local:PATH"`, or a path without a colon | a directory below one of the worker's model roots |
  | `"hub:OWNER/NAME"` | a model of the Hugging Face hub, or of the worker's cache of it |
  | `"SCHEME:NAME"` | a model of a backend that was installed alongside the worker |
  | a `CrucibleBridge.V1.ModelRef` | itself |
  | a `CrucibleBridge.Orchestrator.Model` | a model that stays here and is asked over a stream |
  | `{ports, session}` of crucible_train | likewise, see `CrucibleBridge.Orchestrator.Ports` |
  | a session of Kitchen's Tinkex adapter | its sampler weights, saved for this by name |

  Behind a `?` stand options: `local:PATH?adapter=PATH&device=DEVICE&dtype=TYPE`; for the hub these and
  `revision=REVISION`; for Tinker `service=NAME`, and `kind=model|state` for a path that does not look like it. In place
  of `device`, `devices=DEVICE,DEVICE` has a replica on each. `%25`, `%3F`, `%26` and `%3D` spell the four signs.
  """

  alias CrucibleBridge.{Apart, Error, Options, Reason}
  alias CrucibleBridge.Orchestrator.{Model, Ports}

  require Logger

  @typedoc "A model as the worker is told of it; `{:v1, message}` is handed on as it is."
  @type remote ::
          {:embedded, String.t()}
          | {:local, %{optional(atom()) => String.t()}}
          | {:hub, %{optional(atom()) => String.t()}}
          | {:tinker, %{optional(atom()) => String.t()}}
          | {:openai, %{server: String.t(), model: String.t()}}
          | {:installed, %{scheme: String.t(), name: String.t()}}
          | {:v1, struct()}

  @tinkex_adapter CrucibleKitchen.Adapters.Tinkex.TrainingClient
  @local_options %{"adapter" => :adapter_path, "device" => :device, "devices" => :device, "dtype" => :dtype}
  @hub_options Map.put(@local_options, "revision", :revision)
  @options ~w(save_weights weights_name model_name side renderer encode decode model_input sampling_params)a
  @schemes ~w(embedded local hub openai tinker orchestrator)
  @tinker_kinds %{"model" => :model_path, "state" => :state_path, "base" => :base_model}

  @doc "The options of `resolve/2`, but for `:model`."
  @spec options() :: [atom()]
  def options, do: @options

  @doc """
  Finds out what a model is, and saves a session's weights where that is what it takes.

  Options:

    * `:model` - in place of what is given: any of the above, or a function from what is given to one of them
    * `:save_weights` - `fn session, name -> {:ok, path} | {:error, reason} end` in place of
      `#{inspect(@tinkex_adapter)}.save_weights_for_sampler/2`; a map with `:path` is a path, too
    * `:weights_name` - the name to save a session's weights by; one that was never used if absent
    * those of `CrucibleBridge.Orchestrator.Ports.model/3`, for a model that stays here
  """
  @spec resolve(term(), keyword()) :: {:ok, remote() | {:held, Model.t()}} | {:error, Error.t()}
  def resolve(given, opts \\ []) do
    case Keyword.fetch(opts, :model) do
      {:ok, choose} when is_function(choose, 1) -> chosen(choose, given, opts)
      {:ok, model} -> find(model, opts)
      :error -> find(given, opts)
    end
  end

  defp chosen(choose, given, opts) do
    with {:ok, model} <- Options.call("model", fn -> choose.(given) end), do: find(model, opts)
  end

  @doc """
  Reads a model's spelling.

      iex> CrucibleBridge.ModelRef.parse("embedded:arithmetic@320")
      {:ok, {:embedded, "arithmetic@320"}}
      iex> CrucibleBridge.ModelRef.parse("tinker://run-1/sampler_weights/step-40")
      {:ok, {:tinker, %{model_path: "tinker://run-1/sampler_weights/step-40"}}}
      iex> CrucibleBridge.ModelRef.parse("checkpoints/final?dtype=bfloat16")
      {:ok, {:local, %{path: "checkpoints/final", dtype: "bfloat16"}}}
  """
  @spec parse(String.t()) :: {:ok, remote()} | {:error, Error.t()}
  def parse("embedded:" <> name) when name != "", do: {:ok, {:embedded, name}}
  def parse("local:" <> rest) when rest != "", do: local(rest)
  def parse("hub:" <> rest) when rest != "", do: hub(rest)
  def parse("tinker:" <> rest) when rest != "", do: tinker(rest)

  def parse("openai:" <> rest = text) do
    case String.split(rest, "/", parts: 2) do
      [server, model] when server != "" and model != "" ->
        {:ok, {:openai, %{server: server, model: model}}}

      _ ->
        unknown(text)
    end
  end

  def parse(text) do
    case Regex.run(~r/\A([a-z][a-z0-9_.-]{0,59}):(.+)\z/s, text) do
      [_, scheme, name] when scheme not in @schemes -> {:ok, {:installed, %{scheme: scheme, name: name}}}
      _ -> if text == "" or String.contains?(text, ":"), do: unknown(text), else: local(text)
    end
  end

  defp find(text, _opts) when is_binary(text), do: parse(text)

  defp find({kind, _} = resolved, _opts)
       when kind in [:embedded, :local, :hub, :tinker, :openai, :installed, :v1, :held],
       do: {:ok, resolved}

  defp find(%Model{} = model, _opts), do: {:ok, {:held, model}}
  defp find(%{__struct__: CrucibleBridge.V1.ModelRef} = ref, _opts), do: {:ok, {:v1, ref}}

  defp find({%{__struct__: CrucibleTrain.Ports} = ports, session}, opts) do
    with {:ok, model} <- Ports.model(ports, session, opts), do: {:ok, {:held, model}}
  end

  defp find(%{id: id, service_client: _} = session, opts) when is_pid(id), do: saved(session, opts)

  defp find(_other, _opts) do
    # Not shown: sessions hold keys.
    {:error,
     Error.invalid(
       "model",
       "is no text, ModelRef, model of the orchestrator, {ports, session} or session of Tinkex: " <>
         "give the option :model, a reference or a function that makes one of the session"
     )}
  end

  defp saved(session, opts) do
    name = Keyword.get_lazy(opts, :weights_name, &fresh_name/0)

    with {:ok, save} <- saver(opts),
         {:ok, path} <- apart(fn -> save(save, session, name) end) do
      find(path, opts)
    end
  end

  defp saver(opts) do
    case Keyword.fetch(opts, :save_weights) do
      {:ok, save} when is_function(save, 2) ->
        {:ok, save}

      {:ok, _other} ->
        {:error, Error.invalid("save_weights", "is no function of a session and a name")}

      :error ->
        if Code.ensure_loaded?(@tinkex_adapter) do
          {:ok, &apply(@tinkex_adapter, :save_weights_for_sampler, [&1, &2])}
        else
          {:error, Error.invalid("save_weights", "is missing, and crucible_kitchen is not there to save weights")}
        end
    end
  end

  defp apart(save) do
    case Apart.run(save) do
      {:ok, result} -> result
      {:exit, reason} -> not_saved("not saved", reason)
    end
  end

  # The adapter matches on what its service answers: failures are raised as well as told.
  defp save(save, session, name) do
    case save.(session, name) do
      {:ok, path} when is_binary(path) -> {:ok, path}
      {:ok, %{path: path}} when is_binary(path) -> {:ok, path}
      {:ok, %{"path" => path}} when is_binary(path) -> {:ok, path}
      {:ok, _other} -> not_saved("saved without a path", :no_path)
      {:error, reason} -> not_saved("not saved", reason)
    end
  rescue
    error -> not_saved("not saved: #{inspect(error.__struct__)}", error)
  catch
    kind, reason -> not_saved("not saved: #{kind}", reason)
  end

  # What a service said is for this node's log alone: errors travel, and are written down.
  defp not_saved(message, reason) do
    Logger.warning("the weights of a session were not saved: " <> Reason.describe(reason))

    {:error,
     %Error{
       code: :unavailable,
       reason: "WEIGHTS_NOT_SAVED",
       message: "the weights were #{message}; see the log",
       field: "model",
       retryable: true
     }}
  end

  defp fresh_name, do: "crucible-bridge-#{System.system_time(:nanosecond)}"

  defp local(text) do
    with {:ok, path, options} <- read(text),
         {:ok, fields} <- fields(options, @local_options) do
      {:ok, {:local, Map.put(fields, :path, path)}}
    end
  end

  defp hub(text) do
    with {:ok, repo_id, options} <- read(text),
         {:ok, fields} <- fields(options, @hub_options) do
      {:ok, {:hub, Map.put(fields, :repo_id, repo_id)}}
    end
  end

  defp tinker(rest) do
    with {:ok, name, options} <- read(rest),
         name = if(String.starts_with?(name, "//"), do: "tinker:" <> name, else: name),
         {kind, options} = Map.pop(options, "kind", tinker_kind(name)),
         {:ok, fields} <- fields(options, %{"service" => :service}) do
      case Map.fetch(@tinker_kinds, kind) do
        {:ok, field} -> {:ok, {:tinker, Map.put(fields, field, name)}}
        :error -> {:error, Error.invalid("model", "has a kind that is neither model nor state")}
      end
    end
  end

  defp tinker_kind("tinker://" <> path) do
    if String.contains?(path, "/weights/"), do: "state", else: "model"
  end

  defp tinker_kind(_base_model), do: "base"

  defp fields(options, known) do
    Enum.reduce_while(options, {:ok, %{}}, fn {key, value}, {:ok, fields} ->
      case known do
        %{^key => field} when is_map_key(fields, field) ->
          {:halt, {:error, Error.invalid("model", "has device and devices, which are one option")}}

        %{^key => field} ->
          {:cont, {:ok, Map.put(fields, field, value)}}

        _ ->
          names = known |> Map.keys() |> Enum.join(", ")
          {:halt, {:error, Error.invalid("model", "has the option #{inspect(key)}; there are #{names}")}}
      end
    end)
  end

  defp read(text) do
    case String.split(text, "?", parts: 2) do
      [name] ->
        {:ok, name, %{}}

      [name, rest] ->
        pieces = rest |> String.split("&", trim: true) |> Enum.map(&String.split(&1, "=", parts: 2))

        if Enum.all?(pieces, &match?([<<_, _::binary>>, _], &1)) do
          {:ok, URI.decode(name), Map.new(pieces, fn [key, value] -> {URI.decode(key), URI.decode(value)} end)}
        else
          {:error, Error.invalid("model", "has an option behind the ? that is not KEY=VALUE")}
        end
    end
  rescue
    ArgumentError -> {:error, Error.invalid("model", "has a % that begins no byte")}
  end

  defp unknown(text) do
    {:error,
     Error.invalid(
       "model",
       "is #{inspect(String.slice(text, 0, 60))}, not embedded:NAME, local:PATH, hub:OWNER/NAME, tinker:MODEL " <>
         "or openai:SERVER/MODEL"
     )}
  end
end
