"""Loads a model from a directory into memory, with its LoRA adapter, or refuses the directory with one error."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.cache_utils import DynamicLayer

from crucible_bridge.errors import FailedPrecondition, clipped
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.host.texts import Texts, check_tokenizer, facts_of, marks_of
from crucible_worker.backends.local.host.weight_checks import check_sizes, refuse_other_weights
from crucible_worker.backends.local.paths import ADAPTER_CONFIG, ADAPTER_WEIGHTS, has_tokenizer
from crucible_worker.rendering.tool_calls import form_of_template

__all__ = ["LoadedModel", "apply_adapter", "load", "load_texts", "load_tokenizer", "refusing", "resolve_device"]


# Maps the errors of transformers and peft about invalid files to one error.

_RAISED = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ImportError,
    RuntimeError,
    re.error,
    SafetensorError,
)


@contextlib.contextmanager
def refusing(directory: Path, reason: str) -> Iterator[None]:
    """Turn a library's error about a directory into ours; a lack of memory is raised unchanged.

    Raises:
        FailedPrecondition: with that reason.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except _RAISED as error:
        if "can't allocate memory" in str(error):
            raise
        raise FailedPrecondition(f"{directory.name!r} cannot be loaded: {_first_line(error)}", reason=reason) from error


def _first_line(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"malformed JSON: {error}"
    return (str(error) or type(error).__name__).strip().splitlines()[0]


# Loads LoRA adapters: from a directory to layers in a model.
#
# The layers stay next to the weights. Merged into 16-bit weights, the small changes of a little trained adapter would
# be lost to rounding; and if input and output embeddings are one tensor, an adapter of the one would change the other.

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
        raise _refused(directory, f"is of type {clipped(str(config.get('peft_type')))}, not LORA")
    if config.get("init_lora_weights", True) not in _HARMLESS_BEGINNINGS:
        begun = str(config["init_lora_weights"])[:60]
        raise _refused(directory, f"was initialized by {begun!r}, which changes the model's own weights")
    for name in sorted(config.keys() - _TAKEN - _OF_TRAINING):
        # A field that this peft does not know has no effect if it is empty.
        if config[name] != defaults.get(name) and config[name]:
            raise _refused(directory, f"needs {clipped(name)}, which is not supported here")
    _check_values(directory, config)


def _check_values(directory: Path, config: dict[str, Any]) -> None:
    """Refuse values that peft would accept and ignore or misread: it checks few of these."""
    for name, sane, wanted in (
        ("r", _is_rank, "a whole number from 1"),
        ("lora_alpha", _is_factor, "a number above 0"),
    ):
        if name in config and not sane(config[name]):
            raise _refused(directory, f"has {name} {clipped(str(config[name]))}, not {wanted}")
    for name, sane in (("rank_pattern", _is_rank), ("alpha_pattern", _is_factor)):
        pattern = config.get(name) or {}
        if not isinstance(pattern, dict) or not all(map(sane, pattern.values())):
            raise _refused(directory, f"has an invalid {name}: {clipped(str(pattern))}")
    for name in sorted(_FLAGS & config.keys()):
        if not isinstance(config[name], bool):
            raise _refused(directory, f"has {name} {clipped(str(config[name]))}, neither true nor false")


def _check_ranks(directory: Path, config: dict[str, Any], widest: int) -> None:
    """Refuse ranks larger than any weight: peft would make layers of any size from them."""
    ranks = {"r": config.get("r", 1), **(config.get("rank_pattern") or {})}
    for name, rank in ranks.items():
        if rank > widest:
            path = name if name == "r" else f"rank_pattern[{clipped(name)}]"
            raise _refused(directory, f"has {path} {rank:,}; its widest tensor has {widest:,}")


def _is_rank(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_factor(value: Any) -> bool:
    """Whether a value can scale layers: with 0 they would do nothing, below 0 the opposite of what was trained."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _refused(directory: Path, why: str) -> FailedPrecondition:
    return FailedPrecondition(f"the adapter {directory.name!r} {why}", reason=Reason.ADAPTER_REFUSED)


_CACHE_ARGUMENTS = ("past_key_values", "cache_params", "cache")
"""Names of the cache's argument: in models with attention (also mixed with others), in recurrent models, and in all
models of transformers 5.24 and later."""
_SMALL_PARAMETERS = 10_000_000
"""A smaller model uses one thread: its matrix products are done before a second thread has woken up, and threads that
wait for each other on a busy machine cost a multiple of the work. Its results then do not depend on the number of cores
either."""
_ALL_THREADS = torch.get_num_threads()
"""Threads of torch at the start, before a small model has changed the number."""
_UNLIMITED = 1_000_000_000
"""A tokenizer without a limit reports 1e30."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedModel:
    """A model that can compute, and the facts about it."""

    model: Any
    """The transformers model, in evaluation mode, without gradients."""
    tokenizer: Any | None
    """Its tokenizer, if there is one."""
    device: torch.device
    """The device of its weights."""
    context: int | None
    """Context length in tokens; None if unknown."""
    vocabulary: int
    """Size of the vocabulary: token ids are below this."""
    stop_tokens: frozenset[int]
    """Tokens that end a text."""
    arguments: frozenset[str]
    """Arguments of the forward pass."""
    cache_argument: str
    """Name of the argument for a cache."""
    threads: int
    """Number of threads that compute it on a CPU."""
    joins_batches: bool
    """Whether its cache has only keys and values, which rows of different lengths can share; recurrent state cannot."""
    marks: Mapping[int, str]
    """Special tokens that mark reasoning, by id, see `texts.py`."""

    @property
    def single_threaded(self) -> bool:
        """Whether one thread computes a pass."""
        return self.threads == 1 and self.device.type == "cpu"

    def new_cache(self) -> DynamicCache:
        """An empty cache for one batch."""
        # Without the configuration every layer keeps all keys, and the mask does sliding windows: such layers can be
        # padded and joined.
        return DynamicCache() if self.joins_batches else DynamicCache(config=self.model.config)

    def facts(self) -> dict[str, Any]:
        """Facts that the worker needs."""
        tokenizer = self.tokenizer
        return {
            "context": self.context,
            "vocabulary": self.vocabulary,
            "bos": None if tokenizer is None else tokenizer.bos_token_id,
            "eos": None if tokenizer is None else tokenizer.eos_token_id,
            "has_tokenizer": tokenizer is not None,
            "tokens": None if tokenizer is None else len(tokenizer),
            "has_chat_template": tokenizer is not None and bool(tokenizer.chat_template),
            "tool_form": form_of_template(None if tokenizer is None else tokenizer.chat_template),
        }


def resolve_device(name: str) -> torch.device:
    """The device that "auto", "cpu", "cuda" or "cuda:N" means here; "cuda" is the first CUDA device.

    Raises:
        FailedPrecondition: this machine has no such device.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "cpu" or (name == "auto" and not count):
        return torch.device("cpu")
    index = int(name.partition(":")[2] or 0)
    if index >= count:
        there = f"CUDA devices here: {count}" if count else "there is no CUDA here"
        raise FailedPrecondition(f"the device {name!r} cannot be used: {there}", reason=Reason.DEVICE_NOT_FOUND)
    return torch.device("cuda", index)


def load(
    directory: Path, device: torch.device, *, adapter: Path | None = None, dtype: str | None = None
) -> LoadedModel:
    """Load a model and its tokenizer; an adapter does not change the tokenizer.

    Unless a type is given, weights become float32 on a CPU, whatever their type on disk: half precision is slow there,
    and rounds differently on different processors. On CUDA they keep their type.

    Args:
        directory: of the model.
        device: of the computation.
        adapter: directory of a LoRA adapter.
        dtype: element type of the weights.

    Raises:
        FailedPrecondition: the files are no causal language model, or no adapter of it; they are damaged, or need
            custom code.
    """
    model, tokenizer, report = _read(directory, _wanted_dtype(dtype, device))
    refuse_other_weights(directory, model, report)
    arguments = frozenset(inspect.signature(model.forward).parameters)
    cache_argument = next((name for name in _CACHE_ARGUMENTS if name in arguments), None)
    if cache_argument is None:
        # It would silently treat the last token as the whole text.
        raise FailedPrecondition(
            f"{type(model).__name__} accepts no cache, so it cannot generate here", reason=Reason.MODEL_REFUSED
        )
    vocabulary = min(model.get_input_embeddings().num_embeddings, model.config.get_text_config().vocab_size)
    if adapter is not None:
        apply_adapter(model, adapter)
    model.eval().requires_grad_(False)
    if device.type == "cpu":
        _detach_from_files(model)
    model.to(device)  # to another device, this copies them
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        device=device,
        context=_context(model.config, tokenizer),
        vocabulary=vocabulary,
        stop_tokens=_stop_tokens(model, tokenizer),
        arguments=arguments,
        cache_argument=cache_argument,
        threads=1 if model.num_parameters() < _SMALL_PARAMETERS else _ALL_THREADS,
        joins_batches=_joins_batches(model.config),
        marks={} if tokenizer is None else marks_of(tokenizer),
    )


def _wanted_dtype(dtype: str | None, device: torch.device) -> torch.dtype | str:
    if dtype is not None:
        return getattr(torch, dtype)
    return torch.float32 if device.type == "cpu" else "auto"


def _read(directory: Path, dtype: torch.dtype | str) -> tuple[Any, Any | None, Mapping[str, Any]]:
    """Model and tokenizer as transformers reads them from the files, and its report on the weights.

    Raises:
        FailedPrecondition: transformers cannot.
    """
    with refusing(directory, Reason.MODEL_REFUSED):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            directory,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused by name, see `refuse_other_weights`
        )
        model, report = loaded
        tokenizer = load_tokenizer(directory)
    return model, tokenizer, report


def load_tokenizer(directory: Path) -> Any | None:
    """The tokenizer next to the weights, if there is one."""
    if not has_tokenizer(directory):
        return None
    return AutoTokenizer.from_pretrained(directory, trust_remote_code=False, local_files_only=True)


def _detach_from_files(model: torch.nn.Module) -> None:
    """Copy weights that may still be a mapped file: overwriting a checkpoint must not change an open model."""
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()


def _context(config: Any, tokenizer: Any | None) -> int | None:
    text = config.get_text_config()
    # Most reliable first; transformers maps most older names (n_positions) to the first.
    for name in ("max_position_embeddings", "max_sequence_length", "seq_length", "max_seq_len"):
        limit = getattr(text, name, None)
        if isinstance(limit, int) and limit > 0:
            return limit
    limit = getattr(tokenizer, "model_max_length", None)
    return int(limit) if limit is not None and limit < _UNLIMITED else None


def _stop_tokens(model: Any, tokenizer: Any | None) -> frozenset[int]:
    found: set[int] = set()
    for holder in (model.config.get_text_config(), model.generation_config, tokenizer):
        tokens = getattr(holder, "eos_token_id", None)
        found.update([tokens] if isinstance(tokens, int) else tokens or ())
    return frozenset(found)


def _joins_batches(config: Any) -> bool:
    # Subclasses of DynamicLayer are sliding windows; recurrent layers are none.
    layers = DynamicCache(config=config).layers
    return all(isinstance(layer, DynamicLayer) for layer in layers)


# Checks in a child, which can be killed, whether a checkpoint can be loaded.


def load_texts(message: dict[str, Any], max_rendered_chars: int) -> tuple[Texts | None, Any]:
    """The texts of a directory, and the facts about its tokenizer, which are empty if it has none.

    Args:
        message: the `path`, and whether its tokenizer is wanted `alone`: then there need be no model.
        max_rendered_chars: bound of the texts.

    Raises:
        FailedPrecondition: its configuration does not describe its weights, or its tokenizer cannot be read
            (MODEL_REFUSED).
    """
    directory = Path(message["path"])
    with refusing(directory, Reason.MODEL_REFUSED):
        if not message["alone"]:
            check_sizes(directory)
        tokenizer = load_tokenizer(directory)
    if tokenizer is None:
        return None, {}
    check_tokenizer(tokenizer, directory)
    return Texts(tokenizer, max_rendered_chars), facts_of(tokenizer)
