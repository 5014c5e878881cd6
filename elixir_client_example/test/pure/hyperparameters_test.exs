defmodule CrucibleBridge.HyperparametersTest do
  use ExUnit.Case, async: true

  alias CrucibleBridge.{Error, Hyperparameters}

  doctest Hyperparameters

  # Python's functions are tested with the same file.
  @cases "hyperparameters.txt"

  for line <- __DIR__ |> Path.join(@cases) |> File.stream!(), not String.starts_with?(line, "#") do
    [function, model, options, result] = String.split(line)

    test "#{function} #{model} #{options}" do
      function = String.to_existing_atom(unquote(function))
      found = apply(Hyperparameters, function, [unquote(model), options(unquote(options))])

      case unquote(result) do
        "!" <> field ->
          assert {:error, %Error{field: ^field}} = found

        number ->
          {expected, ""} = Float.parse(number)
          assert {:ok, value} = found
          assert_in_delta value, expected, expected * 1.0e-12
      end
    end
  end

  test "LoRA takes ten times the learning rate of full fine-tuning" do
    assert Hyperparameters.get_lora_lr_over_full_finetune_lr() == 10.0
  end

  defp options("-"), do: []

  defp options(text) do
    for option <- String.split(text, ",") do
      [key, value] = String.split(option, "=")
      {String.to_existing_atom(key), value(value)}
    end
  end

  defp value("true"), do: true
  defp value("false"), do: false
  defp value(number), do: String.to_integer(number)
end
