defmodule CrucibleBridge.Calls.Programs do
  @moduledoc false
  # GradingService.GradeCode and ExtractCode; documented at CrucibleBridge.

  alias CrucibleBridge.{Calls, Columns, Error, Specification, V1}
  alias CrucibleBridge.Specification.Values
  alias CrucibleBridge.Wire.Message

  @comparison Message.names(V1.OutputComparison)

  def grade_code(conn, items, opts) do
    {own, limits} = Keyword.split(opts, [:k, :image, :timeout])

    with {:ok, limits} <- if(limits == [], do: {:ok, nil}, else: Message.options(limits, V1.CodeLimits)),
         {:ok, request} <- Message.options(own, V1.GradeCodeRequest, items: [], limits: limits),
         {:ok, items} <- Columns.numbered(items, "items", &item/2),
         do: Calls.unary(conn, %{request | items: items}, own)
  end

  def extract_code(conn, responses, opts) do
    # Without names, or with misspelt ones, another program would be taken.
    with {:ok, names} <- opts |> Keyword.get(:names, []) |> List.wrap() |> Columns.numbered("names", &name/2),
         fields = [responses: List.wrap(responses), names: names],
         {:ok, request} <- opts |> Keyword.delete(:names) |> Message.options(V1.ExtractCodeRequest, fields),
         do: Calls.unary(conn, request, opts, :programs)
  end

  # No program defines a number.
  defp name(number, field) when is_number(number), do: {:error, Error.invalid(field, "is a number, not a name")}
  defp name(name, field), do: Values.text(name, field)

  defp item(%V1.CodeItem{} = item, _field), do: {:ok, item}

  defp item(%{response: response} = item, field) when is_binary(response) do
    tests = item |> Map.get(:tests, []) |> List.wrap()

    with {:ok, tests} <- Columns.numbered(tests, field <> ".tests", &test/2),
         do: item |> Map.put(:tests, tests) |> Message.part(V1.CodeItem, field)
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
    with :ok <- known(call, [:function, :arguments, :expected | @comparison], field),
         {:ok, arguments} <- json(Map.get(call, :arguments, []), "#{field}.arguments"),
         {:ok, expected} <- json(expected, "#{field}.expected"),
         {:ok, how} <- comparison(call, field) do
      call = %V1.CallTest{function: function, arguments_json: arguments, expected_json: expected, comparison: how}
      {:ok, %V1.CodeTest{test: {:call, call}}}
    end
  end

  defp test(_other, field) do
    kinds = "assertions, %{stdin, stdout}, %{input_output} or %{function, arguments, expected}"
    {:error, Error.invalid(field, "is none of #{kinds}")}
  end

  # A misspelt or misplaced way to compare would go unnoticed.
  defp known(test, names, field), do: test |> Map.to_list() |> Specification.known(names, field)

  defp comparison(test, field) do
    how = Map.take(test, @comparison)
    Message.build(if(how != %{}, do: how), V1.OutputComparison, field)
  end

  defp json(value, field) do
    case Jason.encode(value) do
      {:ok, text} -> {:ok, text}
      {:error, _reason} -> {:error, Error.invalid(field, "cannot be written as JSON")}
    end
  end
end
