"""First guesses for fine-tuning: a learning rate, and the size of a LoRA adapter.

    get_lr("Qwen/Qwen3-8B")                                # 0.000473, for LoRA
    get_lora_param_count("Qwen/Qwen3-8B", lora_rank=16)

Pure functions: they read nothing but their arguments and a table. Formulas and numbers are those of
`hyperparam_utils` in tinker-cookbook 0.6.1, which reads an unknown model's `hidden_size` from the hub; here it is an
argument. A variant of a model, as in "zai-org/GLM-5.3:peft:262144", counts as the model.
"""

from __future__ import annotations

from crucible_bridge.errors import InvalidField
from crucible_bridge.tinker_models import TINKER_MODELS

__all__ = ["get_lora_lr_over_full_finetune_lr", "get_lora_param_count", "get_lr"]

_BASE_LR = 5e-5
_BASE_HIDDEN_SIZE = 2000
_LORA_FACTOR = 10.0
_EXPONENTS = {"llama": 0.781, "qwen": 0.0775}
"""How fast the learning rate falls with the hidden size, by what a model's name contains."""


def get_lora_lr_over_full_finetune_lr(model_name: str = "", lora_alpha: int = 32) -> float:
    """How many times the learning rate of full fine-tuning suits LoRA: 10, whatever the arguments.

    Args:
        model_name: as tinker-cookbook takes it; the factor does not depend on it.
        lora_alpha: likewise.

    Source: "LoRA Without Regret" (https://thinkingmachines.ai/blog/lora/), which finds one factor for all models and
    ranks.
    """
    return _LORA_FACTOR


def get_lr(model_name: str, is_lora: bool = True, *, hidden_size: int | None = None) -> float:
    """A learning rate to begin with: 5e-5 * (2000 / hidden_size) ** exponent, and 10 times that for LoRA.

    Args:
        model_name: on the Hugging Face hub; it must contain "llama" (exponent 0.781) or "qwen" (0.0775), in any case.
        is_lora: for LoRA, else for full fine-tuning.
        hidden_size: width of the model's layers, `hidden_size` of its config.json; if None, that of the table.

    Raises:
        InvalidField: no learning rate was measured for the model's family, or `hidden_size` is needed or below 1.

    Source: tinker-cookbook, `get_lr`.
    """
    exponent = next((value for family, value in _EXPONENTS.items() if family in model_name.lower()), None)
    if exponent is None:
        raise InvalidField(
            "model_name",
            f"is {model_name!r}: only Llama and Qwen models were measured; choose your own rate",
        )
    if hidden_size is None:
        known = TINKER_MODELS.get(_base_name(model_name))
        hidden_size = None if known is None else known.hidden_size
    if hidden_size is None:
        raise InvalidField("hidden_size", f"is needed for {model_name!r}: it is in the model's config.json")
    if hidden_size < 1:
        raise InvalidField("hidden_size", f"is {hidden_size}, must be at least 1")
    factor = get_lora_lr_over_full_finetune_lr() if is_lora else 1.0
    return _BASE_LR * factor * (_BASE_HIDDEN_SIZE / hidden_size) ** exponent


def get_lora_param_count(
    model_name: str,
    lora_rank: int = 32,
    *,
    train_mlp: bool = True,
    train_attn: bool = True,
    train_unembed: bool = True,
) -> int:
    """Parameters of a LoRA adapter as Tinker makes it, where experts share the factor on the side of the hidden size.

    Args:
        model_name: a base model of Tinker.
        lora_rank: of the adapter.
        train_mlp: with the feed-forward layers.
        train_attn: with the attention layers.
        train_unembed: with the output layer.

    Raises:
        InvalidField: the model is not in the table, the rank is below 1, or no layers are trained.

    Source: tinker-cookbook, `get_lora_param_count`; its developers measured the counts of each model.
    """
    size = TINKER_MODELS.get(_base_name(model_name))
    if size is None:
        raise InvalidField("model_name", f"is {model_name!r}, whose LoRA parameters are not known")
    if lora_rank < 1:
        raise InvalidField("lora_rank", f"is {lora_rank}, must be at least 1")
    if not (train_mlp or train_attn or train_unembed):
        raise InvalidField("train_mlp", "is false, and so are train_attn and train_unembed: train one of them")
    return lora_rank * (size.mlp * train_mlp + size.attn * train_attn + size.unembed * train_unembed)


def _base_name(model_name: str) -> str:
    return model_name.partition(":")[0]
