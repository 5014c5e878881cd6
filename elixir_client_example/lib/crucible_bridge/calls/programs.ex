defmodule CrucibleBridge.Calls.Programs do
  @moduledoc false
  # GradingService.GradeCode and ExtractCode; documented at CrucibleBridge.

  alias CrucibleBridge.{Columns, Connection, Error, Specification, V1, Wire}
  alias CrucibleBridge.Specification.Values
  alias V1.GradingService.Stub

  @comparison [:by_token, :absolute_tolerance, :relative_tolerance]
  @limits [:timeout_ms, :memory_mb, :output_bytes]

  def grade_code(conn, items, opts) do
    {call, options} = Keyword.split(opts, [:timeout])
    {ks, options} = Keyword.pop(options, :k, [])
    {image, limits} = Keyword.pop(options, :image, "")

    with {:ok, limits} <- limits(limits),
         {:ok, image} <- Values.text(image, "image"),
         {:ok, items} <- Columns.numbered(items, "items", &item/2),
         request = %V1.GradeCodeRequest{items: items, limits: limits, k: List.wrap(ks), image: image},
         {:ok, reply} <- Connection.call(conn, Stub, :grade_code, request, call) do
      {:ok, Wire.decode(reply)}
    end
  end

  def extract_code(conn, responses, opts) do
    {names, call} = Keyword.pop(opts, :names, [])

    # Without names, or with misspelt ones, another program would be taken.
    with :ok <- Specification.known(call, [:names, :timeout], "options"),
         {:ok, names} <- Columns.numbered(List.wrap(names), "names", &name/2),
         request = %V1.ExtractCodeRequest{responses: List.wrap(responses), names: names},
         {:ok, reply} <- Connection.call(conn, Stub, :extract_code, request, call) do
      {:ok, Wire.decode(reply.programs)}
    end
  end

  # No program defines a number.
  defp name(number, field) when is_number(number), do: {:error, Error.invalid(field, "is a number, not a name")}
  defp name(name, field), do: Values.text(name, field)

  defp limits([]), do: {:ok, nil}

  defp limits(limits) do
    case Keyword.keys(limits) -- @limits do
      [] ->
        {:ok, struct!(V1.CodeLimits, limits)}

      [key | _] ->
        {:error, Error.invalid("options", "has #{inspect(key)}; there are k, image, #{Enum.join(@limits, ", ")}")}
    end
  end

  defp item(%V1.CodeItem{} = item, _field), do: {:ok, item}

  defp item(%{response: response} = item, field) when is_binary(response) do
    tests = item |> Map.get(:tests, []) |> List.wrap()

    with {:ok, tests} <- Columns.numbered(tests, field <> ".tests", &test/2),
         {:ok, id} <- Values.text(Map.get(item, :id, ""), field <> ".id"),
         {:ok, prefix} <- Values.text(Map.get(item, :prefix, ""), field <> ".prefix"),
         {:ok, problem_id} <- Values.text(Map.get(item, :problem_id, ""), field <> ".problem_id") do
      {:ok, %V1.CodeItem{id: id, response: response, prefix: prefix, tests: tests, problem_id: problem_id}}
    end
  end

  defp item(_other, field), do: {:error, Error.invalid(field, "is no map with a response that is text")}

  defp test(%V1.CodeTest{} = test, _field), do: {:ok, test}
  defp test(%V1.StdioTest{} = test, _field), do: {:ok, %V1.CodeTest{test: {:stdio, test}}}
  defp test(%V1.InputOutputTests{} = tests, _field), do: {:ok, %V1.CodeTest{test: {:input_output, tests}}}
  defp test(%V1.CallTest{} = call, _field), do: {:ok, %V1.CodeTest{test: {:call, call}}}
  defp test(text, _field) when is_binary(text), do: {:ok, %V1.CodeTest{test: {:assertions, text}}}

  defp test(%{stdin: stdin, stdout: stdout} = test, field) when is_binary(stdin) and is_binary(stdout) do
    with :ok <- known(test, [:stdin, :stdout | @comparison], field),
         {:ok, how} <- comparison(test, field),
         do: {:ok, %V1.CodeTest{test: {:stdio, %V1.StdioTest{stdin: stdin, stdout: stdout, comparison: how}}}}
  end

  defp test(%{input_output: tests} = test, field) do
    with :ok <- known(test, [:input_output | @comparison], field),
         {:ok, json} <- if(is_binary(tests), do: {:ok, tests}, else: json(tests, "#{field}.input_output")),
         {:ok, how} <- comparison(test, field),
         do: {:ok, %V1.CodeTest{test: {:input_output, %V1.InputOutputTests{json: json, comparison: how}}}}
  end

  defp test(%{function: function, expected: expected} = call, field) when is_binary(function) do
    with :ok <- known(call, [:function, :arguments, :expected], field),
         {:ok, arguments} <- json(Map.get(call, :arguments, []), "#{field}.arguments"),
         {:ok, expected} <- json(expected, "#{field}.expected") do
      call = %V1.CallTest{function: function, arguments_json: arguments, expected_json: expected}
      {:ok, %V1.CodeTest{test: {:call, call}}}
    end
  end

  defp test(_other, field) do
    kinds = "assertions, %{stdin, stdout}, %{input_output} or %{function, arguments, expected}"
    {:error, Error.invalid(field, "is none of #{kinds}")}
  end

  # A misspelt or misplaced way to compare would go unnoticed.
  defp known(test, names, field) do
    case Map.keys(test) -- names do
      [] -> :ok
      [key | _] -> {:error, Error.invalid(field, "has #{inspect(key)}; there are #{Enum.join(names, ", ")}")}
    end
  end

  defp comparison(test, field) do
    case Map.take(test, @comparison) do
      how when how == %{} -> {:ok, nil}
      how -> with {:ok, how} <- Columns.each(how, &compared(&1, field)), do: {:ok, struct!(V1.OutputComparison, how)}
    end
  end

  # A message's double takes no integer.
  defp compared({:by_token, value}, _field) when is_boolean(value), do: {:ok, {:by_token, value}}
  defp compared({name, value}, _field) when name != :by_token and is_number(value), do: {:ok, {name, value * 1.0}}

  defp compared({:by_token, _other}, field),
    do: {:error, Error.invalid("#{field}.by_token", "is neither true nor false")}

  defp compared({name, _other}, field), do: {:error, Error.invalid("#{field}.#{name}", "is no number")}

  defp json(value, field) do
    case Jason.encode(value) do
      {:ok, text} -> {:ok, text}
      {:error, _reason} -> {:error, Error.invalid(field, "cannot be written as JSON")}
    end
  end
end
