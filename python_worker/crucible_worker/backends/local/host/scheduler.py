"""Decides what one model does next: score, let waiting rows join, generate one more token for all rows."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import torch

from crucible_bridge.errors import BackendError, BridgeError
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.arrays import tokens_from_bytes
from crucible_worker.backends.local.host.loading import LoadedModel
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

__all__ = [
    "MAX_BATCH_TOKENS",
    "MAX_PREFILL_TOKENS",
    "MAX_ROWS",
    "Answer",
    "Scheduler",
    "is_out_of_memory",
    "to_backend_error",
]

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

_log = logging.getLogger(__name__)


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
