"""From a directory to a model in memory."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.cache_utils import DynamicLayer

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.host.adapters import apply_adapter
from crucible_worker.backends.local.host.refusals import refusing

__all__ = ["LoadedModel", "load", "load_tokenizer", "resolve_device"]

_CACHE_ARGUMENTS = ("past_key_values", "cache_params")
"""Of attention (and of what is mixed with it), and of recurrent models."""
_SMALL_PARAMETERS = 10_000_000
"""A smaller model has one thread to itself: its products are done before a second one has woken up, and threads that
wait for each other on a busy machine cost a multiple of the work. Its results then do not depend on the number of cores
either."""
_ALL_THREADS = torch.get_num_threads()
"""As torch finds them at the start, before a small model has changed the number."""
_UNLIMITED = 1_000_000_000
"""A tokenizer without a limit says 1e30."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedModel:
    """A model that can be asked, and what has to be known of it."""

    model: Any
    """The transformers model, in evaluation mode, without gradients."""
    tokenizer: Any | None
    """Its tokenizer, where there is one."""
    device: torch.device
    """Where its weights are."""
    context: int | None
    """Tokens that fit; None where nothing says."""
    vocabulary: int
    """Token ids are below this."""
    stop_tokens: frozenset[int]
    """Tokens that end a text."""
    arguments: frozenset[str]
    """What the forward pass takes."""
    cache_argument: str
    """Under which name it takes a cache."""
    threads: int
    """How many threads compute it, on a CPU."""
    joins_batches: bool
    """Whether its cache is keys and values alone, which rows of different ages can share. Recurrent state cannot."""

    @property
    def single_threaded(self) -> bool:
        """Whether one thread computes a pass."""
        return self.threads == 1 and self.device.type == "cpu"

    def new_cache(self) -> DynamicCache:
        """An empty cache for one batch."""
        # Without the configuration every layer keeps all keys, sliding windows being up to the mask: such layers can
        # be padded and joined.
        return DynamicCache() if self.joins_batches else DynamicCache(config=self.model.config)

    def facts(self) -> dict[str, Any]:
        """What the worker has to know of it."""
        tokenizer = self.tokenizer
        return {
            "context": self.context,
            "vocabulary": self.vocabulary,
            "bos": None if tokenizer is None else tokenizer.bos_token_id,
            "eos": None if tokenizer is None else tokenizer.eos_token_id,
            "has_tokenizer": tokenizer is not None,
            "has_chat_template": tokenizer is not None and bool(tokenizer.chat_template),
        }


def resolve_device(name: str) -> torch.device:
    """The device that "auto", "cpu", "cuda" or "cuda:N" means here; "cuda" is the first.

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
    """Load a model and its tokenizer, which stays its own where there is an adapter.

    Unless a type is asked for, weights become float32 on a CPU, whatever they are on disk: half precision is slow
    there, and rounds differently from one processor to the next. On CUDA they stay as they are.

    Args:
        directory: the model's.
        device: where it computes.
        adapter: directory of a LoRA adapter.
        dtype: element type of the weights.

    Raises:
        FailedPrecondition: the files are no causal language model, or no adapter of it; they are damaged, or need code
            of their own.
    """
    model, tokenizer, missing = _read(directory, _wanted_dtype(dtype, device))
    if missing:
        # transformers would go on with random ones.
        raise FailedPrecondition(
            f"{directory.name!r} lacks {len(missing)} weights of its model, the first is {missing[0]}",
            reason=Reason.MODEL_REFUSED,
        )
    arguments = frozenset(inspect.signature(model.forward).parameters)
    cache_argument = next((name for name in _CACHE_ARGUMENTS if name in arguments), None)
    if cache_argument is None:
        # It would take the last token for the whole text, and not say so.
        raise FailedPrecondition(
            f"{type(model).__name__} takes no cache, without which it cannot generate here", reason=Reason.MODEL_REFUSED
        )
    vocabulary = min(model.get_input_embeddings().num_embeddings, model.config.get_text_config().vocab_size)
    if adapter is not None:
        apply_adapter(model, adapter)
    model.eval().requires_grad_(False)
    _detach_from_files(model)
    model.to(device)
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
    )


def _wanted_dtype(dtype: str | None, device: torch.device) -> torch.dtype | str:
    if dtype is not None:
        return getattr(torch, dtype)
    return torch.float32 if device.type == "cpu" else "auto"


def _read(directory: Path, dtype: torch.dtype | str) -> tuple[Any, Any | None, list[str]]:
    """Model and tokenizer as transformers makes them of the files, and the names of weights that no file has.

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
        )
        model, report = loaded
        tokenizer = load_tokenizer(directory)
    return model, tokenizer, sorted(report["missing_keys"])


def load_tokenizer(directory: Path) -> Any | None:
    """The tokenizer beside the weights, if there is one."""
    names = {file.name for file in directory.iterdir()}
    if names.isdisjoint({"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt"}):
        return None
    return AutoTokenizer.from_pretrained(directory, trust_remote_code=False, local_files_only=True)


def _detach_from_files(model: torch.nn.Module) -> None:
    """Copy weights that may still be the mapped file: a checkpoint that is overwritten must not change what is open."""
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()


def _context(config: Any, tokenizer: Any | None) -> int | None:
    text = config.get_text_config()
    # In the order of trust; transformers maps most older names (n_positions) to the first.
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
