defmodule CrucibleBridge.Calls.Derived do
  @moduledoc false
  # A function for each unary call of the protos that a module has none for, so that a new call needs none written:
  #
  #     {:ok, reply} = CrucibleBridge.compute_something(conn, field: value)
  #
  # It is called as the call is, and takes the fields of its request. `besides` are the requests that the module has
  # functions of another name for; one that leaves out "compute_" is found by itself.

  alias CrucibleBridge.Calls

  defmacro __using__(besides: besides) do
    quote do
      @before_compile unquote(__MODULE__)
      @besides unquote(besides)
    end
  end

  defmacro __before_compile__(env) do
    besides = Module.get_attribute(env.module, :besides)
    written = for {name, _arity} <- Module.definitions_in(env.module, :def), into: MapSet.new(), do: name(name)

    for {request, function} <- Calls.unary(), request not in besides, name(function) not in written do
      quote do
        @doc "The call of `#{inspect(unquote(request))}`, whose fields are keywords."
        @spec unquote(function)(CrucibleBridge.Connection.conn(), keyword, keyword) ::
                {:ok, map} | {:error, CrucibleBridge.Error.t()}
        def unquote(function)(conn \\ CrucibleBridge.Connection, fields, opts \\ []),
          do: Calls.of_fields(conn, unquote(request), fields, opts)
      end
    end
  end

  defp name(function), do: function |> Atom.to_string() |> String.replace_prefix("compute_", "")
end
