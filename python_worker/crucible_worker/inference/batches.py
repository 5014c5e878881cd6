"""A batch of questions to one model, asked concurrently and within bounds; each gets a result or a problem."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

import structlog

from crucible_bridge.errors import BridgeError, DeadlineExceeded, FailedPrecondition
from crucible_bridge.problems import at_field, problem_of
from crucible_bridge.reasons import Reason
from crucible_bridge.types import ModelRef, Problem, Usage
from crucible_worker.backends.base import Backend, Model
from crucible_worker.inference.retries import RetryingModel, RetryPolicy
from crucible_worker.util.error_reporter import logged, shortage
from crucible_worker.util.tasks import SharedLock

__all__ = ["ITEMS_A_PASS", "Ask", "BatchBounds", "BatchResults", "ask_all", "each", "open_model"]

ITEMS_A_PASS = 8
"""Items that begin in one pass of the event loop; one that fails by a bug takes some 2 ms, most of it for its traceback
in the log."""

Q = TypeVar("Q")
R = TypeVar("R")

Ask = Callable[[int, Q], Awaitable[R]]
"""Asks one question, given its index; BridgeError is its problem."""

_DEADLINE_FIELD = "limits.deadline_ms"

_log = structlog.get_logger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchBounds:
    """What a batch may take."""

    concurrency: int
    """Questions at once, at most."""
    item_seconds: float
    """One question's time, its retries included."""
    deadline: float | None = None
    """When all of it ends, by the event loop's clock; never if None."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchResults(Generic[R]):
    """The results of a batch."""

    results: Sequence[R | Problem]
    """One per question, in their order."""
    model_fingerprint: str
    """Fingerprint of the checkpoint that answered."""
    usage: Usage | None = None
    """Usage of the whole batch, without a cost."""


async def ask_all(
    backends: Mapping[type[ModelRef], Backend],
    model: ModelRef,
    questions: Sequence[Q | Problem],
    asker: Callable[[RetryingModel], Ask[Q, R]],
    *,
    bounds: BatchBounds,
    field: str = "model",
    awaited: str = "the model was ready",
) -> BatchResults[R]:
    """Open a model and ask it all questions; retryable failures are retried, within a budget of the whole batch.

    Args:
        backends: by the kind of reference that they open.
        model: the model.
        questions: a problem among them is returned as its own answer.
        asker: makes the function that asks one question from the open model.
        bounds: what it may take. At the deadline, questions without an answer get a problem, and no call starts then.
        field: where the request names the model.
        awaited: what the deadline was over before, for the error.

    Raises:
        DeadlineExceeded: it was over before the model was loaded.
        FailedPrecondition: this worker has no such backend, or `asker` refuses the model.
        BridgeError: the model cannot be opened.
    """
    gate = RetryPolicy(len(questions))
    results: dict[int, R | Problem] = {}
    fingerprint: str | None = None
    gated: RetryingModel | None = None
    not_ready = DeadlineExceeded(f"was over before {awaited}", field=_DEADLINE_FIELD)
    if bounds.deadline is not None and asyncio.get_running_loop().time() >= bounds.deadline:
        # A timer would fire only once calls have started.
        raise not_ready
    timer = asyncio.timeout_at(bounds.deadline)
    try:
        async with timer:
            opened = await open_model(backends, model, gate, field)
            gated = RetryingModel(opened, gate, seconds_left=lambda: bounds.item_seconds)
            ask = asker(gated)
            fingerprint = opened.fingerprint

            async def answer(index: int) -> None:
                results[index] = await _answer(ask, index, questions[index], bounds.item_seconds)

            await each(len(questions), answer, bounds.concurrency)
    except TimeoutError:
        if not timer.expired():
            raise
        if fingerprint is None:
            raise not_ready from None
    finally:
        gate.close()
    late = Problem(
        reason=DeadlineExceeded.default_reason,
        message=f"{_DEADLINE_FIELD} was over: {len(results):,} of {len(questions):,} items had an answer",
        retryable=True,
    )
    whole = [results.get(index, late) for index in range(len(questions))]
    usage = None if gated is None else gated.meter.usage
    return BatchResults(results=whole, model_fingerprint=fingerprint or "", usage=usage)


async def each(count: int, ask: Callable[[int], Awaitable[None]], concurrency: int) -> None:
    """Call `ask` for each index below `count`, in order, so many at once; the first error ends all and is raised."""
    indices = iter(range(count))
    turns = SharedLock(ITEMS_A_PASS)

    async def take() -> None:
        for index in indices:
            await turns.take()
            await ask(index)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, count)):
                group.create_task(take())
    except BaseExceptionGroup as failed:
        # The caller needs one error, not an ExceptionGroup.
        raise failed.exceptions[0] from None


async def open_model(
    backends: Mapping[type[ModelRef], Backend], model: ModelRef, gate: RetryPolicy, field: str
) -> Model:
    """Open and load a model.

    Raises:
        FailedPrecondition: this worker has no backend for such a reference (NO_BACKEND).
        BridgeError: the backend's, at `field`.
    """
    backend = backends.get(type(model))
    if backend is None:
        raise FailedPrecondition(
            f"is a {type(model).__name__}, for which this worker has no backend", reason=Reason.NO_BACKEND, field=field
        )
    try:
        opened = await backend.open(model)
        await gate.call(opened.load)
    except BridgeError as error:
        raise at_field(error, field, own="model") from error
    return opened


async def _answer(ask: Ask[Q, R], index: int, question: Q | Problem, seconds: float) -> R | Problem:
    if isinstance(question, Problem):
        return question
    timer = asyncio.timeout(seconds)
    try:
        async with timer:
            return await ask(index, question)
    except BridgeError as error:
        return problem_of(error)
    except TimeoutError as error:
        if timer.expired():
            message = f"took longer than item_timeout_ms, {seconds * 1000:.0f}"
            return Problem(reason=Reason.ITEM_TIMEOUT, message=message, retryable=True)
        return _problem_of_bug(error, index)
    except Exception as error:
        return _problem_of_bug(error, index)


def _problem_of_bug(error: Exception, index: int) -> Problem:
    if (lacking := shortage(error)) is not None:
        return problem_of(lacking)
    error_id = logged(_log, "item_failed", error, index=index)
    return Problem(reason=Reason.INTERNAL, message=f"internal error {error_id}")
