"""The models of the host and the thread that runs them."""

from __future__ import annotations

import dataclasses
import logging
import queue
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import torch

from crucible_bridge.errors import BridgeError, FailedPrecondition, InternalError, InvalidField
from crucible_bridge.types import ChatMessage
from crucible_worker.backends.local.frames import NOT_OPEN, tokens_from_bytes, tokens_to_bytes
from crucible_worker.backends.local.host.loading import LoadedModel, load, resolve_device
from crucible_worker.backends.local.host.scheduler import Answer, Scheduler, to_backend_error
from crucible_worker.rendering import tinker_cookbook

__all__ = ["MAX_OPEN_MODELS", "Engine"]

MAX_OPEN_MODELS = 4
"""Models in memory; of those without work the least recently used one goes first."""

_log = logging.getLogger(__name__)


class Engine:
    """Takes requests from the pipe's thread, and answers them from whichever thread has the result.

    Models load in one thread and compute in another; tokenizers answer at once, in the caller's.

    Args:
        device: where models compute that name none: "auto", "cpu", "cuda" or "cuda:N".
        answer: sends a result or an error; called from several threads.
    """

    def __init__(self, device: str, answer: Answer) -> None:
        self._device_name = device
        self._threads = torch.get_num_threads()
        self._answer = answer
        self._inbox: queue.SimpleQueue[tuple[str, int, Any]] = queue.SimpleQueue()
        self._models: OrderedDict[str, Scheduler] = OrderedDict()
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="loader")
        # The first one imports tinker-cookbook, a second or two in which the pipe has to be read.
        self._renderer = ThreadPoolExecutor(1, thread_name_prefix="renderer")

    def submit(self, message: dict[str, Any]) -> None:
        """Take a request; it is answered in any case."""
        identity, op = message["id"], message["op"]
        try:
            match op:
                case "open":
                    self._loader.submit(self._load, identity, message)
                case "encode":
                    self._answer(identity, self._encode(message))
                case "encode_chat":
                    self._answer(identity, self._encode_chat(message))
                case "render":
                    self._renderer.submit(self._render, identity, message)
                case "decode":
                    self._answer(identity, self._decode(message))
                case "score" | "continue" | "greedy" | "sample" | "abort" | "close":
                    self._inbox.put((op, identity, message))
                case _:
                    raise InternalError(f"the host has no operation {op!r}")
        except Exception as error:  # whatever it is, it is answered; the host goes on
            self._answer_error(identity, error)

    def run(self) -> None:
        """Compute, for ever."""
        with torch.inference_mode():
            while True:
                self._receive()
                for scheduler in [one for one in self._models.values() if one.busy]:
                    self._use_threads(scheduler.loaded.threads)
                    scheduler.step()

    def _use_threads(self, count: int) -> None:
        if count != self._threads:
            torch.set_num_threads(count)
            self._threads = count

    def _receive(self) -> None:
        """Handle what has come; wait for something where there is nothing to compute."""
        wait = not any(scheduler.busy for scheduler in self._models.values())
        while wait or not self._inbox.empty():
            op, identity, content = self._inbox.get()
            wait = False
            try:
                self._handle(op, identity, content)
            except Exception as error:  # whatever it is, it is answered; the host goes on
                self._answer_error(identity, error)

    def _handle(self, op: str, identity: int, content: Any) -> None:
        match op:
            case "loaded":
                key, loaded = content
                self._install(key, loaded)
                self._answer(identity, {"key": key, **loaded.facts()})
            case "score":
                self._open(content).add_scoring(identity, content)
            case "continue":
                self._open(content).add_continuations(identity, content)
            case "greedy":
                self._open(content).add_greedy(identity, content)
            case "sample":
                self._open(content).add_sampling(identity, content)
            case "abort":
                for scheduler in self._models.values():
                    scheduler.abort(identity)
            case "close":
                scheduler = self._models.get(content["model"])
                if scheduler is not None and not scheduler.busy:
                    del self._models[content["model"]]
                self._answer(identity, None)

    def _open(self, message: dict[str, Any]) -> Scheduler:
        scheduler = self._models.get(message["model"])
        if scheduler is None:
            raise FailedPrecondition("the model is not open", reason=NOT_OPEN)
        self._models.move_to_end(message["model"])
        return scheduler

    def _load(self, identity: int, message: dict[str, Any]) -> None:
        try:
            device = resolve_device(message["device"] or self._device_name)
            key = f"{message['fingerprint']} on {device}"
            scheduler = self._models.get(key)
            loaded = (
                scheduler.loaded
                if scheduler
                else load(
                    Path(message["path"]),
                    device,
                    adapter=None if message["adapter"] is None else Path(message["adapter"]),
                    dtype=message["dtype"],
                )
            )
        except Exception as error:  # whatever it is, it is answered; the host goes on
            self._answer_error(identity, error)
        else:
            self._inbox.put(("loaded", identity, (key, loaded)))

    def _install(self, key: str, loaded: LoadedModel) -> None:
        if key not in self._models:
            idle = [name for name, scheduler in self._models.items() if not scheduler.busy]
            for name in idle[: max(0, len(self._models) + 1 - MAX_OPEN_MODELS)]:
                del self._models[name]
            self._models[key] = Scheduler(loaded, self._answer)
        self._models.move_to_end(key)

    def _render(self, identity: int, message: dict[str, Any]) -> None:
        try:
            messages = [ChatMessage(**plain) for plain in message["messages"]]
            rendered = tinker_cookbook.render(
                self._tokenizer(message), message["renderer"], messages, train_on=message["train_on"]
            )
        except Exception as error:  # whatever it is, it is answered; the host goes on
            self._answer_error(identity, error)
        else:
            self._answer(identity, dataclasses.asdict(rendered))

    def _tokenizer(self, message: dict[str, Any]) -> Any:
        scheduler = self._models.get(message["model"])
        if scheduler is None:
            raise FailedPrecondition("the model is not open", reason=NOT_OPEN)
        return scheduler.loaded.tokenizer

    def _encode(self, message: dict[str, Any]) -> list[bytes]:
        wholes = _encode_texts(self._tokenizer(message), message["texts"], special=message["special"])
        return [_packed(tokens) for tokens in wholes]

    def _encode_chat(self, message: dict[str, Any]) -> bytes:
        tokenizer = self._tokenizer(message)
        return _packed(_encode_chat(tokenizer, message["messages"], generation_prompt=message["generation_prompt"]))

    def _decode(self, message: dict[str, Any]) -> str:
        tokens = tokens_from_bytes(message["tokens"]).tolist()
        return self._tokenizer(message).decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _answer_error(self, identity: int, error: Exception) -> None:
        if not isinstance(error, BridgeError):
            _log.error("a request failed", exc_info=error)
            error = to_backend_error(error)
        self._answer(identity, error)


def _packed(tokens: list[int]) -> bytes:
    return tokens_to_bytes(np.array(tokens, dtype=np.int64))


def _encode_texts(tokenizer: Any, texts: list[str], *, special: bool) -> list[list[int]]:
    wholes = _encoded(tokenizer, texts, special=special)
    if special:
        # Some tokenizers close a text as well; a prompt has to stay open.
        end = [tokenizer.eos_token_id]
        closed = [index for index, tokens in enumerate(wholes) if tokens[-1:] == end]
        bares = _encoded(tokenizer, [texts[index] for index in closed], special=False)
        for index, bare in zip(closed, bares, strict=True):
            if bare[-1:] != end:
                wholes[index].pop()
    return wholes


def _encoded(tokenizer: Any, texts: list[str], *, special: bool) -> list[list[int]]:
    if not texts:
        return []
    asked = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
    return tokenizer(texts, add_special_tokens=special, **asked)["input_ids"]


def _encode_chat(tokenizer: Any, messages: list[dict[str, str]], *, generation_prompt: bool) -> list[int]:
    try:
        return tokenizer.apply_chat_template(
            messages, add_generation_prompt=generation_prompt, tokenize=True, return_dict=False
        )
    except jinja2.TemplateError as error:
        raise InvalidField("messages", f"are refused by the chat template: {error}") from error
