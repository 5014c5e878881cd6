"""Loads LoRA adapters: from a directory to layers in a model.

The layers stay next to the weights. Merged into 16-bit weights, the small changes of a little trained adapter would be
lost to rounding; and if input and output embeddings are one tensor, an adapter of the one would change the other.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.host.refusals import refusing
from crucible_worker.backends.local.paths import ADAPTER_CONFIG, ADAPTER_WEIGHTS

__all__ = ["apply_adapter"]

_TAKEN = frozenset(
    {
        "alpha_pattern",
        "bias",
        "exclude_modules",
        "fan_in_fan_out",
        "layers_pattern",
        "layers_to_transform",
        "lora_alpha",
        "lora_bias",
        "modules_to_save",
        "r",
        "rank_pattern",
        "target_modules",
        "use_dora",
        "use_rslora",
    }
)
"""Fields of a configuration that decide what the layers compute."""
_FLAGS = frozenset({"fan_in_fan_out", "lora_bias", "use_dora", "use_rslora"})
"""Those of them that are true or false; any other value would be read as one of the two."""
_OF_TRAINING = frozenset(
    {
        "auto_mapping",
        "base_model_name_or_path",
        "inference_mode",
        "init_lora_weights",
        "lora_dropout",
        "peft_type",
        "peft_version",
        "revision",
        "task_type",
    }
)
"""Fields that make no difference after training."""
_HARMLESS_BEGINNINGS = (True, False, "gaussian", "orthogonal", "eva")
"""Values of `init_lora_weights` that leave the model's weights unchanged. Others train against changed weights."""


def apply_adapter(model: Any, directory: Path) -> None:
    """Put an adapter's layers into a model, in place.

    The configuration is read field by field: peft would import a module that it names.

    Args:
        model: a transformers model.
        directory: contains adapter_config.json and adapter_model.safetensors.

    Raises:
        FailedPrecondition: it is no LoRA adapter of this model, is damaged, or needs an unsupported feature (reason
            ADAPTER_REFUSED).
    """
    # Only here: models without an adapter need no peft.
    from peft import LoraConfig, PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
    from safetensors.torch import load_file

    with refusing(directory, Reason.ADAPTER_REFUSED):
        config = json.loads((directory / ADAPTER_CONFIG).read_bytes())
        _check_config(directory, config, LoraConfig().to_dict())
        weights = load_file(directory / ADAPTER_WEIGHTS)
        _check_ranks(directory, config, max((max(tensor.shape, default=1) for tensor in weights.values()), default=0))
        wrapped = PeftModel(model, LoraConfig(**{key: config[key] for key in _TAKEN & config.keys()}))
        missing = get_peft_model_state_dict(wrapped, save_embedding_layers=False).keys() - weights.keys()
        unknown = set_peft_model_state_dict(wrapped, weights).unexpected_keys
    if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
        # Some layers do not propagate such values: the model's output would look valid.
        raise _refused(directory, "has weights that are not finite")
    if missing or unknown:
        lacks = f"lacks {len(missing)} weights, the first is {min(missing)}" if missing else ""
        holds = f"has {len(unknown)} weights that the model does not have, the first is {unknown[0]}" if unknown else ""
        raise _refused(directory, " and ".join(filter(None, (lacks, holds))))


def _check_config(directory: Path, config: Any, defaults: dict[str, Any]) -> None:
    if not isinstance(config, dict):
        raise _refused(directory, "has a configuration that is no object")
    if config.get("peft_type") != "LORA":
        raise _refused(directory, f"is of type {str(config.get('peft_type'))[:60]!r}, not LORA")
    if config.get("init_lora_weights", True) not in _HARMLESS_BEGINNINGS:
        begun = str(config["init_lora_weights"])[:60]
        raise _refused(directory, f"was initialized by {begun!r}, which changes the model's own weights")
    for name in sorted(config.keys() - _TAKEN - _OF_TRAINING):
        # A field that this peft does not know has no effect if it is empty.
        if config[name] != defaults.get(name) and config[name]:
            raise _refused(directory, f"needs {name[:60]!r}, which is not supported here")
    _check_values(directory, config)


def _check_values(directory: Path, config: dict[str, Any]) -> None:
    """Refuse values that peft would accept and ignore or misread: it checks few of these."""
    for name, sane, wanted in (
        ("r", _is_rank, "a whole number from 1"),
        ("lora_alpha", _is_factor, "a number above 0"),
    ):
        if name in config and not sane(config[name]):
            raise _refused(directory, f"has {name} {str(config[name])[:60]!r}, not {wanted}")
    for name, sane in (("rank_pattern", _is_rank), ("alpha_pattern", _is_factor)):
        pattern = config.get(name) or {}
        if not isinstance(pattern, dict) or not all(map(sane, pattern.values())):
            raise _refused(directory, f"has an invalid {name}: {str(pattern)[:60]!r}")
    for name in sorted(_FLAGS & config.keys()):
        if not isinstance(config[name], bool):
            raise _refused(directory, f"has {name} {str(config[name])[:60]!r}, neither true nor false")


def _check_ranks(directory: Path, config: dict[str, Any], widest: int) -> None:
    """Refuse ranks larger than any weight: peft would make layers of any size from them."""
    ranks = {"r": config.get("r", 1), **(config.get("rank_pattern") or {})}
    for name, rank in ranks.items():
        if rank > widest:
            path = name if name == "r" else f"rank_pattern[{name[:60]!r}]"
            raise _refused(directory, f"has {path} {rank:,}; its widest tensor has {widest:,}")


def _is_rank(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_factor(value: Any) -> bool:
    """Whether a value can scale layers: with 0 they would do nothing, below 0 the opposite of what was trained."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _refused(directory: Path, why: str) -> FailedPrecondition:
    return FailedPrecondition(f"the adapter {directory.name!r} {why}", reason=Reason.ADAPTER_REFUSED)
