defmodule CrucibleBridge.Hyperparameters do
  @moduledoc """
  First guesses for fine-tuning: a learning rate, and the size of a LoRA adapter.

      iex> {:ok, lr} = CrucibleBridge.Hyperparameters.get_lr("Qwen/Qwen3-8B")
      iex> Float.round(lr, 6)
      4.73e-4

      iex> CrucibleBridge.Hyperparameters.get_lora_param_count("Qwen/Qwen3-8B", lora_rank: 1)
      {:ok, 2_883_968}

  Pure functions, which call no worker. Formulas and numbers are those of `hyperparam_utils` in tinker-cookbook
  0.6.1, which reads an unknown model's `hidden_size` from the hub; here it is an option. A variant of a model, as in
  `"zai-org/GLM-5.3:peft:262144"`, counts as the model.
  """

  alias CrucibleBridge.Error

  @base_lr 5.0e-5
  @base_hidden_size 2000
  @lora_factor 10.0
  @exponents [{"llama", 0.781}, {"qwen", 0.0775}]

  # By name: the hidden size, and parameters of a LoRA adapter of rank 1 on feed-forward, attention and output layers.
  @models %{
    "deepseek-ai/DeepSeek-V3.1" => {7168, 94_307_328, 2_440_000, 136_448},
    "deepseek-ai/DeepSeek-V3.1-Base" => {7168, 94_307_328, 2_440_000, 136_448},
    "deepseek-ai/DeepSeek-V4.1-Flash" => {5120, 107_673_600, 1_013_760, 134_400},
    "deepseek-ai/DeepSeek-V4.1-Flash-1017" => {5120, 107_673_600, 1_013_760, 134_400},
    "meta-llama/Llama-3.1-70B" => {8192, 8_847_360, 4_096_000, 136_448},
    "meta-llama/Llama-3.1-8B" => {4096, 1_769_472, 851_968, 132_352},
    "meta-llama/Llama-3.1-8B-Instruct" => {4096, 1_769_472, 851_968, 132_352},
    "meta-llama/Llama-3.2-1B" => {2048, 491_520, 212_992, 130_304},
    "meta-llama/Llama-3.2-3B" => {3072, 946_176, 573_440, 131_328},
    "meta-llama/Llama-3.3-70B-Instruct" => {8192, 8_847_360, 4_096_000, 136_448},
    "moonshotai/Kimi-K2-Thinking" => {7168, 144_583_680, 1_940_288, 171_008},
    "moonshotai/Kimi-K2.5" => {7168, 144_583_680, 1_940_288, 171_008},
    "moonshotai/Kimi-K2.6" => {7168, 144_583_680, 1_940_288, 171_008},
    "moonshotai/Kimi-K3.1-Pro" => {7168, 766_457_856, 8_040_960, 171_008},
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16" => {2688, 11_346_176, 584_832, 133_760},
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16" => {4096, 111_349_760, 1_675_264, 135_168},
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16" => {8192, 254_529_536, 4_134_912, 139_264},
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16" => {2688, 11_346_176, 584_832, 133_760},
    "nvidia/NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16" => {4096, 111_349_760, 1_675_264, 135_168},
    "openai/gpt-oss-120b" => {2880, 40_124_160, 746_496, 203_968},
    "openai/gpt-oss-20b" => {2880, 6_842_880, 497_664, 203_968},
    "Qwen/Qwen3-235B-A22B-Instruct-2507" => {4096, 56_598_528, 3_176_448, 156_032},
    "Qwen/Qwen3-30B-A3B" => {2048, 14_450_688, 835_584, 153_984},
    "Qwen/Qwen3-30B-A3B-Base" => {2048, 14_450_688, 835_584, 153_984},
    "Qwen/Qwen3-30B-A3B-Instruct-2507" => {2048, 14_450_688, 835_584, 153_984},
    "Qwen/Qwen3-32B" => {5120, 5_898_240, 2_490_368, 157_056},
    "Qwen/Qwen3-4B-Instruct-2507" => {2560, 1_327_104, 737_280, 154_496},
    "Qwen/Qwen3-8B" => {4096, 1_769_472, 958_464, 156_032},
    "Qwen/Qwen3-8B-Base" => {4096, 1_769_472, 958_464, 156_032},
    "Qwen/Qwen3-VL-235B-A22B-Instruct" => {4096, 56_598_528, 3_176_448, 156_032},
    "Qwen/Qwen3-VL-30B-A3B-Instruct" => {2048, 14_450_688, 835_584, 153_984},
    "Qwen/Qwen3.5-27B" => {5120, 4_325_376, 2_965_504, 253_440},
    "Qwen/Qwen3.5-35B-A3B" => {2048, 16_281_600, 1_013_760, 250_368},
    "Qwen/Qwen3.5-35B-A3B-Base" => {2048, 16_281_600, 1_013_760, 250_368},
    "Qwen/Qwen3.5-397B-A17B" => {4096, 96_030_720, 2_841_600, 252_416},
    "Qwen/Qwen3.5-4B" => {2560, 1_130_496, 897_024, 250_880},
    "Qwen/Qwen3.5-9B" => {4096, 1_572_864, 1_130_496, 252_416},
    "Qwen/Qwen3.5-9B-Base" => {4096, 1_572_864, 1_130_496, 252_416},
    "Qwen/Qwen3.6-27B" => {5120, 4_325_376, 2_965_504, 253_440},
    "Qwen/Qwen3.6-35B-A3B" => {2048, 16_281_600, 1_013_760, 250_368},
    "Qwen/Qwen3.8-27B" => {5120, 4_325_376, 2_965_504, 253_440},
    "thinkingmachines/Inkling" => {6144, 154_705_920, 3_424_256, 207_168},
    "thinkingmachines/Inkling-2-Small" => {4608, 128_065_536, 2_347_008, 205_632},
    "thinkingmachines/Inkling-Small" => {4096, 64_503_808, 1_311_744, 205_120},
    "zai-org/GLM-5.3" => {6144, 121_356_288, 2_920_320, 161_024},
    "zai-org/GLM-5.3-Flash" => {4096, 75_755_520, 2_009_088, 158_976}
  }

  @doc """
  How many times the learning rate of full fine-tuning suits LoRA: 10.

  Source: "LoRA Without Regret" (https://thinkingmachines.ai/blog/lora/), which finds one factor for all models and ranks.
  """
  @spec get_lora_lr_over_full_finetune_lr() :: float()
  def get_lora_lr_over_full_finetune_lr, do: @lora_factor

  @doc """
  A learning rate to begin with: 5.0e-5 * (2000 / hidden_size) ** exponent, and 10 times that for LoRA.

  The model's name must contain "llama" (exponent 0.781) or "qwen" (0.0775), in any case. Options: `is_lora` (true), and
  `hidden_size`, that of the model's config.json, for models that the table lacks.
  """
  @spec get_lr(String.t(), is_lora: boolean(), hidden_size: pos_integer()) :: {:ok, float()} | {:error, Error.t()}
  def get_lr(model_name, options \\ []) do
    options = Keyword.validate!(options, is_lora: true, hidden_size: nil)

    with {:ok, exponent} <- exponent(model_name),
         {:ok, hidden_size} <- hidden_size(model_name, options[:hidden_size]) do
      factor = if options[:is_lora], do: get_lora_lr_over_full_finetune_lr(), else: 1.0
      {:ok, @base_lr * factor * :math.pow(@base_hidden_size / hidden_size, exponent)}
    end
  end

  @doc """
  Parameters of a LoRA adapter as Tinker makes it, where experts share the factor on the side of the hidden size.

  Options: `lora_rank` (32), `train_mlp`, `train_attn` and `train_unembed` (true each). The developers of tinker-cookbook
  measured the counts of each model.
  """
  @spec get_lora_param_count(String.t(),
          lora_rank: pos_integer(),
          train_mlp: boolean(),
          train_attn: boolean(),
          train_unembed: boolean()
        ) :: {:ok, pos_integer()} | {:error, Error.t()}
  def get_lora_param_count(model_name, options \\ []) do
    options = Keyword.validate!(options, lora_rank: 32, train_mlp: true, train_attn: true, train_unembed: true)
    trained = for key <- [:train_mlp, :train_attn, :train_unembed], do: options[key]

    case Map.get(@models, base_name(model_name)) do
      {_hidden_size, mlp, attn, unembed} ->
        count(options[:lora_rank], trained, [mlp, attn, unembed])

      _unknown ->
        {:error, Error.invalid("model_name", "is #{inspect(model_name)}, whose LoRA parameters are not known")}
    end
  end

  defp count(rank, _trained, _sizes) when not is_integer(rank) or rank < 1,
    do: {:error, Error.invalid("lora_rank", "is #{inspect(rank)}, must be at least 1")}

  defp count(_rank, [false, false, false], _sizes),
    do: {:error, Error.invalid("train_mlp", "is false, and so are train_attn and train_unembed: train one of them")}

  defp count(rank, trained, sizes) do
    {:ok, rank * Enum.sum(for {true, size} <- Enum.zip(trained, sizes), do: size)}
  end

  defp exponent(model_name) do
    name = String.downcase(model_name)

    case Enum.find(@exponents, fn {family, _exponent} -> String.contains?(name, family) end) do
      {_family, exponent} ->
        {:ok, exponent}

      nil ->
        why = "is #{inspect(model_name)}: only Llama and Qwen models were measured; choose your own rate"
        {:error, Error.invalid("model_name", why)}
    end
  end

  defp hidden_size(model_name, nil) do
    case Map.get(@models, base_name(model_name)) do
      {size, _mlp, _attn, _unembed} -> {:ok, size}
      _unknown -> {:error, Error.invalid("hidden_size", "is needed for #{inspect(model_name)}: see its config.json")}
    end
  end

  defp hidden_size(_model_name, size) when is_integer(size) and size >= 1, do: {:ok, size}

  defp hidden_size(_model_name, size),
    do: {:error, Error.invalid("hidden_size", "is #{inspect(size)}, must be at least 1")}

  defp base_name(model_name), do: model_name |> String.split(":", parts: 2) |> hd()
end
