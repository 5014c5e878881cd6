"""The models of the host and the thread that runs them."""

from __future__ import annotations

import dataclasses
import functools
import gc
import logging
import os
import queue
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from crucible_bridge.errors import BridgeError, FailedPrecondition, InternalError
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.host.loading import LoadedModel, load, refusing, resolve_device
from crucible_worker.backends.local.host.scheduler import Answer, Scheduler, is_out_of_memory, to_backend_error
from crucible_worker.backends.local.host.text_processes import ForkServerEnded, HostForkServer, TextEngine, TextProcess
from crucible_worker.backends.local.host.weight_checks import read_config
from crucible_worker.backends.local.protocol import HostBounds

__all__ = ["MAX_OPEN_MODELS", "TorchEngine"]

MAX_OPEN_MODELS = 4
"""Most models in memory; the least recently used one without work is removed first."""

_log = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True)
class _OpenModel:
    """A model in memory, with its texts."""

    scheduler: Scheduler
    texts: TextProcess | None
    """None if it has no tokenizer."""

    @property
    def busy(self) -> bool:
        return self.scheduler.busy

    @property
    def complete(self) -> bool:
        """Whether none of its processes has ended."""
        return self.texts is None or not self.texts.dead

    def close(self) -> None:
        if self.texts is not None:
            self.texts.close()


class TorchEngine:
    """Accepts requests from the pipe's thread, and answers them from the thread that has the result.

    Models load in one thread and compute in another. Chat templates and tokenizers run in separate processes, as they
    may take any time and memory. Only the decoding of tokens runs here: `check_tokenizer` ensures that it is linear.

    Args:
        device: of models without a named one: "auto", "cpu", "cuda" or "cuda:N".
        bounds: of those processes.
        fork_server: makes them.
        answer: sends a result or an error; called from several threads.
    """

    def __init__(self, device: str, bounds: HostBounds, fork_server: HostForkServer, answer: Answer) -> None:
        self._device_name = device
        self._threads = torch.get_num_threads()
        self._bounds = bounds
        self._fork_server = fork_server
        self._answer = answer
        self._inbox: queue.SimpleQueue[tuple[str, int, Any]] = queue.SimpleQueue()
        self._models: OrderedDict[str, _OpenModel] = OrderedDict()
        self._tokenizers = TextEngine(bounds, fork_server, answer)
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="loader")

    def submit(self, message: dict[str, Any]) -> None:
        """Accept a request; it is answered in any case."""
        identity, op = message["id"], message["op"]
        try:
            match op:
                case "open":
                    self._loader.submit(self._load, identity, message)
                case "ping":
                    self._answer(identity, None)
                case "open_tokenizer":
                    self._tokenizers.submit({**message, "op": "open"})
                case "encode" | "encode_chat" | "render" | "decode" | "decode_answer" | "decode_all" | "parse":
                    if message["alone"]:
                        self._tokenizers.submit(message)
                    else:
                        self._texts_of(message).submit(identity, message)
                case "abort":
                    self._tokenizers.submit(message)
                    for opened in list(self._models.values()):
                        if opened.texts is not None:
                            opened.texts.abort(identity)
                    self._inbox.put((op, identity, message))
                case "score" | "continue" | "greedy" | "distributions" | "sample" | "close":
                    self._inbox.put((op, identity, message))
                case _:
                    raise InternalError(f"the host has no operation {op!r}")
        except Exception as error:  # any error is an answer; the host continues
            self._answer_error(identity, error)

    def run(self) -> None:
        """Compute, for ever."""
        with torch.inference_mode():
            while True:
                self._receive()
                self._step()

    def _step(self) -> None:
        for scheduler in [one.scheduler for one in self._models.values() if one.busy]:
            self._use_threads(scheduler.loaded.threads)
            scheduler.step()
            if scheduler.ran_out_of_memory:
                scheduler.ran_out_of_memory = False
                self._remove_idle(but=scheduler)

    def _use_threads(self, count: int) -> None:
        if count != self._threads:
            torch.set_num_threads(count)
            self._threads = count

    def _receive(self) -> None:
        """Handle received messages; wait for one if there is nothing to compute."""
        wait = not any(opened.busy for opened in self._models.values())
        while wait or not self._inbox.empty():
            op, identity, content = self._inbox.get()
            wait = False
            try:
                self._handle(op, identity, content)
            except Exception as error:  # any error is an answer; the host continues
                self._answer_error(identity, error)

    def _handle(self, op: str, identity: int, content: Any) -> None:
        match op:
            case "loaded":
                key, loaded, texts = content
                self._install(key, loaded, texts)
                self._answer(identity, {"key": key, **loaded.facts()})
            case "score":
                self._open(content).add_scoring(identity, content)
            case "continue":
                self._open(content).add_continuations(identity, content)
            case "greedy":
                self._open(content).add_argmax(identity, content)
            case "distributions":
                self._open(content).add_distributions(identity, content)
            case "sample":
                self._open(content).add_sampling(identity, content)
            case "abort":
                for opened in self._models.values():
                    opened.scheduler.abort(identity)
            case "close":
                self._remove(content["model"])
                self._answer(identity, None)
            case "make room":
                self._remove_idle()
                content.set()

    def _open(self, message: dict[str, Any]) -> Scheduler:
        opened = self._opened(message)
        self._models.move_to_end(message["model"])
        return opened.scheduler

    def _texts_of(self, message: dict[str, Any]) -> TextProcess:
        texts = self._opened(message).texts
        if texts is None:
            raise FailedPrecondition("the model has no tokenizer", reason=Reason.NO_TOKENIZER)
        return texts

    def _opened(self, message: dict[str, Any]) -> _OpenModel:
        opened = self._models.get(message["model"])
        if opened is None:
            raise FailedPrecondition("the model is not open", reason=Reason.MODEL_NOT_OPEN)
        return opened

    def _load(self, identity: int, message: dict[str, Any]) -> None:
        try:
            device = resolve_device(message["device"] or self._device_name)
            key = f"{message['key']} in {message['dtype'] or 'its type'} on {device}"
            opened = self._models.get(key)
            if opened is not None and opened.complete:
                content = (key, opened.scheduler.loaded, opened.texts)
            else:
                content = (key, *self._made(message, device, opened))
        except ForkServerEnded:
            _log.exception("the fork server has ended, and so does the host")
            os._exit(1)
        except Exception as error:  # any error is an answer; the host continues
            self._answer_error(identity, error)
        else:
            self._inbox.put(("loaded", identity, content))

    def _made(
        self, message: dict[str, Any], device: torch.device, opened: _OpenModel | None
    ) -> tuple[LoadedModel, TextProcess | None]:
        """A model and its texts; only new texts if only these have ended."""
        directory = Path(message["path"])
        with refusing(directory, Reason.MODEL_REFUSED):
            model_type = read_config(directory).get("model_type")
        texts = TextProcess(self._fork_server.fork(str(model_type)), self._bounds, self._answer)
        # First: it checks that the host can load the rest.
        has_texts = texts.load(directory.name, {"path": str(directory), "alone": False})
        if opened is not None:
            return opened.scheduler.loaded, texts
        try:
            loaded = self._weights(message, device)
        except BaseException:
            texts.close()
            raise
        return loaded, texts if has_texts else None

    def _weights(self, message: dict[str, Any], device: torch.device) -> LoadedModel:
        adapter = None if message["adapter"] is None else Path(message["adapter"])
        attempt = functools.partial(load, Path(message["path"]), device, adapter=adapter, dtype=message["dtype"])
        try:
            return attempt()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        # Not in the handler: there, the error's traceback would keep what was loaded so far.
        self._make_room()
        return attempt()

    def _make_room(self) -> None:
        """Have the computing thread remove all models without work, and wait for it."""
        removed = threading.Event()
        self._inbox.put(("make room", 0, removed))
        removed.wait()

    def _install(self, key: str, loaded: LoadedModel, texts: TextProcess | None) -> None:
        opened = self._models.get(key)
        if opened is None:
            idle = [name for name, one in self._models.items() if not one.busy]
            for name in idle[: max(0, len(self._models) + 1 - MAX_OPEN_MODELS)]:
                self._remove(name)
            self._models[key] = _OpenModel(Scheduler(loaded, self._answer), texts)
        elif opened.texts is not texts:
            opened.close()
            opened.texts = texts
        self._models.move_to_end(key)

    def _remove_idle(self, but: Scheduler | None = None) -> None:
        """Remove all models without work, except one."""
        for name in [name for name, one in self._models.items() if one.scheduler is not but]:
            self._remove(name)

    def _remove(self, name: str) -> None:
        """Remove a model, unless it has work, and give its memory back to the device."""
        opened = self._models.get(name)
        if opened is None or opened.busy:
            return
        self._models.pop(name).close()
        on_cuda = opened.scheduler.loaded.device.type == "cuda"
        del opened
        if on_cuda:
            # PyTorch would keep the memory: a process that trains on the same device could not use it.
            gc.collect()
            torch.cuda.empty_cache()

    def _answer_error(self, identity: int, error: Exception) -> None:
        if not isinstance(error, BridgeError):
            _log.error("a request failed", exc_info=error)
            error = to_backend_error(error)
        self._answer(identity, error)
