"""Loads a model from a directory into memory."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.cache_utils import DynamicLayer

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.host.adapters import apply_adapter
from crucible_worker.backends.local.host.decoding import marks_of
from crucible_worker.backends.local.host.other_weights import refuse_other_weights
from crucible_worker.backends.local.host.refusals import refusing
from crucible_worker.backends.local.paths import has_tokenizer

__all__ = ["LoadedModel", "load", "load_tokenizer", "resolve_device"]

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
    """Special tokens that mark reasoning, by id, see `decoding.py`."""

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
            "has_chat_template": tokenizer is not None and bool(tokenizer.chat_template),
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
