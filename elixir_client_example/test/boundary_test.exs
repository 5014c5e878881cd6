defmodule CrucibleBridge.BoundaryTest do
  use ExUnit.Case, async: true

  alias CrucibleBridge.Connection.Call
  alias CrucibleBridge.{Error, Tensor, V1, Wire}
  alias CrucibleBridge.Wire.Names

  doctest Call

  @compile {:no_warn_undefined, Nx}

  defp generated do
    {:ok, modules} = :application.get_key(:crucible_bridge, :modules)
    for module <- modules, Code.ensure_loaded!(module), function_exported?(module, :__message_props__, 0), do: module
  end

  test "the worker's deadline is never before the caller's, and whole in the unit that it is told in" do
    for timeout <- [1, 500, 999, 1_000, 58_999, 59_500, 59_501, 90_000, 119_000, 3_599_999, 3_600_000, 10_000_000] do
      told = Call.server_timeout(timeout)
      assert told >= timeout + 500
      unit = Enum.find([3_600_000, 60_000, 1_000], &(told >= &1))
      assert rem(told, unit) == 0
    end
  end

  test "every dtype crosses the wire and comes back" do
    for dtype <- [:u8, :bool, :i32, :i64, :f16, :bf16, :f32, :f64] do
      tensor = %Tensor{dtype: dtype, shape: [1], data: <<0::64>>}
      encoded = tensor |> Wire.tensor() |> V1.Tensor.encode()
      assert encoded |> V1.Tensor.decode() |> Wire.tensor() == tensor
    end
  end

  test "a dtype and an enum's value of a newer worker cost nothing but themselves" do
    assert %Tensor{dtype: :unspecified} = Wire.decode(%V1.Tensor{dtype: 99, data: <<0>>})
    assert %{state: 99, evaluation_id: "e"} = Wire.decode(%V1.Evaluation{state: 99, evaluation_id: "e"})
  end

  test "every value of an enum has its short name, but for kinds of events" do
    enums = for module <- generated(), module.__message_props__().enum?, module != V1.EventKind, do: module
    assert V1.Verdict in enums

    for enum <- enums, {value, number} <- enum.mapping() do
      short = Wire.decode(value)
      assert value |> Atom.to_string() |> String.downcase() |> String.ends_with?("_" <> Atom.to_string(short))
      assert short != value
      assert number == 0 or Names.long(enum, short, "x") == {:ok, value}
    end

    assert {:error, %Error{field: "x", message: "has :unspecified; there are :correct, " <> _}} =
             Names.long(V1.Verdict, :unspecified, "x")
  end

  test "every call of the worker has a function" do
    functions = CrucibleBridge.__info__(:functions) |> Keyword.keys() |> MapSet.new()
    # Named otherwise here, or, as the one that streams both ways, a module of its own.
    names = %{
      "cancel_evaluation" => :cancel,
      "get_info" => :info,
      "watch_evaluation" => :watch,
      "evaluate_with_orchestrator_model" => nil,
      "compute_classification_metrics" => :classification
    }

    for service <- [
          V1.EvaluationService,
          V1.ExperimentService,
          V1.MetricsService,
          V1.GradingService,
          V1.ModelService,
          V1.RenderingService,
          V1.TelemetryService,
          V1.WorkerService
        ],
        {call, _request, _response, _options} <- Module.safe_concat(service, Service).__rpc_calls__() do
      call = call |> Atom.to_string() |> Macro.underscore()
      plain = Map.get_lazy(names, call, fn -> String.replace_prefix(call, "compute_", "") end)
      known = plain == nil or Enum.any?(functions, &(to_string(&1) in [to_string(plain), call]))
      assert known, call
    end
  end

  test "what a reply holds is plain, down to the last message in it" do
    evaluation = %V1.Evaluation{
      state: :EVALUATION_STATE_COMPLETED,
      metrics: %V1.Metrics{values: %{"nll" => 0.5}},
      request: %V1.EvaluateRequest{model: %V1.ModelRef{model: {:local, %V1.LocalModel{path: "a"}}}},
      results: [%V1.EvaluatorResult{problem: %V1.Problem{reason: "STALLED", retryable: true}}]
    }

    assert %{
             state: :completed,
             metrics: %{values: %{"nll" => 0.5}, undefined: %{}},
             request: %{model: %{model: {:local, %{path: "a", dtype: nil}}}},
             results: [%{problem: %{reason: "STALLED", retryable: true}}]
           } = decoded = Wire.decode(evaluation)

    refute inspect(decoded, structs: false) =~ "__"
  end

  test "a reply has the fields of its message and no other, whatever the version of protobuf keeps in a message" do
    plain = for module <- generated(), not module.__message_props__().enum?, module != V1.Tensor, do: module
    assert length(plain) > 50

    for module <- plain do
      props = module.__message_props__()
      fields = for {_number, field} <- props.field_props, field.oneof == nil, do: field.name_atom
      declared = fields ++ Keyword.keys(props.oneof)
      assert module |> struct() |> Wire.decode() |> Map.keys() |> Enum.sort() == Enum.sort(declared), inspect(module)
    end
  end

  if Code.ensure_loaded?(Nx) do
    test "Nx tensors keep their type where a tensor has it, and are widened where not" do
      for {type, dtype} <- [
            {{:f, 32}, :f32},
            {{:f, 64}, :f64},
            {{:bf, 16}, :bf16},
            {{:f, 16}, :f16},
            {{:s, 64}, :i64},
            {{:s, 16}, :i32},
            {{:u, 8}, :u8},
            {{:u, 32}, :i64}
          ] do
        nx = Nx.tensor([[1, 2], [3, 4]], type: type)
        assert {:ok, %Tensor{dtype: ^dtype, shape: [2, 2]} = tensor} = Tensor.pack(nx)
        assert {:ok, back} = Tensor.to_nx(tensor)
        assert Nx.to_flat_list(back) == Nx.to_flat_list(nx)
      end

      assert {:error, %CrucibleBridge.Error{code: :invalid_argument}} = Tensor.pack(Nx.tensor([1], type: {:u, 64}))
      assert {:ok, %Tensor{dtype: :f32, shape: [1]}} = Tensor.pack(Nx.tensor(1.5, type: {:f, 32}))
    end

    test "NaN and infinities of Nx are told by name in lists, and masks of Nx are flagged" do
      nx = Nx.tensor([:nan, :infinity, :neg_infinity, 1.0], type: {:f, 32})
      {:ok, tensor} = Tensor.pack(nx)
      assert Tensor.unpack(tensor) == {:ok, [:nan, :infinity, :negative_infinity, 1.0]}
      assert {:ok, %Tensor{dtype: :bool, data: <<0, 1, 0, 1>>}} = Tensor.flags(nx)
      assert {:ok, %Tensor{dtype: :f64}} = Tensor.pack(Nx.tensor([1.0], type: {:f, 32}), dtype: :f64)
    end
  end
end
