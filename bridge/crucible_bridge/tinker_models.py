"""Facts about models that are fine-tuned on Tinker, by name; see `hyperparameters`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

__all__ = ["TINKER_MODELS", "TinkerModelSize"]


@dataclasses.dataclass(frozen=True, slots=True)
class TinkerModelSize:
    """Sizes of a model."""

    hidden_size: int
    """Width of its layers."""
    mlp: int
    """Parameters of a LoRA adapter of rank 1 on its feed-forward layers."""
    attn: int
    """Likewise, on its attention layers."""
    unembed: int
    """Likewise, on its output layer."""


TINKER_MODELS: Mapping[str, TinkerModelSize] = {
    "deepseek-ai/DeepSeek-V3.1": TinkerModelSize(7168, 94_307_328, 2_440_000, 136_448),
    "deepseek-ai/DeepSeek-V3.1-Base": TinkerModelSize(7168, 94_307_328, 2_440_000, 136_448),
    "deepseek-ai/DeepSeek-V4.1-Flash": TinkerModelSize(5120, 107_673_600, 1_013_760, 134_400),
    "deepseek-ai/DeepSeek-V4.1-Flash-1017": TinkerModelSize(5120, 107_673_600, 1_013_760, 134_400),
    "meta-llama/Llama-3.1-70B": TinkerModelSize(8192, 8_847_360, 4_096_000, 136_448),
    "meta-llama/Llama-3.1-8B": TinkerModelSize(4096, 1_769_472, 851_968, 132_352),
    "meta-llama/Llama-3.1-8B-Instruct": TinkerModelSize(4096, 1_769_472, 851_968, 132_352),
    "meta-llama/Llama-3.2-1B": TinkerModelSize(2048, 491_520, 212_992, 130_304),
    "meta-llama/Llama-3.2-3B": TinkerModelSize(3072, 946_176, 573_440, 131_328),
    "meta-llama/Llama-3.3-70B-Instruct": TinkerModelSize(8192, 8_847_360, 4_096_000, 136_448),
    "moonshotai/Kimi-K2-Thinking": TinkerModelSize(7168, 144_583_680, 1_940_288, 171_008),
    "moonshotai/Kimi-K2.5": TinkerModelSize(7168, 144_583_680, 1_940_288, 171_008),
    "moonshotai/Kimi-K2.6": TinkerModelSize(7168, 144_583_680, 1_940_288, 171_008),
    "moonshotai/Kimi-K3.1-Pro": TinkerModelSize(7168, 766_457_856, 8_040_960, 171_008),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": TinkerModelSize(2688, 11_346_176, 584_832, 133_760),
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16": TinkerModelSize(4096, 111_349_760, 1_675_264, 135_168),
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": TinkerModelSize(8192, 254_529_536, 4_134_912, 139_264),
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16": TinkerModelSize(2688, 11_346_176, 584_832, 133_760),
    "nvidia/NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16": TinkerModelSize(4096, 111_349_760, 1_675_264, 135_168),
    "openai/gpt-oss-120b": TinkerModelSize(2880, 40_124_160, 746_496, 203_968),
    "openai/gpt-oss-20b": TinkerModelSize(2880, 6_842_880, 497_664, 203_968),
    "Qwen/Qwen3-235B-A22B-Instruct-2507": TinkerModelSize(4096, 56_598_528, 3_176_448, 156_032),
    "Qwen/Qwen3-30B-A3B": TinkerModelSize(2048, 14_450_688, 835_584, 153_984),
    "Qwen/Qwen3-30B-A3B-Base": TinkerModelSize(2048, 14_450_688, 835_584, 153_984),
    "Qwen/Qwen3-30B-A3B-Instruct-2507": TinkerModelSize(2048, 14_450_688, 835_584, 153_984),
    "Qwen/Qwen3-32B": TinkerModelSize(5120, 5_898_240, 2_490_368, 157_056),
    "Qwen/Qwen3-4B-Instruct-2507": TinkerModelSize(2560, 1_327_104, 737_280, 154_496),
    "Qwen/Qwen3-8B": TinkerModelSize(4096, 1_769_472, 958_464, 156_032),
    "Qwen/Qwen3-8B-Base": TinkerModelSize(4096, 1_769_472, 958_464, 156_032),
    "Qwen/Qwen3-VL-235B-A22B-Instruct": TinkerModelSize(4096, 56_598_528, 3_176_448, 156_032),
    "Qwen/Qwen3-VL-30B-A3B-Instruct": TinkerModelSize(2048, 14_450_688, 835_584, 153_984),
    "Qwen/Qwen3.5-27B": TinkerModelSize(5120, 4_325_376, 2_965_504, 253_440),
    "Qwen/Qwen3.5-35B-A3B": TinkerModelSize(2048, 16_281_600, 1_013_760, 250_368),
    "Qwen/Qwen3.5-35B-A3B-Base": TinkerModelSize(2048, 16_281_600, 1_013_760, 250_368),
    "Qwen/Qwen3.5-397B-A17B": TinkerModelSize(4096, 96_030_720, 2_841_600, 252_416),
    "Qwen/Qwen3.5-4B": TinkerModelSize(2560, 1_130_496, 897_024, 250_880),
    "Qwen/Qwen3.5-9B": TinkerModelSize(4096, 1_572_864, 1_130_496, 252_416),
    "Qwen/Qwen3.5-9B-Base": TinkerModelSize(4096, 1_572_864, 1_130_496, 252_416),
    "Qwen/Qwen3.6-27B": TinkerModelSize(5120, 4_325_376, 2_965_504, 253_440),
    "Qwen/Qwen3.6-35B-A3B": TinkerModelSize(2048, 16_281_600, 1_013_760, 250_368),
    "Qwen/Qwen3.8-27B": TinkerModelSize(5120, 4_325_376, 2_965_504, 253_440),
    "thinkingmachines/Inkling": TinkerModelSize(6144, 154_705_920, 3_424_256, 207_168),
    "thinkingmachines/Inkling-2-Small": TinkerModelSize(4608, 128_065_536, 2_347_008, 205_632),
    "thinkingmachines/Inkling-Small": TinkerModelSize(4096, 64_503_808, 1_311_744, 205_120),
    "zai-org/GLM-5.3": TinkerModelSize(6144, 121_356_288, 2_920_320, 161_024),
    "zai-org/GLM-5.3-Flash": TinkerModelSize(4096, 75_755_520, 2_009_088, 158_976),
}
"""The models of tinker-cookbook, whose developers measured the counts."""
