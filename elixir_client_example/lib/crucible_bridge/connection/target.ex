defmodule CrucibleBridge.Connection.Target do
  @moduledoc false
  # Where a worker is and how it is spoken to: the options of a connection, checked once.

  alias CrucibleBridge.{Apart, Error, Options}

  @enforce_keys [:host, :port, :adapter, :connect_timeout]
  defstruct [:host, :port, :find, :adapter, :tls, :token, :connect_timeout]

  @typedoc """
  `host` is text, or `{:local, path}` for a Unix socket, or nil until `find` is asked; `token` and `tls` are functions, so that
  nothing prints what they hold.
  """
  @type t :: %__MODULE__{
          host: String.t() | {:local, String.t()} | nil,
          port: :inet.port_number(),
          find: (-> {:ok, String.t()} | {:error, term}) | nil,
          adapter: :gun | :mint,
          tls: (-> keyword) | nil,
          token: (-> {:ok, String.t()} | {:error, Error.t()}) | nil,
          connect_timeout: pos_integer
        }

  @adapters [:gun, :mint]
  @options [:address, :token, :token_file, :tls, :adapter, :timeout, :connect_timeout]

  @doc "Reads the options of `CrucibleBridge.Connection.start_link/1`."
  @spec new(keyword) :: {:ok, t} | {:error, Error.t()}
  def new(opts) do
    with :ok <- Options.once(opts),
         :ok <- known(Keyword.keys(opts)),
         {:ok, {host, port}, find} <- place(Keyword.get(opts, :address, "127.0.0.1:50051")),
         {:ok, token} <- token(opts[:token], opts[:token_file]),
         {:ok, adapter} <- adapter(Keyword.get(opts, :adapter, :gun)),
         {:ok, tls} <- tls(opts[:tls]),
         {:ok, connect_timeout} <- milliseconds(Keyword.get(opts, :connect_timeout, 5_000), "connect_timeout") do
      {:ok,
       %__MODULE__{
         host: host,
         port: port,
         find: find,
         adapter: adapter,
         tls: tls,
         token: token,
         connect_timeout: connect_timeout
       }}
    end
  end

  # A misspelt option would be a connection without a token, or without TLS.
  defp known(names) do
    case names -- @options do
      [] -> :ok
      [name | _] -> {:error, Error.invalid(to_string(name), "is no option; there are #{Enum.join(@options, ", ")}")}
    end
  end

  @doc """
  Reads "host:port", "[ipv6]:port" or "unix:/path".

  ## Examples

      iex> CrucibleBridge.Connection.Target.address("[::1]:50051")
      {:ok, {"::1", 50051}}
      iex> CrucibleBridge.Connection.Target.address("unix:/run/worker.sock")
      {:ok, {{:local, "/run/worker.sock"}, 0}}
  """
  @spec address(term) :: {:ok, {String.t() | {:local, String.t()}, :inet.port_number()}} | {:error, Error.t()}
  def address("unix:///" <> path), do: {:ok, {{:local, "/" <> path}, 0}}
  def address("unix:" <> path) when path != "", do: {:ok, {{:local, path}, 0}}

  def address(text) when is_binary(text) do
    with [_all, bracketed, plain, digits] <-
           Regex.run(~r/\A(?:\[([0-9a-fA-F:.]+)\]|([^\s:\/\[\]]+)):([0-9]{1,5})\z/, text),
         port when port in 1..65_535 <- String.to_integer(digits) do
      {:ok, {bracketed <> plain, port}}
    else
      _no_match -> {:error, Error.invalid("address", ~s(is #{inspect(text)}, neither "host:port" nor "unix:/path"))}
    end
  end

  def address(_other), do: {:error, Error.invalid("address", "is no text")}

  @doc "Where the worker is now; an address that is a function is asked anew for each connection."
  @spec located(t) :: {:ok, t} | {:error, Error.t()}
  def located(%__MODULE__{find: nil} = target), do: {:ok, target}

  def located(%__MODULE__{find: find} = target) do
    with {:ok, {:ok, text}} <- Apart.run(find),
         {:ok, {host, port}} <- address(text) do
      {:ok, %{target | host: host, port: port}}
    else
      {:error, %Error{} = error} -> {:error, error}
      {:ok, {:error, %Error{} = error}} -> {:error, error}
      {:ok, {:error, reason}} when is_binary(reason) -> {:error, Error.transport("no address: #{reason}")}
      {:ok, {:error, reason}} -> {:error, Error.transport("no address: #{inspect(reason)}")}
      {:ok, _other} -> {:error, Error.invalid("address", "is a function that gave neither {:ok, text} nor an error")}
      {:exit, _reason} -> {:error, Error.transport("no address: the function that gives it failed")}
    end
  end

  defp place(find) when is_function(find, 0), do: {:ok, {nil, 0}, find}

  defp place(address) do
    with {:ok, place} <- address(address), do: {:ok, place, nil}
  end

  @doc "How the worker is called in messages."
  @spec name(t) :: String.t()
  def name(%__MODULE__{host: {:local, path}}), do: "unix:" <> path
  def name(%__MODULE__{host: host, port: port}), do: "#{host}:#{port}"

  @doc "The metadata of every call: the token, if there is one."
  @spec metadata(t) :: {:ok, %{optional(String.t()) => String.t()}} | {:error, Error.t()}
  def metadata(%__MODULE__{token: nil}), do: {:ok, %{}}

  def metadata(%__MODULE__{token: token}) do
    with {:ok, token} <- token.(), do: {:ok, %{"authorization" => "Bearer " <> token}}
  end

  defp token(nil, nil), do: {:ok, nil}

  defp token(nil, path) when is_binary(path) do
    # Read at each call, so that a token that is replaced counts from then on.
    {:ok, fn -> read_token(path) end}
  end

  defp token(token, nil) when is_binary(token) do
    with {:ok, token} <- checked(token, "token"), do: {:ok, fn -> {:ok, token} end}
  end

  defp token(token, nil) when is_function(token, 0) do
    {:ok, fn -> asked(token) end}
  end

  defp token(_token, _path), do: {:error, Error.invalid("token", "and token_file exclude each other, and each is text")}

  # What its failure is made of may hold what it was to give.
  defp asked(token) do
    checked(token.(), "token")
  rescue
    error -> {:error, Error.invalid("token", "is a function that raised #{inspect(error.__struct__)}")}
  end

  defp read_token(path) do
    case File.read(path) do
      {:ok, content} -> content |> String.trim() |> checked("token_file")
      {:error, reason} -> {:error, Error.invalid("token_file", "cannot be read: #{:file.format_error(reason)}")}
    end
  end

  # Not shown: it is a secret.
  defp checked(token, field) do
    if is_binary(token) and token =~ ~r/\A[\x21-\x7e]+\z/,
      do: {:ok, token},
      else: {:error, Error.invalid(field, "is empty, or holds characters that a header cannot carry")}
  end

  defp adapter(adapter) when adapter in @adapters, do: {:ok, adapter}
  defp adapter(_other), do: {:error, Error.invalid("adapter", "is neither :gun nor :mint")}

  defp tls(nil), do: {:ok, nil}

  defp tls(options) when is_function(options, 0), do: {:ok, options}

  defp tls(options) do
    if Keyword.keyword?(options),
      do: {:ok, fn -> options end},
      else: {:error, Error.invalid("tls", "is no keyword list of options of :ssl")}
  end

  defp milliseconds(number, _field) when is_integer(number) and number > 0, do: {:ok, number}
  defp milliseconds(_other, field), do: {:error, Error.invalid(field, "is no positive number of milliseconds")}
end
