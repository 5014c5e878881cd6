defmodule CrucibleBridge.Orchestrator.Held do
  @moduledoc false
  # What stays here in one evaluation: a model, graders and environments by their names.

  alias CrucibleBridge.{Columns, Error}
  alias CrucibleBridge.Orchestrator.{Environment, Grader, Model}

  @timeout_ms 60_000

  defstruct model: nil, graders: %{}, environments: %{}, timeout: @timeout_ms

  @type t :: %__MODULE__{
          model: Model.t() | nil,
          graders: %{String.t() => Grader.t()},
          environments: %{String.t() => Environment.t()},
          timeout: timeout()
        }

  @doc "How long a grader or an environment may take, if nothing is said."
  @spec timeout_ms() :: pos_integer()
  def timeout_ms, do: @timeout_ms

  @doc "Options are `:graders`, `:environments` and `:answer_timeout_ms`, see `CrucibleBridge.Orchestrator.evaluate/4`."
  @spec new(Model.t() | nil, keyword()) :: {:ok, t()} | {:error, Error.t()}
  def new(model, opts) do
    timeout = Keyword.get(opts, :answer_timeout_ms, @timeout_ms)

    with :ok <- model(model),
         {:ok, graders} <- named(opts[:graders], "graders", "grader", &Grader.check/2),
         {:ok, environments} <- named(opts[:environments], "environments", "environment", &Environment.check/2),
         :ok <- timeout(timeout) do
      held = %__MODULE__{model: model, graders: graders, environments: environments, timeout: timeout}
      if held == %__MODULE__{timeout: timeout}, do: nothing(), else: {:ok, held}
    end
  end

  defp model(nil), do: :ok

  defp model(%Model{} = model) do
    cond do
      Model.calls(model) == [] ->
        {:error, Error.invalid("model", "has neither sample, logprobs, forward nor argmax")}

      not is_binary(model.name) ->
        {:error, Error.invalid("model", "has a name that is no text")}

      true ->
        :ok
    end
  end

  defp model(_other), do: {:error, Error.invalid("model", "is no CrucibleBridge.Orchestrator.Model")}

  defp nothing do
    {:error,
     Error.invalid("model", "does not stay here, nor does a grader or an environment: call CrucibleBridge.evaluate/2")}
  end

  defp timeout(:infinity), do: :ok
  defp timeout(ms) when is_integer(ms) and ms > 0, do: :ok
  defp timeout(_other), do: {:error, Error.invalid("answer_timeout_ms", "is neither milliseconds nor :infinity")}

  defp named(nil, _field, _alone, _check), do: {:ok, %{}}

  defp named(given, field, alone, check) do
    # One alone needs no name.
    several = if is_map(given) or Keyword.keyword?(given), do: Map.new(given), else: %{alone => given}

    with {:ok, pairs} <- Columns.each(several, &pair(&1, field, check)), do: {:ok, Map.new(pairs)}
  end

  defp pair({name, value}, field, check) when is_atom(name) or is_binary(name) do
    name = to_string(name)

    if Regex.match?(~r/\A[A-Za-z0-9_.\/-]{1,200}\z/, name) do
      with :ok <- check.(value, "#{field}[#{inspect(name)}]"), do: {:ok, {name, value}}
    else
      {:error,
       Error.invalid(field, "have the name #{inspect(name)}, not letters, digits and _ . - / of at most 200 bytes")}
    end
  end

  defp pair(_other, field, _check), do: {:error, Error.invalid(field, "have a name that is no text")}
end
