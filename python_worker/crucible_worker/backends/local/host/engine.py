"""The models of the host, the thread that runs them, and the scheduler that decides what each model does next."""

from __future__ import annotations

import dataclasses
import functools
import gc
import logging
import os
import queue
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition, InternalError
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.host.loading import LoadedModel, load, refusing, resolve_device
from crucible_worker.backends.local.host.sampling import Batch, Request, TokenRow, choose, make_rows
from crucible_worker.backends.local.host.scoring import (
    WORTH_A_THREAD,
    Measured,
    Part,
    Replicas,
    TokenDistributions,
    continuations,
    sequences,
)
from crucible_worker.backends.local.host.text_processes import ForkServerEnded, HostForkServer, TextEngine, TextProcess
from crucible_worker.backends.local.host.weight_checks import read_config
from crucible_worker.backends.local.protocol import HostBounds, tokens_from_bytes

__all__ = [
    "MAX_BATCH_TOKENS",
    "MAX_OPEN_MODELS",
    "MAX_PREFILL_TOKENS",
    "MAX_ROWS",
    "Answer",
    "Scheduler",
    "TorchEngine",
    "is_out_of_memory",
    "to_backend_error",
]

_log = logging.getLogger(__name__)

# What one model does next: score, let waiting rows join, generate one more token for all rows.

MAX_ROWS = 64
"""Most rows of a batch."""
MAX_BATCH_TOKENS = 65_536
"""Most rows times columns of a batch at its end; a single row may have more."""
MAX_PREFILL_TOKENS = 8_192
"""Most rows times columns of the prompts that are read at once; a single prompt may have more."""
SCORING_SECONDS = 0.02
"""Seconds of scoring at a time while rows wait for their next token; at least one sequence."""

Answer = Callable[[int, Any], None]
"""Sends a result, or a BridgeError, for the request of that id."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _MeasuringPass:
    """A part of a request's sequences; one pass measures it."""

    request: Request
    first: int
    """Index of its first row among the request's results."""
    part: Part | TokenDistributions


class Scheduler:
    """The work of one model. Everything is called from one thread."""

    def __init__(self, loaded: LoadedModel, answer: Answer) -> None:
        self.loaded = loaded
        self._answer = answer
        self._requests: dict[int, Request] = {}
        self._measuring = Replicas(loaded)
        self._scoring: deque[_MeasuringPass] = deque()
        self._waiting: deque[TokenRow] = deque()
        self._batches: list[Batch] = []
        self.ran_out_of_memory = False
        """Whether a request has failed for lack of memory; the owner resets it."""

    @property
    def busy(self) -> bool:
        """Whether there is work to do, or to drop."""
        return bool(self._requests or self._scoring or self._waiting or self._batches)

    def add_scoring(self, identity: int, message: dict[str, Any]) -> None:
        """Accept a request for the log-probabilities of given tokens."""
        tokens, targets = (list(map(tokens_from_bytes, given)) for given in zip(*message["items"], strict=True))
        self._measure_soon(identity, len(tokens), sequences(tokens, targets, together=message["together"]))

    def add_continuations(self, identity: int, message: dict[str, Any]) -> None:
        """Accept a request for the log-probabilities of continuations of one prompt."""
        given = list(map(tokens_from_bytes, message["continuations"]))
        self._measure_soon(identity, len(given), [continuations(tokens_from_bytes(message["prompt"]), given)])

    def add_argmax(self, identity: int, message: dict[str, Any]) -> None:
        """Accept a request for the likeliest tokens after given ones."""
        tokens = list(map(tokens_from_bytes, message["items"]))
        self._measure_soon(identity, len(tokens), sequences(tokens))

    def add_distributions(self, identity: int, message: dict[str, Any]) -> None:
        """Accept a request for the likeliest tokens, and given ones, beside those of a sequence."""
        self._measure_soon(identity, 1, [TokenDistributions.of(message)])

    def add_sampling(self, identity: int, message: dict[str, Any]) -> None:
        """Accept a request for samples."""
        request = self._requests[identity] = Request(identity, [None] * message["num_samples"])
        self._waiting.extend(make_rows(request, tokens_from_bytes(message["prompt"]).tolist(), message, self.loaded))

    def abort(self, identity: int) -> None:
        """Drop a request; unknown ones were answered already."""
        if (request := self._requests.pop(identity, None)) is not None:
            request.over = True

    def step(self) -> None:
        """Do a bounded amount of work."""
        self._drop_finished()
        self._score()
        for batch in list(self._batches):
            self._generate(batch, prefill=False)
        self._drop_finished()
        if joining := self._next_to_join():
            self._generate(Batch(self.loaded, joining), prefill=True)

    def _measure_soon(self, identity: int, results: int, parts: Iterable[Part | TokenDistributions]) -> None:
        request = self._requests[identity] = Request(identity, [None] * results)
        first = 0
        for part in parts:
            self._scoring.append(_MeasuringPass(request, first, part))
            first += len(part.sizes)

    def _drop_finished(self) -> None:
        self._waiting = deque(row for row in self._waiting if not row.request.over)
        for batch in self._batches:
            batch.keep([index for index, row in enumerate(batch.rows) if not row.request.over])
        self._batches = [batch for batch in self._batches if batch.rows]

    def _score(self) -> None:
        until = time.monotonic() + SCORING_SECONDS
        while chosen := self._next_to_measure():
            found = self._measuring.measure([each.part for each in chosen])
            for each, results in zip(chosen, found, strict=True):
                self._take(each, results)
            if time.monotonic() >= until:
                return

    def _next_to_measure(self) -> list[_MeasuringPass]:
        """What is measured concurrently, in order of arrival."""
        chosen: list[_MeasuringPass] = []
        while self._scoring and len(chosen) < self._measuring.width:
            if (each := self._scoring.popleft()).request.over:
                continue
            chosen.append(each)
            if each.part.positions < WORTH_A_THREAD:
                break
        return chosen

    def _take(self, each: _MeasuringPass, results: Measured) -> None:
        if isinstance(results, Exception):
            self._fail(each.request, results)
            return
        for index, result in enumerate(results, each.first):
            self._finish(each.request, index, result)

    def _next_to_join(self) -> list[TokenRow]:
        """Rows to read next, in order of arrival, as far as they fit."""
        active = [row for batch in self._batches for row in batch.rows]
        joining: list[TokenRow] = []
        capacity = max((row.capacity for row in active), default=0)
        width = 0
        while self._waiting and len(active) + len(joining) < MAX_ROWS:
            row = self._waiting[0]
            capacity = max(capacity, row.capacity)
            width = max(width, len(row.prompt))
            rows = len(joining) + 1
            fits = (len(active) + rows) * capacity <= MAX_BATCH_TOKENS and rows * width <= MAX_PREFILL_TOKENS
            if (active or joining) and not fits:
                break
            joining.append(self._waiting.popleft())
            if not self.loaded.joins_batches:
                break
        return joining

    def _generate(self, batch: Batch, *, prefill: bool) -> None:
        try:
            logits = batch.prefill() if prefill else batch.advance()
            going_on = self._accept(batch, logits)
            batch.keep(going_on)
            if prefill and batch.rows:
                if self._batches and self.loaded.joins_batches:
                    self._batches[0].join(batch)
                else:
                    self._batches.append(batch)
        except Exception as error:  # any error is an answer; the host continues
            for row in batch.rows:
                self._fail(row.request, error)

    def _accept(self, batch: Batch, logits: torch.Tensor) -> list[int]:
        """Append the next token to every row; returns indices of the rows that continue."""
        going_on: list[int] = []
        for index, choice in enumerate(choose(logits, [row.chooser for row in batch.rows])):
            row = batch.rows[index]
            if choice is None:
                error = BackendError(
                    "the model's logits are not finite", reason=Reason.LOGITS_NOT_FINITE, retryable=False
                )
                self._fail(row.request, error)
            elif (result := row.accept(choice, self.loaded)) is not None:
                self._finish(row.request, row.index, result)
            else:
                going_on.append(index)
        return going_on

    def _finish(self, request: Request, index: int, result: Any) -> None:
        if request.take(index, result) and not request.over:
            self._end(request, request.results)

    def _fail(self, request: Request, error: Exception) -> None:
        if request.over:
            return
        if not isinstance(error, BridgeError):
            if "CUDA error" in str(error) and not is_out_of_memory(error):
                raise error  # CUDA's context is lost for good: only another process gets a new one
            _log.error("a model failed", exc_info=error)
            self.ran_out_of_memory |= is_out_of_memory(error)
            error = to_backend_error(error)
        self._end(request, error)

    def _end(self, request: Request, result: Any) -> None:
        request.over = True
        self._requests.pop(request.identity, None)
        self._answer(request.identity, result)


_OUT_OF_MEMORY = (
    "can't allocate memory",  # of the CPU
    "CUDA error: out of memory",  # beside PyTorch's allocator, such as for CUDA's context
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)
"""Parts of messages of errors that have no class of their own."""


def is_out_of_memory(error: Exception) -> bool:
    """Whether the memory of a device did not suffice."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return any(part in str(error) for part in _OUT_OF_MEMORY)


def to_backend_error(error: Exception) -> BackendError:
    """The error that the worker gets for an unexpected exception; the traceback is in the log."""
    if is_out_of_memory(error):
        return BackendError("the model's device is out of memory", reason=Reason.OUT_OF_MEMORY, retryable=True)
    return BackendError(f"the model failed: {type(error).__name__}", reason=Reason.MODEL_FAILED, retryable=False)


MAX_OPEN_MODELS = 4
"""Most models in memory; the least recently used one without work is removed first."""


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
